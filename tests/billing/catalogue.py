"""The models that the vectors name: what they cost at the provider and at the gateway, and their limits.

The gateway sells at the provider's prices, so every difference between a bill and a charge is a fault.
No two prices are alike: a count that is priced as another kind shows.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any

from .arithmetic import Prices

#: The names in `models.yaml` of what `Prices` has.
PRICE_FIELDS = {
    "input": "input_per_1m_tokens",
    "cache_read": "cached_input_per_1m_tokens",
    "cache_write": "cache_write_per_1m_tokens",
    "cache_write_1h": "cache_write_1h_per_1m_tokens",
    "output": "output_per_1m_tokens",
    "image": "per_image",
    "second": "per_second",
    "characters": "per_1m_characters",
    "audio_in": "audio_input_per_1m_tokens",
    "audio_out": "audio_output_per_1m_tokens",
    "web_search": "per_1k_web_searches",
    "file_search": "per_1k_file_searches",
    "container": "per_container_session",
    "tool_call": "per_1k_tool_calls",
    "request": "per_request",
    "rerank": "per_1k_rerank_units",
    "image_in": "image_input_per_1m_tokens",
    "image_out": "image_output_per_1m_tokens",
    "heard": "per_audio_second",
    "video_in": "video_input_per_1m_tokens",
    "cache_write_12h": "cache_write_12h_per_1m_tokens",
}


@dataclass(frozen=True)
class Model:
    """An entry of `models.yaml`."""

    name: str
    operations: tuple[str, ...]
    prices: Prices
    #: Names of upstreams, in the order in which they are tried.
    upstreams: tuple[str, ...]
    limits: dict[str, Any] = field(default_factory=dict, hash=False)
    #: Prices under conditions: the first that is met counts.
    when: tuple[tuple[dict[str, Any], Prices], ...] = field(default=(), hash=False)
    #: What the gateway of the day before these rules did not know: `reasoning`, `pass_fields` and so on.
    rules: dict[str, Any] = field(default_factory=dict, hash=False)
    #: The provider's name for it, where it is another.
    target: str | None = None

    def as_json(self, with_rules: bool) -> dict[str, Any]:
        """The entry as the gateway reads it."""
        target = {} if self.target is None else {"model": self.target}
        entry: dict[str, Any] = {
            "operations": list(self.operations),
            "targets": [
                {"upstream": name, "priority": priority, **target}
                for priority, name in enumerate(self.upstreams)
            ],
            "prices": price_fields(self.prices),
            "limits": self.limits,
        }
        if self.when:
            entry["prices_when"] = [
                {"when": condition, "prices": price_fields(prices)}
                for condition, prices in self.when
            ]
        if with_rules:
            entry |= self.rules
        return entry

    def priced(self, **traits: Any) -> Prices:
        """The prices of a request with these traits."""
        for condition, prices in self.when:
            if all(traits.get(name) == value for name, value in condition.items()):
                return replace(self.prices, **{k: v for k, v in vars(prices).items() if v})
        return self.prices

    def own(self, name: str, **changes: Any) -> Model:
        """The same under another name: its failures are nobody else's."""
        return replace(self, name=name, target=name, **changes)


def price_fields(prices: Prices) -> dict[str, str]:
    """Prices by the names of `models.yaml`."""
    given = {PRICE_FIELDS[name]: value for name, value in vars(prices).items()}
    return {name: f"{value:f}" for name, value in given.items() if value}


def models_yaml(models: list[Model], with_rules: bool = True) -> str:
    """A `models.yaml`, one entry to a line: JSON is YAML."""
    entries = {model.name: model for model in models}
    lines = [
        f"  {json.dumps(name)}: {json.dumps(model.as_json(with_rules))}"
        for name, model in entries.items()
    ]
    return "models:\n" + "\n".join(lines) + "\n"


