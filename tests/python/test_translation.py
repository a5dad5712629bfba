"""The official SDKs on models whose providers speak another protocol than the SDK does."""

from decimal import Decimal

import anthropic
import openai
import pytest
from anthropic import Anthropic

# Each is sold by a provider that does not speak the SDK's protocol.
CHAT_ONLY = "deepseek-v4-flash"
RESPONSES = "gpt-5-mini"
CLAUDE = "claude-sonnet-4-5"
HELLO = [{"role": "user", "content": "Say hello."}]
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
PICTURE = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
USAGE = {"x-sim-usage": "prompt=1000,cached=400,completion=20"}


@pytest.fixture
def claude(customer) -> Anthropic:
    url = customer.base_url.removesuffix("/v1")
    return Anthropic(base_url=url, api_key=customer.key, max_retries=0)


# What 1,000 tokens of input, 400 more from a cache and 20 of output cost at $3, $0.30 and $15.
PRICE = (1000 * Decimal("3.00") + 400 * Decimal("0.30") + 20 * Decimal("15.00")) / 1_000_000


@pytest.mark.parametrize("model", [CHAT_ONLY, RESPONSES])
def test_anthropics_sdk_streams_messages(claude, model):
    with claude.messages.stream(
        model=model, max_tokens=64, system="Be short.", messages=HELLO, extra_headers=USAGE
    ) as stream:
        text = "".join(stream.text_stream)
        message = stream.get_final_message()
    assert text and text == message.content[0].text and message.stop_reason == "end_turn"
    assert message.usage.input_tokens == 600 and message.usage.cache_read_input_tokens == 400
    assert message.usage.output_tokens == 20


@pytest.mark.parametrize("model", [CHAT_ONLY, RESPONSES])
def test_anthropics_sdk_finishes_a_session_of_twenty_turns(claude, customer, model):
    tools = [{"name": "get_weather", "description": "The weather.", "input_schema": SCHEMA}]
    picture = {"type": "base64", "media_type": "image/png", "data": PICTURE}
    messages = [
        {
            "role": "user",
            "content": [
                {"type": "image", "source": picture},
                {"type": "text", "text": "How is the weather there?", "cache_control": {"type": "ephemeral"}},
            ],
        }
    ]
    for _ in range(10):
        with claude.messages.stream(model=model, max_tokens=64, messages=messages, tools=tools) as stream:
            answer = stream.get_final_message()
        call = answer.content[-1]
        assert call.type == "tool_use" and call.input == {"city": "sample"}, answer
        assert answer.stop_reason == "tool_use"
        messages.append({"role": "assistant", "content": answer.content})
        result = {"type": "tool_result", "tool_use_id": call.id, "content": [{"type": "text", "text": "Rain"}]}
        messages.append({"role": "user", "content": [result]})
        answer = claude.messages.create(model=model, max_tokens=64, messages=messages, tools=tools)
        assert answer.content[0].text and answer.stop_reason == "end_turn"
        messages.append({"role": "assistant", "content": answer.content})
        messages.append({"role": "user", "content": "And tomorrow?"})
    assert customer.spent() > 0


@pytest.mark.parametrize("model", [CHAT_ONLY, RESPONSES])
def test_anthropics_sdk_raises_its_own_errors(claude, model):
    with pytest.raises(anthropic.BadRequestError) as refused:
        claude.messages.create(
            model=model, max_tokens=64, messages=HELLO, extra_headers={"x-sim-fault": "status=400"}
        )
    assert refused.value.body["error"]["type"] == "invalid_request_error"
    with pytest.raises(anthropic.APIError):
        with claude.messages.stream(
            model=model, max_tokens=64, messages=HELLO, extra_headers={"x-sim-fault": "cut-after=3"}
        ) as stream:
            "".join(stream.text_stream)
    assert claude.messages.count_tokens(model=model, messages=HELLO).input_tokens > 0


