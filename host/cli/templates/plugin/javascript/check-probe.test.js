import assert from "node:assert/strict";
import test from "node:test";
import { http, IoError } from "transom-plugin/probe";
import { attempt } from "transom-plugin/testing";
import { WordProbe } from "./plugin.js";

const asked = { endpoint: { host: "10.0.0.1", port: 80 }, path: "/health" };
const answer = (response) => attempt(WordProbe.configured({ word: "ready" }), asked, [[http(asked), response]]);
const response = (status, body) => ({ status, headers: [], body: new TextEncoder().encode(body), elapsed: 1 });

test("the word is found", () => {
  assert.deepEqual(answer(response(200, "ready")), { found: true, status: 200 });
  assert.deepEqual(answer(response(503, "loading")), { found: false, status: 503 });
});

test("a closed port has no result", () => assert.equal(answer(new IoError("refused")).reason, "unreachable"));
