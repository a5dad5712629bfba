"""Upstreams that fail: work that may have been done is never done twice."""

from __future__ import annotations

from typing import Any

from ..arithmetic import Units
from ..catalogue import (
    EMBED,
    IMAGE_COUNTED,
    RERANK_TOKENS,
    SPEECH,
    VIDEO_G,
    VIDEO_S,
    VIDEO_V,
    Model,
)
from ..dialects import (
    ark_accepted,
    ark_task,
    audio,
    dashscope_accepted,
    dashscope_task,
    document,
    embeddings_document,
    images_document,
    rerank_document,
    xai_accepted,
    xai_task,
)
from ..script import NOTHING, Answer, Break, Pause, Script, Send
from ..vector import Covered, Exact, Expectation, InDoubt, Vector, Void
from . import asking
from .images import image
from .leaving import HIDDEN, PROMPT_TOKENS, STORY_TOKENS, TALKS
from .video import g, s, v27

USED = Units(input=PROMPT_TOKENS, output=HIDDEN + STORY_TOKENS)


def failure(status: int, used: Units = NOTHING) -> Answer:
    body = {"error": {"message": "no", "type": "api_error", "param": None, "code": "no"}}
    return document(body, used, status=status)


def lost(used: Units, reset: bool = True) -> Answer:
    """The request was read, and then the connection was gone."""
    return Answer((), before=(Pause(0.05), Break(reset)), at_once=used)


#: First answers behind which nothing is asked again, and whether the provider bills them.
NEVER: tuple[tuple[str, Answer], ...] = (
    ("408", failure(408)),
    ("504", failure(504)),
    ("524", failure(524)),
    ("a reset after the request", lost(USED)),
    ("an end after the request", lost(USED, reset=False)),
    ("a 200 that is no answer",
     Answer((Send(b"<html>made</html>", USED),), content_type="text/html", at_once=USED)),
    ("a 200 that is no JSON", Answer((Send(b"made", USED),), framing="length", at_once=USED)),
    ("a 202", Answer((Send(b"{}", USED),), status=202, framing="length", at_once=USED)),
)  # fmt: skip
#: First answers behind which the next target is asked: nothing was begun, or nothing is billed.
ALWAYS: tuple[tuple[str, Answer], ...] = (
    ("429", failure(429)),
    ("500", failure(500)),
    ("502", failure(502)),
    ("503", failure(503)),
)


def vectors() -> list[Vector]:
    return [*texts(), *widened(), *others(), *submits()]


def with_spare(model: Model, name: str) -> Model:
    """The model at two upstreams, with failures of its own."""
    first = model.upstreams[0]
    return model.own(name, upstreams=(first, f"{first}-spare"))


def texts() -> list[Vector]:
    made = []
    for talk in TALKS:
        told = talk.usage(USED.input, USED.output)
        whole, stream = talk.whole(told, USED), talk.stream(told, USED, hidden=HIDDEN)
        for shape, good, fields in (("json", whole, {}), ("stream", stream, {"stream": True})):
            rows: list[tuple[str, Answer, Expectation, int]] = [
                (name, answer, Covered(), 1) for name, answer in NEVER
            ]
            rows += [(name, answer, Exact(), 2) for name, answer in ALWAYS]
            for at, (name, answer, expect, calls) in enumerate(rows):
                model = with_spare(talk.hiding, f"{talk.name}-breaks-{shape}-{at}")
                if talk.name == "messages" and name in (
                    "408",
                    "504",
                    "524",
                    "429",
                    "500",
                    "502",
                    "503",
                ):
                    # Its clients act on these themselves: relayed, or asked again.
                    calls = calls if calls == 1 else None
                    expect = Covered()
                request = asking.ask(talk.path, model, talk.ask(**fields))
                made.append(
                    Vector(
                        f"breaks / {talk.name} {shape}: {name}",
                        model,
                        request,
                        Script((answer, good)),
                        expect,
                        calls=calls,
                    )
                )
        model = talk.hiding.own(
            f"{talk.name}-breaks-nowhere", upstreams=("nowhere", talk.hiding.upstreams[0])
        )
        if talk.name != "messages":
            request = asking.ask(talk.path, model, talk.ask())
            made.append(
                Vector(
                    f"breaks / {talk.name}: a refused connection",
                    model,
                    request,
                    Script((whole,)),
                    Exact(),
                    calls=1,
                    status=200,
                )
            )
    return made


