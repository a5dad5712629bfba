"""Usages that contradict themselves, or count in another provider's way: each is read the dearer possible way,
and never past what it says. docs/billing-conformance.md has the rules."""

from __future__ import annotations

from typing import Any

from ..arithmetic import Units
from ..catalogue import CHAT, GEMINI, MESSAGES, RESPONSES, Model
from ..dialects import (
    chat,
    chat_document,
    chat_stream,
    gemini,
    gemini_document,
    gemini_stream,
    messages,
    messages_document,
    messages_stream,
    responses,
    responses_document,
    responses_stream,
)
from ..script import Answer, Script
from ..vector import Exact, Vector
from . import asking
from .messages import created

Row = tuple[str, dict[str, Any], Units]


def lifetimes(five_minutes: int, hour: int) -> dict[str, int]:
    return {"ephemeral_5m_input_tokens": five_minutes, "ephemeral_1h_input_tokens": hour}


def openai_rows(prompt: str, completion: str) -> tuple[Row, ...]:
    """Usages in OpenAI's shape, which chat and responses have with other names."""

    def usage(read: int, put_out: int, total: int | None, **more: Any) -> dict[str, Any]:
        told = {prompt: read, completion: put_out}
        return (told if total is None else {**told, "total_tokens": total}) | more

    def details(**counts: Any) -> dict[str, Any]:
        return {f"{prompt}_details": counts}

    def thought(tokens: int) -> dict[str, Any]:
        return {f"{completion}_details": {"reasoning_tokens": tokens}}

    cached = details(cached_tokens=4000)
    litellm = details(cached_tokens=500, cache_creation_tokens=400)
    at_top = {"cache_read_input_tokens": 500, "cache_creation_input_tokens": 400}
    hour = {"cache_creation_token_details": lifetimes(0, 400)}
    return (
        ("cached beside the prompt", usage(100, 90, 190, **cached),
         Units(input=100, cache_read=4000, output=90)),
        ("cached beside the prompt, in the total", usage(100, 90, 4190, **cached),
         Units(input=100, cache_read=4000, output=90)),
        ("cached beside the prompt, no total", usage(100, 90, None, **cached),
         Units(input=100, cache_read=4000, output=90)),
        ("cached beside the prompt, and thought in the total", usage(100, 90, 4690, **cached),
         Units(input=100, cache_read=4000, output=590)),
        ("cached beside the prompt, and thought beside the output",
         usage(100, 90, 4690, **cached, **thought(500)),
         Units(input=100, cache_read=4000, output=590)),
        ("cached beside a longer prompt, as the total says", usage(5000, 90, 9090, **cached),
         Units(input=5000, cache_read=4000, output=90)),
        ("new-api's own example", usage(56_322, 90, 56_412, **details(cached_tokens=72_960)),
         Units(input=56_322, cache_read=72_960, output=90)),
        ("written beside the prompt", usage(100, 90, 190, **details(cache_write_tokens=4000)),
         Units(input=100, cache_write=4000, output=90)),
        ("read and written, more together than the prompt",
         usage(100, 90, 190, **details(cached_tokens=80, cache_write_tokens=70)),
         Units(input=100, cache_read=80, cache_write=70, output=90)),
        ("read within and written beside the prompt, as the total says",
         usage(100, 90, 260, **details(cached_tokens=80, cache_write_tokens=70)),
         Units(input=20, cache_read=80, cache_write=70, output=90)),
        ("cached without a prompt", usage(0, 90, None, **details(cached_tokens=400)),
         Units(cache_read=400, output=90)),
        ("a negative count of cached ones", usage(1000, 90, 1090, **details(cached_tokens=-5)),
         Units(input=1000, output=90)),
        ("details that are no details", usage(1000, 90, 1090, **{f"{prompt}_details": "none"}),
         Units(input=1000, output=90)),
        ("a total below its parts", usage(200, 90, 210), Units(input=200, output=90)),
        ("no prompt, and a total", {completion: 90, "total_tokens": 215},
         Units(input=125, output=90)),
        ("a prompt of nothing, and a total", usage(0, 90, 215), Units(input=125, output=90)),
        ("no output, and a total", {prompt: 125, "total_tokens": 215},
         Units(input=125, output=90)),
        ("a total alone", {"total_tokens": 215}, Units(input=1, output=214)),
        ("more reasoning than output, which the total leaves out",
         usage(50, 100, 150, **thought(600)), Units(input=50, output=700)),
        ("more sound than prompt", usage(100, 90, 190, **details(audio_tokens=500)),
         Units(input=100, audio_in=500, output=90)),
        ("more sound than prompt, in the total",
         usage(100, 90, 690, **details(audio_tokens=500)),
         Units(input=100, audio_in=500, output=90)),
        ("more sound than output",
         usage(100, 90, 190, **{f"{completion}_details": {"audio_tokens": 300}}),
         Units(input=100, output=90, audio_out=300)),
        ("LiteLLM's cache", usage(1000, 90, 1090, **litellm, **at_top),
         Units(input=100, cache_read=500, cache_write=400, output=90)),
        ("LiteLLM's cache at the top alone", usage(1000, 90, 1090, **at_top),
         Units(input=100, cache_read=500, cache_write=400, output=90)),
        ("LiteLLM's cache for an hour",
         usage(1000, 90, 1090, **at_top,
               **details(cached_tokens=500, cache_creation_tokens=400, **hour)),
         Units(input=100, cache_read=500, cache_write_1h=400, output=90)),
        ("LiteLLM's cache for an hour, at the top", usage(1000, 90, 1090, **at_top, **hour),
         Units(input=100, cache_read=500, cache_write_1h=400, output=90)),
        ("LiteLLM's cache for both",
         usage(1000, 90, 1090,
               **details(cache_creation_tokens=400,
                         cache_creation_token_details=lifetimes(150, 250))),
         Units(input=600, cache_write=150, cache_write_1h=250, output=90)),
        ("this gateway's own cache for an hour",
         usage(1000, 90, 1090,
               **details(cache_write_tokens=400, cache_creation=lifetimes(100, 300))),
         Units(input=600, cache_write=100, cache_write_1h=300, output=90)),
        ("a part of the writes without a lifetime",
         usage(1000, 90, 1090,
               **details(cache_write_tokens=400, cache_creation=lifetimes(0, 300))),
         Units(input=600, cache_write=100, cache_write_1h=300, output=90)),
        ("more writes by lifetime than writes",
         usage(1000, 90, 1090,
               **details(cache_write_tokens=100, cache_creation=lifetimes(0, 700))),
         Units(input=300, cache_write_1h=700, output=90)),
        ("two values of what was read",
         usage(1000, 90, 1090, cache_read_input_tokens=200, **details(cached_tokens=700)),
         Units(input=800, cache_read=200, output=90)),
        ("two values of what was read, one above the prompt",
         usage(1000, 90, 1090, cache_read_input_tokens=200, **details(cached_tokens=7000)),
         Units(input=1000, cache_read=7000, output=90)),
        ("two values of what was written",
         usage(1000, 90, 1090, cache_creation_input_tokens=200, **details(cache_write_tokens=700)),
         Units(input=300, cache_write=700, output=90)),
    )  # fmt: skip


