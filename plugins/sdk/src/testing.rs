//! Native unit tests of plugins: `cargo test` on the developer's machine, without a component and
//! without a host.
//!
//! [`plugin`] creates the plugin from a configuration document, like an instance. [`Run`] drives
//! one attempt of a probe step by step, and [`drive`] drives it to its end. Tests call matchers and
//! filters through their traits; [`request`], [`agent`], [`task`] and [`query`] create arguments.
//! [`logs`] returns the logged lines.

use std::rc::Rc;

use crate::events::{Event, Query};
use crate::log::Level;
use crate::matcher::{Agent, Attribute, Constraint, FieldConstraint, Task, Value};
use crate::plugin::{ConfigError, Plugin, configure};
use crate::probe::{Answer, Attempt, Endpoint, Failure, Outcome, Probe, Request, Step};

/// Returns the lines that this thread's plugins have logged since the last call.
pub fn logs() -> Vec<(Level, String)> {
    crate::log::LINES.take()
}

/// Creates the plugin from a configuration document. The host passes `{}` if the manifest has no
/// configuration.
pub fn plugin<P: Plugin>(document: &str) -> Result<Rc<P>, Vec<ConfigError>> {
    configure(document).map(Rc::new)
}

/// An attempt that a test drives; it records the steps.
#[derive(Debug)]
pub struct Run<A> {
    attempt: A,
    steps: Vec<Step>,
}

impl<A: Attempt> Run<A> {
    /// Begins an attempt and takes its first step.
    pub fn new<P: Probe<Attempt = A>>(plugin: &P, request: Request) -> Self {
        let mut attempt = plugin.attempt(request);
        let first = attempt.next(None);
        Self {
            attempt,
            steps: vec![first],
        }
    }

    /// The last step, which the host would have to perform now.
    pub fn step(&self) -> Option<&Step> {
        self.steps.last()
    }

    /// Passes the answer to the last step, and returns the next step.
    pub fn answer(&mut self, answer: Answer) -> &Step {
        let next = self.attempt.next(Some(answer));
        self.steps.push(next);
        &self.steps[self.steps.len() - 1]
    }

    /// Every step so far, in order.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }
}

/// The end of an attempt.
#[derive(Clone, Debug, PartialEq)]
pub enum End {
    /// The attempt has a result.
    Done(Outcome),
    /// The attempt failed without a result.
    Failed(Failure),
    /// The attempt did not end within the maximum number of steps.
    Endless,
}

/// Drives an attempt to its end, with at most `limit` answers, which `world` returns. Returns the
/// end and the steps.
pub fn drive<P: Probe>(
    plugin: &P,
    request: Request,
    limit: usize,
    mut world: impl FnMut(&Step) -> Answer,
) -> (End, Vec<Step>) {
    let mut run = Run::new(plugin, request);
    for _ in 0..limit {
        let answer = match run.step() {
            Some(Step::Done(outcome)) => return (End::Done(outcome.clone()), run.steps),
            Some(Step::Failed(failure)) => return (End::Failed(failure.clone()), run.steps),
            Some(step) => world(step),
            None => break,
        };
        run.answer(answer);
    }
    (End::Endless, run.steps)
}

/// A request to check a task of the app `/app` at one port, `10.0.0.1:31000`, within ten seconds.
pub fn request() -> Request {
    Request {
        run_spec: "/app".to_owned(),
        task: "app.1".to_owned(),
        agent: "agent1".to_owned(),
        labels: Vec::new(),
        ports: Vec::new(),
        endpoint: Some(Endpoint {
            host: "10.0.0.1".to_owned(),
            port: 31000,
        }),
        path: "/".to_owned(),
        command: None,
        settings: "{}".to_owned(),
        previous: None,
        timeout: 10_000,
        extensions: Vec::new(),
    }
}

/// An agent with this handle, host name and attributes.
pub fn agent(handle: u32, host: &str, attributes: &[(&str, Value)]) -> Agent {
    Agent {
        handle,
        id: format!("S{handle}"),
        hostname: host.to_owned(),
        region: None,
        zone: None,
        attributes: attributes
            .iter()
            .map(|(name, value)| Attribute {
                name: (*name).to_owned(),
                value: value.clone(),
            })
            .collect(),
        extensions: Vec::new(),
    }
}

/// A task of the app `/app`.
pub fn task(instances: u32, constraints: Vec<Constraint>, placed: Vec<u32>) -> Task {
    Task {
        run_spec: "/app".to_owned(),
        instances,
        constraints,
        placed,
        extensions: Vec::new(),
    }
}

/// A constraint of field, operator and operand.
pub fn constraint(field: &str, operator: &str, operand: Option<&str>) -> Constraint {
    Constraint::Field(FieldConstraint {
        field: field.to_owned(),
        operator: operator.to_owned(),
        operand: operand.map(str::to_owned),
    })
}

/// A subscriber's query for these kinds.
pub fn query(event_types: &[&str]) -> Query {
    Query {
        event_types: event_types.iter().map(|kind| (*kind).to_owned()).collect(),
        expression: None,
        principal: None,
        extensions: Vec::new(),
    }
}

/// An event of this kind, with a body that contains its kind and number.
pub fn event(sequence: u64, kind: &str) -> Event {
    Event {
        sequence,
        kind: kind.to_owned(),
        subject: None,
        body: format!(r#"{{"eventType":"{kind}","sequence":{sequence}}}"#),
    }
}
