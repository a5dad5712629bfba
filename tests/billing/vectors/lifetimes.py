"""How long a prompt cache keeps what is written to it: OpenAI's thirty minutes, and twelve hours for more."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any

from ..arithmetic import Units, rounded
from ..catalogue import CHAT, RESPONSES, TEXT_LIMITS, TEXT_PRICES, Model
from ..customer import Request
from ..dialects import chat, chat_document, chat_stream, in_pieces, responses
from ..script import Script
from ..vector import Exact, Refused, Vector
from . import asking
from .responses import details, shapes, usage

#: What an agent sends of a repository.
LONG = {"context_tokens_max": 400_000, "output_tokens_max": 32_000}
PRICES = replace(TEXT_PRICES, cache_write_1h=None, cache_write_12h=Decimal("2.63"))
KEPT = Model("responses-kept", ("responses",), PRICES, ("openai",), LONG)
KEPT_CHAT = Model("chat-kept", ("chat",), PRICES, ("openai",), TEXT_LIMITS)
#: The prices of gpt-6-astra.
ASTRA = Model(
    "responses-astra",
    ("responses",),
    replace(
        PRICES,
        input=Decimal(10),
        cache_read=Decimal(1),
        cache_write=Decimal("12.50"),
        cache_write_12h=Decimal(25),
        output=Decimal(50),
    ),
    ("openai",),
    LONG,
)

BREAKPOINT = {"mode": "explicit", "ttl": "12h"}


def marked(**mark: Any) -> dict[str, Any]:
    """A request whose text ends with a mark."""
    text = {"type": "input_text", "text": "{case}"} | mark
    return responses(input=[{"role": "user", "content": [text]}])


def split(short: int, long: int, **more: Any) -> dict[str, Any]:
    told = {"ttl_30m_tokens": short, "ttl_12h_tokens": long}
    return details(cache_write_tokens=short + long, cache_write_tokens_details=told, **more)


ROWS: tuple[tuple[str, Model, dict[str, Any], dict[str, Any], Units], ...] = (
    ("a hundred thousand tokens of gpt-6-astra", ASTRA, marked(prompt_cache_breakpoint=BREAKPOINT),
     usage(100_000, 5, **split(0, 100_000)), Units(cache_write_12h=100_000, output=5)),
    ("both lifetimes", KEPT, marked(prompt_cache_breakpoint=BREAKPOINT),
     usage(1000, 90, **split(200, 300, cached_tokens=400)),
     Units(input=100, cache_read=400, cache_write=200, cache_write_12h=300, output=90)),
    ("asked for the whole request", KEPT, responses(prompt_cache_options={"ttl": "12h"}),
     usage(1000, 91, **split(0, 512)), Units(input=488, cache_write_12h=512, output=91)),
    ("a report without lifetimes falls to what was asked for", KEPT,
     marked(prompt_cache_breakpoint=BREAKPOINT),
     usage(1000, 92, **details(cache_write_tokens=512)),
     Units(input=488, cache_write_12h=512, output=92)),
    ("the usual lifetime", KEPT, responses(prompt_cache_options={"mode": "implicit", "ttl": "30m"}),
     usage(1000, 93, **details(cache_write_tokens=512)),
     Units(input=488, cache_write=512, output=93)),
    ("twelve hours that nobody asked for", RESPONSES, responses(),
     usage(1000, 94, **split(0, 512)), Units(input=488, cache_write_12h=512, output=94)),
)  # fmt: skip

#: What names a lifetime, wherever it stands; the model has no price for it.
UNPRICED: tuple[tuple[str, dict[str, Any]], ...] = (
    ("a mark", marked(prompt_cache_breakpoint=BREAKPOINT)),
    ("an option", responses(prompt_cache_options={"mode": "explicit", "ttl": "12h"})),
    ("a mark in a result", responses(input=[
        {"type": "function_call_output", "call_id": "c", "output": [
            {"type": "input_text", "text": "{case}", "prompt_cache_breakpoint": BREAKPOINT}]}])),
    ("a mark on a picture", responses(input=[{"role": "user", "content": [
        {"type": "input_image", "image_url": "https://example.com/{case}.png",
         "prompt_cache_breakpoint": BREAKPOINT}]}])),
)  # fmt: skip


def vectors() -> list[Vector]:
    return [*written(), *of_chat(), *refused(), *covered()]


def written() -> list[Vector]:
    return [
        Vector(
            f"lifetimes / {name} / {shape}",
            model,
            asking.ask(asking.RESPONSES, model, body | fields),
            Script((answer,)),
            Exact(),
            status=200,
            calls=1,
        )
        for name, model, body, reported, used in ROWS
        for shape, (fields, answer) in shapes(reported, used).items()
    ]


def of_chat() -> list[Vector]:
    """Chat tells no lifetimes apart: what was written is what was asked for."""
    text = {"type": "text", "text": "{case}", "prompt_cache_breakpoint": BREAKPOINT}
    body = chat(messages=[{"role": "user", "content": [text]}])
    reported = {
        "prompt_tokens": 1000,
        "completion_tokens": 95,
        "total_tokens": 1095,
        "prompt_tokens_details": {"cache_write_tokens": 512},
    }
    used = Units(input=488, cache_write_12h=512, output=95)
    made = [
        Vector(
            f"lifetimes / chat / {shape}",
            KEPT_CHAT,
            asking.ask(asking.CHAT, KEPT_CHAT, body | fields),
            Script((answer,)),
            Exact(),
            status=200,
        )
        for shape, fields, answer in (
            ("json", {}, chat_document(reported, used)),
            ("stream", {"stream": True}, chat_stream(reported, used)),
            ("stream in pieces", {"stream": True}, in_pieces(chat_stream(reported, used), 11)),
        )
    ]
    script = Script((chat_document(reported, used),))
    request = asking.ask(asking.CHAT, CHAT, body)
    names = "cache_write_12h_per_1m_tokens"
    made.append(Vector("lifetimes / chat / no price", CHAT, request, script, Refused(names=names)))
    return made


def refused() -> list[Vector]:
    names = "cache_write_12h_per_1m_tokens"
    used = Units(input=100, output=9)
    script = Script((shapes(usage(100, 9), used)["json"][1],))
    return [
        Vector(
            f"lifetimes / {name}, no price",
            RESPONSES,
            asking.ask(asking.RESPONSES, RESPONSES, body),
            script,
            Refused(names=names),
        )
        for name, body in UNPRICED
    ]


def covered() -> list[Vector]:
    """Who cannot pay for twelve hours of it is not served; who asks for the usual time can."""
    text = "the lighthouse keeps its light " * 2000
    used = Units(cache_write_12h=len(text), output=9)
    dear = rounded(KEPT.prices.cost(used))
    credit = f"{Decimal(dear - 1_000_000) / 10**9:f}"
    body = responses(max_output_tokens=16, input=text)
    script = Script((shapes(usage(100, 9), Units(input=100, output=9))["json"][1],))

    def vector(name: str, options: dict[str, Any], expect: Any) -> Vector:
        request: Request = asking.ask(asking.RESPONSES, KEPT, body | options)
        return Vector(f"lifetimes / {name}", KEPT, request, script, expect, credit=credit)

    return [
        vector(
            "a balance below the price of twelve hours",
            {"prompt_cache_options": {"ttl": "12h"}},
            Refused(status=402),
        ),
        vector("the same balance at the usual price", {}, Exact()),
    ]
