// Checks whether a Redis answers PING, as `redis-ping` in Rust does.
//
// A Redis that is loading its data accepts connections but answers every command with an error. A tcp check
// reports it as healthy, this check does not.
import * as log from "transom-plugin/log";
import { component, connect, Failed, Probe, receive, send, text } from "transom-plugin/probe";

// Maximum number of bytes of an answer. A status and an error are one short line each.
const MOST = 512;

export class RedisPing extends Probe {
  static about = { name: "redis-ping-javascript", version: "0.1.0", summary: "checks whether a Redis answers PING" };

  *attempt(request) {
    yield connect(request.endpoint);
    yield send("PING\r\n");
    let received = [];
    while (!received.includes(0x0d)) {
      if (received.length >= MOST) throw noRedis();
      received = [...received, ...(yield receive(MOST - received.length))];
    }
    const line = text(new Uint8Array(received.slice(0, received.indexOf(0x0d))));
    log.debug(`${request.task} answers ${line}`);
    if (line === "+PONG") return { pong: true };
    if (!line.startsWith("-")) throw noRedis();
    const error = line.slice(1).trim().split(/\s+/)[0];
    // A Redis that requires a password counts as healthy, because the check cannot tell more.
    return { pong: error === "NOAUTH", error };
  }
}

const noRedis = () => new Failed("invalid", "the server is not a Redis");

export const { about, probe } = component(RedisPing);
