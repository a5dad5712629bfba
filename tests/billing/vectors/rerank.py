"""Rankings: tokens as Jina and Voyage report them, rerank units as Cohere does, and what a request can
be made to cost."""

from __future__ import annotations

from typing import Any

from ..arithmetic import Units
from ..catalogue import RERANK_BOTH, RERANK_REQUESTS, RERANK_TOKENS, RERANK_UNITS, RERANK_VOYAGE, Model
from ..customer import Customer
from ..dialects import document, in_pieces, rerank_document
from ..script import Answer, Script
from ..vector import AtLeastBill, Exact, Expectation, Refused, Vector, Void
from .asking import RERANK, ask

#: Enough for the short requests of these vectors, and not for the long ones.
POOR = "0.01"


def rank(**fields: Any) -> dict[str, Any]:
    documents = ["The lighthouse, {case}.", {"text": "Closed on Sundays."}]
    return {"query": "When does it open?", "documents": documents} | fields


def vectors() -> list[Vector]:
    return reported() + unreported() + leaving() + failing() + unpaid() + refused()


def vector(
    name: str, model: Model, body: dict[str, Any], answers: tuple[Answer, ...], **more: Any
) -> Vector:
    expect: Expectation = more.pop("expect", Exact())
    request = ask(RERANK, model, body)
    return Vector(f"rerank / {name}", model, request, Script(answers), expect, **more)


def units(count: Any, **more: Any) -> dict[str, Any]:
    return {"meta": {"billed_units": {"search_units": count} | more}}


def usage(**counts: Any) -> dict[str, Any]:
    return {"usage": counts}


def reported() -> list[Vector]:
    tokens, both = RERANK_TOKENS, RERANK_BOTH
    rows: tuple[tuple[str, Model, dict[str, Any], dict[str, Any], Units], ...] = (
        ("Jina's total_tokens", tokens, {}, usage(total_tokens=27), Units(input=27)),
        ("vLLM's", tokens, {}, usage(prompt_tokens=28, total_tokens=28), Units(input=28)),
        ("more in all than in the prompt", tokens, {}, usage(prompt_tokens=3, total_tokens=29),
         Units(input=29)),
        ("SiliconFlow's meta", tokens, {},
         {"meta": {"tokens": {"input_tokens": 31, "output_tokens": 0}}}, Units(input=31)),
        ("whole numbers as floats", tokens, {}, usage(total_tokens=32.0), Units(input=32)),
        ("Cohere's search units", RERANK_UNITS, {}, units(1), Units(rerank=1)),
        ("two of them", RERANK_UNITS, {"top_n": 1}, units(2), Units(rerank=2)),
        ("units as floats", RERANK_UNITS, {}, units(3.0), Units(rerank=3)),
        ("OpenRouter's units", RERANK_UNITS, {}, usage(search_units=1, total_tokens=90, cost=0.0025),
         Units(input=90, rerank=1)),
        ("units and tokens", both, {}, usage(total_tokens=40) | units(1), Units(input=40, rerank=1)),
        ("units and tokens in meta", both, {}, units(2, input_tokens=41), Units(input=41, rerank=2)),
        ("by the request", RERANK_REQUESTS, {}, usage(total_tokens=42), Units(input=42, requests=1)),
        ("Voyage's", RERANK_VOYAGE, {"top_n": 1}, usage(total_tokens=26), Units(input=26)),
        ("more than was held for it", tokens, {}, usage(total_tokens=2_000_001), Units(input=2_000_001)),
        ("more units than were held for", RERANK_UNITS, {}, units(300), Units(rerank=300)),
    )  # fmt: skip
    made = []
    for name, model, fields, told, used in rows:
        answer = rerank_document(told, used, key="data" if model is RERANK_VOYAGE else "results")
        for shape, one in (("whole", answer), ("in pieces", in_pieces(answer, 7))):
            made.append(vector(f"{name} / {shape}", model, rank(**fields), (one,), status=200))
    return made


