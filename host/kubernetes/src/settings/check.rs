//! Checks the settings of `[kubernetes]`, and reports all faults together.

use super::Settings;

/// Problems, one line each.
#[derive(Default)]
struct Problems(Vec<String>);

impl Problems {
    fn add_if(&mut self, condition: bool, text: impl FnOnce() -> String) {
        if condition {
            self.0.push(text());
        }
    }
}

impl Settings {
    /// Problems, one line each.
    pub fn problems(&self) -> Vec<String> {
        let mut problems = Problems::default();
        self.check_texts(&mut problems);
        problems.0.extend(self.certificate_problems());
        self.check_amounts(&mut problems);
        self.check_ranges(&mut problems);
        self.check_counts(&mut problems);
        problems.0.extend(self.agents.autoscale.problems(self.max_scale));
        self.check_datastore(&mut problems);
        self.check_bootstrap(&mut problems);
        self.check_backup(&mut problems);
        problems.0
    }

    fn check_texts(&self, problems: &mut Problems) {
        let name = &self.framework_name;
        problems.add_if(name.is_empty() || name.contains(['/', ':']), || {
            format!("`kubernetes.framework_name` (FRAMEWORK_NAME) is {name:?}; expected a name without `/` and `:`")
        });
        let (user, password) = (self.auth_username.is_some(), self.auth_password.is_some());
        for (key, variable, missing) in [
            ("auth_password", "AUTH_PASSWORD", user && !password),
            ("auth_username", "AUTH_USERNAME", password && !user),
        ] {
            problems.add_if(missing, || {
                format!(
                    "`kubernetes.{key}` ({variable}) is missing: set both the user and the password, or \
                     neither"
                )
            });
        }
        for (key, items) in [
            ("orch_node_env", &self.orch_node_env),
            ("orch_server_node_env", &self.orch_server_node_env),
            ("orch_agent_node_env", &self.orch_agent_node_env),
            (
                "orch_server_docker_parameters",
                &self.orch_server_docker_parameters,
            ),
            ("orch_agent_docker_parameters", &self.orch_agent_docker_parameters),
        ] {
            for item in items
                .iter()
                .filter(|item| item.find('=').is_none_or(|index| index == 0))
            {
                // The value after the name may be a secret.
                let name = item.split('=').next().unwrap_or_default();
                problems.add_if(true, || {
                    format!("`kubernetes.{key}` has the item {name:?}; expected NAME=VALUE")
                });
            }
        }
        for (key, command) in [
            ("orch_server_string", &self.orch_server_string),
            ("orch_agent_string", &self.orch_agent_string),
        ] {
            problems.add_if(command.trim().is_empty(), || {
                format!(
                    "`kubernetes.{key}` ({}) is empty; expected a command",
                    key.to_uppercase()
                )
            });
        }
        for (key, constraint) in [
            ("orch_server_constraint", &self.orch_server_constraint),
            ("orch_agent_constraint", &self.orch_agent_constraint),
            ("orch_ds_constraint", &self.orch_ds_constraint),
        ] {
            let text = constraint.as_deref().unwrap_or_default().trim();
            let name = text.strip_prefix("hostname:").unwrap_or(text).trim();
            problems.add_if(name.contains([':', '/', ',']) || name.contains(char::is_whitespace), || {
                format!(
                    "`kubernetes.{key}` ({}) is {text:?}; expected the host name of an agent, or `hostname:NAME`. \
                     Attributes of agents cannot be named here",
                    key.to_uppercase()
                )
            });
        }
        let file = &self.kubeconfig_file;
        problems.add_if(file.is_empty() || file.contains(".."), || {
            format!("`kubernetes.kubeconfig_file` is {file:?}; expected the name of a file")
        });
    }