def widened() -> list[Vector]:
    """An operator can have more repeated, and then the first try is the operator's."""
    talk = TALKS[0]
    good = talk.whole(talk.usage(USED.input, USED.output), USED)
    model = talk.hiding.own("chat-breaks-wide", upstreams=("openai-wide", "openai-spare"))
    request = asking.ask(talk.path, model, talk.ask())
    script = Script((failure(504, USED), good))
    return [Vector("breaks / 504, widened", model, request, script, Covered(), calls=2, status=200)]


def others() -> list[Vector]:
    made = []
    one_image, text = Units(images=1), Units(input=9)
    rows: tuple[tuple[str, Model, str, dict[str, Any], Answer, Units], ...] = (
        ("embeddings", EMBED, asking.EMBEDDINGS, {"input": "{case}"},
         embeddings_document({"prompt_tokens": 9}, text), text),
        ("rerank", RERANK_TOKENS, asking.RERANK, {"query": "q", "documents": ["{case}"]},
         rerank_document({"usage": {"total_tokens": 9}}, text), text),
        ("images", IMAGE_COUNTED, asking.IMAGES, image(), images_document(None, one_image), one_image),
        ("speech", SPEECH, asking.SPEECH, {"input": "{case}", "voice": "alloy"},
         audio(b"\xff\xf3" * 400, Units(characters=11)), Units(characters=11)),
    )  # fmt: skip
    for name, base, path, body, good, used in rows:
        firsts = (
            ("504", failure(504), 1),
            ("408", failure(408), 1),
            ("a reset", lost(used), 1),
            ("429", failure(429), 2),
            ("503", failure(503), 2),
        )
        for at, (first, answer, calls) in enumerate(firsts):
            model = with_spare(base, f"{name}-breaks-{at}")
            expect = Covered() if calls == 1 else Exact()
            made.append(
                Vector(
                    f"breaks / {name}: {first}",
                    model,
                    asking.ask(path, model, body),
                    Script((answer, good)),
                    expect,
                    calls=calls,
                )
            )
    return made


def submits() -> list[Vector]:
    """Two videos for one payment: never. What may have been taken is in doubt."""
    url = "https://results.example.com/video.mp4"
    rows: tuple[tuple[str, Model, dict[str, Any], Answer, Answer], ...] = (
        ("V", VIDEO_V, v27(), dashscope_accepted(),
         dashscope_task("SUCCEEDED", {"duration": 5}, Units(seconds=5))),
        ("S", VIDEO_S, s(), ark_accepted(), ark_task("succeeded", 100_000, Units(output=100_000))),
        ("G", VIDEO_G, g(), xai_accepted(),
         xai_task("done", {"url": url, "duration": 6}, Units(seconds=6))),
    )  # fmt: skip
    made = []
    for name, base, body, accepted, done in rows:
        prices = base.priced(resolution="720p", audio=True)
        firsts = [(str(status), failure(status)) for status in (408, 500, 502, 503, 504, 524)]
        firsts += [("a reset after the request", lost(done.used()))]
        firsts += [("an end after the request", lost(done.used(), reset=False))]
        for at, (first, answer) in enumerate(firsts):
            # A model keeps its family's name in front.
            model = with_spare(base, f"{base.name}-b{at}")
            made.append(
                Vector(
                    f"breaks / a submit of {name}: {first}",
                    model,
                    asking.ask(asking.VIDEO, model, body),
                    Script((answer, accepted), (done,)),
                    InDoubt(),
                    calls=1,
                    prices=prices,
                )
            )
        model = with_spare(base, f"{base.name}-b429")
        made.append(
            Vector(
                f"breaks / a submit of {name}: 429",
                model,
                asking.ask(asking.VIDEO, model, body),
                Script((failure(429), accepted), (done,)),
                Exact(),
                calls=2,
                prices=prices,
            )
        )
    model = VIDEO_G.own("gif-video-nowhere", upstreams=("nowhere-xai", "xai"))
    made.append(
        Vector(
            "breaks / a submit of G: a refused connection",
            model,
            asking.ask(asking.VIDEO, model, g()),
            Script((rows[2][3],), (rows[2][4],)),
            Exact(),
            calls=1,
            prices=VIDEO_G.priced(resolution="720p"),
        )
    )
    refused = VIDEO_G.own("gif-video-refused")
    made.append(
        Vector(
            "breaks / a submit of G: 400",
            refused,
            asking.ask(asking.VIDEO, refused, g()),
            Script((failure(400),)),
            Void(),
            calls=1,
        )
    )
    return made
