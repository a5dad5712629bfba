"""Embeddings of every family through the official OpenAI SDK, and what they cost."""

from decimal import Decimal

import openai
import pytest


def test_more_inputs_than_the_upstream_takes(customer):
    # DashScope takes ten at a time.
    inputs = [f"input number {number}" for number in range(23)]

    def vectors(**more) -> list[list[float]]:
        answer = customer.sdk.embeddings.create(model="text-embedding-v4", dimensions=64, **more)
        assert [item.index for item in answer.data] == list(range(len(answer.data)))
        return [item.embedding for item in answer.data]

    # Three calls of 7 tokens each, at $0.07 per million.
    usage = {"x-sim-usage": "prompt=7"}
    together = vectors(input=inputs, extra_headers=usage)
    assert customer.spent() == 3 * 7 * Decimal("0.07") / 1_000_000
    assert len(together) == 23 and all(len(vector) == 64 for vector in together)
    for number in (0, 9, 10, 19, 20, 22):
        [alone] = vectors(input=inputs[number])
        assert together[number] == pytest.approx(alone, abs=1e-6), f"input {number} has its place"
    floats = vectors(input=inputs, encoding_format="float")
    for left, right in zip(together, floats, strict=True):
        assert left == pytest.approx(right, abs=1e-6)


def test_usage_that_the_upstream_does_not_report(customer):
    inputs = ["a sentence of some length, " * 20, "and another one, which is longer, " * 40]
    answer = customer.sdk.embeddings.create(model="gmn-embedding-001", input=inputs)
    assert [item.index for item in answer.data] == [0, 1]
    assert all(isinstance(number, float) for item in answer.data for number in item.embedding)
    # $0.15 per million. English has four to five characters to a token, and estimates err upward.
    tokens = customer.spent() * 1_000_000 / Decimal("0.15")
    assert sum(map(len, inputs)) / 5 < tokens < sum(map(len, inputs)) / 3


def test_vectors_of_the_size_that_was_asked_for(customer):
    # What is reported can be no more than the input has bytes.
    usage = {"x-sim-usage": "prompt=1000"}
    for dimensions in (256, 512, 1024, 2048):
        answer = customer.sdk.embeddings.create(
            model="vyg-4", input="one " * 300, dimensions=dimensions, extra_headers=usage
        )
        assert len(answer.data[0].embedding) == dimensions
        assert answer.usage.prompt_tokens == answer.usage.total_tokens == 1000
    # $0.06 per million.
    spent = 4 * 1000 * Decimal("0.06") / 1_000_000
    assert customer.spent() == spent
    with pytest.raises(openai.BadRequestError) as error:
        customer.sdk.embeddings.create(model="vyg-4", input="one", dimensions=300)
    assert error.value.param == "dimensions"
    assert customer.spent() == spent
