"""Video: families V, H, S and G by what their upstreams report at the end of a task."""

from __future__ import annotations

from typing import Any

from ..arithmetic import Units
from ..catalogue import VIDEO_G, VIDEO_H, VIDEO_R2V, VIDEO_S, VIDEO_S2, VIDEO_V, VIDEO_V26, Model
from ..dialects import (
    ark_accepted,
    ark_task,
    dashscope_accepted,
    dashscope_task,
    document,
    xai_accepted,
    xai_task,
)
from ..script import NOTHING, Answer, Script
from ..vector import AtLeastBill, Exact, Expectation, Vector, Void
from .asking import VIDEO, ask

#: Images that a request refers to; nobody fetches them.
CAT = "https://example.com/in/cat.png"
FILM = "https://example.com/in/cat.mp4"


def vector(
    name: str,
    model: Model,
    body: dict[str, Any],
    accepted: Answer,
    polls: tuple[Answer, ...],
    expect: Expectation | None = None,
    **more: Any,
) -> Vector:
    script = Script((accepted,), polls)
    return Vector(
        f"video / {name}", model, ask(VIDEO, model, body), script, expect or Exact(), **more
    )


def vectors() -> list[Vector]:
    return of_v() + of_h() + of_s() + of_g() + asked_again()


# Families V and H


def v27(seconds: int = 5, resolution: str = "720p") -> dict[str, Any]:
    return {
        "duration": seconds,
        "resolution": resolution,
        "input": {"prompt": "A lighthouse, {case}"},
        "parameters": {"resolution": resolution.upper(), "duration": seconds},
    }


def v26(seconds: int = 5, size: str = "1280*720", **parameters: Any) -> dict[str, Any]:
    return {
        "duration": seconds,
        "resolution": "720p",
        "input": {"prompt": "A lighthouse, {case}"},
        "parameters": {"size": size, "duration": seconds, **parameters},
    }


def r2v(urls: list[str], seconds: int = 5) -> dict[str, Any]:
    body = v26(seconds)
    return body | {"input": {**body["input"], "reference_urls": urls}}


def h(urls: list[str], seconds: int = 5) -> dict[str, Any]:
    media = [{"type": "reference_image", "url": url} for url in urls]
    body = v27(seconds)
    return body | {"input": {**body["input"], "media": media}}


def of_v() -> list[Vector]:
    running = dashscope_task("RUNNING", None, NOTHING)
    rows: tuple[tuple[str, Any, int], ...] = (
        ("duration", {"duration": 5, "output_video_duration": 5, "SR": 720}, 5),
        ("duration with input", {"duration": 9, "input_video_duration": 4}, 9),
        ("duration as text", {"duration": "5"}, 5),
        ("a begun second", {"duration": 5.04}, 6),
        ("video_duration of version 2.5", {"video_duration": 5, "video_ratio": "16:9"}, 5),
        ("usage as a string", '{"duration": 5, "SR": 720}', 5),
        ("less than asked for", {"duration": 3}, 3),
        ("more than was asked for", {"duration": 14}, 14),
        ("more than any video of the model", {"duration": 40}, 40),
    )  # fmt: skip
    prices = VIDEO_V.priced(resolution="720p")
    made = []
    for name, told, seconds in rows:
        polls = (running, dashscope_task("SUCCEEDED", told, Units(seconds=seconds)))
        made.append(
            vector(f"V, {name}", VIDEO_V, v27(), dashscope_accepted(), polls, prices=prices)
        )
    for resolution in ("480p", "720p", "1080p"):
        polls = (dashscope_task("SUCCEEDED", {"duration": 5}, Units(seconds=5)),)
        made.append(
            vector(
                f"V, {resolution}",
                VIDEO_V,
                v27(resolution=resolution),
                dashscope_accepted(),
                polls,
                prices=VIDEO_V.priced(resolution=resolution),
            )
        )
    untold = (dashscope_task("SUCCEEDED", None, Units(seconds=5)),)
    made.append(
        vector(
            "V, no usage",
            VIDEO_V,
            v27(),
            dashscope_accepted(),
            untold,
            AtLeastBill(),
            prices=prices,
        )
    )
    for status in ("FAILED", "CANCELED"):
        polls = (running, dashscope_task(status, None, NOTHING))
        made.append(vector(f"V, {status}", VIDEO_V, v27(), dashscope_accepted(), polls, Void()))
    for audio in (True, False):
        polls = (dashscope_task("SUCCEEDED", {"duration": 5}, Units(seconds=5)),)
        made.append(
            vector(
                f"V 2.6, audio {audio}",
                VIDEO_V26,
                v26(audio=audio),
                dashscope_accepted(),
                polls,
                prices=VIDEO_V26.priced(resolution="720p", audio=audio),
            )
        )
    for name, told, seconds in (
        ("with films", {"duration": 15, "input_video_duration": 10}, 15),
        ("with films, untold", None, 15),
        ("with films, above the bound", {"duration": 33}, 33),
    ):
        polls = (dashscope_task("SUCCEEDED", told, Units(seconds=seconds)),)
        expect = AtLeastBill() if told is None else Exact()
        made.append(
            vector(
                f"V r2v {name}",
                VIDEO_R2V,
                r2v([FILM, FILM]),
                dashscope_accepted(),
                polls,
                expect,
                prices=VIDEO_R2V.priced(resolution="720p"),
            )
        )
    return made


