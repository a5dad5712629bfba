"""Random vectors: any request, answer, cut and leave. A seed makes them again."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

from .arithmetic import Units
from .catalogue import (
    EMBED,
    EMBED_SPLIT,
    IMAGE_COUNTED,
    RERANK_TOKENS,
    RERANK_UNITS,
    SPEECH_QWEN,
    VIDEO_V,
    Model,
)
from .customer import FIRST_TEXT, LAST_TEXT, Customer
from .dialects import (
    STORY,
    STORY_COUNTS,
    dashscope_accepted,
    dashscope_speech,
    dashscope_task,
    embeddings_document,
    images_document,
    in_pieces,
    messages,
    rerank_document,
)
from .script import Answer, Break, Pause, Script
from .vector import KEEPALIVE, PLAIN, Covered, Estimate, Exact, Expectation, Noted, Vector, Void
from .vectors import asking
from .vectors.breaks import failure, lost
from .vectors.images import image
from .vectors.leaving import MOMENTS, TALKS, WAYS, Talk
from .vectors.speech import TEXTS, file_of, spoken
from .vectors.video import v27

#: What texts are made of, and the tokens that o200k_base makes of each.
WORDS = {
    "lamp ": 2,
    "ship. ": 3,
    "Leuchtturm ": 5,
    "灯塔": 2,
    "маяк ": 3,
    "0x9f3b ": 7,
    "{}();": 2,
    "🗼": 3,
    "keeper, ": 3,
    "\n": 1,
}
#: Words that stand together have fewer tokens, and never fewer than this share.
TOGETHER = 0.7


def random_vectors(count: int, seed: int) -> list[Vector]:
    """So many vectors, the same for the same seed."""
    dice = random.Random(seed)
    return [one(dice, f"random {seed} / {number}") for number in range(count)]


def one(dice: random.Random, name: str) -> Vector:
    kinds = (talk, talk, talk, talk, talk, odd, odd, repeated, embedding, parts, ranking, picture,
             speech, video)  # fmt: skip
    return dice.choice(kinds)(dice, name)


def leave(dice: random.Random, moments: tuple[str, ...]) -> tuple[str | None, Customer]:
    """The moment at which the script waits, and who leaves then; or somebody who stays."""
    http = dice.choice((1, 1, 2))
    if dice.random() < 0.3:
        bite, rests = dice.choice(((65536, 0.0), (65536, 0.0), (512, 0.002)))
        return None, Customer(http=http, bite=bite, rests_s=rests)
    how, http = WAYS[dice.choice(tuple(WAYS))]
    gate, sign = MOMENTS[dice.choice(moments)]
    return gate, Customer(leaves=sign, how=how, http=http)


def story(dice: random.Random) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """Texts of several scripts, with the tokens that they have at least."""
    drawn = [dice.choices(tuple(WORDS), k=dice.randint(1, 30)) for _ in range(dice.randint(1, 8))]
    counts = [max(1, int(sum(WORDS[word] for word in words) * TOGETHER)) for words in drawn]
    texts = ["".join(words) for words in drawn]
    return (f"{FIRST_TEXT} ", *texts, f" {LAST_TEXT}"), (2, *counts, 2)


def report(dice: random.Random, of: Talk, prompt: int, output: int) -> tuple[dict[str, Any], Units]:
    """A usage with any of the kinds of input, and what it means."""
    read = dice.choice((0, 0, dice.randint(0, prompt)))
    written = dice.choice((0, 0, dice.randint(0, prompt - read)))
    plain = prompt - read - written
    used = Units(input=plain, cache_read=read, cache_write=written, output=output)
    if of.name == "messages":
        told = of.usage(plain, output)
        if read:
            told["cache_read_input_tokens"] = read
        if written:
            told["cache_creation_input_tokens"] = written
        return told, used
    details = {"cached_tokens": read, "cache_write_tokens": written}
    field = "prompt_tokens_details" if of.name == "chat" else "input_tokens_details"
    return of.usage(prompt, output) | {field: details}, used


def talk(dice: random.Random, name: str) -> Vector:
    of = dice.choice(TALKS)
    is_shown = dice.random() < 0.3
    model = of.shown if is_shown else of.hiding
    streams = dice.random() < 0.7
    texts, counts = story(dice) if streams else (STORY, STORY_COUNTS)
    hidden = 0 if is_shown else dice.choice((0, dice.randint(1, 25_000)))
    # A report is the provider's word: it may be above what was shown, and above the model's limits.
    above = 0 if is_shown else dice.choice((0, 0, dice.randint(0, 40_000)))
    told, used = report(dice, of, dice.randint(8, 3_000), hidden + sum(counts) + above)
    # How long the prompt is, nobody can know who is not told.
    is_told = dice.random() < 0.8
    if not is_told or is_shown:
        told, used = of.usage(24, used.output), Units(input=24, output=used.output)
    moments = tuple(MOMENTS) if streams else ("before the head",)
    gate, customer = leave(dice, moments)
    if streams:
        arguments = {"hidden": hidden, "story": texts, "tokens": counts}
        answer = of.stream(told if is_told else None, used, gate, **arguments)
    else:
        answer = of.whole(told if is_told else None, used, gate)
    answer, breaks = cut(dice, answer, streams and gate is None)
    if gate is None and not breaks and dice.random() < 0.3:
        answer = in_pieces(answer, dice.randint(5, 200))
    expect: Expectation = Exact()
    if is_shown and streams and (breaks or customer.leaves is not None or not is_told):
        expect = Estimate("2.5")
    elif breaks:
        expect = Covered()
    elif not is_told:
        expect = Estimate("3.2") if is_shown else Noted()
    if breaks or not is_told:
        answer = bounded(answer, model)
    body = of.ask(stream=True) if streams else of.ask()
    place = dice.choice((PLAIN, PLAIN, KEEPALIVE)) if not breaks else PLAIN
    request = asking.ask(of.path, model, body)
    return Vector(name, model, request, Script((answer,)), expect, customer, gateway=place)


def odd(dice: random.Random, name: str) -> Vector:
    """A usage in OpenAI's shape that contradicts itself, counts in another provider's way, or has lost some of
    its counts."""
    of = dice.choice([talk for talk in TALKS if talk.name != "messages"])
    prompt, output = (
        ("prompt_tokens", "completion_tokens") if of.name == "chat" else ("input_tokens", "output_tokens")
    )
    plain, read, written = dice.randint(8, 3_000), dice.randint(0, 9_000), dice.randint(0, 9_000)
    hour = dice.choice((0, dice.randint(0, written)))
    put_out = dice.randint(60, 20_000)
    cached = read + written
    # Within the prompt, or beside it, where nobody can take it for anything else.
    is_beside = cached > plain and dice.random() < 0.5
    all_input = plain if is_beside else plain + cached
    details: dict[str, Any] = {"cached_tokens": read}
    details[dice.choice(("cache_write_tokens", "cache_creation_tokens"))] = written
    if hour:
        lifetimes = dice.choice(("cache_creation", "cache_creation_token_details"))
        split = {"ephemeral_5m_input_tokens": written - hour, "ephemeral_1h_input_tokens": hour}
        details[lifetimes] = split
    told: dict[str, Any] = {prompt: all_input, output: put_out, f"{prompt}_details": details}
    totals = (None, all_input + put_out, plain + cached + put_out)
    total = dice.choice(totals)
    if total is not None:
        told["total_tokens"] = total
    if dice.random() < 0.3:
        told |= {"cache_read_input_tokens": read, "cache_creation_input_tokens": written}
    used = Units(
        input=plain, cache_read=read, cache_write=written - hour, cache_write_1h=hour, output=put_out
    )
    expect: Expectation = Exact()
    lost = dice.random()
    if lost < 0.15:
        told[output] = dice.choice((-3, 0.5, "some", None))
        expect = Covered()
    elif lost < 0.3 and not is_beside:
        # What was read is charged as if it had not been. Beside the prompt, nobody could know of it.
        details["cached_tokens"] = dice.choice((-3, 0.5, "some", None))
        told.pop("cache_read_input_tokens", None)
        expect = Covered()
    streams = dice.random() < 0.6
    answer = (of.stream if streams else of.whole)(told, used)
    body = of.ask(stream=True) if streams else of.ask()
    request = asking.ask(of.path, of.hiding, body)
    return Vector(name, of.hiding, request, Script((answer,)), expect)


def parts(dice: random.Random, name: str) -> Vector:
    """Embeddings in several calls, of which one may fail: then nobody gets any, and nobody pays."""
    ten = embeddings_document({"prompt_tokens": 70}, Units(input=70), count=10)
    failed = failure(dice.choice((429, 500, 503)))
    calls = [ten, ten, ten]
    fails = dice.random() < 0.6
    if fails:
        calls[dice.randrange(3)] = failed
    body = {"input": [f"input {number} of {{case}}" for number in range(30)]}
    request = asking.ask(asking.EMBEDDINGS, EMBED_SPLIT, body)
    return Vector(name, EMBED_SPLIT, request, Script(tuple(calls)), Void() if fails else Exact())


def bounded(answer: Answer, model: Model) -> Answer:
    """What nobody is told of is no more than the model can make."""
    # Requests for messages say their own, which is less.
    most = min(model.limits["output_tokens_max"], messages()["max_tokens"])
    steps = tuple(
        replace(step, used=step.used.with_output(min(step.used.output, most)))
        if getattr(step, "used", None) is not None
        else step
        for step in answer.steps
    )
    at_once = answer.at_once.with_output(min(answer.at_once.output, most))
    return replace(answer, steps=steps, at_once=at_once)


def cut(dice: random.Random, answer: Answer, may_break: bool) -> tuple[Answer, bool]:
    """Perhaps the upstream breaks off behind its first text."""
    if not may_break or dice.random() < 0.75:
        return answer, False
    at = dice.randint(4, max(4, len(answer.steps) - 4))
    steps = (*answer.steps[:at], Pause(0.05), Break(dice.random() < 0.5))
    return replace(answer, steps=steps), True


def repeated(dice: random.Random, name: str) -> Vector:
    """A first try that fails, at a model with a spare."""
    of = dice.choice(TALKS)
    used = Units(input=dice.randint(8, 3_000), output=dice.randint(100, 20_000))
    good = of.whole(of.usage(used.input, used.output), used)
    first = dice.choice((failure(429), failure(500), failure(503), failure(504), lost(used)))
    upstream = of.hiding.upstreams[0]
    model = of.hiding.own(f"{of.name}-wild", upstreams=(upstream, f"{upstream}-spare"))
    request = asking.ask(of.path, model, of.ask())
    return Vector(name, model, request, Script((first, good)), Covered())


def embedding(dice: random.Random, name: str) -> Vector:
    gate, customer = leave(dice, ("before the head",))
    tokens = dice.randint(1, 5_000)
    answer = embeddings_document({"prompt_tokens": tokens}, Units(input=tokens), gate)
    request = asking.ask(asking.EMBEDDINGS, EMBED, {"input": "lamp " * tokens + "{case}"})
    return Vector(name, EMBED, request, Script((answer,)), Exact(), customer)


def ranking(dice: random.Random, name: str) -> Vector:
    """Of documents that are as many and as long as chance has it, by tokens or by units."""
    gate, customer = leave(dice, ("before the head",))
    count, words = dice.randint(1, 300), dice.randint(0, 400)
    documents: list[Any] = [f"{{case}} {'lamp ' * words}" for _ in range(count)]
    documents[0] = {"text": documents[0]}
    if dice.random() < 0.5:
        parts = count * -(-(words + 20) // 500)
        used, model = Units(rerank=-(-parts // 100)), RERANK_UNITS
        told: dict[str, Any] = {"meta": {"billed_units": {"search_units": used.rerank}}}
    else:
        used, model = Units(input=count * (words + 20)), RERANK_TOKENS
        told = {"usage": {"total_tokens": used.input}}
    request = asking.ask(asking.RERANK, model, {"query": "a lamp?", "documents": documents})
    script = Script((rerank_document(told, used, gate),))
    return Vector(name, model, request, script, Exact(), customer)


def picture(dice: random.Random, name: str) -> Vector:
    gate, customer = leave(dice, ("before the head",))
    count = dice.randint(1, 5)
    answer = images_document(None, Units(images=count), gate, count=count)
    request = asking.ask(asking.IMAGES, IMAGE_COUNTED, image(n=count))
    return Vector(name, IMAGE_COUNTED, request, Script((answer,)), Exact(), customer)


def speech(dice: random.Random, name: str) -> Vector:
    text = dice.choice(tuple(TEXTS.values()))
    used = Units(characters=spoken(text))
    gate, customer = leave(dice, ("before the head",))
    answer = dashscope_speech(used.characters, used, gate)
    form = dice.choice(("mp3", "wav"))
    request = asking.ask(asking.SPEECH, SPEECH_QWEN, {"input": text, "response_format": form})
    script = Script((answer,), file=file_of(used))
    return Vector(name, SPEECH_QWEN, request, script, Exact(), customer)


def video(dice: random.Random, name: str) -> Vector:
    asked = dice.randint(2, 15)
    made = dice.choice((asked, asked, dice.randint(1, 40)))
    used = Units(seconds=made)
    done = dashscope_task("SUCCEEDED", {"duration": made}, used)
    running = (dashscope_task("RUNNING", None, Units()),) * dice.randint(0, 2)
    request = asking.ask(asking.VIDEO, VIDEO_V, v27(asked))
    script = Script((dashscope_accepted(),), (*running, done))
    prices = VIDEO_V.priced(resolution="720p")
    return Vector(name, VIDEO_V, request, script, Exact(), prices=prices)
