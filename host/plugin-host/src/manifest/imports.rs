//! Checks a component's imports against its manifest. Pure rules on names such as
//! `wasi:clocks/wall-clock@0.2.9`.
//!
//! The engine decides which interfaces any plugin may import. This module checks what the manifest
//! denies, and which imports an upgrade adds: a new version may import no more than the previous
//! one unless the operator grants it.

use crate::manifest::grants::Grants;

/// The package that every world may import: the log, whose volume is limited.
const OWN_PACKAGE: &str = "transom:plugin";

/// Why a component's imports are rejected. Display is for an operator.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ImportError {
    #[error("it imports `{import}`, which the manifest denies (grants.{grant} = false)")]
    Withdrawn { import: String, grant: &'static str },
    #[error(
        "it imports {}, which the serving version does not: grant them with grants.imports{}",
        quoted_list(.0),
        profile_for(.0)
    )]
    New(Vec<String>),
}

fn quoted_list(imports: &[String]) -> String {
    let quoted: Vec<String> = imports.iter().map(|it| format!("`{it}`")).collect();
    quoted.join(", ")
}

/// A hint if one profile grants all of them.
fn profile_for(imports: &[String]) -> String {
    let grants_all = |packages: &[&str]| imports.iter().all(|it| packages.contains(&package(it)));
    let found = PROFILES.iter().find(|(_, packages)| grants_all(packages));
    found.map(|(name, _)| format!(" = {name:?}")).unwrap_or_default()
}

/// Returns interface names without their versions, because another version of the same interface is
/// not a new import.
pub(crate) fn interfaces(imports: &[String]) -> Vec<String> {
    let mut names: Vec<String> = imports.iter().map(|it| interface(it).to_owned()).collect();
    names.sort_unstable();
    names.dedup();
    names
}

fn interface(import: &str) -> &str {
    import.split_once('@').map_or(import, |(name, _)| name)
}

fn package(import: &str) -> &str {
    import.split_once('/').map_or(import, |(package, _)| package)
}

/// Checks the imports against the grants. `before`: imports of the version to be replaced; `None`
/// if there is no such version.
pub(crate) fn check(
    imports: &[String],
    before: Option<&[String]>,
    grants: &Grants,
) -> Result<(), ImportError> {
    for (unwanted, package_name, grant) in [
        (!grants.clock, "wasi:clocks", "clock"),
        (!grants.random, "wasi:random", "random"),
    ] {
        if let Some(import) = imports.iter().find(|it| unwanted && package(it) == package_name) {
            return Err(ImportError::Withdrawn {
                import: import.clone(),
                grant,
            });
        }
    }
    let Some(before) = before else { return Ok(()) };
    let granted = |it: &String| {
        let mut granted = grants.imports.iter();
        granted.any(|granted| granted == it || granted == package(it))
    };
    let mut new = added(imports, before);
    new.retain(|it| !granted(it));
    if new.is_empty() {
        Ok(())
    } else {
        Err(ImportError::New(new))
    }
}

/// Returns the interfaces that need a grant when a version with the imports `before` is upgraded.
pub(crate) fn added(imports: &[String], before: &[String]) -> Vec<String> {
    let mut new = interfaces(imports);
    new.retain(|it| package(it) != OWN_PACKAGE && !before.contains(it));
    new
}

/// Named lists of imports, for `grants.imports`.
const PROFILES: [(&str, &[&str]); 1] = [
    // The imports of the language runtimes of Python and JavaScript, whether or not a plugin uses
    // them. Files and sockets have no implementation here; clocks, random numbers and variables
    // have separate grants.
    (
        "wasi-guest",
        &[
            "wasi:cli",
            "wasi:clocks",
            "wasi:filesystem",
            "wasi:io",
            "wasi:random",
            "wasi:sockets",
        ],
    ),
];

/// The packages of a profile.
pub(crate) fn profile(name: &str) -> Option<&'static [&'static str]> {
    let found = PROFILES.iter().find(|(known, _)| *known == name);
    found.map(|(_, packages)| *packages)
}

/// The names of all profiles, for a message.
pub(crate) fn profiles() -> String {
    let names: Vec<String> = PROFILES.iter().map(|(name, _)| format!("{name:?}")).collect();
    names.join(", ")
}

