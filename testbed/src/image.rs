//! OCI images, made without a container daemon.

use std::{env, fs, io, path::Path};

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tar::{EntryType, Header};

/// Not root, and nobody that this machine knows.
const USER: &str = "65532:65532";

const INDEX: &str = "index.json";
/// Annotations by which containerd, which looks for the whole reference, and others import an image.
const NAMES: [&str; 2] = ["io.containerd.image.name", "org.opencontainers.image.ref.name"];

/// An image that consists of one static program, as an OCI archive: a tar of an OCI image layout (image-spec 1.1). The
/// same program gives the same digest.
///
/// [`Cluster::load_image`](crate::Cluster::load_image) makes it known to a node.
#[derive(Clone, Debug)]
pub struct Image {
    name: String,
    tag: String,
    digest: String,
    archive: Vec<u8>,
}

impl Image {
    /// An image whose entry point is this program, for this machine's architecture, run as user 65532.
    ///
    /// `reference` is a name with a tag, such as `example.com/hello:1`.
    ///
    /// # Errors
    /// The program cannot be read, or the reference has no tag.
    pub fn of_program(reference: &str, program: &Path) -> io::Result<Self> {
        let (name, tag) =
            reference.rsplit_once(':').filter(|(_, tag)| !tag.contains('/')).ok_or_else(|| {
                let problem = format!("the reference {reference:?} has no tag; name:tag is accepted");
                io::Error::new(io::ErrorKind::InvalidInput, problem)
            })?;
        let read = fs::read(program);
        let content =
            read.map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", program.display())))?;
        let file = program.file_name().unwrap_or_default().to_string_lossy();

        let layer = archive([(&*file, &*content, 0o755)])?;
        let config = bytes(&json!({
            "architecture": architecture(),
            "os": "linux",
            "config": {"Entrypoint": [format!("/{file}")], "User": USER},
            "rootfs": {"type": "layers", "diff_ids": [digest(&layer)]},
        }));
        let manifest = bytes(&json!({
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": descriptor("config.v1+json", &config),
            "layers": [descriptor("layer.v1.tar", &layer)],
        }));
        let mut entry = descriptor("manifest.v1+json", &manifest);
        let [name_of_containerd, name_of_others] = NAMES;
        entry["annotations"] = json!({name_of_containerd: reference, name_of_others: tag});
        let index = bytes(&json!({"schemaVersion": 2, "manifests": [entry]}));

        let blobs = [&layer, &config, &manifest].map(|blob| (blob_path(blob), blob));
        let mut files =
            vec![("oci-layout", &br#"{"imageLayoutVersion":"1.0.0"}"#[..], 0o644), (INDEX, &index, 0o644)];
        files.extend(blobs.iter().map(|(path, blob)| (&**path, &***blob, 0o644)));
        Ok(Self {
            name: name.to_owned(),
            tag: tag.to_owned(),
            digest: digest(&manifest),
            archive: archive(files)?,
        })
    }

    /// The name with the tag.
    pub fn reference(&self) -> String {
        format!("{}:{}", self.name, self.tag)
    }

    /// The name with the digest, such as `example.com/hello@sha256:…`.
    pub fn pinned(&self) -> String {
        format!("{}@{}", self.name, self.digest)
    }

    /// The digest of the manifest.
    pub fn digest(&self) -> &str {
        &self.digest
    }

    /// The bytes of the OCI archive.
    pub fn archive(&self) -> &[u8] {
        &self.archive
    }
}

/// Reference and digest of each named image of an OCI archive.
pub(crate) fn named(archive: &Path) -> io::Result<Vec<(String, String)>> {
    let invalid = |problem: &str| io::Error::new(io::ErrorKind::InvalidData, problem.to_owned());
    let mut archive = tar::Archive::new(fs::File::open(archive)?);
    for file in archive.entries()? {
        let file = file?;
        if file.path()? != Path::new(INDEX) {
            continue;
        }
        let index: Value = serde_json::from_reader(file)?;
        let entries = index["manifests"].as_array().into_iter().flatten().filter_map(|entry| {
            let name = NAMES.iter().find_map(|annotation| entry["annotations"][*annotation].as_str())?;
            Some((name.to_owned(), entry["digest"].as_str()?.to_owned()))
        });
        let entries: Vec<_> = entries.collect();
        let problem = "index.json names no image: the annotation org.opencontainers.image.ref.name is needed";
        return if entries.is_empty() { Err(invalid(problem)) } else { Ok(entries) };
    }
    Err(invalid("there is no index.json: an OCI archive is needed"))
}

fn archive<'a>(files: impl IntoIterator<Item = (&'a str, &'a [u8], u32)>) -> io::Result<Vec<u8>> {
    let mut builder = tar::Builder::new(Vec::new());
    for (path, content, mode) in files {
        // No times and no owner: the same files give the same bytes.
        let mut header = Header::new_ustar();
        header.set_entry_type(EntryType::Regular);
        header.set_mode(mode);
        header.set_size(content.len() as u64);
        header.set_mtime(0);
        builder.append_data(&mut header, path, content)?;
    }
    builder.into_inner()
}

fn bytes(document: &Value) -> Vec<u8> {
    document.to_string().into_bytes()
}

fn hex(content: &[u8]) -> String {
    Sha256::digest(content).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn digest(content: &[u8]) -> String {
    format!("sha256:{}", hex(content))
}

fn blob_path(content: &[u8]) -> String {
    format!("blobs/sha256/{}", hex(content))
}

fn descriptor(kind: &str, content: &[u8]) -> Value {
    json!({
        "mediaType": format!("application/vnd.oci.image.{kind}"),
        "digest": digest(content),
        "size": content.len(),
    })
}

/// In Go's terms, which are the image specification's.
fn architecture() -> &'static str {
    match env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, io::Read as _};

