"""Answers without a usage that could be true: the bound, or an estimate where all was shown."""

from __future__ import annotations

from typing import Any

from ..arithmetic import Units
from ..dialects import STORY_TOKENS
from ..script import Answer, Break, Pause, Script, Send
from ..vector import AtLeastBill, Covered, Estimate, Expectation, Vector
from . import asking
from .leaving import HIDDEN, PROMPT_TOKENS, TALKS, Talk

#: Usages that tell nothing; `output` is the dialect's word for the tokens of the answer.
USAGES: dict[str, Any] = {
    "none": None,
    "zeros": (0, 0),
    "no output": (PROMPT_TOKENS, 0),
    "negative": (-1, -5),
    "fractions": (1.5, 2.5),
    "texts": ("24", "many"),
    "beyond all numbers": (PROMPT_TOKENS, 2**70),
}


def vector(
    talk: Talk, name: str, is_shown: bool, answer: Answer, expect: Expectation, **more: Any
) -> Vector:
    model = more.pop("model", talk.shown if is_shown else talk.hiding)
    body = talk.ask(**more.pop("fields", {}))
    kind = "shown" if is_shown else "hiding"
    name = f"unreported {talk.name} / {kind}, {name}"
    return Vector(
        name, model, asking.ask(talk.path, model, body), Script((answer,)), expect, **more
    )


def vectors() -> list[Vector]:
    return [*complete(), *broken(), *out_of_time()]


def complete() -> list[Vector]:
    made = []
    for talk in TALKS:
        for name, pair in USAGES.items():
            told = None if pair is None else talk.usage(0, 0) | dict(
                zip(tuple(talk.usage(0, 0))[:2], pair, strict=True)
            )  # fmt: skip
            for is_shown in (False, True):
                hidden = 0 if is_shown else HIDDEN
                used = Units(input=PROMPT_TOKENS, output=hidden + STORY_TOKENS)
                expect = Estimate() if is_shown else AtLeastBill()
                # Nobody reads an answer on its way that comes whole: it counts as dense text.
                unread = Estimate("3.2") if is_shown else AtLeastBill()
                whole = talk.whole(told, used)
                stream = talk.stream(told, used, hidden=hidden)
                made.append(vector(talk, f"{name}, json", is_shown, whole, unread, status=200))
                made.append(
                    vector(
                        talk,
                        f"{name}, stream",
                        is_shown,
                        stream,
                        expect,
                        status=200,
                        fields={"stream": True},
                    )
                )
    return made


def broken() -> list[Vector]:
    """The upstream breaks off after the first text has been relayed."""
    made = []
    for talk in TALKS:
        for is_shown in (False, True):
            hidden = 0 if is_shown else HIDDEN
            used = Units(input=PROMPT_TOKENS, output=hidden + STORY_TOKENS)
            whole = talk.stream(None, used, hidden=hidden)
            texts = whole.steps[:4]
            for name, reset in (("reset", True), ("closed", False)):
                steps = (*texts, Pause(0.1), Break(reset))
                answer = Answer(steps, content_type=whole.content_type, at_once=whole.at_once)
                expect = Estimate() if is_shown else Covered()
                made.append(
                    vector(
                        talk,
                        f"{name} by the upstream after text",
                        is_shown,
                        answer,
                        expect,
                        fields={"stream": True},
                        calls=1,
                    )
                )
    return made


def out_of_time() -> list[Vector]:
    """The gateway's own patience ends: for silence, and for the whole of an answer."""
    made = []
    for talk in TALKS[:2]:
        used = Units(input=PROMPT_TOKENS, output=HIDDEN + STORY_TOKENS)
        told = talk.usage(used.input, used.output)
        brief = talk.hiding.own(f"{talk.hiding.name}-brief", upstreams=("openai-brief",))
        short = talk.hiding.own(f"{talk.hiding.name}-short", upstreams=("openai-short",))
        whole, stream = talk.whole(told, used), talk.stream(told, used, hidden=HIDDEN)
        silent = Answer(whole.steps, framing="length", before=(Pause(1.2),), at_once=used)
        made.append(
            vector(
                talk,
                "silent for too long before the head",
                False,
                silent,
                Covered(),
                calls=1,
                model=brief,
            )
        )
        first, rest = stream.steps[:4], stream.steps[4:]
        for name, model, pause in (
            ("silent for too long after text", brief, (Pause(1.2),)),
            ("too long as a whole", short, (Send(b": go on\n\n"), Pause(0.25)) * 6),
        ):
            steps = (*first, *pause, *rest)
            answer = Answer(steps, content_type=stream.content_type, at_once=stream.at_once)
            made.append(
                vector(
                    talk,
                    name,
                    False,
                    answer,
                    AtLeastBill(),
                    calls=1,
                    model=model,
                    fields={"stream": True},
                )
            )
    return made
