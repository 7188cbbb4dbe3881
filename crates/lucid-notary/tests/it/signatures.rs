//! Signatures on digests are verified offline, and combined with the Verifier as the image's policy requires.

mod referrers;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use aws_lc_rs::digest::{SHA256, digest as hash};
use aws_lc_rs::encoding::{AsDer, PublicKeyX509Der};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use lucid_notary::client::{Answer, ClientMetrics, FileError, Notary, Signatures};
use lucid_notary::{Digest, ImageReference, NotaryVerdict, Provenance};
use serde_json::{Value, json};
use tempfile::{TempDir, tempdir};

use crate::common::{Scrape, Script, in_time, until};

const IDENTITY: &str = "https://github.com/sigstore-conformance/extremely-dangerous-public-oidc-beacon/.github/workflows/\
                        extremely-dangerous-oidc-beacon.yml@refs/heads/main";
const ISSUER: &str = "https://token.actions.githubusercontent.com";
const COSIGN: &str = "https://sigstore.dev/cosign/sign/v1";

/// Files of a directory of signatures.
type Files = BTreeMap<String, Vec<u8>>;

fn sha256(content: &[u8]) -> Digest {
    let hex: String = hash(&SHA256, content).as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}").parse().unwrap()
}

fn folder(files: &Files) -> TempDir {
    let folder = tempdir().unwrap();
    for (name, content) in files {
        fs::write(folder.path().join(name), content).unwrap();
    }
    folder
}

fn open(files: &Files) -> Result<Signatures, FileError> {
    Signatures::open(folder(files).path(), ClientMetrics::default())
}

fn image(digest: &Digest) -> ImageReference {
    format!("r.test/a@{digest}").parse().unwrap()
}

/// Returns the verdict by signatures alone.
async fn verdict(files: &Files, digest: &Digest) -> NotaryVerdict {
    let script = Script::new(|_| panic!("the Verifier was asked"));
    let notary = Notary::from(script.client().build());
    let notary = match open(files) {
        Ok(signatures) => notary.with_signatures(signatures),
        Err(error) => return NotaryVerdict::NotSigned { reason: error.to_string() },
    };
    notary.check_all([image(digest)], in_time()).await.remove(&image(digest)).unwrap().verdict
}

/// A bundle of the conformance suite with the policy to verify it.
struct Vector {
    name: String,
    digest: Digest,
    bundle: Vec<u8>,
    files: Files,
}

impl Vector {
    fn all() -> Vec<Self> {
        let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/vectors/sigstore-conformance");
        let mut folders: Vec<_> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        folders.retain(|path| path.is_dir());
        folders.sort();
        folders.iter().map(|path| Self::read(path)).collect()
    }

    fn read(folder: &Path) -> Self {
        let read = |name: &str| fs::read(folder.join(name)).ok();
        let text = |name: &str| read(name).map(|text| String::from_utf8(text).unwrap().trim().to_owned());
        let artifact = read("artifact").unwrap_or_else(|| fs::read(folder.join("../a.txt")).unwrap());
        let bundle = read("bundle.sigstore.json").unwrap();
        let mut policy = json!({ "images": ["r.test/a"], "require": "signatures" });
        policy["predicateType"] = predicate_type(&bundle).into();
        match text("key.pub") {
            Some(key) => policy["keys"] = json!([key]),
            None => {
                let issuer = text("issuer").unwrap_or_else(|| ISSUER.to_owned());
                let subject = text("identity").unwrap_or_else(|| IDENTITY.to_owned());
                policy["identities"] = json!([{ "issuer": issuer, "subject": subject }]);
            }
        }
        let root = sigstore_verify::trust_root::SIGSTORE_PRODUCTION_TRUSTED_ROOT;
        let root = read("trusted_root.json").unwrap_or_else(|| root.into());
        let policies = json!({ "policies": [policy] }).to_string().into();
        let files = [("signatures.yaml".to_owned(), policies), ("trusted_root.json".to_owned(), root)];
        let name = folder.file_name().unwrap().to_str().unwrap().to_owned();
        Self { name, digest: sha256(&artifact), bundle, files: files.into() }
    }

