//! Certificates and PEM are accepted only if Go, whose rules API servers follow, accepts them.

mod certificate;
mod layouts;

use std::{
    io::Write,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::LazyLock,
};

use base64::{Engine, prelude::BASE64_STANDARD};
use lucid_certs::{ServingCertificate, ServingNames, TrustBundle};
use proptest::{prelude::*, strategy::ValueTree, test_runner::TestRunner};
use serde_json::json;

use crate::common::{chain, now};
use certificate::{Certificate, NAME, Role, cases};

/// PEM text of a bundle, and of a chain with its key.
#[derive(Debug, Clone)]
struct Vector {
    ca: Vec<u8>,
    chain: Vec<u8>,
    key: Vec<u8>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Expected {
    Accepted,
    /// Our message contains this text, such as the name of the field.
    Rejected(&'static str),
    /// As above, although Go accepts it.
    RejectedByUs(&'static str),
}

impl Vector {
    /// Returns our verdict: the certificate may be served, and the bundle published.
    fn verdict(&self) -> Result<(), String> {
        let names = ServingNames::for_hosts(&[NAME]).unwrap();
        let bundle = TrustBundle::from_pem(&self.ca).map_err(|error| chain(&error))?;
        let leaf = ServingCertificate::from_pem(&self.chain, &self.key).map_err(|error| chain(&error))?;
        leaf.verify_for(&names, &bundle, now()).map_err(|error| chain(&error))
    }
}

static VERIFY: LazyLock<PathBuf> = LazyLock::new(|| {
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("verify-by-go");
    let mut go = Command::new("go");
    go.args(["build", "-o"]).arg(&program).arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/go/verify.go"));
    assert!(go.env("GOTOOLCHAIN", "local").status().unwrap().success());
    program
});

/// Returns Go's verdicts: `ok` or the reason. `None` skips the test, without Go.
fn verdicts_of_go(vectors: &[Vector]) -> Option<Vec<String>> {
    if !lucid_e2e::has_program("go") {
        return None;
    }
    let mut go = Command::new(&*VERIFY)
        .env_remove("GODEBUG")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = go.stdin.take().unwrap();
    let text: String = vectors
        .iter()
        .map(|vector| {
            let [ca, chain, key] =
                [&vector.ca, &vector.chain, &vector.key].map(|bytes| BASE64_STANDARD.encode(bytes));
            json!({ "CA": ca, "Chain": chain, "Key": key, "Name": NAME }).to_string() + "\n"
        })
        .collect();
    std::thread::spawn(move || stdin.write_all(text.as_bytes()));
    let output = go.wait_with_output().unwrap();
    let verdicts: Vec<_> = String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect();
    assert_eq!(verdicts.len(), vectors.len());
    Some(verdicts)
}

/// Checks our verdicts, and those of Go if it is installed.
fn compare(vectors: &[(String, Expected, Vector)]) {
    let all: Vec<_> = vectors.iter().map(|(_, _, vector)| vector.clone()).collect();
    let go = verdicts_of_go(&all);
    let mut wrong = Vec::new();
    for (index, (name, expected, vector)) in vectors.iter().enumerate() {
        let ours = vector.verdict();
        let go = go.as_ref().map(|verdicts| verdicts[index].as_str());
        let (is_right, is_accepted_by_go) = match expected {
            Expected::Accepted => (ours.is_ok(), true),
            Expected::Rejected(text) => (ours.as_ref().is_err_and(|it| it.contains(text)), false),
            Expected::RejectedByUs(text) => (ours.as_ref().is_err_and(|it| it.contains(text)), true),
        };
        if !is_right || go.is_some_and(|go| (go == "ok") != is_accepted_by_go) {
            wrong.push(format!("{name}: expected {expected:?}, found {ours:?}, Go: {go:?}"));
        }
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), vectors.len(), wrong.join("\n"));
}

#[test]
fn certificates_are_accepted_as_by_go() {
    let vectors: Vec<_> = cases()
        .into_iter()
        .flat_map(|case| {
            let vector = |role: &Role| {
                let name = format!("{} in the {role:?}", case.name);
                (name, case.expected, Certificate::vector(*role, &case.change))
            };
            case.roles.iter().map(vector).collect::<Vec<_>>()
        })
        .collect();
    compare(&vectors);
}

#[test]
fn pem_layouts_are_read_as_by_go() {
    compare(&layouts::vectors());
}

/// A change of one byte of a certificate before it is signed.
fn byte() -> impl Strategy<Value = (Role, prop::sample::Index, u8)> {
    let role = prop::sample::select(vec![Role::Leaf, Role::Intermediate, Role::Ca]);
    (role, any::<prop::sample::Index>(), any::<u8>())
}

#[test]
fn no_mutated_certificate_is_accepted_that_go_rejects() {
    let mut runner = TestRunner::deterministic();
    let count = std::env::var("LUCID_GO_MUTATIONS").ok().and_then(|count| count.parse().ok()).unwrap_or(500);
    let vectors: Vec<_> = (0..count)
        .map(|_| {
            let (role, at, value) = byte().new_tree(&mut runner).unwrap().current();
            Certificate::mutated(role, |signed| {
                let length = signed.len();
                signed[at.index(length)] = value;
            })
        })
        .collect();
    let Some(verdicts) = verdicts_of_go(&vectors) else { return };
    for (vector, go) in vectors.iter().zip(verdicts) {
        assert!(go == "ok" || vector.verdict().is_err(), "{go}: {}{}", text(&vector.ca), text(&vector.chain));
    }
}

fn text(pem: &[u8]) -> String {
    String::from_utf8_lossy(pem).into_owned()
}
