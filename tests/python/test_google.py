"""Google's own SDK on Gemini's models and on those of others, and other SDKs on Gemini's."""

from decimal import Decimal

import pytest
from anthropic import Anthropic
from google import genai
from google.genai import errors, types

GEMINI = "gemini-3.6-flash"
CHAT_ONLY = "deepseek-v4-flash"
RESPONSES = "gpt-5-mini"
CLAUDE = "claude-sonnet-4-5"
MODELS = [GEMINI, CHAT_ONLY, RESPONSES, CLAUDE]
SCHEMA = {"type": "OBJECT", "properties": {"city": {"type": "STRING"}}, "required": ["city"]}
TOOL = types.Tool(
    function_declarations=[
        types.FunctionDeclaration(name="get_weather", description="The weather.", parameters=SCHEMA)
    ]
)
USAGE = {"x-sim-usage": "prompt=1000,cached=400,completion=20,reasoning=7"}


@pytest.fixture
def google(customer) -> genai.Client:
    url = customer.base_url.removesuffix("/v1")
    return genai.Client(api_key=customer.key, http_options=types.HttpOptions(base_url=url))


def config(headers: dict | None = None, **fields: object) -> types.GenerateContentConfig:
    return types.GenerateContentConfig(http_options=types.HttpOptions(headers=headers or {}), **fields)


@pytest.mark.parametrize("model", MODELS)
def test_googles_sdk_generates_content(google, model):
    asked = {"model": model, "contents": "Say hello.", "config": config(USAGE, system_instruction="Be short.")}
    answer = google.models.generate_content(**asked)
    chunks = list(google.models.generate_content_stream(**asked))
    assert answer.text and answer.text == "".join(chunk.text or "" for chunk in chunks)
    for told in [answer, chunks[-1]]:
        assert told.candidates[0].finish_reason == types.FinishReason.STOP
        usage = told.usage_metadata
        # Anthropic's input leaves out what a cache has read, and knows nothing of thoughts.
        assert usage.prompt_token_count == (1400 if model == CLAUDE else 1000)
        assert usage.cached_content_token_count == 400
        assert usage.candidates_token_count + (usage.thoughts_token_count or 0) == 20
        assert usage.thoughts_token_count == (None if model == CLAUDE else 7)


def test_what_googles_sdk_reads_is_what_is_charged(google, customer):
    google.models.generate_content(model=GEMINI, contents="Say hello.", config=config(USAGE))
    price = 600 * Decimal("0.75") + 400 * Decimal("0.075") + 20 * Decimal("3.75")
    assert customer.spent() == price / 1_000_000


@pytest.mark.parametrize("model", MODELS)
def test_googles_sdk_finishes_a_session_of_twenty_turns(google, customer, model):
    chat = google.chats.create(model=model, config=config(tools=[TOOL]))
    for turn in range(10):
        if turn % 2:
            parts = [p for chunk in chat.send_message_stream("How is it there?") for p in chunk.parts or []]
            calls = [part.function_call for part in parts if part.function_call]
        else:
            calls = chat.send_message("How is it there?").function_calls
        assert [(call.name, call.args) for call in calls] == [("get_weather", {"city": "sample"})]
        result = types.Part.from_function_response(name="get_weather", response={"result": "Rain"})
        if turn % 2:
            told = "".join(chunk.text or "" for chunk in chat.send_message_stream(result))
        else:
            told = chat.send_message(result).text
        assert told
    assert customer.spent() > 0


@pytest.mark.parametrize("model", MODELS)
def test_googles_sdk_shows_thoughts_and_structured_answers(google, model):
    thinking = types.ThinkingConfig(include_thoughts=True)
    answer = google.models.generate_content(
        model=model, contents="Say hello.", config=config(thinking_config=thinking, max_output_tokens=4096)
    )
    assert answer.text
    thoughts = [part.text for part in answer.candidates[0].content.parts if part.thought]
    assert bool(thoughts) == (model == GEMINI), "the simulator's other models show none"
    structured = google.models.generate_content(
        model=model,
        contents="Where?",
        config=config(response_mime_type="application/json", response_schema=SCHEMA),
    )
    # The simulated Claude answers in words, whatever the schema.
    assert model == CLAUDE or structured.parsed == {"city": "sample"}


@pytest.mark.parametrize("model", [GEMINI, CHAT_ONLY])
def test_googles_sdk_raises_its_own_errors(google, model):
    with pytest.raises(errors.ClientError) as refused:
        google.models.generate_content(
            model=model, contents="hi", config=config({"x-sim-fault": "status=400"})
        )
    assert refused.value.code == 400 and refused.value.status == "INVALID_ARGUMENT"
    with pytest.raises(errors.APIError):
        asked = {"model": model, "contents": "hi", "config": config({"x-sim-fault": "cut-after=3"})}
        for _ in google.models.generate_content_stream(**asked):
            pass
    with pytest.raises(errors.ClientError) as unknown:
        google.models.generate_content(model="none", contents="hi")
    assert unknown.value.code == 404 and unknown.value.status == "NOT_FOUND"


def test_googles_sdk_lists_models_and_counts_tokens(google, customer):
    listed = {model.name: model for model in google.models.list()}
    for model in MODELS:
        assert "generateContent" in listed[f"models/{model}"].supported_actions
        assert google.models.get(model=model).output_token_limit > 0
        assert google.models.count_tokens(model=model, contents="hi there").total_tokens > 0
    assert customer.spent() == 0


def test_anthropics_sdk_thinks_with_gemini(customer):
    url = customer.base_url.removesuffix("/v1")
    claude = Anthropic(base_url=url, api_key=customer.key, max_retries=0)
    tools = [{"name": "get_weather", "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}}}]
    messages = [{"role": "user", "content": "How is the weather?"}]
    thinking = {"type": "enabled", "budget_tokens": 2048}
    for _ in range(10):
        asked = {"model": GEMINI, "max_tokens": 4096, "messages": messages, "tools": tools, "thinking": thinking}
        with claude.messages.stream(**asked) as stream:
            answer = stream.get_final_message()
        kinds = [block.type for block in answer.content]
        assert kinds == ["thinking", "redacted_thinking", "tool_use"], answer
        call = answer.content[-1]
        messages.append({"role": "assistant", "content": answer.content})
        result = {"type": "tool_result", "tool_use_id": call.id, "content": "Rain"}
        messages.append({"role": "user", "content": [result]})
        told = claude.messages.create(**asked)
        assert told.content[-1].text and told.stop_reason == "end_turn"
        messages.append({"role": "assistant", "content": told.content})
        messages.append({"role": "user", "content": "And tomorrow?"})
