"""Transcriptions: by the second and by tokens, as documents, texts and streams; files that lie of their length."""

from __future__ import annotations

import struct
from typing import Any

from ..arithmetic import Units
from ..catalogue import HEARD_LEAST, HEARD_SECONDS, HEARD_TOKENS, Model
from ..customer import Customer, Request
from ..dialects import STORY_COUNTS, audio, in_pieces, transcript_document, transcript_stream
from ..script import Answer, Script
from ..vector import AtLeastBill, Exact, Expectation, Refused, Vector
from .asking import TRANSCRIPTIONS, TRANSLATIONS, ask_form

WRITTEN = sum(STORY_COUNTS)


def wav(seconds: int, said: int | None = None) -> bytes:
    """Silence of 8,000 bytes a second, which claims to have so many bytes."""
    claimed = 8_000 * seconds if said is None else said
    head = struct.pack("<4sI4s4sIHHIIHH", b"RIFF", 36, b"WAVE", b"fmt ", 16, 1, 1, 8_000, 8_000, 1, 8)
    return head + struct.pack("<4sI", b"data", claimed) + b"\x80" * (8_000 * seconds)


def slow_mp3(frames: int) -> bytes:
    """72 bytes for 72 ms, and a first frame that says that it is the only one."""
    frame = b"\xff\xe3\x18\xc4" + bytes(68)
    first = bytearray(frame)
    first[13:29] = b"Xing" + struct.pack(">III", 3, 1, 72)
    return bytes(first) + frame * (frames - 1)


def form(model: Model, file: bytes, path: str = TRANSCRIPTIONS, **fields: str) -> Request:
    return ask_form(path, model, ("prompt", "A lighthouse, {case}"), ("file", file), *fields.items())


def seconds(count: float) -> dict[str, Any]:
    return {"type": "duration", "seconds": count}


def tokens(heard: int, text: int, written: int) -> dict[str, Any]:
    return {
        "type": "tokens",
        "input_tokens": heard + text,
        "input_token_details": {"text_tokens": text, "audio_tokens": heard},
        "output_tokens": written,
        "total_tokens": heard + text + written,
    }


def vector(
    name: str,
    model: Model,
    request: Request,
    answer: Answer,
    expect: Expectation | None = None,
    **more: Any,
) -> Vector:
    script = Script((answer,))
    return Vector(f"transcription / {name}", model, request, script, expect or Exact(), **more)


def vectors() -> list[Vector]:
    return by_the_second() + by_tokens() + streams() + leaving() + lies()


def by_the_second() -> list[Vector]:
    made = []
    for name, told, billed in (
        ("as long as it is", seconds(90), 90),
        ("shorter than it is", seconds(71), 71),
        ("a second that has begun", seconds(70.01), 71),
        ("longer than was held", seconds(4000), 4000),
        ("Mistral's", {"prompt_audio_seconds": 90, "prompt_tokens": 4, "total_tokens": 9}, 90),
    ):
        answer = transcript_document(told, Units(heard=billed))
        for shape, one in (("whole", answer), ("in pieces", in_pieces(answer, 11))):
            request = form(HEARD_SECONDS, wav(90))
            made.append(vector(f"{name} / {shape}", HEARD_SECONDS, request, one, status=200))
    heard = Units(heard=90)
    for name, told in (("nothing", None), ("zero", seconds(0)), ("less than nothing", seconds(-9)),
                       ("tokens", tokens(900, 5, 40))):  # fmt: skip
        answer = transcript_document(told, heard, duration=3.5)
        made.append(vector(f"{name} is reported", HEARD_SECONDS, form(HEARD_SECONDS, wav(90)), answer))
    for kind in ("text", "srt", "vtt"):
        answer = audio(b"What was heard.\n" * 40, heard, kind="text/plain; charset=utf-8")
        request = form(HEARD_SECONDS, wav(90), response_format=kind)
        made.append(vector(f"as {kind}", HEARD_SECONDS, request, answer, status=200))
    for length, told, billed in ((3, 3, 10), (9, 10, 10), (11, 11, 11), (3, None, 10)):
        answer = transcript_document(None if told is None else seconds(told), Units(heard=billed))
        name = f"{length} s where ten are the least, reported as {told}"
        made.append(vector(name, HEARD_LEAST, form(HEARD_LEAST, wav(length)), answer, status=200))
    answer = transcript_document(seconds(90), heard)
    request = form(HEARD_SECONDS, wav(90), TRANSLATIONS)
    made.append(vector("a translation", HEARD_SECONDS, request, answer, status=200))
    return made


