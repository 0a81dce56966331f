// The Node libraries of OpenAI and Anthropic against an edge at $EDGE; ends with an error at what is
// not as it should be.

import assert from "node:assert/strict";
import Anthropic from "@anthropic-ai/sdk";
import OpenAI from "openai";

const { EDGE } = process.env;
const openai = new OpenAI({ baseURL: `${EDGE}/v1`, apiKey: "none", maxRetries: 0 });
const anthropic = new Anthropic({ baseURL: EDGE, apiKey: "none", maxRetries: 0 });
const hello = [{ role: "user", content: "hello" }];
const chat = (more) => openai.chat.completions.create({ model: "m", messages: hello, max_tokens: 5, ...more });

const answer = await chat();
assert.equal(answer.choices[0].message.content.length, 20);
assert.equal(answer.usage.completion_tokens, 5);
console.log("ok an answer is whole");

let text = "";
for await (const chunk of await chat({ stream: true })) text += chunk.choices[0]?.delta?.content ?? "";
assert.equal(text, answer.choices[0].message.content);
console.log("ok a stream says the same");

const look = { type: "function", function: { name: "look", parameters: { type: "object", properties: {} } } };
const forced = { type: "function", function: { name: "look" } };
const called = await chat({ tools: [look], tool_choice: forced });
const streamed = openai.chat.completions.stream({ model: "m", messages: hello, max_tokens: 5, tools: [look], tool_choice: forced });
const [whole, parts] = [called, await streamed.finalChatCompletion()].map(
  (completion) => completion.choices[0].message.tool_calls[0].function,
);
assert.deepEqual([whole.name, JSON.parse(whole.arguments)], [parts.name, JSON.parse(parts.arguments)]);
console.log("ok a tool is called, whole and streamed");

const message = anthropic.messages.stream({ model: "m", max_tokens: 5, messages: hello });
assert.equal((await message.finalMessage()).content[0].text, text);
console.log("ok a message is put together");

for (const [kind, status, code, more] of [
  [OpenAI.NotFoundError, 404, "model_not_found", { model: "nobody-has-this" }],
  [OpenAI.APIError, 413, "body_too_large", { messages: [{ role: "user", content: "x".repeat(300000) }] }],
  [OpenAI.RateLimitError, 429, undefined, { model: "says-429" }],
  [OpenAI.BadRequestError, 400, undefined, { model: "says-400" }],
  [OpenAI.InternalServerError, 503, "no_routable_worker", { model: "drained", stream: true }],
]) {
  await assert.rejects(chat(more), (error) => {
    assert.ok(error instanceof kind, `${status}: ${error}`);
    assert.deepEqual([error.status, error.code], [status, code]);
    return true;
  });
}
await assert.rejects(anthropic.messages.create({ model: "nobody-has-this", max_tokens: 5, messages: hello }), Anthropic.NotFoundError);
console.log("ok each error is the library's own");

const leaving = await chat({ stream: true, max_tokens: 500000 });
for await (const chunk of leaving) if (chunk.choices[0].delta.content) break;
console.log("ok a client may leave in the middle");
