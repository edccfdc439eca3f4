// The read-only user sees everything and can change nothing.
//
// Variables: ADMIN (origin), and USERNAME and PASSWORD of the user.

import assert from "node:assert/strict";
import { open, withPage } from "./browser.mjs";

const { ADMIN: admin, READER_NAME: username, READER_PASSWORD: password } = process.env;

assert.equal((await fetch(`${admin}/ui/`)).status, 401);

await withPage(admin, { credentials: { username, password } }, async (page) => {
  await page.getByText("read-only").waitFor();
  await open(page, "Apps");
  await page.getByRole("link", { name: "kept" }).click();
  const detail = page.getByRole("region", { name: "/kept", exact: true });
  for (const label of ["Scale", "Restart", "Suspend", "Edit", "Delete"]) {
    const button = detail.getByRole("button", { name: label, exact: true });
    await button.waitFor();
    assert.ok(await button.isDisabled(), label);
    assert.equal(await button.getAttribute("title"), "This user may only read.");
  }
  await open(page, "Plugins");
  assert.ok(await page.getByRole("button", { name: "Scan directory" }).isDisabled());
  assert.ok(await page.getByRole("group", { name: "Replace a plugin" }).locator("input").isDisabled());
  // The daemon rejects changes, whatever requests a page sends.
  const statuses = await page.evaluate(async () => {
    const send = async (method, path) => (await fetch(path, { method })).status;
    return [
      await send("DELETE", "/v1/services/apps/v2/apps/kept"),
      await send("POST", "/v1/plugins/rescan"),
      await send("PUT", "/v1/plugins/events/files"),
      await send("GET", "/v1/services/apps/v2/apps/kept"),
    ];
  });
  assert.deepEqual(statuses, [403, 403, 403, 200]);
});
