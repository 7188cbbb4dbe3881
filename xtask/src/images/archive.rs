//! An image as one file: the layout of the OCI image specification 1.1 in a tar archive, as `ctr images import`, `podman
//! load`, `skopeo` and `crane` read it.

use std::io::{self, Write as _};

use aws_lc_rs::digest::{SHA256, digest as hash};
use flate2::{Compression, GzBuilder};
use lucid_e2e::Error;
use serde_json::{Map, Value, json};
use tar::{Builder, EntryType};

use super::containerfile::Config;
use super::layer;

/// All images are of the epoch: when they were built would make each another one.
const CREATED: &str = "1970-01-01T00:00:00Z";

/// The parts of an image with one layer.
#[derive(Debug)]
pub(crate) struct Archive {
    layer: Blob,
    config: Blob,
    manifest: Blob,
}

#[derive(Debug)]
struct Blob {
    media_type: &'static str,
    bytes: Vec<u8>,
    digest: String,
}

impl Archive {
    /// An image that is run as `config` says, with `layer`, a tar archive, as its file system.
    pub(crate) fn new(config: &Config, layer: &[u8], compression: Compression) -> Result<Self, Error> {
        // The header of gzip would tell a time and the file's name: neither is there.
        let mut gzip = GzBuilder::new().mtime(0).write(Vec::new(), compression);
        gzip.write_all(layer)?;
        let compressed = Blob::new("application/vnd.oci.image.layer.v1.tar+gzip", gzip.finish()?);
        let config = Blob::json("application/vnd.oci.image.config.v1+json", &image_config(config, layer)?)?;
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": config.descriptor(),
            "layers": [compressed.descriptor()],
        });
        Ok(Self { layer: compressed, config, manifest: Blob::json(MANIFEST, &manifest)? })
    }

    /// The digest of the manifest: what a pod names after `@`.
    pub(crate) fn digest(&self) -> &str {
        &self.manifest.digest
    }

    /// Bytes of the compressed layer.
    pub(crate) fn layer_size(&self) -> usize {
        self.layer.bytes.len()
    }

    /// The archive, which says that the image is called `reference`.
    pub(crate) fn bytes(&self, reference: &str) -> Result<Vec<u8>, Error> {
        let mut descriptor = self.manifest.descriptor();
        descriptor["platform"] = json!({"architecture": architecture()?, "os": "linux"});
        // The first is containerd's own, for the whole reference; the second the specification's.
        descriptor["annotations"] = json!({
            "io.containerd.image.name": reference,
            "org.opencontainers.image.ref.name": reference.rsplit_once(':').map_or(reference, |(_, tag)| tag),
        });
        let index = json!({
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.index.v1+json",
            "manifests": [descriptor],
        });
        let layout = json!({"imageLayoutVersion": "1.0.0"});

        let mut blobs = [&self.layer, &self.config, &self.manifest];
        blobs.sort_by_key(|blob| &blob.digest);
        let mut archive = Builder::new(Vec::new());
        for folder in ["blobs", "blobs/sha256"] {
            archive.append_data(&mut layer::header(EntryType::Directory, 0o755, 0), folder, io::empty())?;
        }
        let (index, layout) = (index.to_string(), layout.to_string());
        let blobs =
            blobs.map(|blob| (format!("blobs/{}", blob.digest.replace(':', "/")), blob.bytes.as_slice()));
        let texts = [("index.json", &index), ("oci-layout", &layout)];
        let texts = texts.map(|(name, text)| (name.to_owned(), text.as_bytes()));
        for (name, bytes) in blobs.into_iter().chain(texts) {
            let mut header = layer::header(EntryType::Regular, 0o644, bytes.len());
            archive.append_data(&mut header, name, bytes)?;
        }
        Ok(archive.into_inner()?)
    }
}

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";

impl Blob {
    fn new(media_type: &'static str, bytes: Vec<u8>) -> Self {
        let digest = digest(&bytes);
        Self { media_type, bytes, digest }
    }

    /// Maps of serde_json are sorted, so that the same value is always the same text.
    fn json(media_type: &'static str, value: &Value) -> Result<Self, Error> {
        Ok(Self::new(media_type, serde_json::to_vec(value)?))
    }

    fn descriptor(&self) -> Value {
        json!({"mediaType": self.media_type, "digest": self.digest, "size": self.bytes.len()})
    }
}