    fn check_amounts(&self, problems: &mut Problems) {
        for (key, amount) in [
            ("orch_server_cpu", Some(self.orch_server_cpu)),
            ("orch_server_mem", Some(self.orch_server_mem)),
            ("orch_agent_cpu", Some(self.orch_agent_cpu)),
            ("orch_agent_mem", Some(self.orch_agent_mem)),
            ("ds_cpu", Some(self.ds_cpu)),
            ("ds_mem", Some(self.ds_mem)),
            ("orch_server_cpu_limit", self.orch_server_cpu_limit),
            ("orch_server_mem_limit", self.orch_server_mem_limit),
            ("orch_agent_cpu_limit", self.orch_agent_cpu_limit),
            ("orch_agent_mem_limit", self.orch_agent_mem_limit),
            ("ds_cpu_limit", self.ds_cpu_limit),
            ("ds_mem_limit", self.ds_mem_limit),
        ] {
            let is_invalid = amount.is_some_and(|amount| !(amount.is_finite() && amount > 0.0));
            let value = amount.unwrap_or_default();
            problems.add_if(is_invalid, || {
                format!(
                    "`kubernetes.{key}` ({}) is {value}; expected a number above 0",
                    key.to_uppercase()
                )
            });
        }
        for (key, amount) in [
            ("orch_server_disk", Some(self.orch_server_disk)),
            ("orch_agent_disk", Some(self.orch_agent_disk)),
            ("ds_disk", Some(self.ds_disk)),
            ("orch_server_disk_limit", self.orch_server_disk_limit),
            ("orch_agent_disk_limit", self.orch_agent_disk_limit),
            ("ds_disk_limit", self.ds_disk_limit),
            ("container_memory_swap", Some(self.container_memory_swap)),
        ] {
            let is_invalid = amount.is_some_and(|amount| !(amount.is_finite() && amount >= 0.0));
            let value = amount.unwrap_or_default();
            problems.add_if(is_invalid, || {
                format!(
                    "`kubernetes.{key}` ({}) is {value}; expected 0 or more",
                    key.to_uppercase()
                )
            });
        }
    }

    fn check_ranges(&self, problems: &mut Problems) {
        let (from, to) = (self.portrange_from, self.portrange_to);
        problems.add_if(from == 0 || from >= to, || {
            format!(
                "`kubernetes.portrange_from` (PORTRANGE_FROM) is {from} and `portrange_to` (PORTRANGE_TO) is {to}; \
                 expected a range of at least two ports above 0"
            )
        });
        for (key, period) in [
            ("heartbeat_interval", self.heartbeat_interval),
            ("orch_node_timeout", self.orch_node_timeout),
        ] {
            problems.add_if(period.duration().is_zero(), || {
                format!(
                    "`kubernetes.{key}` ({}) is {period}; expected a length of time above 0",
                    key.to_uppercase()
                )
            });
        }
    }

    fn check_counts(&self, problems: &mut Problems) {
        for (key, count) in [
            ("ds_count", self.ds_count),
            ("orch_server_count", self.orch_server_count),
            ("orch_agent_count", self.orch_agent_count),
        ] {
            problems.add_if(count > self.max_scale, || {
                format!(
                    "`kubernetes.{key}` ({}) is {count}, above `kubernetes.max_scale`, which is {}",
                    key.to_uppercase(),
                    self.max_scale
                )
            });
        }
        let count = self.ds_count;
        problems.add_if(self.ds_etcd && count != 0 && count.is_multiple_of(2), || {
            format!(
                "`kubernetes.ds_count` (DS_COUNT) is {count}; the members of a kvstore form a cluster only in odd numbers"
            )
        });
        problems.add_if(!self.ds_etcd && count > 1, || {
            format!("`kubernetes.ds_count` (DS_COUNT) is {count}; there can be one SQL datastore only")
        });
    }

    fn check_datastore(&self, problems: &mut Problems) {
        problems.add_if(self.ds_etcd == self.ds_mysql, || {
            format!(
                "`kubernetes.ds_etcd` (DS_ETCD) and `kubernetes.ds_mysql` (DS_MYSQL) are both {}; set exactly one of \
                 them to true",
                self.ds_etcd
            )
        });
        problems.add_if(self.ds_count > 0 && self.ds_endpoint.is_some(), || {
            "`kubernetes.ds_endpoint` names a datastore outside of the framework; set `ds_count` (DS_COUNT) to 0"
                .to_owned()
        });
        let runs_sql = self.ds_count > 0 && !self.ds_etcd;
        problems.add_if(!self.containers && runs_sql && self.ds_command.is_none(), || {
            "`kubernetes.containers` is false and `kubernetes.ds_command` is missing: without containers it is the \
             command of a SQL datastore"
                .to_owned()
        });
        let several = self.ds_etcd && self.ds_count > 1;
        problems.add_if(!self.containers && several && self.ds_command.is_some(), || {
            format!(
                "`kubernetes.ds_count` (DS_COUNT) is {}, but `kubernetes.ds_command` runs one datastore; without it \
                 a kvstore has several members",
                self.ds_count
            )
        });
        let runs_etcd = self.ds_etcd && self.ds_count > 0 && self.ds_command.is_none();
        problems.add_if(!self.containers && runs_etcd && !self.volume_ds.starts_with('/'), || {
            format!(
                "`kubernetes.volume_ds` (VOLUME_DS) is `{}`; without containers it is the folder of a member's data, \
                 which outlives the task's sandbox: an absolute path",
                self.volume_ds
            )
        });
        problems.add_if(self.ds_etcd && self.ds_peer_port == self.ds_port, || {
            format!(
                "`kubernetes.ds_port` (DS_PORT) and `kubernetes.ds_peer_port` (DS_PEER_PORT) are both {}; clients and \
                 members of a kvstore need a port each",
                self.ds_port
            )
        });
    }

