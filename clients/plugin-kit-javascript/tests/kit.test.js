// The kit itself: its conversions, and how `attempt` reports wrong probes. Run where `transom-plugin` is installed.
import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import test from "node:test";
import { Bootstrap, component, InvalidConfig } from "transom-plugin/bootstrap";
import { component as componentOfFilter, Filter } from "transom-plugin/events";
import { Agent } from "transom-plugin/matcher";
import { connect, exitCode, httpStatus, IoError, Probe, run, shell, tcp } from "transom-plugin/probe";
import { attempt } from "transom-plugin/testing";

const about = { name: "a", version: "0.1.0", summary: "b" };

test("unexpected steps and results fail", () => {
  class Looks extends Probe {
    static about = about;

    *attempt({ path }) {
      if (path === "/status") return httpStatus(99);
      if (path === "/large") return { a: "x".repeat(4096) };
      if (path === "/text") return "no outcome";
      if (path === "/trap") throw new RangeError("x");
      yield shell("true");
      return exitCode(0);
    }
  }
  for (const [path, exchanges, expected] of [
    ["/status", [], /HTTP status 99/],
    ["/large", [], /4104 bytes; expected at most 4096/],
    ["/text", [], /expected an object/],
    ["/trap", [], /x/],
    ["/", [], /requests the step run; expected a result/],
    ["/", [[run(["true"]), undefined]], /step 1/],
    ["/status", [[shell("true"), undefined]], /step 1/],
  ]) {
    assert.throws(() => attempt(new Looks({}), { path }, exchanges), expected, path);
  }
});

test("an attempt may handle an error", () => {
  class Handles extends Probe {
    static about = about;

    *attempt({ endpoint }) {
      try {
        yield connect(endpoint);
      } catch (error) {
        assert(error instanceof IoError);
        if (error.kind === "tls") throw error;
        return tcp(error.kind !== "refused");
      }
      const { exitCode: code } = yield run(["true"]);
      return exitCode(code);
    }
  }
  const endpoint = { host: "a", port: 1 };
  const attempts = (...exchanges) => attempt(new Handles({}), { endpoint }, exchanges);
  assert.deepEqual(attempts([connect(endpoint), new IoError("refused")]), tcp(false));
  assert.deepEqual(attempts([connect(endpoint), 1], [run(["true"]), { exitCode: 3 }]), exitCode(3));
  assert.equal(attempts([connect(endpoint), new IoError("tls")]).reason, "invalid");
});

test("a configuration is passed and rejected", () => {
  class Takes extends Bootstrap {
    static about = { ...about, schema: { type: "object" } };

    constructor(config) {
      super();
      if ("wrong" in config) throw new InvalidConfig("/wrong", "expected nothing");
    }
  }
  assert.throws(() => Takes.configured({ wrong: 1 }), /\/wrong: expected nothing/);
  const { about: exported } = component(Takes);
  assert.throws(
    () => exported.configure('{"wrong": 1}'),
    (errors) => errors[0].pointer === "/wrong",
  );
  assert.equal(exported.describe().configSchema, '{"type":"object"}');

  class TakesNone extends Filter {
    static about = about;
  }
  assert.throws(() => TakesNone.configured({ a: 1 }), /expected no configuration/);
  class Nameless extends Filter {}
  assert.throws(() => componentOfFilter(Nameless), /has no `about.name`/);
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