TEXT_PRICES = Prices(
    input=Decimal("1.03"),
    cache_read=Decimal("0.107"),
    cache_write=Decimal("1.31"),
    cache_write_1h=Decimal("2.09"),
    output=Decimal("10.07"),
)
TEXT_LIMITS = {"context_tokens_max": 128_000, "output_tokens_max": 32_000}
#: Small enough that what is above a limit is cheap to make.
TIGHT_LIMITS = {"context_tokens_max": 10_000, "output_tokens_max": 1_000}
#: A model that shows all that it writes.
SHOWN = {"reasoning": False}

CHAT = Model("chat", ("chat",), TEXT_PRICES, ("openai",), TEXT_LIMITS)
CHAT_SHOWN = Model("chat-shown", ("chat",), TEXT_PRICES, ("openai",), TEXT_LIMITS, rules=SHOWN)
CHAT_TIGHT = Model("chat-tight", ("chat",), TEXT_PRICES, ("openai",), TIGHT_LIMITS)
CHAT_PATTERN = Model("chat-family-*", ("chat",), TEXT_PRICES, ("openai",), TEXT_LIMITS)
RESPONSES = Model("responses", ("responses",), TEXT_PRICES, ("openai",), TEXT_LIMITS)
RESPONSES_SHOWN = Model(
    "responses-shown", ("responses",), TEXT_PRICES, ("openai",), TEXT_LIMITS, rules=SHOWN
)
RESPONSES_TIGHT = Model("responses-tight", ("responses",), TEXT_PRICES, ("openai",), TIGHT_LIMITS)
MESSAGES = Model("messages", ("messages",), TEXT_PRICES, ("anthropic",), TEXT_LIMITS)
MESSAGES_SHOWN = Model(
    "messages-shown", ("messages",), TEXT_PRICES, ("anthropic",), TEXT_LIMITS, rules=SHOWN
)
MESSAGES_TIGHT = Model("messages-tight", ("messages",), TEXT_PRICES, ("anthropic",), TIGHT_LIMITS)
MESSAGES_PATTERN = Model(
    "messages-family-*", ("messages",), TEXT_PRICES, ("anthropic",), TEXT_LIMITS
)

GEMINI = Model("gemini", ("generate_content",), TEXT_PRICES, ("gemini",), TEXT_LIMITS)
GEMINI_SHOWN = Model(
    "gemini-shown", ("generate_content",), TEXT_PRICES, ("gemini",), TEXT_LIMITS, rules=SHOWN
)
#: What nobody reports is charged as the most that it can be.
BOUND = {"missing_usage": "bound"}
CHAT_BOUND = CHAT.own("chat-bound", rules=BOUND)
RESPONSES_BOUND = RESPONSES.own("responses-bound", rules=BOUND)
MESSAGES_BOUND = MESSAGES.own("messages-bound", rules=BOUND)
GEMINI_BOUND = GEMINI.own("gemini-bound", rules=BOUND)

