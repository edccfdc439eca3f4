//! The variables `TRANSOM_SECTION_KEY` as a source of settings: `TRANSOM_APPS_PORT=8081` is `apps.port`.

use figment::providers::Env;
use figment::value::{Dict, Map, Value};
use figment::{Metadata, Profile, Provider};

use super::reference::{self, TextKind};
use super::settings::SECTIONS;

/// Variables of commands that are named like settings, but are the URLs of a running daemon's ports.
const NOT_SETTINGS: &[&str] = &["ADMIN_URL", "APPS_URL"];

/// The variables that set a key.
pub(super) struct Variables(Env);

impl Variables {
    /// The variables of this process.
    pub(super) fn of_environment() -> Self {
        let env = Env::prefixed("TRANSOM_")
            .filter(|key| is_setting(key.as_str()))
            .map(|key| key.as_str().to_ascii_lowercase().replacen('_', ".", 1).into());
        Self(env)
    }
}

impl Provider for Variables {
    fn metadata(&self) -> Metadata {
        self.0.metadata()
    }

    fn data(&self) -> Result<Map<Profile, Dict>, figment::Error> {
        let mut sections = Map::<String, Dict>::new();
        for (name, text) in self.0.iter() {
            if let Some((section, key)) = name.as_str().split_once('.') {
                let value = value(section, key, text);
                let keys = sections.entry(section.to_owned()).or_default();
                keys.insert(key.to_owned(), value);
            }
        }
        let settings: Dict = sections
            .into_iter()
            .map(|(section, keys)| (section, keys.into()))
            .collect();
        Ok(Profile::Default.collect(settings))
    }
}

/// The value of a variable: TOML, but a text may look like a number or a boolean, and a secret is
/// taken as it is, quotes included.
fn value(section: &str, key: &str, text: String) -> Value {
    let Ok(parsed) = text.parse::<Value>();
    match reference::text_kind(section, key) {
        Some(TextKind::Secret) => text.into(),
        Some(TextKind::Plain) if !matches!(parsed, Value::String(..)) => text.into(),
        _ => parsed,
    }
}

/// Whether a variable sets a key. `variable` is its name without the prefix; one without a section,
/// such as `STATE`, sets none.
fn is_setting(variable: &str) -> bool {
    let section = variable.split_once('_').map(|(section, _)| section);
    let is_url = |name: &&str| variable.eq_ignore_ascii_case(name);
    section.is_some_and(is_section) && !NOT_SETTINGS.iter().any(is_url)
}

fn is_section(name: &str) -> bool {
    SECTIONS.iter().any(|section| section.eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_may_look_like_other_values() {
        for (section, key, text, expected) in [
            ("admin", "password", "1234567", Value::from("1234567")),
            ("admin", "password", "007", "007".into()),
            ("apps", "api_password", "true", "true".into()),
            ("store", "password", "\"abc\"", "\"abc\"".into()),
            ("store", "password", "[1]", "[1]".into()),
            ("kubernetes", "auth_password", "12", "12".into()),
            ("kubernetes", "blue_auth_password", "12", "12".into()),
            ("apps", "role", "7", "7".into()),
            ("apps", "role", "\"7\"", "7".into()),
            ("apps", "port", "7", Value::from(7_u8)),
            (
                "apps",
                "trusted_networks",
                "[\"10.0.0.0/8\"]",
                vec!["10.0.0.0/8"].into(),
            ),
        ] {
            let value = value(section, key, text.to_owned());
            assert_eq!(value, expected, "{section}.{key} {text}");
        }
    }

    #[test]
    fn is_setting_recognises_variables_of_sections() {
        for (variable, expected) in [
            ("APPS_PORT", true),
            ("admin_port", true),
            ("ADMIN_URL", false),
            ("apps_url", false),
            ("STATE", false),
            ("COMPONENTS_DIR", false),
        ] {
            assert_eq!(is_setting(variable), expected, "{variable}");
        }
    }
}
