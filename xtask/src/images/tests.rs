use std::collections::BTreeMap;
use std::fs::{File, Permissions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::time::SystemTime;

use super::*;

/// A static program of this machine.
const PROGRAM: &str = "/bin/busybox";

/// Creates the build context of the image `name`, with [`PROGRAM`].
fn context(source: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let containerfile = Path::new(ROOT).join(source).join("Containerfile");
    fill(&folder.path().join("context"), &containerfile, Path::new(PROGRAM)).unwrap();
    folder
}

#[test]
fn every_image_has_one_program_a_user_and_labels() {
    let metadata = metadata().unwrap();
    for (name, source) in IMAGES {
        let text = fs::read_to_string(Path::new(ROOT).join(source).join("Containerfile")).unwrap();
        let lines: Vec<_> = text.lines().collect();
        for line in [
            "FROM scratch",
            "USER 65532:65532",
            &format!("COPY {name} /{name}"),
            &format!("ENTRYPOINT [\"/{name}\"]"),
        ] {
            assert!(lines.contains(&line), "{name}: {line}");
        }
        let labels = labels(name, "abc", &metadata).unwrap();
        let label = |key: &str| {
            let key = format!("org.opencontainers.image.{key}=");
            labels.iter().find_map(|label| label.strip_prefix(&key)).unwrap()
        };
        for (key, value) in [("title", *name), ("version", env!("CARGO_PKG_VERSION")), ("revision", "abc")] {
            assert_eq!(label(key), value, "{name} {key}");
        }
        for key in ["description", "licenses", "source"] {
            assert!(!label(key).is_empty(), "{name} {key}");
        }
        assert_eq!(label("licenses").contains("GPL"), *name == "lucid-init", "{name}");
    }
}

#[test]
fn an_unknown_image_is_refused_with_the_known_ones() {
    let message = chosen(&["lucid-init".to_owned(), "lucid-pii".to_owned()]).unwrap_err().to_string();
    assert!(message.contains("lucid-pii") && message.contains("lucid-operator"), "{message}");
    assert_eq!(chosen(&["lucid-init".to_owned()]).unwrap(), [("lucid-init", "bins/lucid-init")]);
    assert_eq!(chosen(&[]).unwrap().len(), IMAGES.len());
}

/// Path, mode, owner, group and time of each entry of the tar `archive`.
fn entries(archive: impl io::Read) -> Vec<(String, u32, [u64; 3])> {
    let mut archive = tar::Archive::new(archive);
    let entry = |entry: io::Result<tar::Entry<'_, _>>| {
        let entry = entry.unwrap();
        let header = entry.header();
        let owner = [header.uid().unwrap(), header.gid().unwrap(), header.mtime().unwrap()];
        let path = entry.path().unwrap().display().to_string();
        (path.trim_end_matches('/').to_owned(), header.mode().unwrap() & 0o777, owner)
    };
    archive.entries().unwrap().map(entry).collect()
}

#[test]
fn the_same_files_give_the_same_archive() {
    if !lucid_e2e::has_program("buildah") {
        return;
    }
    const CONTAINERFILE: &str = "FROM scratch\nCOPY rootfs /\nCOPY program /opt/program\n\
        EXPOSE 8080\nUSER 65532:65532\nENTRYPOINT [\"/opt/program\"]\n";
    let made = [SystemTime::UNIX_EPOCH, SystemTime::now()].map(|time| {
        let folder = tempfile::Builder::new().prefix("with, comma ").tempdir().unwrap();
        let context = folder.path().join("context");
        let file = context.join("rootfs/usr/lib/a");
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::os::unix::fs::symlink("usr/lib", context.join("rootfs/lib")).unwrap();
        fs::write(&file, "a").unwrap();
        File::open(&file).unwrap().set_modified(time).unwrap();
        fs::write(context.join("program"), "program").unwrap();
        fs::set_permissions(context.join("program"), Permissions::from_mode(0o755)).unwrap();
        fs::write(context.join("Containerfile"), CONTAINERFILE).unwrap();
        let reference = "registry.example/a:1.2";
        let archive = folder.path().join("a.oci.tar");
        let labels = ["a.revision=abc".to_owned()];
        let made = package(reference.to_owned(), context, &labels, Profile::Release, archive);
        let made = made.unwrap();
        assert_eq!(made.reference, reference);
        (made.digest, made.size, fs::read(made.archive).unwrap())
    });
    let [(digest, size, archive), second] = &made;
    assert_eq!(made[0], *second);

    let mut files = BTreeMap::new();
    for entry in tar::Archive::new(archive.as_slice()).entries().unwrap() {
        let mut entry = entry.unwrap();
        let mut content = Vec::new();
        entry.read_to_end(&mut content).unwrap();
        files.insert(entry.path().unwrap().display().to_string(), content);
    }
    let blob = |digest: &Value| &files[&format!("blobs/{}", digest.as_str().unwrap().replace(':', "/"))];
    let json = |content: &[u8]| serde_json::from_slice::<Value>(content).unwrap();
    let index = json(&files["index.json"]);
    assert_eq!(index["manifests"][0]["digest"], digest.as_str());
    let names = &index["manifests"][0]["annotations"];
    assert_eq!(names["org.opencontainers.image.ref.name"], "registry.example/a:1.2");
    let manifest = json(blob(&index["manifests"][0]["digest"]));
    assert_eq!(manifest["layers"][0]["size"], *size);
    let config = json(blob(&manifest["config"]["digest"]));
    assert_eq!(config["created"], "1970-01-01T00:00:00Z");
    assert_eq!(
        config["config"],
        serde_json::json!({
            "User": "65532:65532",
            "Entrypoint": ["/opt/program"],
            "ExposedPorts": {"8080/tcp": {}},
            "Labels": {"a.revision": "abc"},
        })
    );
    let layer = blob(&manifest["layers"][0]["digest"]);
    let found = entries(flate2::read::GzDecoder::new(layer.as_slice()));
    let root = [0, 0, 0];
    let expected = [
        ("lib", 0o777),
        ("opt", 0o755),
        ("opt/program", 0o755),
        ("usr", 0o755),
        ("usr/lib", 0o755),
        ("usr/lib/a", 0o644),
    ];
    assert_eq!(found, expected.map(|(path, mode)| (path.to_owned(), mode, root)));
}

