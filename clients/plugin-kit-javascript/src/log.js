// The plugin's log: one line each, without a line break at its end.
import { write } from "#log";

export const trace = (message) => write("trace", message);
export const debug = (message) => write("debug", message);
export const info = (message) => write("info", message);
export const warn = (message) => write("warn", message);
export const error = (message) => write("error", message);