/// Whether a text is valid in `grants.imports`: `wasi:clocks` or `wasi:clocks/wall-clock`.
pub(crate) fn is_pattern(text: &str) -> bool {
    let plain = |part: &str| {
        let mut chars = part.chars();
        chars.next().is_some_and(|c| c.is_ascii_lowercase())
            && chars.all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
    };
    text.split_once(':').is_some_and(|(namespace, rest)| {
        let (package, interface) = rest.split_once('/').map_or((rest, None), |(a, b)| (a, Some(b)));
        plain(namespace) && plain(package) && interface.is_none_or(plain)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|it| (*it).to_owned()).collect()
    }

    #[test]
    fn upgrade_imports_need_grants() {
        let log = "transom:plugin/log@0.1.0";
        let clock = "wasi:clocks/wall-clock@0.2.9";
        let timer = "wasi:clocks/monotonic-clock@0.2.9";
        for (imports, before, granted, rejected) in [
            (&[log, clock][..], None, &[][..], &[][..]),
            (&[log], Some(&[][..]), &[], &[]),
            (
                &[log, clock],
                Some(&["transom:plugin/log"]),
                &[],
                &["wasi:clocks/wall-clock"],
            ),
            (
                &[log, "wasi:clocks/wall-clock@0.2.12"],
                Some(&["transom:plugin/log", "wasi:clocks/wall-clock"]),
                &[],
                &[],
            ),
            (&[clock, timer], Some(&[]), &["wasi:clocks"], &[]),
            (
                &[clock, timer],
                Some(&[]),
                &["wasi:clocks/wall-clock"],
                &["wasi:clocks/monotonic-clock"],
            ),
            (&[clock], Some(&[]), &["wasi:clock"], &["wasi:clocks/wall-clock"]),
            (&[], Some(&["wasi:clocks/wall-clock"]), &[], &[]),
        ] {
            let grants = Grants {
                imports: texts(granted),
                ..Grants::default()
            };
            let before = before.map(texts);
            let found = check(&texts(imports), before.as_deref(), &grants);
            let expected = if rejected.is_empty() {
                Ok(())
            } else {
                Err(ImportError::New(texts(rejected)))
            };
            assert_eq!(found, expected, "{imports:?} {before:?} {granted:?}");
        }
    }

    #[test]
    fn profile_grants_what_wasi_guests_import() {
        let granted = profile("wasi-guest").unwrap();
        assert!(granted.iter().all(|it| is_pattern(it)));
        assert_eq!(profile("wasi"), None);
        assert_eq!(profiles(), "\"wasi-guest\"");
        let grants = Grants {
            imports: texts(granted),
            ..Grants::default()
        };
        let guest = texts(&["wasi:cli/environment@0.2.0", "wasi:sockets/tcp@0.2.0"]);
        assert_eq!(check(&guest, Some(&[]), &grants), Ok(()));
        let http = texts(&["wasi:http/types@0.2.0"]);
        let rejected = Err(ImportError::New(texts(&["wasi:http/types"])));
        assert_eq!(check(&http, Some(&[]), &grants), rejected);
        for (imports, ending) in [
            (&["wasi:cli/exit"][..], "grants.imports = \"wasi-guest\""),
            (&["wasi:cli/exit", "wasi:http/types"], "grants.imports"),
        ] {
            let error = ImportError::New(texts(imports)).to_string();
            assert!(error.ends_with(ending), "{error}");
        }
        let clockless = Grants {
            clock: false,
            ..grants
        };
        let clock = texts(&["wasi:clocks/wall-clock@0.2.0"]);
        assert!(
            check(&clock, Some(&[]), &clockless).is_err(),
            "a denial takes precedence over a missing grant"
        );
    }

    #[test]
    fn denied_imports_are_rejected() {
        let imports = texts(&["wasi:random/insecure@0.2.0", "wasi:clocks/wall-clock@0.2.0"]);
        for (clock, random, grant) in [
            (true, true, None),
            (false, true, Some("clock")),
            (true, false, Some("random")),
        ] {
            let grants = Grants {
                clock,
                random,
                // A grant in `imports` does not override the denial.
                imports: texts(&["wasi:clocks", "wasi:random"]),
                ..Grants::default()
            };
            let found = check(&imports, None, &grants);
            let found = match &found {
                Ok(()) => None,
                Err(ImportError::Withdrawn { grant, .. }) => Some(*grant),
                Err(other) => panic!("{other}"),
            };
            assert_eq!(found, grant);
        }
    }

    #[test]
    fn import_patterns_have_a_package_and_no_version() {
        for (text, is_valid) in [
            ("wasi:clocks", true),
            ("wasi:clocks/wall-clock", true),
            ("wasi:clocks/wall-clock@0.2.0", false),
            ("wasi", false),
            ("wasi:", false),
            ("wasi:clocks/", false),
            ("*", false),
        ] {
            assert_eq!(is_pattern(text), is_valid, "{text}");
        }
    }
}
