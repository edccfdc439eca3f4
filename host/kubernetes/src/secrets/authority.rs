//! The certificate authority of a datastore, and the certificates that it signs.
//!
//! Members of a kvstore accept only clients and members with a certificate of this authority; clients of a
//! SQL server accept only a server with one. The authority does not
//! expire; its certificates are valid for ten years, and every start of a task has new ones.

use jiff::Timestamp;
use jiff::tz::TimeZone;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, date_time_ymd,
};
use serde::{Deserialize, Serialize};
use transom_common::Secret;

/// How long certificates are valid.
const YEARS: i32 = 10;

/// A certificate and its key in PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Signed {
    pub(crate) certificate: String,
    pub(crate) key: Secret,
}

/// The stored authority: its certificate and its key in PEM.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Authority {
    pub(crate) certificate: String,
    #[serde(serialize_with = "super::reveal")]
    key: Secret,
}

impl Authority {
    /// # Errors
    /// If the system has no random numbers.
    pub(crate) fn generate() -> Result<Self, rcgen::Error> {
        let key = KeyPair::generate()?;
        Ok(Self {
            certificate: Self::params()?.self_signed(&key)?.pem(),
            key: key.serialize_pem().into(),
        })
    }

    fn params() -> Result<CertificateParams, rcgen::Error> {
        let mut params = CertificateParams::new(Vec::new())?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        params
            .distinguished_name
            .push(DnType::CommonName, "transom datastore");
        Ok(params)
    }

    /// The certificate of a member or SQL server that is reached at these names and addresses. A member is also a
    /// client of other members and of itself.
    pub(crate) fn member(&self, names: Vec<String>, now: Timestamp) -> Result<Signed, rcgen::Error> {
        let usages = [
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        self.sign("member", names, usages.to_vec(), now)
    }

    /// The certificate of a client. It has no names, because etcd would compare them with the client's
    /// address.
    pub(crate) fn client(&self, now: Timestamp) -> Result<Signed, rcgen::Error> {
        let usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.sign("client", Vec::new(), usages, now)
    }

    fn sign(
        &self,
        name: &str,
        names: Vec<String>,
        usages: Vec<ExtendedKeyUsagePurpose>,
        now: Timestamp,
    ) -> Result<Signed, rcgen::Error> {
        let issuer = Issuer::new(Self::params()?, KeyPair::from_pem(self.key.reveal())?);
        let mut params = CertificateParams::new(names)?;
        params.distinguished_name.push(DnType::CommonName, name);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = usages;
        let today = now.to_zoned(TimeZone::UTC).date();
        // Every month has a 28th.
        let (month, day) = (today.month().unsigned_abs(), today.day().min(28).unsigned_abs());
        params.not_after = date_time_ymd(i32::from(today.year()) + YEARS, month, day);
        let key = KeyPair::generate()?;
        Ok(Signed {
            certificate: params.signed_by(&key, &issuer)?.pem(),
            key: key.serialize_pem().into(),
        })
    }
}