def of_h() -> list[Vector]:
    prices = VIDEO_H.priced(resolution="720p")
    made = []
    for name, told, seconds in (
        ("duration", {"duration": 5}, 5),
        ("above the bound", {"duration": 50}, 50),
    ):
        polls = (dashscope_task("SUCCEEDED", told, Units(seconds=seconds)),)
        made.append(
            vector(f"H, {name}", VIDEO_H, h([CAT, CAT]), dashscope_accepted(), polls, prices=prices)
        )
    failed = (dashscope_task("FAILED", None, NOTHING),)
    made.append(vector("H, FAILED", VIDEO_H, h([CAT]), dashscope_accepted(), failed, Void()))
    return made


# Family S


def s(text: str = "A lighthouse, {case}", *blocks: dict[str, Any], **fields: Any) -> dict[str, Any]:
    content = [{"type": "text", "text": text}, *blocks]
    return {"content": content, "duration": 5, "resolution": "720p"} | fields


def of_s() -> list[Vector]:
    running = ark_task("running", None, NOTHING)
    made = []
    for name, fields, tokens in (
        ("with sound", {}, 100_000),
        ("without sound", {"generate_audio": False}, 100_000),
        ("a draft", {"draft": True, "resolution": "480p"}, 40_000),
        ("a silent draft", {"draft": True, "resolution": "480p", "generate_audio": False}, 40_000),
        ("1080p", {"resolution": "1080p"}, 240_000),
        ("480p", {"resolution": "480p"}, 47_000),
        ("above the bound", {}, 400_000),
        ("above the model's limit", {}, 600_000),
    ):
        traits = {"audio": fields.get("generate_audio", True), "draft": fields.get("draft", False)}
        used = Units(output=tokens)
        polls = (running, ark_task("succeeded", tokens, used))
        made.append(
            vector(
                f"S, {name}",
                VIDEO_S,
                s(**fields),
                ark_accepted(),
                polls,
                prices=VIDEO_S.priced(**traits),
            )
        )
    untold = (ark_task("succeeded", None, Units(output=108_000)),)
    made.append(vector("S, no usage", VIDEO_S, s(), ark_accepted(), untold, AtLeastBill()))
    for status in ("failed", "expired", "cancelled"):
        polls = (running, ark_task(status, None, NOTHING))
        made.append(vector(f"S, {status}", VIDEO_S, s(), ark_accepted(), polls, Void()))
    film = {"type": "video_url", "video_url": {"url": FILM}, "role": "reference_video"}
    for name, blocks in (("text alone", ()), ("a film", (film,))):
        used = Units(output=300_000)
        made.append(
            vector(
                f"S 2.0, {name}",
                VIDEO_S2,
                s("A lighthouse, {case}", *blocks),
                ark_accepted(),
                (ark_task("succeeded", 300_000, used),),
                prices=VIDEO_S2.priced(video_input=bool(blocks)),
            )
        )
    # Commands in the text override what is asked for: 12 seconds of 1080p, wherever they stand.
    dearest = Units(output=12 * 1920 * 1088 * 24 // 1024)
    for name, text in (
        ("behind a blank", "A cat, {case} --rs 1080p --dur 12"),
        ("glued to a word", "A cat, {case}--rs 1080p,--dur 12"),
        ("behind a line break", "A cat, {case}\n--rs 1080p\n--dur 12"),
        ("behind another script", "一只猫{case}--rs 1080p --dur 12"),
        ("in their long names", "A cat, {case} --resolution 1080p --duration 12"),
    ):
        made.append(
            vector(
                f"S, commands {name}, untold",
                VIDEO_S,
                s(text),
                ark_accepted(),
                (ark_task("succeeded", None, dearest),),
                AtLeastBill(),
            )
        )
    return made


# Family G


def g(seconds: int = 6, resolution: str = "720p", **fields: Any) -> dict[str, Any]:
    body = {"prompt": "A lighthouse, {case}", "duration": seconds, "resolution": resolution}
    return body | fields


def of_g() -> list[Vector]:
    pending = xai_task("pending", None, NOTHING)
    url = "https://vidgen.example.com/video.mp4"
    made = []
    for resolution in ("480p", "720p"):
        polls = (pending, xai_task("done", {"url": url, "duration": 6}, Units(seconds=6)))
        made.append(
            vector(
                f"G, {resolution}",
                VIDEO_G,
                g(resolution=resolution),
                xai_accepted(),
                polls,
                prices=VIDEO_G.priced(resolution=resolution),
            )
        )
    rows: tuple[tuple[str, str | None, Any, int, Expectation], ...] = (
        ("without a status", None, {"url": url, "duration": 6}, 6, Exact()),
        ("less than asked for", "done", {"url": url, "duration": 4}, 4, Exact()),
        ("above the bound", "done", {"url": url, "duration": 15}, 15, Exact()),
        ("without a duration", "done", {"url": url}, 6, AtLeastBill()),
        ("made and withheld", "done", {"url": "", "duration": 6, "respect_moderation": False}, 6,
         Exact()),
        ("withheld without a duration", "done", {"respect_moderation": False}, 6, AtLeastBill()),
        ("failed", "failed", None, 0, Void()),
        ("expired", "expired", None, 0, Void()),
    )  # fmt: skip
    for name, status, video, seconds, expect in rows:
        polls = (pending, xai_task(status, video, Units(seconds=seconds)))
        made.append(vector(f"G, {name}", VIDEO_G, g(), xai_accepted(), polls, expect))
    image = {"url": CAT}
    polls = (xai_task("done", {"url": url, "duration": 6}, Units(seconds=6)),)
    made.append(vector("G, from an image", VIDEO_G, g(image=image), xai_accepted(), polls))
    return made


# All of them


def asked_again() -> list[Vector]:
    """Questions about a task that fail settle nothing, and lose nothing."""
    url = "https://vidgen.example.com/video.mp4"
    rows: tuple[tuple[str, Model, dict[str, Any], Answer, Answer, dict[str, Any]], ...] = (
        ("V", VIDEO_V, v27(), dashscope_accepted(),
         dashscope_task("SUCCEEDED", {"duration": 5}, Units(seconds=5)), {"resolution": "720p"}),
        ("S", VIDEO_S, s(), ark_accepted(),
         ark_task("succeeded", 100_000, Units(output=100_000)), {"audio": True, "draft": False}),
        ("G", VIDEO_G, g(), xai_accepted(),
         xai_task("done", {"url": url, "duration": 6}, Units(seconds=6)), {"resolution": "720p"}),
    )  # fmt: skip
    made = []
    for name, model, body, accepted, done, traits in rows:
        for status in (429, 500, 503):
            failure = document({"error": {"message": "no"}}, NOTHING, status=status)
            made.append(
                vector(
                    f"{name}, {status} in between",
                    model,
                    body,
                    accepted,
                    (failure, failure, done),
                    prices=model.priced(**traits),
                    calls=1,
                )
            )
    return made
