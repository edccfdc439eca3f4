import assert from "node:assert/strict";
import test from "node:test";
import { connect, IoError, receive, send } from "transom-plugin/probe";
import { attempt } from "transom-plugin/testing";
import { RedisPing } from "./plugin.js";

const endpoint = { host: "10.0.0.1", port: 6379 };
const bytes = (text) => new TextEncoder().encode(text);
const answers = (...received) =>
  attempt(new RedisPing({}), { endpoint }, [[connect(endpoint), 1], [send("PING\r\n"), undefined], ...received]);

test("an answer may arrive in parts", () => {
  assert.deepEqual(answers([receive(512), bytes("+PO")], [receive(509), bytes("NG\r\n")]), { pong: true });
});

test("a Redis that loads its data is not healthy", () => {
  assert.deepEqual(answers([receive(512), bytes("-LOADING data\r\n")]), { pong: false, error: "LOADING" });
});

test("other servers have no result", () => {
  assert.equal(answers([receive(512), bytes("HTTP/1.1 400\r\n")]).reason, "invalid");
  assert.equal(attempt(new RedisPing({}), { endpoint }, [[connect(endpoint), new IoError("refused")]]).reason, "unreachable");
});
