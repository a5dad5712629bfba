"""What has no price is refused by its name, and nothing reaches the upstream; what is common passes."""

from __future__ import annotations

import json
from typing import Any

from ..arithmetic import Units
from ..catalogue import (
    CHAT,
    EMBED,
    IMAGE_COUNTED,
    MESSAGES,
    RESPONSES,
    VIDEO_G,
    Model,
)
from ..customer import Reply, Request
from ..dialects import (
    chat,
    embeddings_document,
    images_document,
    messages,
    responses,
    xai_accepted,
    xai_task,
)
from ..script import Case, Script
from ..vector import Exact, Refused, Vector
from . import asking
from .images import image
from .leaving import PROMPT_TOKENS, TALKS
from .video import g

USED = Units(input=PROMPT_TOKENS, output=90)


def function(name: str = "f") -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "parameters": {"type": "object"}}}


def heard(kind: str) -> list[dict[str, Any]]:
    inner = {"audio_url": {"url": "https://example.com/{case}.mp3"}}
    if kind == "input_audio":
        inner = {"input_audio": {"data": "UklGRg==", "format": "wav"}}
    if kind == "video_url":
        inner = {"video_url": {"url": "https://example.com/{case}.mp4"}}
    if kind == "video":
        inner = {"video": ["https://example.com/{case}/1.png", "https://example.com/2.png"]}
    content = [{"type": "text", "text": "{case}"}, {"type": kind, **inner}]
    return [{"role": "user", "content": content}]


#: Of chat: what is asked, and what the refusal names.
OF_CHAT: tuple[tuple[str, dict[str, Any], str], ...] = (
    ("a web search", {"web_search_options": {}}, "web_search_options"),
    ("audio", {"audio": {"voice": "alloy", "format": "wav"}, "modalities": ["text", "audio"]}, ""),
    ("audio among the modalities", {"modalities": ["text", "audio"]}, "modalities"),
    ("a picture among the modalities", {"modalities": ["image", "text"]}, "modalities"),
    ("a priority tier", {"service_tier": "priority"}, "service_tier"),
    ("an automatic tier", {"service_tier": "auto"}, "service_tier"),
    ("a tier of scale", {"service_tier": "scale"}, "service_tier"),
    ("xAI's search", {"search_parameters": {"mode": "on"}}, "search_parameters"),
    ("xAI's deferred answers", {"deferred": True}, "deferred"),
    ("Qwen's search", {"enable_search": True}, "enable_search"),
    ("Qwen's search options", {"search_options": {"forced_search": True}}, "search_options"),
    ("Qwen's thinking", {"enable_thinking": True}, "enable_thinking"),
    ("Qwen's thinking budget", {"thinking_budget": 100}, "thinking_budget"),
    ("Gemini's cache", {"extra_body": {"google": {"cached_content": "c"}}}, "extra_body"),
    ("a cache by its name", {"cached_content": "c"}, "cached_content"),
    ("plug-ins", {"plugins": [{"id": "web"}]}, "plugins"),
    ("a field of tomorrow", {"field_of_tomorrow": 1}, "field_of_tomorrow"),
    ("a null field of tomorrow", {"field_of_tomorrow": None}, "field_of_tomorrow"),
    ("a hosted tool", {"tools": [{"type": "web_search"}]}, "web_search"),
    ("a hosted tool behind a function", {"tools": [function(), {"type": "code_interpreter"}]},
     "code_interpreter"),
    ("a tool of tomorrow", {"tools": [{"type": "tool_of_tomorrow"}]}, "tool_of_tomorrow"),
    ("input_audio", {"messages": heard("input_audio")}, "input_audio"),
    ("audio_url", {"messages": heard("audio_url")}, "audio_url"),
    ("video_url", {"messages": heard("video_url")}, "video_url"),
    ("frames of a video", {"messages": heard("video")}, "`video`"),
    ("a Kelvin sign", {"max_to\u212aens": 30_000, "max_tokens": 1}, ""),
    ("a long s", {"max_token\u017f": 30_000, "max_tokens": 1}, ""),
    ("another script", {"поле": 1}, ""),
)  # fmt: skip

