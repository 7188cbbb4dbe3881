//! OCI images, created without a container daemon.

use std::{env, fs, io, path::Path};

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tar::{EntryType, Header};

/// Not root, and unknown to this machine.
const USER: &str = "65532:65532";

const INDEX: &str = "index.json";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
/// Annotations that name an image on import. containerd reads the one with the whole reference.
const NAMES: [&str; 2] = ["io.containerd.image.name", "org.opencontainers.image.ref.name"];

/// Returns an image of one static program, its entry point, for this machine's architecture, as an OCI archive: a tar of an OCI
/// image layout (image-spec 1.1). The same content has the same digest.
pub(crate) fn of_program(reference: &str, program: &Path) -> io::Result<Vec<u8>> {
    let read = fs::read(program);
    let content =
        read.map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", program.display())))?;
    let file = program.file_name().unwrap_or_default().to_string_lossy();
    let files = archive([(&*file, Some(&*content), 0o755)])?;
    let config = json!({
        "architecture": architecture()?,
        "os": "linux",
        "rootfs": {"type": "layers", "diff_ids": [digest(&files)]},
        "config": {"Entrypoint": [format!("/{file}")], "User": USER},
    });
    let mut blobs = Vec::new();
    let layer = add(&mut blobs, "application/vnd.oci.image.layer.v1.tar", files);
    // Maps of serde_json are sorted, so the texts are deterministic.
    let config = add(&mut blobs, "application/vnd.oci.image.config.v1+json", config.to_string());
    let manifest = json!({"schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": [layer]});
    let mut entry = add(&mut blobs, MANIFEST, manifest.to_string());
    entry["annotations"] = json!({NAMES[0]: reference});
    entry["platform"] = json!({"architecture": architecture()?, "os": "linux"});
    let index = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.index.v1+json",
        "manifests": [entry],
    });

    let index = index.to_string();
    let mut files = vec![
        ("oci-layout", Some(&br#"{"imageLayoutVersion":"1.0.0"}"#[..]), 0o644),
        (INDEX, Some(index.as_bytes()), 0o644),
        ("blobs", None, 0o755),
        ("blobs/sha256", None, 0o755),
    ];
    files.extend(blobs.iter().map(|(path, content)| (&**path, Some(&**content), 0o644)));
    archive(files)
}

/// Reads the reference and digest of each named image in an OCI archive.
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

/// Writes a tar from the path, content (none for a folder) and mode of each file.
fn archive<'a>(files: impl IntoIterator<Item = (&'a str, Option<&'a [u8]>, u32)>) -> io::Result<Vec<u8>> {
    let mut builder = tar::Builder::new(Vec::new());
    for (path, content, mode) in files {
        // No times and no owner, so that the same files give the same bytes.
        let mut header = Header::new_ustar();
        header.set_entry_type(if content.is_some() { EntryType::Regular } else { EntryType::Directory });
        header.set_mode(mode);
        let content = content.unwrap_or_default();
        header.set_size(content.len() as u64);
        header.set_mtime(0);
        builder.append_data(&mut header, path, content)?;
    }
    builder.into_inner()
}

/// Adds a blob with its path, and returns its descriptor of image-spec 1.1 (`descriptor.md`).
fn add(blobs: &mut Vec<(String, Vec<u8>)>, media_type: &str, content: impl Into<Vec<u8>>) -> Value {
    let content = content.into();
    let digest = digest(&content);
    let descriptor = json!({"mediaType": media_type, "digest": digest, "size": content.len()});
    blobs.push((format!("blobs/{}", digest.replace(':', "/")), content));
    descriptor
}

fn digest(content: &[u8]) -> String {
    let hex: String = Sha256::digest(content).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}")
}

/// Architecture in Go's terms, as in the image specification.
fn architecture() -> io::Result<&'static str> {
    match env::consts::ARCH {
        "x86_64" => Ok("amd64"),
        "aarch64" => Ok("arm64"),
        other => {
            let problem = format!("expected a machine of x86_64 or aarch64, found {other}");
            Err(io::Error::new(io::ErrorKind::Unsupported, problem))
        }
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
    fn blobs_are_at_their_digests_and_lead_to_the_program() {
        let folder = TempDir::new().unwrap();
        let files = files(&of_program("example.com:5000/hello:1", &program(&folder)).unwrap());
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
        let image = || of_program("example.com/hello:1", &program(&folder)).unwrap();
        // The modification time of the file differs.
        assert_eq!(image(), image());
    }

    #[test]
    fn the_names_of_an_archive_are_read() {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("archive");
        let image = of_program("example.com/hello:1", &program(&folder)).unwrap();
        let index: Value = serde_json::from_slice(&files(&image)["index.json"]).unwrap();
        let digest = index["manifests"][0]["digest"].as_str().unwrap().to_owned();
        fs::write(&path, image).unwrap();
        assert_eq!(named(&path).unwrap(), [("example.com/hello:1".to_owned(), digest)]);

        for (name, content, problem) in
            [("index.json", "{}", "names no image"), ("manifest.json", "[]", "an OCI archive is needed")]
        {
            fs::write(&path, archive([(name, Some(content.as_bytes()), 0o644)]).unwrap()).unwrap();
            let error = named(&path).unwrap_err().to_string();
            assert!(error.contains(problem), "{error}");
        }
    }
}
