import { Json } from "./plugin.js";
import { Failed, Outcome, Probe, Request, Step } from "./probe.js";

/** A request with these fields, and usual values for the others. */
export function request(fields?: Partial<Request>): Request;

/**
 * Runs one attempt natively and returns its result. `exchanges`: each step that the probe is expected to request,
 * with the answer of the host; an `IoError` is thrown in the attempt. Throws an `AssertionError` if the probe requests
 * other steps, or returns a result that the host rejects.
 *
 * The methods of the other worlds' classes are called directly. `transom plugin test` runs recorded cases of every world
 * on the component, under the limits of its manifest.
 */
export function attempt(
  probe: Probe,
  fields?: Partial<Request>,
  exchanges?: [step: Step | Outcome, answer: unknown][],
): Outcome | Json | Failed;