    async fn verdict(&self, bundles: impl IntoIterator<Item = Vec<u8>>) -> NotaryVerdict {
        let mut files = self.files.clone();
        for (number, bundle) in bundles.into_iter().enumerate() {
            files.insert(format!("sha256-{}.{number}.json", self.digest.hex()), bundle);
        }
        verdict(&files, &self.digest).await
    }

    /// Returns `true` if the bundle under this name is verified by files alone.
    fn verified(&self, name: &str) -> bool {
        let (folder, bundles) = (folder(&self.files), [(name.to_owned(), self.bundle.clone())].into());
        let verified = Signatures::verify_bundles(folder.path(), bundles, [image(&self.digest)]);
        verified.is_ok_and(|verified| verified[&image(&self.digest)].is_ok())
    }
}

fn predicate_type(bundle: &[u8]) -> Option<String> {
    let bundle: Value = serde_json::from_slice(bundle).ok()?;
    let payload = STANDARD.decode(bundle["dsseEnvelope"]["payload"].as_str()?).ok()?;
    let statement: Value = serde_json::from_slice(&payload).ok()?;
    statement["predicateType"].as_str().map(str::to_owned)
}

enum Key {
    Ecdsa(EcdsaKeyPair),
    Ed25519(Ed25519KeyPair),
}

impl Key {
    fn ecdsa() -> Self {
        Self::Ecdsa(EcdsaKeyPair::generate(&ECDSA_P256_SHA256_ASN1_SIGNING).unwrap())
    }

    fn pem(&self) -> String {
        let der = |der: PublicKeyX509Der<'static>| STANDARD.encode(der.as_ref());
        let der = match self {
            Self::Ecdsa(key) => der(key.public_key().as_der().unwrap()),
            Self::Ed25519(key) => der(key.public_key().as_der().unwrap()),
        };
        format!("-----BEGIN PUBLIC KEY-----\n{der}\n-----END PUBLIC KEY-----\n")
    }

    fn sign(&self, message: &[u8]) -> String {
        match self {
            Self::Ecdsa(key) => STANDARD.encode(key.sign(&SystemRandom::new(), message).unwrap()),
            Self::Ed25519(key) => STANDARD.encode(key.sign(message)),
        }
    }

    /// Signs a statement as `cosign sign --key` does.
    fn statement(&self, digest: &Digest, predicate_type: &str) -> Value {
        let statement = json!({ "_type": "https://in-toto.io/Statement/v1", "predicateType": predicate_type,
            "subject": [{ "digest": { "sha256": digest.hex() } }] });
        self.envelope("application/vnd.in-toto+json", &statement.to_string())
    }

    fn envelope(&self, payload_type: &str, payload: &str) -> Value {
        let signed = format!("DSSEv1 {} {payload_type} {} {payload}", payload_type.len(), payload.len());
        let signatures = json!([{ "sig": self.sign(signed.as_bytes()) }]);
        let envelope = json!({ "payloadType": payload_type, "payload": STANDARD.encode(payload),
            "signatures": signatures });
        bundle("dsseEnvelope", &envelope)
    }

    /// Signs the manifest itself, as `cosign sign-blob --key` does.
    fn message(&self, manifest: &[u8]) -> Value {
        let digest = STANDARD.encode(hash(&SHA256, manifest));
        let message = json!({ "messageDigest": { "algorithm": "SHA2_256", "digest": digest },
            "signature": self.sign(manifest) });
        bundle("messageSignature", &message)
    }
}

fn bundle(kind: &str, content: &Value) -> Value {
    json!({ "mediaType": "application/vnd.dev.sigstore.bundle.v0.3+json",
        "verificationMaterial": { "publicKey": { "hint": "" } }, kind: content })
}

/// Files with one policy for images in `r.test/a` and one bundle about `digest`.
fn signed_with(keys: &[&Key], require: &str, digest: &Digest, bundle: &Value) -> Files {
    let keys: Vec<_> = keys.iter().map(|key| key.pem()).collect();
    let policy = json!({ "policies": [{ "images": ["r.test/a"], "require": require, "keys": keys }] });
    [
        ("signatures.yaml".to_owned(), policy.to_string().into_bytes()),
        (format!("sha256-{}.json", digest.hex()), bundle.to_string().into_bytes()),
    ]
    .into()
}

fn reason(verdict: &NotaryVerdict) -> &str {
    match verdict {
        NotaryVerdict::NotSigned { reason } => reason,
        other => panic!("{other}"),
    }
}