#: Where providers double their prices.
EDGE_TOKENS = 200_000
LONG_LIMITS = {"context_tokens_max": 1_000_000, "output_tokens_max": 32_000}
#: Prices by tier and by length, the special ones first.
TIERS: tuple[tuple[dict[str, Any], Prices], ...] = (
    (
        {"service_tier": "priority", "input_tokens_above": EDGE_TOKENS},
        Prices(input=Decimal("4.13"), cache_read=Decimal("0.431"), output=Decimal("31.3")),
    ),
    (
        {"service_tier": "priority"},
        Prices(input=Decimal("2.17"), cache_read=Decimal("0.223"), output=Decimal("20.3")),
    ),
    (
        {"service_tier": "flex"},
        Prices(input=Decimal("0.53"), cache_read=Decimal("0.059"), output=Decimal("5.03")),
    ),
    (
        {"input_tokens_above": EDGE_TOKENS},
        Prices(input=Decimal("2.11"), cache_read=Decimal("0.211"), output=Decimal("15.1")),
    ),
)
CHAT_TIERS = Model("chat-tiers", ("chat",), TEXT_PRICES, ("openai",), LONG_LIMITS, when=TIERS)
RESPONSES_TIERS = Model(
    "responses-tiers", ("responses",), TEXT_PRICES, ("openai",), LONG_LIMITS, when=TIERS
)
MESSAGES_TIERS = Model(
    "messages-tiers",
    ("messages",),
    TEXT_PRICES,
    ("anthropic",),
    LONG_LIMITS,
    when=(
        ({"speed": "fast"}, Prices(input=Decimal("6.01"), output=Decimal("60.1"))),
        ({"inference_geo": "us"}, Prices(input=Decimal("1.139"), output=Decimal("11.09"))),
        (
            {"input_tokens_above": EDGE_TOKENS},
            Prices(
                input=Decimal("2.11"),
                cache_read=Decimal("0.211"),
                cache_write=Decimal("2.63"),
                cache_write_1h=Decimal("4.19"),
                output=Decimal("15.1"),
            ),
        ),
    ),
)
#: Qwen's: a model that thinks costs more.
CHAT_THINKS = Model(
    "chat-thinks",
    ("chat",),
    TEXT_PRICES,
    ("openai",),
    TEXT_LIMITS,
    when=(({"thinking": True}, Prices(output=Decimal("40.3"))),),
)
#: All that an upstream runs beside the model has a price.
FEES = replace(
    TEXT_PRICES,
    web_search=Decimal("10.03"),
    file_search=Decimal("2.51"),
    container=Decimal("0.031"),
    tool_call=Decimal("1.07"),
    image=Decimal("0.043"),
)
CHAT_FEES = Model(
    "chat-fees",
    ("chat",),
    replace(
        TEXT_PRICES,
        web_search=Decimal("25.01"),
        request=Decimal("0.0013"),
        audio_in=Decimal("40.9"),
        audio_out=Decimal("80.7"),
        video_in=Decimal("7.13"),
    ),
    ("openai",),
    TEXT_LIMITS,
)
RESPONSES_FEES = Model("responses-fees", ("responses",), FEES, ("openai",), TEXT_LIMITS)
#: Pictures by their size and quality, as the tool that makes them is asked. The dearest has no conditions.
RESPONSES_PICTURES = Model(
    "responses-pictures",
    ("responses",),
    replace(TEXT_PRICES, image=Decimal("0.251")),
    ("openai",),
    TEXT_LIMITS,
    when=(
        ({"quality": "low"}, Prices(image=Decimal("0.0113"))),
        ({"quality": "medium", "size": "1024x1024"}, Prices(image=Decimal("0.0421"))),
    ),
)
MESSAGES_FEES = Model(
    "messages-fees",
    ("messages",),
    replace(TEXT_PRICES, web_search=Decimal("10.03"), container=Decimal("0.0041")),
    ("anthropic",),
    TEXT_LIMITS,
)

#: Answers of text and pictures, of which each has its price.
CHAT_PICTURES = Model(
    "chat-pictures",
    ("chat",),
    replace(TEXT_PRICES, image_out=Decimal("30.1")),
    ("openai",),
    TEXT_LIMITS,
)

EMBEDDING_PRICES = Prices(input=Decimal("0.13"))
EMBED = Model(
    "embed", ("embeddings",), EMBEDDING_PRICES, ("openai",), {"context_tokens_max": 100_000}
)
#: A third of a nano-dollar and less for a token: where rounding shows.
EMBED_CHEAP = Model(
    "embed-cheap",
    ("embeddings",),
    Prices(input=Decimal("0.0003")),
    ("openai",),
    {"context_tokens_max": 100_000},
)
EMBED_SPLIT = Model(
    "embed-split",
    ("embeddings",),
    EMBEDDING_PRICES,
    ("openai",),
    {"context_tokens_max": 100_000, "batch_inputs_max": 10},
)
EMBED_VOYAGE = Model(
    "embed-voyage", ("embeddings",), EMBEDDING_PRICES, ("voyage",), {"context_tokens_max": 100_000}
)

