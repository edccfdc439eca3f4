// The kit itself: how its harness reports wrong plugins and files. Run where `transom-plugin` is installed.
import assert from "node:assert/strict";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import test from "node:test";
import { Bootstrap, component, InvalidConfig } from "transom-plugin/bootstrap";
import { component as componentOfFilter, Filter } from "transom-plugin/events";
import { Agent, Matcher } from "transom-plugin/matcher";
import { connect, exitCode, http, httpStatus, IoError, Probe, run as runs, shell, tcp } from "transom-plugin/probe";
import { CasesError, check, configOf, readCases, run } from "transom-plugin/testing";

const about = { name: "a", version: "0.1.0", summary: "b" };

async function reason(plugin, given) {
  const [report] = await run(plugin, [given]);
  assert.equal(report.verdict, "failed", JSON.stringify(report));
  return report.reason;
}

test("results that the interface forbids are faults", async () => {
  class Decides extends Filter {
    static about = about;

    open() {
      return () => ["no object"];
    }
  }
  assert.match(await reason(Decides, { events: [{ kind: "a" }] }), /not a JSON object/);

  class Places extends Matcher {
    static about = about;

    refusal() {
      return 3;
    }

    place() {
      return [9];
    }

    selectKills() {
      return [0, 0];
    }
  }
  const agents = { agents: [{ hostname: "a" }], placed: ["a", "a"] };
  assert.match(await reason(Places, agents), /constraint 3 of 0/);
  assert.match(await reason(Places, { ...agents, place: 1 }), /is not a candidate/);
  assert.match(await reason(Places, { ...agents, kill: 2 }), /twice/);

  class Looks extends Probe {
    static about = about;

    *attempt({ path, endpoint }) {
      if (path === "/status") return httpStatus(99);
      if (path === "/headers") yield http({ endpoint, headers: [["Host", "x"]] });
      return "no outcome";
    }
  }
  assert.match(await reason(Looks, { path: "/status" }), /99 is not a valid HTTP status/);
  assert.match(await reason(Looks, {}), /not a JSON object/);
  const asked = { endpoint: "a:80", path: "/headers", answers: [{ http: { status: 200 } }] };
  assert.match(await reason(Looks, asked), /header host/);
});

test("a result that is too large fails the check", async () => {
  class Large extends Probe {
    static about = about;

    *attempt() {
      yield shell("true");
      return { a: "x".repeat(4096) };
    }
  }
  await check(Large, [{ answers: [{ ran: { "exit-code": 0 } }], expect: { failed: "plugin" } }]);
});

test("an exception is a failure, and a plugin is made for each case", async () => {
  class Counts extends Probe {
    static about = about;
    calls = 0;

    *attempt({ path }) {
      this.calls += 1;
      if (path === "/trap") throw new RangeError("x");
      return exitCode(this.calls);
    }
  }
  const passes = { expect: { command: 1 } };
  await check(Counts, [passes, passes]);
  assert.match(await reason(Counts, { path: "/trap" }), /RangeError: x/);
  await assert.rejects(check(Counts, [passes, { expect: { command: 2 } }]), /1 of 2 cases failed\ncase 2: found/);
});

test("an attempt may handle an error", async () => {
  class Handles extends Probe {
    static about = about;

    *attempt({ endpoint }) {
      try {
        yield connect(endpoint);
      } catch (error) {
        assert(error instanceof IoError);
        return tcp(error.kind !== "refused");
      }
      const { exitCode: code } = yield runs(["true"]);
      return exitCode(code);
    }
  }
  await check(Handles, [
    { endpoint: "a:1", answers: [{ error: "refused" }], expect: { tcp: false } },
    { endpoint: "a:1", answers: [{ connected: 1 }, { ran: { "exit-code": 3 } }], expect: { command: 3 } },
  ]);
});

test("a configuration is passed and refused", async () => {
  class Takes extends Bootstrap {
    static about = { ...about, schema: { type: "object" } };

    constructor(config) {
      super();
      if ("wrong" in config) throw new InvalidConfig("/wrong", "expected nothing");
    }
  }
  const cases = [{ role: "agent", script: "" }];
  await assert.rejects(run(Takes, cases, { config: { wrong: 1 } }), /\/wrong: expected nothing/);
  const { about: exported } = component(Takes);
  assert.throws(
    () => exported.configure('{"wrong": 1}'),
    (errors) => errors[0].pointer === "/wrong",
  );
  assert.equal(exported.describe().configSchema, '{"type":"object"}');

  class TakesNone extends Filter {
    static about = about;
  }
  await assert.rejects(run(TakesNone, [{}], { config: { a: 1 } }), /expected no configuration/);
  class Nameless extends Filter {}
  assert.throws(() => componentOfFilter(Nameless), /has no `about.name`/);
});

test("wrong files are rejected with the expectation", async () => {
  const folder = await mkdtemp(join(tmpdir(), "kit-"));
  try {
    for (const [name, content, expected] of [
      ["a.toml", "x =", /Invalid TOML|incomplete/],
      ["b.toml", "", /expected \[\[case\]\] tables/],
      ["c.toml", "case = 1", /expected \[\[case\]\] tables/],
      ["d.toml", "[[case]]\n[[self-test]]\n", /found `self-test`/],
      ["e.toml", "case = []", /0 cases/],
      ["f.toml", "[[case]]\nx = nan", /finite/],
      ["g.json", "{}", /expected a list/],
      ["h.json", "[1]", /an object for each case, found 1/],
      ["i.json", JSON.stringify(Array(1001).fill({})), /1001 cases; expected 1 to 1000/],
      ["j.yaml", "", /NAME.toml or NAME.json/],
    ]) {
      const path = join(folder, name);
      await writeFile(path, content);
      await assert.rejects(readCases(path), (error) => error instanceof CasesError && expected.test(error.message), name);
    }
    const manifest = join(folder, "m.toml");
    await writeFile(manifest, "[config]\na = 1979-05-27\n");
    assert.deepEqual(await configOf(manifest), { a: "1979-05-27" });
  } finally {
    await rm(folder, { recursive: true });
  }
});

test("attributes have the text of a constraint", () => {
  for (const [value, expected] of [
    ["a", "a"],
    [8, "8"],
    [0.5, "0.5"],
    [[[1n, 2n]], undefined],
    [new Set(["a"]), undefined],
  ]) {
    const agent = new Agent({ handle: 1, id: "S1", hostname: "a", attributes: [["x", value]] });
    assert.equal(agent.text("x"), expected);
  }
});

test("every module has its types", async () => {
  const { exports } = JSON.parse(await readFile(new URL("../package.json", import.meta.resolve("transom-plugin/probe")), "utf8"));
  for (const [name, { types }] of Object.entries(exports)) {
    const path = import.meta.resolve(`transom-plugin/${name.slice(2)}`);
    const declared = await readFile(new URL(path.replace(/\.js$/, ".d.ts")), "utf8");
    const module = name === "./build" ? { build: null } : await import(path);
    for (const exported of Object.keys(module)) {
      assert.match(declared, new RegExp(`\\b${exported}\\b`), `${types} has no ${exported}`);
    }
  }
});
