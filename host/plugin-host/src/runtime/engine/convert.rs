//! Conversions between the generated types and the crate's own.

pub(super) mod probe {
    use std::time::Duration;

    use super::super::bindings::probe::exports::transom::probe::probe as wit;
    use crate::worlds::{
        probe::{CommandLine, CommandOutput, Endpoint, Failure, IoError, Outcome, Reason, Request},
        step::{Answer, HttpRequest, HttpResponse, Step, Tls},
    };
    use transom_common::text::one_line;

    pub(crate) fn request(it: &Request) -> wit::Request {
        wit::Request {
            run_spec: it.run_spec.clone(),
            task: it.task.clone(),
            agent: it.agent.clone(),
            labels: it.labels.clone(),
            ports: it
                .ports
                .iter()
                .map(|port| wit::Port {
                    name: port.name.clone(),
                    protocol: port.protocol.clone(),
                    endpoint: to_endpoint(&port.endpoint),
                })
                .collect(),
            endpoint: it.endpoint.as_ref().map(to_endpoint),
            path: it.path.clone(),
            command: it.command.clone(),
            settings: it.settings.clone(),
            previous: it.previous.clone().map(to_outcome),
            timeout: millis(it.timeout),
            extensions: it.extensions.clone(),
        }
    }

    pub(crate) fn answer(it: Answer) -> wit::Answer {
        match it {
            Answer::Http(result) => wit::Answer::Http(result.map(to_response).map_err(to_io_error)),
            Answer::Connected(result) => wit::Answer::Connected(result.map(millis).map_err(to_io_error)),
            Answer::Sent(result) => wit::Answer::Sent(result.map_err(to_io_error)),
            Answer::Received(result) => wit::Answer::Received(result.map_err(to_io_error)),
            Answer::Ran(result) => wit::Answer::Ran(result.map(to_output).map_err(to_io_error)),
        }
    }

    pub(crate) fn step(it: wit::Step) -> Step {
        match it {
            wit::Step::Http(request) => Step::Http(HttpRequest {
                method: request.method,
                endpoint: endpoint(request.endpoint),
                tls: request.tls.map(tls),
                path: request.path,
                headers: request.headers,
                body: request.body,
                max_body: request.max_body,
                redirects: request.redirects,
            }),
            wit::Step::Connect((to, with)) => Step::Connect(endpoint(to), with.map(tls)),
            wit::Step::Send(bytes) => Step::Send(bytes),
            wit::Step::Receive(most) => Step::Receive(most),
            wit::Step::Run(wit::CommandLine::Shell(line)) => Step::Run(CommandLine::Shell(line)),
            wit::Step::Run(wit::CommandLine::Argv(words)) => Step::Run(CommandLine::Argv(words)),
            wit::Step::Done(found) => Step::Done(outcome(found)),
            wit::Step::Failed(why) => Step::Failed(failure(&why)),
        }
    }

    fn to_endpoint(it: &Endpoint) -> wit::Endpoint {
        wit::Endpoint {
            host: it.host.clone(),
            port: it.port,
        }
    }

    fn endpoint(it: wit::Endpoint) -> Endpoint {
        Endpoint {
            host: it.host,
            port: it.port,
        }
    }

    fn tls(it: wit::Tls) -> Tls {
        Tls {
            server_name: it.server_name,
            verify: it.verify,
        }
    }

    fn to_outcome(it: Outcome) -> wit::Outcome {
        match it {
            Outcome::Http(status) => wit::Outcome::Http(status),
            Outcome::Tcp(fine) => wit::Outcome::Tcp(fine),
            Outcome::Command(code) => wit::Outcome::Command(code),
            Outcome::Custom(json) => wit::Outcome::Custom(json),
        }
    }

    fn outcome(it: wit::Outcome) -> Outcome {
        match it {
            wit::Outcome::Http(status) => Outcome::Http(status),
            wit::Outcome::Tcp(fine) => Outcome::Tcp(fine),
            wit::Outcome::Command(code) => Outcome::Command(code),
            wit::Outcome::Custom(json) => Outcome::Custom(json),
        }
    }