RERANK_LIMITS = {"documents_max": 1000}
RERANK_TOKENS = Model(
    "rerank-tokens", ("rerank",), Prices(input=Decimal("0.053")), ("openai",), RERANK_LIMITS
)
RERANK_UNITS = Model(
    "rerank-units", ("rerank",), Prices(rerank=Decimal("2.07")), ("openai",), RERANK_LIMITS
)
RERANK_BOTH = Model(
    "rerank-both",
    ("rerank",),
    Prices(input=Decimal("0.0003"), rerank=Decimal("0.51")),
    ("openai",),
    RERANK_LIMITS,
)
RERANK_REQUESTS = Model(
    "rerank-requests", ("rerank",), Prices(request=Decimal("0.0011")), ("openai",), RERANK_LIMITS
)
RERANK_VOYAGE = Model(
    "rerank-voyage", ("rerank",), Prices(input=Decimal("0.021")), ("voyage",), RERANK_LIMITS
)

MODERATION = Model(
    "moderation", ("moderations",), Prices(input=Decimal("0.11")), ("openai",), {}
)
MODERATION_SEEING = Model(
    "moderation-seeing",
    ("moderations",),
    Prices(input=Decimal("0.11")),
    ("openai",),
    {"context_tokens_max": 32_768},
)
MODERATION_REQUESTS = Model(
    "moderation-requests", ("moderations",), Prices(request=Decimal("0.0007")), ("openai",), {}
)

HEARING = ("transcription", "audio_translation")
#: A price that is not whole nano-dollars, so that rounding shows.
HEARD_SECONDS = Model("heard-seconds", HEARING, Prices(heard=Decimal("0.0000308334")), ("openai",))
HEARD_LEAST = Model(
    "heard-least", HEARING, Prices(heard=Decimal("0.0001")), ("openai",), {"billed_seconds_min": 10}
)
HEARD_TOKENS = Model(
    "heard-tokens",
    HEARING,
    Prices(input=Decimal("2.53"), audio_in=Decimal("6.11"), output=Decimal("10.3")),
    ("openai",),
    {"context_tokens_max": 16_000, "output_tokens_max": 2_000},
)

IMAGE_COUNTED = Model(
    "image-counted",
    ("image_generation", "image_edit"),
    Prices(image=Decimal("0.029")),
    ("openai",),
    {"images_max": 10, "stream": True},
)
IMAGE_SIZED = Model(
    "image-sized",
    ("image_generation", "image_edit"),
    Prices(image=Decimal("0.061")),
    ("openai",),
    {"images_max": 10, "sizes": ["256x256", "1024x1024"], "qualities": ["standard", "hd"]},
    when=(
        ({"size": "256x256"}, Prices(image=Decimal("0.017"))),
        ({"quality": "hd"}, Prices(image=Decimal("0.113"))),
    ),
)
IMAGE_TOKENS = Model(
    "image-tokens",
    ("image_generation", "image_edit"),
    Prices(input=Decimal("9.7"), output=Decimal("39.1")),
    ("openai",),
    {
        "context_tokens_max": 100_000,
        "output_tokens_max": 6_240,
        "images_max": 10,
        "sizes": ["1024x1024", "1024x1536", "1536x1024"],
        "qualities": ["low", "medium", "high"],
        "stream": True,
    },
)
#: What is seen and what is drawn has other prices than text.
IMAGE_APART = IMAGE_TOKENS.own(
    "image-apart",
    prices=Prices(
        input=Decimal("5.3"),
        image_in=Decimal("8.9"),
        output=Decimal("10.7"),
        image_out=Decimal("32.3"),
    ),
)
IMAGE_ARK = Model(
    "image-ark",
    ("image_generation",),
    Prices(image=Decimal("0.031")),
    ("ark",),
    {"images_max": 15, "reference_images_max": 10, "stream": True},
)
IMAGE_QWEN = Model(
    "image-qwen",
    ("image_generation",),
    Prices(image=Decimal("0.037")),
    ("dashscope",),
    {"images_max": 4, "reference_images_max": 0, "sizes": ["1024*1024", "1664*928"]},
)