def by_tokens() -> list[Vector]:
    used = Units(input=5, audio_in=900, output=40)
    whole = tokens(900, 5, 40)
    bare = {"input_tokens": 905, "output_tokens": 40, "total_tokens": 945}
    request = form(HEARD_TOKENS, wav(90))
    made = [
        vector("tokens", HEARD_TOKENS, request, transcript_document(whole, used), status=200),
        vector("tokens in pieces", HEARD_TOKENS, request, in_pieces(transcript_document(whole, used), 7)),
        # What is not told of is sound.
        vector("tokens without details", HEARD_TOKENS, request,
               transcript_document(bare, Units(audio_in=905, output=40))),
        vector("more tokens than were held", HEARD_TOKENS, request,
               transcript_document(tokens(20_000, 5, 3_000), Units(input=5, audio_in=20_000, output=3_000))),
    ]  # fmt: skip
    estimated = Units(audio_in=900, output=WRITTEN)
    answer = transcript_document(None, estimated)
    made.append(vector("tokens are not reported", HEARD_TOKENS, request, answer, AtLeastBill()))
    return made


def streams() -> list[Vector]:
    streamed = {"stream": "true"}
    used = Units(input=5, audio_in=900, output=WRITTEN)
    told = tokens(900, 5, WRITTEN)
    by_tokens, by_seconds = form(HEARD_TOKENS, wav(90), **streamed), form(HEARD_SECONDS, wav(90), **streamed)
    heard = Units(heard=90)
    return [
        vector("a stream", HEARD_TOKENS, by_tokens, transcript_stream(told, used), status=200),
        vector("a stream in pieces", HEARD_TOKENS, by_tokens, in_pieces(transcript_stream(told, used), 5)),
        vector("a stream by the second", HEARD_SECONDS, by_seconds, transcript_stream(seconds(90), heard)),
        vector("a stream that reports nothing", HEARD_SECONDS, by_seconds, transcript_stream(None, heard)),
        vector("a stream of tokens that reports nothing", HEARD_TOKENS, by_tokens,
               transcript_stream(None, Units(audio_in=900, output=WRITTEN)), AtLeastBill()),
    ]  # fmt: skip


def leaving() -> list[Vector]:
    made = []
    used = Units(input=5, audio_in=900, output=WRITTEN)
    told = tokens(900, 5, WRITTEN)
    for moment in ("arrived", "first", "last"):
        gone = Customer(leaves=moment, how="reset", http=1)
        request = form(HEARD_TOKENS, wav(90), stream="true")
        answer = transcript_stream(told, used, moment)
        made.append(vector(f"a stream, left at {moment}", HEARD_TOKENS, request, answer, customer=gone))
        request = form(HEARD_SECONDS, wav(90), stream="true")
        answer = transcript_stream(seconds(90), Units(heard=90), moment)
        made.append(
            vector(f"a stream by the second, left at {moment}", HEARD_SECONDS, request, answer, customer=gone)
        )
    gone = Customer(leaves="arrived", how="reset", http=1)
    answer = transcript_document(told, used, "arrived")
    made.append(
        vector("left before the answer", HEARD_TOKENS, form(HEARD_TOKENS, wav(90)), answer, customer=gone)
    )
    return made


def lies() -> list[Vector]:
    """The upstream bills what it hears. What claims to be short is held as long as it is."""
    made = []
    for name, file, length in (
        ("WAV that says a second", wav(600, 8_000), 600),
        ("WAV that says nothing", wav(600, 0), 600),
        ("MP3 that says a frame", slow_mp3(8_334), 601),
    ):
        answer = transcript_document(seconds(length), Units(heard=length))
        request = form(HEARD_LEAST, file)
        made.append(vector(name, HEARD_LEAST, request, answer, status=200, credit="0.0601"))
        refused = Refused(402, code="insufficient_balance")
        made.append(
            vector(f"{name}, which cannot be paid", HEARD_LEAST, request, answer, refused, credit="0.0599")
        )
    nothing = transcript_document(None, Units())
    for name, request, field in (
        ("no audio", form(HEARD_LEAST, b"a text"), "file"),
        ("a URL", form(HEARD_LEAST, wav(1), url="https://example.com/{case}.wav"), "url"),
    ):
        made.append(vector(name, HEARD_LEAST, request, nothing, Refused(400, names=field)))
    return made
