//! How tasks receive the certificates of a datastore: in their environment, from which the beginning of
//! their command writes them into a private directory and then removes them. The sandbox is no place
//! for them, because agents serve its files.

use super::data_volume;
use crate::backup::script::quoted;
use crate::config::Config;
use crate::kind::Kind;
use crate::secrets::{DatastoreTls, Signed};

/// The files: the variable of each, its name, and what it contains.
const AUTHORITY: (&str, &str) = ("TRANSOM_TLS_AUTHORITY", "ca.pem");
const CLIENT: (&str, &str) = ("TRANSOM_TLS_CLIENT", "client.pem");
const CLIENT_KEY: (&str, &str) = ("TRANSOM_TLS_CLIENT_KEY", "client-key.pem");
const MEMBER: (&str, &str) = ("TRANSOM_TLS_MEMBER", "member.pem");
const MEMBER_KEY: (&str, &str) = ("TRANSOM_TLS_MEMBER_KEY", "member-key.pem");

/// Writes the files of the given variables. `$tls` is the beginning of their paths.
const WRITE: &str = r#"
for file in ca client client-key member member-key; do
    case $file in
    ca) text=$TRANSOM_TLS_AUTHORITY ;;
    client) text=$TRANSOM_TLS_CLIENT ;;
    client-key) text=$TRANSOM_TLS_CLIENT_KEY ;;
    member) text=$TRANSOM_TLS_MEMBER ;;
    member-key) text=$TRANSOM_TLS_MEMBER_KEY ;;
    esac
    [ -z "$text" ] && continue
    if command -v rm >/dev/null; then rm -f "$tls$file.pem"; fi
    (umask 077 && printf %b "$text" >"$tls$file.pem") || exit 1
done
unset TRANSOM_TLS_AUTHORITY TRANSOM_TLS_CLIENT TRANSOM_TLS_CLIENT_KEY TRANSOM_TLS_MEMBER TRANSOM_TLS_MEMBER_KEY text file
"#;

/// A certificate or key as a variable in one line, which `printf %b` decodes: an image may have a shell,
/// but no `base64`. PEM has no backslashes.
fn in_one_line(pem: &str) -> String {
    pem.replace('\n', r"\n")
}

/// The variables of a client with its certificate.
pub(super) fn client_variables(tls: &DatastoreTls) -> Vec<(&'static str, String)> {
    let Signed { certificate, key } = &tls.client;
    vec![
        (AUTHORITY.0, in_one_line(&tls.authority.certificate)),
        (CLIENT.0, in_one_line(certificate)),
        (CLIENT_KEY.0, in_one_line(key.reveal())),
    ]
}

/// The variables of a member with its certificate, and with that of a client for `etcdctl`. They name
/// the files, whose paths begin with `prefix`.
pub(super) fn member_variables(
    tls: &DatastoreTls,
    member: &Signed,
    prefix: &str,
    peers: bool,
) -> Vec<(&'static str, String)> {
    let path = |(_, file): (&str, &str)| format!("{prefix}{file}");
    let mut variables = client_variables(tls);
    variables.extend([
        (MEMBER.0, in_one_line(&member.certificate)),
        (MEMBER_KEY.0, in_one_line(member.key.reveal())),
        ("ETCD_CLIENT_CERT_AUTH", "true".to_owned()),
        ("ETCD_TRUSTED_CA_FILE", path(AUTHORITY)),
        ("ETCD_CERT_FILE", path(MEMBER)),
        ("ETCD_KEY_FILE", path(MEMBER_KEY)),
        ("ETCDCTL_CACERT", path(AUTHORITY)),
        ("ETCDCTL_CERT", path(CLIENT)),
        ("ETCDCTL_KEY", path(CLIENT_KEY)),
    ]);
    if peers {
        variables.extend([
            ("ETCD_PEER_CLIENT_CERT_AUTH", "true".to_owned()),
            ("ETCD_PEER_TRUSTED_CA_FILE", path(AUTHORITY)),
            ("ETCD_PEER_CERT_FILE", path(MEMBER)),
            ("ETCD_PEER_KEY_FILE", path(MEMBER_KEY)),
            // The address of a member that connects is not always one of its names: the container
            // runtime translates addresses. The authority signs no certificates but the cluster's.
            (
                "ETCD_EXPERIMENTAL_PEER_SKIP_CLIENT_SAN_VERIFICATION",
                "true".to_owned(),
            ),
        ]);
    }
    variables
}

