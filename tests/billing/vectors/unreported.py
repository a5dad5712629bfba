"""Answers without a usage that could be true: what is known of them is charged, and the rest is the
operator's loss; or the most that they can be, where a customer could bring it about."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ..arithmetic import Units
from ..catalogue import CHAT_BOUND, GEMINI, GEMINI_BOUND, GEMINI_SHOWN, MESSAGES_BOUND, RESPONSES_BOUND
from ..dialects import STORY_TOKENS, gemini, gemini_document, gemini_stream
from ..script import Answer, Break, Pause, Script, Send
from ..vector import AtLeastBill, Covered, Estimate, Expectation, Noted, Vector
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
#: What one side says bounds the charge: the output, however much may be hidden.
SAID_TOKENS = 60


def gemini_usage(prompt: int, output: int) -> dict[str, Any]:
    return {"promptTokenCount": prompt, "candidatesTokenCount": output}


GEMINI_TALK = Talk(
    "gemini", "gemini", gemini, gemini_document, gemini_stream, gemini_usage, GEMINI, GEMINI_SHOWN
)
#: Each with the model that an operator has charged the most.
ALL = tuple(
    zip(
        (*TALKS, GEMINI_TALK),
        (CHAT_BOUND, RESPONSES_BOUND, MESSAGES_BOUND, GEMINI_BOUND),
        strict=True,
    )
)


def vector(
    talk: Talk, name: str, is_shown: bool, answer: Answer, expect: Expectation, **more: Any
) -> Vector:
    model = more.pop("model", talk.shown if is_shown else talk.hiding)
    body = talk.ask(**more.pop("fields", {}))
    kind = "shown" if is_shown else "hiding"
    name = f"unreported {talk.name} / {kind}, {name}"
    is_gemini = talk.path == "gemini"
    request = asking.ask_gemini(model, body) if is_gemini else asking.ask(talk.path, model, body)
    return Vector(name, model, request, Script((answer,)), expect, **more)


def vectors() -> list[Vector]:
    return [*complete(), *partial(), *asked_for(), *broken(), *out_of_time()]


def complete() -> list[Vector]:
    made = []
    for talk, _ in ALL:
        for name, pair in USAGES.items():
            told = None if pair is None else talk.usage(0, 0) | dict(
                zip(tuple(talk.usage(0, 0))[:2], pair, strict=True)
            )  # fmt: skip
            for is_shown in (False, True):
                hidden = 0 if is_shown else HIDDEN
                used = Units(input=PROMPT_TOKENS, output=hidden + STORY_TOKENS)
                seen = Units(input=PROMPT_TOKENS, output=STORY_TOKENS)
                expect = Estimate() if is_shown else Noted(seen)
                # Nobody reads an answer on its way that comes whole: it counts as dense text.
                unread = Estimate("3.2") if is_shown else Noted(seen, "3.2")
                whole = talk.whole(told, used)
                stream = talk.stream(told, used, hidden=hidden)
                made += both(talk, name, is_shown, (whole, unread), (stream, expect))
    return made


def both(
    talk: Talk,
    name: str,
    is_shown: bool,
    whole: tuple[Answer, Expectation],
    stream: tuple[Answer, Expectation],
    fields: dict[str, Any] | None = None,
    **more: Any,
) -> list[Vector]:
    """A vector as JSON, and one as a stream."""
    asked = fields or {}
    return [
        vector(talk, f"{name}, json", is_shown, *whole, status=200, fields=asked, **more),
        vector(
            talk, f"{name}, stream", is_shown, *stream, status=200,
            fields=asked | {"stream": True}, **more,
        ),
    ]  # fmt: skip


def partial() -> list[Vector]:
    """One side is told: it bounds the charge, whatever may be hidden."""
    made = []
    for talk, _ in ALL:
        used = Units(input=PROMPT_TOKENS, output=SAID_TOKENS)
        _, output = tuple(talk.usage(0, 0))[:2]
        told = {output: SAID_TOKENS}
        answers = talk.whole(told, used), talk.stream(told, used)
        whole, stream = ((answer, Noted(used, "1.4")) for answer in answers)
        made += both(talk, "the output alone", False, whole, stream)
    return made


def asked_for() -> list[Vector]:
    """What a customer can bring about, or the operator wants so, is charged as the most that it can be."""
    used = Units(input=PROMPT_TOKENS, output=HIDDEN + STORY_TOKENS)
    stops = {
        "chat": {"stop": ["lighthouse"]},
        "messages": {"stop_sequences": ["lighthouse"]},
        "gemini": {"generationConfig": {"stopSequences": ["lighthouse"]}},
    }
    thinks = {
        "chat": {"reasoning_effort": "high"},
        "responses": {"reasoning": {"effort": "high"}},
        "messages": {"thinking": {"type": "enabled", "budget_tokens": 20_000}},
        "gemini": {"generationConfig": {"thinkingConfig": {"thinkingBudget": 20_000}}},
    }
    made = []
    for talk, bound in ALL:
        whole = talk.whole(None, used), AtLeastBill()
        stream = talk.stream(None, used, hidden=HIDDEN), AtLeastBill()
        made += both(talk, "as the operator wants it", False, whole, stream, model=bound)
        rows = {"an answer with stops": stops, "thoughts that are asked for": thinks}
        for name, fields in rows.items():
            if talk.name in fields:
                made += both(talk, name, False, whole, stream, fields[talk.name])
        cut = tuple((at_limit(answer), expect) for answer, expect in (whole, stream))
        made += both(talk, "an answer as long as may be", False, *cut)
    return made


#: How dialects say that an answer has ended, and that it was cut at the most output.
ENDINGS = (
    (b'"stop"', b'"length"'),
    (b'"end_turn"', b'"max_tokens"'),
    (b'"STOP"', b'"MAX_TOKENS"'),
    (b'"completed"', b'"incomplete"'),
    (b"response.completed", b"response.incomplete"),
)


def at_limit(answer: Answer) -> Answer:
    """The answer, cut at the most output that was asked for."""

    def ended(data: bytes) -> bytes:
        for whole, cut in ENDINGS:
            data = data.replace(whole, cut)
        return data

    steps = tuple(
        replace(step, data=ended(step.data)) if isinstance(step, Send) else step
        for step in answer.steps
    )
    return replace(answer, steps=steps)


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
