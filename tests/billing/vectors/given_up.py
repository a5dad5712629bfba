"""Translated answers that the gateway itself breaks off: what was delivered is charged, and the rest is the
operator's, whether it comes as a stream or as JSON."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ..arithmetic import Units
from ..catalogue import CHAT
from ..dialects import (
    STORY_TOKENS,
    chat_chunk,
    chat_document,
    chat_stream,
    event,
    gemini,
    messages,
    responses,
)
from ..script import Answer, Script, Send
from ..vector import Noted, Vector, Void
from . import asking
from .chat import usage

PROMPT_TOKENS = 24
HIDDEN = 9_000
#: Calls of a tool without a name, which nobody can translate.
NAMELESS = {"tool_calls": [{"index": 0, "id": "t", "function": {"arguments": '{"a":1}'}}]}


def vectors() -> list[Vector]:
    used = Units(input=PROMPT_TOKENS, output=HIDDEN + STORY_TOKENS)
    told = usage(used.input, used.output)
    whole = chat_document(told, used)
    stream = chat_stream(told, used, hidden=HIDDEN)
    seen = Units(input=PROMPT_TOKENS, output=STORY_TOKENS)
    broken = Send(event(chat_chunk(NAMELESS)))
    # Behind the last text, in front of the reason to end.
    late = with_step(stream, broken, len(stream.steps) - 3)
    early = with_step(stream, broken, 1)
    nameless = whole.body.replace(b'"role"', b'"tool_calls": [{"id": "t"}], "role"')
    document = replace(whole, steps=(Send(nameless, used),))
    rows: tuple[tuple[str, dict[str, Any], Answer, Any], ...] = (
        ("a stream behind its text", {"stream": True}, late, Noted(seen)),
        ("a stream before its text", {"stream": True}, early, Void()),
        ("a document", {}, document, Void()),
    )
    return [
        Vector(f"given up / {talk}, {name}", CHAT, request(fields), Script((answer,)), expect, calls=1)
        for talk, request in CUSTOMERS.items()
        for name, fields, answer, expect in rows
    ]


def with_step(answer: Answer, step: Send, at: int) -> Answer:
    return replace(answer, steps=(*answer.steps[:at], step, *answer.steps[at:]))


#: Customers of other dialects than the upstream's.
CUSTOMERS: dict[str, Any] = {
    "messages": lambda fields: asking.ask(asking.MESSAGES, CHAT, messages(**fields)),
    "responses": lambda fields: asking.ask(asking.RESPONSES, CHAT, responses(**fields)),
    "gemini": lambda fields: asking.ask_gemini(CHAT, gemini(**fields)),
}
