"""Speech through the official OpenAI SDK: files that play, and what they cost."""

import wave
from decimal import Decimal
from io import BytesIO

import numpy
import openai
import pytest
import soundfile

# 48 characters; a simulated upstream speaks each for a twentieth of a second.
TEXT = "The quick brown fox jumps over the lazy old dog."
SECONDS = len(TEXT) * 0.05
# $10 and $11.50 per million characters.
FLASH = Decimal(10) / 1_000_000
INSTRUCT = Decimal("11.50") / 1_000_000


def check_mp3(file) -> None:
    """The file plays: what is heard is the simulator's tone of 400 Hz, for as long as it was made."""
    info = soundfile.info(file)
    assert (info.format, info.samplerate, info.channels) == ("MP3", 24_000, 1), info
    if hasattr(file, "seek"):
        file.seek(0)
    samples, rate = soundfile.read(file)
    # Frames are whole, and the first has the encoder's delay before it.
    assert len(samples) / rate == pytest.approx(SECONDS, abs=0.1)
    loudest = numpy.abs(numpy.fft.rfft(samples)).argmax() * rate / len(samples)
    assert loudest == pytest.approx(400, abs=2)
    assert numpy.abs(samples).max() == pytest.approx(12_000 / 32_768, rel=0.1)


def check_wav(data: bytes) -> None:
    with wave.open(BytesIO(data)) as file:
        assert (file.getframerate(), file.getnchannels(), file.getsampwidth()) == (24_000, 1, 2)
        assert file.getnframes() == pytest.approx(SECONDS * 24_000)
        assert len(file.readframes(file.getnframes())) == 2 * file.getnframes()


def test_speech_is_an_mp3_that_plays(customer):
    answer = customer.sdk.audio.speech.create(model="qf3-tts-flash", voice="alloy", input=TEXT)
    assert answer.response.headers["content-type"] == "audio/mpeg"
    check_mp3(BytesIO(answer.content))
    assert customer.spent() == len(TEXT) * FLASH


def test_speech_is_streamed_to_a_file(customer, tmp_path):
    path = tmp_path / "speech.mp3"
    with customer.sdk.audio.speech.with_streaming_response.create(
        model="qf3-tts-flash", voice="Ethan", input=TEXT, speed=2
    ) as response:
        response.stream_to_file(path)
    check_mp3(str(path))
    assert customer.spent() == len(TEXT) * FLASH


def test_speech_is_a_wav(customer):
    answer = customer.sdk.audio.speech.create(
        model="qf3-tts-flash", voice="Cherry", input=TEXT, response_format="wav"
    )
    assert answer.response.headers["content-type"] == "audio/wav"
    check_wav(answer.content)
    assert customer.spent() == len(TEXT) * FLASH


def test_speech_is_billed_by_the_characters_that_are_reported(customer):
    # Two for an ideograph.
    customer.sdk.audio.speech.create(
        model="qf3-tts-flash", voice="nova", input="你好", extra_headers={"x-sim-usage": "prompt=4"}
    )
    assert customer.spent() == 4 * FLASH


def test_speech_as_it_is_told(customer):
    # The model ignores the format.
    answer = customer.sdk.audio.speech.create(
        model="qf3-tts-instruct-flash",
        voice="coral",
        input=TEXT,
        instructions="Whisper.",
        response_format="mp3",
    )
    check_wav(answer.content)
    assert customer.spent() == len(TEXT) * INSTRUCT


def test_what_cannot_be_spoken(customer):
    for wrong, message in [
        ({"voice": "Nobody"}, "Voice 'Nobody' is not supported."),
        ({"input": ""}, "input"),
        ({"input": "x" * 601}, "600"),
        ({"response_format": "opus"}, "mp3 or wav"),
        ({"instructions": "Whisper."}, "instructions"),
    ]:
        asked = {"model": "qf3-tts-flash", "voice": "alloy", "input": TEXT, **wrong}
        with pytest.raises(openai.BadRequestError) as error:
            customer.sdk.audio.speech.create(**asked)
        assert message in error.value.body["message"], error.value.body
        assert error.value.code == "invalid_request_error", error.value.body
    with pytest.raises(openai.BadRequestError) as error:
        customer.sdk.audio.speech.create(model="gpt-4o", voice="alloy", input=TEXT)
    assert error.value.code == "endpoint_model_mismatch"
    assert customer.spent() == 0