    use tempfile::TempDir;

    use super::*;

    fn program(folder: &TempDir) -> std::path::PathBuf {
        let path = folder.path().join("hello");
        fs::write(&path, "a program").unwrap();
        path
    }

    fn files(archive: &[u8]) -> BTreeMap<String, Vec<u8>> {
        let mut archive = tar::Archive::new(archive);
        let entries = archive.entries().unwrap().map(|entry| {
            let mut entry = entry.unwrap();
            let mut content = Vec::new();
            entry.read_to_end(&mut content).unwrap();
            (entry.path().unwrap().to_str().unwrap().to_owned(), content)
        });
        entries.collect()
    }

    #[test]
    fn every_blob_is_where_its_digest_says_and_leads_to_the_program() {
        let folder = TempDir::new().unwrap();
        let image = Image::of_program("example.com:5000/hello:1", &program(&folder)).unwrap();
        let files = files(image.archive());
        let blob = |descriptor: &Value| {
            let digest = descriptor["digest"].as_str().unwrap();
            let content = &files[&format!("blobs/{}", digest.replace(':', "/"))];
            assert_eq!(super::digest(content), digest);
            assert_eq!(descriptor["size"], content.len());
            content.clone()
        };
        let index: Value = serde_json::from_slice(&files["index.json"]).unwrap();
        let entry = &index["manifests"][0];
        assert_eq!(entry["annotations"]["io.containerd.image.name"], "example.com:5000/hello:1");
        assert_eq!(image.pinned(), format!("example.com:5000/hello@{}", entry["digest"].as_str().unwrap()));

        let manifest: Value = serde_json::from_slice(&blob(entry)).unwrap();
        let config: Value = serde_json::from_slice(&blob(&manifest["config"])).unwrap();
        assert_eq!(config["config"]["Entrypoint"], json!(["/hello"]));
        assert_eq!(config["rootfs"]["diff_ids"][0], manifest["layers"][0]["digest"]);
        let layer = blob(&manifest["layers"][0]);
        assert_eq!(self::files(&layer)["hello"], b"a program");
        let mut layer = tar::Archive::new(&*layer);
        let entry = layer.entries().unwrap().next().unwrap().unwrap();
        assert_eq!(entry.header().mode().unwrap(), 0o755);
    }

    #[test]
    fn the_same_program_gives_the_same_bytes() {
        let folder = TempDir::new().unwrap();
        let path = program(&folder);
        let image = || Image::of_program("example.com/hello:1", &path).unwrap();
        let first = image();
        // Another time of the file.
        program(&folder);
        assert_eq!(first.archive(), image().archive());
    }

    #[test]
    fn the_names_of_an_archive_are_read() {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("archive");
        let image = Image::of_program("example.com/hello:1", &program(&folder)).unwrap();
        fs::write(&path, image.archive()).unwrap();
        assert_eq!(named(&path).unwrap(), [(image.reference(), image.digest().to_owned())]);

        for (name, content, problem) in
            [("index.json", "{}", "names no image"), ("manifest.json", "[]", "an OCI archive is needed")]
        {
            fs::write(&path, archive([(name, content.as_bytes(), 0o644)]).unwrap()).unwrap();
            let error = named(&path).unwrap_err().to_string();
            assert!(error.contains(problem), "{error}");
        }
    }

    #[test]
    fn a_reference_needs_a_tag() {
        let folder = TempDir::new().unwrap();
        for reference in ["hello", "example.com:5000/hello"] {
            let error = Image::of_program(reference, &program(&folder)).unwrap_err().to_string();
            assert!(error.contains(reference) && error.contains("name:tag"), "{error}");
        }
    }
}