#: What only chat has: names of its imitators.
CHAT_ROWS: tuple[Row, ...] = (
    ("DeepSeek's cached beside the prompt",
     {"prompt_tokens": 100, "completion_tokens": 90, "prompt_cache_hit_tokens": 4000},
     Units(input=100, cache_read=4000, output=90)),
    ("Moonshot's cached beside the prompt",
     {"prompt_tokens": 100, "completion_tokens": 90, "cached_tokens": 4000},
     Units(input=100, cache_read=4000, output=90)),
    ("Qwen's written beside the prompt",
     {"prompt_tokens": 100, "completion_tokens": 90,
      "prompt_tokens_details": {"cache_creation_input_tokens": 4000}},
     Units(input=100, cache_write=4000, output=90)),
    ("three values of what was read",
     {"prompt_tokens": 1000, "completion_tokens": 90, "prompt_cache_hit_tokens": 300,
      "cached_tokens": 500, "prompt_tokens_details": {"cached_tokens": 700}},
     Units(input=700, cache_read=300, output=90)),
)  # fmt: skip

MESSAGES_ROWS: tuple[Row, ...] = (
    ("more writes by lifetime than writes",
     {"input_tokens": 8, "output_tokens": 90} | created(100, 0, 5000),
     Units(input=8, cache_write_1h=5000, output=90)),
    ("a part of the writes without a lifetime",
     {"input_tokens": 8, "output_tokens": 90} | created(1500, 0, 500),
     Units(input=8, cache_write=1000, cache_write_1h=500, output=90)),
    ("a negative count of cached ones",
     {"input_tokens": 80, "output_tokens": 90, "cache_read_input_tokens": -7},
     Units(input=80, output=90)),
    ("no plain input", {"input_tokens": 0, "output_tokens": 90, "cache_read_input_tokens": 700},
     Units(cache_read=700, output=90)),
)  # fmt: skip


