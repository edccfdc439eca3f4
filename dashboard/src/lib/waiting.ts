/** Explains why an app or pod is waiting; the conditions are in the order in which offers are tested. */

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
    message: string | null;
    last_constraints: Record<string, number>;
    rejections: { reason: string; text: string }[];
    rounds: number;
  };
}

export interface Condition {
  reason: string;
  text: string;
  declined: number;
  processed: number;
}

const CONDITION_TEXTS: Record<string, string> = {
  UnfulfilledRole: "role",
  UnfulfilledConstraint: "constraints",
  NoCorrespondingReservationFound: "reservation",
  AgentMaintenance: "maintenance",
  InsufficientCpus: "CPUs",
  InsufficientMemory: "memory",
  InsufficientDisk: "disk",
  InsufficientGpus: "GPUs",
  InsufficientPorts: "ports",
  DeclinedScarceResources: "GPUs kept for GPU tasks",
};

/** The conditions, each with the number of offers that failed it. */
export function conditions(item: QueueItem): Condition[] {
  return item.processedOffersSummary.rejectSummaryLastOffers.map(({ reason, declined, processed }) => ({
    reason,
    text: CONDITION_TEXTS[reason] ?? reason,
    declined,
    processed,
  }));
}

/** Summarizes the reason in one line: the delay, the lack of offers, or the conditions that offers failed. */
export function waitingSummary(item: QueueItem): string {
  if (!item.delay.overdue && item.delay.timeLeftSeconds > 0) {
    return `delayed after failures: ${item.delay.timeLeftSeconds} s left`;
  }
  const failed = conditions(item).filter(({ declined }) => declined > 0);
  if (failed.length > 0) {
    return failed
      .map(({ reason, text, declined, processed }) => {
        // Which fixed port, or which value of a constraint, the offers lack.
        const rejections = (item.reasons?.rejections ?? []).filter((rejection) => rejection.reason === reason);
        const details = rejections.map((rejection) => rejection.text).join("; ");
        return `${text}: ${details || `${declined} of ${processed} offers failed`}`;
      })
      .join("; ");
  }
  if (item.processedOffersSummary.processedOffersCount === 0) return "no offer has arrived since it started waiting";
  return item.reasons?.message ?? "offers are being matched";
}
