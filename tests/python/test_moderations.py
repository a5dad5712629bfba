"""Moderations with the official OpenAI SDK, which names no model unless it is told one."""

import openai
import pytest


def test_texts_and_pictures_are_judged_for_nothing(customer):
    answer = customer.sdk.moderations.create(input=["a walk in the park", "an attack"])
    assert [result.flagged for result in answer.results] == [False, True]
    assert answer.model == "omni-moderation-latest"
    picture = {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}
    answer = customer.sdk.moderations.create(
        model="omni-moderation-latest", input=[{"type": "text", "text": "a walk"}, picture]
    )
    assert [result.flagged for result in answer.results] == [False]
    assert customer.spent() == 0


def test_what_is_no_input_is_refused_by_its_name(customer):
    for wrong in ([], ["a", 1], [{"type": "input_audio"}]):
        with pytest.raises(openai.BadRequestError) as refused:
            customer.sdk.moderations.create(input=wrong)
        assert refused.value.param == "input"
