"""Chat: one vector for each field of the usage of OpenAI and its imitators, in each shape."""

from __future__ import annotations

from typing import Any

from ..arithmetic import Units
from ..catalogue import CHAT as MODEL
from ..dialects import chat, chat_document, chat_stream, in_pieces
from ..script import Answer, Script
from ..vector import Exact, Vector
from .asking import CHAT, ask


def usage(prompt: int, completion: int, total: int | None = None, **more: Any) -> dict[str, Any]:
    """A usage as OpenAI writes it."""
    total = prompt + completion if total is None else total
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": total} | more


def prompt_details(**details: Any) -> dict[str, Any]:
    return {"prompt_tokens_details": details}


def reasoning(tokens: int) -> dict[str, Any]:
    return {"completion_tokens_details": {"reasoning_tokens": tokens}}


#: What is reported, and what it means.
USAGES: tuple[tuple[str, dict[str, Any], Units], ...] = (
    ("prompt and completion", usage(120, 95), Units(input=120, output=95)),
    ("no total", {"prompt_tokens": 77, "completion_tokens": 80}, Units(input=77, output=80)),
    ("null details", usage(31, 99, prompt_tokens_details=None, completion_tokens_details=None),
     Units(input=31, output=99)),
    ("empty details", usage(31, 98, prompt_tokens_details={}, completion_tokens_details={}),
     Units(input=31, output=98)),
    ("cached_tokens", usage(1000, 90, **prompt_details(cached_tokens=640)),
     Units(input=360, cache_read=640, output=90)),
    ("all of the prompt cached", usage(512, 90, **prompt_details(cached_tokens=512)),
     Units(cache_read=512, output=90)),
    ("cached_tokens null", usage(512, 91, **prompt_details(cached_tokens=None)),
     Units(input=512, output=91)),
    ("cache_write_tokens", usage(900, 90, **prompt_details(cache_write_tokens=300)),
     Units(input=600, cache_write=300, output=90)),
    ("cache_creation_input_tokens of Qwen",
     usage(900, 92, **prompt_details(cache_creation_input_tokens=256)),
     Units(input=644, cache_write=256, output=92)),
    ("cache read and written",
     usage(900, 90, **prompt_details(cached_tokens=200, cache_write_tokens=300)),
     Units(input=400, cache_read=200, cache_write=300, output=90)),
    ("prompt_cache_hit_tokens of DeepSeek",
     usage(700, 93, prompt_cache_hit_tokens=448, prompt_cache_miss_tokens=252),
     Units(input=252, cache_read=448, output=93)),
    ("both names of DeepSeek's cache",
     usage(700, 94, prompt_cache_hit_tokens=448, prompt_cache_miss_tokens=252,
           **prompt_details(cached_tokens=448)),
     Units(input=252, cache_read=448, output=94)),
    ("reasoning inside the completion", usage(50, 700, **reasoning(600)),
     Units(input=50, output=700)),
    ("reasoning outside the completion, as of xAI", usage(50, 100, 750, **reasoning(600)),
     Units(input=50, output=700)),
    ("reasoning above the completion, without a total",
     {"prompt_tokens": 50, "completion_tokens": 100} | reasoning(600), Units(input=50, output=700)),
    ("a total above the sum, as of Gemini", usage(20, 198, 8623), Units(input=20, output=8603)),
    ("a total above the sum, and some of it told", usage(20, 198, 8623, **reasoning(500)),
     Units(input=20, output=8603)),
    ("a total below the sum", usage(200, 150, 210), Units(input=200, output=150)),
    ("predicted tokens", usage(40, 160, completion_tokens_details={
        "accepted_prediction_tokens": 30, "rejected_prediction_tokens": 50}),
     Units(input=40, output=160)),
    ("unknown fields", usage(40, 161, queue_time=0.1, cost=None, x={"completion_tokens": 9}),
     Units(input=40, output=161)),
    ("cached with reasoning outside",
     usage(500, 100, 900, **prompt_details(cached_tokens=128), **reasoning(300)),
     Units(input=372, cache_read=128, output=400)),
)  # fmt: skip


def shapes(reported: dict[str, Any], used: Units) -> dict[str, tuple[dict[str, Any], Answer]]:
    """The fields of a request, and its answer, in each shape."""
    whole, stream = chat_document(reported, used), chat_stream(reported, used)
    asked = {"stream": True, "stream_options": {"include_usage": True}}
    return {
        "json": ({}, whole),
        "json in pieces": ({}, in_pieces(whole, 7)),
        "stream": ({"stream": True}, stream),
        "stream in pieces": ({"stream": True}, in_pieces(stream, 11)),
        "stream with its usage": (asked, stream),
    }


def vectors() -> list[Vector]:
    return [
        Vector(
            f"chat / {name} / {shape}",
            MODEL,
            ask(CHAT, MODEL, chat(**fields)),
            Script((answer,)),
            Exact(),
            status=200,
            calls=1,
        )
        for name, reported, used in USAGES
        for shape, (fields, answer) in shapes(reported, used).items()
    ] + repeated()


def repeated() -> list[Vector]:
    """Streams that report more than once: the dearest counts, and nothing behind the end makes it less."""
    used = Units(input=120, output=400)
    report = usage(120, 400)

    def chunk(reported: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
        choice = {"index": 0, "delta": {}, "finish_reason": finish}
        return {"object": "chat.completion.chunk", "choices": [choice], "usage": reported}

    rows = {
        "the same usage twice": (chunk(report),),
        "a smaller usage behind the true one": (chunk(usage(120, 1)),),
        "zeros behind the true usage": (chunk(usage(0, 0)),),
        "a usage behind [DONE]": ("[DONE]", chunk(usage(1, 1))),
        "a null usage behind the true one": (chunk(None) | {"usage": None},),
        "an empty usage behind the true one": (chunk({}),),
        "a negative usage behind the true one": (chunk(usage(-5, -5)),),
        "fields that are dearest in different reports": (
            chunk(usage(120, 399)),
            chunk(usage(3, 400)),
        ),
    }
    made = [
        Vector(
            f"chat / {name}",
            MODEL,
            ask(CHAT, MODEL, chat(stream=True)),
            Script((chat_stream(report, used, behind=behind),)),
            Exact(),
            status=200,
        )
        for name, behind in rows.items()
    ]
    growing = tuple(chunk(usage(120, count)) for count in (100, 250, 400))
    growing_stream = chat_stream(usage(120, 1), used, behind=growing)
    made.append(
        Vector(
            "chat / usages that grow with every chunk",
            MODEL,
            ask(CHAT, MODEL, chat(stream=True)),
            Script((growing_stream,)),
            Exact(),
        )
    )
    return made
