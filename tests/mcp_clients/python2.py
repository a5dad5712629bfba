"""The Python SDK, version 2, against the server for agents, in both eras of the protocol."""

import asyncio
import os

import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

URL, KEY = os.environ["MCP_URL"], os.environ["TOLLGATE_API_KEY"]


async def use(mode):
    headers = {"Authorization": f"Bearer {KEY}"}
    async with httpx2.AsyncClient(headers=headers, timeout=60) as http:
        async with Client(streamable_http_client(URL, http_client=http), mode=mode) as client:
            tools = [tool.name for tool in (await client.list_tools()).tools]
            assert len(tools) == 9, tools

            answer = await client.call_tool("chat", {"model": "gpt-4o-mini", "prompt": "Hi"})
            assert not answer.is_error and "Simulated" in answer.content[0].text, answer
            assert float(answer.structured_content["cost_usd"]) > 0, answer

            refused = await client.call_tool("chat", {"model": "nope", "prompt": "Hi"})
            assert refused.is_error, refused
            assert refused.structured_content["error"]["code"] == "model_not_found", refused

            image = await client.call_tool("generate_image", {"model": "pimg-1", "prompt": "a"})
            assert image.content[0].type == "image", image

            order = {"model": "vf2.7-t2v", "prompt": f"a lighthouse, {mode}"}
            video = await client.call_tool("submit_video", order)
            told = []

            async def progress(now, total, message):
                told.append((now, total, message))

            made = await client.call_tool(
                "get_video",
                {"id": video.structured_content["id"], "wait_seconds": 60},
                progress_callback=progress,
            )
            assert made.structured_content["status"] == "succeeded", made
            assert made.content[1].type == "resource_link", made
            assert told, "progress is told"
            return client.protocol_version


async def main():
    versions = [str(await use(mode)) for mode in ("auto", "legacy")]
    assert versions[0] == "2026-07-28" and versions[1] < versions[0], versions
    try:
        async with Client(URL) as client:
            await client.list_tools()
    except BaseException as error:
        print("refused:", error)
    else:
        raise AssertionError("nobody gets in without a key")
    print("python 2: ok", *versions)


asyncio.run(main())
