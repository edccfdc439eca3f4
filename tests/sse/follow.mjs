// Prints an event stream, read by EventSource, which reconnects and resumes without further code.
//
// Arguments: the folder of the package `eventsource`, and the URL of the stream. Writes a line of
// JSON after the first connection and one for each event.

import { pathToFileURL } from "node:url";

const [folder, url] = process.argv.slice(2);
const { EventSource } = await import(pathToFileURL(`${folder}/dist/index.js`));

const events = new EventSource(url);
const write = (line) => process.stdout.write(`${JSON.stringify(line)}\n`);
events.addEventListener("open", () => write({ open: true }), { once: true });
for (const kind of ["api_post_event", "event_stream_gap"]) {
  // After an `event_stream_gap` events are missing: a client has to read the state again.
  events.addEventListener(kind, (event) => write({ id: event.lastEventId, event: kind, data: JSON.parse(event.data) }));
}