/// The variables of a SQL server with its certificate.
pub(super) fn sql_variables(tls: &DatastoreTls, own: &Signed) -> Vec<(&'static str, String)> {
    vec![
        (AUTHORITY.0, in_one_line(&tls.authority.certificate)),
        (MEMBER.0, in_one_line(&own.certificate)),
        (MEMBER_KEY.0, in_one_line(own.key.reveal())),
    ]
}

/// The command of a SQL server with its certificate. The image's entry point creates the data only in an
/// empty directory, so the files are in one of their own. It gives the rights of root up to become the
/// user `mysql`, and adds the name of the server to options.
pub(super) fn sql_server() -> String {
    format!(
        "tls=$(mktemp -d)/ || exit 1{WRITE}\
         if [ \"$(id -u)\" = 0 ]; then chown -R mysql \"$tls\" || exit 1; fi\n\
         exec docker-entrypoint.sh --ssl-ca=\"${{tls}}ca.pem\" --ssl-cert=\"${{tls}}member.pem\" \
         --ssl-key=\"${{tls}}member-key.pem\" --require-secure-transport=ON"
    )
}

/// The variables with which a server finds the files of its certificate.
pub(super) fn server_variables(prefix: &str) -> Vec<(&'static str, String)> {
    let path = |(_, file): (&str, &str)| format!("{prefix}{file}");
    vec![
        ("K3S_DATASTORE_CAFILE", path(AUTHORITY)),
        ("K3S_DATASTORE_CERTFILE", path(CLIENT)),
        ("K3S_DATASTORE_KEYFILE", path(CLIENT_KEY)),
    ]
}

/// The beginning of the paths of the files of a member or server: in the volume with its data, which
/// contains secrets as well. The image of a kvstore may have no program that makes a directory for them.
pub(super) fn prefix(config: &Config, kind: Kind, number: u32) -> String {
    match kind {
        Kind::Datastore if config.settings.containers => {
            format!("{}/transom-tls-", data_volume::KVSTORE_DATA)
        }
        _ if config.settings.containers => format!("{}/transom-tls/", data_volume::SERVER_DATA),
        _ => {
            let data = data_volume::volume_name(config, kind, number);
            format!("{}/transom-tls/", data.trim_end_matches('/'))
        }
    }
}

/// The beginning of the command of a member or server, which writes the files.
pub(super) fn write_to(prefix: &str) -> String {
    let directory = if prefix.ends_with('/') {
        "(umask 077 && mkdir -p \"$tls\" && chmod 700 \"$tls\") || exit 1"
    } else {
        ""
    };
    format!("tls={}\n{directory}{WRITE}unset tls\n", quoted(prefix))
}

/// The beginning of the command of a one-off task, whose files exist as long as it runs, or in images
/// without `mktemp` as long as its container.
pub(super) fn write_temporary() -> String {
    format!(
        "if command -v mktemp >/dev/null; then\n  tls=$(mktemp -d)/ || exit 1\n  trap 'rm -rf \"$tls\"' EXIT\n  \
         trap 'exit 1' HUP INT TERM\nelse\n  tls=/transom-tls-\nfi{WRITE}\
         export ETCDCTL_CACERT=\"${{tls}}ca.pem\" ETCDCTL_CERT=\"${{tls}}client.pem\" \
         ETCDCTL_KEY=\"${{tls}}client-key.pem\"\n"
    )
}
