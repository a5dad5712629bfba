"""What upstreams run beside the model, and what has a price of its own: searches, code, sound, requests."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from ..arithmetic import Units
from ..catalogue import (
    CHAT_FEES,
    CHAT_PICTURES,
    MESSAGES_FEES,
    RESPONSES_FEES,
    RESPONSES_PICTURES,
)
from ..dialects import (
    chat,
    chat_document,
    chat_stream,
    event,
    in_pieces,
    messages,
    messages_document,
    messages_stream,
    responses,
    responses_document,
    responses_stream,
)
from ..script import Answer, Script, Send
from ..vector import Exact, Refused, Vector
from . import asking
from .chat import prompt_details
from .chat import usage as chat_usage
from .features import heard
from .messages import usage as messages_usage
from .responses import usage as responses_usage


def search(action: str = "search") -> dict[str, Any]:
    return {"type": "web_search_call", "id": "ws", "status": "completed", "action": {"type": action}}


def code(container: str) -> dict[str, Any]:
    return {"type": "code_interpreter_call", "code": "1", "container_id": container}


#: The tools that are offered, the items of the answer, and what they are billed as.
RAN: tuple[tuple[str, list[dict[str, Any]], list[dict[str, Any]], dict[str, int]], ...] = (
    ("no search of the one that was offered", [{"type": "web_search"}], [], {}),
    ("a search", [{"type": "web_search"}], [search()], {"web_searches": 1}),
    ("searches and pages", [{"type": "web_search_2025_08_26"}],
     [search(), search("open_page"), search("find_in_page"), search()], {"web_searches": 2}),
    ("a search in files", [{"type": "file_search", "vector_store_ids": ["v"]}],
     [{"type": "file_search_call", "queries": ["q"], "results": None}], {"file_searches": 1}),
    ("code in one container", [{"type": "code_interpreter", "container": {"type": "auto"}}],
     [code("cntr_1"), code("cntr_1")], {"containers": 1}),
    ("code in two containers", [{"type": "code_interpreter", "container": {"type": "auto"}}],
     [code("cntr_1"), code("cntr_2")], {"containers": 2}),
    ("a picture", [{"type": "image_generation"}],
     [{"type": "image_generation_call", "result": "iVBORw0KGgo="}], {"images": 1}),
    ("a server of tools", [{"type": "mcp", "server_label": "s", "server_url": "https://e.com"}],
     [{"type": "mcp_list_tools", "tools": []}, {"type": "mcp_call"}, {"type": "mcp_call"}],
     {"tool_calls": 2}),
    ("all of them", [{"type": "web_search"}, {"type": "code_interpreter"}, {"type": "file_search"}],
     [search(), code("cntr_1"), {"type": "file_search_call"}, search()],
     {"web_searches": 2, "containers": 1, "file_searches": 1}),
)  # fmt: skip


def with_items(answer: Answer, items: list[dict[str, Any]]) -> Answer:
    """The response with these items before its message."""
    mark = b'"output": ['
    some = b"".join(json.dumps(item).encode() + b", " for item in items)
    steps = tuple(
        replace(step, data=step.data.replace(mark, mark + some)) if isinstance(step, Send) else step
        for step in answer.steps
    )
    return replace(answer, steps=steps)


def with_events(answer: Answer, items: list[dict[str, Any]]) -> Answer:
    """The stream with an event for each item, begun and done, and all of them in the last one."""
    first, *rest = with_items(answer, items).steps
    told = []
    for item in items:
        for kind in ("response.output_item.added", "response.output_item.done"):
            told.append(Send(event({"type": kind, "output_index": 0, "item": item}, kind)))
    return replace(answer, steps=(first, *told, *rest))


def vectors() -> list[Vector]:
    return [*of_responses(), *of_pictures(), *of_messages(), *of_chat(), *refused()]


def of_responses() -> list[Vector]:
    made = []
    model = RESPONSES_FEES
    for name, tools, items, ran in RAN:
        used = Units(input=900, output=95, **ran)
        reported = responses_usage(900, 95)
        whole = with_items(responses_document(reported, used), items)
        stream = with_events(responses_stream(reported, used), items)
        for shape, fields, answer in (
            ("json", {}, whole),
            ("json in pieces", {}, in_pieces(whole, 7)),
            ("stream", {"stream": True}, stream),
            ("stream in pieces", {"stream": True}, in_pieces(stream, 11)),
        ):
            made.append(
                Vector(
                    f"fees / responses, {name}, {shape}",
                    model,
                    asking.ask(asking.RESPONSES, model, responses(tools=tools, **fields)),
                    Script((answer,)),
                    Exact(),
                    status=200,
                )
            )
    return made


def of_pictures() -> list[Vector]:
    """Pictures of a tool cost what their size and quality cost, and without a word the most."""
    model = RESPONSES_PICTURES
    made = {"type": "image_generation_call", "result": "iVBORw0KGgo="}
    rows: tuple[tuple[str, list[dict[str, Any]], dict[str, Any]], ...] = (
        ("nothing said", [{}], {}),
        ("whatever fits", [{"quality": "auto", "size": "auto"}], {}),
        ("coarse", [{"quality": "low", "size": "1536x1024"}], {"quality": "low"}),
        ("medium", [{"quality": "medium", "size": "1024x1024"}],
         {"quality": "medium", "size": "1024x1024"}),
        ("medium and wide", [{"quality": "medium", "size": "1536x1024"}], {}),
        ("one of two", [{"quality": "low"}, {"quality": "high"}], {}),
    )  # fmt: skip
    used = Units(input=900, output=95, images=2)
    reported = responses_usage(900, 95)
    return [
        Vector(
            f"fees / responses, pictures, {name}, {shape}",
            model,
            asking.ask(
                asking.RESPONSES,
                model,
                responses(tools=[{"type": "image_generation", **tool} for tool in tools], **fields),
            ),
            Script((answer,)),
            Exact(),
            prices=model.priced(**traits),
            status=200,
        )
        for name, tools, traits in rows
        for shape, fields, answer in (
            ("json", {}, with_items(responses_document(reported, used), [made, made])),
            ("stream", {"stream": True}, with_events(responses_stream(reported, used), [made, made])),
            # Some upstreams tell of what ran with their last event alone.
            ("stream, at its end", {"stream": True}, with_items(responses_stream(reported, used), [made, made])),
        )
    ]


def of_messages() -> list[Vector]:
    model = MESSAGES_FEES
    web = {"type": "web_search_20250305", "name": "web_search", "max_uses": 5}
    fetch = {"type": "web_fetch_20250910", "name": "web_fetch"}
    runs = {"type": "code_execution_20250825", "name": "code_execution"}
    ran_code = {"type": "server_tool_use", "id": "s", "name": "bash_code_execution", "input": {}}
    rows: tuple[tuple[str, list[Any], dict[str, Any], list[Any], dict[str, int]], ...] = (
        ("no search", [web], {}, [], {}),
        ("three searches", [web], {"server_tool_use": {"web_search_requests": 3}}, [],
         {"web_searches": 3}),
        ("searches and fetches", [web, fetch],
         {"server_tool_use": {"web_search_requests": 1, "web_fetch_requests": 4}}, [],
         {"web_searches": 1}),
        ("fetches alone", [fetch], {"server_tool_use": {"web_fetch_requests": 2}}, [], {}),
        ("code", [runs], {}, [ran_code, ran_code], {"containers": 1}),
    )  # fmt: skip
    made = []
    for name, tools, told, blocks, ran in rows:
        used = Units(input=800, output=90, **ran)
        reported = messages_usage(800, 90, **told)
        whole = messages_document(reported, used)
        mark = b'"content": ['
        some = b"".join(json.dumps(block).encode() + b", " for block in blocks)
        whole = replace(
            whole,
            steps=tuple(replace(step, data=step.data.replace(mark, mark + some)) for step in whole.steps),
        )
        first, *rest = messages_stream(reported, used).steps
        starts = [
            Send(event({"type": "content_block_start", "index": 0, "content_block": block},
                       "content_block_start"))
            for block in blocks
        ]  # fmt: skip
        stream = replace(messages_stream(reported, used), steps=(first, *starts, *rest))
        for shape, fields, answer in (
            ("json", {}, whole),
            ("json in pieces", {}, in_pieces(whole, 7)),
            ("stream", {"stream": True}, stream),
        ):
            made.append(
                Vector(
                    f"fees / messages, {name}, {shape}",
                    model,
                    asking.ask(asking.MESSAGES, model, messages(tools=tools, **fields)),
                    Script((answer,)),
                    Exact(),
                    status=200,
                )
            )
    return made


def of_chat() -> list[Vector]:
    spoken = {"audio": {"voice": "alloy", "format": "wav"}, "modalities": ["text", "audio"]}
    rows: tuple[tuple[str, dict[str, Any], dict[str, Any], Units], ...] = (
        ("a request", {}, chat_usage(50, 60), Units(input=50, output=60)),
        ("xAI's sources", {"search_parameters": {"mode": "on"}},
         chat_usage(50, 60, num_sources_used=7), Units(input=50, output=60, web_searches=7)),
        ("Qwen's searches", {"enable_search": True},
         chat_usage(50, 60, plugins={"search": {"count": 2, "strategy": "turbo"}}),
         Units(input=50, output=60, web_searches=2)),
        ("what is heard", {"messages": heard("input_audio")},
         chat_usage(950, 60, **prompt_details(cached_tokens=100, audio_tokens=800)),
         Units(input=50, cache_read=100, audio_in=800, output=60)),
        ("what is watched", {"messages": heard("video_url")},
         chat_usage(950, 60, **prompt_details(cached_tokens=100, text_tokens=50, video_tokens=800)),
         Units(input=50, cache_read=100, video_in=800, output=60)),
        ("what is watched and heard", {"messages": heard("video_url")},
         chat_usage(950, 60, **prompt_details(audio_tokens=300, video_tokens=600)),
         Units(input=50, audio_in=300, video_in=600, output=60)),
        ("more watched than put in", {"messages": heard("video")},
         chat_usage(50, 60, **prompt_details(audio_tokens=10, video_tokens=800)),
         Units(input=50, audio_in=10, video_in=800, output=60)),
        ("what is spoken", spoken,
         chat_usage(50, 260, completion_tokens_details={"audio_tokens": 200}),
         Units(input=50, output=60, audio_out=200)),
    )  # fmt: skip
    drawn = {"completion_tokens_details": {"image_tokens": 200, "reasoning_tokens": 10}}
    pictures: tuple[tuple[str, dict[str, Any], dict[str, Any], Units], ...] = (
        ("what is drawn", {"modalities": ["image", "text"]}, chat_usage(50, 260, **drawn),
         Units(input=50, output=60, image_out=200)),
        ("what is drawn unasked", {}, chat_usage(50, 260, **drawn),
         Units(input=50, output=60, image_out=200)),
        ("more drawn than put out", {"modalities": ["image"]},
         chat_usage(50, 90, completion_tokens_details={"image_tokens": 200}),
         Units(input=50, output=90, image_out=200)),
    )  # fmt: skip
    return [
        Vector(
            f"fees / chat, {name}, {shape}",
            model,
            asking.ask(asking.CHAT, model, chat(**fields, **more)),
            Script((make(reported, used),)),
            Exact(),
            status=200,
        )
        for model, name, fields, reported, used in (
            *((CHAT_FEES, *head, replace(used, requests=1)) for *head, used in rows),
            *((CHAT_PICTURES, *row) for row in pictures),
        )
        for shape, more, make in (
            ("json", {}, chat_document),
            ("stream", {"stream": True}, chat_stream),
        )
    ]


def refused() -> list[Vector]:
    """Nothing is run that cannot be paid, at the most that it can come to."""
    answer = responses_document(responses_usage(50, 60), Units(input=50, output=60))
    # A search may read 128,000 tokens in each of two rounds, and put out 100 in each: $0.266.
    body = responses(tools=[{"type": "web_search"}], max_tool_calls=1, max_output_tokens=100)
    # The context twice as sound, output and the request come to $10.48 at most, and 50 sources to $1.25.
    sources = chat(search_parameters={"max_search_results": 50}, max_tokens=100)
    found = Units(input=50, output=60, requests=1, web_searches=50)
    heard_of = chat_document(chat_usage(50, 60, num_sources_used=50), found)
    dearer = {
        "a model": {"model": "gpt-image-2"},
        "what is half done": {"partial_images": 3},
        "faithfulness": {"input_fidelity": "high"},
    }
    return [
        *(
            Vector(
                f"fees / pictures with {name}",
                RESPONSES_PICTURES,
                asking.ask(
                    asking.RESPONSES,
                    RESPONSES_PICTURES,
                    responses(tools=[{"type": "image_generation", **more}]),
                ),
                Script((answer,)),
                Refused(400, names=next(iter(more))),
            )
            for name, more in dearer.items()
        ),
        Vector(
            "fees / sources that cannot be paid",
            CHAT_FEES,
            asking.ask(asking.CHAT, CHAT_FEES, sources),
            Script((heard_of,)),
            Refused(402),
            credit="11.5",
        ),
        Vector(
            "fees / sources that can be paid",
            CHAT_FEES,
            asking.ask(asking.CHAT, CHAT_FEES, sources),
            Script((heard_of,)),
            Exact(),
            credit="12",
            status=200,
        ),
        Vector(
            "fees / a search that cannot be paid",
            RESPONSES_FEES,
            asking.ask(asking.RESPONSES, RESPONSES_FEES, body),
            Script((answer,)),
            Refused(402),
            credit="0.02",
        ),
        Vector(
            "fees / a search that can be paid",
            RESPONSES_FEES,
            asking.ask(asking.RESPONSES, RESPONSES_FEES, body),
            Script((answer,)),
            Exact(),
            credit="0.60",
            status=200,
        ),
    ]