#[test]
fn bundles_of_others_cannot_bring_policies_or_roots() {
    let digest = sha256(b"");
    let (own, other) = (Key::ecdsa(), Key::ecdsa());
    let own = signed_with(&[&own], "signatures", &digest, &own.statement(&digest, COSIGN));
    let other = signed_with(&[&other], "signatures", &digest, &other.statement(&digest, COSIGN));
    let folder = folder(&own);
    for name in ["signatures.yaml", "trusted_root.json", "config.json"] {
        let bundles = [(name.to_owned(), other["signatures.yaml"].clone())].into();
        let error = Signatures::verify_bundles(folder.path(), bundles, []).unwrap_err().to_string();
        assert!(error.ends_with(&format!("{name}: expected a bundle as sha256-HEX.json")), "{error}");
    }
    let name = format!("sha256-{}.json", digest.hex());
    let unpoliced: ImageReference = format!("r.test/b@{digest}").parse().unwrap();
    for (files, expected) in [(&own, true), (&other, false)] {
        let bundles = [(name.clone(), files[&name].clone())].into();
        let images = [image(&digest), unpoliced.clone()];
        let verified = Signatures::verify_bundles(folder.path(), bundles, images).unwrap();
        let verified: Vec<_> = verified.into_iter().map(|(image, found)| (image, found.is_ok())).collect();
        assert_eq!(verified, [(image(&digest), expected)]);
    }
}

#[tokio::test]
async fn bundles_of_the_conformance_suite_are_judged_as_it_says() {
    let vectors = Vector::all();
    assert_eq!(vectors.len(), 70);
    for vector in vectors {
        let found = vector.verdict([vector.bundle.clone()]).await;
        println!("{}: {found}", vector.name);
        assert_eq!(vector.verified(&format!("sha256-{}.json", vector.digest.hex())), found.is_notarized());
        if vector.name.ends_with("_fail") {
            assert!(matches!(found, NotaryVerdict::NotSigned { .. }), "{}: {found}", vector.name);
        } else {
            assert_eq!(found, NotaryVerdict::Notarized, "{}", vector.name);
        }
    }
}

/// Places that may be changed in a bundle that verifies: kind of bundle, start of the path, reason.
const IGNORED: [(&str, &str, &str); 8] = [
    ("key", "/verificationMaterial/", "evidence about certificates and logs: the key is pinned"),
    ("rekor 1", "/verificationMaterial/tlogEntries/*/inclusionProof/checkpoint/envelope middle", SIGNER_NAME),
    ("rekor 2", "/verificationMaterial/tlogEntries/*/inclusionProof/checkpoint/envelope middle", SIGNER_NAME),
    ("rekor 2", "/verificationMaterial/tlogEntries/*/inclusionProof/logIndex", REPEATED),
    ("rekor 2", "/verificationMaterial/tlogEntries/*/inclusionProof/rootHash", REPEATED),
    ("rekor 2", "/verificationMaterial/tlogEntries/*/inclusionProof/treeSize", REPEATED),
    (
        "rekor 2",
        "/verificationMaterial/tlogEntries/*/logId/keyId",
        "the checkpoint's signature names the log's key",
    ),
    (
        "rekor 2",
        "/verificationMaterial/timestampVerificationData/rfc3161Timestamps/*/signedTimestamp middle",
        BAG,
    ),
];
const SIGNER_NAME: &str = "the name before a signature: the key is found by its hash";
const REPEATED: &str = "a copy of what the entry or the checkpoint says";
const BAG: &str = "a certificate next to the timestamp: the trusted root's is used";

