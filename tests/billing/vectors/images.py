"""Images: by the image and by tokens, whole and streamed, of OpenAI, Ark and Qwen."""

from __future__ import annotations

from typing import Any

from ..arithmetic import Units
from ..catalogue import (
    IMAGE_APART,
    IMAGE_ARK,
    IMAGE_COUNTED,
    IMAGE_QWEN,
    IMAGE_SIZED,
    IMAGE_TOKENS,
    Model,
)
from ..customer import FIRST_TEXT, Customer, Request
from ..dialects import (
    PNG,
    dashscope_images,
    images_document,
    images_stream,
    in_pieces,
)
from ..script import Answer, Script
from ..vector import AtLeastBill, Exact, Expectation, Refused, Vector
from .asking import EDITS, IMAGES, ask, ask_form


def image(**fields: Any) -> dict[str, Any]:
    return {"prompt": "A lighthouse, {case}"} | fields


def qwen(**parameters: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": [{"text": "A lighthouse, {case}"}]}]
    return {"input": {"messages": messages}, "parameters": parameters}


def edit(model: Model, **fields: str) -> Request:
    prompt = ("prompt", "A hat, {case}")
    return ask_form(EDITS, model, prompt, ("image", PNG), *fields.items())


def usage(prompt: int, output: int, **more: Any) -> dict[str, Any]:
    return {
        "input_tokens": prompt,
        "output_tokens": output,
        "total_tokens": prompt + output,
        "input_tokens_details": {"text_tokens": prompt, "image_tokens": 0},
    } | more


def vector(
    name: str,
    model: Model,
    request: Request,
    answer: Answer,
    expect: Expectation | None = None,
    **more: Any,
) -> Vector:
    return Vector(f"images / {name}", model, request, Script((answer,)), expect or Exact(), **more)


def vectors() -> list[Vector]:
    return by_the_image() + by_tokens() + apart() + streams() + of_ark() + of_qwen() + edits() + leaving()


def by_the_image() -> list[Vector]:
    made = []
    for count in (1, 2, 3, 10):
        answer = images_document(None, Units(images=count), count=count)
        for shape, one in (("whole", answer), ("in pieces", in_pieces(answer, 13))):
            request = ask(IMAGES, IMAGE_COUNTED, image(n=count))
            made.append(
                vector(f"{count} of {count} / {shape}", IMAGE_COUNTED, request, one, status=200)
            )
    fewer = images_document(None, Units(images=2), count=2)
    made.append(vector("2 of 4", IMAGE_COUNTED, ask(IMAGES, IMAGE_COUNTED, image(n=4)), fewer))
    more = images_document(None, Units(images=3), count=3)
    made.append(
        vector("3 where 1 was asked for", IMAGE_COUNTED, ask(IMAGES, IMAGE_COUNTED, image()), more)
    )
    for fields in (
        {"size": "256x256"},
        {"size": "1024x1024"},
        {"quality": "hd"},
        {"quality": "standard"},
        {"size": "256x256", "quality": "hd"},
    ):
        name = ", ".join(fields.values())
        answer = images_document(None, Units(images=1))
        request = ask(IMAGES, IMAGE_SIZED, image(**fields))
        prices = IMAGE_SIZED.priced(**fields)
        made.append(vector(f"priced by {name}", IMAGE_SIZED, request, answer, prices=prices))
        request = edit(IMAGE_SIZED, **fields)
        made.append(
            vector(f"an edit priced by {name}", IMAGE_SIZED, request, answer, prices=prices)
        )
    return made


def by_tokens() -> list[Vector]:
    rows: tuple[tuple[str, dict[str, Any], dict[str, Any], Units, int], ...] = (
        ("low", {"quality": "low"}, usage(13, 272), Units(input=13, output=272), 1),
        ("high, wide", {"quality": "high", "size": "1536x1024"}, usage(13, 6208),
         Units(input=13, output=6208), 1),
        ("three of them", {"n": 3, "quality": "low"}, usage(13, 816), Units(input=13, output=816), 3),
        ("auto, with a usage", {"quality": "auto"}, usage(14, 4160), Units(input=14, output=4160), 1),
        ("above the tokens of an image", {"quality": "high"}, usage(14, 9000),
         Units(input=14, output=9000), 1),
        ("above the context", {"quality": "low"}, usage(100_002, 272),
         Units(input=100_002, output=272), 1),
    )  # fmt: skip
    made = []
    for name, fields, told, used, count in rows:
        answer = images_document(told, used, count=count)
        request = ask(IMAGES, IMAGE_TOKENS, image(**fields))
        for shape, one in (("whole", answer), ("in pieces", in_pieces(answer, 13))):
            made.append(vector(f"{name} / {shape}", IMAGE_TOKENS, request, one, status=200))
    for fields in ({}, {"quality": "auto"}, {"size": "auto"}, {"quality": "auto", "size": "auto"}):
        name = ", ".join(f"{field} {word}" for field, word in fields.items()) or "nothing asked"
        # The dearest image of the model, and nobody tells.
        answer = images_document(None, Units(input=13, output=6208))
        request = ask(IMAGES, IMAGE_TOKENS, image(**fields))
        made.append(
            vector(f"{name}, without a usage", IMAGE_TOKENS, request, answer, AtLeastBill())
        )
    for told in (usage(0, 0), {"output_tokens": -1}, {"output_tokens": "many"}):
        answer = images_document(told, Units(input=13, output=4160))
        request = ask(IMAGES, IMAGE_TOKENS, image(quality="high"))
        name = f"a usage that cannot be: {told.get('output_tokens')}"
        made.append(vector(name, IMAGE_TOKENS, request, answer, AtLeastBill()))
    return made


def apart() -> list[Vector]:
    """Pictures and text are told apart, on their way in and on their way out."""
    drawn = {"output_tokens_details": {"text_tokens": 44, "image_tokens": 1056}}
    seen = {"input_tokens_details": {"text_tokens": 20, "image_tokens": 30}}
    rows: tuple[tuple[str, dict[str, Any], Units], ...] = (
        ("text beside a picture", usage(50, 1100, **drawn), Units(input=50, output=44, image_out=1056)),
        ("no details", usage(50, 1100), Units(input=50, image_out=1100)),
        ("a picture seen", usage(50, 1100, **seen, **drawn),
         Units(input=20, image_in=30, output=44, image_out=1056)),
        ("more text than output", usage(50, 30, output_tokens_details={"text_tokens": 44}),
         Units(input=50, output=44, image_out=30)),
        ("null details", usage(50, 1100, output_tokens_details=None), Units(input=50, image_out=1100)),
    )  # fmt: skip
    made = []
    for name, told, used in rows:
        for shape, streams, answer in (
            ("whole", {}, images_document(told, used)),
            ("a stream", {"stream": True}, images_stream((told,), used)),
        ):
            request = ask(IMAGES, IMAGE_APART, image(quality="high", **streams))
            made.append(vector(f"apart, {name} / {shape}", IMAGE_APART, request, answer, status=200))
        request = edit(IMAGE_APART, quality="high")
        answer = images_document(told, used)
        made.append(vector(f"apart, {name} / an edit", IMAGE_APART, request, answer, status=200))
    # Nobody tells: all of it is pictures, and the dearest that can be.
    untold = images_document(None, Units(input=13, image_out=6208))
    request = ask(IMAGES, IMAGE_APART, image())
    made.append(vector("apart, without a usage", IMAGE_APART, request, untold, AtLeastBill()))
    # 6,240 tokens of a picture cost $0.20, and as text $0.07.
    poor = Refused(402)
    made.append(vector("apart, poor", IMAGE_APART, request, untold, poor, credit="0.15"))
    return made


def streams() -> list[Vector]:
    made = []
    for partial in (0, 2):
        used = Units(input=13, output=372 + 100 * partial)
        answer = images_stream((usage(13, 372 + 100 * partial),), used, partial=partial)
        body = image(stream=True, partial_images=partial, quality="low")
        request = ask(IMAGES, IMAGE_TOKENS, body)
        for shape, one in (("whole", answer), ("in pieces", in_pieces(answer, 13))):
            name = f"a stream with {partial} partial images / {shape}"
            made.append(vector(name, IMAGE_TOKENS, request, one, status=200))
    for count in (2, 4):
        # Every image has a usage of its own: the provider bills their sum.
        each = tuple(usage(13, 6200 + at) for at in range(count))
        output = sum(one["output_tokens"] for one in each)
        answer = images_stream(each, Units(input=13, output=output))
        request = ask(IMAGES, IMAGE_TOKENS, image(stream=True, n=count, quality="high"))
        made.append(
            vector(
                f"a stream of {count} with usages of their own",
                IMAGE_TOKENS,
                request,
                answer,
                AtLeastBill(),
                status=200,
            )
        )
    for count in (1, 3):
        answer = images_stream((None,) * count, Units(images=count))
        request = ask(IMAGES, IMAGE_COUNTED, image(stream=True, n=count))
        made.append(
            vector(
                f"a stream of {count} by the image", IMAGE_COUNTED, request, answer, AtLeastBill()
            )
        )
    return made


def of_ark() -> list[Vector]:
    series = {
        "sequential_image_generation": "auto",
        "sequential_image_generation_options": {"max_images": 15},
    }

    def told(count: int, tokens: int = 4096) -> dict[str, Any]:
        return {"generated_images": count, "output_tokens": tokens, "total_tokens": tokens}

    made = []
    for count in (1, 4, 15):
        answer = images_document(told(count), Units(images=count), count=count)
        request = ask(IMAGES, IMAGE_ARK, image(**series))
        made.append(vector(f"Ark's series of {count}", IMAGE_ARK, request, answer, status=200))
        # One event at the end, with the count of all.
        answer = images_stream((told(count),), Units(images=count))
        request = ask(IMAGES, IMAGE_ARK, image(stream=True, **series))
        made.append(vector(f"Ark's stream of {count}", IMAGE_ARK, request, answer, status=200))
    one = images_document(told(1), Units(images=1))
    made.append(vector("one of Ark's", IMAGE_ARK, ask(IMAGES, IMAGE_ARK, image()), one))
    return made


def of_qwen() -> list[Vector]:
    size = {"width": 1024, "height": 1024}
    rows: tuple[tuple[str, dict[str, Any], Any, int, int], ...] = (
        ("image_count", {}, {"image_count": 1, **size}, 1, 1),
        ("output_image_count", {},
         {"input_image_count": 0, "output_image_count": 1, "output_width": 1024}, 1, 1),
        ("image_count of three", {"n": 3}, {"image_count": 3, **size}, 3, 3),
        ("output_image_count of three", {"n": 3}, {"output_image_count": 3}, 3, 3),
        ("fewer than asked for", {"n": 4}, {"image_count": 2, **size}, 2, 2),
        ("no usage", {"n": 2}, None, 2, 2),
    )  # fmt: skip
    made = []
    for name, parameters, told, images, count in rows:
        answer = dashscope_images(told, Units(images=images), count=count)
        request = ask(IMAGES, IMAGE_QWEN, qwen(size="1024*1024", **parameters))
        made.append(vector(f"Qwen's {name}", IMAGE_QWEN, request, answer, status=200))
    none = dashscope_images(None, Units(images=1), count=0)
    request = ask(IMAGES, IMAGE_QWEN, qwen())
    made.append(
        vector("Qwen's answer has no image and no count", IMAGE_QWEN, request, none, AtLeastBill())
    )
    return made


def edits() -> list[Vector]:
    details = {"text_tokens": 20, "image_tokens": 194}
    told = usage(214, 272, input_tokens_details=details)
    used = Units(input=214, output=272)
    answer = images_document(told, used)
    made = [
        vector(
            f"an edit / {shape}", IMAGE_TOKENS, edit(IMAGE_TOKENS, quality="low"), one, status=200
        )
        for shape, one in (("whole", answer), ("in pieces", in_pieces(answer, 13)))
    ]
    stream = images_stream((told,), used, kind="image_edit")
    request = edit(IMAGE_TOKENS, stream="true")
    made.append(vector("an edit / stream", IMAGE_TOKENS, request, stream, status=200))
    counted = images_document(None, Units(images=2), count=2)
    made.append(vector("an edit by the image", IMAGE_COUNTED, edit(IMAGE_COUNTED, n="2"), counted))
    untold = images_document(None, Units(input=800, output=6208))
    made.append(
        vector("an edit without a usage", IMAGE_TOKENS, edit(IMAGE_TOKENS), untold, AtLeastBill())
    )
    return made


def leaving() -> list[Vector]:
    """All images are made before the first comes, and billed whoever waits for them."""
    told, used = usage(13, 4160), Units(input=13, output=4160)
    whole = images_document(told, used, "arrived")
    stream = images_stream((told, told), used + Units(output=4160), "first", partial=1)
    made = []
    for how, http in (("reset", 1), ("close", 1), ("half-close", 1), ("reset", 2)):
        early = Customer(leaves="arrived", how=how, http=http)
        late = Customer(leaves=FIRST_TEXT, how=how, http=http)
        place = f"{how} over HTTP/{http}"
        request = ask(IMAGES, IMAGE_TOKENS, image(quality="high"))
        made.append(
            vector(f"{place} before the answer", IMAGE_TOKENS, request, whole, customer=early)
        )
        made.append(
            vector(
                f"an edit, {place} before the answer",
                IMAGE_TOKENS,
                edit(IMAGE_TOKENS),
                whole,
                customer=early,
            )
        )
        request = ask(IMAGES, IMAGE_TOKENS, image(quality="high", stream=True, n=2))
        made.append(
            vector(
                f"{place} after the first image",
                IMAGE_TOKENS,
                request,
                stream,
                AtLeastBill(),
                customer=late,
            )
        )
        counted = images_document(None, Units(images=2), "arrived", count=2)
        request = ask(IMAGES, IMAGE_COUNTED, image(n=2))
        made.append(
            vector(
                f"by the image, {place} before the answer",
                IMAGE_COUNTED,
                request,
                counted,
                customer=early,
            )
        )
        answer = dashscope_images({"image_count": 2}, Units(images=2), "arrived", count=2)
        request = ask(IMAGES, IMAGE_QWEN, qwen(n=2))
        made.append(
            vector(f"Qwen, {place} before the answer", IMAGE_QWEN, request, answer, customer=early)
        )
    return made
