"""Images through the official OpenAI SDK: made, edited, and what they cost."""

import base64
import struct
import urllib.request
import zlib
from decimal import Decimal
from io import BytesIO

import openai
import pytest

# Of pimg-2.
USAGE = {"x-sim-usage": "prompt=10,completion=1000"}
#: $5 a million for words, $30 for output; what is seen of pictures is $8.
COST = (10 * Decimal(5) + 1000 * Decimal(30)) / 1_000_000
EDITED = (10 * Decimal(8) + 1000 * Decimal(30)) / 1_000_000
SIGNATURE = b"\x89PNG\r\n\x1a\n"


def png(width: int, height: int, name: str = "a.png") -> tuple[str, BytesIO]:
    """A transparent picture of this size, as the SDK takes files."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, height, 8, 6, 0, 0, 0)
    rows = zlib.compress((b"\0" + b"\0\0\0\0" * width) * height)
    return name, BytesIO(SIGNATURE + chunk(b"IHDR", head) + chunk(b"IDAT", rows) + chunk(b"IEND", b""))


def is_png(image: str) -> bool:
    return base64.b64decode(image, validate=True).startswith(SIGNATURE + b"\0\0\0\rIHDR")


def fetched(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=10) as response:
        return response.read()


def test_an_image_and_its_tokens(customer):
    answer = customer.sdk.images.generate(
        model="pimg-2", prompt="a cat", size="1024x1536", quality="high", extra_headers=USAGE
    )
    assert len(answer.data) == 1 and is_png(answer.data[0].b64_json)
    assert (answer.usage.input_tokens, answer.usage.output_tokens) == (10, 1000)
    assert answer.usage.total_tokens == 1010
    assert (answer.size, answer.quality, answer.output_format) == ("1024x1536", "high", "png")
    assert customer.spent() == COST


def test_a_stream_of_images(customer):
    stream = customer.sdk.images.generate(
        model="pimg-2", prompt="a cat", stream=True, partial_images=1, extra_headers=USAGE
    )
    events = list(stream)
    assert [event.type for event in events] == [
        "image_generation.partial_image",
        "image_generation.completed",
    ]
    assert all(is_png(event.b64_json) for event in events)
    assert events[0].partial_image_index == 0
    assert events[1].usage.total_tokens == 1010
    assert customer.spent() == COST


def test_a_cut_stream_of_images_raises_and_costs_nothing(customer):
    cut = {"x-sim-fault": "cut-after=1"}
    stream = customer.sdk.images.generate(
        model="pimg-2", prompt="a cat", stream=True, partial_images=1, extra_headers=cut
    )
    with pytest.raises(openai.APIError):
        list(stream)
    assert customer.spent() == 0


def test_images_at_a_price_each(customer):
    two = customer.sdk.images.generate(model="grok-2-image", prompt="a cat", n=2)
    assert len({image.url for image in two.data}) == 2, two
    assert all(fetched(image.url).startswith(SIGNATURE) for image in two.data)
    assert customer.spent() == Decimal("0.14")
    one = customer.sdk.images.generate(model="seedream-4-0", prompt="a cat", size="2K")
    assert len(one.data) == 1 and one.data[0].url
    assert customer.spent() == Decimal("0.17")
    series = {"sequential_image_generation_options": {"max_images": 3}}
    three = customer.sdk.images.generate(
        model="seedream-4-0",
        prompt="a cat",
        response_format="b64_json",
        extra_body={"sequential_image_generation": "auto", **series},
    )
    assert [is_png(image.b64_json) for image in three.data] == [True] * 3
    assert customer.spent() == Decimal("0.26")


def test_images_that_are_not_on_offer(customer):
    for wrong, param in [
        ({"size": "1000x1000"}, "size"),
        ({"n": 11}, "n"),
        ({"quality": "best"}, "quality"),
        ({"output_format": "jpeg", "background": "transparent"}, "background"),
    ]:
        with pytest.raises(openai.BadRequestError) as error:
            customer.sdk.images.generate(model="pimg-2", prompt="a cat", **wrong)
        assert error.value.param == param, wrong
        assert error.value.code == "invalid_request_error" and error.value.body["message"], wrong
    assert customer.spent() == 0


def test_family_q(customer):
    def post(model: str, *content: dict, **options) -> dict:
        message = {"role": "user", "content": list(content)}
        body = {"model": model, "input": {"messages": [message]}, "parameters": {"size": "1328*1328"}}
        return customer.sdk.post("/images/generations", cast_to=object, body=body, options=options)

    def image(answer: dict) -> str:
        return answer["output"]["choices"][0]["message"]["content"][0]["image"]

    prompt, photo = {"text": "a hat"}, {"image": "https://example.com/a.png"}
    answer = post("qf-image-2.0", prompt)
    assert fetched(image(answer)).startswith(SIGNATURE) and answer["request_id"]
    assert answer["usage"] == {"image_count": 1, "width": 1328, "height": 1328}
    assert image(post("qf-image-edit-plus", photo, prompt))
    spent = Decimal("0.035") + Decimal("0.03")
    assert customer.spent() == spent

    refused = {"headers": {"x-sim-fault": "status=400"}}
    for who, call in [
        ("an edit without an image", lambda: post("qf-image-edit", prompt)),
        ("two texts in one", lambda: post("qf-image-max", {**prompt, **photo})),
        ("an unknown model", lambda: post("qf-image-9", prompt)),
        ("the upstream", lambda: post("qf-image-max", prompt, **refused)),
    ]:
        with pytest.raises(openai.BadRequestError) as error:
            call()
        assert error.value.code == "InvalidParameter", who
        assert error.value.body["message"], who
    assert customer.spent() == spent


def test_edits_of_one_and_of_several_images(customer):
    def edit(image) -> openai.types.ImagesResponse:
        return customer.sdk.images.edit(model="pimg-2", image=image, prompt="a hat")

    one = edit(png(64, 64))
    # A list goes as `image[]`.
    several = edit([png(64, 64), png(32, 16, "b.png"), png(8, 8, "c.png")])
    assert is_png(one.data[0].b64_json) and is_png(several.data[0].b64_json)
    tokens = [answer.usage.input_tokens_details.image_tokens for answer in (one, several)]
    assert tokens[1] == 3 * tokens[0] > 0, "three images have arrived"
    words = [answer.usage.input_tokens_details.text_tokens for answer in (one, several)]
    output_tokens = one.usage.output_tokens + several.usage.output_tokens
    nano = 5 * sum(words) + 8 * sum(tokens) + 30 * output_tokens
    assert customer.spent() == Decimal(nano) / 1_000_000


def test_a_stream_of_an_edit(customer):
    stream = customer.sdk.images.edit(
        model="pimg-2",
        image=png(64, 64),
        prompt="a hat",
        stream=True,
        partial_images=1,
        extra_headers=USAGE,
    )
    events = [event.type for event in stream]
    assert events == ["image_edit.partial_image", "image_edit.completed"]
    assert customer.spent() == EDITED


def test_a_mask_is_as_large_as_the_image(customer):
    def edit(mask):
        return customer.sdk.images.edit(
            model="pimg-2", image=png(64, 48), mask=mask, prompt="a hat", extra_headers=USAGE
        )

    assert is_png(edit(png(64, 48, "mask.png")).data[0].b64_json)
    assert customer.spent() == EDITED
    with pytest.raises(openai.BadRequestError) as error:
        edit(png(64, 49, "mask.png"))
    assert (error.value.code, error.value.param) == ("invalid_mask", "mask")
    assert "64x49" in error.value.body["message"], "it says what is wrong"
    assert customer.spent() == EDITED


def test_edits_as_base64_and_as_urls(customer):
    def edit(**more) -> openai.types.Image:
        asked = {"model": "dle-2", "image": png(64, 64), "prompt": "a hat", **more}
        return customer.sdk.images.edit(**asked).data[0]

    default = edit()
    assert is_png(default.b64_json) and default.url is None
    url = edit(response_format="url", size="256x256")
    assert fetched(url.url).startswith(SIGNATURE) and url.b64_json is None
    spent = Decimal("0.020") + Decimal("0.016")
    assert customer.spent() == spent
    with pytest.raises(openai.BadRequestError) as error:
        edit(size="1536x1024")
    assert error.value.param == "size"
    assert customer.spent() == spent
