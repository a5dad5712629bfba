"""Money and what is counted: exact decimals, rounded once, upwards, to a nano-dollar."""

from __future__ import annotations

from dataclasses import dataclass, fields
from decimal import ROUND_CEILING, Decimal, localcontext

NANODOLLARS = Decimal(10) ** 9
MILLION = Decimal(10) ** 6
THOUSAND = Decimal(10) ** 3


def nanodollars(dollars: str) -> int:
    """An amount as the admin API writes it, `"0.000150"`, in nano-dollars."""
    amount = Decimal(dollars) * NANODOLLARS
    if amount != amount.to_integral_value():
        raise ValueError(f"{dollars} is not a whole number of nano-dollars")
    return int(amount)


def show(nano: int) -> str:
    """Nano-dollars as people read them."""
    return f"${Decimal(nano) / NANODOLLARS:f}"


@dataclass(frozen=True)
class Units:
    """What a call used. The kinds are disjoint: a cached token is no plain input as well."""

    input: int = 0
    cache_read: int = 0
    cache_write: int = 0
    cache_write_1h: int = 0
    output: int = 0
    images: int = 0
    seconds: int = 0
    characters: int = 0
    audio_in: int = 0
    audio_out: int = 0
    web_searches: int = 0
    file_searches: int = 0
    containers: int = 0
    tool_calls: int = 0
    requests: int = 0
    rerank: int = 0
    image_in: int = 0
    image_out: int = 0
    heard: int = 0
    video_in: int = 0
    cache_write_12h: int = 0

    def __add__(self, other: Units) -> Units:
        return Units(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))

    def with_output(self, output: int) -> Units:
        """The same with another output."""
        return Units(**{**vars(self), "output": output})


@dataclass(frozen=True)
class Prices:
    """Dollars: of tokens and characters for a million, of searches, calls and rerank units for a thousand, of images,
    seconds made or heard, containers and requests for one."""

    input: Decimal = Decimal(0)
    cache_read: Decimal | None = None
    cache_write: Decimal | None = None
    cache_write_1h: Decimal | None = None
    output: Decimal = Decimal(0)
    image: Decimal = Decimal(0)
    second: Decimal = Decimal(0)
    characters: Decimal = Decimal(0)
    audio_in: Decimal | None = None
    audio_out: Decimal | None = None
    web_search: Decimal = Decimal(0)
    file_search: Decimal = Decimal(0)
    container: Decimal = Decimal(0)
    tool_call: Decimal = Decimal(0)
    request: Decimal = Decimal(0)
    rerank: Decimal = Decimal(0)
    image_in: Decimal | None = None
    image_out: Decimal | None = None
    heard: Decimal = Decimal(0)
    video_in: Decimal | None = None
    cache_write_12h: Decimal | None = None

    def cost(self, used: Units) -> Decimal:
        """What `used` costs in nano-dollars, without any rounding."""
        cache_read = self.input if self.cache_read is None else self.cache_read
        cache_write = self.input if self.cache_write is None else self.cache_write
        cache_write_1h = cache_write if self.cache_write_1h is None else self.cache_write_1h
        cache_write_12h = (
            cache_write_1h if self.cache_write_12h is None else self.cache_write_12h
        )
        audio_in = self.input if self.audio_in is None else self.audio_in
        audio_out = self.output if self.audio_out is None else self.audio_out
        image_in = self.input if self.image_in is None else self.image_in
        video_in = self.input if self.video_in is None else self.video_in
        image_out = self.output if self.image_out is None else self.image_out
        with localcontext() as exact:
            exact.prec = 60
            by_the_million = (
                used.input * self.input
                + used.cache_read * cache_read
                + used.cache_write * cache_write
                + used.cache_write_1h * cache_write_1h
                + used.cache_write_12h * cache_write_12h
                + used.output * self.output
                + used.characters * self.characters
                + used.audio_in * audio_in
                + used.audio_out * audio_out
                + used.image_in * image_in
                + used.video_in * video_in
                + used.image_out * image_out
            )
            by_the_thousand = (
                used.web_searches * self.web_search
                + used.file_searches * self.file_search
                + used.tool_calls * self.tool_call
                + used.rerank * self.rerank
            )
            each = (
                used.images * self.image
                + used.seconds * self.second
                + used.containers * self.container
                + used.requests * self.request
                + used.heard * self.heard
            )
            return (by_the_million / MILLION + by_the_thousand / THOUSAND + each) * NANODOLLARS


def rounded(nano: Decimal) -> int:
    """A cost as it is charged: begun nano-dollars count whole."""
    return int(nano.to_integral_value(rounding=ROUND_CEILING))
