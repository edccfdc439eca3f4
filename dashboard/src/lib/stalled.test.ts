/** Connections that are lost without an error: nothing arrives, and nothing fails. */

import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { Failure, change, get } from "./api";
import { type ServerEvent, follow } from "./sse";

/** A request of the code under test, whose answer the test sends. */
class FakeRequest {
  private body!: ReadableStreamDefaultController<Uint8Array>;
  private respond!: (response: Response) => void;
  readonly response: Promise<Response>;

  constructor(readonly signal: AbortSignal, readonly headers: Record<string, string> = {}) {
    this.response = new Promise((resolve, reject) => {
      this.respond = resolve;
      signal.addEventListener("abort", () => {
        const error = new DOMException("aborted", "AbortError");
        reject(error);
        this.body?.error(error);
      });
    });
  }

  async begin(status = 200): Promise<void> {
    this.respond(new Response(new ReadableStream({ start: (body) => void (this.body = body) }), { status }));
    await vi.advanceTimersByTimeAsync(0);
  }

  async send(text: string): Promise<void> {
    this.body.enqueue(new TextEncoder().encode(text));
    await vi.advanceTimersByTimeAsync(0);
  }

  async end(): Promise<void> {
    this.body.close();
    await vi.advanceTimersByTimeAsync(0);
  }

  async lose(): Promise<void> {
    this.body.error(new TypeError("network error"));
    await vi.advanceTimersByTimeAsync(0);
  }
}

let requests: FakeRequest[];
const seconds = (count: number) => vi.advanceTimersByTimeAsync(count * 1000);

beforeEach(() => {
  vi.useFakeTimers();
  requests = [];
  vi.stubGlobal("document", Object.assign(new EventTarget(), { hidden: false }));
  vi.stubGlobal("fetch", (_: string, options: { signal: AbortSignal; headers?: Record<string, string> }) => {
    const request = new FakeRequest(options.signal, options.headers);
    requests.push(request);
    return request.response;
  });
});

afterEach(() => {
  expect(vi.getTimerCount()).toBe(0);
  vi.useRealTimers();
  vi.unstubAllGlobals();
});

describe("follow", () => {
  const subscribe = () => {
    const states: (string | undefined)[] = [];
    const events: string[] = [];
    const stop = follow("/stream", { event: ({ data }) => events.push(data), state: (error) => states.push(error) });
    return { states, events, stop };
  };

  test("events are put together from pieces", async () => {
    const events: ServerEvent[] = [];
    const stop = follow("/stream", { event: (event) => events.push(event), state: () => undefined });
    await requests[0]!.begin();
    await requests[0]!.send("event: a\nda");
    expect(events).toEqual([]);
    await requests[0]!.send("ta: 1\ndata: 2\n\n:comment\n\ndata: x\r\n\r\n");
    expect(events).toEqual([{ type: "a", data: "1\n2" }, { type: "message", data: "x" }]);
    stop();
    await seconds(0);
  });

  test("a stream with a past begins with it, and continues after the last event", async () => {
    const events: string[] = [];
    const stop = follow("/stream", { event: ({ data }) => events.push(data), state: () => undefined }, 100);
    const lastIds = () => requests.map(({ headers }) => headers["Last-Event-ID"]);
    await requests[0]!.begin();
    await requests[0]!.send('id: 7-130\nevent: event_stream_gap\ndata: {"to":"7-130"}\n\nid: 7-131\ndata: 131\n\n');
    expect(requests[0]!.signal.aborted).toBe(true);
    expect(lastIds()).toEqual(["0-0", "7-30"]);
    await requests[1]!.begin();
    await requests[1]!.send("id: 7-31\ndata: 31\n\nid: 7-131\ndata: 131\n\n");
    await requests[1]!.end();
    await seconds(1);
    expect(lastIds()).toEqual(["0-0", "7-30", "7-131"]);
    await requests[2]!.begin();
    await requests[2]!.send('event: event_stream_gap\ndata: {"to":"8-1"}\n\n');
    expect(events).toEqual(["31", "131", '{"to":"8-1"}']);
    stop();
    await seconds(0);
  });

  test("a silent stream is reported and opened again", async () => {
    const { states, events, stop } = subscribe();
    await requests[0]!.begin();
    await requests[0]!.send("data: 1\n\n");
    await seconds(44);
    expect(states).toEqual([undefined]);
    await seconds(1);
    expect(states).toEqual([undefined, "no data for 45 s"]);
    expect(requests[0]!.signal.aborted).toBe(true);
    await seconds(1);
    await requests[1]!.begin();
    await requests[1]!.send("data: 2\n\n");
    expect(states).toEqual([undefined, "no data for 45 s", undefined]);
    expect(events).toEqual(["1", "2"]);
    stop();
    await seconds(0);
  });

  test("any data keeps the stream open", async () => {
    const { states, stop } = subscribe();
    await requests[0]!.begin();
    for (let count = 0; count < 20; count++) {
      await seconds(30);
      await requests[0]!.send("\n");
    }
    expect(requests).toHaveLength(1);
    expect(states).toEqual([undefined]);
    stop();
    await seconds(0);
  });

  test("a stream that does not begin is reported too", async () => {
    const { states, stop } = subscribe();
    await seconds(45);
    expect(states).toEqual(["no data for 45 s"]);
    await seconds(1);
    expect(requests).toHaveLength(2);
    stop();
    await seconds(0);
    expect(states).toHaveLength(1);
  });
});

describe("requests", () => {
  const failure = (answer: Promise<unknown>) => answer.then(() => undefined, (error: Failure) => [error.status, error.message]);

  test("an answer that stops fails", async () => {
    const failed = failure(get("/list"));
    await seconds(19);
    await requests[0]!.begin();
    await requests[0]!.send("[1,");
    await seconds(20);
    expect(await failed).toEqual([0, "the answer stopped: no data for 20 s"]);
    expect(requests[0]!.signal.aborted).toBe(true);
  });

  test("a long answer may take longer than the timeout", async () => {
    const answer = get<number[]>("/list");
    await requests[0]!.begin();
    for (const piece of ["[1,", "2,", "3,", "4]"]) {
      await seconds(15);
      await requests[0]!.send(piece);
    }
    await requests[0]!.end();
    expect(await answer).toEqual([1, 2, 3, 4]);
  });

  test("an answer that does not begin, a lost connection and a rejection are told apart", async () => {
    const silent = failure(get("/list"));
    await seconds(20);
    expect(await silent).toEqual([0, "no answer within 20 s"]);

    const lost = failure(change("POST", "/list"));
    await requests[1]!.begin();
    await requests[1]!.lose();
    expect(await lost).toEqual([0, "the connection was lost"]);

    const rejected = failure(change("POST", "/list"));
    await requests[2]!.begin(403);
    await requests[2]!.send('{"message": "no"}');
    await requests[2]!.end();
    expect(await rejected).toEqual([403, "no"]);

    const unexplained = failure(change("POST", "/list"));
    await requests[3]!.begin(503);
    await seconds(20);
    expect(await unexplained).toEqual([503, "status 503"]);
  });

  test("leaving the page ends the download", async () => {
    const control = new AbortController();
    const left = failure(get("/list", control.signal));
    await requests[0]!.begin();
    control.abort();
    await left;
    expect(requests[0]!.signal.aborted).toBe(true);
  });
});
