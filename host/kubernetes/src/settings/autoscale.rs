//! `[kubernetes.agents.autoscale]`: the settings of the autoscaler, which adjusts the count of agents
//! to the pods.

use super::{Period, schema, settings};

settings! {
    /// `[kubernetes.agents]`: the agents of the framework.
    pub struct Agents {
        /// `[kubernetes.agents.autoscale]`: the autoscaler, which adjusts the count of agents to the pods.
        pub autoscale: Autoscale;
    }
}

settings! {
    /// `[kubernetes.agents.autoscale]`: the autoscaler, which adjusts the count of agents to the pods.
    pub struct Autoscale {
        /// Whether the autoscaler adjusts the count of agents to the pods.
        pub enabled: bool;
        /// The minimum count of agents, also for requests to scale; at least 1.
        pub min: u32 = 1;
        /// The maximum count of agents, also for requests to scale; not set: `max_scale`.
        pub max: Option<u32>;
        /// How long pods must be unschedulable before agents are added for them.
        #[schemars(with = "schema::Period")]
        pub scale_up_delay: Period = Period::seconds(30);
        /// How long an agent must be idle before it is removed.
        #[schemars(with = "schema::Period")]
        pub scale_down_delay: Period = Period::seconds(600);
        /// The time between two changes of the count.
        #[schemars(with = "schema::Period")]
        pub cooldown: Period = Period::seconds(60);
        /// The maximum number of agents that are added in one change.
        pub step: u32 = 2;
    }
}

impl Autoscale {
    /// The maximum count of agents.
    pub fn maximum(&self, max_scale: u32) -> u32 {
        self.max.unwrap_or(max_scale)
    }

    /// Problems, one line each.
    pub(super) fn problems(&self, max_scale: u32) -> Vec<String> {
        let (min, max) = (self.min, self.maximum(max_scale));
        let mut problems = Vec::new();
        let mut add = |key: &str, text: String| {
            problems.push(format!("`kubernetes.agents.autoscale.{key}` is {text}"));
        };
        if min == 0 {
            add(
                "min",
                "0; expected at least 1, because the size of an agent is known from one that runs".to_owned(),
            );
        }
        if max > max_scale {
            add(
                "max",
                format!("{max}, above `kubernetes.max_scale`, which is {max_scale}"),
            );
        }
        if min > max {
            let name = if self.max.is_some() {
                "max"
            } else {
                "kubernetes.max_scale"
            };
            add("min", format!("{min}, above `{name}`, which is {max}"));
        }
        if self.step == 0 {
            add("step", "0; expected at least 1".to_owned());
        }
        problems
    }
}

#[cfg(test)]
mod tests {
    use crate::Settings;

    #[test]
    fn limits_must_fit_each_other() {
        for (text, expected) in [
            ("enabled = true", vec![]),
            ("enabled = true\nmin = 2\nmax = 2", vec![]),
            ("max = 100\nscale_up_delay = \"0s\"\ncooldown = 0", vec![]),
            (
                "min = 0",
                vec!["`kubernetes.agents.autoscale.min` is 0; expected at least 1"],
            ),
            (
                "min = 3\nmax = 2",
                vec!["autoscale.min` is 3, above `max`, which is 2"],
            ),
            ("min = 101", vec!["above `kubernetes.max_scale`, which is 100"]),
            (
                "max = 101\nstep = 0",
                vec![
                    "autoscale.max` is 101, above `kubernetes.max_scale`, which is 100",
                    "autoscale.step` is 0; expected at least 1",
                ],
            ),
        ] {
            let settings: Settings = toml::from_str(&format!("[agents.autoscale]\n{text}")).expect(text);
            let problems = settings.problems();
            assert_eq!(problems.len(), expected.len(), "{text}: {problems:?}");
            for (problem, expected) in problems.iter().zip(expected) {
                assert!(problem.contains(expected), "{text}: {problem}");
            }
        }
    }
}
