// Prints what `marathon-event-bus-client` receives: a line of JSON after the connection and one for
// each event.
//
// Arguments: the folder of the package, and the URL of the stream.

const [folder, url] = process.argv.slice(2);
const EventBusClient = require(folder);

const write = (line) => process.stdout.write(`${JSON.stringify(line)}\n`);
const handlers = {};
for (const kind of ["deployment_info", "deployment_success", "status_update_event"]) {
  handlers[kind] = (event, data) => write({ event, data });
}
const { hostname, port, pathname } = new URL(url);
const client = new EventBusClient({
  marathonHost: hostname,
  marathonPort: port,
  marathonUri: pathname,
  eventTypes: Object.keys(handlers),
  handlers,
});
client.on("subscribed", () => write({ open: true }));
client.subscribe();