#[tokio::test]
async fn each_changed_field_of_a_good_bundle_is_refused() {
    const VECTORS: [&str; 6] = [
        "happy-path-intoto-in-dsse-v3",
        "happy-path-v0.1",
        "happy-path-v0.3",
        "managed-key-happy-path",
        "rekor2-dsse-happy-path",
        "rekor2-happy-path",
    ];
    let mut ignored = BTreeSet::new();
    for vector in Vector::all().iter().filter(|vector| VECTORS.contains(&vector.name.as_str())) {
        let good: Value = serde_json::from_slice(&vector.bundle).unwrap();
        let entry = &good["verificationMaterial"]["tlogEntries"][0]["kindVersion"]["version"];
        let kind = match entry.as_str().unwrap() {
            _ if good.pointer("/verificationMaterial/publicKey").is_some() => "key",
            "0.0.2" => "rekor 2",
            _ => "rekor 1",
        };
        let mut changed = Vec::new();
        for path in leaves(&good, "") {
            for (place, mutated) in mutations(good.pointer(&path).unwrap()) {
                let mut bundle = good.clone();
                *bundle.pointer_mut(&path).unwrap() = mutated;
                changed.push((format!("{path}{place}"), bundle.to_string().into_bytes()));
            }
        }
        // A digest is notarized if one of its bundles verifies.
        for batch in changed.chunks(8) {
            if !vector.verdict(batch.iter().map(|(_, bundle)| bundle.clone())).await.is_notarized() {
                continue;
            }
            for (path, bundle) in batch {
                if vector.verdict([bundle.clone()]).await.is_notarized() {
                    ignored.insert((kind, path.replace("/0/", "/*/").replace("/0 ", "/* ")));
                }
            }
        }
    }
    let covers = |(kind, path, _): &(&str, &str, &str), found: &(&str, String)| {
        *kind == found.0 && found.1.starts_with(path)
    };
    let unused: Vec<_> =
        IGNORED.iter().filter(|rule| !ignored.iter().any(|found| covers(rule, found))).collect();
    ignored.retain(|found| !IGNORED.iter().any(|rule| covers(rule, found)));
    assert_eq!((ignored, unused), (BTreeSet::new(), Vec::new()));
}

/// Returns the JSON pointers to all strings, numbers and booleans.
fn leaves(value: &Value, path: &str) -> Vec<String> {
    match value {
        Value::Object(members) => {
            members.iter().flat_map(|(key, value)| leaves(value, &format!("{path}/{key}"))).collect()
        }
        Value::Array(items) => {
            items.iter().enumerate().flat_map(|(at, value)| leaves(value, &format!("{path}/{at}"))).collect()
        }
        _ => vec![path.to_owned()],
    }
}

/// Changes one character at the start, in the middle and near the end. Base64 and decimal numbers stay what they are.
fn mutations(value: &Value) -> Vec<(&'static str, Value)> {
    let Value::String(text) = value else { panic!("{value} is not a string") };
    if text.is_empty() {
        return vec![(" start", json!("AAAA"))];
    }
    let length = text.trim_end_matches('=').len();
    let change = |(place, at): (_, usize)| {
        let mut text = text.clone().into_bytes();
        text[at] = match text[at] {
            b'1' => b'2',
            b'0'..=b'9' => b'1',
            b'A' => b'B',
            b'a'..=b'z' => text[at].to_ascii_uppercase(),
            _ => b'A',
        };
        (place, Value::String(String::from_utf8(text).unwrap()))
    };
    [(" start", 0), (" middle", length / 2), (" end", length.saturating_sub(2))].map(change).to_vec()
}

#[tokio::test]
async fn a_key_verifies_statements_and_digests_without_a_log() {
    let (manifest, ecdsa) = (b"{}", Key::ecdsa());
    let ed25519 = Key::Ed25519(Ed25519KeyPair::generate().unwrap());
    let digest = sha256(manifest);
    for (key, bundle) in [
        (&ecdsa, ecdsa.statement(&digest, COSIGN)),
        (&ed25519, ed25519.statement(&digest, COSIGN)),
        (&ecdsa, ecdsa.message(manifest)),
    ] {
        let other = Key::ecdsa();
        let found = verdict(&signed_with(&[&other, key], "signatures", &digest, &bundle), &digest).await;
        assert_eq!(found, NotaryVerdict::Notarized, "{bundle}");
    }
}