def test_openais_sdk_chats_with_claude(customer):
    asked = {"model": CLAUDE, "messages": HELLO, "extra_headers": USAGE}
    answer = customer.sdk.chat.completions.create(**asked)
    assert answer.choices[0].message.content and answer.choices[0].finish_reason == "stop"
    assert answer.usage.prompt_tokens == 1400 and answer.usage.completion_tokens == 20
    assert answer.usage.prompt_tokens_details.cached_tokens == 400
    assert customer.spent() == PRICE
    chunks = list(
        customer.sdk.chat.completions.create(**asked, stream=True, stream_options={"include_usage": True})
    )
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == answer.choices[0].message.content
    assert chunks[-1].usage.prompt_tokens == 1400
    assert customer.spent() == 2 * PRICE


def test_openais_sdk_calls_tools_of_claude(customer):
    tools = [{"type": "function", "function": {"name": "get_weather", "parameters": SCHEMA}}]
    messages = list(HELLO)
    for _ in range(10):
        with customer.sdk.chat.completions.stream(model=CLAUDE, messages=messages, tools=tools) as stream:
            for _event in stream:
                pass
            answer = stream.get_final_completion().choices[0]
        assert answer.finish_reason == "tool_calls"
        call = answer.message.tool_calls[0]
        assert call.function.arguments.replace(" ", "") == '{"city":"sample"}'
        messages.append(answer.message.model_dump(exclude_none=True, exclude={"parsed"}))
        messages[-1]["tool_calls"] = [call.model_dump(include={"id", "type", "function"})]
        messages[-1]["tool_calls"][0]["function"].pop("parsed_arguments", None)
        messages.append({"role": "tool", "tool_call_id": call.id, "content": "Rain"})
        told = customer.sdk.chat.completions.create(model=CLAUDE, messages=messages, tools=tools)
        assert told.choices[0].message.content
        messages.append({"role": "assistant", "content": told.choices[0].message.content})
        messages.append({"role": "user", "content": "And tomorrow?"})


@pytest.mark.parametrize("model", [CLAUDE, CHAT_ONLY])
def test_openais_sdk_gets_responses_of_others(customer, model):
    with customer.sdk.responses.stream(
        model=model, input="Say hello.", instructions="Be short.", extra_headers=USAGE
    ) as stream:
        deltas = "".join(event.delta for event in stream if event.type == "response.output_text.delta")
        response = stream.get_final_response()
    assert deltas and response.output_text == deltas and response.status == "completed"
    assert response.usage.input_tokens == (1400 if model == CLAUDE else 1000)
    assert response.usage.input_tokens_details.cached_tokens == 400
    assert response.usage.output_tokens == 20
    tools = [{"type": "function", "name": "get_weather", "parameters": SCHEMA, "strict": False}]
    items = [{"role": "user", "content": "How is the weather?"}]
    for _ in range(10):
        called = customer.sdk.responses.create(model=model, input=items, tools=tools, store=False)
        call = next(item for item in called.output if item.type == "function_call")
        items += [item.model_dump(exclude_none=True) for item in called.output]
        items.append({"type": "function_call_output", "call_id": call.call_id, "output": "Rain"})
        told = customer.sdk.responses.create(model=model, input=items, tools=tools, store=False)
        assert told.output_text
        items += [item.model_dump(exclude_none=True) for item in told.output]
        items.append({"role": "user", "content": "And tomorrow?"})


def test_openais_sdk_raises_its_own_errors(customer):
    with pytest.raises(openai.BadRequestError) as refused:
        customer.sdk.chat.completions.create(
            model=CLAUDE, messages=HELLO, extra_headers={"x-sim-fault": "status=400"}
        )
    assert refused.value.body["message"]
    with pytest.raises(openai.BadRequestError) as many:
        customer.sdk.chat.completions.create(model=CLAUDE, messages=HELLO, n=2)
    assert many.value.param == "n"
    with pytest.raises(openai.BadRequestError) as stored:
        customer.sdk.responses.create(model=CLAUDE, input="hi", previous_response_id="resp_1")
    assert stored.value.param == "previous_response_id"
    seeded = customer.sdk.chat.completions.with_raw_response.create(model=CLAUDE, messages=HELLO, seed=7)
    assert seeded.headers["x-tollgate-left-out"] == "seed"
