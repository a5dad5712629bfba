// Vercel's AI SDK, unchanged, on models whose providers speak another protocol than the SDK does: sessions
// of twenty turns with tools and a picture, streamed. tests/operations/node_sdks.rs runs it.

import assert from "node:assert/strict";
import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAI } from "@ai-sdk/openai";
import { generateText, jsonSchema, stepCountIs, streamText, tool } from "ai";

const baseURL = `${process.env.TOLLGATE_BASE_URL}/v1`;
const apiKey = process.env.TOLLGATE_API_KEY;
const anthropic = createAnthropic({ baseURL, apiKey });
const openai = createOpenAI({ baseURL, apiKey });
const [chatOnly, responsesOnly, claude] = ["deepseek-v4-flash", "gpt-5-mini", "claude-sonnet-4-5"];
const picture =
  "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

const sessions = {
  "messages over chat": anthropic(chatOnly),
  "messages over responses": anthropic(responsesOnly),
  "chat over messages": openai.chat(claude),
  "chat over responses": openai.chat(responsesOnly),
  "responses over messages": openai.responses(claude),
  "responses over chat": openai.responses(chatOnly),
};

const tools = {
  weather: tool({
    description: "The weather.",
    inputSchema: jsonSchema({
      type: "object",
      properties: { city: { type: "string" } },
      required: ["city"],
      additionalProperties: false,
    }),
    execute: async ({ city }) => `Rain in ${city}`,
  }),
};

// Nothing is stored at a provider for customers of another protocol: without this the SDK sends references
// to what it takes to be stored there.
// Thinking is on in both.
const providerOptions = {
  openai: { store: false, reasoningEffort: "low", reasoningSummary: "auto" },
  anthropic: { thinking: { type: "enabled", budgetTokens: 1024 } },
};

async function session(model) {
  const messages = [
    {
      role: "user",
      content: [
        { type: "image", image: Buffer.from(picture, "base64"), mediaType: "image/png" },
        { type: "text", text: "How is the weather there?" },
      ],
    },
  ];
  for (let turn = 0; turn < 10; turn += 1) {
    const asked = { model, providerOptions, system: "Be short.", messages, tools, maxRetries: 0, stopWhen: stepCountIs(2) };
    let text = "";
    let inputs = "";
    let result;
    if (turn % 3 < 2) {
      result = streamText({ ...asked, onError: () => {} });
      for await (const part of result.stream ?? result.fullStream) {
        if (part.type === "error") throw part.error;
        if (part.type === "text-delta") text += part.text ?? part.delta;
        if (part.type === "tool-input-delta") inputs += part.delta;
      }
      assert.deepEqual(JSON.parse(inputs), { city: "sample" });
      assert.equal(text, await result.text);
    } else {
      result = await generateText(asked);
      text = result.text;
    }
    assert.ok(text.length > 0);
    const steps = await result.steps;
    assert.deepEqual(steps.map((step) => step.finishReason), ["tool-calls", "stop"]);
    assert.deepEqual(steps[0].toolResults.map((one) => one.output), ["Rain in sample"]);
    for (const step of steps) {
      assert.ok(step.usage.inputTokens > 0 && step.usage.outputTokens > 0, JSON.stringify(step.usage));
    }
    messages.push(...(await result.response).messages, { role: "user", content: "And tomorrow?" });
  }
}

for (const [name, model] of Object.entries(sessions)) {
  await session(model).catch((error) => {
    error.message = `${name}: ${error.message}`;
    throw error;
  });
  console.log(`${name}: 20 turns`);
}
