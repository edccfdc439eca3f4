//! The shell commands (`sh`) of the one-off tasks, and of a kvstore that is being restored.
//!
//! A one-off task leaves its result in the file `result` of its sandbox: a word and a text. File
//! names and addresses are quoted; a password is only in the environment. The commands that run in the
//! image of a kvstore need no program besides etcd's, because some images have none.

use std::fmt::Write as _;

use super::phase::OneOffOutcome;
use crate::kvstore::DATA_FUNCTIONS;

/// The file with the result of a one-off task.
pub(crate) const RESULT: &str = "result";
/// The dump, in the sandbox of the task that makes or loads it.
pub(crate) const DUMP: &str = "backup";
/// The maximum size of a result in bytes.
pub(crate) const MAX_RESULT_BYTES: u64 = 64 << 10;
/// The longest wait for a kvstore's health.
const MAX_HEALTH_SECONDS: u64 = 600;

/// The number of attempts to connect to a SQL server that is starting, one per second.
const MAX_CONNECT_ATTEMPTS: u32 = 120;

/// The options with which a snapshot is restored for the only member of a new cluster. The new cluster
/// has another token, so that a former member that returns cannot belong to it.
const SINGLE_MEMBER_OPTIONS: &str = concat!(
    r#" --initial-cluster-token "$MESOS_TASK_ID""#,
    r#" --name "$ETCD_NAME" --initial-cluster "$ETCD_NAME=$ETCD_INITIAL_ADVERTISE_PEER_URLS""#,
    r#" --initial-advertise-peer-urls "$ETCD_INITIAL_ADVERTISE_PEER_URLS""#,
);

/// The address, user and database of the SQL server.
#[derive(Clone, Debug)]
pub(crate) struct Sql<'a> {
    pub(crate) host: &'a str,
    pub(crate) port: u16,
    pub(crate) user: &'a str,
    pub(crate) database: &'a str,
    /// Whether the certificate of its authority is in `$tls`.
    pub(crate) tls: bool,
}

/// The beginning of the command of a one-off task: the functions that write its result.
const PRELUDE: &str = r#"
has() { command -v "$1" >/dev/null; }
say() { printf '%s\n' "$*" >result; }
log() {
    text=
    [ ! -e log ] || while IFS= read -r line || [ -n "$line" ]; do
        [ "${#text}" -lt 600 ] || text=
        text="$text$line "
    done <log
    printf %s "$text"
}
pause() {
    if has sleep; then sleep 1; else etcdctl --endpoints=http://127.0.0.1:0 --command-timeout=1s get pause >/dev/null 2>&1; fi
}
fail() { say "failed $*: $(log)"; exit 1; }
export ETCDCTL_API=3
"#;

/// Leaves the digest of the dump as the result.
const WRITE_DIGEST: &str = r#"
digest=$(sha256sum backup 2>log) && digest=${digest%% *} && [ -n "$digest" ] || fail sha256sum
say "done $digest"
"#;
/// Before [`WRITE_DIGEST`]: without the program, etcd's own digest in the snapshot has to do.
const MAY_LACK_DIGEST: &str = r"
has sha256sum || { say done; exit 0; }";

/// The command that dumps a kvstore, from the first of its members that answers.
pub(crate) fn dump_kvstore(folder: &str, endpoints: &[String]) -> String {
    let endpoints: Vec<String> = endpoints.iter().map(|endpoint| quoted(endpoint)).collect();
    format!(
        "cd {folder} || exit 1\n{PRELUDE}made=\nfor endpoint in {}; do\n  \
         if has rm; then rm -f backup backup.part; fi\n  \
         if etcdctl --endpoints=\"$endpoint\" snapshot save backup >log 2>&1; then made=1; break; fi\ndone\n\
         [ -n \"$made\" ] || fail etcdctl snapshot save{MAY_LACK_DIGEST}{WRITE_DIGEST}",
        endpoints.join(" ")
    )
}

