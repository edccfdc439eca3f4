// Whether a Redis answers PING, as `redis-ping` in Rust does it.
//
// A Redis that loads its data takes connections and answers nothing but errors: a tcp check calls it well, this one
// does not.
import * as log from "transom-plugin/log";
import { component, connect, Failed, Probe, receive, send, text } from "transom-plugin/probe";

// Bytes of an answer: a status and an error are one short line each.
const MOST = 512;

export class RedisPing extends Probe {
  static about = { name: "redis-ping-javascript", version: "0.1.0", summary: "whether a Redis answers PING" };

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
    // One that asks for a password is well as far as can be told.
    return { pong: error === "NOAUTH", error };
  }
}

const noRedis = () => new Failed("invalid", "what answers there is no Redis");

export const { about, probe } = component(RedisPing);
