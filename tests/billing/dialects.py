"""What the providers' APIs say, as answers and streams of events.

Sources: the API references of OpenAI ("Chat completions", "Responses", "Images"), Anthropic ("Messages",
"Streaming Messages"), Alibaba Cloud Model Studio, BytePlus ModelArk, xAI and Voyage.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from .arithmetic import Units
from .customer import FIRST_TEXT, LAST_TEXT
from .script import NOTHING, Answer, Await, Send, Step

EVENTS = "text/event-stream"
#: What models say, in the pieces in which they say it.
STORY = (
    f"{FIRST_TEXT} the lighthouse stands on the rock, ",
    "and every night its lamp is lit by a keeper who counts the ships; ",
    "none of them has ever been lost within sight of it. ",
    f"So the story goes, and that is the end of it. {LAST_TEXT}",
)


#: The tokens that o200k_base makes of them.
STORY_COUNTS = (10, 15, 12, 14)
STORY_TOKENS = sum(STORY_COUNTS)


@dataclass(frozen=True)
class Piece:
    """A part of a stream: its bytes, what was used by then, and the moment that it is."""

    data: bytes
    used: Units
    moment: str | None = None


def steps(pieces: list[Piece], leaving: str | None) -> tuple[Step, ...]:
    """The pieces, with a wait for the customer to leave behind that of the moment."""
    made: list[Step] = []
    for piece in pieces:
        made.append(Send(piece.data, piece.used))
        if leaving is not None and piece.moment == leaving:
            made.append(Await())
    return tuple(made)


def streamed(pieces: list[Piece], leaving: str | None, at_once: Units) -> Answer:
    """A stream of events. `leaving` is the moment at which the customer goes."""
    before = (Await(),) if leaving == "arrived" else ()
    return Answer(steps(pieces, leaving), content_type=EVENTS, before=before, at_once=at_once)


def document(
    body: Any, used: Units, leaving: str | None = None, status: int = 200, **more: Any
) -> Answer:
    """A JSON answer. All of it has been made before its head is sent."""
    before = (Await(),) if leaving == "arrived" else ()
    data = json.dumps(body).encode()
    return Answer(
        (Send(data, used),),
        status=status,
        framing="length",
        before=before,
        at_once=used,
        **more,
    )


def in_pieces(answer: Answer, size: int) -> Answer:
    """The same answer in pieces of so many bytes, wherever that cuts it."""
    return replace(answer, piece_bytes=size, at_once=answer.used())


def event(data: Any, name: str | None = None) -> bytes:
    """A server-sent event."""
    text = data if isinstance(data, str) else json.dumps(data)
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {text}\n\n".encode()


def told(
    story: tuple[str, ...], used: Units, hidden: int, tokens: tuple[int, ...]
) -> Iterator[tuple[str, Units, str | None]]:
    """What was used by the end of each text, when `hidden` tokens came before the first."""
    so_far = hidden
    for position, (text, count) in enumerate(zip(story, tokens, strict=True)):
        so_far += count
        moment = {0: "first", len(story) - 1: "last"}.get(position)
        yield text, used.with_output(so_far), moment


# Chat completions


def chat(**fields: Any) -> dict[str, Any]:
    """A request for a chat."""
    return {
        "messages": [{"role": "user", "content": "Tell me of the lighthouse, {case}."}]
    } | fields


def chat_document(
    usage: Any, used: Units, leaving: str | None = None, text: str = "".join(STORY)
) -> Answer:
    message = {"role": "assistant", "content": text}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    body = {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [choice],
    }
    return document(body if usage is None else {**body, "usage": usage}, used, leaving)


def chat_chunk(delta: dict[str, Any], finish: str | None = None, **more: Any) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    return head | {"choices": [choice]} | more


def chat_stream(
    usage: Any,
    used: Units,
    leaving: str | None = None,
    hidden: int = 0,
    story: tuple[str, ...] = STORY,
    tokens: tuple[int, ...] = STORY_COUNTS,
    behind: tuple[Any, ...] = (),
) -> Answer:
    """`behind` are further events between the usage and `[DONE]`, or strings as they are."""
    pieces = [
        Piece(
            event(chat_chunk({"role": "assistant", "content": ""})),
            used.with_output(hidden),
            "head",
        )
    ]
    for text, by_then, moment in told(story, used, hidden, tokens):
        pieces.append(Piece(event(chat_chunk({"content": text})), by_then, moment))
    pieces.append(Piece(event(chat_chunk({}, "stop")), used))
    if usage is not None:
        pieces.append(Piece(event(chat_chunk({}) | {"choices": [], "usage": usage}), used))
    pieces += [Piece(event(more), used) for more in behind]
    pieces.append(Piece(event("[DONE]"), used))
    return streamed(pieces, leaving, used.with_output(hidden))


# Responses


def responses(**fields: Any) -> dict[str, Any]:
    """A request for a response."""
    return {"input": "Tell me of the lighthouse, {case}."} | fields


def response_of(
    usage: Any, status: str = "completed", text: str = "".join(STORY)
) -> dict[str, Any]:
    content = [{"type": "output_text", "text": text, "annotations": []}]
    message = {"type": "message", "id": "msg_1", "role": "assistant", "content": content}
    body = {
        "id": "resp_{case}",
        "object": "response",
        "status": status,
        "model": "m",
        "output": [message],
    }
    return body if usage is None else {**body, "usage": usage}


def responses_document(usage: Any, used: Units, leaving: str | None = None) -> Answer:
    return document(response_of(usage), used, leaving)


def responses_stream(
    usage: Any,
    used: Units,
    leaving: str | None = None,
    hidden: int = 0,
    story: tuple[str, ...] = STORY,
    tokens: tuple[int, ...] = STORY_COUNTS,
    ending: str = "completed",
) -> Answer:
    def typed(kind: str, **fields: Any) -> bytes:
        return event({"type": kind} | fields, kind)

    begun = {"id": "resp_{case}", "object": "response", "status": "in_progress", "usage": None}
    pieces = [Piece(typed("response.created", response=begun), used.with_output(hidden), "head")]
    for text, by_then, moment in told(story, used, hidden, tokens):
        delta = typed("response.output_text.delta", item_id="msg_1", output_index=0, delta=text)
        pieces.append(Piece(delta, by_then, moment))
    ended = response_of(usage, ending, "".join(story))
    pieces.append(Piece(typed(f"response.{ending}", response=ended), used))
    return streamed(pieces, leaving, used.with_output(hidden))


# Messages


def messages(**fields: Any) -> dict[str, Any]:
    """A request for a message."""
    return {
        "max_tokens": 30_000,
        "messages": [{"role": "user", "content": "Tell me of the lighthouse, {case}."}],
    } | fields


def message_of(usage: Any, text: str = "".join(STORY)) -> dict[str, Any]:
    body = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [{"type": "text", "text": text}],
        "stop_reason": "end_turn",
    }
    return body if usage is None else {**body, "usage": usage}


def messages_document(usage: Any, used: Units, leaving: str | None = None) -> Answer:
    return document(message_of(usage), used, leaving)


def messages_stream(
    usage: Any,
    used: Units,
    leaving: str | None = None,
    hidden: int = 0,
    story: tuple[str, ...] = STORY,
    tokens: tuple[int, ...] = STORY_COUNTS,
    begin: Any = None,
    deltas: tuple[Any, ...] | None = None,
) -> Answer:
    """`begin` is the usage of `message_start`, `deltas` are those of `message_delta`s. Without them,
    the first has the input, and the only delta has the whole."""

    def typed(kind: str, **fields: Any) -> bytes:
        return event({"type": kind} | fields, kind)

    if begin is None and isinstance(usage, dict):
        begin = {k: v for k, v in usage.items() if k != "iterations"} | {"output_tokens": 1}
    if deltas is None:
        deltas = () if usage is None else (usage,)
    start = message_of(begin, "") | {"content": [], "stop_reason": None}
    pieces = [Piece(typed("message_start", message=start), used.with_output(hidden), "head")]
    block = {"type": "text", "text": ""}
    pieces.append(
        Piece(typed("content_block_start", index=0, content_block=block), used.with_output(hidden))
    )
    for text, by_then, moment in told(story, used, hidden, tokens):
        delta = {"type": "text_delta", "text": text}
        pieces.append(Piece(typed("content_block_delta", index=0, delta=delta), by_then, moment))
    pieces.append(Piece(typed("content_block_stop", index=0), used))
    for delta in deltas or ({},):
        stop = {"stop_reason": "end_turn", "stop_sequence": None}
        fields = {"usage": delta} if delta else {}
        pieces.append(Piece(typed("message_delta", delta=stop, **fields), used))
    pieces.append(Piece(typed("message_stop"), used))
    return streamed(pieces, leaving, used.with_output(hidden))


# Gemini


def gemini(**fields: Any) -> dict[str, Any]:
    """A request for content."""
    parts = [{"text": "Tell me of the lighthouse, {case}."}]
    return {"contents": [{"role": "user", "parts": parts}]} | fields


def candidate(text: str, finish: str | None = None) -> dict[str, Any]:
    said: dict[str, Any] = {"index": 0, "content": {"role": "model", "parts": [{"text": text}]}}
    return said if finish is None else said | {"finishReason": finish}


def gemini_document(usage: Any, used: Units, leaving: str | None = None) -> Answer:
    body = {"candidates": [candidate("".join(STORY), "STOP")], "modelVersion": "m"}
    return document(body if usage is None else {**body, "usageMetadata": usage}, used, leaving)


def gemini_stream(
    usage: Any,
    used: Units,
    leaving: str | None = None,
    hidden: int = 0,
    story: tuple[str, ...] = STORY,
    tokens: tuple[int, ...] = STORY_COUNTS,
) -> Answer:
    head = event({"candidates": [candidate("")], "modelVersion": "m"})
    pieces = [Piece(head, used.with_output(hidden), "head")]
    for text, by_then, moment in told(story, used, hidden, tokens):
        pieces.append(Piece(event({"candidates": [candidate(text)]}), by_then, moment))
    last: dict[str, Any] = {"candidates": [candidate("", "STOP")]}
    pieces.append(Piece(event(last if usage is None else last | {"usageMetadata": usage}), used))
    return streamed(pieces, leaving, used.with_output(hidden))


# Embeddings


def embeddings_document(
    usage: Any, used: Units, leaving: str | None = None, count: int = 1
) -> Answer:
    data = [{"object": "embedding", "index": at, "embedding": [0.5, -0.25]} for at in range(count)]
    body = {"object": "list", "model": "m", "data": data}
    return document(body if usage is None else {**body, "usage": usage}, used, leaving)


# Rankings


def rerank_document(
    told: dict[str, Any], used: Units, leaving: str | None = None, key: str = "results"
) -> Answer:
    """An answer with what is told beside its results: a `usage`, a `meta`, or both."""
    results = [{"index": at, "relevance_score": 0.5 - at / 8} for at in range(2)]
    return document({"model": "m", key: results, **told}, used, leaving)


# Moderations


def moderation_document(usage: Any, used: Units, leaving: str | None = None) -> Answer:
    body = {"id": "modr-1", "model": "m", "results": [{"flagged": False, "categories": {}}]}
    return document(body if usage is None else {**body, "usage": usage}, used, leaving)


# Transcriptions


def transcript_document(usage: Any, used: Units, leaving: str | None = None, **more: Any) -> Answer:
    body = {"text": "".join(STORY), **more}
    return document(body if usage is None else {**body, "usage": usage}, used, leaving)


def transcript_stream(usage: Any, used: Units, leaving: str | None = None) -> Answer:
    """What was heard is billed from the first word on, and so is each word."""
    pieces = []
    for text, by_then, moment in told(STORY, used, 0, STORY_COUNTS):
        delta = {"type": "transcript.text.delta", "delta": text}
        pieces.append(Piece(event(delta), by_then, moment))
    done = {"type": "transcript.text.done", "text": "".join(STORY)}
    pieces.append(Piece(event(done if usage is None else {**done, "usage": usage}), used))
    return streamed(pieces, leaving, used.with_output(0))


# Images

PNG = (
    b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x00\x01\x00\x00\x00\x01\x08\x06\x00\x00\x00"
    b"\x1f\x15\xc4\x89\x00\x00\x00\rIDATx\x9cc\xf8\xff\xff?\x00\x05\xfe\x02\xfe\xa75\x81\x84"
    b"\x00\x00\x00\x00IEND\xaeB`\x82"
)


def images_document(usage: Any, used: Units, leaving: str | None = None, count: int = 1) -> Answer:
    body = {"created": 1, "data": [{"b64_json": "iVBORw0KGgo="} for _ in range(count)]}
    return document(body if usage is None else {**body, "usage": usage}, used, leaving)


def images_stream(
    usages: tuple[Any, ...],
    used: Units,
    leaving: str | None = None,
    partial: int = 0,
    kind: str = "image_generation",
) -> Answer:
    """One completed image for each usage; all of them are made before the first is sent."""

    def typed(name: str, **fields: Any) -> bytes:
        return event({"type": f"{kind}.{name}", "b64_json": FIRST_TEXT} | fields, f"{kind}.{name}")

    pieces = [
        Piece(typed("partial_image", partial_image_index=at), used, "head") for at in range(partial)
    ]
    for at, usage in enumerate(usages):
        fields = {} if usage is None else {"usage": usage}
        moment = "first" if at == 0 else None
        pieces.append(Piece(typed("completed", **fields), used, moment))
    return streamed(pieces, leaving, used)


def dashscope_images(usage: Any, used: Units, leaving: str | None = None, count: int = 1) -> Answer:
    content = [{"image": "https://results.example.com/a.png?Expires=1"} for _ in range(count)]
    message = {"role": "assistant", "content": content}
    body = {
        "request_id": "r",
        "output": {"choices": [{"finish_reason": "stop", "message": message}]},
    }
    return document(body if usage is None else {**body, "usage": usage}, used, leaving)


# Speech

SAMPLE_BYTES = 96_000


def wav(samples: int = SAMPLE_BYTES) -> bytes:
    """Silence: 24 kHz, one channel, 16 bits."""
    head = struct.pack("<4sI4s", b"RIFF", samples + 36, b"WAVE")
    form = struct.pack("<4sIHHIIHH", b"fmt ", 16, 1, 1, 24_000, 48_000, 2, 16)
    return head + form + struct.pack("<4sI", b"data", samples) + b"\0" * samples


def audio(data: bytes, used: Units, leaving: str | None = None, kind: str = "audio/mpeg") -> Answer:
    """A file. The customer can leave when three quarters of it have been sent."""
    cut = len(data) * 3 // 4
    pieces = [
        Piece(data[: cut // 3], used, "first"),
        Piece(data[cut // 3 : cut], used, "3/4"),
        Piece(data[cut:], used),
    ]
    before = (Await(),) if leaving == "arrived" else ()
    made = steps(pieces, leaving)
    return Answer(made, content_type=kind, framing="length", before=before, at_once=used)


def dashscope_speech(characters: int | None, used: Units, leaving: str | None = None) -> Answer:
    address = {"data": "", "url": "http://{upstream}/files/{case}.wav", "id": "a", "expires_at": 9}
    body: dict[str, Any] = {
        "output": {"finish_reason": "stop", "audio": address},
        "request_id": "r",
    }
    if characters is not None:
        body["usage"] = {"characters": characters}
    return document(body, used, leaving)


# Video


def dashscope_accepted() -> Answer:
    output = {"task_id": "task-{case}", "task_status": "PENDING"}
    return document({"output": output, "request_id": "r"}, NOTHING)


def dashscope_task(status: str, usage: Any, used: Units) -> Answer:
    output = {"task_id": "task-{case}", "task_status": status}
    if status == "SUCCEEDED":
        output["video_url"] = "https://results.example.com/video.mp4?Expires=1"
    elif status == "FAILED":
        output |= {"code": "InternalError", "message": "no"}
    body = {"request_id": "r", "output": output}
    return document(body if usage is None else {**body, "usage": usage}, used)


def ark_accepted() -> Answer:
    return document({"id": "cgt-20260122163918-{case}"}, NOTHING)


def ark_task(status: str, tokens: int | None, used: Units, **fields: Any) -> Answer:
    body: dict[str, Any] = {
        "id": "cgt-20260122163918-{case}",
        "model": "m",
        "status": status,
        "created_at": 1_769_071_158,
        "updated_at": 1_769_071_352,
    }
    if status == "succeeded":
        body["content"] = {"video_url": "https://results.example.com/video.mp4"}
    if tokens is not None:
        body["usage"] = {"completion_tokens": tokens, "total_tokens": tokens}
    return document(body | fields, used)


def xai_accepted() -> Answer:
    return document({"request_id": "request-{case}"}, NOTHING)


def xai_task(status: str | None, video: Any, used: Units, **fields: Any) -> Answer:
    body: dict[str, Any] = {"model": "m"} | ({"status": status} if status else {})
    if video is not None:
        body["video"] = video
    return document(body | fields, used)
