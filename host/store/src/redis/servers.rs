//! Where the primary is: at an address, or where Sentinels say.

use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

use ::redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, ConnectionInfo, IntoConnectionInfo, RedisConnectionInfo,
    TlsCertificates,
};
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use tokio::time::timeout;

use crate::{Cause, Tls};

/// The port of a Sentinel.
const SENTINEL_PORT: u16 = 26379;

/// How to connect to the primary.
#[derive(Clone)]
pub(crate) struct Servers {
    pub(crate) place: Place,
    /// The user, the password and the database at the primary.
    pub(crate) settings: RedisConnectionInfo,
    /// TLS to all servers.
    pub(crate) tls: Option<Tls>,
    /// The number of replicas that have to confirm what is written or read; 0: the primary alone
    /// answers.
    pub(crate) replicas: u32,
}

#[derive(Clone)]
pub(crate) enum Place {
    Address(ConnectionAddr),
    Sentinels {
        /// Host and port of each.
        servers: Vec<(String, u16)>,
        /// The name of the primary at the Sentinels.
        name: String,
        /// The user and the password at the Sentinels.
        settings: RedisConnectionInfo,
    },
}

/// What a Sentinel says about the primary.
#[derive(Debug)]
struct Report {
    address: (String, u16),
    /// Greater after each failover.
    epoch: u64,
    /// The number of replicas that the Sentinel knows, whether they run or not.
    replicas: u32,
}

/// The present primary.
pub(crate) struct Primary {
    pub(crate) client: Client,
    pub(crate) address: String,
    /// The number of its replicas, if Sentinels know it.
    pub(crate) replicas: Option<u32>,
}

impl Servers {
    /// Whether the certificates in the configuration can be used.
    ///
    /// # Errors
    /// Why not.
    pub(crate) fn check_tls(&self) -> Result<(), Cause> {
        self.client(ConnectionAddr::Tcp("localhost".to_owned(), 1), &self.settings)
            .map(drop)
    }

    /// Host and port of the servers in the configuration.
    pub(crate) fn addresses(&self) -> Vec<(String, u16)> {
        match &self.place {
            Place::Sentinels { servers, .. } => servers.clone(),
            Place::Address(ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. }) => {
                vec![(host.clone(), *port)]
            }
            Place::Address(_) => Vec::new(),
        }
    }

    /// The present primary.
    ///
    /// # Errors
    /// If no Sentinel names one within `limit`, or TLS is misconfigured.
    pub(crate) async fn primary(&self, limit: Duration) -> Result<Primary, Cause> {
        let (address, replicas) = match &self.place {
            Place::Address(address) => (address.clone(), None),
            Place::Sentinels { .. } => {
                let Report {
                    address: (host, port),
                    replicas,
                    ..
                } = self.ask_sentinels(limit).await?;
                (ConnectionAddr::Tcp(host, port), Some(replicas))
            }
        };
        Ok(Primary {
            address: address.to_string(),
            client: self.client(address, &self.settings)?,
            replicas,
        })
    }

    /// What each Sentinel answers: the address of the primary, or an error. None without Sentinels.
    pub(crate) async fn answers(&self, limit: Duration) -> Vec<(String, Result<String, String>)> {
        let Place::Sentinels { servers, .. } = &self.place else {
            return Vec::new();
        };
        let asked = servers.iter().map(|server| async {
            let answer = self.ask(server, limit).await;
            let answer = answer.map(
                |Report {
                     address: (host, port),
                     ..
                 }| format!("{host}:{port}"),
            );
            let (host, port) = server;
            (
                format!("{host}:{port}"),
                answer.map_err(|error| transom_common::error_chain(&*error)),
            )
        });
        futures::future::join_all(asked).await
    }

    /// The primary in the latest report of most Sentinels: a Sentinel that is cut off from the others
    /// names a former one.
    async fn ask_sentinels(&self, limit: Duration) -> Result<Report, Cause> {
        let Place::Sentinels { servers, .. } = &self.place else {
            return Err("no Sentinel is configured".into());
        };
        let mut asked: FuturesUnordered<_> = servers.iter().map(|server| self.ask(server, limit)).collect();
        let (mut reports, mut failure) = (Vec::new(), None);
        while let Some(answer) = asked.next().await {
            match answer {
                Ok(report) => reports.push(report),
                Err(error) => failure = Some(error),
            }
            if reports.len() > servers.len() / 2 {
                break;
            }
        }
        let latest = reports.into_iter().max_by_key(|report| report.epoch);
        latest.ok_or_else(|| failure.unwrap_or_else(|| "no Sentinel is configured".into()))
    }

    async fn ask(&self, (host, port): &(String, u16), limit: Duration) -> Result<Report, Cause> {
        let Place::Sentinels { name, settings, .. } = &self.place else {
            return Err("no Sentinel is configured".into());
        };
        let asked = async {
            let client = self.client(ConnectionAddr::Tcp(host.clone(), *port), settings)?;
            let config = AsyncConnectionConfig::new().set_connection_timeout(Some(limit));
            let mut connection = client
                .get_multiplexed_async_connection_with_config(&config)
                .await?;
            let fields: HashMap<String, String> = ::redis::cmd("SENTINEL")
                .arg("MASTER")
                .arg(name)
                .query_async(&mut connection)
                .await?;
            let number = |name: &str| fields.get(name)?.parse::<u64>().ok();
            let report = fields.get("ip").zip(number("port")).and_then(|(host, port)| {
                Some(Report {
                    address: (host.clone(), u16::try_from(port).ok()?),
                    epoch: number("config-epoch")?,
                    replicas: u32::try_from(number("num-slaves")?).ok()?,
                })
            });
            report.ok_or_else(|| Cause::from("its answer has no address, epoch or number of replicas"))
        };
        let answer = timeout(limit, asked).await;
        answer
            .unwrap_or_else(|_| Err(format!("no answer within {limit:?}").into()))
            .map_err(|error| {
                format!(
                    "the Sentinel {host}:{port}: {}",
                    transom_common::error_chain(&*error)
                )
                .into()
            })
    }

    /// How to connect to one of the servers.
    pub(crate) fn info(
        &self,
        address: ConnectionAddr,
        settings: &RedisConnectionInfo,
    ) -> Result<ConnectionInfo, ::redis::RedisError> {
        let info = secured(address, self.tls.as_ref()).into_connection_info()?;
        Ok(info.set_redis_settings(settings.clone()))
    }

    fn client(&self, address: ConnectionAddr, settings: &RedisConnectionInfo) -> Result<Client, Cause> {
        let info = self.info(address, settings)?;
        let Some(authorities) = self.tls.as_ref().and_then(|tls| tls.authorities.as_ref()) else {
            return Ok(Client::open(info)?);
        };
        let certificates = CertificateDer::pem_slice_iter(authorities).collect::<Result<Vec<_>, _>>()?;
        if certificates.is_empty() {
            return Err("the CA file contains no PEM certificate".into());
        }
        let trust = TlsCertificates {
            client_tls: None,
            root_cert: Some(authorities.clone()),
        };
        Ok(Client::build_with_tls(info, trust)?)
    }
}

