"""Speech: by the character, as OpenAI counts and as DashScope reports, also for who leaves."""

from __future__ import annotations

from typing import Any

from ..arithmetic import Units
from ..catalogue import SPEECH, SPEECH_QWEN, Model
from ..customer import Customer
from ..dialects import audio, dashscope_speech, wav
from ..script import Answer, Script
from ..vector import AtLeastBill, Exact, Expectation, Vector
from .asking import SPEECH as PATH
from .asking import ask

TEXTS = {
    "ASCII": "The lighthouse stands on the rock, {case}.",
    "accents": "Le phare déjà éteint, {case}.",
    "ideographs": "灯塔矗立在岩石上 {case}",
    "emoji": "🗼🌊🚢 {case}",
}
#: As long as the label that takes its place.
LABEL = "case000000x"


def spoken(text: str) -> int:
    return len(text.replace("{case}", LABEL))


def vector(
    name: str,
    model: Model,
    text: str,
    answer: Answer,
    file: Answer | None = None,
    expect: Expectation | None = None,
    **more: Any,
) -> Vector:
    fields = more.pop("fields", {})
    request = ask(PATH, model, {"input": text, "voice": "alloy"} | fields)
    script = Script((answer,), file=file)
    return Vector(f"speech / {name}", model, request, script, expect or Exact(), **more)


def vectors() -> list[Vector]:
    return of_openai() + of_dashscope() + leaving()


def of_openai() -> list[Vector]:
    made = []
    for name, text in TEXTS.items():
        used = Units(characters=spoken(text))
        made.append(vector(name, SPEECH, text, audio(b"\xff\xf3" * 4000, used), status=200))
    text = TEXTS["ASCII"]
    used = Units(characters=spoken(text))
    made.append(
        vector(
            "a slow reader",
            SPEECH,
            text,
            audio(b"\xff\xf3" * 20_000, used),
            customer=Customer(bite=2048, rests_s=0.005),
        )
    )
    return made


def of_dashscope() -> list[Vector]:
    file = audio(wav(), Units(), kind="audio/wav")
    made = []
    for name, text in TEXTS.items():
        for form in ("mp3", "wav"):
            count = spoken(text)
            used = Units(characters=count)
            fields = {"response_format": form}
            made.append(
                vector(
                    f"DashScope, {name}, {form}",
                    SPEECH_QWEN,
                    text,
                    dashscope_speech(count, used),
                    file_of(used),
                    fields=fields,
                    status=200,
                )
            )
    text, count = TEXTS["ideographs"], spoken(TEXTS["ideographs"])
    for name, told in (("twice", 2 * count - 1), ("above all that it could be", 5 * count)):
        used = Units(characters=told)
        made.append(
            vector(
                f"DashScope counts ideographs {name}",
                SPEECH_QWEN,
                text,
                dashscope_speech(told, used),
                file_of(used),
                status=200,
            )
        )
    double = count + 8
    made.append(
        vector(
            "DashScope counts ideographs twice and tells nothing",
            SPEECH_QWEN,
            text,
            dashscope_speech(None, Units(characters=double)),
            file_of(Units(characters=double)),
            AtLeastBill(),
        )
    )
    assert file.framing == "length"
    return made


def file_of(used: Units, leaving: str | None = None) -> Answer:
    """The file is billed with the call that made it, so it adds nothing."""
    return audio(wav(), Units(), leaving, "audio/wav")


def leaving() -> list[Vector]:
    """Who hangs up has had it spoken all the same."""
    text, count = TEXTS["ASCII"], spoken(TEXTS["ASCII"])
    used = Units(characters=count)
    sound = b"\xff\xf3" * 8000
    made = []
    for how, http in (("reset", 1), ("close", 1), ("half-close", 1), ("reset", 2)):
        place = f"{how} over HTTP/{http}"
        early = Customer(leaves="arrived", how=how, http=http)
        late = Customer(leaves=len(sound) * 3 // 4, how=how, http=http)
        made += [
            vector(f"{place} before the answer", SPEECH, text, audio(sound, used, "arrived"),
                   customer=early),
            vector(f"{place} at three quarters", SPEECH, text, audio(sound, used, "3/4"), customer=late),
            vector(f"DashScope, {place} before the answer", SPEECH_QWEN, text,
                   dashscope_speech(count, used, "arrived"), file_of(used), customer=early),
        ]  # fmt: skip
        for form, seen in (("mp3", 8000), ("wav", 60_000)):
            customer = Customer(leaves=seen, how=how, http=http)
            made.append(
                vector(
                    f"DashScope, {place} at three quarters of {form}",
                    SPEECH_QWEN,
                    text,
                    dashscope_speech(count, used),
                    file_of(used, "3/4"),
                    customer=customer,
                    fields={"response_format": form},
                )
            )
    return made