#[tokio::test]
async fn refusals_name_the_bundle_with_what_was_expected_and_found() {
    let (key, other) = (Key::ecdsa(), Key::ecdsa());
    let (digest, another) = (sha256(b"{}"), sha256(b"[]"));
    let ed25519 = Key::Ed25519(Ed25519KeyPair::generate().unwrap());
    let mut two = key.statement(&digest, COSIGN);
    let signature = two["dsseEnvelope"]["signatures"][0].clone();
    two["dsseEnvelope"]["signatures"] = json!([signature, signature]);
    let huge = key.envelope("application/vnd.in-toto+json", &" ".repeat(128 * 1024));
    for (keys, bundle, expected) in [
        ([&key], other.statement(&digest, COSIGN), "expected a signature by a key of the policy"),
        ([&key], key.statement(&another, COSIGN), "expected a statement about the image's digest"),
        ([&key], key.message(b"[]"), "expected a signature on the image's digest"),
        ([&ed25519], ed25519.message(b"{}"), "expected a signature by a key of the policy"),
        (
            [&key],
            key.statement(&digest, "https://in-toto.io/attestation/test-result/v0.1"),
            "expected a statement of type https://sigstore.dev/cosign/sign/v1, found https://in-toto.io/attestation",
        ),
        ([&key], key.envelope("text/plain", "{}"), "expected a payload of type application/vnd.in-toto+json"),
        (
            [&key],
            key.envelope("application/vnd.in-toto+json", "{}"),
            "expected an in-toto statement: missing field",
        ),
        (
            [&key],
            two,
            "expected a Sigstore bundle of version 0.3 or earlier: DSSE envelope must contain exactly one",
        ),
        ([&key], json!([]), "expected a Sigstore bundle of version 0.3 or earlier"),
        ([&key], huge, "expected at most 131072 bytes"),
    ] {
        let found = verdict(&signed_with(&keys, "signatures", &digest, &bundle), &digest).await;
        let text = reason(&found);
        assert!(text.starts_with(&format!("sha256-{}.json: {expected}", digest.hex())), "{text}");
    }
}

#[tokio::test]
async fn policies_combine_signatures_and_verifier() {
    let key = Key::ecdsa();
    let (signed, unsigned, badly) = (sha256(b"{}"), sha256(b"[]"), sha256(b"0"));
    let bundles =
        [(&signed, key.statement(&signed, COSIGN)), (&badly, Key::ecdsa().statement(&badly, COSIGN))];
    // Verdicts on signed, badly signed and unsigned images, if the Verifier says yes, no or nothing.
    for (require, yes, no, nothing) in [
        ("signatures", "yes no no", "yes no no", "yes no no"),
        ("verifier", "yes yes yes", "no no no", "? ? ?"),
        ("any", "yes yes yes", "yes no no", "yes ? ?"),
        ("all", "yes no no", "no no no", "? no no"),
    ] {
        let mut files = signed_with(&[&key], require, &signed, &Value::Null);
        for (digest, bundle) in &bundles {
            files.insert(format!("sha256-{}.json", digest.hex()), bundle.to_string().into_bytes());
        }
        for (answer, expected) in
            [(Some(Answer::Notarized), yes), (Some(Answer::NotNotarized), no), (None, nothing)]
        {
            let script = Script::new(move |_| answer.clone().ok_or_else(|| "down".into()));
            let notary = Notary::from(script.client().build()).with_signatures(open(&files).unwrap());
            let images = [&signed, &badly, &unsigned].map(image);
            let checked = notary.check_all(images.clone(), in_time()).await;
            let found = images.map(|image| match &checked[&image].verdict {
                NotaryVerdict::Notarized => "yes",
                NotaryVerdict::NotNotarized | NotaryVerdict::NotSigned { .. } => "no",
                NotaryVerdict::Unknown { .. } => "?",
            });
            assert_eq!(found.join(" "), expected, "{require}: {checked:?}");
        }
    }
}

#[tokio::test]
async fn images_without_a_policy_need_the_verifier_and_those_without_a_digest_are_not_checked() {
    let (key, digest) = (Key::ecdsa(), sha256(b"{}"));
    let files = signed_with(&[&key], "signatures", &digest, &key.statement(&digest, COSIGN));
    let script = Script::new(|_| Ok(Answer::NotNotarized));
    let notary = Notary::from(script.client().build()).with_signatures(open(&files).unwrap());
    let other: ImageReference = format!("r.test/b@{digest}").parse().unwrap();
    let images = [image(&digest), other.clone(), "r.test/a:1".parse().unwrap()];
    let checked = notary.recheck_all(images, in_time()).await;
    let found: Vec<_> =
        checked.iter().map(|(image, checked)| (image.repository(), checked.to_string())).collect();
    assert_eq!(found, [("a", "notarized (signatures)".to_owned()), ("b", "not notarized".to_owned())]);
}

