"""What the scripted upstream does with a call, as data."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Any

from .arithmetic import Units

NOTHING = Units()


@dataclass(frozen=True)
class Send:
    """Bytes of the body, and what the provider has done by the time that it sends them."""

    data: bytes
    used: Units | None = None


@dataclass(frozen=True)
class Await:
    """Goes on when the customer has left, after a moment in which the gateway may hang up."""

    event: str = "left"


@dataclass(frozen=True)
class Pause:
    """Silence. The provider notices when the gateway hangs up meanwhile."""

    seconds: float


@dataclass(frozen=True)
class Break:
    """The connection is gone: with a reset, or closed in the middle."""

    reset: bool = True


Step = Send | Await | Pause | Break


@dataclass(frozen=True)
class Answer:
    """One answer of an upstream."""

    steps: tuple[Step, ...]
    status: int = 200
    content_type: str = "application/json"
    headers: tuple[tuple[str, str], ...] = ()
    #: `chunked`, or `length`: the sum of what is sent.
    framing: str = "chunked"
    #: The whole body goes in pieces of so many bytes, whatever its steps are.
    piece_bytes: int | None = None
    #: What comes before the head.
    before: tuple[Step, ...] = ()
    #: What is billed as soon as the request has been read, whatever becomes of the answer.
    at_once: Units = NOTHING

    @property
    def body(self) -> bytes:
        """All of what is sent."""
        return b"".join(step.data for step in self.steps if isinstance(step, Send))

    def used(self) -> Units:
        """What is billed for the whole answer."""
        told = [step.used for step in self.steps if isinstance(step, Send) and step.used]
        return told[-1] if told else self.at_once


@dataclass(frozen=True)
class Script:
    """The answers to one vector's calls: each in its turn, and the last one for all that follow."""

    calls: tuple[Answer, ...]
    #: Answers to questions about a task.
    polls: tuple[Answer, ...] = ()
    #: The file that an answer names.
    file: Answer | None = None


@dataclass
class Received:
    """A request that reached the upstream."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


@dataclass
class Served:
    """What became of an answer, and what the provider bills for it."""

    answer: Answer
    used: Units
    #: It answered a question about a task: what that has used is told again with every answer.
    is_poll: bool = False
    #: The gateway hung up before the end.
    cut: bool = False
    finished: bool = False
    #: Nothing more is made, whole or not.
    over: bool = False


@dataclass
class Case:
    """One run of a vector, as the upstream sees it. `label` is in the request, so it is recognised."""

    number: int
    script: Script
    received: list[Received] = field(default_factory=list)
    served: list[Served] = field(default_factory=list)
    polled: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)
    events: dict[str, threading.Event] = field(default_factory=dict)

    @property
    def label(self) -> str:
        return f"case{self.number:06d}x"

    def event(self, name: str) -> threading.Event:
        """`arrived` (a call is at the upstream) or `left` (the customer is gone)."""
        with self.lock:
            return self.events.setdefault(name, threading.Event())

    def take_call(self, received: Received) -> Answer:
        """The answer to the next call."""
        with self.lock:
            turn = min(len(self.received), len(self.script.calls) - 1)
            self.received.append(received)
            return self.script.calls[turn]

    def take_poll(self) -> Answer:
        """The answer to the next question about the task."""
        with self.lock:
            turn = min(self.polled, len(self.script.polls) - 1)
            self.polled += 1
            return self.script.polls[turn]

    def is_over(self) -> bool:
        """Whether the provider works at nothing more."""
        with self.lock:
            return all(served.over for served in self.served)

    def bills(self) -> list[Units]:
        """What the provider has billed so far: every call, and a task as its last answer tells."""
        with self.lock:
            calls = [served.used for served in self.served if not served.is_poll]
            polls = [served.used for served in self.served if served.is_poll]
        return calls + polls[-1:]


def labelled(value: Any, label: str) -> Any:
    """`value` with the label of a case wherever `{case}` stands in its texts."""
    if isinstance(value, bytes):
        return value.replace(b"{case}", label.encode())
    if isinstance(value, str):
        return value.replace("{case}", label)
    if isinstance(value, list | tuple):
        return type(value)(labelled(item, label) for item in value)
    if isinstance(value, dict):
        return {name: labelled(item, label) for name, item in value.items()}
    return value
