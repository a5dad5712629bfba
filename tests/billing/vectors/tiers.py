"""Prices that the answer decides on: the tier that served it, the tokens that went in, whether it thought."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ..arithmetic import Units
from ..catalogue import (
    CHAT_THINKS,
    CHAT_TIERS,
    EDGE_TOKENS,
    MESSAGES_TIERS,
    RESPONSES_TIERS,
    Model,
)
from ..dialects import (
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
from ..script import Answer, Script, Send
from ..vector import Exact, Refused, Vector
from . import asking
from .chat import prompt_details, reasoning
from .chat import usage as chat_usage
from .messages import usage as messages_usage
from .responses import details
from .responses import usage as responses_usage


def in_tier(answer: Answer, tier: str | None) -> Answer:
    """The answer, with the tier beside each object of it that has an id."""
    if tier is None:
        return answer
    mark = b'"service_tier": "%s", "object"' % tier.encode()
    steps = tuple(
        replace(step, data=step.data.replace(b'"object"', mark)) if isinstance(step, Send) else step
        for step in answer.steps
    )
    return replace(answer, steps=steps)


#: What is asked for, what serves it, and the tier of the price.
SERVED: tuple[tuple[str | None, str | None, str], ...] = (
    (None, None, "default"),
    (None, "default", "default"),
    (None, "priority", "priority"),
    ("default", "default", "default"),
    ("priority", "priority", "priority"),
    ("priority", "default", "default"),
    ("priority", None, "priority"),
    ("fast", "priority", "priority"),
    ("fast", "fast", "priority"),
    ("flex", "flex", "flex"),
    ("flex", "default", "default"),
    ("auto", "priority", "priority"),
    ("auto", "flex", "flex"),
    ("auto", "default", "default"),
    # Words for tiers that nobody knows: the one that was asked for counts.
    (None, "tier_of_tomorrow", "default"),
    ("priority", "tier_of_tomorrow", "priority"),
    ("flex", "", "flex"),
)
EDGES = (EDGE_TOKENS - 1, EDGE_TOKENS, EDGE_TOKENS + 1)


def price_of(model: Model, tokens: int, **served: Any):
    """The prices of the first branch that is met, found without the gateway's help."""
    for condition, _ in model.when:
        above = condition.get("input_tokens_above", 0)
        wanted = {k: v for k, v in condition.items() if k != "input_tokens_above"}
        if tokens > above and all(served.get(k) == v for k, v in wanted.items()):
            return model.priced(**condition)
    return model.prices


def vectors() -> list[Vector]:
    return [*by_tier(), *by_length_of_messages(), *by_speed_and_place(), *thinking(), *refused()]


def by_tier() -> list[Vector]:
    made = []
    for asked, served, tier in SERVED:
        fields = {} if asked is None else {"service_tier": asked}
        for tokens in EDGES:
            cached = tokens // 3
            used = Units(input=tokens - cached, cache_read=cached, output=95)
            of_chat = chat_usage(tokens, 95, **prompt_details(cached_tokens=cached))
            of_responses = responses_usage(tokens, 95, **details(cached_tokens=cached))
            shapes = (
                ("chat", CHAT_TIERS, asking.CHAT, chat(**fields), chat_document(of_chat, used)),
                ("chat, streamed", CHAT_TIERS, asking.CHAT, chat(stream=True, **fields),
                 chat_stream(of_chat, used)),
                ("responses", RESPONSES_TIERS, asking.RESPONSES, responses(**fields),
                 responses_document(of_responses, used)),
                ("responses, streamed", RESPONSES_TIERS, asking.RESPONSES,
                 responses(stream=True, **fields), responses_stream(of_responses, used)),
            )  # fmt: skip
            for name, model, path, body, answer in shapes:
                made.append(
                    Vector(
                        f"tiers / {name}: asked for {asked}, served {served}, {tokens} tokens",
                        model,
                        asking.ask(path, model, body),
                        Script((in_tier(answer, served),)),
                        Exact(),
                        prices=price_of(model, tokens, service_tier=tier),
                        status=200,
                    )
                )
    return made


