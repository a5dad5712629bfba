"""Rankings with the client of the official OpenAI SDK, which has no method of its own for them."""

from decimal import Decimal

import openai
import pytest

DOCUMENTS = ["Closed on Sundays.", {"text": "It opens at six."}, "From six to nine."]


def rank(customer, **fields):
    body = {"model": "rerank-2.5", "query": "opens at six", "documents": DOCUMENTS} | fields
    return customer.sdk.post("/rerank", body=body, cast_to=object)


def test_documents_come_in_the_order_in_which_they_answer(customer):
    answer = rank(customer, top_n=2, return_documents=True)
    assert [result["index"] for result in answer["results"]] == [1, 2]
    assert answer["results"][0]["document"] == {"text": "It opens at six."}
    assert answer["results"][0]["relevance_score"] > answer["results"][1]["relevance_score"]
    # The query counts once for each document, at $0.05 a million.
    tokens = answer["usage"]["total_tokens"]
    assert tokens == 3 * 4 + 5 + 5 + 5
    assert customer.spent() == tokens * Decimal("0.05") / 1_000_000


def test_what_is_not_bounded_is_refused_by_its_name(customer):
    for fields, param in (
        ({"documents": ["a", 1]}, "documents"),
        ({"documents": [{"image": "https://example.com/a.png"}]}, "documents"),
        ({"top_n": 0}, "top_n"),
        ({"rank_fields": ["title"]}, "rank_fields"),
    ):
        with pytest.raises(openai.BadRequestError) as refused:
            rank(customer, **fields)
        assert refused.value.param == param
    assert customer.spent() == 0
