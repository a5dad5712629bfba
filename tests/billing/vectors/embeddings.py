"""Embeddings of OpenAI, Voyage and Gemini: reported, not reported, and cut in calls."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ..arithmetic import Units
from ..catalogue import EMBED, EMBED_CHEAP, EMBED_SPLIT, EMBED_VOYAGE, Model
from ..customer import Customer, Reply
from ..dialects import document, embeddings_document, in_pieces
from ..script import Answer, Case, Script
from ..vector import AtLeastBill, Covered, Estimate, Exact, Expectation, Vector, Void
from .asking import EMBEDDINGS, ask

TEXT = "The lighthouse stands on the rock, {case}."


def embed(**fields: Any) -> dict[str, Any]:
    return {"input": TEXT} | fields


def usage(tokens: int) -> dict[str, Any]:
    return {"prompt_tokens": tokens, "total_tokens": tokens}


def vectors() -> list[Vector]:
    return reported() + unreported() + split() + leaving() + translated()


def vector(
    name: str, model: Model, body: dict[str, Any], answers: tuple[Answer, ...], **more: Any
) -> Vector:
    expect: Expectation = more.pop("expect", Exact())
    request = ask(EMBEDDINGS, model, body)
    return Vector(f"embeddings / {name}", model, request, Script(answers), expect, **more)


def reported() -> list[Vector]:
    rows: tuple[tuple[str, Model, dict[str, Any], dict[str, Any], int, int], ...] = (
        ("prompt_tokens", EMBED, {}, usage(12), 12, 1),
        ("prompt_tokens without a total", EMBED, {}, {"prompt_tokens": 13}, 13, 1),
        ("total_tokens alone", EMBED, {}, {"total_tokens": 14}, 14, 1),
        ("an array", EMBED, {"input": [TEXT, "b", "c"]}, usage(21), 21, 3),
        ("base64", EMBED, {"encoding_format": "base64"}, usage(15), 15, 1),
        ("dimensions", EMBED, {"dimensions": 256}, usage(16), 16, 1),
        ("token ids", EMBED, {"input": [6151, 11, 42], "user": "{case}"}, usage(3), 3, 1),
        ("arrays of token ids", EMBED, {"input": [[6151], [11, 42]], "user": "{case}"}, usage(3), 3, 2),
        ("what a small tokenizer adds", EMBED,
         {"input": ["a"] * 900, "user": "{case}"}, usage(8100), 8100, 900),
        ("Voyage's total_tokens", EMBED_VOYAGE, {}, {"total_tokens": 17}, 17, 1),
        ("Voyage's query", EMBED_VOYAGE, {"input_type": "query"}, {"total_tokens": 31}, 31, 1),
        ("Voyage's dimensions", EMBED_VOYAGE, {"dimensions": 512}, {"total_tokens": 18}, 18, 1),
        ("more than the context of the model", EMBED, {}, usage(100_001), 100_001, 1),
    )  # fmt: skip
    made = []
    for name, model, fields, told, tokens, count in rows:
        answer = embeddings_document(told, Units(input=tokens), count=count)
        for shape, one in (("whole", answer), ("in pieces", in_pieces(answer, 9))):
            made.append(vector(f"{name} / {shape}", model, embed(**fields), (one,), status=200))
    for tokens in (1, 3, 4, 3333, 10_000):
        answer = embeddings_document(usage(tokens), Units(input=tokens))
        name = f"{tokens} tokens at 0.3 nano-dollars are rounded up"
        made.append(vector(name, EMBED_CHEAP, embed(), (answer,), status=200))
    return made


def unreported() -> list[Vector]:
    """Gemini tells nothing. What a text can have is bounded by its bytes."""
    rows = (
        ("prose", TEXT, 12),
        ("dense text", "{case} 0x9f3b7ac1 18,446,744,073,709,551,615", 34),
        ("another script", "{case} 灯塔矗立在岩石上,守望着每一艘船", 24),
    )
    return [
        vector(
            f"{name} without a usage",
            EMBED,
            embed(input=text),
            (embeddings_document(told, Units(input=tokens)),),
            expect=AtLeastBill(),
            status=200,
        )
        for name, text, tokens in rows
        for told in (None,)
    ]


def split() -> list[Vector]:
    """Ten inputs a call: several calls, one charge. They are made side by side, so that every answer
    has to fit every call."""
    refused = document(
        {"error": {"message": "too long", "type": "x", "param": None, "code": None}},
        Units(),
        status=400,
    )
    broken = document({"error": {"message": "broken"}}, Units(), status=504)
    failed = document({"error": {"message": "failed"}}, Units(), status=500)
    same = tuple(embeddings_document(usage(70), Units(input=70), count=10) for _ in range(2))
    even = {"input": [f"input {number} of {{case}}" for number in range(20)]}
    thirty = {"input": [f"input {number} of {{case}}" for number in range(30)]}
    ten = embeddings_document(usage(70), Units(input=70), count=10)
    return [
        vector("two calls", EMBED_SPLIT, even, same, status=200, calls=2),
        vector("three calls", EMBED_SPLIT, thirty, (ten, ten, ten), status=200, calls=3),
        vector("a call that fits", EMBED_SPLIT, {"input": even["input"][:10]}, (same[0],),
               status=200, calls=1),
        vector("the last call of three is refused", EMBED_SPLIT, thirty, (ten, ten, refused),
               expect=Covered()),
        vector("the first call of three is refused", EMBED_SPLIT, thirty, (refused, ten, ten),
               expect=Covered()),
        # Nobody gets a vector: what the others cost is the operator's.
        vector("the last call of three fails", EMBED_SPLIT, thirty, (ten, ten, failed),
               expect=Void(), status=502),
        vector("the first call of three fails", EMBED_SPLIT, thirty, (failed, ten, ten),
               expect=Void(), status=502),
        vector("what became of the last call of three, nobody knows", EMBED_SPLIT, thirty,
               (ten, ten, broken), expect=Void()),
        vector("the last call reports nothing", EMBED_SPLIT, even,
               (same[0], embeddings_document(None, Units(input=70), count=10)),
               expect=Estimate("3")),
    ]  # fmt: skip


def leaving() -> list[Vector]:
    """Embeddings are made, and billed, whoever waits for them."""
    gone = {
        how: Customer(leaves="arrived", how=how, http=http)
        for how, http in (("reset", 1), ("close", 1), ("half-close", 1))
    }
    gone["reset over HTTP/2"] = Customer(leaves="arrived", http=2)
    answer = embeddings_document(usage(40), Units(input=40), "arrived", count=1)
    ten = embeddings_document(usage(70), Units(input=70), "arrived", count=10)
    twenty = {"input": [f"input {number} of {{case}}" for number in range(20)]}
    made = [
        vector(f"{how} before the answer", model, embed(), (answer,), customer=customer)
        for how, customer in gone.items()
        for model in (EMBED,)
    ]
    made += [
        vector("Voyage, reset before the answer", EMBED_VOYAGE, embed(),
               (embeddings_document({"total_tokens": 41}, Units(input=41), "arrived"),),
               customer=gone["reset"]),
        vector("reset before the answers of two calls", EMBED_SPLIT, twenty, (ten, ten),
               customer=gone["reset"], expect=Covered()),
        vector("a slow reader", EMBED,
               embed(), (replace(answer, before=()),), customer=Customer(bite=16, rests_s=0.01)),
    ]  # fmt: skip
    return made


def translated() -> list[Vector]:
    """A model at upstreams of two protocols: each is asked in its own words."""
    model = EMBED.own("embed-anywhere", upstreams=("openai", "voyage"))
    busy = document({"error": {"message": "busy"}}, Units(), status=429)
    used = Units(input=19)
    good = embeddings_document({"total_tokens": 19}, used)

    def in_voyages_words(case: Case, _: Reply) -> list[str]:
        bodies = [received.body for received in case.received]
        words = (b'"dimensions"', b'"output_dimension"')
        wrong = [body for body, word in zip(bodies, words, strict=True) if word not in body]
        return [f"not in the upstream's words: {body!r}" for body in wrong]

    request = ask(EMBEDDINGS, model, embed(dimensions=256))
    script = Script((busy, good))
    return [
        Vector(
            "embeddings / two protocols, two bodies",
            model,
            request,
            script,
            Exact(),
            status=200,
            calls=2,
            checks=(in_voyages_words,),
        )
    ]
