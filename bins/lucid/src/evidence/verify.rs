//! `lucid evidence verify`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use lucid_audit::Decision;
use lucid_audit::correlate::SeenAnchor;
use lucid_audit::note::VerifierKey;
use lucid_audit::proof::{Proof, Proven};
use lucid_notary::ImageReference;
use lucid_notary::client::{Answer, Signatures, check_proof};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::archive::{self, Fault, Files, MOST_BYTES};
use super::{CLAIM, Records, VERSION, Verdict, ambiguous, unmatched};
use crate::error::{Result, ResultExt};

/// Options of `lucid evidence verify`.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct VerifyArgs {
    /// Archive to verify.
    #[arg(value_name = "ARCHIVE")]
    archive: PathBuf,

    /// Trusted vkey of a collector, or a file with one; repeatable.
    #[arg(long, value_name = "VKEY", required = true, value_parser = lucid_shared::options::parse_key)]
    signer: Vec<VerifierKey>,

    /// Trusted vkey of a decision log, or a file with one; repeatable.
    #[arg(long, value_name = "VKEY", value_parser = lucid_shared::options::parse_key)]
    key: Vec<VerifierKey>,

    /// Trusted vkey of a Verifier's log, or a file with one; repeatable.
    #[arg(long, value_name = "VKEY", value_parser = lucid_shared::options::parse_key)]
    verifier_log_key: Vec<VerifierKey>,

    /// Directory with signatures.yaml and trusted_root.json, by which bundles are verified. By default none.
    #[arg(long, value_name = "DIR")]
    signatures_directory: Option<PathBuf>,
}

/// Trusted keys by role, so that no holder of one can forge what another has to say.
pub(super) struct Keys<'a> {
    pub(super) collectors: &'a [VerifierKey],
    pub(super) logs: &'a [VerifierKey],
    pub(super) verifiers: &'a [VerifierKey],
    /// Directory with policies of signatures.
    pub(super) signatures: Option<&'a Path>,
}

pub(super) fn verify(args: &VerifyArgs, output: &mut impl Write) -> Result<bool> {
    let path = args.archive.display();
    let mut bytes = Vec::new();
    let read =
        File::open(&args.archive).and_then(|file| file.take(MOST_BYTES as u64).read_to_end(&mut bytes));
    read.failed_to(format_args!("read {path}")).usage()?;
    let keys = Keys {
        collectors: &args.signer,
        logs: &args.key,
        verifiers: &args.verifier_log_key,
        signatures: args.signatures_directory.as_deref(),
    };
    let evaluated =
        archive::read(&bytes).map_err(|fault| vec![fault]).and_then(|files| evaluate(files, &keys));
    let printed = match &evaluated {
        Ok(verified) => writeln!(output, "{path}: verified\n{verified}{CLAIM}"),
        Err(faults) => writeln!(output, "{path}: not verified")
            .and_then(|()| faults.iter().try_for_each(|fault| writeln!(output, "  {fault}"))),
    };
    printed.failed_to_print()?;
    Ok(evaluated.is_ok())
}

/// Returns a summary of what was verified.
pub(super) fn evaluate(mut files: Files, keys: &Keys<'_>) -> Result<String, Vec<Fault>> {
    let mut faults = archive::check(&mut files, keys.collectors);
    if !faults.is_empty() {
        return Err(faults);
    }
    let subject: Value = parse(&files, "evidence.json").map_err(|fault| vec![fault])?;
    let anchors: Vec<SeenAnchor> = parse(&files, "anchors.json").map_err(|fault| vec![fault])?;
    let namespace = subject["namespace"].as_str().unwrap_or_default();
    let names = names(&files, &subject).map_err(|fault| vec![fault])?;
    let (mut pods, mut verdicts, mut proven, mut generated, mut records) = (0, 0, 0, 0, Records::new());
    let (mut images, mut bundles) = (BTreeSet::new(), Files::new());
    for (path, content) in &files {
        let checked = match path.split_once('/') {
            Some(("pods", _)) => pod(&files, path, names.as_deref()).map(|found| {
                pods += 1;
                images.extend(found);
            }),
            Some(("signatures", name)) => {
                bundles.insert(name.to_owned(), content.clone());
                Ok(())
            }
            Some(("verdicts", _)) => verdict(&files, path, keys.verifiers).map(|is_proven| {
                verdicts += 1;
                proven += usize::from(is_proven);
            }),
            Some(("decisions", _)) => decision(&files, path, namespace, names.as_deref(), keys.logs)
                .and_then(|(name, proven)| {
                    generated += usize::from(subject["pod"].as_str().is_some_and(|pod| pod != name));
                    let line = proven.record.into_bytes();
                    match records.insert((proven.origin, proven.seq), line.clone()) {
                        Some(other) if other != line => {
                            Err(Fault::new(path, "its log has another record under this number"))
                        }
                        _ => Ok(()),
                    }
                }),
            _ if ["index.html", "evidence.json", "anchors.json"].contains(&path.as_str()) => Ok(()),
            _ => Err(Fault::new(path, "not a file of evidence")),
        };
        faults.extend(checked.err());
    }
    if subject["version"] != VERSION {
        let reason = format!("expected version {VERSION}, found {}", subject["version"]);
        faults.push(Fault::new("evidence.json", reason));
    }
    // The event of a decision on one of its siblings may have the name of the sibling.
    let is_other = |anchor: &&SeenAnchor| {
        let place = (anchor.log.clone().unwrap_or_default(), anchor.anchor.seq);
        names.as_ref().is_some_and(|names| !names.contains(&anchor.name)) && !records.contains_key(&place)
    };
    faults.extend(
        anchors
            .iter()
            .filter(is_other)
            .map(|anchor| other_pod("anchors.json", names.as_deref(), &anchor.name)),
    );
    let signed = keys.signatures.map(|directory| Signatures::verify_bundles(directory, bundles, images));
    let signed = match signed.transpose() {
        Ok(verified) => verified.map(|verified| signed_images(&verified)).unwrap_or_default(),
        Err(error) => {
            faults.push(Fault::new("signatures", error));
            String::new()
        }
    };
    let unmatched = unmatched(&anchors, &records).map_err(|reason| Fault::new("anchors.json", reason));
    match unmatched {
        Ok(unmatched) if faults.is_empty() => {
            let origins: BTreeSet<_> = records.keys().map(|(origin, _)| origin.as_str()).collect();
            let origins = origins.into_iter().collect::<Vec<_>>().join(", ");
            let pod = subject["pod"].as_str().map(|pod| format!(", pod {pod:?}")).unwrap_or_default();
            let ambiguous = ambiguous(generated).map(|text| format!("  {text}\n")).unwrap_or_default();
            Ok(format!(
                "  namespace {namespace:?}{pod}, collected at {}: {pods} pods\n  {verdicts} verdicts, {proven} proven by a \
                 log, which may since have a revocation\n{signed}  {} decisions, sealed by {origins}\n{ambiguous}  {} anchors of the \
                 API server, {unmatched} without a record\n",
                subject["collected"],
                records.len(),
                anchors.len()
            ))
        }
        unmatched => Err(faults.into_iter().chain(unmatched.err()).collect()),
    }
}