/// The command that waits until a kvstore is healthy.
pub(crate) fn check_kvstore(folder: &str, endpoint: &str, seconds: u64) -> String {
    let seconds = seconds.min(MAX_HEALTH_SECONDS);
    let endpoint = quoted(endpoint);
    format!(
        "cd {folder} || exit 1\n{PRELUDE}now() {{ if has date; then date +%s; else echo \"${{SECONDS:-0}}\"; fi; }}\n\
         end=$(( $(now) + {seconds} ))\n\
         until etcdctl --endpoints={endpoint} endpoint health >log 2>&1; do\n  \
         [ \"$(now)\" -lt \"$end\" ] || fail etcdctl endpoint health\n  pause\ndone\nsay done\n"
    )
}

/// Defines the functions that call the SQL clients, whose names depend on the image: `mariadb` in new
/// ones, `mysql` in old ones. Waits until the server accepts connections.
fn sql_client_functions(sql: &Sql<'_>) -> String {
    let Sql {
        host,
        port,
        user,
        database,
        tls,
    } = sql;
    // With this option the clients of both MariaDB and MySQL require TLS and a certificate of the
    // authority, which signs no other servers. Their options for the check of names differ.
    let authority = if *tls { " --ssl-ca=\"${tls}ca.pem\"" } else { "" };
    let (host, user, database) = (quoted(host), quoted(user), quoted(database));
    format!(
        "dump=$(command -v mariadb-dump || command -v mysqldump) || fail there is no mariadb-dump and no mysqldump\n\
         client=$(command -v mariadb || command -v mysql) || fail there is no mariadb and no mysql\n\
         sql() {{ program=$1; shift; \"$program\" --no-defaults --protocol=tcp --host={host} --port={port} --user={user}{authority} \"$@\"; }}\n\
         until sql \"$client\" -e 'SELECT 1' >log 2>&1; do\n  tries=$((tries + 1))\n  \
         [ $tries -lt {MAX_CONNECT_ATTEMPTS} ] || fail \"$client\"\n  sleep 1\ndone\n\
         save() {{ sql \"$dump\" --single-transaction --routines --add-drop-database --databases {database}; }}\n"
    )
}

/// The command that dumps the orchestrator's database.
pub(crate) fn dump_sql(folder: &str, sql: &Sql<'_>) -> String {
    format!(
        "cd {folder} || exit 1\n{PRELUDE}{}save >backup 2>log || fail \"$dump\"\n{WRITE_DIGEST}",
        sql_client_functions(sql)
    )
}

/// The command that loads a dump into a SQL server, and loads the former data again if that fails.
/// `again`: an earlier task was lost, so the former data are not known.
pub(crate) fn load_sql(folder: &str, sql: &Sql<'_>, sha256: &str, again: bool) -> String {
    let database = sql.database;
    let undo = if again {
        "say \"broken $reason\"\n"
    } else {
        "if sql \"$client\" <before 2>log; then say \"undone $reason\"; else say \"broken $reason; $(log)\"; fi\n"
    };
    format!(
        "cd {folder} || exit 1\n{PRELUDE}{}{}sql \"$client\" -e 'CREATE DATABASE IF NOT EXISTS {database}' >log 2>&1 \
         || fail \"$client\"\n\
         save >before 2>log || fail \"$dump\"\n\
         if sql \"$client\" <backup 2>log; then say done; exit 0; fi\nreason=\"$client: $(log)\"\n{undo}exit 1\n",
        verify(sha256),
        sql_client_functions(sql)
    )
}

fn verify(sha256: &str) -> String {
    format!(
        "printf '%s  %s\\n' {} backup | sha256sum -c - >log 2>&1 || fail the fetched backup has another digest\n",
        quoted(sha256)
    )
}

/// The command that runs before a kvstore starts and creates its data directory from the snapshot in
/// the sandbox. The former directory is kept under a name with the operation's id. The command may run
/// again after a crash, with a snapshot that was fetched again. A clustered member becomes the only
/// member of a new cluster, with the name and address in etcd's variables.
pub(crate) fn restore_kvstore(
    folder: &str,
    data: &str,
    sha256: &str,
    operation: &str,
    clustered: bool,
) -> String {
    let sha256 = quoted(sha256);
    let member = if clustered { SINGLE_MEMBER_OPTIONS } else { "" };
    let mut line = preamble(data, operation);
    let _ = write!(
        line,
        "cd {folder} || exit 1\n\
         if has sha256sum; then\n  digest=$(sha256sum backup)\n  \
         [ \"${{digest%% *}}\" = {sha256} ] || {{ echo 'the fetched backup has another digest' >&2; exit 1; }}\nfi\n\
         tool=$(command -v etcdutl || command -v etcdctl) || exit 1\n\
         restore() {{ ETCDCTL_API=3 \"$tool\" snapshot restore backup --data-dir \"$1\"{member}; }}\n\
         {RESTORE}) || exit 1\n"
    );
    line
}

