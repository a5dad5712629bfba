"""LangChain's embeddings, unmodified. They send token ids unless they are told otherwise."""

from decimal import Decimal

import openai
import pytest
import tiktoken
from langchain_openai import OpenAIEmbeddings

TEXTS = ["one two", "three"]


@pytest.fixture
def embeddings(customer, monkeypatch):
    # tiktoken downloads the encodings of OpenAI's models, which a test must not depend on. In this
    # one each byte is a token.
    bytewise = tiktoken.Encoding(
        name="bytewise",
        pat_str=r"[\s\S]",
        mergeable_ranks={bytes([byte]): byte for byte in range(256)},
        special_tokens={},
    )
    monkeypatch.setattr(tiktoken, "encoding_for_model", lambda model: bytewise)

    def make(model: str, **more) -> OpenAIEmbeddings:
        return OpenAIEmbeddings(
            model=model, base_url=customer.base_url, api_key=customer.key, max_retries=0, **more
        )

    return make


def test_token_ids_reach_openai(customer, embeddings):
    vectors = embeddings("text-embedding-3-small").embed_documents(TEXTS)
    # $0.02 per million. As text it would be a quarter of these tokens.
    spent = sum(map(len, TEXTS)) * Decimal("0.02") / 1_000_000
    assert customer.spent() == spent
    ids = [list(text.encode()) for text in TEXTS]
    asked = customer.sdk.embeddings.create(model="text-embedding-3-small", input=ids)
    for vector, item in zip(vectors, asked.data, strict=True):
        assert vector == pytest.approx(item.embedding, abs=1e-6)
    assert customer.spent() == 2 * spent


def test_a_model_that_takes_text_only_says_what_to_set(customer, embeddings):
    with pytest.raises(openai.BadRequestError) as error:
        embeddings("text-embedding-v4").embed_documents(TEXTS)
    assert error.value.param == "input"
    assert "check_embedding_ctx_length=False" in error.value.body["message"]
    assert customer.spent() == 0

    usage = {"x-sim-usage": "prompt=5"}
    told = embeddings("text-embedding-v4", check_embedding_ctx_length=False, default_headers=usage)
    vectors = told.embed_documents(TEXTS)
    one = told.embed_query(TEXTS[1])
    assert len(vectors) == len(TEXTS) and one == pytest.approx(vectors[1], abs=1e-6)
    # Two calls at $0.07 per million.
    assert customer.spent() == 2 * 5 * Decimal("0.07") / 1_000_000
