"""Reports above a model's limits are charged as reported; requests above them are refused."""

from __future__ import annotations

from typing import Any

from ..arithmetic import Units
from ..catalogue import CHAT_TIGHT, EMBED, MESSAGES_TIGHT, RESPONSES_TIGHT
from ..dialects import chat, embeddings_document, messages, responses
from ..script import Script
from ..vector import Exact, Refused, Vector
from . import asking
from .leaving import PROMPT_TOKENS, TALKS

#: Of the tight models, see the catalogue.
OUTPUT_MAX, CONTEXT_MAX = 1_000, 10_000
TIGHT = (CHAT_TIGHT, RESPONSES_TIGHT, MESSAGES_TIGHT)


def vectors() -> list[Vector]:
    return [*reported(), *asked(), *too_long()]


def reported() -> list[Vector]:
    """A call above a limit never costs less than one at it: each is charged to the token."""
    made = []
    for talk, model in zip(TALKS, TIGHT, strict=True):
        fields = {"max_tokens": OUTPUT_MAX} if talk.name == "messages" else {}
        rows = [(PROMPT_TOKENS, output) for output in (999, 1_000, 1_001, 5_000)]
        rows += [(prompt, 100) for prompt in (9_999, 10_000, 10_001, 60_000)]
        for prompt, output in rows:
            used = Units(input=prompt, output=output)
            told = talk.usage(prompt, output)
            for shape, answer, more in (
                ("json", talk.whole(told, used), {}),
                ("stream", talk.stream(told, used), {"stream": True}),
            ):
                request = asking.ask(talk.path, model, talk.ask(**fields, **more))
                name = f"limits / {talk.name} reports {prompt} and {output} / {shape}"
                made.append(Vector(name, model, request, Script((answer,)), Exact(), status=200))
    used = Units(input=PROMPT_TOKENS, output=1_990)
    talk = TALKS[0]
    answer = talk.whole(talk.usage(PROMPT_TOKENS, 1_990), used)
    request = asking.ask(asking.CHAT, CHAT_TIGHT, chat(n=2))
    made.append(Vector("limits / two choices", CHAT_TIGHT, request, Script((answer,)), Exact()))
    return made


def asked() -> list[Vector]:
    """What asks for more than the model has is told so; what asks for all of it is served."""
    rows: tuple[tuple[int, str], ...] = (
        (0, "max_tokens"),
        (0, "max_completion_tokens"),
        (1, "max_output_tokens"),
        (2, "max_tokens"),
    )
    made = []
    for number, field in rows:
        talk, model = TALKS[number], TIGHT[number]
        answer = talk.whole(talk.usage(PROMPT_TOKENS, 90), Units(input=PROMPT_TOKENS, output=90))
        at = asking.ask(talk.path, model, talk.ask(**{field: OUTPUT_MAX}))
        made.append(
            Vector(
                f"limits / {talk.name} with {field} at the limit",
                model,
                at,
                Script((answer,)),
                Exact(),
                status=200,
            )
        )
        for value in (OUTPUT_MAX + 1, 16_000, 2**63):
            above = asking.ask(talk.path, model, talk.ask(**{field: value}))
            made.append(
                Vector(
                    f"limits / {talk.name} with {field} {value}",
                    model,
                    above,
                    Script((answer,)),
                    Refused(400, names=field),
                )
            )
    return made


def too_long() -> list[Vector]:
    """Text that cannot fit is refused before it is sent: no token has more than six bytes."""
    fits, cannot = "lamp " * 8_000, "lamp " * 14_000
    asks: tuple[Any, ...] = (
        lambda text: chat(messages=[{"role": "user", "content": f"{text}{{case}}"}]),
        lambda text: responses(input=f"{text}{{case}}"),
        lambda text: messages(
            max_tokens=100, messages=[{"role": "user", "content": f"{text}{{case}}"}]
        ),
    )
    made = []
    for talk, model, ask in zip(TALKS, TIGHT, asks, strict=True):
        used = Units(input=8_010, output=90)
        answer = talk.whole(talk.usage(8_010, 90), used)
        made += [
            Vector(f"limits / {talk.name} with a text that fits", model,
                   asking.ask(talk.path, model, ask(fits)), Script((answer,)), Exact(), status=200),
            Vector(f"limits / {talk.name} with a text that cannot fit", model,
                   asking.ask(talk.path, model, ask(cannot)), Script((answer,)),
                   Refused(400, code="context_length_exceeded")),
        ]  # fmt: skip
    used = Units(input=90_000)
    answer = embeddings_document({"prompt_tokens": 90_000, "total_tokens": 90_000}, used)
    request = asking.ask(asking.EMBEDDINGS, EMBED, {"input": "{case}" + "灯" * 90_000})
    made.append(Vector("limits / a long embedding", EMBED, request, Script((answer,)), Exact()))
    return made