#[tokio::test]
async fn reasons_of_both_sources_are_told() {
    let (key, digest) = (Key::ecdsa(), sha256(b"{}"));
    let mut files = signed_with(&[&key], "any", &digest, &json!({}));
    let name = format!("sha256-{}", digest.hex());
    let script = Script::new(|call| if call == 0 { Ok(Answer::NotNotarized) } else { Err("down".into()) });
    let verifier = script.uncached().build();
    for (told, verdict) in [
        (
            "expected a Sigstore bundle of version 0.3 or earlier: missing field `verificationMaterial` at line 1 column 2; \
          the Verifier does not know the digest",
            "not notarized",
        ),
        (
            "expected a Sigstore bundle of version 0.3 or earlier: missing field `verificationMaterial` at line 1 column 2; down",
            "unknown",
        ),
    ] {
        let notary = Notary::from(verifier.clone()).with_signatures(open(&files).unwrap());
        let checked = notary.check_all([image(&digest)], in_time()).await;
        let found = checked[&image(&digest)].to_string();
        assert_eq!(found, format!("{verdict}: {name}.json: {told} (signatures)"));
    }
    files.remove(&format!("{name}.json"));
    let notary = Notary::from(verifier).with_signatures(open(&files).unwrap());
    let checked = notary.check_all([image(&digest)], in_time()).await;
    let expected =
        format!("unknown: no signature on {digest}: expected a bundle {name}.json; down (signatures)");
    assert_eq!(checked[&image(&digest)].to_string(), expected);
}

