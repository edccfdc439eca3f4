// Outside of a component lines are shown with NODE_DEBUG=transom-plugin.
import { debuglog } from "node:util";

const show = debuglog("transom-plugin");

export const write = (level, message) => show("%s: %s", level, message);
