"""Translated calls: what is true of a dialect's own customers is true of everybody else's.

Every vector of chat, responses and messages whose request says nothing but what all of them can say is asked
once more by customers of the other two dialects: the upstream, its faults, its customer's leaving and what
must come of it stay the same. Where the answer is whole, what the customer reads as usage, repriced by their
own dialect's rules, is the bill.
"""

from __future__ import annotations

import json
from dataclasses import replace
from decimal import Decimal
from typing import Any

from ..arithmetic import Units, rounded, show
from ..customer import Reply
from ..dialects import chat, messages, responses
from ..script import Case
from ..vector import Exact, Vector
from . import chat as chats
from . import contradictions, leaving, unreported
from . import messages as message_vectors
from . import responses as response_vectors
from .asking import CHAT, MESSAGES, RESPONSES, ask

#: How customers of each dialect ask, and what they call the most output.
DIALECTS = {
    CHAT: ("chat", chat, "max_tokens"),
    MESSAGES: ("messages", messages, "max_tokens"),
    RESPONSES: ("responses", responses, "max_output_tokens"),
}
#: Fields that say the same in every dialect.
PLAIN = {"model", "messages", "input", "stream", "stream_options", "max_tokens", "max_output_tokens"}


def number(usage: dict[str, Any], *path: str) -> int:
    """The count at a path; 0 where there is none."""
    found: Any = usage
    for key in path:
        found = found.get(key) if isinstance(found, dict) else None
    return found or 0


def read_openai(usage: dict[str, Any], prompt: str, completion: str) -> Units:
    details, spoken = f"{prompt}_details", number(usage, f"{completion}_details", "audio_tokens")
    cached = number(usage, details, "cached_tokens")
    written = number(usage, details, "cache_write_tokens")
    hour = number(usage, details, "cache_creation", "ephemeral_1h_input_tokens")
    heard = number(usage, details, "audio_tokens")
    return Units(
        input=number(usage, prompt) - cached - written - heard,
        cache_read=cached,
        cache_write=written - hour,
        cache_write_1h=hour,
        audio_in=heard,
        output=number(usage, completion) - spoken,
        audio_out=spoken,
        web_searches=number(usage, "server_tool_use", "web_search_requests"),
    )


def read_anthropic(usage: dict[str, Any]) -> Units:
    heard = number(usage, "input_tokens_details", "audio_tokens")
    spoken = number(usage, "output_tokens_details", "audio_tokens")
    return Units(
        input=number(usage, "input_tokens") - heard,
        cache_read=number(usage, "cache_read_input_tokens"),
        cache_write=number(usage, "cache_creation", "ephemeral_5m_input_tokens"),
        cache_write_1h=number(usage, "cache_creation", "ephemeral_1h_input_tokens"),
        audio_in=heard,
        output=number(usage, "output_tokens") - spoken,
        audio_out=spoken,
        web_searches=number(usage, "server_tool_use", "web_search_requests"),
    )


def told(path: str, body: bytes) -> Units | None:
    """What the customer reads as the usage of an answer that is whole."""
    datas = [line[6:] for line in body.split(b"\n") if line.startswith(b"data: {")] or [body]
    found: dict[str, Any] | None = None
    for data in datas:
        event = json.loads(data)
        inside = event.get("response") or event.get("message") or event
        found = inside.get("usage") or event.get("usage") or found
    if found is None:
        return None
    match path:
        case "/v1/chat/completions":
            return read_openai(found, "prompt_tokens", "completion_tokens")
        case "/v1/responses":
            return read_openai(found, "input_tokens", "output_tokens")
        case _:
            return read_anthropic(found)


def check_usage(path: str, vector: Vector) -> Any:
    """The usage that the customer reads is the bill."""

    def check(case: Case, reply: Reply) -> list[str]:
        ends = (b"[DONE]", b"message_stop", b"response.completed", b"response.incomplete")
        if reply.left or reply.body[:1] != b"{" and not any(end in reply.body for end in ends):
            return []
        usage = told(path, reply.body)
        if usage is None:
            return ["the customer reads no usage"]
        read = rounded(vector.bill_prices.cost(usage))
        bill = rounded(sum((vector.bill_prices.cost(used) for used in case.bills()), Decimal(0)))
        return [] if read == bill else [f"the customer reads {show(read)}, the bill is {show(bill)}"]

    return check


def asked_by(path: str, vector: Vector) -> Vector | None:
    """The same vector, asked by a customer of another dialect; `None` where it says more than all can."""
    own = vector.request
    if path == own.path or own.path not in DIALECTS or not isinstance(own.body, dict):
        return None
    if not set(own.body) <= PLAIN or vector.checks:
        return None
    said = own.body.get("messages") or own.body.get("input")
    _, template, _ = DIALECTS[own.path]
    if said not in template().values():
        return None
    name, put, most = DIALECTS[path]
    fields: dict[str, Any] = {}
    if own.body.get("stream"):
        fields["stream"] = True
        if path == CHAT:
            fields["stream_options"] = {"include_usage": True}
    limit = own.body.get("max_tokens", own.body.get("max_output_tokens"))
    if limit is not None:
        fields[most] = limit
    checks = (check_usage(path, vector),) if isinstance(vector.expect, Exact) else ()
    model = str(own.body["model"])
    request = replace(ask(path, model, put(**fields)), headers=own.headers)
    if path == MESSAGES:
        request = ask(path, model, put(**fields), *own.headers)
    return replace(vector, name=f"translation / {name} over {vector.name}", request=request, checks=checks)


def vectors() -> list[Vector]:
    parts = (chats, response_vectors, message_vectors, contradictions, leaving, unreported)
    own = [vector for part in parts for vector in part.vectors()]
    asked = (asked_by(path, vector) for vector in own for path in DIALECTS)
    return [vector for vector in asked if vector is not None]
