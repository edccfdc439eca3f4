import { describe, expect, test } from "vitest";
import { duration, megabytes, micros, displayText, elapsedSince } from "./format";
import { Series, samples } from "./metrics";
import { OutputDecoder } from "./output";
import { type App, appHealth, treeRows } from "./tree";
import { type PluginFiles, requestBody, toPluginFiles } from "./upload";
import { type Queue, type QueueItem, conditions, waitingSummary } from "./waiting";

function app(id: string, more: Partial<App> = {}): App {
  return {
    id, instances: 1, cpus: 1, mem: 1, disk: 0, gpus: 0, tasksStaged: 0, tasksRunning: 1, tasksHealthy: 0,
    tasksUnhealthy: 0, deployments: [], ...more,
  };
}

describe("format", () => {
  test("hidden characters are made visible and markup stays text", () => {
    expect(displayText("<script>alert(1)</script>")).toBe("<script>alert(1)</script>");
    expect(displayText("\u001b[31mred")).toBe("\\u001b[31mred");
    expect(displayText("a\u202eb")).toBe("a\\u202eb");
    expect(displayText("x".repeat(10), 3)).toBe("xxx…");
    expect(displayText(null)).toBe("");
  });

  test("amounts have the unit that people read", () => {
    expect([megabytes(512), megabytes(1536), megabytes(3 * 1024 * 1024)]).toEqual(["512 MB", "1.5 GB", "3 TB"]);
    expect([duration(59), duration(61), duration(3700), duration(90000)]).toEqual([
      "59 s", "1 min 1 s", "1 h 1 min", "1 d 1 h",
    ]);
    expect([micros(null), micros(114), micros(1500)]).toEqual(["–", "114 µs", "1.5 ms"]);
    expect(elapsedSince("2026-01-01T00:00:00Z", Date.parse("2026-01-01T00:01:00Z"))).toBe("1 min 0 s");
    expect(elapsedSince("nonsense")).toBe("");
  });
});

describe("tree", () => {
  const apps = [app("/shop/web", { instances: 3 }), app("/shop/db/main"), app("/alone")];

  test("groups come first, with sums of everything below them", () => {
    const found = treeRows(apps, new Set(), { text: "" });
    expect(found.map((row) => `${row.depth} ${row.kind} ${row.name}`)).toEqual([
      "0 group shop", "1 group db", "2 app main", "1 app web", "0 app alone",
    ]);
    expect(found[0]?.kind === "group" && found[0].sums).toEqual({ apps: 2, instances: 4, running: 2, unhealthy: 0 });
  });

  test("a closed group hides what is in it unless a filter asks for it", () => {
    expect(treeRows(apps, new Set(["/shop"]), { text: "" }).map((row) => row.name)).toEqual(["shop", "alone"]);
    expect(treeRows(apps, new Set(["/shop"]), { text: "MAIN" }).map((row) => row.name)).toEqual(["shop", "db", "main"]);
  });

  test("state names what an operator looks for first", () => {
    expect(appHealth(app("/a", { tasksUnhealthy: 1 }))).toBe("unhealthy");
    expect(appHealth(app("/a", { instances: 0 }))).toBe("suspended");
    expect(appHealth(app("/a", { instances: 2 }))).toBe("waiting");
    expect(appHealth(app("/a", { instances: 2, tasksStaged: 1 }))).toBe("deploying");
    expect(appHealth(app("/a", { healthChecks: [{}] }))).toBe("healthy");
    expect(appHealth(app("/a"))).toBe("running");
  });
});

describe("why", () => {
  const item = (more: Partial<QueueItem>): QueueItem => ({
    count: 1, since: "", delay: { timeLeftSeconds: 0, overdue: true },
    processedOffersSummary: { processedOffersCount: 3, unusedOffersCount: 3, rejectSummaryLastOffers: [] },
    ...more,
  });

  const words: Queue["words"] = {
    UnfulfilledConstraint: { label: "constraints", sentence: "offers come from rejected agents", advice: "Relax it.", kind: "offer" },
    InsufficientPorts: { label: "ports", sentence: "offers have too few ports", advice: "Free it.", kind: "offer" },
    NoOffers: { label: "offers", sentence: "no offer has arrived yet", advice: "Check.", kind: "obstacle" },
  };

  test("summary names the conditions on which offers failed", () => {
    const waiting = item({
      processedOffersSummary: {
        processedOffersCount: 3, unusedOffersCount: 3,
        rejectSummaryLastOffers: [
          { reason: "UnfulfilledConstraint", declined: 1, processed: 3 },
          { reason: "InsufficientCpus", declined: 2, processed: 2 },
          { reason: "Other", declined: 0, processed: 0 },
        ],
      },
    });
    expect(waitingSummary(waiting, words)).toBe("constraints: 1 of 3 offers come from rejected agents; InsufficientCpus: 2 of 2 offers failed");
    expect(conditions(waiting, words).map(({ label, advice }) => [label, advice])).toEqual([
      ["constraints", "Relax it."], ["InsufficientCpus", undefined], ["Other", undefined],
    ]);
    const text = "host port 80 is in none of 3 offers: agents offer 31000-32000";
    const fixed = item({
      processedOffersSummary: {
        processedOffersCount: 3, unusedOffersCount: 3,
        rejectSummaryLastOffers: [{ reason: "InsufficientPorts", declined: 3, processed: 3 }],
      },
      reasons: { last: {}, message: null, last_constraints: {}, rejections: [{ reason: "InsufficientPorts", text }], rounds: 1 },
    });
    expect(waitingSummary(fixed, words)).toBe(`ports: ${text}`);
  });

  test("a delay and missing offers are reasons of their own", () => {
    expect(waitingSummary(item({ delay: { timeLeftSeconds: 7, overdue: false } }), words)).toContain("7 s left");
    const reasons = { last: { NoOffers: 1 }, message: null, last_constraints: {}, rejections: [], rounds: 0 };
    expect(waitingSummary(item({ reasons }), words)).toBe("no offer has arrived yet");
  });
});