    fn check_bootstrap(&self, problems: &mut Problems) {
        let port = self.bootstrap.port;
        problems.add_if(port != 0 && port == self.port, || {
            format!(
                "`kubernetes.bootstrap.port` is {port}, the port of the API (`kubernetes.port`); expected another one"
            )
        });
    }

    fn check_backup(&self, problems: &mut Problems) {
        let backup = &self.backup;
        for (key, amount, min) in [
            ("keep", u64::from(backup.keep), 1),
            ("max_bytes", backup.max_bytes, 1),
        ] {
            problems.add_if(amount < min, || {
                format!("`kubernetes.backup.{key}` is {amount}; expected a number above 0")
            });
        }
        for (key, amount, zero_allowed) in [
            ("cpu", backup.cpu, false),
            ("mem", backup.mem, false),
            ("disk", backup.disk, true),
        ] {
            let is_valid = amount.is_finite() && (amount > 0.0 || (zero_allowed && amount == 0.0));
            problems.add_if(!is_valid, || {
                format!("`kubernetes.backup.{key}` is {amount}; expected a number above 0")
            });
        }
        problems.add_if(backup.timeout.duration().is_zero(), || {
            format!(
                "`kubernetes.backup.timeout` is {}; expected a length of time above 0",
                backup.timeout
            )
        });
        problems.add_if(
            backup.dir.as_ref().is_some_and(|dir| dir.as_os_str().is_empty()),
            || "`kubernetes.backup.dir` is empty; expected a directory".to_owned(),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_problems_are_listed() {
        assert!(Settings::default().problems().is_empty());
        for (text, expected) in [
            ("framework_name = \"\"", "FRAMEWORK_NAME"),
            ("auth_username = \"u\"", "AUTH_PASSWORD"),
            ("auth_password = \"p\"", "AUTH_USERNAME"),
            ("orch_agent_cpu = 0", "ORCH_AGENT_CPU"),
            ("ds_mem = -1.0", "DS_MEM"),
            ("orch_server_cpu_limit = 0", "ORCH_SERVER_CPU_LIMIT"),
            ("ds_disk = -1.0", "DS_DISK"),
            ("portrange_from = 7\nportrange_to = 7", "PORTRANGE_FROM"),
            ("heartbeat_interval = \"0s\"", "HEARTBEAT_INTERVAL"),
            ("orch_agent_count = 101", "max_scale"),
            ("ds_etcd = true", "DS_MYSQL"),
            ("ds_etcd = true\nds_mysql = false\nds_count = 2", "odd numbers"),
            ("ds_etcd = true\nds_mysql = false\nds_count = 4", "odd numbers"),
            ("ds_count = 2", "one SQL datastore"),
            ("ds_endpoint = \"http://h:1\"", "DS_COUNT"),
            ("containers = false", "ds_command"),
            (
                "containers = false\nds_etcd = true\nds_mysql = false\nds_count = 3\nds_command = \"exec etcd\"",
                "runs one datastore",
            ),
            (
                "containers = false\nds_etcd = true\nds_mysql = false\nvolume_ds = \"data\"",
                "an absolute path",
            ),
            ("ds_etcd = true\nds_mysql = false\nds_port = 2380", "DS_PEER_PORT"),
            ("orch_node_env = [\"=secret\"]", "NAME=VALUE"),
            ("orch_agent_string = \" \"", "ORCH_AGENT_STRING"),
            ("kubeconfig_file = \"../x\"", "kubeconfig_file"),
            ("bootstrap.port = 10000", "bootstrap.port"),
            (
                "orch_ds_constraint = \"rack:r1\"",
                "(ORCH_DS_CONSTRAINT) is \"rack:r1\"",
            ),
            (
                "orch_server_constraint = \"hostname:a:b\"",
                "ORCH_SERVER_CONSTRAINT",
            ),
            (
                "orch_agent_constraint = \"a b\"",
                "expected the host name of an agent",
            ),
            ("backup.keep = 0", "backup.keep"),
            ("backup.max_bytes = 0", "backup.max_bytes"),
            ("backup.mem = 0", "backup.mem"),
            ("backup.disk = -1.0", "backup.disk"),
            ("backup.timeout = \"0s\"", "backup.timeout"),
            ("backup.dir = \"\"", "backup.dir"),
        ] {
            let settings: Settings = toml::from_str(text).expect(text);
            let problems = settings.problems();
            assert_eq!(problems.len(), 1, "{text}: {problems:?}");
            assert!(problems[0].contains(expected), "{text}: {problems:?}");
        }
        let settings: Settings = toml::from_str("ds_cpu = 0\nds_count = 5").expect("settings");
        assert_eq!(settings.problems().len(), 2);
    }
}