    fn failure(it: &wit::Failure) -> Failure {
        let reason = match it.reason {
            wit::Reason::TimedOut => Reason::TimedOut,
            wit::Reason::Denied => Reason::Denied,
            wit::Reason::Unreachable => Reason::Unreachable,
            wit::Reason::Invalid => Reason::Invalid,
            wit::Reason::Internal => Reason::Internal,
        };
        Failure {
            reason,
            message: one_line(&it.message),
        }
    }

    fn to_response(it: HttpResponse) -> wit::HttpResponse {
        wit::HttpResponse {
            status: it.status,
            headers: it.headers,
            body: it.body,
            elapsed: millis(it.elapsed),
        }
    }

    fn to_output(it: CommandOutput) -> wit::CommandOutput {
        wit::CommandOutput {
            exit_code: it.exit_code,
            stdout: it.stdout,
            stderr: it.stderr,
        }
    }

    fn to_io_error(it: IoError) -> wit::IoError {
        match it {
            IoError::Denied => wit::IoError::Denied,
            IoError::Unresolved => wit::IoError::Unresolved,
            IoError::Refused => wit::IoError::Refused,
            IoError::Unreachable => wit::IoError::Unreachable,
            IoError::TimedOut => wit::IoError::TimedOut,
            IoError::Closed => wit::IoError::Closed,
            IoError::Tls(text) => wit::IoError::Tls(text),
            IoError::Protocol(text) => wit::IoError::Protocol(text),
            IoError::Unavailable(text) => wit::IoError::Unavailable(text),
        }
    }

    fn millis(it: Duration) -> u32 {
        u32::try_from(it.as_millis()).unwrap_or(u32::MAX)
    }
}

pub(super) mod matcher {
    use super::super::bindings::matcher::exports::transom::matcher::matcher as wit;
    use crate::worlds::matcher::{Constraint, Task};

    pub(crate) fn constraint(it: Constraint) -> wit::Constraint {
        match it {
            Constraint::Expression(text) => wit::Constraint::Expression(text),
            Constraint::Field {
                field,
                operator,
                operand,
            } => wit::Constraint::Field(wit::FieldConstraint {
                field,
                operator,
                operand,
            }),
        }
    }

    pub(crate) fn task(it: Task) -> wit::Task {
        wit::Task {
            run_spec: it.run_spec,
            instances: it.instances,
            constraints: it.constraints.into_iter().map(constraint).collect(),
            placed: it.placed,
            extensions: it.extensions,
        }
    }
}

pub(super) mod events {
    use super::super::bindings::events::exports::transom::events::filter as wit;
    use crate::worlds::events::Query;

    pub(crate) fn query(it: &Query) -> wit::Query {
        wit::Query {
            event_types: it.event_types.clone(),
            expression: it.expression.clone(),
            principal: it.principal.clone(),
            extensions: it.extensions.clone(),
        }
    }
}

pub(super) mod bootstrap {
    use super::super::bindings::bootstrap::exports::transom::bootstrap::bootstrap as wit;
    use crate::worlds::bootstrap::{Context, Prepared, Refusal, Role};
    use transom_common::text::one_line;

    pub(crate) fn context(it: Context) -> wit::Context {
        wit::Context {
            role: match it.role {
                Role::Server => wit::Role::Server,
                Role::Agent => wit::Role::Agent,
                Role::Datastore => wit::Role::Datastore,
            },
            framework: it.framework,
            task: it.task,
            number: it.number,
            host: it.host,
            attributes: it.attributes,
            image: it.image,
            ports: it.ports,
            source: it.source,
            digest: it.digest,
            environment: it.environment,
            arguments: it.arguments,
            extensions: it.extensions,
        }
    }

    pub(crate) fn prepared(it: wit::Prepared) -> Prepared {
        Prepared {
            script: it.script,
            environment: it.environment,
            arguments: it.arguments,
        }
    }

    pub(crate) fn refusal(it: &wit::Refusal) -> Refusal {
        Refusal {
            message: one_line(&it.message),
            retry: it.retry,
        }
    }
}
