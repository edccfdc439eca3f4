//! Why tasks are pending. Each reason has its words here; APIs, command line, dashboard and manual
//! show them and have none of their own.

use schemars::JsonSchema;
use serde::Serialize;

/// The words of a reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ReasonWords {
    /// The condition in one or two words.
    pub label: &'static str,
    /// A sentence without a full stop. If offers are the subject, their number may precede it: "2 of
    /// 3 offers have too few CPUs".
    pub sentence: &'static str,
    /// Advice for operators.
    pub advice: &'static str,
    /// The effect on the task.
    pub kind: ReasonKind,
    /// The resource of which offers have too little, by the cluster manager's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource: Option<&'static str>,
}

/// The effect of a reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ReasonKind {
    /// An offer is not used.
    Offer,
    /// The task is launched later, on purpose.
    Delay,
    /// No offer is matched, so that nothing is launched.
    Obstacle,
}

const fn words(
    kind: ReasonKind,
    label: &'static str,
    sentence: &'static str,
    advice: &'static str,
) -> ReasonWords {
    ReasonWords {
        label,
        sentence,
        advice,
        kind,
        resource: None,
    }
}

const fn offer(label: &'static str, sentence: &'static str, advice: &'static str) -> ReasonWords {
    words(ReasonKind::Offer, label, sentence, advice)
}

/// Too little of a resource, whose name is also the label.
const fn resource(name: &'static str, sentence: &'static str, advice: &'static str) -> ReasonWords {
    ReasonWords {
        resource: Some(name),
        ..offer(name, sentence, advice)
    }
}

const fn delay(label: &'static str, sentence: &'static str, advice: &'static str) -> ReasonWords {
    words(ReasonKind::Delay, label, sentence, advice)
}

const fn obstacle(label: &'static str, sentence: &'static str, advice: &'static str) -> ReasonWords {
    words(ReasonKind::Obstacle, label, sentence, advice)
}

const REQUEST_LESS: &str = "Request less, free resources on agents, or add agents.";

/// Declares the reasons: name, kind with label, sentence and advice.
macro_rules! reasons {
    ($($name:ident = $kind:ident($label:literal, $sentence:literal, $advice:expr);)+) => {
        /// Why an offer was rejected, or why there was nothing to match.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
        #[non_exhaustive]
        pub enum Reason {
            $(#[doc = $sentence] $name,)+
        }

        impl Reason {
            /// All reasons. Those of offers come first, in the order of Marathon's summaries.
            pub const ALL: &[Self] = &[$(Self::$name),+];

            /// The name in documents, for example `InsufficientCpus`.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => stringify!($name),)+
                }
            }

            /// Its words.
            pub fn words(self) -> &'static ReasonWords {
                match self {
                    $(Self::$name => const { &$kind($label, $sentence, $advice) },)+
                }
            }
        }
    };
}

reasons! {
    UnfulfilledRole = offer(
        "role",
        "offers have no resources of an accepted role",
        "Check the accepted roles (`role`, `acceptedResourceRoles`) and the roles of the agents' reservations."
    );
    UnfulfilledConstraint = offer(
        "constraints",
        "offers come from agents that constraints reject",
        "Relax a constraint, or add agents that satisfy it; `transom plugin explain matcher` shows the values of the agents."
    );
    NoCorrespondingReservationFound = offer(
        "reservation",
        "offers do not contain the reserved resources and the volume",
        "Start the agent of the reservation again, or give up reservation and volume with `transom apps kill --wipe`."
    );
    AgentMaintenance = offer(
        "maintenance",
        "offers come from agents in a maintenance window",
        "Wait for the end of the window, end it at the master, or add agents."
    );
    InsufficientCpus = resource("cpus", "offers have too few CPUs", REQUEST_LESS);
    InsufficientMemory = resource("mem", "offers have too little memory", REQUEST_LESS);
    InsufficientDisk = resource("disk", "offers have too little disk space", REQUEST_LESS);
    InsufficientGpus = resource("gpus", "offers have too few GPUs", REQUEST_LESS);
    InsufficientPorts = resource(
        "ports",
        "offers have too few ports, or lack a fixed port",
        "Request a port that agents offer (or any: port 0), free the port, or add it to the agents' resources."
    );
    DeclinedScarceResources = offer(
        "GPUs kept for GPU tasks",
        "offers have GPUs, which are kept for tasks that use GPUs",
        "Change `apps.gpu_scheduling_behavior`, or add agents without GPUs."
    );
    Backoff = delay(
        "backoff",
        "the launch is delayed by backoff",
        "Wait for the end of the delay, and look at the last failure of the task."
    );
    NoOffers = obstacle(
        "offers",
        "no offer has arrived yet",
        "Check that agents are registered, and that neither other frameworks nor a quota of the role hold their resources back."
    );
    Disconnected = obstacle(
        "subscription",
        "the framework is not registered with the master; retrying",
        "Look for the master's answer in the log; `transom doctor` checks address and credentials."
    );
    MatcherUnavailable = obstacle(
        "matcher",
        "the matcher is unavailable",
        "See its state with `transom plugin list`; `transom plugin rollback` restores the previous version."
    );
    StoreUnavailable = obstacle(
        "store",
        "the state store is unavailable",
        "Restore the store; `transom doctor` checks it."
    );
}

impl Reason {
    /// The sentence for a reason that occurred `count` times in a round with `offers` offers.
    pub fn counted(self, count: u32, offers: u32) -> String {
        let words = self.words();
        if words.kind == ReasonKind::Offer && offers > 0 {
            format!("{count} of {offers} {}", words.sentence)
        } else {
            words.sentence.to_owned()
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn reasons_of_offers_precede_the_others_and_count_offers() {
        let kinds: Vec<_> = Reason::ALL
            .iter()
            .map(|reason| reason.words().kind == ReasonKind::Offer)
            .collect();
        assert!(kinds.is_sorted_by(|a, b| a >= b), "{kinds:?}");
        for reason in Reason::ALL {
            let (words, counted) = (reason.words(), reason.counted(2, 3));
            let counts = counted == format!("2 of 3 {}", words.sentence);
            assert_eq!(counts, words.kind == ReasonKind::Offer, "{counted}");
            assert_eq!(counts, words.sentence.starts_with("offers "), "{counted}");
            assert_eq!(reason.counted(2, 0), words.sentence);
            assert!(words.advice.ends_with('.') && !words.sentence.ends_with('.'));
        }
        let labels: BTreeSet<_> = Reason::ALL.iter().map(|reason| reason.words().label).collect();
        assert_eq!(labels.len(), Reason::ALL.len());
    }
}
