"""Headers of customers: those that change what is done, or for whom, never travel."""

from __future__ import annotations

from collections.abc import Callable

from ..arithmetic import Units
from ..catalogue import CHAT, IMAGE_QWEN, MESSAGES, RESPONSES, SPEECH_QWEN, Model
from ..customer import Reply, Request
from ..dialects import (
    chat,
    chat_document,
    dashscope_images,
    dashscope_speech,
    messages,
    messages_document,
    responses,
    responses_document,
)
from ..script import Case, Script
from ..vector import Check, Exact, Vector
from . import asking
from .images import qwen
from .leaving import chat_usage, usage
from .speech import TEXTS, file_of, spoken

USED = Units(input=24, output=90)

#: Never travel, whatever the upstream.
STOPPED: tuple[tuple[str, str], ...] = (
    ("X-DashScope-SSE", "enable"),
    ("X-DashScope-Async", "enable"),
    ("X-DashScope-WorkSpace", "ws-other"),
    ("X-DashScope-DataInspection", "disable"),
    ("Idempotency-Key", "mine"),
    ("x-ms-oai-image-generation-deployment", "dear"),
    ("OpenAI-Organization", "org-other"),
    ("OpenAI-Project", "proj-other"),
    ("OpenAI-Beta", "assistants=v2"),
    ("Cookie", "a=b"),
    ("api-key", "sk-other"),
    ("x-goog-user-project", "other"),
    ("x-header-of-tomorrow", "1"),
)
#: Travel as they are.
PASSED: tuple[tuple[str, str], ...] = (
    ("User-Agent", "keeper/1.0"),
    ("x-stainless-lang", "python"),
    ("x-stainless-retry-count", "0"),
    ("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
    ("session_id", "s-1"),
    ("originator", "codex_cli_rs"),
)


def field(name: str, is_good: Callable[[str | None], bool], wrong: str) -> Check:
    def check(case: Case, _: Reply) -> list[str]:
        values = [received.headers.get(name.lower()) for received in case.received]
        if not values:
            return ["nothing reached the upstream"]
        return [f"{name} {wrong}: {value!r}" for value in values if not is_good(value)]

    return check


def vectors() -> list[Vector]:
    made = []
    for name, value in STOPPED:
        made.append(
            of_chat(
                f"{name} stays here",
                (name, value),
                field(name, lambda got: got is None, "travelled"),
            )
        )
    for name, value in PASSED:
        made.append(
            of_chat(
                f"{name} travels",
                (name, value),
                field(name, lambda got, sent=value: got == sent, "did not travel"),
            )
        )
    return [*made, *of_dashscope(), *betas()]


def of_chat(name: str, header: tuple[str, str], check: Check) -> Vector:
    request = asking.ask(asking.CHAT, CHAT, chat(), header)
    script = Script((chat_document(chat_usage(24, 90), USED),))
    return Vector(f"headers / {name}", CHAT, request, script, Exact(), checks=(check,))


def of_dashscope() -> list[Vector]:
    """Over DashScope they would make something that nobody can read or bill."""
    text = TEXTS["ASCII"]
    used = Units(characters=spoken(text))
    speech = Script((dashscope_speech(used.characters, used),), file=file_of(used))
    pictures = Script((dashscope_images({"image_count": 1}, Units(images=1)),))
    rows: tuple[tuple[str, Model, Request, Script], ...] = (
        ("speech", SPEECH_QWEN, asking.ask(asking.SPEECH, SPEECH_QWEN, {"input": text}), speech),
        ("images", IMAGE_QWEN, asking.ask(asking.IMAGES, IMAGE_QWEN, qwen()), pictures),
    )
    made = []
    for name, model, request, script in rows:
        for header in ("X-DashScope-SSE", "X-DashScope-Async"):
            with_header = Request(request.path, request.body, ((header, "enable"),))
            check = field(header, lambda got: got is None, "travelled")
            made.append(
                Vector(
                    f"headers / {header} of {name}",
                    model,
                    with_header,
                    script,
                    Exact(),
                    status=200,
                    checks=(check,),
                )
            )
    return made


def betas() -> list[Vector]:
    """Betas with a price of their own are dropped, and the rest of the header stays."""
    script = Script((messages_document(usage(24, 90), USED),))
    rows: tuple[tuple[str, str, str, bool], ...] = (
        ("a context of a million", "context-1m-2025-08-07", "context-1m", False),
        ("a context of a million among others", "claude-code-20250219,context-1m-2025-08-07",
         "context-1m", False),
        ("what stands beside it", "claude-code-20250219,context-1m-2025-08-07", "claude-code-20250219",
         True),
        ("a beta of tomorrow", "claude-code-20250219,beta-of-tomorrow", "beta-of-tomorrow", True),
        ("a fast beta of tomorrow", "fast-mode-2031-01-01", "fast-mode", False),
        ("interleaved thinking", "interleaved-thinking-2025-05-14", "interleaved-thinking-2025-05-14",
         True),
    )  # fmt: skip
    made = []
    for name, value, token, travels in rows:
        request = asking.ask(asking.MESSAGES, MESSAGES, messages(), ("anthropic-beta", value))
        is_good = lambda got, token=token, travels=travels: (token in (got or "")) == travels
        check = field("anthropic-beta", is_good, f"should {'' if travels else 'not '}have {token}")
        made.append(
            Vector(
                f"headers / {name}", MESSAGES, request, script, Exact(), status=200, checks=(check,)
            )
        )
    version = field("anthropic-version", lambda got: got == "2026-10-21", "did not travel")
    request = Request(
        asking.MESSAGES,
        {"model": MESSAGES.name} | messages(),
        (("anthropic-version", "2026-10-21"),),
    )
    made.append(
        Vector(
            "headers / anthropic-version travels",
            MESSAGES,
            request,
            script,
            Exact(),
            checks=(version,),
        )
    )
    script = Script((responses_document(usage(24, 90), USED),))
    request = asking.ask(asking.RESPONSES, RESPONSES, responses(), ("Idempotency-Key", "k"))
    check = field("Idempotency-Key", lambda got: got is None, "travelled")
    made.append(
        Vector(
            "headers / Idempotency-Key of responses",
            RESPONSES,
            request,
            script,
            Exact(),
            checks=(check,),
        )
    )
    return made