def google(prompt: int | None, output: int | None, **more: Any) -> dict[str, Any]:
    told = {"promptTokenCount": prompt, "candidatesTokenCount": output}
    return {key: value for key, value in told.items() if value is not None} | more


def modality(kind: str, tokens: int) -> list[dict[str, Any]]:
    return [{"modality": kind, "tokenCount": tokens}]


GEMINI_ROWS: tuple[Row, ...] = (
    ("prompt and candidates", google(100, 90, totalTokenCount=190), Units(input=100, output=90)),
    ("thoughts", google(100, 90, thoughtsTokenCount=500, totalTokenCount=690),
     Units(input=100, output=590)),
    ("cached within the prompt", google(1000, 90, cachedContentTokenCount=640, totalTokenCount=1090),
     Units(input=360, cache_read=640, output=90)),
    ("what tools have read", google(100, 90, toolUsePromptTokenCount=40, totalTokenCount=230),
     Units(input=140, output=90)),
    ("cached beside the prompt", google(100, 90, cachedContentTokenCount=4000, totalTokenCount=190),
     Units(input=100, cache_read=4000, output=90)),
    ("cached beside the prompt, in the total",
     google(100, 90, cachedContentTokenCount=4000, totalTokenCount=4190),
     Units(input=100, cache_read=4000, output=90)),
    ("cached beside the prompt, and thought in the total",
     google(100, 90, cachedContentTokenCount=4000, totalTokenCount=4690),
     Units(input=100, cache_read=4000, output=590)),
    ("a negative count of cached ones",
     google(1000, 90, cachedContentTokenCount=-4, totalTokenCount=1090),
     Units(input=1000, output=90)),
    ("a total below its parts", google(200, 90, totalTokenCount=210), Units(input=200, output=90)),
    ("no prompt, and a total", google(None, 90, totalTokenCount=215), Units(input=125, output=90)),
    ("no candidates, and a total", google(125, None, totalTokenCount=215),
     Units(input=125, output=90)),
    ("a total alone", {"totalTokenCount": 215}, Units(input=1, output=214)),
    ("more sound than prompt",
     google(100, 90, totalTokenCount=190, promptTokensDetails=modality("AUDIO", 500)),
     Units(input=100, audio_in=500, output=90)),
    ("more pictures than prompt",
     google(100, 90, totalTokenCount=690, promptTokensDetails=modality("IMAGE", 500)),
     Units(input=100, image_in=500, output=90)),
    ("details of no shape", google(100, 90, totalTokenCount=190, promptTokensDetails="none"),
     Units(input=100, output=90)),
)  # fmt: skip


def vectors() -> list[Vector]:
    return [*chats(), *in_responses(), *in_messages(), *in_gemini(), *hours()]


def shapes(whole: Answer, stream: Answer) -> tuple[tuple[str, dict[str, Any], Answer], ...]:
    return ("json", {}, whole), ("stream", {"stream": True}, stream)


def exact(name: str, model: Model, request: Any, answer: Answer) -> Vector:
    script = Script((answer,))
    return Vector(f"contradictions / {name}", model, request, script, Exact(), status=200, calls=1)


def chats() -> list[Vector]:
    rows = (*openai_rows("prompt_tokens", "completion_tokens"), *CHAT_ROWS)
    return [
        exact(f"chat, {name}, {shape}", CHAT, asking.ask(asking.CHAT, CHAT, chat(**fields)), answer)
        for name, told, used in rows
        for shape, fields, answer in shapes(chat_document(told, used), chat_stream(told, used))
    ]


def in_responses() -> list[Vector]:
    return [
        exact(
            f"responses, {name}, {shape}",
            RESPONSES,
            asking.ask(asking.RESPONSES, RESPONSES, responses(**fields)),
            answer,
        )
        for name, told, used in openai_rows("input_tokens", "output_tokens")
        for shape, fields, answer in shapes(
            responses_document(told, used), responses_stream(told, used)
        )
    ]


def in_messages() -> list[Vector]:
    return [
        exact(
            f"messages, {name}, {shape}",
            MESSAGES,
            asking.ask(asking.MESSAGES, MESSAGES, messages(**fields)),
            answer,
        )
        for name, told, used in MESSAGES_ROWS
        for shape, fields, answer in shapes(
            messages_document(told, used), messages_stream(told, used)
        )
    ]