/// The command that runs before a kvstore starts and restores the data directory that it had before
/// the operation.
pub(crate) fn revert_kvstore(data: &str, operation: &str) -> String {
    format!("{}{REVERT}) || exit 1\n", preamble(data, operation))
}

/// Exchanges directories. Without the programs for that, a subfolder becomes the one with the data, and
/// the file `$before` has the name of the former one.
const RESTORE: &str = r#"if exchanges; then
  rm -rf "$data/restore-new" || exit 1
  restore "$data/restore-new" || exit 1
  for other in "$data"/before-*; do
    case "$other" in "$before"*) ;; *) rm -rf "$other" ;; esac
  done
  if [ ! -e "$before" ]; then
    mkdir "$before.part" 2>/dev/null
    if [ -e "$data/member" ]; then mv "$data/member" "$before.part/member" || exit 1; fi
    mv "$before.part" "$before" || exit 1
  fi
  rm -rf "$data/member" && mv "$data/restore-new/member" "$data/member" || exit 1
  rm -rf "$data/restore-new" backup
else
  if ! former; then
    find_data "$data"
    former=${folder#"$data"}
    former=${former#/}
    former=${former:-.}
    printf '%s\n' "$former" >"$before" || exit 1
  fi
  find_unused "$data"
  restore "$data/$unused" || exit 1
  select_data "$data" "$unused" || exit 1
  for other in "$data"/before-*; do
    if [ -f "$other" ] && [ "$other" != "$before" ]; then printf '' >"$other"; fi
  done
  drop_other_data "$data" "$unused" "$former"
  printf '' >backup
fi
"#;
const REVERT: &str = r#"if exchanges; then
  rm -rf "$data/restore-new"
  if [ -e "$before.part/member" ]; then mv "$before.part/member" "$data/member" || exit 1; fi
  if [ -e "$before" ]; then
    rm -rf "$data/member" || exit 1
    if [ -e "$before/member" ]; then mv "$before/member" "$data/member" || exit 1; fi
    rmdir "$before" || exit 1
  elif [ ! -e "$data/member" ]; then
    echo 'the former data is not here' >&2
    exit 1
  fi
elif former; then
  select_data "$data" "$former" || exit 1
  drop_other_data "$data" "$former" "$former"
  printf '' >"$before" || exit 1
else
  find_data "$data"
  [ -e "$folder/member" ] || { echo 'the former data is not here' >&2; exit 1; }
fi
"#;

/// The beginning of a part of a longer command that runs in a subshell.
fn preamble(data: &str, operation: &str) -> String {
    format!(
        "(\nPATH=\"$PATH:/usr/local/bin\"\ndata={data}\nbefore=\"$data/before-{operation}\"\n\
         has() {{ command -v \"$1\" >/dev/null; }}\n\
         exchanges() {{ [ ! -e \"$data/current\" ] && has rm && has mv && has mkdir; }}\n\
         former() {{ read -r former 2>/dev/null <\"$before\"; }}\n{DATA_FUNCTIONS}"
    )
}

/// Parses the result of a one-off task.
pub(crate) fn parse_result(text: &str) -> Option<OneOffOutcome> {
    let text = text.trim();
    let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
    let rest = rest.trim().trim_end_matches(':').to_owned();
    match word {
        "done" => Some(OneOffOutcome::Done(rest)),
        "failed" => Some(OneOffOutcome::Failed(rest)),
        "undone" => Some(OneOffOutcome::Undone(rest)),
        "broken" => Some(OneOffOutcome::Broken(rest)),
        _ => None,
    }
}

/// Quotes a text as one word for the shell.
pub(crate) fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests;
