"""Moderations: by tokens, which few report, and by the request."""

from __future__ import annotations

from typing import Any

from ..arithmetic import Units
from ..catalogue import MODERATION, MODERATION_REQUESTS, MODERATION_SEEING, Model
from ..customer import Customer
from ..dialects import in_pieces, moderation_document
from ..script import Script
from ..vector import AtLeastBill, Exact, Expectation, Refused, Vector
from .asking import MODERATIONS, ask

TEXT = "A walk in the park, {case}."
PICTURE = {"type": "image_url", "image_url": {"url": "https://example.com/{case}.png"}}


def vectors() -> list[Vector]:
    return reported() + unreported() + refused()


def vector(name: str, model: Model, sent: Any, told: Any, used: Units, **more: Any) -> Vector:
    expect: Expectation = more.pop("expect", Exact())
    leaving = "arrived" if "customer" in more else None
    answer = moderation_document(told, used, leaving)
    if more.pop("pieces", False):
        answer = in_pieces(answer, 7)
    request = ask(MODERATIONS, model, {"input": sent})
    return Vector(f"moderations / {name}", model, request, Script((answer,)), expect, **more)


def reported() -> list[Vector]:
    told = {"prompt_tokens": 31, "total_tokens": 31}
    used = Units(input=31)
    many = {"total_tokens": 70_000}
    gone = Customer(leaves="arrived", how="reset", http=1)
    return [
        vector("a text", MODERATION, TEXT, told, used, status=200),
        vector("a text in pieces", MODERATION, TEXT, told, used, status=200, pieces=True),
        vector("texts", MODERATION, [TEXT, "b"], told, used, status=200),
        vector("a picture", MODERATION_SEEING, [PICTURE], told, used, status=200),
        vector("more than was held", MODERATION_SEEING, TEXT, many, Units(input=70_000), status=200),
        vector("by the request", MODERATION_REQUESTS, TEXT, None, Units(requests=1), status=200),
        vector("a picture by the request", MODERATION_REQUESTS, [PICTURE], None, Units(requests=1),
               status=200),
        vector("reset before the answer", MODERATION, TEXT, told, used, customer=gone),
    ]  # fmt: skip


def unreported() -> list[Vector]:
    english = "A walk in the park. " * 50 + "{case}"
    return [
        vector("a text, not reported", MODERATION, english, None, Units(input=250),
               expect=AtLeastBill(), status=200),
        vector("texts, not reported", MODERATION, [english, english], None, Units(input=500),
               expect=AtLeastBill(), status=200),
        vector("zeros", MODERATION, english, {"total_tokens": 0}, Units(input=250),
               expect=AtLeastBill(), status=200),
    ]  # fmt: skip


def refused() -> list[Vector]:
    nothing = Units()
    return [
        vector("a picture that is not bounded", MODERATION, [PICTURE], None, nothing,
               expect=Refused(400, names="input")),
        vector("sound", MODERATION_SEEING, [{"type": "input_audio", "data": "{case}"}], None, nothing,
               expect=Refused(400, names="input")),
        vector("texts beside pictures", MODERATION_SEEING, [TEXT, PICTURE], None, nothing,
               expect=Refused(400, names="input")),
        vector("pictures that cannot be paid", MODERATION_SEEING, [PICTURE] * 10, None, nothing,
               expect=Refused(402, code="insufficient_balance"), credit="0.01"),
        vector("texts that cannot be paid", MODERATION, ["{case}"] * 2000, None, nothing,
               expect=Refused(402, code="insufficient_balance"), credit="0.01"),
    ]  # fmt: skip