OF_RESPONSES: tuple[tuple[str, dict[str, Any], str], ...] = (
    ("pictures", {"tools": [{"type": "image_generation", "quality": "high"}],
                  "tool_choice": {"type": "image_generation"}}, "image_generation"),
    ("an interpreter", {"tools": [{"type": "code_interpreter",
                                   "container": {"type": "auto", "memory_limit": "64g"}}]},
     "code_interpreter"),
    ("a search that is insisted on", {"tools": [{"type": "web_search"}],
                                      "tool_choice": {"type": "web_search"}}, "web_search"),
    ("a search that is required", {"tools": [{"type": "web_search_preview"}],
                                   "tool_choice": "required"}, "web_search_preview"),
    ("a search within a tool", {"tools": [{"type": "namespace", "name": "n", "tools": [
        {"type": "web_search_2025_08_26"}]}]}, "web_search_2025_08_26"),
    ("a search in files", {"tools": [{"type": "file_search", "vector_store_ids": ["v"]}]},
     "file_search"),
    ("a computer", {"tools": [{"type": "computer_use_preview", "environment": "linux"}]},
     "computer_use_preview"),
    ("a server of tools", {"tools": [{"type": "mcp", "server_label": "s",
                                      "server_url": "https://example.com"}]}, "mcp"),
    ("a hosted shell", {"tools": [{"type": "shell", "environment": {"type": "container_auto"}}]},
     "shell"),
    ("a shell of nowhere", {"tools": [{"type": "shell"}]}, "shell"),
    ("a tool without a type", {"tools": [{"name": "f"}]}, "tools"),
    ("a priority tier", {"service_tier": "priority"}, "service_tier"),
    ("an automatic tier", {"service_tier": "auto"}, "service_tier"),
    ("the background", {"background": True}, "background"),
    ("a field of tomorrow", {"field_of_tomorrow": {}}, "field_of_tomorrow"),
    ("a Kelvin sign", {"max_output_to\u212aens": 30_000}, ""),
    ("a long s", {"max_output_token\u017f": 30_000}, ""),
)  # fmt: skip

OF_MESSAGES: tuple[tuple[str, dict[str, Any], str], ...] = (
    ("a web search", {"tools": [{"type": "web_search_20250305", "name": "web_search"}]},
     "web_search_20250305"),
    ("a newer web search", {"tools": [{"type": "web_search_20260209", "name": "web_search"}]},
     "web_search_20260209"),
    ("code", {"tools": [{"type": "code_execution_20250825", "name": "code_execution"}]},
     "code_execution_20250825"),
    ("an advisor", {"tools": [{"type": "advisor_20260101", "name": "advisor"}]}, "advisor"),
    ("servers of tools", {"mcp_servers": [{"type": "url", "url": "https://e.com", "name": "s"}]},
     "mcp_servers"),
    ("a container", {"container": "c"}, "container"),
    ("a place", {"inference_geo": "us"}, "inference_geo"),
    ("speed", {"speed": "fast"}, "speed"),
    ("a field of tomorrow", {"field_of_tomorrow": 1}, "field_of_tomorrow"),
    ("a Kelvin sign", {"max_to\u212aens": 30_000}, ""),
)  # fmt: skip