describe("output", () => {
  const decoded = (pieces: Uint8Array[]) => {
    const decoder = new OutputDecoder();
    return pieces.map((piece) => decoder.decode(piece)).join("");
  };

  test("characters are put together from pieces", () => {
    const bytes = new TextEncoder().encode("aé€😀z");
    for (let at = 0; at <= bytes.length; at++) {
      expect(decoded([bytes.subarray(0, at), bytes.subarray(at)])).toBe("aé€😀z");
    }
    expect(decoded(Array.from(bytes, (byte) => Uint8Array.of(byte)))).toBe("aé€😀z");
  });

  test("a character before the first piece is left out", () => {
    const bytes = new TextEncoder().encode("😀é");
    expect([1, 2, 3].map((at) => decoded([bytes.subarray(at)]))).toEqual(["é", "é", "é"]);
    expect(decoded([Uint8Array.of(0xff, 0x61)])).toBe("\ufffda");
  });
});

describe("metrics", () => {
  test("samples are read with their labels, and of no metric with a longer name", () => {
    const text = 'q_total{kind="A",name="a\\"b"} 3 # {} 1\nq_total_seconds 9\nq_total 2\n# EOF';
    expect(samples(text, "q_total")).toEqual([
      { labels: { kind: "A", name: 'a"b' }, value: 3 }, { labels: {}, value: 2 },
    ]);
  });

  test("rates survive a restart of the counter and the length is bounded", () => {
    const series = new Series(3);
    [[10, 0], [20, 1000], [5, 2000], [6, 3000], [8, 4000]].forEach(([value, at]) => series.counter(value!, at!));
    expect(series.values).toEqual([5, 1, 2]);
  });
});

describe("upload", () => {
  const file = (name: string, content = "x") => new File([content], name);

  test("chosen files have to be those of one plugin", () => {
    const [component, manifest, signature] = [file("a.b.wasm"), file("a.b.toml"), file("a.b.wasm.sig")];
    expect(toPluginFiles([manifest, signature, component])).toEqual({ name: "a.b", component, manifest, signature });
    expect(toPluginFiles([manifest])).toEqual({ name: "a.b", manifest });
    expect(toPluginFiles([component, file("c.toml")])).toMatch("files of several plugins, a.b and c");
    expect(toPluginFiles([file("notes.txt")])).toMatch("notes.txt is not a plugin file");
    expect(toPluginFiles([component, file("a.b.wasm")])).toBe("a.b.wasm was chosen twice");
    expect(toPluginFiles([signature])).toMatch("expected NAME.wasm");
    expect(toPluginFiles([])).toMatch("expected NAME.wasm");
  });

  test("a component is sent as it is, several files as an archive", async () => {
    const files: PluginFiles = { name: "a", component: file("a.wasm", "c".repeat(513)) };
    expect(await requestBody(files).text()).toBe("c".repeat(513));
    const archive = await requestBody({ ...files, manifest: file("a.toml", "m".repeat(512)) }).text();
    expect(archive.length).toBe(512 + 512 + 512 + 1024 + 1024);
    expect(archive.slice(0, 6)).toBe("a.toml");
    expect(archive.slice(124, 136)).toBe("00000001000\0");
    // The checksum as `tar` computes it.
    const sum = [...archive.slice(0, 512)].reduce((total, c, at) => total + (at >= 148 && at < 156 ? 32 : c.charCodeAt(0)), 0);
    expect(archive.slice(148, 156)).toBe(`${sum.toString(8).padStart(6, "0")}\0 `);
    expect(archive.slice(1024, 1030)).toBe("a.wasm");
    expect(archive.slice(-1024)).toBe("\0".repeat(1024));
  });
});
