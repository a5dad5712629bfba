"""A hold covers what can be billed: input that is not in the body holds the whole context."""

from __future__ import annotations

import json
from typing import Any

from ..arithmetic import Units
from ..catalogue import CHAT, MESSAGES, RESPONSES, Model
from ..customer import Request
from ..dialects import chat, messages
from ..script import Answer, Script
from ..vector import Covered, Exact, Refused, Vector
from . import asking
from .leaving import TALKS

#: Enough for the bytes of any of these requests, and not for a context.
POOR = "0.01"
BILLED = Units(input=120_000, output=16)


def user(*blocks: dict[str, Any]) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": list(blocks)}]}


#: Input of `POST /v1/responses` that its bytes do not bound. Strings go as they are, for their escapes.
ITEMS: dict[str, dict[str, Any] | str] = {
    "a file by its URL": {"role": "user", "content": [
        {"type": "input_file", "file_url": "https://example.com/{case}.pdf"}]},
    "an escaped file": '{"role":"user","content":[{"type":"\\u0069nput_file",'
        '"file_url":"https://example.com/{case}.pdf"}]}',
    "an escaped image": '{"role":"user","content":[{"type":"input\\u005fimage",'
        '"image_url":"https://example.com/{case}.png"}]}',
    "an escaped key": '{"role":"user","content":[{"\\u0074ype":"input_file",'
        '"file_url":"https://example.com/{case}.pdf"}]}',
    "an image by its URL": {"role": "user", "content": [
        {"type": "input_image", "image_url": "https://example.com/{case}.png"}]},
    "a file by its id": {"role": "user", "content": [
        {"type": "input_file", "file_id": "file-{case}"}]},
    "an item by reference": {"type": "item_reference", "id": "msg_{case}"},
    "an escaped reference": '{"type":"item\\u005freference","id":"msg_{case}"}',
    "an item by its id alone": {"id": "msg_{case}"},
    "reasoning by its id": {"type": "reasoning", "id": "rs_{case}", "summary": []},
    "a picture made before": {"type": "image_generation_call", "id": "ig_{case}"},
    "a screenshot": {"type": "computer_call_output", "call_id": "c", "output": {
        "type": "computer_screenshot", "image_url": "https://example.com/{case}.png"}},
    "a type that nobody knows": {"type": "item_of_tomorrow", "text": "{case}"},
    "an output that has a file": {"type": "function_call_output", "call_id": "c", "output": [
        {"type": "input_file", "file_url": "https://example.com/{case}.pdf"}]},
}  # fmt: skip

#: Fields that stand for input elsewhere.
FIELDS: dict[str, Any] = {
    "previous_response_id": "resp_1",
    "conversation": "conv_1",
    "prompt": {"id": "pmpt_1"},
}