def in_gemini() -> list[Vector]:
    return [
        exact(f"gemini, {name}, {shape}", GEMINI, asking.ask_gemini(GEMINI, gemini(**fields)), answer)
        for name, told, used in GEMINI_ROWS
        for shape, fields, answer in shapes(gemini_document(told, used), gemini_stream(told, used))
    ]


TEXT = "Tell me of the lighthouse, {case}."


def marked(ttl: str | None) -> dict[str, Any]:
    told = {"type": "ephemeral"} | ({} if ttl is None else {"ttl": ttl})
    return {"cache_control": told}


def message_marks(ttl: str | None) -> dict[str, dict[str, Any]]:
    """Every place in which a request for messages can mark what is to be cached."""
    mark = marked(ttl)
    block = {"type": "text", "text": TEXT} | mark
    tool = {"name": "look", "input_schema": {"type": "object"}} | mark
    call = {"type": "tool_use", "id": "t", "name": "look", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "t", "content": [block]}
    said = [
        {"role": "user", "content": TEXT},
        {"role": "assistant", "content": [call]},
        {"role": "user", "content": [result]},
    ]
    return {
        "the whole request": messages(**mark),
        "the system": messages(system=[{"type": "text", "text": "Be brief."} | mark]),
        "a tool": messages(tools=[tool]),
        "a message": messages(messages=[{"role": "user", "content": [block]}]),
        "a tool's result": messages(messages=said),
    }


def chat_marks(ttl: str | None) -> dict[str, dict[str, Any]]:
    mark = marked(ttl)
    part = {"type": "text", "text": TEXT} | mark
    tool = {"type": "function", "function": {"name": "look", "parameters": {}}} | mark
    return {
        "a part": chat(messages=[{"role": "user", "content": [part]}]),
        "a message": chat(messages=[{"role": "user", "content": TEXT} | mark]),
        "a tool": chat(tools=[tool]),
    }


def hours() -> list[Vector]:
    """Writes of which a report does not say how long they are kept are billed as what was asked for."""
    made = []
    schema = {"type": "object", "properties": {"ttl": {"const": "1h"}}}
    for ttl, word in (("1h", "an hour"), ("5m", "five minutes"), (None, "the usual time")):
        written = {"cache_write_1h": 1500} if ttl == "1h" else {"cache_write": 1500}
        used = Units(input=8, output=90, **written)
        told = {"input_tokens": 8, "output_tokens": 90, "cache_creation_input_tokens": 1500}
        for place, body in message_marks(ttl).items():
            answers = messages_document(told, used), messages_stream(told, used)
            made += asked(f"{word} of {place} in messages", MESSAGES, asking.MESSAGES, body, answers)
        known = {"input_tokens": 8, "output_tokens": 90} | created(1500, 1500, 0)
        split = Units(input=8, cache_write=1500, output=90)
        answers = messages_document(known, split), messages_stream(known, split)
        body = message_marks(ttl)["a message"]
        made += asked(f"{word}, and told otherwise", MESSAGES, asking.MESSAGES, body, answers)
        openai = {
            "prompt_tokens": 1508,
            "completion_tokens": 90,
            "prompt_tokens_details": {"cache_write_tokens": 1500},
        }
        for place, body in chat_marks(ttl).items():
            answers = chat_document(openai, used), chat_stream(openai, used)
            made += asked(f"{word} of {place} in chat", CHAT, asking.CHAT, body, answers)
        # Translated, the mark goes along, and so does its price.
        body = chat_marks(ttl)["a part"] | {"max_tokens": 30_000}
        answers = messages_document(told, used), messages_stream(told, used)
        made += asked(f"{word} of chat over messages", MESSAGES, asking.CHAT, body, answers)
    # A tool may well have a lifetime of its own.
    body = messages(tools=[{"name": "f", "input_schema": schema} | marked("5m")])
    used = Units(input=8, cache_write=1500, output=90)
    told = {"input_tokens": 8, "output_tokens": 90, "cache_creation_input_tokens": 1500}
    answers = messages_document(told, used), messages_stream(told, used)
    made += asked("a ttl of a tool's own", MESSAGES, asking.MESSAGES, body, answers)
    return made


def asked(
    name: str, model: Model, path: str, body: dict[str, Any], answers: tuple[Answer, Answer]
) -> list[Vector]:
    whole, stream = answers
    return [
        exact(f"{name}, json", model, asking.ask(path, model, body), whole),
        exact(f"{name}, stream", model, asking.ask(path, model, body | {"stream": True}), stream),
    ]
