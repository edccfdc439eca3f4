//! Replays recorded behaviour of the programs whose definitions this plugin reads: each case has
//! the posted or offered input and its outcome.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    missing_docs,
    reason = "tests fail by panicking"
)]

use std::collections::BTreeMap;
use std::path::Path;

use attributes::Attributes;
use serde::Deserialize;
use serde_json::Value as Json;
use transom_sdk::matcher::{
    Agent, AgentSet, Attribute, Candidate, Constraint, Matcher, Task, Value, Verdict,
};
use transom_sdk::testing::{constraint, plugin, task};

#[derive(Deserialize)]
struct Suite<C> {
    cases: Vec<C>,
}

fn fixture<T: serde::de::DeserializeOwned>(path: &Path) -> T {
    let text = std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn fixtures() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures")
}

/// `foo:bar;rack:1;jdk:[6-7];gpu:{0,1}`, the form of an agent's command line.
fn attributes(text: &str) -> Vec<Attribute> {
    text.split(';')
        .filter(|entry| !entry.is_empty())
        .map(|entry| {
            let (name, value) = entry.split_once(':').unwrap();
            Attribute {
                name: name.to_owned(),
                value: attribute_value(value),
            }
        })
        .collect()
}

fn attribute_value(text: &str) -> Value {
    if let Some(ranges) = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')) {
        let range = |range: &str| {
            let (begin, end) = range.split_once('-').unwrap();
            (begin.parse().unwrap(), end.parse().unwrap())
        };
        return Value::Ranges(ranges.split(',').map(range).collect());
    }
    if let Some(items) = text.strip_prefix('{').and_then(|text| text.strip_suffix('}')) {
        return Value::Set(items.split(',').map(str::to_owned).collect());
    }
    text.parse()
        .map_or_else(|_| Value::Text(text.to_owned()), Value::Scalar)
}

fn evaluate(agents: Vec<Agent>, task: &Task, candidate: u32) -> Verdict {
    let mut agent_set = plugin::<Attributes>("{}").unwrap().agent_set(None);
    agent_set.update(agents, Vec::new());
    let verdicts = agent_set.evaluate(
        task,
        &[Candidate {
            agent: candidate,
            capacity: 1,
        }],
    );
    assert_eq!(verdicts.len(), 1);
    verdicts[0]
}

#[derive(Deserialize)]
struct MatchCase {
    id: String,
    input: MatchInput,
    expect: BTreeMap<String, Json>,
}

#[derive(Deserialize)]
struct MatchInput {
    constraint: [String; 3],
    offer: Offered,
    placed: Vec<Offered>,
    run_spec_instances: u32,
}

#[derive(Deserialize)]
struct Offered {
    host: String,
    attributes: String,
    region: Option<String>,
    zone: Option<String>,
}

impl Offered {
    fn agent(&self, handle: u32) -> Agent {
        Agent {
            handle,
            id: format!("S{handle}"),
            hostname: self.host.clone(),
            region: self.region.clone(),
            zone: self.zone.clone(),
            attributes: attributes(&self.attributes),
            extensions: Vec::new(),
        }
    }
}

#[test]
fn constraints_match_as_recorded() {
    let suite: Suite<MatchCase> = fixture(&fixtures().join("constraint-match.json"));
    let mut replayed = 0;
    for case in suite.cases {
        let [field, operator, operand] = &case.input.constraint;
        let mut agents = vec![case.input.offer.agent(0)];
        agents.extend(
            (1..)
                .zip(&case.input.placed)
                .map(|(handle, placed)| placed.agent(handle)),
        );
        let placed = (1..).take(case.input.placed.len()).collect();
        let task = task(
            case.input.run_spec_instances,
            vec![constraint(field, operator, Some(operand))],
            placed,
        );
        let verdict = evaluate(agents, &task, 0);
        // The original program failed on the one case without `match`. This plugin spreads over the
        // existing groups instead, so the first agent fits.
        let expected = case
            .expect
            .get("match")
            .is_none_or(|expected| expected.as_bool().unwrap());
        let expected = if expected {
            Verdict::Fits
        } else {
            Verdict::Refused(0)
        };
        assert_eq!(verdict, expected, "{}", case.id);
        replayed += 1;
    }
    assert_eq!(replayed, 34);
}

#[derive(Deserialize)]
struct SyntaxCase {
    id: String,
    request: SyntaxRequest,
    expect: SyntaxExpect,
}

#[derive(Deserialize)]
struct SyntaxRequest {
    body: SyntaxBody,
}

#[derive(Deserialize)]
struct SyntaxBody {
    constraints: Vec<Vec<String>>,
}

#[derive(Deserialize)]
struct SyntaxExpect {
    outcome: String,
    #[serde(default)]
    details: Vec<SyntaxDetail>,
}

#[derive(Deserialize)]
struct SyntaxDetail {
    error_contains: String,
}

#[test]
fn constraints_are_rejected_as_recorded() {
    let suite: Suite<SyntaxCase> = fixture(&fixtures().join("constraint-syntax.json"));
    let matcher = plugin::<Attributes>("{}").unwrap();
    let mut rejected_count = 0;
    for case in suite.cases {
        let fields = &case.request.body.constraints[0];
        let field = |index: usize| fields.get(index).map(String::as_str);
        let posted = constraint(
            field(0).unwrap_or_default(),
            field(1).unwrap_or_default(),
            field(2),
        );
        // A valid constraint precedes it, so that a wrong index is detected.
        let errors = matcher.validate(&[constraint("@hostname", "UNIQUE", None), posted]);
        if case.expect.outcome == "accept" {
            assert_eq!(errors, [], "{}", case.id);
            continue;
        }
        rejected_count += 1;
        assert_eq!(errors.len(), 1, "{}", case.id);
        assert_eq!(errors[0].constraint, 1, "{}", case.id);
        let words = &case.expect.details[0].error_contains;
        assert!(
            errors[0].message.contains(words),
            "{}: {}",
            case.id,
            errors[0].message
        );
    }
    assert_eq!(rejected_count, 7);
}

#[derive(Deserialize)]
struct WorkflowCase {
    title: String,
    input: WorkflowInput,
    expect: WorkflowExpect,
}

#[derive(Deserialize)]
struct WorkflowInput {
    conditions: Vec<String>,
    offer_attributes: Vec<OfferAttribute>,
}

#[derive(Deserialize)]
struct OfferAttribute {
    name: String,
    text: OfferText,
}

#[derive(Deserialize)]
struct OfferText {
    value: String,
}

#[derive(Deserialize)]
struct WorkflowExpect {
    r#match: bool,
}

#[test]
fn workflow_expressions_match_as_recorded() {
    let mut replayed = 0;
    for entry in std::fs::read_dir(fixtures().join("workflow")).unwrap() {
        let case: WorkflowCase = fixture(&entry.unwrap().path());
        let attributes = case.input.offer_attributes.into_iter();
        let attributes = attributes.map(|attribute| Attribute {
            name: attribute.name,
            value: Value::Text(attribute.text.value),
        });
        let agent = Agent {
            handle: 0,
            id: "S0".to_owned(),
            hostname: "h".to_owned(),
            region: None,
            zone: None,
            attributes: attributes.collect(),
            extensions: Vec::new(),
        };
        let constraints = case
            .input
            .conditions
            .into_iter()
            .map(Constraint::Expression)
            .collect();
        let verdict = evaluate(vec![agent], &task(1, constraints, Vec::new()), 0);
        assert_eq!(verdict == Verdict::Fits, case.expect.r#match, "{}", case.title);
        replayed += 1;
    }
    assert_eq!(replayed, 12);
}
