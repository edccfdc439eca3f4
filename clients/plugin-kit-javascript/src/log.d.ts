/**
 * The plugin's log: one line each, without a line break at its end. In a component the host writes the
 * lines; elsewhere they are shown with `NODE_DEBUG=transom-plugin`.
 */
export function trace(message: string): void;
export function debug(message: string): void;
export function info(message: string): void;
export function warn(message: string): void;
export function error(message: string): void;
