/** Explains in the daemon's words why an app or pod is waiting; conditions are in the order of the tests. */

export interface QueueItem {
  app?: { id: string; cpus?: number; mem?: number; disk?: number; constraints?: string[][] };
  pod?: { id: string };
  count: number;
  since: string;
  delay: { timeLeftSeconds: number; overdue: boolean };
  processedOffersSummary: {
    processedOffersCount: number;
    unusedOffersCount: number;
    rejectSummaryLastOffers: { reason: string; declined: number; processed: number }[];
  };
  reasons?: {
    last: Record<string, number>;
    message: string | null;
    last_constraints: Record<string, number>;
    rejections: { reason: string; text: string }[];
    rounds: number;
  };
}

/** The daemon's words for a reason. */
export interface Words {
  label: string;
  sentence: string;
  advice: string;
  kind: "offer" | "delay" | "obstacle";
}

export interface Queue {
  queue: QueueItem[];
  words: Partial<Record<string, Words>>;
}

export interface Condition {
  reason: string;
  label: string;
  advice?: string;
  declined: number;
  processed: number;
}

/** The conditions, each with the number of offers that failed it. */
export function conditions(item: QueueItem, words: Queue["words"]): Condition[] {
  return item.processedOffersSummary.rejectSummaryLastOffers.map((step) => ({
    ...step, label: words[step.reason]?.label ?? step.reason, advice: words[step.reason]?.advice,
  }));
}

/** Summarizes the reason in one line: the delay, an obstacle, or the conditions that offers failed. */
export function waitingSummary(item: QueueItem, words: Queue["words"]): string {
  if (!item.delay.overdue && item.delay.timeLeftSeconds > 0) {
    return `delayed after failures: ${item.delay.timeLeftSeconds} s left`;
  }
  const last = Object.keys(item.reasons?.last ?? {}).map((reason) => words[reason]);
  const obstacle = last.find((one) => one?.kind === "obstacle");
  if (obstacle) return [obstacle.sentence, item.reasons?.message].filter(Boolean).join(": ");
  const failed = conditions(item, words).filter(({ declined }) => declined > 0);
  if (failed.length === 0) return item.reasons?.message ?? "offers are being matched";
  return failed
    .map(({ reason, label, declined, processed }) => {
      // Which fixed port, or which value of a constraint, the offers lack.
      const rejections = (item.reasons?.rejections ?? []).filter((rejection) => rejection.reason === reason);
      const details = rejections.map((rejection) => rejection.text).join("; ");
      return `${label}: ${details || `${declined} of ${processed} ${words[reason]?.sentence ?? "offers failed"}`}`;
    })
    .join("; ");
}
