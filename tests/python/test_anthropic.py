"""The official Anthropic SDK, unmodified, against a running gateway on simulated upstreams."""

import anthropic
import pytest
from anthropic import Anthropic

MODEL = "claude-sonnet-4-5"
HELLO = [{"role": "user", "content": "Say hello."}]
WEATHER = {
    "name": "get_weather",
    "description": "The weather in a city.",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}


@pytest.fixture
def claude(base_url: str, api_key: str) -> Anthropic:
    return Anthropic(base_url=base_url, api_key=api_key, max_retries=0)


def test_message(claude):
    message = claude.messages.create(model=MODEL, max_tokens=64, messages=HELLO)
    assert message.content[0].text and message.stop_reason == "end_turn"
    assert message.usage.input_tokens > 0 and message.usage.output_tokens > 0


def test_bearer_token(base_url, api_key):
    client = Anthropic(base_url=base_url, auth_token=api_key, api_key=None, max_retries=0)
    assert client.messages.create(model=MODEL, max_tokens=64, messages=HELLO).content[0].text


def test_stream(claude):
    with claude.messages.stream(model=MODEL, max_tokens=64, messages=HELLO) as stream:
        text = "".join(stream.text_stream)
        message = stream.get_final_message()
    assert text == message.content[0].text and message.usage.output_tokens > 0


def test_tool(claude):
    answer = claude.messages.create(model=MODEL, max_tokens=64, messages=HELLO, tools=[WEATHER])
    call = answer.content[0]
    assert call.name == "get_weather" and call.input["city"] and answer.stop_reason == "tool_use"
    told = [
        *HELLO,
        {"role": "assistant", "content": answer.content},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call.id, "content": "Sunny"}]},
    ]
    assert claude.messages.create(model=MODEL, max_tokens=64, messages=told, tools=[WEATHER]).content[0].text


def test_models(claude):
    models = {model.id: model for model in claude.models.list()}
    assert models[MODEL].type == "model" and models[MODEL].max_tokens == 64000
    assert claude.models.retrieve(MODEL).id == MODEL


def test_errors_are_typed(claude, base_url, admin):
    with pytest.raises(anthropic.NotFoundError) as missing:
        claude.messages.create(model="claude-none", max_tokens=64, messages=HELLO)
    assert missing.value.body["error"]["type"] == "not_found_error"
    assert missing.value.request_id.startswith("req_"), "`request-id` reaches the SDK"
    with pytest.raises(anthropic.AuthenticationError):
        Anthropic(base_url=base_url, api_key="sk-wrong", max_retries=0).messages.create(
            model=MODEL, max_tokens=64, messages=HELLO
        )
    _, poor = admin.customer(None)
    with pytest.raises(anthropic.APIStatusError) as unpaid:
        Anthropic(base_url=base_url, api_key=poor, max_retries=0).messages.create(
            model=MODEL, max_tokens=64, messages=HELLO
        )
    assert unpaid.value.status_code == 402
    assert unpaid.value.body["error"]["type"] == "billing_error"
    with pytest.raises(anthropic.BadRequestError):
        claude.messages.create(model=MODEL, max_tokens=64, messages=[])


def test_upstream_errors_come_as_they_are(claude):
    with pytest.raises(anthropic.APIStatusError) as busy:
        claude.messages.create(
            model=MODEL, max_tokens=64, messages=HELLO, extra_headers={"x-sim-fault": "status=529"}
        )
    assert busy.value.status_code == 529
    assert busy.value.body["error"]["type"] == "overloaded_error"


def test_a_cut_stream_raises(claude):
    with pytest.raises(anthropic.APIError):
        with claude.messages.stream(
            model=MODEL, max_tokens=64, messages=HELLO, extra_headers={"x-sim-fault": "cut-after=3"}
        ) as stream:
            "".join(stream.text_stream)


def test_tokens_are_counted_without_money(claude, base_url, admin):
    assert claude.messages.count_tokens(model=MODEL, messages=HELLO).input_tokens > 0
    account, poor = admin.customer(None)
    client = Anthropic(base_url=base_url, api_key=poor, max_retries=0)
    assert client.messages.count_tokens(model=MODEL, messages=HELLO).input_tokens > 0
    unknown = {"x-sim-fault": "status=404"}
    counted = client.messages.count_tokens(model=MODEL, messages=HELLO, extra_headers=unknown)
    assert 5 < counted.input_tokens < 50, "estimated where the upstream cannot count"
    assert admin.balance(account)["spent"] == "0.00"
    assert admin.call("GET", f"/admin/v1/accounts/{account}/entries")["data"] == []