def unreported() -> list[Vector]:
    """The bill is that of a model with four bytes to a token and marks around each pair."""
    english = "It opens at six, and closes at nine. " * 40
    rows: tuple[tuple[str, Model, dict[str, Any], dict[str, Any], Units], ...] = (
        ("tokens", RERANK_TOKENS, {"documents": [english + "{case}"]}, {}, Units(input=300)),
        ("units", RERANK_UNITS, {"documents": [english + "{case}"] * 101}, {}, Units(rerank=2)),
        ("units that come as tokens", RERANK_UNITS, {}, usage(total_tokens=90),
         Units(input=90, rerank=1)),
        ("tokens that come as units", RERANK_TOKENS, {"documents": [english + "{case}"]}, units(1),
         Units(input=300, rerank=1)),
        ("zeros", RERANK_UNITS, {}, units(0), Units(rerank=1)),
        ("what is below zero", RERANK_UNITS, {}, units(-4), Units(rerank=1)),
    )  # fmt: skip
    return [
        vector(f"{name}, not reported", model, rank(**fields), (rerank_document(told, used),),
               expect=AtLeastBill(), status=200)
        for name, model, fields, told, used in rows
    ]  # fmt: skip


def leaving() -> list[Vector]:
    """Rankings are made, and billed, whoever waits for them."""
    made = []
    for model, told, used in (
        (RERANK_TOKENS, usage(total_tokens=50), Units(input=50)),
        (RERANK_UNITS, units(1), Units(rerank=1)),
    ):
        answer = rerank_document(told, used, "arrived")
        for how in ("reset", "close", "half-close"):
            customer = Customer(leaves="arrived", how=how, http=1)
            name = f"{model.name}, {how} before the answer"
            made.append(vector(name, model, rank(), (answer,), customer=customer))
    return made


def failing() -> list[Vector]:
    error = {"message": "invalid request: too many documents"}
    return [
        vector(f"{status} of {model.name}", model, rank(),
               (document(error, Units(), status=status),), expect=Void())
        for status in (400, 422)
        for model in (RERANK_TOKENS, RERANK_UNITS)
    ] + [
        vector("an error in a 200", RERANK_UNITS, rank(),
               (document({"error": {"message": "broken"}}, Units()),), expect=Void()),
    ]  # fmt: skip


def unpaid() -> list[Vector]:
    """What cannot be paid is not begun, however little of it is seen at once."""
    rows: tuple[tuple[str, Model, dict[str, Any]], ...] = (
        ("many short documents", RERANK_UNITS, {"documents": ["a{case}"] * 1000}),
        ("a document of many parts", RERANK_UNITS, {"documents": ["{case}" + "灯塔" * 40_000]}),
        ("a query once for each document", RERANK_TOKENS,
         {"query": "q" * 10_000, "documents": ["a{case}"] * 100}),
        ("a query of many parts", RERANK_UNITS, {"query": "q" * 100_000, "documents": ["{case}"] * 9}),
        ("parts of one token", RERANK_UNITS,
         {"max_tokens_per_doc": 1, "documents": ["{case}" + "d" * 2000]}),
        ("letters that are taken apart", RERANK_TOKENS,
         {"documents": ["{case}" + "\ufdfa" * 6000]}),
    )  # fmt: skip
    return [
        vector(name, model, rank(**fields), (rerank_document(usage(), Units()),),
               expect=Refused(402, code="insufficient_balance"), credit=POOR)
        for name, model, fields in rows
    ]  # fmt: skip


def refused() -> list[Vector]:
    rows: tuple[tuple[str, dict[str, Any], str], ...] = (
        ("a number", {"documents": ["{case}", 1]}, "documents"),
        ("nothing", {"documents": ["{case}", None]}, "documents"),
        ("a picture", {"documents": [{"image": "https://example.com/{case}.png"}]}, "documents"),
        ("another field", {"documents": [{"text": "{case}", "title": "a"}]}, "documents"),
        ("1,001 documents", {"documents": ["{case}"] * 1001}, "documents"),
        ("a picture to look for", {"query": {"image": "https://example.com/{case}.png"}}, "query"),
        ("fields to rank", {"rank_fields": ["title"]}, "rank_fields"),
        ("parts that overlap", {"overlap_tokens": 80}, "overlap_tokens"),
        ("none of the best", {"top_n": 0}, "top_n"),
        ("a field of tomorrow", {"field_of_tomorrow": 1}, "field_of_tomorrow"),
    )
    answer = rerank_document(usage(total_tokens=9), Units(input=9))
    return [
        vector(f"{name} is refused", RERANK_TOKENS, rank(**fields), (answer,),
               expect=Refused(400, names=names))
        for name, fields, names in rows
    ]  # fmt: skip
