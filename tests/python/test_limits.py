"""Limits as the official SDKs meet them: what they do with a 429 and its headers."""

import threading
import time

import anthropic
import openai
import pytest
from openai import OpenAI

MODEL = "gpt-4o-mini"
HI = [{"role": "user", "content": "hi"}]


def limited(base_url, admin, **limits) -> str:
    _, key = admin.customer("10.00", limits=limits)
    return key


def test_the_sdk_waits_as_long_as_it_is_told_and_is_let_through(base_url, admin):
    key = limited(base_url, admin, requests_per_minute=30)
    url = f"{base_url}/v1"
    at_once = OpenAI(base_url=url, api_key=key, max_retries=0)
    for _ in range(200):
        try:
            answer = at_once.chat.completions.with_raw_response.create(model=MODEL, messages=HI)
            assert answer.headers["x-ratelimit-limit-requests"] == "30"
        except openai.RateLimitError as error:
            refused = error
            break
    assert refused.code == "rate_limit_exceeded" and refused.request_id.startswith("req_")
    wait = int(refused.response.headers["retry-after-ms"]) / 1000
    assert 0 < wait <= 2, wait
    patient = OpenAI(base_url=url, api_key=key, max_retries=1)
    began = time.monotonic()
    patient.chat.completions.create(model=MODEL, messages=HI)
    took = time.monotonic() - began
    # Its own first back-off is half a second; a repetition before the time would have been refused.
    assert wait - 0.7 < took < wait + 1.5, (took, wait)


def test_a_place_that_becomes_free_is_found_by_a_retry(base_url, admin):
    key = limited(base_url, admin, concurrent_requests=1)
    url = f"{base_url}/v1"
    slow = OpenAI(base_url=url, api_key=key, max_retries=0)
    headers = {"x-sim-delay-ms": "700"}
    begun = threading.Event()

    def hold() -> None:
        begun.set()
        slow.chat.completions.create(model=MODEL, messages=HI, extra_headers=headers)

    thread = threading.Thread(target=hold)
    thread.start()
    begun.wait()
    time.sleep(0.2)
    with pytest.raises(openai.RateLimitError) as refused:
        slow.chat.completions.create(model=MODEL, messages=HI)
    assert refused.value.code == "ConcurrencyExceeded"
    assert refused.value.response.headers["retry-after"] == "1"
    patient = OpenAI(base_url=url, api_key=key, max_retries=1)
    patient.chat.completions.create(model=MODEL, messages=HI)
    thread.join()


def test_a_limit_of_spending_is_not_asked_for_again(base_url, admin):
    key = limited(base_url, admin, spend_per_day="0.000001")
    client = OpenAI(base_url=f"{base_url}/v1", api_key=key, max_retries=3)
    began = time.monotonic()
    with pytest.raises(openai.RateLimitError, match="may spend"):
        client.chat.completions.create(model=MODEL, messages=HI)
    # Three repetitions would take two and a half seconds at least.
    assert time.monotonic() - began < 2, "the SDK came again"
    messages = anthropic.Anthropic(base_url=base_url, api_key=key, max_retries=3)
    with pytest.raises(anthropic.RateLimitError):
        messages.messages.create(model="claude-sonnet-4-5", max_tokens=10, messages=HI)
