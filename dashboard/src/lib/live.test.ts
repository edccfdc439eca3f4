/** How often values are requested. */

import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { poll } from "./live";

beforeEach(() => vi.useFakeTimers());
afterEach(() => vi.useRealTimers());

/** Polls every five seconds; each answer takes `took` milliseconds. */
function polling(took: number) {
  const state = { requests: 0, hidden: false };
  const request = async () => {
    state.requests += 1;
    await new Promise((resolve) => setTimeout(resolve, took));
  };
  return { state, ...poll(request, 5_000, () => state.hidden) };
}

/** The requests within a minute that has an event in each second. */
async function minuteOfEvents({ state, refreshSoon }: ReturnType<typeof polling>): Promise<number> {
  const before = state.requests;
  for (let second = 0; second < 60; second += 1) {
    refreshSoon();
    await vi.advanceTimersByTimeAsync(1_000);
  }
  return state.requests - before;
}

test("events cause requests for as little of the time as polling does", async () => {
  const quick = polling(10);
  expect(await minuteOfEvents(quick)).toBeGreaterThanOrEqual(55);
  quick.stop();
  const slow = polling(500);
  expect(await minuteOfEvents(slow)).toBeLessThanOrEqual(6);
  slow.stop();
});

test("a hidden page requests nothing, and is current soon after it is visible", async () => {
  const page = polling(10);
  await vi.advanceTimersByTimeAsync(100);
  page.state.hidden = true;
  expect(await minuteOfEvents(page)).toBe(0);
  page.state.hidden = false;
  await vi.advanceTimersByTimeAsync(1_000);
  expect(page.state.requests).toBe(2);
  page.stop();
});

test("an action of the user requests now", async () => {
  const page = polling(500);
  await vi.advanceTimersByTimeAsync(600);
  page.refresh();
  expect(page.state.requests).toBe(2);
  page.refresh();
  await vi.advanceTimersByTimeAsync(600);
  expect(page.state.requests).toBe(3);
  page.stop();
  await vi.advanceTimersByTimeAsync(60_000);
  expect(page.state.requests).toBe(3);
});