#[tokio::test]
async fn a_digest_is_counted_once_whatever_decides() {
    let (key, digest) = (Key::ecdsa(), sha256(b"{}"));
    let unsigned = sha256(b"[]");
    for (require, provenances) in [
        ("any", ["signatures", "verifier"]),
        ("all", ["verifier", "signatures"]),
        ("signatures", ["signatures"; 2]),
        ("verifier", ["verifier"; 2]),
    ] {
        let folder = folder(&signed_with(&[&key], require, &digest, &key.statement(&digest, COSIGN)));
        for (digest, provenance) in [&digest, &unsigned].into_iter().zip(provenances) {
            let scrape = Scrape::new();
            let script = Script::new(|_| Ok(Answer::NotNotarized));
            let verifier = script.client().with_metrics(scrape.metrics.clone()).build();
            let signatures = Signatures::open(folder.path(), scrape.metrics.clone()).unwrap();
            let notary = Notary::from(verifier).with_signatures(signatures);
            notary.check_all([image(digest)], in_time()).await;
            let mut counts = Vec::new();
            for verdict in ["notarized", "not_notarized", "unknown"] {
                for by in ["verifier", "signatures"] {
                    let labels = format!(r#"{{verdict="{verdict}",provenance="{by}"}}"#);
                    counts.push((by, scrape.value(&format!("verifier_checks_total{labels}"))));
                }
            }
            counts.retain(|(_, count)| *count > 0.0);
            assert_eq!(counts, [(provenance, 1.0)], "{require}");
        }
    }
}

#[tokio::test]
async fn a_changed_file_invalidates_cached_verdicts_and_an_invalid_one_is_ignored() {
    let (key, digest) = (Key::ecdsa(), sha256(b"{}"));
    let files = signed_with(&[&key], "signatures", &digest, &key.statement(&digest, COSIGN));
    let folder = folder(&files);
    let scrape = Scrape::new();
    let signatures = Signatures::open(folder.path(), scrape.metrics.clone()).unwrap();
    let script = Script::new(|_| panic!("the Verifier was asked"));
    let notary = Notary::from(script.client().build()).with_signatures(signatures);
    let check = async || notary.check_all([image(&digest)], in_time()).await[&image(&digest)].clone();
    assert_eq!(check().await.provenance, Provenance::Signatures);
    assert!(check().await.verdict.is_notarized());
    assert_eq!(scrape.value(r#"verifier_checks_total{verdict="notarized",provenance="signatures"}"#), 2.0);

    let policies = folder.path().join("signatures.yaml");
    fs::write(&policies, "policies: 1").unwrap();
    let failed = r#"verifier_file_reloads_total{file="signatures",result="error"}"#;
    until(async || check().await.verdict.is_notarized() && scrape.value(failed) == 1.0).await;

    fs::write(&policies, &files["signatures.yaml"]).unwrap();
    fs::write(folder.path().join(format!("sha256-{}.json", digest.hex())), "{}").unwrap();
    until(async || matches!(check().await.verdict, NotaryVerdict::NotSigned { .. })).await;
}

#[test]
fn faults_of_the_directory_are_named() {
    let (key, digest) = (Key::ecdsa(), sha256(b"{}"));
    let files = signed_with(&[&key], "any", &digest, &json!({}));
    let policies = |text: &str| [("signatures.yaml".to_owned(), text.as_bytes().to_vec())];
    let many = (0..8).map(|number| (format!("sha256-{}.{number}.json", digest.hex()), Vec::new()));
    let entry = |rest: &str| format!("policies: [{{images: [r.test/a], {rest}}}]");
    let identity = "require: all, identities: [{issuer: https://i.test, subject: ";
    let cases: Vec<(Files, &str)> = vec![
        (Files::new(), "expected a file signatures.yaml"),
        (policies("policies: []\nextra: 1").into(), "signatures.yaml: unknown field `extra`"),
        (
            policies(&entry("require: some")).into(),
            "signatures.yaml: policies[0].require: unknown variant `some`",
        ),
        (
            policies(&entry("require: any")).into(),
            "signatures.yaml: policies[0]: expected keys or identities",
        ),
        (policies(&entry("require: any, keys: [x]")).into(), "signatures.yaml: policies[0].keys[0]: "),
        (
            policies(&entry(&format!("{identity}a@b.test}}]"))).into(),
            "signatures.yaml: policies[0].identities: expected a file trusted_root.json",
        ),
        ([("trusted_root.json".to_owned(), b"{}".to_vec())].into(), "trusted_root.json: missing field"),
        (
            [("notes.json".to_owned(), Vec::new())].into(),
            "expected signatures.yaml, trusted_root.json, config.json or a bundle",
        ),
        (
            [("sha512-00.json".to_owned(), Vec::new())].into(),
            "expected signatures.yaml, trusted_root.json, config.json or a bundle",
        ),
        (files.into_iter().chain(many).collect(), "expected at most 8 bundles for a digest"),
        ([("a".to_owned(), vec![0; 17 << 20])].into(), "its files are longer than 16 MiB"),
    ];
    for (files, expected) in cases {
        let error = open(&files).unwrap_err().to_string();
        assert!(error.contains(expected), "{expected}: {error}");
    }
    let root = sigstore_verify::trust_root::SIGSTORE_PRODUCTION_TRUSTED_ROOT;
    for subject in ["\"*\"", "\"\""] {
        let mut files: Files = policies(&entry(&format!("{identity}{subject}}}]"))).into();
        files.insert("trusted_root.json".to_owned(), root.into());
        let error = open(&files).unwrap_err().to_string();
        assert!(error.contains("policies[0].identities[0]: expected an issuer and at least"), "{error}");
    }
    assert!(Signatures::open("/nowhere", ClientMetrics::default()).is_err());
}

#[tokio::test]
async fn subjects_of_keyless_signatures_match_exactly_or_by_their_start() {
    let vector = Vector::all().into_iter().find(|vector| vector.name == "happy-path-v0.3").unwrap();
    let start = IDENTITY.split_once('@').unwrap().0;
    for (issuer, subject, matches) in [
        (ISSUER, format!("{start}@*"), true),
        (ISSUER, start.to_owned(), false),
        (ISSUER, format!("{start}@refs/tags/*"), false),
        (ISSUER, format!("{IDENTITY}x"), false),
        ("https://issuer.test", IDENTITY.to_owned(), false),
    ] {
        let mut files = vector.files.clone();
        let policy = json!({ "images": ["r.test/a"], "require": "signatures",
            "identities": [{ "issuer": issuer, "subject": subject }] });
        files.insert("signatures.yaml".to_owned(), json!({ "policies": [policy] }).to_string().into());
        files.insert(format!("sha256-{}.json", vector.digest.hex()), vector.bundle.clone());
        let found = verdict(&files, &vector.digest).await;
        assert_eq!(found.is_notarized(), matches, "{subject}: {found}");
        if !matches {
            let expected =
                format!("expected a signature by {subject} of {issuer}, found one by https://github");
            assert!(reason(&found).contains(&expected[..100]), "{found}");
        }
    }
}
