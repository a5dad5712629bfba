// The TypeScript SDKs, versions 1 and 2, against the server for agents.

import assert from "node:assert/strict";

const url = new URL(process.env.MCP_URL);
const headers = { Authorization: `Bearer ${process.env.TOLLGATE_API_KEY}` };

const one = {
  ...(await import("@modelcontextprotocol/sdk/client/index.js")),
  ...(await import("@modelcontextprotocol/sdk/client/streamableHttp.js")),
};
const two = await import("@modelcontextprotocol/client");

async function use(sdk, name, options, progressOf) {
  const client = new sdk.Client({ name, version: "1.0.0" }, options);
  await client.connect(new sdk.StreamableHTTPClientTransport(url, { requestInit: { headers } }));
  const { tools } = await client.listTools();
  assert.equal(tools.length, 9);

  const call = (tool, args) => client.callTool({ name: tool, arguments: args });
  const answer = await call("chat", { model: "gpt-4o-mini", prompt: "Hi" });
  assert.match(answer.content[0].text, /Simulated/);
  assert.ok(Number(answer.structuredContent.cost_usd) > 0);

  const refused = await call("chat", { model: "nope", prompt: "Hi" });
  assert.equal(refused.isError, true);
  assert.equal(refused.structuredContent.error.code, "model_not_found");

  const image = await call("generate_image", { model: "pimg-1", prompt: "a" });
  assert.equal(image.content[0].type, "image");

  const begun = await call("submit_video", { model: "vf2.7-t2v", prompt: `a lighthouse, ${name}` });
  const told = [];
  const wait = { id: begun.structuredContent.id, wait_seconds: 60 };
  const asked = { name: "get_video", arguments: wait };
  const made = await progressOf(client, asked, { onprogress: (one) => told.push(one) });
  assert.equal(made.structuredContent.status, "succeeded");
  assert.equal(made.content[1].type, "resource_link");
  assert.ok(told.length > 0, "progress is told");
  await client.close();
  console.log(`${name}: ok`);
}

await use(one, "typescript 1", {}, (client, asked, options) =>
  client.callTool(asked, undefined, options),
);
await use(two, "typescript 2", {}, (client, asked, options) => client.callTool(asked, options));

for (const [sdk, name] of [[one, "typescript 1"], [two, "typescript 2"]]) {
  const client = new sdk.Client({ name, version: "1.0.0" });
  await assert.rejects(client.connect(new sdk.StreamableHTTPClientTransport(url)), name);
}
console.log("both are refused without a key");