fn image_config(config: &Config, layer: &[u8]) -> Result<Value, Error> {
    let Config { user, entrypoint, command, env, ports, labels } = config;
    let mut run = Map::new();
    run.insert("User".into(), json!(user));
    run.insert("Entrypoint".into(), json!(entrypoint));
    run.insert("WorkingDir".into(), json!("/"));
    run.insert("Labels".into(), json!(labels));
    if !command.is_empty() {
        run.insert("Cmd".into(), json!(command));
    }
    if !env.is_empty() {
        run.insert("Env".into(), json!(env));
    }
    if !ports.is_empty() {
        let ports: Map<_, _> = ports.iter().map(|port| (port.clone(), json!({}))).collect();
        run.insert("ExposedPorts".into(), ports.into());
    }
    Ok(json!({
        "created": CREATED,
        "architecture": architecture()?,
        "os": "linux",
        "config": run,
        "rootfs": {"type": "layers", "diff_ids": [digest(layer)]},
        "history": [{"created": CREATED, "created_by": "cargo xtask images"}],
    }))
}

/// The name that Go, and so OCI, gives to this machine's architecture.
fn architecture() -> Result<&'static str, Error> {
    match std::env::consts::ARCH {
        "x86_64" => Ok("amd64"),
        "aarch64" => Ok("arm64"),
        other => Err(format!("found a machine of {other}, accepted x86_64 and aarch64").into()),
    }
}

fn digest(bytes: &[u8]) -> String {
    let hash = hash(&SHA256, bytes);
    let hex: String = hash.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::io::Read as _;

    use flate2::read::GzDecoder;

    use super::*;

    fn config() -> Config {
        Config {
            user: "65532:65532".to_owned(),
            entrypoint: vec!["/a".to_owned()],
            ports: ["8080/tcp".to_owned()].into(),
            labels: (0..20).map(|n| (format!("label{n}"), n.to_string())).collect(),
            ..Config::default()
        }
    }

    fn archive(config: &Config, layer: &[u8]) -> Archive {
        Archive::new(config, layer, Compression::default()).unwrap()
    }

    fn files(archive: &[u8]) -> BTreeMap<String, Vec<u8>> {
        let mut archive = tar::Archive::new(archive);
        let mut files = BTreeMap::new();
        for entry in archive.entries().unwrap() {
            let mut entry = entry.unwrap();
            let mut bytes = Vec::new();
            entry.read_to_end(&mut bytes).unwrap();
            files.insert(entry.path().unwrap().display().to_string(), bytes);
        }
        files
    }

    #[test]
    fn index_leads_to_manifest_and_that_to_config_and_layer() {
        let archive = archive(&config(), b"a layer");
        let files = files(&archive.bytes("registry.example:5000/a:1").unwrap());
        let blob = |descriptor: &Value| {
            let name = descriptor["digest"].as_str().unwrap().replace(':', "/");
            let bytes = &files[&format!("blobs/{name}")];
            assert_eq!(descriptor["size"], bytes.len());
            assert_eq!(descriptor["digest"], digest(bytes));
            bytes.clone()
        };
        let json = |bytes: &[u8]| serde_json::from_slice::<Value>(bytes).unwrap();

        let index = json(&files["index.json"]);
        let descriptor = &index["manifests"][0];
        assert_eq!(descriptor["digest"], archive.digest());
        assert_eq!(descriptor["annotations"]["org.opencontainers.image.ref.name"], "1");
        let manifest = json(&blob(descriptor));
        let image = json(&blob(&manifest["config"]));
        assert_eq!(image["config"]["User"], "65532:65532");
        assert_eq!(image["config"]["ExposedPorts"]["8080/tcp"], json!({}));
        assert_eq!(image["created"], CREATED);
        let mut layer = Vec::new();
        GzDecoder::new(blob(&manifest["layers"][0]).as_slice()).read_to_end(&mut layer).unwrap();
        assert_eq!(layer, b"a layer");
        assert_eq!(image["rootfs"]["diff_ids"][0], digest(&layer));
    }

    #[test]
    fn the_same_image_is_the_same_archive_and_a_reference_does_not_change_its_digest() {
        let (first, second) = (archive(&config(), b"a"), archive(&config(), b"a"));
        assert_eq!(first.bytes("a:1").unwrap(), second.bytes("a:1").unwrap());
        assert_ne!(first.bytes("a:1").unwrap(), second.bytes("a:2").unwrap());
        let other = Config { user: "65533:65533".to_owned(), ..config() };
        assert_ne!(first.digest(), archive(&other, b"a").digest());
        assert_ne!(first.digest(), archive(&config(), b"b").digest());
    }
}
