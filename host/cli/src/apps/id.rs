//! Ids of apps, pods and groups: finds the one that an argument names, or suggests similar ids.

use anyhow::bail;
use serde_json::Value;

use super::api::Api;

/// What an id names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    App,
    Pod,
    Group,
}

impl Kind {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::App => "app",
            Self::Pod => "pod",
            Self::Group => "group",
        }
    }

    pub(super) fn with_article(self) -> &'static str {
        match self {
            Self::App => "an app",
            Self::Pod => "a pod",
            Self::Group => "a group",
        }
    }

    /// The path of the collection in the API.
    pub(super) fn path(self) -> &'static str {
        match self {
            Self::App => "v2/apps",
            Self::Pod => "v2/pods",
            Self::Group => "v2/groups",
        }
    }
}

/// An existing app, pod or group.
#[derive(Debug)]
pub(super) struct Target {
    pub(super) kind: Kind,
    /// Beginning with a slash.
    pub(super) id: String,
    /// As the API shows it: for a pod its definition without its status.
    pub(super) document: Value,
}

impl Target {
    /// Its path in the API.
    pub(super) fn path(&self) -> String {
        format!("{}{}", self.kind.path(), self.id.trim_end_matches('/'))
    }
}

/// Reads an id of the command line; the slash at its beginning may be missing.
pub(super) fn parse(text: &str) -> Result<String, String> {
    let path = text.trim_matches('/');
    let is_part = |part: &str| {
        !matches!(part, "" | "." | "..")
            && part
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_'))
    };
    if text == "/" || path.split('/').all(is_part) {
        Ok(format!("/{path}"))
    } else {
        Err("expected an id such as /shop/web: letters, digits, dots and dashes between slashes".to_owned())
    }
}

/// The app, pod or group with this id.
pub(super) async fn find(api: &Api, id: &str) -> anyhow::Result<Target> {
    if id != "/" {
        let single = api.find(&format!("v2/apps{id}")).await?;
        // The response for a path such as `/x/tasks` is another resource, without `app`.
        if let Some(app) = single.filter(|single| single["app"].is_object()) {
            return Ok(Target {
                kind: Kind::App,
                id: id.to_owned(),
                document: app["app"].clone(),
            });
        }
        if let Some(document) = api.find(&format!("v2/pods{id}")).await? {
            return Ok(Target {
                kind: Kind::Pod,
                id: id.to_owned(),
                document,
            });
        }
    }
    let group = api
        .find(&format!("v2/groups{}", id.trim_end_matches('/')))
        .await?;
    if let Some(document) = group.filter(|group| group["id"] == id) {
        return Ok(Target {
            kind: Kind::Group,
            id: id.to_owned(),
            document,
        });
    }
    let ids = all_ids(api).await?;
    bail!("{}", not_found_message(id, ids.iter().map(String::as_str)))
}

/// The app or pod with this id; a group is an error.
pub(super) async fn find_one(api: &Api, id: &str) -> anyhow::Result<Target> {
    let target = find(api, id).await?;
    if target.kind == Kind::Group {
        bail!("{id} is a group; expected an app or a pod. `transom apps list {id}` shows what is in it.");
    }
    Ok(target)
}

/// The ids of all apps and pods, and of the groups that contain them.
async fn all_ids(api: &Api) -> anyhow::Result<Vec<String>> {
    let (apps, pods) = (api.get("v2/apps").await?, api.get("v2/pods").await?);
    let apps = apps["apps"].as_array().into_iter().flatten();
    let specs = apps.chain(pods.as_array().into_iter().flatten());
    let mut ids: Vec<String> = specs
        .filter_map(|one| one["id"].as_str())
        .flat_map(|id| {
            let group_ends = id
                .match_indices('/')
                .map(|(index, _)| index)
                .filter(|index| *index > 0);
            let groups = group_ends.map(|index| id[..index].to_owned());
            groups.chain([id.to_owned()]).collect::<Vec<_>>()
        })
        .collect();
    ids.sort();
    ids.dedup();
    Ok(ids)
}

/// The error text for an unknown id, with the most similar ids.
fn not_found_message<'a>(id: &str, ids: impl Iterator<Item = &'a str>) -> String {
    let nearest = nearest(id, ids);
    if nearest.is_empty() {
        format!("no app, pod or group is called {id}; `transom apps list` shows all")
    } else {
        format!(
            "no app, pod or group is called {id}; did you mean {}?",
            nearest.join(" or ")
        )
    }
}

/// At most three of the known names that resemble `text`, the most similar first.
pub(crate) fn nearest<'a>(text: &str, ids: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    const MIN_SIMILARITY: f64 = 0.75;
    let last_part = |id: &str| id.rsplit('/').next().unwrap_or(id).to_owned();
    let name = last_part(text);
    let mut similar: Vec<(f64, &str)> = ids
        .map(|candidate| {
            let similarity_of_ids = strsim::normalized_damerau_levenshtein(text, candidate);
            // The same last part in another group, or the id without its group.
            let similarity_of_names = if last_part(candidate) == name { 0.9 } else { 0.0 };
            (similarity_of_ids.max(similarity_of_names), candidate)
        })
        .filter(|(similarity, _)| *similarity >= MIN_SIMILARITY)
        .collect();
    similar.sort_by(|(a, first), (b, second)| b.total_cmp(a).then(first.cmp(second)));
    similar.into_iter().take(3).map(|(_, id)| id).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_completed_and_other_paths_rejected() {
        assert_eq!(parse("web").as_deref(), Ok("/web"));
        assert_eq!(parse("/shop/web/").as_deref(), Ok("/shop/web"));
        assert_eq!(parse("/").as_deref(), Ok("/"));
        for text in ["..", "/a/../b", "a//b", "a::status", "a?x=y", "*", "", "a b", "é"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn missing_id_is_answered_with_the_most_similar_ids() {
        let ids = ["/shop/web", "/shop/api", "/web2", "/database"];
        let text = |id| not_found_message(id, ids.into_iter());
        assert!(text("/shop/wbe").ends_with("did you mean /shop/web?"));
        assert!(text("/web").contains("/shop/web") && text("/web").contains("/web2"));
        assert!(text("/nothing-like-it").ends_with("`transom apps list` shows all"));
    }
}
