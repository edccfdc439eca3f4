//! The frameworks that the leading master lists, and the choice of one by its name or id.

use anyhow::{Context, bail};
use transom_cluster::{Client, ListedFramework};
use transom_plugin_host::printable;

use super::config::Config;
use crate::exit::Misconfigured;
use crate::output::print_note;

/// A framework whose name contains one of these, in lower case, is of this kind.
const NAME_PARTS: &[&str] = &["fw", "m3s"];
/// The maximum number of names in a message.
const MAX_NAMED: usize = 20;

/// All frameworks that the leading master lists.
pub(super) async fn list_frameworks(config: &Config) -> anyhow::Result<Vec<ListedFramework>> {
    let master = config.master()?;
    if master.tls.as_ref().is_some_and(|tls| !tls.verify) {
        warn_of_unverified("the master", config, "master");
    }
    let client = Client::new(master).context(Misconfigured)?;
    let frameworks = client.frameworks().await;
    client.close().await;
    frameworks.with_context(|| {
        format!(
            "the frameworks cannot be read from the master that [master] of {} names",
            config.file().display()
        )
    })
}

/// Warns on standard error that certificates are not verified.
pub(super) fn warn_of_unverified(server: &str, config: &Config, section: &str) {
    print_note(format_args!(
        "transom: warning: the TLS certificate of {server} is not verified; `ssl_verify = true` in [{section}] of {} verifies it",
        config.file().display()
    ));
}

/// Whether `transom fw list` shows a framework.
pub(super) fn is_of_kind(framework: &ListedFramework, config: &Config) -> bool {
    let name = framework.name.to_lowercase();
    NAME_PARTS.iter().any(|part| name.contains(part)) || config.has_section_for(&framework.name)
}

/// The framework with this id or name. If several have the name, the active one is chosen if it is the
/// only one.
pub(super) fn choose<'a>(
    frameworks: &'a [ListedFramework],
    wanted: &str,
    config: &Config,
) -> anyhow::Result<&'a ListedFramework> {
    if let Some(framework) = frameworks.iter().find(|one| one.id.as_ref() == wanted) {
        return Ok(framework);
    }
    let same_name: Vec<_> = frameworks.iter().filter(|one| one.name == wanted).collect();
    let active: Vec<_> = same_name.iter().copied().filter(|one| one.active).collect();
    match (active.as_slice(), same_name.as_slice()) {
        ([only], _) | ([], [only]) => Ok(only),
        ([], []) => {
            let candidates = frameworks.iter().filter(|one| is_of_kind(one, config));
            let names = join_first(candidates.map(|one| one.name.as_str()));
            let registered = if names.is_empty() {
                "no framework of this kind is registered".to_owned()
            } else {
                format!("registered frameworks: {names}")
            };
            bail!(
                "the master lists no framework with the id or name {:?}; {registered} (see `transom fw list --all`)",
                printable(wanted)
            )
        }
        ([], several) | (several, _) => bail!(
            "{} frameworks have the name {:?}; give the id of one of them: {}",
            several.len(),
            printable(wanted),
            join_first(several.iter().map(|one| one.id.as_ref()))
        ),
    }
}

/// Joins the first of these texts for a message.
fn join_first<'a>(texts: impl Iterator<Item = &'a str>) -> String {
    let texts: Vec<_> = texts.take(MAX_NAMED).map(printable).collect();
    texts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn framework(id: &str, name: &str, active: bool) -> ListedFramework {
        ListedFramework {
            id: id.into(),
            name: name.to_owned(),
            active,
            webui_url: String::new(),
        }
    }

    fn config(text: &str) -> Config {
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), text).expect("written");
        Config::read_file(file.path().to_owned()).expect("a configuration")
    }

    #[test]
    fn framework_is_listed_by_its_name_or_its_section() {
        let config = config("[fw.prod]\n[m3s.old]\n");
        for (name, expected) in [
            ("fw", true),
            ("M3S-old", true),
            ("myFWs", true),
            ("prod", true),
            ("old", true),
            ("marathon", false),
            ("", false),
        ] {
            assert_eq!(
                is_of_kind(&framework("1", name, true), &config),
                expected,
                "{name}"
            );
        }
    }

    #[test]
    fn framework_is_chosen_by_id_then_by_name_the_active_one_first() {
        let config = config("");
        let list = [
            framework("1", "fw", false),
            framework("2", "fw", true),
            framework("3", "2", true),
            framework("4", "twice", true),
            framework("5", "twice", true),
            framework("6", "gone", false),
            framework("7", "gone-twice", false),
            framework("8", "gone-twice", false),
        ];
        for (wanted, expected) in [
            ("1", Ok("1")),
            ("fw", Ok("2")),
            ("2", Ok("2")),
            ("gone", Ok("6")),
            ("twice", Err("4, 5")),
            ("gone-twice", Err("7, 8")),
            ("FW", Err("registered frameworks: fw, fw")),
        ] {
            let chosen = choose(&list, wanted, &config).map(|one| one.id.as_ref());
            match expected {
                Ok(id) => assert_eq!(chosen.expect(wanted), id, "{wanted}"),
                Err(text) => {
                    let error = chosen.expect_err(wanted).to_string();
                    assert!(error.contains(text) && error.contains(wanted), "{error}");
                }
            }
        }
        let error = choose(&[], "x", &config).expect_err("none").to_string();
        assert!(error.contains("no framework of this kind"), "{error}");
    }
}
