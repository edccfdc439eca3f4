//! The certificate authority and the certificates that it signs. The authority is stored in the
//! shared folder, so that the servers of a cluster use the same one, and a restarted server keeps
//! it.

use std::fs;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::Context;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};

/// A certificate and its key in PEM.
pub(crate) struct Signed {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

/// The certificate authority of a cluster.
pub(crate) struct Authority {
    pub(crate) certificate: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    /// Reads the authority of the folder, or creates one there.
    pub(crate) fn in_folder(folder: &Path) -> anyhow::Result<Self> {
        let (certificate, key) = (folder.join("authority.crt"), folder.join("authority.key"));
        if !certificate.exists() {
            let pair = KeyPair::generate()?;
            let signed = Self::params()?.self_signed(&pair)?;
            write_secret(&key, &pair.serialize_pem())?;
            fs::write(&certificate, signed.pem())?;
        }
        let certificate = read(&certificate)?;
        let issuer = Issuer::new(Self::params()?, KeyPair::from_pem(&read(&key)?)?);
        Ok(Self { certificate, issuer })
    }

    fn params() -> anyhow::Result<CertificateParams> {
        let mut params = CertificateParams::new(Vec::new())?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        params.distinguished_name.push(DnType::CommonName, "orchestrator");
        Ok(params)
    }

    /// A server's certificate for these names and addresses.
    pub(crate) fn server(&self, names: Vec<String>) -> anyhow::Result<Signed> {
        let mut params = CertificateParams::new(names)?;
        params
            .distinguished_name
            .push(DnType::CommonName, "kube-apiserver");
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        self.sign(params)
    }

    /// The client certificate of an administrator of the API.
    pub(crate) fn administrator(&self) -> anyhow::Result<Signed> {
        let mut params = CertificateParams::new(Vec::new())?;
        params.distinguished_name.push(DnType::CommonName, "admin");
        params
            .distinguished_name
            .push(DnType::OrganizationName, "system:masters");
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.sign(params)
    }

    fn sign(&self, mut params: CertificateParams) -> anyhow::Result<Signed> {
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.issuer)?;
        Ok(Signed {
            certificate: certificate.pem(),
            key: key.serialize_pem(),
        })
    }
}

/// The paths of the private and the public key for tokens of service accounts; the keys are created
/// if they are missing.
pub(crate) fn service_accounts(folder: &Path) -> anyhow::Result<(PathBuf, PathBuf)> {
    let (private, public) = (folder.join("accounts.key"), folder.join("accounts.pub"));
    if !public.exists() {
        let key = KeyPair::generate()?;
        write_secret(&private, &key.serialize_pem())?;
        fs::write(&public, key.public_key_pem())?;
    }
    Ok((private, public))
}

/// Writes a file that only its owner can read.
pub(crate) fn write_secret(path: &Path, text: &str) -> anyhow::Result<()> {
    use std::io::Write;
    let mut options = fs::OpenOptions::new();
    let file = options
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path);
    file.and_then(|mut file| file.write_all(text.as_bytes()))
        .with_context(|| format!("writing {}", path.display()))
}

fn read(path: &Path) -> anyhow::Result<String> {
    fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))
}
