//! Decides whether tasks avoid agents with GPUs, so that these remain for tasks that use GPUs.

use std::collections::BTreeMap;

use super::LaunchSettings;
use crate::settings::GpuScheduling;

/// Upstream's label with which a definition overrides the setting for offers with GPUs.
const GPU_SCHEDULING: &str = "GPU_SCHEDULING_BEHAVIOR";

/// Whether tasks avoid offers with GPUs. `used`: the number of GPUs of the app, or of all
/// containers of the pod.
pub(super) fn avoids(labels: &BTreeMap<String, String>, used: u32, settings: &LaunchSettings) -> bool {
    let behavior = match labels.get(GPU_SCHEDULING).map(String::as_str) {
        Some("restricted") => GpuScheduling::Restricted,
        Some("unrestricted") => GpuScheduling::Unrestricted,
        _ => settings.gpus,
    };
    used == 0 && behavior == GpuScheduling::Restricted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_without_gpus_avoid_agents_with_gpus_unless_setting_or_label_allow_them() {
        use GpuScheduling::{Restricted, Unrestricted};
        for (used, label, setting, expected) in [
            (0, None, Restricted, true),
            (0, None, Unrestricted, false),
            (1, None, Restricted, false),
            (0, Some("unrestricted"), Restricted, false),
            (0, Some("restricted"), Unrestricted, true),
            (1, Some("restricted"), Restricted, false),
            (0, Some("whatever"), Restricted, true),
        ] {
            let settings = LaunchSettings {
                gpus: setting,
                ..LaunchSettings::default()
            };
            let label = label.map(|label| (GPU_SCHEDULING.to_owned(), label.to_owned()));
            let labels = label.into_iter().collect();
            assert_eq!(
                avoids(&labels, used, &settings),
                expected,
                "{used} {labels:?} {setting:?}"
            );
        }
    }
}
