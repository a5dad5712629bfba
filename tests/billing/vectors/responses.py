"""Responses: one vector for each field of the usage, in each shape and with each ending."""

from __future__ import annotations

from typing import Any

from ..arithmetic import Units
from ..catalogue import RESPONSES as MODEL
from ..dialects import in_pieces, responses, responses_document, responses_stream
from ..script import Answer, Script
from ..vector import Exact, Vector
from .asking import RESPONSES, ask


def usage(prompt: int, output: int, **more: Any) -> dict[str, Any]:
    return {"input_tokens": prompt, "output_tokens": output, "total_tokens": prompt + output} | more


def details(**fields: Any) -> dict[str, Any]:
    return {"input_tokens_details": fields}


USAGES: tuple[tuple[str, dict[str, Any], Units], ...] = (
    ("input and output", usage(210, 95), Units(input=210, output=95)),
    ("no total", {"input_tokens": 210, "output_tokens": 96}, Units(input=210, output=96)),
    ("null details", usage(33, 97, input_tokens_details=None, output_tokens_details=None),
     Units(input=33, output=97)),
    ("cached_tokens", usage(1000, 98, **details(cached_tokens=768)),
     Units(input=232, cache_read=768, output=98)),
    ("cache_write_tokens", usage(1000, 99, **details(cache_write_tokens=512)),
     Units(input=488, cache_write=512, output=99)),
    ("cache read and written", usage(1000, 90, **details(cached_tokens=300, cache_write_tokens=512)),
     Units(input=188, cache_read=300, cache_write=512, output=90)),
    ("reasoning in the output",
     usage(64, 2048, output_tokens_details={"reasoning_tokens": 1900}),
     Units(input=64, output=2048)),
    ("unknown fields", usage(64, 200, cost_in_usd_ticks=5, num_sources_used=0),
     Units(input=64, output=200)),
)  # fmt: skip


def shapes(reported: dict[str, Any], used: Units) -> dict[str, tuple[dict[str, Any], Answer]]:
    whole, stream = responses_document(reported, used), responses_stream(reported, used)
    incomplete = responses_stream(reported, used, ending="incomplete")
    return {
        "json": ({}, whole),
        "json in pieces": ({}, in_pieces(whole, 7)),
        "stream": ({"stream": True}, stream),
        "stream in pieces": ({"stream": True}, in_pieces(stream, 11)),
        "stream that ends incomplete": ({"stream": True}, incomplete),
    }


def vectors() -> list[Vector]:
    made = [
        Vector(
            f"responses / {name} / {shape}",
            MODEL,
            ask(RESPONSES, MODEL, responses(**fields)),
            Script((answer,)),
            Exact(),
            status=200,
            calls=1,
        )
        for name, reported, used in USAGES
        for shape, (fields, answer) in shapes(reported, used).items()
    ]
    failed = Units(input=64, output=300)
    stream = responses_stream(usage(64, 300), failed, ending="failed")
    made.append(
        Vector(
            "responses / a stream that fails after its text, with a usage",
            MODEL,
            ask(RESPONSES, MODEL, responses(stream=True)),
            Script((stream,)),
            Exact(),
        )
    )
    return made