SPEECH_PRICES = Prices(characters=Decimal("15.1"))
SPEECH = Model("speech", ("speech",), SPEECH_PRICES, ("openai",), {"characters_max": 4096})
SPEECH_QWEN = Model(
    "speech-qwen",
    ("speech",),
    SPEECH_PRICES,
    ("dashscope",),
    {"characters_max": 600, "audio_formats": ["mp3", "wav"]},
)


def by_resolution(**prices: str) -> tuple[tuple[dict[str, Any], Prices], ...]:
    """Prices of a second by resolution: `p480="0.05"`."""
    return tuple(
        ({"resolution": f"{name[1:]}p"}, Prices(second=Decimal(price)))
        for name, price in prices.items()
    )


ALL_RESOLUTIONS = ["480p", "720p", "1080p"]
VIDEO_V = Model(
    "vf2.7-t2v",
    ("video",),
    Prices(second=Decimal("0.151")),
    ("dashscope",),
    {"resolutions": ALL_RESOLUTIONS, "seconds_min": 2, "seconds_max": 15},
    when=by_resolution(p480="0.053", p720="0.101"),
    target="wan2.7-t2v",
)
VIDEO_V26 = replace(
    VIDEO_V,
    name="vf2.6-t2v",
    target="wan2.6-t2v",
    when=(
        ({"resolution": "720p", "audio": False}, Prices(second=Decimal("0.049"))),
        ({"resolution": "720p"}, Prices(second=Decimal("0.098"))),
    ),
)
VIDEO_R2V = replace(
    VIDEO_V,
    name="vf2.6-r2v",
    target="wan2.6-r2v",
    limits={**VIDEO_V.limits, "reference_images_max": 5},
)
VIDEO_H = replace(
    VIDEO_V,
    name="happyhorse-1.0-r2v",
    target="happyhorse-1.0-r2v",
    limits={**VIDEO_V.limits, "reference_images_max": 9},
    when=by_resolution(p720="0.139"),
)
VIDEO_S = Model(
    "sf-1-5-pro-251215",
    ("video",),
    Prices(output=Decimal("2.41")),
    ("ark",),
    {
        "resolutions": ALL_RESOLUTIONS,
        "seconds_min": 4,
        "seconds_max": 12,
        "output_tokens_max": 583_200,
    },
    when=(
        ({"audio": False, "draft": True}, Prices(output=Decimal("0.83"))),
        ({"draft": True}, Prices(output=Decimal("1.69"))),
        ({"audio": False}, Prices(output=Decimal("1.21"))),
    ),
    target="seedance-1-5-pro-251215",
)
VIDEO_S2 = Model(
    "df-sf-2-0-260128",
    ("video",),
    Prices(output=Decimal("7.01")),
    ("ark",),
    {
        "resolutions": ALL_RESOLUTIONS,
        "seconds_min": 4,
        "seconds_max": 15,
        "output_tokens_max": 1_458_000,
    },
    when=(({"video_input": True}, Prices(output=Decimal("4.31"))),),
    target="dreamina-seedance-2-0-260128",
)
VIDEO_G = Model(
    "gif-video",
    ("video",),
    Prices(second=Decimal("0.071")),
    ("xai",),
    {
        "resolutions": ["480p", "720p"],
        "seconds_min": 1,
        "seconds_max": 15,
        "reference_images_max": 1,
    },
    when=by_resolution(p480="0.051"),
    target="grok-imagine-video",
)