fn parse<T: DeserializeOwned>(files: &Files, path: &str) -> Result<T, Fault> {
    let content = files.get(path).ok_or_else(|| Fault::new(path, "missing"))?;
    serde_json::from_slice(content).map_err(|error| Fault::new(path, error))
}

/// Returns the names that decisions on the pod of the subject have, or `None` if the subject is the namespace.
fn names(files: &Files, subject: &Value) -> Result<Option<Vec<String>>, Fault> {
    let Some(name) = subject["pod"].as_str() else { return Ok(None) };
    let pod: Value = parse(files, &super::path("pods", name))?;
    Ok(Some([Some(name), pod["generateName"].as_str()].into_iter().flatten().map(str::to_owned).collect()))
}

fn other_pod(path: &str, names: Option<&[String]>, found: &str) -> Fault {
    Fault::new(path, format!("expected pod {}, found {found}", names.unwrap_or_default().join(" or ")))
}

/// Returns the images of its auditors.
fn pod(files: &Files, path: &str, names: Option<&[String]>) -> Result<Vec<ImageReference>, Fault> {
    let pod: Value = parse(files, path)?;
    let found = pod["name"].as_str().unwrap_or_default();
    match names.and_then(|names| names.first()) {
        Some(name) if found != name => return Err(other_pod(path, names, found)),
        _ => is_at(path, "pods", found)?,
    }
    let images = pod["images"].as_array().into_iter().flatten().filter_map(Value::as_str);
    images.map(|image| image.parse().map_err(|error| Fault::new(path, error))).collect()
}

/// Tells which images are signed as the reader's policies demand.
fn signed_images(verified: &BTreeMap<ImageReference, Result<(), String>>) -> String {
    let signed = verified.values().filter(|verified| verified.is_ok()).count();
    let mut text = format!("  {signed} of {} images signed as the policies demand\n", verified.len());
    for (image, reason) in
        verified.iter().filter_map(|(image, verified)| Some((image, verified.as_ref().err()?)))
    {
        text += &format!("    {image}: {}\n", reason.escape_debug());
    }
    text
}

fn is_at(path: &str, folder: &str, name: &str) -> Result<(), Fault> {
    if path == super::path(folder, name) { Ok(()) } else { Err(Fault::new(path, format!("found {name}"))) }
}

/// Returns `true` if the verdict has a proof.
fn verdict(files: &Files, path: &str, keys: &[VerifierKey]) -> Result<bool, Fault> {
    let Verdict { digest, notarized, proof, .. } = parse(files, path)?;
    is_at(path, "verdicts", digest.as_str())?;
    // With a key, a notarization counts only with its proof.
    if proof.is_none() && (keys.is_empty() || notarized != Some(true)) {
        return Ok(false);
    }
    if notarized.is_none() {
        return Err(Fault::new(path, "found a proof of an unknown verdict"));
    }
    let answer = if notarized == Some(true) { Answer::Notarized } else { Answer::NotNotarized };
    let proven = check_proof(keys, &digest, answer, proof.as_deref());
    proven.map(|_| true).map_err(|error| Fault::new(path, error))
}

/// Returns the name in the decision, and its record.
fn decision(
    files: &Files,
    path: &str,
    namespace: &str,
    names: Option<&[String]>,
    keys: &[VerifierKey],
) -> Result<(String, Proven), Fault> {
    let text = String::from_utf8_lossy(files.get(path).map_or(&[][..], Vec::as_slice));
    let proven = text.parse::<Proof>().and_then(|proof| proof.check(keys, None));
    let proven = proven.map_err(|error| Fault::new(path, error))?;
    let found: Decision = serde_json::from_str(&proven.record).map_err(|error| Fault::new(path, error))?;
    if found.namespace != namespace {
        return Err(Fault::new(path, format!("expected namespace {namespace}, found {}", found.namespace)));
    }
    if names.is_some_and(|names| !names.contains(&found.name)) {
        return Err(other_pod(path, names, &found.name));
    }
    Ok((found.name, proven))
}