#: What real clients send, and has no bill of its own.
COMMON: tuple[tuple[int, str, dict[str, Any]], ...] = (
    (0, "functions", {"tools": [function("a"), function("b")], "tool_choice": "auto",
                      "parallel_tool_calls": True}),
    (0, "a custom tool", {"tools": [{"type": "custom", "custom": {"name": "c"}}]}),
    (0, "a format", {"response_format": {"type": "json_object"}, "seed": 1, "logprobs": False}),
    (0, "sampling", {"temperature": 0.5, "top_p": 1, "stop": ["x"], "user": "u", "n": 1,
                     "presence_penalty": 0, "frequency_penalty": 0}),
    (0, "effort", {"reasoning_effort": "low", "max_completion_tokens": 500, "verbosity": "low"}),
    (0, "the default tier", {"service_tier": "default"}),
    (0, "a flexible tier", {"service_tier": "flex"}),
    (0, "text among the modalities", {"modalities": ["text"]}),
    (0, "a cache's key", {"prompt_cache_key": "k", "metadata": {"a": "b"}, "store": False}),
    (1, "what Codex sends", {
        "instructions": "You are a keeper.", "tool_choice": "auto", "parallel_tool_calls": False,
        "tools": [{"type": "function", "name": "f", "parameters": {"type": "object"}},
                  {"type": "custom", "name": "apply_patch"}, {"type": "local_shell"}],
        "reasoning": {"effort": "medium", "summary": "auto"}, "store": False,
        "include": ["reasoning.encrypted_content"], "prompt_cache_key": "k",
        "text": {"verbosity": "low"}, "client_metadata": {"a": "b"}}),
    (1, "a conversation in items", {"input": [
        {"role": "user", "content": [{"type": "input_text", "text": "{case}"}]},
        {"type": "message", "role": "assistant",
         "content": [{"type": "output_text", "text": "yes", "annotations": []}]},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": "done"},
        {"role": "user", "content": "go on"}]}),
    (2, "what Claude Code sends", {
        "system": [{"type": "text", "text": "You are a keeper.",
                    "cache_control": {"type": "ephemeral"}}],
        "thinking": {"type": "enabled", "budget_tokens": 2000}, "metadata": {"user_id": "u"},
        "context_management": {"edits": []}, "output_config": {"effort": "high"},
        "tools": [{"name": "f", "description": "d", "input_schema": {"type": "object"}},
                  {"type": "custom", "name": "c", "input_schema": {"type": "object"}}]}),
    (2, "other models to fall back to", {"fallbacks": [{"model": "dearer"}]}),
    (2, "tools that the customer runs", {"tools": [
        {"type": "bash_20250124", "name": "bash"},
        {"type": "text_editor_20250728", "name": "str_replace_based_edit_tool"},
        {"type": "memory_20250818", "name": "memory"}]}),
    (2, "a conversation with tools", {"messages": [
        {"role": "user", "content": "{case}"},
        {"role": "assistant", "content": [
            {"type": "thinking", "thinking": "t", "signature": "s"},
            {"type": "tool_use", "id": "t", "name": "f", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "ok"}]},
    ]}),
)  # fmt: skip


def vectors() -> list[Vector]:
    return [*unpriced(), *of_media(), *common(), *left_out(), *passed()]


def unpriced() -> list[Vector]:
    tables = (
        (OF_CHAT, CHAT, chat),
        (OF_RESPONSES, RESPONSES, responses),
        (OF_MESSAGES, MESSAGES, messages),
    )
    made = []
    for talk, (rows, model, ask) in zip(TALKS, tables, strict=True):
        script = Script((talk.whole(talk.usage(PROMPT_TOKENS, 90), USED),))
        for name, fields, names in rows:
            # Raw, so that what is not ASCII goes as it is.
            body = json.dumps({"model": model.name} | ask(**fields), ensure_ascii=False).encode()
            made.append(
                Vector(
                    f"features / {talk.name}, {name}",
                    model,
                    Request(talk.path, body),
                    script,
                    Refused(400, names=names or None),
                )
            )
    return made


def of_media() -> list[Vector]:
    """Fields of images, embeddings and video that nobody has priced."""
    url = "https://example.com/a.png"
    accepted = Script((xai_accepted(),), (xai_task("failed", None, Units()),))
    one = Script((images_document(None, Units(images=1)),))
    vector = Script((embeddings_document({"prompt_tokens": 9}, Units(input=9)),))
    rows: tuple[tuple[str, str, Model, dict[str, Any], Script, str], ...] = (
        ("xAI's references", asking.VIDEO, VIDEO_G, g(reference_images=[{"url": url}] * 7), accepted,
         "reference_images"),
        ("xAI's input film", asking.VIDEO, VIDEO_G, g(video={"url": url}), accepted, "video"),
        ("xAI's upload", asking.VIDEO, VIDEO_G, g(output={"upload_url": url}), accepted, "output"),
        ("a field of tomorrow of xAI", asking.VIDEO, VIDEO_G, g(field_of_tomorrow=1), accepted,
         "field_of_tomorrow"),
        ("a field of tomorrow of images", asking.IMAGES, IMAGE_COUNTED, image(field_of_tomorrow=1),
         one, "field_of_tomorrow"),
        ("a field of tomorrow of embeddings", asking.EMBEDDINGS, EMBED,
         {"input": "{case}", "field_of_tomorrow": 1}, vector, "field_of_tomorrow"),
    )  # fmt: skip
    return [
        Vector(
            f"features / {name}",
            model,
            asking.ask(path, model, body),
            script,
            Refused(400, names=names),
        )
        for name, path, model, body, script, names in rows
    ]