#[test]
fn a_dynamic_program_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let containerfile = Path::new(ROOT).join("examples/model/Containerfile");
    assert!(fill(&folder.path().join("context"), &containerfile, Path::new("/bin/sh")).is_err());
}

#[test]
fn certificates_are_those_of_the_package() {
    let folder = "/usr/share/ca-certificates/mozilla";
    if !Path::new(folder).exists() {
        return lucid_e2e::skip("ca-certificates is not installed");
    }
    if !lucid_e2e::has_program(PROGRAM) {
        return;
    }
    let packaged: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| fs::read_to_string(entry.unwrap().path()).unwrap())
        .collect();
    let context = context("bins/lucid-operator");
    let certificates = fs::read_to_string(context.path().join("context/ca-certificates.crt")).unwrap();
    assert_eq!(certificates.matches("-----BEGIN CERTIFICATE").count(), packaged.len());
    for pem in packaged {
        assert!(certificates.contains(pem.trim()), "{pem}");
    }
}

/// Runs `program` with `input` and only the files in `root`, in a separate network namespace.
fn run(root: &Path, program: &[&str], input: &str) {
    let mut child = Command::new("unshare")
        .args(["--net", "chroot"])
        .arg(root)
        .args(program)
        .env_clear()
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program:?}: {stderr}");
}

#[test]
fn network_tools_install_rules_with_the_copied_files_only() {
    // Needs root with permission to create network namespaces, like a node.
    if !lucid_e2e::can_run_nodes() || ![PROGRAM, "iptables"].into_iter().all(lucid_e2e::has_program) {
        return;
    }
    let context = context("bins/lucid-init");
    let root = context.path().join("context/network-tools");

    let table = "table inet lucid {\n chain out {\n type nat hook output priority -100;\n \
                 meta skuid 20001 tcp dport 5000 return\n tcp dport 5000 redirect to :8090\n }\n}\n";
    run(&root, &["nft", "-f", "-"], table);
    let rules = "*nat\n:LUCID_REDIRECT - [0:0]\n-A OUTPUT -j LUCID_REDIRECT\n\
                 -A LUCID_REDIRECT -p tcp -m tcp --dport 5000 -m owner ! --uid-owner 20001-20002 -j REDIRECT \
                 --to-ports 8090\nCOMMIT\n";
    for program in ["iptables-nft-restore", "ip6tables-nft-restore"] {
        run(&root, &[program, "--noflush"], rules);
    }
    for program in ["iptables-legacy-restore", "ip6tables-legacy-restore"] {
        // The legacy tables depend on the kernel of the node. The image only has to run the program.
        run(&root, &[program, "--version"], "");
    }
    let extensions = fs::read_dir(root.join(format!("usr/lib/{}-linux-gnu/xtables", std::env::consts::ARCH)));
    let extensions: Vec<_> = extensions.unwrap().map(|entry| entry.unwrap().file_name()).collect();
    for name in ["libxt_owner.so", "libxt_REDIRECT.so", "libipt_icmp.so", "libip6t_icmp6.so"] {
        assert!(extensions.iter().any(|extension| extension == name), "{name} in {extensions:?}");
    }
    let status = fs::read_to_string(root.join("var/lib/dpkg/status.d/libc6")).unwrap();
    assert!(status.starts_with("Package: libc6\n") && status.contains("\nVersion: "), "{status}");
    assert!(fs::read_to_string(root.join("usr/share/doc/nftables/copyright")).unwrap().contains("GPL"));
}
