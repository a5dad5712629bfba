"""Transcriptions and translations through the official OpenAI SDK: files as encoders make them, every way of
answering, and what they cost."""

import struct
import wave
from decimal import Decimal
from io import BytesIO

import numpy
import openai
import pytest
import soundfile

# $0.0001 a second, and $2.50 and $10 a million tokens.
WHISPER = Decimal("0.0001")
HEARD = Decimal("2.50") / 1_000_000
WRITTEN = Decimal(10) / 1_000_000


def tone(seconds: float, rate: int = 16_000) -> numpy.ndarray:
    noise = numpy.random.default_rng(1).standard_normal(int(seconds * rate)) * 0.05
    return 0.3 * numpy.sin(numpy.arange(int(seconds * rate)) * 2 * numpy.pi * 440 / rate) + noise


def encoded(samples: numpy.ndarray, kind: str, subtype: str, rate: int = 16_000) -> bytes:
    file = BytesIO()
    soundfile.write(file, samples, rate, format=kind, subtype=subtype)
    return file.getvalue()


def wav(seconds: int) -> bytes:
    file = BytesIO()
    with wave.open(file, "wb") as writer:
        writer.setnchannels(1)
        writer.setsampwidth(1)
        writer.setframerate(8_000)
        writer.writeframes(b"\x80" * 8_000 * seconds)
    return file.getvalue()


def charged(customer, model: str, name: str, file: bytes, **more) -> Decimal:
    """What a transcription of the file costs whose answer reports nothing: what is held for it."""
    before = customer.spent()
    text = customer.sdk.audio.transcriptions.create(
        model=model, file=(name, file), response_format="text", **more
    )
    assert isinstance(text, str) and text
    return customer.spent() - before


def test_every_shape_of_an_answer(customer):
    create = customer.sdk.audio.transcriptions.create
    file = ("speech.wav", wav(9))
    answer = create(model="whisper-1", file=file)
    assert answer.text and (answer.usage.type, answer.usage.seconds) == ("duration", 9)
    assert customer.spent() == 9 * WHISPER
    verbose = create(
        model="whisper-1",
        file=file,
        response_format="verbose_json",
        timestamp_granularities=["word", "segment"],
        language="en",
        temperature=0.2,
        prompt="A tone.",
    )
    assert (verbose.duration, len(verbose.segments)) == (9, 1)
    assert create(model="whisper-1", file=file, response_format="srt").startswith("1\n00:00:00,000")
    assert create(model="whisper-1", file=file, response_format="vtt").startswith("WEBVTT")
    assert customer.spent() == 4 * 9 * WHISPER
    before = customer.spent()
    answer = create(
        model="gpt-4o-transcribe",
        file=file,
        include=["logprobs"],
        chunking_strategy={"type": "server_vad", "prefix_padding_ms": 300},
    )
    used = answer.usage
    assert (used.type, used.input_token_details.audio_tokens) == ("tokens", 90)
    assert customer.spent() - before == 90 * HEARD + used.output_tokens * WRITTEN


def test_a_stream_tells_its_usage_at_its_end(customer):
    events = list(
        customer.sdk.audio.transcriptions.create(
            model="gpt-4o-transcribe", file=("speech.wav", wav(9)), stream=True
        )
    )
    assert [event.type for event in events[:2]] == ["transcript.text.delta"] * 2
    done = events[-1]
    assert done.type == "transcript.text.done"
    assert done.text == "".join(event.delta for event in events[:-1])
    assert customer.spent() == done.usage.input_tokens * HEARD + done.usage.output_tokens * WRITTEN


def test_translations(customer):
    create = customer.sdk.audio.translations.create
    assert create(model="whisper-1", file=("a.wav", wav(9))).text
    assert create(model="whisper-1", file=("a.wav", wav(9)), response_format="text", prompt="A tone.")
    assert customer.spent() == 2 * 9 * WHISPER
    with pytest.raises(openai.BadRequestError) as refused:
        create(model="gpt-transcribe", file=("a.wav", wav(9)))
    assert refused.value.code == "endpoint_model_mismatch"


@pytest.mark.parametrize(
    ("kind", "subtype", "most"),
    [
        ("WAV", "PCM_16", 10), ("WAV", "PCM_24", 10), ("WAV", "FLOAT", 10), ("WAV", "ULAW", 10),
        ("FLAC", "PCM_16", 10), ("OGG", "OPUS", 11), ("OGG", "VORBIS", 11), ("MP3", "MPEG_LAYER_III", 11),
    ],
)  # fmt: skip
def test_files_of_encoders_are_held_as_long_as_they_are(customer, kind, subtype, most):
    file = encoded(tone(10), kind, subtype)
    seconds = charged(customer, "whisper-1", f"tone.{kind.lower()}", file) / WHISPER
    assert 10 <= seconds <= most, "padding of encoders is heard as well"


def test_a_file_that_denies_its_length_is_held_as_long_as_it_is(customer):
    flac = bytearray(encoded(numpy.zeros(16_000 * 600), "FLAC", "PCM_16"))
    flac[21:26] = bytes([flac[21] & 0xF0, 0, 0, 0, 1])
    assert charged(customer, "whisper-1", "a.flac", bytes(flac)) == 600 * WHISPER
    short = bytearray(wav(300))
    short[40:44] = struct.pack("<I", 8_000)
    assert charged(customer, "whisper-1", "a.wav", bytes(short)) == 300 * WHISPER
    with pytest.raises(openai.BadRequestError) as refused:
        charged(customer, "whisper-1", "a.mp3", bytes(short))
    assert refused.value.param == "file"
    with pytest.raises(openai.BadRequestError) as refused:
        charged(customer, "gpt-4o-transcribe", "a.flac", encoded(numpy.zeros(16_000 * 1501), "FLAC", "PCM_16"))
    assert "1501 s" in refused.value.message
