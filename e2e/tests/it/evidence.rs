//! Evidence about pods, packed from a cluster and verified with keys alone.

use std::fs;
use std::path::Path;
use std::process::Command;

use kube::ResourceExt as _;
use lucid_e2e::{ClusterExt as _, Verifier};
use serde_json::{Value, json};

use crate::cli::{lucid, run};
use crate::common::{assert_contains, cluster, config_map, create, operator, secured};
use crate::policy::signatures::{SIGNED, policy, signed};
use crate::record::{key, sealed};

const NOTARIZED: &str = "sha256:1111111111111111111111111111111111111111111111111111111111111111";
const ORIGIN: &str = "lucid.computing/test/0";

fn tar(arguments: &[&str]) {
    let output = Command::new("tar").args(arguments).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Exchanges two texts of the same length in a compressed file.
fn exchange(archive: &str, one: &str, other: &str) -> String {
    let changed = format!("{archive}.changed");
    let script = "gzip -dc \"$1\" > \"$2\" && sed -z \"s|$3|\\x01|; s|$4|$3|; s|\\x01|$4|\" -i \"$2\" && gzip -n \"$2\"";
    let output =
        Command::new("sh").args(["-c", script, "sh", archive, &changed, one, other]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    changed + ".gz"
}

#[tokio::test]
async fn evidence_of_a_namespace_is_verified_without_the_cluster() {
    let cluster = cluster().await;
    let path = |name: &str| cluster.folder().join(name).display().to_string();
    let vkey = key(&cluster.folder().join("decisions"), ORIGIN);
    let collector = key(&cluster.folder().join("collector"), "collector.example");
    let verifier = Verifier::start(cluster.folder(), &[NOTARIZED]).await.unwrap();
    let log_key = fs::read_to_string(cluster.folder().join("verifier-log/vkey")).unwrap();
    let image = format!("example.com/good@{NOTARIZED}");
    let yaml = format!("chain: [{{name: good, image: \"{image}\"}}]\n");
    config_map(&cluster, "lucid-system", "lucid-auditors", "auditors.yaml", &yaml).await;
    let mut operator = operator(&cluster, |operator| {
        sealed(operator, &cluster.folder().join("decisions"), ORIGIN)
            .env("LUCID_ADMISSION_MODE", "enforce")
            .env("LUCID_TIER_LABEL", "")
            .env("LUCID_CHAIN", "good")
            .env("LUCID_STRICT_NOTARIZATION", "true")
            .env("LUCID_VERIFIER_URL", verifier.url())
            .flag("--verifier-log-key", log_key.trim())
    })
    .await;
    for name in ["web-0", "web-1"] {
        create(&cluster, "shop", &secured(name)).await.stored().unwrap();
    }
    let mut denied = secured("evil");
    denied["spec"]["containers"][0]["env"] = json!([{"name": "LUCID_AUDITOR_ID", "value": "evil"}]);
    assert!(create(&cluster, "shop", &denied).await.result.is_err());

    let archive = path("evidence.tar.gz");
    let (logs, events, signing) = (path("decisions"), path("collector.key"), cluster.audit_log());
    let (signing, events) = (events, signing.display().to_string());
    let options =
        ["--chain", "good", "--signing-key", &signing, "--log", &logs, "--apiserver-audit", &events];
    let verifiers = ["--verifier-url", verifier.url(), "--verifier-log-key", log_key.trim()];
    let packing = ["evidence", "--namespace", "shop", "--out", &archive];
    let ran = lucid(&cluster, &[&packing[..], &options, &verifiers].concat()).await;
    assert!(ran.stderr.is_empty(), "{ran:?}");
    assert_contains(&ran.printed(), &["evidence.tar.gz: 2 pods, "]);
    let ran = lucid(&cluster, &[&packing[..], &options, &verifiers].concat()).await;
    assert_contains(&ran.stderr, &["failed to write", "exists"]);
    let token = ["--verifier-token-file", "/nonexistent"];
    let ran = lucid(&cluster, &[&packing[..], &options, &verifiers, &token].concat()).await;
    assert_contains(&ran.stderr, &["failed to use --verifier-token-file: failed to read /nonexistent"]);

    operator.terminate().unwrap();
    drop(verifier);
    let keys = ["--signer", &collector, "--key", &vkey, "--verifier-log-key", log_key.trim()];
    let verify =
        |archive: &str, keys: &[&str]| run("lucid", &[&["evidence", "verify", archive], keys].concat());
    let text = verify(&archive, &keys).printed();
    assert_contains(
        &text,
        &[
            "evidence.tar.gz: verified\n  namespace \"shop\", collected at ",
            ": 2 pods\n  1 verdicts, 1 proven by a log, ",
            " decisions, sealed by lucid.computing/test/0\n",
            " anchors of the API server, 0 without a record\n",
            "This proves the integrity of the evidence, not compliance",
        ],
    );
    assert!(!text.contains(" 0 anchors"), "{text}");
    let ran = verify(&archive, &["--signer", &collector, "--verifier-log-key", log_key.trim()]);
    assert_eq!(ran.status, Some(3), "{ran:?}");
    assert_contains(&ran.stdout, &["not verified\n  decisions/0-", "tlog-proof: no trusted key was given"]);
    let ran = verify(&archive, &["--signer", &collector, "--key", &vkey, "--verifier-log-key", &vkey]);
    assert_eq!(ran.status, Some(3), "{ran:?}");
    assert_contains(
        &ran.stdout,
        &["not verified\n  verdicts/sha256-1111", "log is not valid: the note is not signed by"],
    );

    // Standard tools unpack it.
    let folder = path("unpacked");
    fs::create_dir(&folder).unwrap();
    tar(&["-xzf", &archive, "-C", &folder]);
    let read = |name: &str| fs::read_to_string(Path::new(&folder).join(name)).unwrap();
    let pod: Value = serde_json::from_str(&read("pods/web-0.json")).unwrap();
    assert_eq!((&pod["state"], &pod["digests"]), (&json!("Audited"), &json!([NOTARIZED])), "{pod}");
    assert_eq!(pod["chain"], json!([{"container": "good", "image": image, "imageID": null}]));
    assert_contains(&read("index.html"), &["web-0", "evil", "denied", "not compliance"]);
    assert!(!read("index.html").contains("<script"));

    // The uids are in one file each, apart from the manifest's hashes.
    let uid = |name: &str| {
        let pod: Value = serde_json::from_str(&read(&format!("pods/{name}.json"))).unwrap();
        pod["uid"].as_str().unwrap().to_owned()
    };
    let ran = verify(&exchange(&archive, &uid("web-0"), &uid("web-1")), &keys);
    assert_eq!(ran.status, Some(3), "{ran:?}");
    assert_contains(
        &ran.stdout,
        &["not verified", "  pods/web-0.json: changed", "  pods/web-1.json: changed"],
    );
}

#[tokio::test]
async fn evidence_of_one_pod_has_its_decisions_only() {
    let cluster = cluster().await;
    let path = |name: &str| cluster.folder().join(name).display().to_string();
    let vkey = key(&cluster.folder().join("decisions"), ORIGIN);
    let collector = key(&cluster.folder().join("collector"), "collector.example");
    let decisions = cluster.folder().join("decisions");
    let _operator = operator(&cluster, |operator| sealed(operator, &decisions, ORIGIN)).await;
    for name in ["web-0", "web-1"] {
        create(&cluster, "shop", &secured(name)).await.stored().unwrap();
    }
    let (signing, log) = (path("collector.key"), path("decisions"));
    for (name, since, decisions) in [
        ("web-0", "2026-01-01T00:00:00Z", "2 decisions, sealed by lucid.computing/test/0"),
        ("web-1", "9999-01-01T00:00:00Z", "0 decisions"),
    ] {
        let archive = path(&format!("{name}.tar.gz"));
        let what = ["evidence", name, "--namespace", "shop", "--since", since, "--out", &archive];
        let ran = lucid(&cluster, &[&what[..], &["--signing-key", &signing, "--log", &log]].concat()).await;
        ran.printed();
        let arguments = ["evidence", "verify", &archive, "--signer", &collector, "--key", &vkey];
        let text = run("lucid", &arguments).printed();
        assert_contains(
            &text,
            &[&format!("  namespace \"shop\", pod \"{name}\", collected at "), ": 1 pods\n", decisions],
        );
    }
    let mut generated = secured("");
    generated["metadata"].as_object_mut().unwrap().remove("name");
    generated["metadata"]["generateName"] = json!("job-");
    create(&cluster, "shop", &generated).await.stored().unwrap();
    let stored = create(&cluster, "shop", &generated).await.stored().unwrap();
    let (name, archive, folder) = (stored.name_any(), path("job.tar.gz"), path("job"));
    let what = ["evidence", &name, "-n", "shop", "--out", &archive, "--signing-key", &signing, "--log", &log];
    lucid(&cluster, &what).await.printed();
    let arguments = ["evidence", "verify", &archive, "--signer", &collector, "--key", &vkey];
    // /mutate sees both pods before the API server names them.
    let ambiguous = "2 of the decisions precede the pod's name and have its generateName";
    assert_contains(&run("lucid", &arguments).printed(), &["3 decisions, sealed by", ambiguous]);
    fs::create_dir(&folder).unwrap();
    tar(&["-xzf", &archive, "-C", &folder]);
    assert_contains(&fs::read_to_string(Path::new(&folder).join("index.html")).unwrap(), &[ambiguous]);
    let ran = lucid(
        &cluster,
        &["evidence", "none", "-n", "shop", "--out", &path("none"), "--signing-key", &signing],
    )
    .await;
    assert_contains(&ran.stderr, &["failed to get pod shop/none"]);
}

#[tokio::test]
async fn bundles_are_packed_and_verified_by_the_policies_of_the_reader() {
    let cluster = cluster().await;
    let path = |name: &str| cluster.folder().join(name).display().to_string();
    let collector = key(&cluster.folder().join("collector"), "collector.example");
    let yaml = format!("chain: [{{name: good, image: \"example.com/good@sha256:{SIGNED}\"}}]\n");
    config_map(&cluster, "lucid-system", "lucid-auditors", "auditors.yaml", &yaml).await;
    let _operator = operator(&cluster, |operator| operator.env("LUCID_CHAIN", "good")).await;
    create(&cluster, "shop", &secured("web")).await.stored().unwrap();
    let (packed, reader, signing) = (path("packed"), path("reader"), path("collector.key"));
    for folder in [&packed, &reader] {
        fs::create_dir(folder).unwrap();
    }
    fs::write(format!("{reader}/signatures.yaml"), policy("signatures")).unwrap();
    let (other, bundle) = ("0".repeat(64), format!("sha256-{SIGNED}.json"));
    for name in ["signatures.yaml", &format!("sha256-{other}.json")] {
        fs::write(format!("{packed}/{name}"), "not packed").unwrap();
    }
    for (seed, expected) in [
        (1, "\n  1 of 1 images signed as the policies demand\n  0 decisions".to_owned()),
        (
            2,
            format!(
                "  0 of 1 images signed as the policies demand\n    example.com/good@sha256:{SIGNED}: {bundle}: expected"
            ),
        ),
    ] {
        fs::write(format!("{packed}/{bundle}"), signed(seed)).unwrap();
        let archive = path(&format!("{seed}.tar.gz"));
        let what =
            ["evidence", "-n", "shop", "--chain", "good", "--out", &archive, "--signing-key", &signing];
        lucid(&cluster, &[&what[..], &["--signatures-directory", &packed]].concat()).await.printed();
        let verify = ["evidence", "verify", &archive, "--signer", &collector];
        assert!(!run("lucid", &verify).printed().contains("signed as"));
        let text = run("lucid", &[&verify[..], &["--signatures-directory", &reader]].concat()).printed();
        assert_contains(&text, &[&expected]);
        let folder = path(&format!("unpacked-{seed}"));
        fs::create_dir(&folder).unwrap();
        tar(&["-xzf", &archive, "-C", &folder]);
        let files = fs::read_dir(Path::new(&folder).join("signatures")).unwrap();
        let files: Vec<_> = files.map(|file| file.unwrap().file_name()).collect();
        assert_eq!(files, [bundle.as_str()]);
    }
}