impl fmt::Display for Servers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Place::Address(address) => address.fmt(f),
            Place::Sentinels { servers, name, .. } => {
                write!(f, "`{name}` of the Sentinels")?;
                for (number, (host, port)) in servers.iter().enumerate() {
                    write!(f, "{}{host}:{port}", if number == 0 { " " } else { ", " })?;
                }
                Ok(())
            }
        }
    }
}

/// Parses `[USER[:PASSWORD]@]HOST[:PORT],…/NAME[/DATABASE]`: the place, and the settings of the
/// primary.
///
/// # Errors
/// What is wrong, without the address.
pub(crate) fn sentinels(text: &str) -> Result<(Place, RedisConnectionInfo), String> {
    const FORM: &str =
        "expected redis-sentinel://HOST:PORT,HOST:PORT,HOST:PORT/NAME, with the name of the primary";
    let (authority, path) = text.split_once('/').ok_or(FORM)?;
    let (name, database) = path.split_once('/').unwrap_or((path, ""));
    if name.is_empty()
        || !name
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "-._".contains(c))
    {
        return Err(FORM.to_owned());
    }
    let (user, hosts) = match authority.rsplit_once('@') {
        Some((user, hosts)) => (format!("{user}@"), hosts),
        None => (String::new(), authority),
    };
    let (mut servers, mut settings) = (Vec::new(), RedisConnectionInfo::default());
    for host in hosts.split(',').map(str::trim) {
        if host.is_empty() {
            return Err(FORM.to_owned());
        }
        let has_port = host
            .rsplit_once(':')
            .is_some_and(|(_, port)| !port.ends_with(']'));
        let port = if has_port {
            String::new()
        } else {
            format!(":{SENTINEL_PORT}")
        };
        // The library parses and decodes an address of one server.
        let info = format!("redis://{user}{host}{port}/{database}").into_connection_info();
        let info = info.map_err(|error| error.to_string())?;
        settings = info.redis_settings().clone();
        match info.addr() {
            ConnectionAddr::Tcp(host, port) if *port != 0 => servers.push((host.clone(), *port)),
            _ => return Err(FORM.to_owned()),
        }
    }
    let place = Place::Sentinels {
        servers,
        name: name.to_owned(),
        settings: RedisConnectionInfo::default(),
    };
    Ok((place, settings))
}

/// The address, with TLS if it is configured.
fn secured(address: ConnectionAddr, tls: Option<&Tls>) -> ConnectionAddr {
    match (address, tls) {
        (ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. }, Some(tls)) => {
            ConnectionAddr::TcpTls {
                host,
                port,
                insecure: !tls.verify,
                tls_params: None,
            }
        }
        (address, _) => address,
    }
}
