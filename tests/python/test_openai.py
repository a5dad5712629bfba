"""The official OpenAI SDK, unmodified, against a running gateway on simulated upstreams."""

import time
from decimal import Decimal

import openai
import pytest
from openai import OpenAI

MODEL = "gpt-4o-mini"
EMBEDDING = "text-embedding-3-small"
HELLO = [{"role": "user", "content": "Say hello."}]
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather in a city.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}


def with_key(base_url: str, key: str) -> OpenAI:
    return OpenAI(base_url=f"{base_url}/v1", api_key=key, max_retries=0)


def test_models_are_listed_and_retrieved(client):
    ids = [model.id for model in client.models.list()]
    assert MODEL in ids and EMBEDDING in ids, ids
    assert len(ids) == len(set(ids)), "an id is listed twice"
    assert client.models.retrieve(MODEL).id == MODEL
    with pytest.raises(openai.NotFoundError) as error:
        client.models.retrieve("no-such-model")
    assert error.value.code == "model_not_found"


def test_chat(client):
    answer = client.chat.completions.create(model=MODEL, messages=HELLO)
    assert answer.choices[0].message.content
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens
    assert answer._request_id.startswith("req_"), "x-request-id reaches the SDK"


def test_stream_without_usage(client):
    chunks = list(client.chat.completions.create(model=MODEL, messages=HELLO, stream=True))
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    assert all(chunk.choices for chunk in chunks), "the usage chunk was not asked for"
    assert chunks[-1].choices[0].finish_reason == "stop"


def test_stream_with_usage(client):
    stream = client.chat.completions.create(
        model=MODEL, messages=HELLO, stream=True, stream_options={"include_usage": True}
    )
    chunks = list(stream)
    assert chunks[-1].choices == [] and chunks[-1].usage.completion_tokens > 0


def test_tools(client):
    answer = client.chat.completions.create(
        model=MODEL, messages=HELLO, tools=[WEATHER], tool_choice="required"
    )
    call = answer.choices[0].message.tool_calls[0]
    assert call.function.name == "get_weather"
    stream = client.chat.completions.create(
        model=MODEL, messages=HELLO, tools=[WEATHER], tool_choice="required", stream=True
    )
    deltas = [d for chunk in stream for d in chunk.choices[0].delta.tool_calls or []]
    assert deltas[0].function.name == "get_weather"


def test_embeddings_in_both_formats(client):
    # Without a format the SDK asks for base64 and decodes it.
    default = client.embeddings.create(model=EMBEDDING, input=["one", "two"])
    floats = client.embeddings.create(model=EMBEDDING, input=["one", "two"], encoding_format="float")
    assert [item.index for item in default.data] == [0, 1]
    for left, right in zip(default.data, floats.data):
        assert len(left.embedding) == len(right.embedding) > 0
        assert left.embedding == pytest.approx(right.embedding, rel=1e-6)
    tokens = client.embeddings.create(model=EMBEDDING, input=[[6151, 12]])
    assert len(tokens.data) == 1 and tokens.usage.prompt_tokens > 0


def test_errors_are_typed_exceptions(client, base_url, admin):
    def code(error) -> tuple[str, str]:
        body = error.value.response.json()["error"]
        assert set(body) == {"message", "type", "param", "code"}, body
        assert error.value.request_id.startswith("req_")
        return error.value.code, error.value.response.headers.get("x-should-retry")

    with pytest.raises(openai.AuthenticationError) as error:
        with_key(base_url, "sk-wrong").chat.completions.create(model=MODEL, messages=HELLO)
    assert code(error) == ("unauthorized", "false")

    with pytest.raises(openai.NotFoundError) as error:
        client.chat.completions.create(model="no-such-model", messages=HELLO)
    assert code(error) == ("model_not_found", "false")

    with pytest.raises(openai.BadRequestError) as error:
        client.chat.completions.create(model=MODEL, messages=HELLO, temperature=3)
    assert code(error)[0] == "invalid_request_error" and error.value.param == "temperature"

    _, limited = admin.customer("1.00", models=[EMBEDDING])
    with pytest.raises(openai.PermissionDeniedError) as error:
        with_key(base_url, limited).chat.completions.create(model=MODEL, messages=HELLO)
    assert code(error) == ("permission_denied", "false")
    assert [model.id for model in with_key(base_url, limited).models.list()] == [EMBEDDING]

    _, poor = admin.customer(None)
    with pytest.raises(openai.APIStatusError) as error:
        with_key(base_url, poor).chat.completions.create(model=MODEL, messages=HELLO)
    assert error.value.status_code == 402 and code(error) == ("insufficient_balance", "false")


def test_a_cut_stream_raises(client):
    stream = client.chat.completions.create(
        model=MODEL, messages=HELLO, stream=True, extra_headers={"x-sim-fault": "cut-after=3"}
    )
    with pytest.raises(openai.APIError):
        list(stream)


def test_the_balance_is_right_to_the_nano_dollar(base_url, admin):
    account, key = admin.customer("1.00")
    mine = with_key(base_url, key)
    # $0.15 and $0.60 per million tokens.
    spent = Decimal(0)
    for stream in (False, True):
        usage = {"x-sim-usage": "prompt=1234,completion=56"}
        answer = mine.chat.completions.create(
            model=MODEL, messages=HELLO, stream=stream, extra_headers=usage
        )
        if stream:
            list(answer)
        spent += (1234 * Decimal("0.15") + 56 * Decimal("0.60")) / 1_000_000
    deadline = time.time() + 5
    while (balance := admin.balance(account))["held"] != "0.00" and time.time() < deadline:
        time.sleep(0.01)
    assert Decimal(balance["spent"]) == spent, balance
    assert Decimal(balance["available"]) == Decimal("1.00") - spent, balance


def test_response(client):
    answer = client.responses.create(model=MODEL, input="Say hello.")
    assert answer.output_text and answer.status == "completed"
    assert answer.usage.total_tokens == answer.usage.input_tokens + answer.usage.output_tokens


def test_response_stream(client):
    events = list(client.responses.create(model=MODEL, input="Say hello.", stream=True))
    text = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    assert events[-1].type == "response.completed" and events[-1].response.output_text == text


def test_a_cut_response_stream_says_so(client):
    cut = {"x-sim-fault": "cut-after=3"}
    stream = client.responses.create(model=MODEL, input="Hi.", stream=True, extra_headers=cut)
    with pytest.raises(openai.APIError):
        events = list(stream)
        assert events[-1].type != "response.completed", events[-1]


def test_voyage_embeddings(client):
    default = client.embeddings.create(model="vyg-4", input=["one", "two"], dimensions=256)
    floats = client.embeddings.create(
        model="vyg-4", input=["one", "two"], dimensions=256, encoding_format="float"
    )
    assert [len(item.embedding) for item in default.data] == [256, 256]
    assert default.data[1].embedding == pytest.approx(floats.data[1].embedding, abs=1e-6)
    assert default.usage.prompt_tokens == default.usage.total_tokens > 0
    with pytest.raises(openai.BadRequestError) as error:
        client.embeddings.create(model="vyg-4", input=[[1, 2, 3]])
    assert error.value.param == "input"
