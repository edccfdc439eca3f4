//! Conversions between the generated types and the crate's own.

pub(super) mod probe {
    use std::time::Duration;

    use super::super::bindings::probe::exports::transom::probe::probe as wit;
    use crate::worlds::{
        probe::{CommandLine, CommandOutput, Endpoint, Failure, IoError, Outcome, Reason, Request},
        step::{Answer, HttpRequest, HttpResponse, Step, Tls},
    };
    use transom_common::text::one_line;

    pub(crate) fn request(request: &Request) -> wit::Request {
        wit::Request {
            run_spec: request.run_spec.clone(),
            task: request.task.clone(),
            agent: request.agent.clone(),
            labels: request.labels.clone(),
            ports: request
                .ports
                .iter()
                .map(|port| wit::Port {
                    name: port.name.clone(),
                    protocol: port.protocol.clone(),
                    endpoint: to_endpoint(&port.endpoint),
                })
                .collect(),
            endpoint: request.endpoint.as_ref().map(to_endpoint),
            path: request.path.clone(),
            command: request.command.clone(),
            settings: request.settings.clone(),
            previous: request.previous.clone().map(to_outcome),
            timeout: millis(request.timeout),
            extensions: request.extensions.clone(),
        }
    }

    pub(crate) fn answer(answer: Answer) -> wit::Answer {
        match answer {
            Answer::Http(result) => wit::Answer::Http(result.map(to_response).map_err(to_io_error)),
            Answer::Connected(result) => wit::Answer::Connected(result.map(millis).map_err(to_io_error)),
            Answer::Sent(result) => wit::Answer::Sent(result.map_err(to_io_error)),
            Answer::Received(result) => wit::Answer::Received(result.map_err(to_io_error)),
            Answer::Ran(result) => wit::Answer::Ran(result.map(to_output).map_err(to_io_error)),
        }
    }

    pub(crate) fn step(step: wit::Step) -> Step {
        match step {
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

    fn to_endpoint(endpoint: &Endpoint) -> wit::Endpoint {
        wit::Endpoint {
            host: endpoint.host.clone(),
            port: endpoint.port,
        }
    }

    fn endpoint(endpoint: wit::Endpoint) -> Endpoint {
        Endpoint {
            host: endpoint.host,
            port: endpoint.port,
        }
    }

    fn tls(tls: wit::Tls) -> Tls {
        Tls {
            server_name: tls.server_name,
            verify: tls.verify,
        }
    }

    fn to_outcome(outcome: Outcome) -> wit::Outcome {
        match outcome {
            Outcome::Http(status) => wit::Outcome::Http(status),
            Outcome::Tcp(is_connected) => wit::Outcome::Tcp(is_connected),
            Outcome::Command(code) => wit::Outcome::Command(code),
            Outcome::Custom(json) => wit::Outcome::Custom(json),
        }
    }

    fn outcome(outcome: wit::Outcome) -> Outcome {
        match outcome {
            wit::Outcome::Http(status) => Outcome::Http(status),
            wit::Outcome::Tcp(is_connected) => Outcome::Tcp(is_connected),
            wit::Outcome::Command(code) => Outcome::Command(code),
            wit::Outcome::Custom(json) => Outcome::Custom(json),
        }
    }

    fn failure(failure: &wit::Failure) -> Failure {
        let reason = match failure.reason {
            wit::Reason::TimedOut => Reason::TimedOut,
            wit::Reason::Denied => Reason::Denied,
            wit::Reason::Unreachable => Reason::Unreachable,
            wit::Reason::Invalid => Reason::Invalid,
            wit::Reason::Internal => Reason::Internal,
        };
        Failure {
            reason,
            message: one_line(&failure.message),
        }
    }

    fn to_response(response: HttpResponse) -> wit::HttpResponse {
        wit::HttpResponse {
            status: response.status,
            headers: response.headers,
            body: response.body,
            elapsed: millis(response.elapsed),
        }
    }

    fn to_output(output: CommandOutput) -> wit::CommandOutput {
        wit::CommandOutput {
            exit_code: output.exit_code,
            stdout: output.stdout,
            stderr: output.stderr,
        }
    }

    fn to_io_error(error: IoError) -> wit::IoError {
        match error {
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

    fn millis(duration: Duration) -> u32 {
        u32::try_from(duration.as_millis()).unwrap_or(u32::MAX)
    }
}

pub(super) mod matcher {
    use super::super::bindings::matcher::exports::transom::matcher::matcher as wit;
    use crate::worlds::matcher::{Constraint, Task};

    pub(crate) fn constraint(constraint: Constraint) -> wit::Constraint {
        match constraint {
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

    pub(crate) fn task(task: Task) -> wit::Task {
        wit::Task {
            run_spec: task.run_spec,
            instances: task.instances,
            constraints: task.constraints.into_iter().map(constraint).collect(),
            placed: task.placed,
            extensions: task.extensions,
        }
    }
}

pub(super) mod events {
    use super::super::bindings::events::exports::transom::events::filter as wit;
    use crate::worlds::events::Query;

    pub(crate) fn query(query: &Query) -> wit::Query {
        wit::Query {
            event_types: query.event_types.clone(),
            expression: query.expression.clone(),
            principal: query.principal.clone(),
            extensions: query.extensions.clone(),
        }
    }
}

pub(super) mod bootstrap {
    use super::super::bindings::bootstrap::exports::transom::bootstrap::bootstrap as wit;
    use crate::worlds::bootstrap::{Context, Prepared, Rejection, Role};
    use transom_common::text::one_line;

    pub(crate) fn context(context: Context) -> wit::Context {
        wit::Context {
            role: match context.role {
                Role::Server => wit::Role::Server,
                Role::Agent => wit::Role::Agent,
                Role::Datastore => wit::Role::Datastore,
            },
            framework: context.framework,
            task: context.task,
            number: context.number,
            host: context.host,
            attributes: context.attributes,
            image: context.image,
            ports: context.ports,
            source: context.source,
            digest: context.digest,
            environment: context.environment,
            arguments: context.arguments,
            extensions: context.extensions,
        }
    }

    pub(crate) fn prepared(prepared: wit::Prepared) -> Prepared {
        Prepared {
            script: prepared.script,
            environment: prepared.environment,
            arguments: prepared.arguments,
        }
    }

    pub(crate) fn rejection(rejection: &wit::Refusal) -> Rejection {
        Rejection {
            message: one_line(&rejection.message),
            retry: rejection.retry,
        }
    }
}
