"""LangChain's chat models, unmodified, on models whose providers speak another protocol than they do."""

import pytest
from langchain_anthropic import ChatAnthropic
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_openai import ChatOpenAI

from test_translation import CHAT_ONLY, CLAUDE, PICTURE, RESPONSES, SCHEMA

REASONING = {"effort": "low", "summary": "auto"}
WEATHER = {"name": "get_weather", "description": "The weather.", "parameters": SCHEMA}


def anthropic(customer, model):
    url = customer.base_url.removesuffix("/v1")
    thinking = {"type": "enabled", "budget_tokens": 1024}
    return ChatAnthropic(
        model=model, base_url=url, api_key=customer.key, max_retries=0, max_tokens=2048, thinking=thinking
    )


def openai(customer, model, **more):
    return ChatOpenAI(
        model=model, base_url=customer.base_url, api_key=customer.key, max_retries=0, stream_usage=True, **more
    )


CELLS = {
    "messages over chat": lambda customer: anthropic(customer, CHAT_ONLY),
    "messages over responses": lambda customer: anthropic(customer, RESPONSES),
    "chat over messages": lambda customer: openai(customer, CLAUDE),
    "chat over responses": lambda customer: openai(customer, RESPONSES, use_responses_api=False),
    "responses over messages": lambda customer: openai(
        customer, CLAUDE, use_responses_api=True, reasoning=REASONING
    ),
    "responses over chat": lambda customer: openai(
        customer, CHAT_ONLY, use_responses_api=True, reasoning=REASONING
    ),
}


@pytest.mark.parametrize("cell", CELLS)
def test_langchain_finishes_a_session_of_twenty_turns(customer, cell):
    model = CELLS[cell](customer).bind_tools([WEATHER])
    picture = {"type": "image", "base64": PICTURE, "mime_type": "image/png"}
    messages = [HumanMessage([picture, {"type": "text", "text": "How is the weather there?"}])]
    for _ in range(10):
        answer = None
        for chunk in model.stream(messages):
            answer = chunk if answer is None else answer + chunk
        [call] = answer.tool_calls
        assert call["name"] == "get_weather" and call["args"] == {"city": "sample"}, answer
        assert not answer.invalid_tool_calls
        assert answer.usage_metadata["input_tokens"] > 0 and answer.usage_metadata["output_tokens"] > 0
        messages += [answer, ToolMessage("Rain", tool_call_id=call["id"])]
        told = model.invoke(messages)
        assert told.text and not told.tool_calls
        messages += [told, HumanMessage("And tomorrow?")]
    assert customer.spent() > 0
