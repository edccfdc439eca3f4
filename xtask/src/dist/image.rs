//! The OCI image layout: two layers, made without a container runtime.
//!
//! The first layer has the parts of a system that the binary needs: the libraries that it is linked
//! to with their licences, certificates of authorities, and the user. The second layer has Transom.
//! There is no shell. The binary runs as an unprivileged user, with its state in
//! `/var/lib/transom`.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::Context;
use serde_json::{Value, json};

use super::libraries::Library;
use super::tree::{Content, Tree};
use super::{Release, digest_of_file, gzip, hex, output};
use crate::steps::root;
use sha2::{Digest, Sha256};

/// The ids of user and group: the number that such images conventionally use for an unprivileged
/// user.
const USER: u64 = 65532;
const AUTHORITIES: &str = "etc/ssl/certs/ca-certificates.crt";
const SOURCE: &str = "https://github.com/transom-project/transom";

/// A compressed layer among the blobs.
struct Layer {
    descriptor: Value,
    /// The digest of the layer before compression.
    diff_id: String,
    created_by: &'static str,
}

/// Writes `transom-VERSION-oci`.
pub(super) fn write(
    release: &Release,
    sbom: &[u8],
    libraries: &[Library],
    work: &Path,
) -> anyhow::Result<()> {
    let dir = release.out.join(format!("transom-{}-oci", release.version));
    let blobs = dir.join("blobs/sha256");
    fs::create_dir_all(&blobs).with_context(|| format!("creating {}", blobs.display()))?;
    let layers = [
        write_layer(
            &system_tree(libraries)?,
            "libraries, certificates, user",
            release,
            &blobs,
            work,
        )?,
        write_layer(&program_tree(release, sbom), "transom", release, &blobs, work)?,
    ];
    let created = rfc3339(release.epoch)?;
    let history = layers
        .iter()
        .map(|layer| json!({"created": created, "created_by": layer.created_by}));
    let arch = match release.arch {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    let labels = json!({
        "org.opencontainers.image.title": "transom",
        "org.opencontainers.image.version": release.version,
        "org.opencontainers.image.source": SOURCE,
        "org.opencontainers.image.licenses": "Apache-2.0",
        "org.opencontainers.image.created": created,
    });
    let config = json!({
        "created": created,
        "architecture": arch,
        "os": "linux",
        "config": {
            "User": format!("{USER}:{USER}"),
            "Env": ["PATH=/usr/bin"],
            "Entrypoint": ["/usr/bin/transom"],
            "Cmd": ["serve", "--config", "/etc/transom/transom.toml"],
            "WorkingDir": "/var/lib/transom",
            "Volumes": {"/var/lib/transom": {}},
            "Labels": labels,
            "StopSignal": "SIGTERM",
        },
        "rootfs": {"type": "layers", "diff_ids": layers.each_ref().map(|layer| layer.diff_id.as_str())},
        "history": history.collect::<Vec<_>>(),
    });
    let config = write_blob(&blobs, "application/vnd.oci.image.config.v1+json", &config)?;
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": config,
        "layers": layers.each_ref().map(|layer| &layer.descriptor),
        "annotations": labels,
    });
    let mut manifest = write_blob(&blobs, "application/vnd.oci.image.manifest.v1+json", &manifest)?;
    manifest["platform"] = json!({"architecture": arch, "os": "linux"});
    manifest["annotations"] = json!({"org.opencontainers.image.ref.name": release.version});
    let index = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.index.v1+json",
        "manifests": [manifest],
    });
    fs::write(dir.join("index.json"), serde_json::to_vec(&index)?)?;
    fs::write(dir.join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#)?;
    Ok(())
}

/// The parts of a system that the binary needs.
fn system_tree(libraries: &[Library]) -> anyhow::Result<Tree> {
    let mut tree = Tree::default();
    for library in libraries {
        let path = library.path.to_string_lossy();
        let real = library.path.canonicalize()?;
        tree.add_program(path.trim_start_matches('/'), Content::File(real));
        let Some((package, _)) = &library.package else {
            continue;
        };
        let copyright = format!("usr/share/doc/{package}/copyright");
        let file = Path::new("/").join(&copyright);
        if file.exists() {
            tree.add_file(&copyright, Content::File(file));
        }
    }
    let authorities = Path::new("/").join(AUTHORITIES);
    anyhow::ensure!(
        authorities.exists(),
        "{} does not exist: apt-get install ca-certificates",
        authorities.display()
    );
    tree.add_file(AUTHORITIES, Content::File(authorities));
    tree.add_text(
        "etc/passwd",
        &format!(
            "root:x:0:0:root:/root:/sbin/nologin\ntransom:x:{USER}:{USER}:transom:/var/lib/transom:/sbin/nologin\n"
        ),
    );
    tree.add_text("etc/group", &format!("root:x:0:\ntransom:x:{USER}:\n"));
    tree.add_text("etc/nsswitch.conf", "hosts: files dns\n");
    tree.add_directory("tmp", 0o1777, 0);
    Ok(tree)
}

fn program_tree(release: &Release, sbom: &[u8]) -> Tree {
    let payload = &release.payload;
    let mut tree = Tree::default();
    tree.add_program("usr/bin/transom", Content::File(payload.binary.clone()));
    tree.add_file(
        "etc/transom/transom.toml",
        Content::File(root().join("packaging/transom.toml")),
    );
    tree.add_tree("etc/transom/plugins", &payload.components);
    tree.add_directory("var/lib/transom", 0o750, USER);
    tree.add_file(
        "usr/share/doc/transom/LICENSE",
        Content::File(root().join("LICENSE")),
    );
    tree.add_file(
        "usr/share/doc/transom/sbom.cdx.json",
        Content::Bytes(sbom.to_vec()),
    );
    tree
}

fn write_layer(
    tree: &Tree,
    created_by: &'static str,
    release: &Release,
    blobs: &Path,
    work: &Path,
) -> anyhow::Result<Layer> {
    let archive = work.join("layer.tar");
    let file = fs::File::create(&archive).with_context(|| format!("creating {}", archive.display()))?;
    tree.write_tar(std::io::BufWriter::new(file), "", release.epoch)?;
    let packed = blobs.join("layer");
    gzip(&archive, &packed, release.gzip_level())?;
    let (digest, size) = (digest_of_file(&packed)?, fs::metadata(&packed)?.len());
    fs::rename(&packed, blobs.join(&digest))?;
    Ok(Layer {
        descriptor: json!({
            "mediaType": "application/vnd.oci.image.layer.v1.tar+gzip",
            "digest": format!("sha256:{digest}"),
            "size": size,
        }),
        diff_id: format!("sha256:{}", digest_of_file(&archive)?),
        created_by,
    })
}

/// Writes a document and returns its descriptor.
fn write_blob(blobs: &Path, media_type: &str, document: &Value) -> anyhow::Result<Value> {
    let bytes = serde_json::to_vec(document)?;
    let digest = hex(&Sha256::digest(&bytes));
    fs::write(blobs.join(&digest), &bytes).with_context(|| format!("writing a blob of {media_type}"))?;
    Ok(json!({"mediaType": media_type, "digest": format!("sha256:{digest}"), "size": bytes.len()}))
}

/// A time in the format of RFC 3339.
fn rfc3339(epoch: u64) -> anyhow::Result<String> {
    let mut date = Command::new("date");
    date.args(["--utc", "--date", &format!("@{epoch}"), "+%Y-%m-%dT%H:%M:%SZ"]);
    let text = String::from_utf8(output(&mut date, "coreutils")?).context("a time")?;
    Ok(text.trim().to_owned())
}
