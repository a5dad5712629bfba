"""Customers who leave: what was done for them is paid, hidden or shown."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..arithmetic import Units
from ..catalogue import (
    CHAT,
    CHAT_SHOWN,
    MESSAGES,
    MESSAGES_SHOWN,
    RESPONSES,
    RESPONSES_SHOWN,
    Model,
)
from ..customer import FIRST_TEXT, LAST_TEXT, Customer
from ..dialects import (
    STORY,
    STORY_TOKENS,
    chat,
    chat_document,
    chat_stream,
    messages,
    messages_document,
    messages_stream,
    responses,
    responses_document,
    responses_stream,
)
from ..script import Answer, Pause, Script, Send
from ..vector import KEEPALIVE, AtLeastBill, Estimate, Exact, Expectation, Vector
from . import asking

PROMPT_TOKENS = 24
HIDDEN = 20_000


@dataclass(frozen=True)
class Talk:
    """An operation that answers with text."""

    name: str
    path: str
    ask: Callable[..., dict[str, Any]]
    whole: Callable[..., Answer]
    stream: Callable[..., Answer]
    usage: Callable[[int, int], dict[str, Any]]
    hiding: Model
    shown: Model


def chat_usage(prompt: int, output: int) -> dict[str, Any]:
    total = prompt + output
    return {"prompt_tokens": prompt, "completion_tokens": output, "total_tokens": total}


def usage(prompt: int, output: int) -> dict[str, Any]:
    return {"input_tokens": prompt, "output_tokens": output}


TALKS = (
    Talk("chat", asking.CHAT, chat, chat_document, chat_stream, chat_usage, CHAT, CHAT_SHOWN),
    Talk("responses", asking.RESPONSES, responses, responses_document, responses_stream, usage,
         RESPONSES, RESPONSES_SHOWN),
    Talk("messages", asking.MESSAGES, messages, messages_document, messages_stream, usage, MESSAGES,
         MESSAGES_SHOWN),
)  # fmt: skip

#: How customers leave, by their names.
WAYS = {
    "reset": ("reset", 1),
    "close": ("close", 1),
    "half-close": ("half-close", 1),
    "reset of an HTTP/2 stream": ("reset", 2),
    "close of an HTTP/2 connection": ("close", 2),
}
#: When they leave: where the script waits for that, and how the customer knows.
MOMENTS: dict[str, tuple[str, str]] = {
    "before the head": ("arrived", "arrived"),
    "after the first byte": ("head", "head"),
    "after the first text": ("first", FIRST_TEXT),
    "just before the usage": ("last", LAST_TEXT),
}


def vectors() -> list[Vector]:
    return [
        *hidden(),
        *shown(),
        *scripts(),
        *with_media(),
        *kept_alive(),
        *given_up(),
        *slow(),
    ]


def hidden() -> list[Vector]:
    """20,000 tokens of reasoning that nobody has seen: the gateway reads on, and bills the usage."""
    used = Units(input=PROMPT_TOKENS, output=HIDDEN + STORY_TOKENS)
    made = []
    for talk in TALKS:
        told = talk.usage(used.input, used.output)
        for way, (how, http) in WAYS.items():
            for moment, (gate, sign) in MOMENTS.items():
                answer = talk.stream(told, used, gate, hidden=HIDDEN)
                made.append(
                    leaving(
                        talk,
                        f"{way} {moment}",
                        talk.hiding,
                        talk.ask(stream=True),
                        answer,
                        Customer(leaves=sign, how=how, http=http),
                    )
                )
            whole = talk.whole(told, used, "arrived")
            made.append(
                leaving(
                    talk,
                    f"{way} of a call that is not streamed",
                    talk.hiding,
                    talk.ask(),
                    whole,
                    Customer(leaves="arrived", how=how, http=http),
                )
            )
    return made


def leaving(
    talk: Talk,
    name: str,
    model: Model,
    body: dict[str, Any],
    answer: Answer,
    customer: Customer,
    expect: Expectation | None = None,
    **more: Any,
) -> Vector:
    request = asking.ask(talk.path, model, body)
    script = Script((answer,))
    name = f"leaving {talk.name} / {name}"
    return Vector(name, model, request, script, expect or Exact(), customer, **more)


def shown() -> list[Vector]:
    """All that there is has been shown: cutting the upstream is right, and so is an estimate."""
    used = Units(input=PROMPT_TOKENS, output=STORY_TOKENS)
    made = []
    for talk in TALKS:
        told = talk.usage(used.input, used.output)
        for way, (how, http) in WAYS.items():
            for moment, (gate, sign) in MOMENTS.items():
                if (how, http) in (("close", 1), ("close", 2)):
                    continue
                answer = talk.stream(told, used, gate)
                made.append(
                    leaving(
                        talk,
                        f"shown, {way} {moment}",
                        talk.shown,
                        talk.ask(stream=True),
                        answer,
                        Customer(leaves=sign, how=how, http=http),
                        Estimate(),
                    )
                )
    off = messages(stream=True, thinking={"type": "disabled"})
    talk = TALKS[2]
    answer = talk.stream(talk.usage(used.input, used.output), used, "last")
    made.append(
        leaving(
            talk,
            "thinking is switched off by the request",
            MESSAGES,
            off,
            answer,
            Customer(leaves=LAST_TEXT),
            Estimate(),
        )
    )
    return made


#: Texts, and the tokens that the dearer of two public vocabularies makes of them, o200k_base and
#: cl100k_base.
SCRIPTS: tuple[tuple[str, str, int], ...] = (
    ("prose", "The keeper wrote down each ship that passed. " * 20, 181),
    ("long words", "Donaudampfschifffahrtsgesellschaftskapitän " * 10, 162),
    ("code", "if (a[i] != b[j]) { x += f(i, j) * 2; }\n" * 15, 330),
    ("digits", "31415926535897932384626433832795028841971" * 10, 137),
    ("base64", "Zk9sQ2h3WjR1TTJ4VnB0S0c3cTlEYkpyTGZ5RXNO" * 10, 350),
    ("hexadecimal", "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b" * 10, 260),
    ("Chinese", "守塔人记下了每一艘经过的船只,从未遗漏。" * 12, 312),
    ("Japanese", "灯台守は通り過ぎるすべての船を書き留めた。" * 12, 348),
    ("Korean", "등대지기는 지나가는 모든 배를 적어 두었다. " * 12, 254),
    ("Russian", "Смотритель записывал каждый проходящий корабль. " * 12, 205),
    ("Arabic", "كتب الحارس كل سفينة تمر أمام المنارة. " * 12, 301),
    ("Hindi", "रखवाले ने हर गुज़रते जहाज़ को लिखा। " * 12, 480),
    ("Thai", "ผู้ดูแลประภาคารจดบันทึกเรือทุกลำที่ผ่านไป " * 10, 390),
    ("emoji", "🗼🌊🚢⛵🐟🦀🌅🌌" * 15, 360),
    ("punctuation", "!?#;:()[]{}<>=+-*/\\|&^%$@~`" * 10, 200),
)


def scripts() -> list[Vector]:
    """A text of each kind in one large piece: the estimate covers it, whatever vocabulary the model
    has. The dearest public one makes twice as many tokens of some scripts as these two."""
    made = []
    for name, text, tokens in SCRIPTS:
        for talk in TALKS:
            story = (FIRST_TEXT, f"{text}{LAST_TEXT}")
            counts = (2, tokens + 2)
            used = Units(input=PROMPT_TOKENS, output=sum(counts))
            told = talk.usage(used.input, used.output)
            answer = talk.stream(told, used, "last", story=story, tokens=counts)
            made.append(
                leaving(
                    talk,
                    f"{name} in one piece",
                    talk.shown,
                    talk.ask(stream=True),
                    answer,
                    Customer(leaves=LAST_TEXT),
                    Estimate("2.2"),
                )
            )
    return made


PICTURE = "data:image/png;base64," + "iVBORw0KGgo=" * 40
PDF = "data:application/pdf;base64," + "JVBERi0xLjQK" * 40


def with_media() -> list[Vector]:
    """What a picture or a document comes to says the upstream alone."""
    text = "Tell me of the lighthouse, {case}."
    rows: tuple[tuple[int, str, list[dict[str, Any]]], ...] = (
        (0, "a picture", [{"type": "image_url", "image_url": {"url": PICTURE}}]),
        (0, "a picture by its URL",
         [{"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}]),
        (0, "a PDF", [{"type": "file", "file": {"filename": "a.pdf", "file_data": PDF}}]),
        (1, "a picture", [{"type": "input_image", "image_url": PICTURE}]),
        (1, "a PDF", [{"type": "input_file", "filename": "a.pdf", "file_data": PDF}]),
        (1, "a PDF by its URL", [{"type": "input_file", "file_url": "https://example.com/a.pdf"}]),
        (2, "a picture", [{"type": "image", "source": {
            "type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}}]),
        (2, "a PDF", [{"type": "document", "source": {
            "type": "base64", "media_type": "application/pdf", "data": "JVBERi0xLjQK"}}]),
        (2, "a PDF by its URL", [{"type": "document", "source": {
            "type": "url", "url": "https://example.com/a.pdf"}}]),
    )  # fmt: skip
    used = Units(input=90_000, output=STORY_TOKENS)
    made = []
    for number, name, blocks in rows:
        talk = TALKS[number]
        kind = "input_text" if talk.name == "responses" else "text"
        content = [*blocks, {"type": kind, "text": text}]
        field = "input" if talk.name == "responses" else "messages"
        body = talk.ask(stream=True, **{field: [{"role": "user", "content": content}]})
        told = talk.usage(used.input, used.output)
        for moment in ("before the head", "after the first text", "just before the usage"):
            gate, sign = MOMENTS[moment]
            answer = talk.stream(told, used, gate)
            made.append(
                leaving(
                    talk, f"{name}, reset {moment}", talk.shown, body, answer, Customer(leaves=sign)
                )
            )
    return made


def kept_alive() -> list[Vector]:
    """With comments on a silent stream, the head comes before the upstream's."""
    used = Units(input=PROMPT_TOKENS, output=HIDDEN + STORY_TOKENS)
    made = []
    for talk in TALKS:
        told = talk.usage(used.input, used.output)
        for way in ("reset", "half-close", "reset of an HTTP/2 stream"):
            how, http = WAYS[way]
            for moment, gate, sign in (
                ("before the head", "arrived", "arrived"),
                ("at the first comment", "arrived", "head"),
                ("after the first text", "first", FIRST_TEXT),
            ):
                answer = talk.stream(told, used, gate, hidden=HIDDEN)
                made.append(
                    leaving(
                        talk,
                        f"kept alive, {way} {moment}",
                        talk.hiding,
                        talk.ask(stream=True),
                        answer,
                        Customer(leaves=sign, how=how, http=http),
                        gateway=KEEPALIVE,
                    )
                )
    return made