def common() -> list[Vector]:
    made = []
    for number, name, fields in COMMON:
        talk = TALKS[number]
        answer = talk.whole(talk.usage(PROMPT_TOKENS, 90), USED)
        request = asking.ask(talk.path, talk.hiding, talk.ask(**fields))
        made.append(
            Vector(
                f"features / {talk.name} passes {name}",
                talk.hiding,
                request,
                Script((answer,)),
                Exact(),
                status=200,
            )
        )
    return made


def left_out() -> list[Vector]:
    """A search that is offered and not insisted on stays here, and the request is served without it."""
    talk = TALKS[1]
    function_a = {"type": "function", "name": "a", "parameters": {}}
    rows: tuple[tuple[str, dict[str, Any]], ...] = (
        ("alone", {"tools": [{"type": "web_search", "external_web_access": False}]}),
        ("an older one", {"tools": [function_a, {"type": "web_search_preview"}],
                          "tool_choice": "auto"}),
        ("a dated one", {"tools": [{"type": "web_search_2025_08_26"}, function_a]}),
        ("beside a function that is insisted on", {"tools": [function_a, {"type": "web_search"}],
                            "tool_choice": {"type": "function", "name": "a"}}),
    )  # fmt: skip
    return [
        Vector(
            f"features / a search that is offered is left out: {name}",
            talk.hiding,
            asking.ask(talk.path, talk.hiding, talk.ask(**fields)),
            Script((talk.whole(talk.usage(PROMPT_TOKENS, 90), USED),)),
            Exact(),
            status=200,
            checks=(stays("web_search"),),
        )
        for name, fields in rows
    ]


def stays(sign: str):
    """A check that no upstream was sent `sign`."""

    def check(case: Case, _: Reply) -> list[str]:
        sent = [received for received in case.received if sign.encode() in received.body]
        return [f"{sign} reached the upstream"] if sent else []

    return check


def passed() -> list[Vector]:
    """What an operator has checked passes, and is held at the whole context."""
    search = {"tools": [{"type": "web_search"}]}
    fetch = {"tools": [{"type": "web_fetch_20250910", "name": "web_fetch"}]}
    rows: tuple[tuple[int, str, dict[str, Any], dict[str, Any], str], ...] = (
        (0, "a field", {"pass_fields": ["enable_search"]}, {"enable_search": True}, "enable_search"),
        (0, "a tier", {"pass_fields": ["service_tier"]}, {"service_tier": "auto"}, "service_tier"),
        (0, "a tool", {"pass_tools": ["web_search"]}, search, "web_search"),
        (0, "content", {"pass_content": ["input_audio"]}, {"messages": heard("input_audio")},
         "input_audio"),
        (1, "a tool", {"pass_tools": ["web_search"]}, search, "web_search"),
        (2, "a tool", {"pass_tools": ["web_fetch_20250910"]}, fetch, "web_fetch"),
        (2, "a field", {"pass_fields": ["inference_geo"]}, {"inference_geo": "us"}, "inference_geo"),
    )  # fmt: skip
    made = []
    for at, (number, name, rules, fields, sign) in enumerate(rows):
        talk = TALKS[number]
        model = talk.hiding.own(f"{talk.hiding.name}-passes-{at}", rules=rules)
        used = Units(input=300_000, output=500)
        answer = talk.whole(talk.usage(used.input, used.output), used)
        request = asking.ask(talk.path, model, talk.ask(**fields))
        made.append(
            Vector(
                f"features / {talk.name}, {name} that the operator passes: {sign}",
                model,
                request,
                Script((answer,)),
                Exact(),
                status=200,
                checks=(arrives(sign),),
            )
        )
        poor = Vector(
            f"features / {talk.name}, {name} that is passed, poor: {sign}",
            model,
            request,
            Script((answer,)),
            Refused(402),
            credit="0.1",
        )
        if "tool" in name or name == "content":
            made.append(poor)
    return made


def arrives(sign: str):
    def check(case: Case, _: Reply) -> list[str]:
        bodies = [received.body for received in case.received]
        if bodies and all(sign.encode() in body for body in bodies):
            return []
        return [f"the upstream did not receive {sign}"]

    return check