#: Blocks of chat and messages that are media or references of which nothing says how many tokens they have.
#: Pictures of Anthropic's models have a formula.
BLOCKS: tuple[tuple[str, dict[str, Any] | str], ...] = (
    ("chat", {"type": "image_url", "image_url": {"url": "https://example.com/{case}.png"}}),
    ("chat", '{"type":"image\\u005furl","image\\u005furl":{"url":"https://example.com/{case}.png"}}'),
    ("chat", {"type": "file", "file": {"file_id": "file-{case}"}}),
    ("chat", {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:;base64,JVBERi0="}}),
    ("chat", {"type": "video_url", "video_url": {"url": "https://example.com/{case}.mp4"}}),
    ("chat", {"type": "block_of_tomorrow", "text": "{case}"}),
    ("messages", {"type": "document", "source": {"type": "url", "url": "https://e.com/{case}.pdf"}}),
    ("messages", {"type": "document", "source": {"type": "file", "file_id": "file-{case}"}}),
    ("messages", '{"type":"\\u0064ocument","source":{"type":"file","file_id":"file-{case}"}}'),
    ("messages", {"type": "container_upload", "file_id": "file-{case}"}),
    ("messages", {"type": "tool_result", "tool_use_id": "t", "content": [
        {"type": "document", "source": {"type": "url", "url": "https://e.com/{case}.pdf"}}]}),
)  # fmt: skip


def vectors() -> list[Vector]:
    made = []
    for name, item in ITEMS.items():
        made += pair(f"responses, {name}", RESPONSES, of_items(item))
    for field, value in FIELDS.items():
        body = {"input": "go on, {case}", "max_output_tokens": 16, field: value}
        made += pair(
            f"responses, {field}", RESPONSES, asking.ask(asking.RESPONSES, RESPONSES, body)
        )
    for number, (operation, block) in enumerate(BLOCKS):
        model = CHAT if operation == "chat" else MESSAGES
        path = asking.CHAT if operation == "chat" else asking.MESSAGES
        kind = block["type"] if isinstance(block, dict) else "escaped"
        made += pair(f"{operation}, {kind} {number}", model, of_blocks(path, model, block))
    return [*made, *crowds()]


def written(body: dict[str, Any], inner: dict[str, Any] | str) -> bytes:
    """The body with `inner` in the place of its only `"@"`, byte for byte."""
    text = inner if isinstance(inner, str) else json.dumps(inner)
    return json.dumps(body).replace('"@"', text).encode()


def of_items(item: dict[str, Any] | str) -> Request:
    body = {"model": RESPONSES.name, "max_output_tokens": 16, "user": "{case}", "input": ["@"]}
    return Request(asking.RESPONSES, written(body, item))


def of_blocks(path: str, model: Model, block: dict[str, Any] | str) -> Request:
    body = {"model": model.name, "max_tokens": 16, **user({"type": "text", "text": "{case}"})}
    body["messages"][0]["content"].append("@")
    headers = (("anthropic-version", "2023-06-01"),) if path == asking.MESSAGES else ()
    return Request(path, written(body, block), headers)


def answer_of(model: Model) -> Answer:
    talk = next(talk for talk in TALKS if talk.hiding.name == model.name)
    return talk.whole(talk.usage(BILLED.input, BILLED.output), BILLED)


def pair(name: str, model: Model, request: Request) -> list[Vector]:
    """Who cannot pay for a context is not served, alone or in a crowd; who can, pays the bill."""
    script = Script((answer_of(model),))
    refused = Refused((400, 402))
    return [
        Vector(f"bounds / {name}, poor", model, request, script, refused, credit=POOR),
        Vector(f"bounds / {name}, 16 poor", model, request, script, refused, credit=POOR, times=16),
        Vector(f"bounds / {name}, rich", model, request, script, Covered()),
    ]


def crowds() -> list[Vector]:
    """Many at one time on money for few: what is served is covered, and nothing goes below zero."""
    made = []
    for talk in TALKS:
        for credit in ("0.01", "0.7", "1.5"):
            told = talk.usage(BILLED.input, 3_000)
            answer = talk.whole(told, Units(input=BILLED.input, output=3_000))
            request = asking.ask(talk.path, talk.hiding, talk.ask())
            name = f"bounds / {talk.name}, 16 with ${credit}, bills above their holds"
            made.append(
                Vector(
                    name,
                    talk.hiding,
                    request,
                    Script((answer,)),
                    Covered(),
                    credit=credit,
                    times=16,
                )
            )
        # A key's limit is its customer's own: it stops calls, and no bill.
        for times in (1, 16):
            dear = Units(input=300_000, output=3_000)
            script = Script((talk.whole(talk.usage(dear.input, dear.output), dear),))
            fields = {"max_output_tokens": 16} if talk.name == "responses" else {"max_tokens": 16}
            request = asking.ask(talk.path, talk.hiding, talk.ask(**fields))
            limit = {"spend_per_day": "0.01"}
            name = f"bounds / {talk.name}, {times} of a key that may spend a cent"
            made.append(
                Vector(name, talk.hiding, request, script, Exact(), key_limits=limit, times=times)
            )
    thoughts = chat(enable_thinking=True, thinking_budget=38_000, max_tokens=16)
    answer = TALKS[0].whole(TALKS[0].usage(24, 38_016), Units(input=24, output=38_016))
    for name, times in (("one", 1), ("16", 16)):
        request = asking.ask(asking.CHAT, CHAT, thoughts)
        made.append(
            Vector(
                f"bounds / Qwen's thinking_budget, {name}",
                CHAT,
                request,
                Script((answer,)),
                Refused(400, names="thinking"),
                credit="0.02",
                times=times,
            )
        )
    tools = [{"name": "f", "input_schema": {"type": "object"}}]
    request = asking.ask(asking.MESSAGES, MESSAGES, messages(tools=tools))
    used = Units(input=800, output=60)
    script = Script((TALKS[2].whole(TALKS[2].usage(800, 60), used),))
    made.append(Vector("bounds / what tools add", MESSAGES, request, script, Covered()))
    return made
