"""The Python SDK, version 1, against the server for agents."""

import asyncio
import os
from datetime import timedelta

import httpx
from mcp import ClientSession
from mcp.client.streamable_http import streamable_http_client

URL, KEY = os.environ["MCP_URL"], os.environ["TOLLGATE_API_KEY"]


async def main():
    headers = {"Authorization": f"Bearer {KEY}"}
    async with httpx.AsyncClient(headers=headers, timeout=60) as http:
        async with streamable_http_client(URL, http_client=http) as (read, write, session_id):
            async with ClientSession(read, write) as session:
                begun = await session.initialize()
                assert begun.serverInfo.name == "tollgate", begun
                assert session_id() is None, "no session"
                tools = [tool.name for tool in (await session.list_tools()).tools]
                assert len(tools) == 9, tools

                answer = await session.call_tool("chat", {"model": "gpt-4o-mini", "prompt": "Hi"})
                assert not answer.isError and "Simulated" in answer.content[0].text, answer
                assert float(answer.structuredContent["cost_usd"]) > 0, answer

                refused = await session.call_tool("chat", {"model": "nope", "prompt": "Hi"})
                assert refused.isError, refused
                assert refused.structuredContent["error"]["code"] == "model_not_found", refused

                image = await session.call_tool("generate_image", {"model": "pimg-1", "prompt": "a"})
                assert image.content[0].type == "image", image
                assert image.content[0].mimeType == "image/png", image

                order = {"model": "vf2.7-t2v", "prompt": "a lighthouse"}
                video = await session.call_tool("submit_video", order)
                told = []

                async def progress(now, total, message):
                    told.append((now, total, message))

                made = await session.call_tool(
                    "get_video",
                    {"id": video.structuredContent["id"], "wait_seconds": 60},
                    read_timeout_seconds=timedelta(seconds=60),
                    progress_callback=progress,
                )
                assert made.structuredContent["status"] == "succeeded", made
                assert made.content[1].type == "resource_link", made
                assert told, "progress is told"
    try:
        async with streamable_http_client(URL) as (read, write, _):
            async with ClientSession(read, write) as session:
                await session.initialize()
    except BaseException as error:
        assert "401" in repr(flat(error)), flat(error)
    else:
        raise AssertionError("nobody gets in without a key")
    print("python 1: ok")


def flat(error):
    inner = getattr(error, "exceptions", None)
    return [one for each in inner for one in flat(each)] if inner else [error]


asyncio.run(main())
