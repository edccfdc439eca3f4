//! The result of a translation: what is imported, and what is not.

use serde::Serialize;

/// The outcome of a translation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    /// The framework whose tasks are taken over.
    pub framework_id: Option<String>,
    /// The apps, pods and groups, in the order of their ids.
    pub carried: Vec<Carried>,
    /// The differences, and what cannot be imported.
    pub findings: Vec<Finding>,
}

/// An app, pod or group that is imported.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Carried {
    /// `app`, `pod` or `group`.
    pub kind: &'static str,
    /// Its path.
    pub id: String,
    /// The number of its definitions, the current one among them.
    pub versions: usize,
    /// The number of its tasks.
    pub tasks: usize,
}

/// One difference.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The consequence.
    pub kind: Kind,
    /// A path, a task, a setting or a URL.
    pub subject: String,
    /// What differs, as a sentence.
    pub text: String,
}

/// The consequence of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// It cannot be imported, so nothing is imported.
    // The word that readers of the report know.
    #[serde(rename = "refused")]
    Rejected,
    /// It is imported with this difference.
    Differs,
}

impl Kind {
    /// The word for users and in JSON.
    pub fn word(self) -> &'static str {
        match self {
            Self::Rejected => "refused",
            Self::Differs => "differs",
        }
    }
}

impl Report {
    /// Whether everything can be imported.
    pub fn is_accepted(&self) -> bool {
        self.findings.iter().all(|finding| finding.kind != Kind::Rejected)
    }

    /// Adds something that cannot be imported.
    pub fn reject(&mut self, subject: impl Into<String>, text: impl Into<String>) {
        self.add_finding(Kind::Rejected, subject.into(), text.into());
    }

    /// Adds a difference.
    pub fn differs(&mut self, subject: impl Into<String>, text: impl Into<String>) {
        self.add_finding(Kind::Differs, subject.into(), text.into());
    }

    fn add_finding(&mut self, kind: Kind, subject: String, text: String) {
        self.findings.push(Finding { kind, subject, text });
    }

    /// Sorts rejections before differences, and otherwise keeps the order.
    pub(super) fn sorted(mut self) -> Self {
        self.findings.sort_by_key(|finding| finding.kind);
        self
    }
}
