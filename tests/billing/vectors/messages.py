"""Messages: one vector for each field of Anthropic's usage, in each shape."""

from __future__ import annotations

from typing import Any

from ..arithmetic import Units
from ..catalogue import MESSAGES as MODEL
from ..dialects import document, in_pieces, messages, messages_document, messages_stream
from ..script import Answer, Script
from ..vector import Exact, Vector
from .asking import MESSAGES, ask


def usage(prompt: int, output: int, **more: Any) -> dict[str, Any]:
    return {"input_tokens": prompt, "output_tokens": output} | more


def created(total: int | None, five_minutes: int, hour: int) -> dict[str, Any]:
    split = {"ephemeral_5m_input_tokens": five_minutes, "ephemeral_1h_input_tokens": hour}
    told = {} if total is None else {"cache_creation_input_tokens": total}
    return told | {"cache_creation": split}


def rounds(*pairs: tuple[int, int]) -> dict[str, Any]:
    return {"iterations": [{"type": "message", **usage(*pair)} for pair in pairs]}


USAGES: tuple[tuple[str, dict[str, Any], Units], ...] = (
    ("input and output", usage(80, 95), Units(input=80, output=95)),
    ("null cache", usage(80, 96, cache_read_input_tokens=None, cache_creation_input_tokens=None),
     Units(input=80, output=96)),
    ("zeros of the cache", usage(80, 97, cache_read_input_tokens=0, **created(0, 0, 0)),
     Units(input=80, output=97)),
    ("cache_read_input_tokens", usage(8, 98, cache_read_input_tokens=2000),
     Units(input=8, cache_read=2000, output=98)),
    ("cache_creation_input_tokens alone", usage(8, 99, cache_creation_input_tokens=1500),
     Units(input=8, cache_write=1500, output=99)),
    ("cache written for five minutes", usage(8, 90, **created(1500, 1500, 0)),
     Units(input=8, cache_write=1500, output=90)),
    ("cache written for an hour", usage(8, 91, **created(1500, 0, 1500)),
     Units(input=8, cache_write_1h=1500, output=91)),
    ("cache written for both", usage(8, 92, **created(1500, 500, 1000)),
     Units(input=8, cache_write=500, cache_write_1h=1000, output=92)),
    ("cache written, told by its parts alone", usage(8, 93, **created(None, 500, 1000)),
     Units(input=8, cache_write=500, cache_write_1h=1000, output=93)),
    ("cache read and written", usage(8, 94, cache_read_input_tokens=3000, **created(700, 700, 0)),
     Units(input=8, cache_read=3000, cache_write=700, output=94)),
    ("a service tier", usage(80, 100, service_tier="standard"), Units(input=80, output=100)),
    ("no searches", usage(80, 101, server_tool_use={"web_search_requests": 0}),
     Units(input=80, output=101)),
    ("rounds of a request that was compacted", usage(23, 100, **rounds((180, 35), (23, 100))),
     Units(input=203, output=135)),
    ("one round", usage(23, 102, **rounds((23, 102))), Units(input=23, output=102)),
)  # fmt: skip


def shapes(reported: dict[str, Any], used: Units) -> dict[str, tuple[dict[str, Any], Answer]]:
    whole, stream = messages_document(reported, used), messages_stream(reported, used)
    return {
        "json": ({}, whole),
        "json in pieces": ({}, in_pieces(whole, 7)),
        "stream": ({"stream": True}, stream),
        "stream in pieces": ({"stream": True}, in_pieces(stream, 11)),
    }


#: The usage at the start, those of `message_delta`s, and what they mean together.
STREAMS: tuple[tuple[str, dict[str, Any], tuple[dict[str, Any], ...], Units], ...] = (
    ("the delta has the output alone", usage(500, 1, cache_read_input_tokens=60),
     ({"output_tokens": 120},), Units(input=500, cache_read=60, output=120)),
    ("the delta has more input than the start", usage(500, 1), (usage(900, 121),),
     Units(input=900, output=121)),
    ("the delta has less input than the start", usage(500, 1), (usage(20, 122),),
     Units(input=500, output=122)),
    ("two deltas that grow", usage(500, 1), ({"output_tokens": 60}, {"output_tokens": 123}),
     Units(input=500, output=123)),
    ("two deltas that shrink", usage(500, 1), ({"output_tokens": 124}, {"output_tokens": 2}),
     Units(input=500, output=124)),
    ("nulls in the delta", usage(500, 1, cache_read_input_tokens=60),
     ({"input_tokens": None, "cache_read_input_tokens": None, "output_tokens": 125},),
     Units(input=500, cache_read=60, output=125)),
    ("a cache that the delta forgets", usage(5, 1, **created(900, 400, 500)),
     (usage(5, 126, cache_creation_input_tokens=0),),
     Units(input=5, cache_write=400, cache_write_1h=500, output=126)),
    ("rounds in the delta", usage(180, 1), (usage(23, 100, **rounds((180, 35), (23, 100))),),
     Units(input=203, output=135)),
)  # fmt: skip


def vectors() -> list[Vector]:
    made = [
        Vector(
            f"messages / {name} / {shape}",
            MODEL,
            ask(MESSAGES, MODEL, messages(**fields)),
            Script((answer,)),
            Exact(),
            status=200,
            calls=1,
        )
        for name, reported, used in USAGES
        for shape, (fields, answer) in shapes(reported, used).items()
    ]
    counting = ask(f"{MESSAGES}/count_tokens", MODEL, messages())
    counted = document({"input_tokens": 90_000}, Units())
    made.append(
        Vector(
            "messages / tokens are counted for nothing",
            MODEL,
            counting,
            Script((counted,)),
            Exact(),
        )
    )
    for name, begin, deltas, used in STREAMS:
        stream = messages_stream(None, used, begin=begin, deltas=deltas)
        for shape, answer in (("stream", stream), ("stream in pieces", in_pieces(stream, 13))):
            made.append(
                Vector(
                    f"messages / {name} / {shape}",
                    MODEL,
                    ask(MESSAGES, MODEL, messages(stream=True)),
                    Script((answer,)),
                    Exact(),
                    status=200,
                )
            )
    return made
