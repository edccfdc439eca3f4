//! Checks that the task's agent makes.

use std::time::Duration;

use transom_cluster::v1::{
    self, CheckCommand, CheckHttp, CheckInfo, CheckTcp, CheckType, HealthHttp, HealthTcp,
};

use crate::{Container, Program};

/// The probe of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Probe {
    /// A GET request; the result is the status code.
    Http {
        /// A port of the agent, or of the container if that has ports of its own.
        port: u16,
        /// The path; `None`: `/`.
        path: Option<String>,
    },
    /// A TCP connection; the result is whether it was accepted.
    Tcp {
        /// As in `Http`.
        port: u16,
    },
    /// A program in the task's container; the result is its exit code.
    Command(Program),
}

/// The timing of a check; `None`: the master's default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProbeTimes {
    /// From the start of the task to the first attempt.
    pub delay: Option<Duration>,
    /// Between two attempts.
    pub interval: Option<Duration>,
    /// The limit of one attempt.
    pub timeout: Option<Duration>,
}

/// A check whose result is only reported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// The probe.
    pub probe: Probe,
    /// The timing of the probe.
    pub times: ProbeTimes,
}

/// A check that ends the task after enough failures. HTTP statuses from 200 to 399 are healthy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthCheck {
    /// The probe.
    pub probe: Probe,
    /// The timing of the probe.
    pub times: ProbeTimes,
    /// Failures do not count for this time after the start; `None`: the master's default.
    pub grace_period: Option<Duration>,
    /// The number of failures that ends the task; `None`: the master's default.
    pub consecutive_failures: Option<u32>,
    /// Whether the GET is sent over TLS. The agent does not verify the certificate.
    pub https: bool,
    /// Whether the agent connects over IPv6, in a container that has such an address.
    pub ipv6: bool,
}

impl Check {
    /// The message for a task in this container; `None`: a process without a container.
    pub(crate) fn into_info(self, container: Option<&Container>) -> CheckInfo {
        let mut info = CheckInfo {
            delay_seconds: seconds(self.times.delay),
            interval_seconds: seconds(self.times.interval),
            timeout_seconds: seconds(self.times.timeout),
            ..CheckInfo::default()
        };
        match self.probe {
            Probe::Http { port, path } => {
                info.r#type = CheckType::Http;
                info.http = Some(CheckHttp {
                    port: u32::from(port),
                    path,
                });
            }
            Probe::Tcp { port } => {
                info.r#type = CheckType::Tcp;
                info.tcp = Some(CheckTcp {
                    port: u32::from(port),
                });
            }
            Probe::Command(program) => {
                info.r#type = CheckType::Command;
                info.command = Some(CheckCommand {
                    command: program.to_info(container),
                });
            }
        }
        info
    }
}

impl HealthCheck {
    /// The message for a task in this container; `None`: a process without a container.
    pub(crate) fn into_info(self, container: Option<&Container>) -> v1::HealthCheck {
        let protocol = self.ipv6.then(|| "IPV6".to_owned());
        let mut info = v1::HealthCheck {
            delay_seconds: seconds(self.times.delay),
            interval_seconds: seconds(self.times.interval),
            timeout_seconds: seconds(self.times.timeout),
            grace_period_seconds: seconds(self.grace_period),
            consecutive_failures: self.consecutive_failures,
            ..v1::HealthCheck::default()
        };
        match self.probe {
            Probe::Http { port, path } => {
                info.r#type = Some(CheckType::Http);
                info.http = Some(HealthHttp {
                    port: u32::from(port),
                    path,
                    protocol,
                    scheme: self.https.then(|| "https".to_owned()),
                    ..HealthHttp::default()
                });
            }
            Probe::Tcp { port } => {
                info.r#type = Some(CheckType::Tcp);
                info.tcp = Some(HealthTcp {
                    port: u32::from(port),
                    protocol,
                });
            }
            Probe::Command(program) => {
                info.r#type = Some(CheckType::Command);
                info.command = Some(program.to_info(container));
            }
        }
        info
    }
}

fn seconds(time: Option<Duration>) -> Option<f64> {
    time.map(|time| time.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Containerizer;
    use serde_json::{Value, json};

    fn probes() -> [Probe; 3] {
        let argv = ["mysqladmin", "ping"].map(str::to_owned).to_vec();
        [
            Probe::Http {
                port: 80,
                path: Some("/p".to_owned()),
            },
            Probe::Tcp { port: 53 },
            Probe::Command(Program::Argv(argv)),
        ]
    }

    fn times() -> ProbeTimes {
        ProbeTimes {
            delay: Some(Duration::ZERO),
            interval: Some(Duration::from_millis(1500)),
            timeout: None,
        }
    }

    #[test]
    fn check_has_the_fields_of_its_kind() {
        let argv = json!({"shell": false, "value": "mysqladmin", "arguments": ["mysqladmin", "ping"]});
        let expected = [
            json!({"type": "HTTP", "http": {"port": 80, "path": "/p"}}),
            json!({"type": "TCP", "tcp": {"port": 53}}),
            json!({"type": "COMMAND", "command": {"command": argv}}),
        ];
        for (probe, mut expected) in probes().into_iter().zip(expected) {
            expected["delay_seconds"] = json!(0.0);
            expected["interval_seconds"] = json!(1.5);
            let check = Check {
                probe,
                times: times(),
            };
            assert_eq!(serde_json::to_value(check.into_info(None)).unwrap(), expected);
        }
    }

    #[test]
    fn health_check_has_the_fields_of_its_kind() {
        let argv = json!({"shell": false, "value": "mysqladmin", "arguments": ["ping"]});
        let expected: [Value; 3] = [
            json!({"type": "HTTP", "http": {"port": 80, "path": "/p"}}),
            json!({"type": "TCP", "tcp": {"port": 53}}),
            json!({"type": "COMMAND", "command": argv}),
        ];
        let docker = Container::new(Containerizer::docker());
        for (probe, mut expected) in probes().into_iter().zip(expected) {
            expected["delay_seconds"] = json!(0.0);
            expected["interval_seconds"] = json!(1.5);
            expected["grace_period_seconds"] = json!(10.0);
            expected["consecutive_failures"] = json!(3);
            let check = HealthCheck {
                probe,
                times: times(),
                grace_period: Some(Duration::from_secs(10)),
                consecutive_failures: Some(3),
                https: false,
                ipv6: false,
            };
            let info = check.into_info(Some(&docker));
            assert_eq!(serde_json::to_value(info).unwrap(), expected);
        }
    }

    #[test]
    fn health_check_names_scheme_and_address_family_where_they_differ_from_the_default() {
        let [http, tcp, _] = probes();
        for (probe, kind, expected) in [
            (
                http,
                "http",
                json!({"port": 80, "path": "/p", "scheme": "https", "protocol": "IPV6"}),
            ),
            (tcp, "tcp", json!({"port": 53, "protocol": "IPV6"})),
        ] {
            let check = HealthCheck {
                probe,
                times: times(),
                grace_period: None,
                consecutive_failures: None,
                https: true,
                ipv6: true,
            };
            let info = serde_json::to_value(check.into_info(None)).unwrap();
            assert_eq!(info[kind], expected);
        }
    }
}