def by_length_of_messages() -> list[Vector]:
    """All that went in counts, cached or not, and the whole request has the price."""
    made = []
    for tokens in EDGES:
        parts = {
            "plain": Units(input=tokens, output=90),
            "cached": Units(input=1, cache_read=tokens - 1, output=90),
            "written": Units(
                input=10, cache_write=tokens - 30, cache_write_1h=20, output=90
            ),
        }
        for name, used in parts.items():
            reported = messages_usage(
                used.input,
                used.output,
                cache_read_input_tokens=used.cache_read,
                cache_creation_input_tokens=used.cache_write + used.cache_write_1h,
                cache_creation={
                    "ephemeral_5m_input_tokens": used.cache_write,
                    "ephemeral_1h_input_tokens": used.cache_write_1h,
                },
            )
            for shape, fields, answer in (
                ("json", {}, messages_document(reported, used)),
                ("stream", {"stream": True}, messages_stream(reported, used)),
            ):
                made.append(
                    Vector(
                        f"tiers / messages, {name}, {tokens} tokens, {shape}",
                        MESSAGES_TIERS,
                        asking.ask(asking.MESSAGES, MESSAGES_TIERS, messages(**fields)),
                        Script((answer,)),
                        Exact(),
                        prices=price_of(MESSAGES_TIERS, tokens),
                        status=200,
                    )
                )
    return made


def by_speed_and_place() -> list[Vector]:
    rows: tuple[tuple[dict[str, Any], dict[str, Any], dict[str, Any]], ...] = (
        ({}, {"speed": "standard", "service_tier": "standard"}, {}),
        ({"speed": "fast"}, {"speed": "fast"}, {"speed": "fast"}),
        ({"speed": "fast"}, {"speed": "standard"}, {"speed": "standard"}),
        ({"speed": "fast"}, {}, {"speed": "fast"}),
        ({"inference_geo": "us"}, {"inference_geo": "us"}, {"inference_geo": "us"}),
        ({"inference_geo": "us"}, {"inference_geo": "global"}, {"inference_geo": "global"}),
        ({}, {"inference_geo": "us"}, {"inference_geo": "us"}),
    )
    used = Units(input=700, output=90)
    made = []
    for fields, told, served in rows:
        reported = messages_usage(700, 90, **told)
        for shape, more, answer in (
            ("json", {}, messages_document(reported, used)),
            ("stream", {"stream": True}, messages_stream(reported, used)),
        ):
            made.append(
                Vector(
                    f"tiers / messages, {fields} told as {told}, {shape}",
                    MESSAGES_TIERS,
                    asking.ask(asking.MESSAGES, MESSAGES_TIERS, messages(**fields, **more)),
                    Script((answer,)),
                    Exact(),
                    prices=price_of(MESSAGES_TIERS, 700, **served),
                    status=200,
                )
            )
    return made


def thinking() -> list[Vector]:
    used = Units(input=50, output=700)
    rows: tuple[tuple[dict[str, Any], dict[str, Any], bool], ...] = (
        ({"enable_thinking": True}, reasoning(600), True),
        ({"enable_thinking": False}, reasoning(0), False),
        ({"enable_thinking": False}, {}, False),
        ({"enable_thinking": True}, {}, True),
        ({}, reasoning(600), True),
        ({}, reasoning(0), False),
        ({"enable_thinking": True, "thinking_budget": 900}, reasoning(600), True),
    )
    return [
        Vector(
            f"tiers / {fields} with {told}, {shape}",
            CHAT_THINKS,
            asking.ask(asking.CHAT, CHAT_THINKS, chat(**fields, **more)),
            Script((make(chat_usage(50, 700, **told), used),)),
            Exact(),
            prices=price_of(CHAT_THINKS, 50, thinking=thinks),
            status=200,
        )
        for fields, told, thinks in rows
        for shape, more, make in (
            ("json", {}, chat_document),
            ("stream", {"stream": True}, chat_stream),
        )
    ]


def refused() -> list[Vector]:
    """A tier without a price is refused, and one that cannot be paid is not begun."""
    used = Units(input=50, output=60)
    script = Script((in_tier(chat_document(chat_usage(50, 60), used), "priority"),))
    rows = (
        ("scale", chat(service_tier="scale"), Refused(400, names="service_tier"), "100"),
        ("a list of tiers", chat(service_tier=["priority"]), Refused(400, names="service_tier"), "100"),
        # 32,000 tokens cost $0.32 in the default tier, and $0.65 in this one.
        ("priority, poor", chat(service_tier="priority"), Refused(402), "0.5"),
        ("any tier, poor", chat(service_tier="auto"), Refused(402), "0.5"),
    )  # fmt: skip
    made = [
        Vector(
            f"tiers / refused: {name}",
            CHAT_TIERS,
            asking.ask(asking.CHAT, CHAT_TIERS, body),
            script,
            expect,
            credit=credit,
        )
        for name, body, expect, credit in rows
    ]
    default = in_tier(chat_document(chat_usage(50, 60), used), "default")
    made.append(
        Vector(
            "tiers / the default tier is paid by as much",
            CHAT_TIERS,
            asking.ask(asking.CHAT, CHAT_TIERS, chat(service_tier="default")),
            Script((default,)),
            Exact(),
            credit="0.5",
            status=200,
        )
    )
    return made