def given_up() -> list[Vector]:
    """Reading on has its bounds. Behind them nobody tells, and the bound of the call is charged."""
    used = Units(input=PROMPT_TOKENS, output=HIDDEN + STORY_TOKENS)
    made = []
    for talk in TALKS:
        told = talk.usage(used.input, used.output)
        brief = {"on_disconnect": {"time": "300ms", "bytes": "64MiB"}}
        small = {"on_disconnect": {"time": "20s", "bytes": "16KiB"}}
        answer = talk.stream(told, used, "first", hidden=HIDDEN)
        long = (*answer.steps[:4], Pause(1.5), *answer.steps[4:])
        # Events that fill the bytes and say nothing.
        filler = Send(b": " + b"x" * 8192 + b"\n\n")
        large = (*answer.steps[:4], *[filler] * 8, *answer.steps[4:])
        for name, rules, steps in (("time", brief, long), ("bytes", small, large)):
            model = talk.hiding.own(f"{talk.hiding.name}-bounded-{name}", rules=rules)
            made.append(
                leaving(
                    talk,
                    f"no more {name} for reading on",
                    model,
                    talk.ask(stream=True),
                    Answer(steps, content_type=answer.content_type, at_once=answer.at_once),
                    Customer(leaves=FIRST_TEXT),
                    AtLeastBill(),
                )
            )
    return made


def slow() -> list[Vector]:
    """Slow customers pay what everybody pays."""
    story = (
        STORY[0],
        *("The keeper wrote down each ship that passed. " * 40 for _ in range(12)),
        STORY[3],
    )
    made = []
    for talk in TALKS:
        used = Units(input=PROMPT_TOKENS, output=HIDDEN)
        told = talk.usage(used.input, used.output)
        for http in (1, 2):
            customer = Customer(bite=1024, rests_s=0.01, http=http)
            answer = talk.stream(told, used, story=story, tokens=(100,) * len(story))
            made.append(
                leaving(
                    talk,
                    f"a slow reader over HTTP/{http} stays",
                    talk.hiding,
                    talk.ask(stream=True),
                    answer,
                    customer,
                )
            )
            whole = talk.whole(told, used)
            made.append(
                leaving(
                    talk,
                    f"a slow reader over HTTP/{http}, not streamed",
                    talk.hiding,
                    talk.ask(),
                    whole,
                    Customer(bite=64, rests_s=0.005, http=http),
                )
            )
    return made
