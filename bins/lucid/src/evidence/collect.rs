//! Collects evidence from the cluster, decision logs, and the API server's audit log.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, Pod};
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use lucid_admission::{NamespaceView, Scope};
use lucid_audit::correlate::{SeenAnchor, seen_anchors};
use lucid_audit::follow::LogFollower;
use lucid_audit::proof::Proof;
use lucid_chain::keys;
use lucid_keeper::{Comparison, StoredPod, Verdicts};
use lucid_notary::client::{Answer, ClientMetrics};
use lucid_notary::{Digest, ImageReference};
use serde::Deserialize;
use serde_json::{Value, json};

use super::archive::{Files, MOST_BYTES, too_long};
use super::{PackArgs, Records, VERSION, Verdict, page, unmatched};
use crate::check::pods::known_state;
use crate::check::{deployed_operator, read_configuration};
use crate::error::{Result, ResultExt};

/// Pauses between attempts to prove a record, which the log's writer may not have sealed yet.
const PAUSES: [Duration; 5] = [Duration::from_secs(1); 5];

pub(super) struct Collected {
    /// Subject of the evidence.
    pub(super) subject: Value,
    pub(super) pods: Vec<Value>,
    pub(super) verdicts: Vec<Value>,
    /// Bundles by their path.
    pub(super) bundles: Files,
    /// Proofs by their path.
    pub(super) decisions: Vec<(String, Proof)>,
    pub(super) anchors: Vec<SeenAnchor>,
    /// Number of anchors without a record.
    pub(super) unmatched: usize,
}

pub(super) async fn collect(args: &PackArgs) -> Result<Collected> {
    let client = args.connection.reach().await?;
    let operator = deployed_operator(&client, &args.operator_namespace, &args.injection).await?;
    let cluster = read_configuration(&client, &args.operator_namespace, &operator).await?;
    let namespace = match &args.namespace {
        Some(namespace) => namespace.clone(),
        None => args.connection.namespace()?.unwrap_or_else(|| "default".to_owned()),
    };
    let namespace = namespace.as_str();
    let view = cluster.namespace(namespace).await?;
    let api: Api<StoredPod> = Api::namespaced(client, namespace);
    let stored = match &args.pod {
        Some(name) => vec![api.get(name).await.failed_to(format_args!("get pod {namespace}/{name}"))?],
        None => api.list(&ListParams::default()).await.failed_to("list pods")?.items,
    };
    let is_covered = view.enabled && Scope::new(&args.operator_namespace).covers(namespace);
    let compared = stored.into_iter().map(|pod| {
        let comparison = is_covered.then(|| Comparison::new(&pod, namespace, &view)).flatten();
        (pod, comparison)
    });
    let compared: Vec<_> = compared.collect();
    let (verdicts, mut known) = verdicts(args, &compared).await?;
    if operator.common.validation.sources.signatures_directory.is_some() {
        // The Verifier alone does not decide.
        known.clear();
    }
    let bundles = match &args.signatures_directory {
        Some(directory) => bundles(directory, &compared)
            .failed_to(format_args!("read the bundles in {}", directory.display()))
            .usage()?,
        None => Files::new(),
    };
    let facts = compared.iter().map(|(pod, comparison)| facts(pod, comparison.as_ref(), &known, &view));
    let pods = facts.collect::<Result<_>>()?;

    // A decision before the API server chose the name has the `generateName`.
    let generated = compared.iter().filter_map(|(pod, _)| pod.full_metadata().generate_name);
    let names: BTreeSet<_> = args.pod.clone().into_iter().chain(generated).collect();
    let is_wanted = |name: &str, time: Timestamp| {
        args.since.is_none_or(|since| time >= since) && (args.pod.is_none() || names.contains(name))
    };
    let (mut decisions, mut records) = (Vec::new(), Records::new());
    for (number, directory) in args.log.iter().enumerate() {
        for (seq, line) in lines(directory, namespace, &is_wanted)? {
            let proof = prove(directory, seq, &line).await?;
            records.insert((proof.origin().to_owned(), seq), line);
            decisions.push((format!("decisions/{number}-{seq}.tlog-proof"), proof));
        }
    }
    let mut anchors = Vec::new();
    if let Some(path) = &args.apiserver_audit {
        // A file that does not exist would have no anchors.
        std::fs::metadata(path).failed_to(format_args!("read {}", path.display())).usage()?;
        seen_anchors(path, namespace, |seen| {
            let place = (seen.log.clone().unwrap_or_default(), seen.anchor.seq);
            if is_wanted(&seen.name, seen.time) || records.contains_key(&place) {
                anchors.push(seen);
            }
        })?;
    }
    let unmatched = unmatched(&anchors, &records)?;
    let subject = json!({
        "version": VERSION, "namespace": namespace, "pod": args.pod, "since": args.since, "collected": Timestamp::now(),
    });
    Ok(Collected { subject, pods, verdicts, bundles, decisions, anchors, unmatched })
}

/// Asks the Verifier about the digests of the auditors.
async fn verdicts(
    args: &PackArgs,
    pods: &[(StoredPod, Option<Comparison>)],
) -> Result<(Vec<Value>, Verdicts)> {
    let Some(verifier) = args.verifier.http(&ClientMetrics::default()).usage()? else {
        return Ok(Default::default());
    };
    let comparisons = pods.iter().flat_map(|(_, comparison)| comparison);
    let mut images = BTreeMap::<Digest, Vec<ImageReference>>::new();
    for image in comparisons.flat_map(Comparison::images) {
        if let Some(digest) = image.digest() {
            images.entry(digest.clone()).or_default().push(image.clone());
        }
    }
    let (mut verdicts, mut known) = (Vec::new(), Verdicts::new());
    for (digest, images) in images {
        let (notarized, reason, proof) = match verifier.prove(&digest).await {
            Ok((answer, proof)) => (Some(answer == Answer::Notarized), None, proof),
            Err(error) => (None, Some(error.to_string()), None),
        };
        known.extend(images.into_iter().filter_map(|image| Some((image, notarized?))));
        verdicts.push(json!(Verdict { digest, notarized, reason, proof }));
    }
    Ok((verdicts, known))
}

/// Returns the bundles about the digests of the auditors.
fn bundles(directory: &Path, pods: &[(StoredPod, Option<Comparison>)]) -> io::Result<Files> {
    let images = pods.iter().flat_map(|(_, comparison)| comparison).flat_map(Comparison::images);
    let stems: BTreeSet<_> =
        images.filter_map(ImageReference::digest).map(|digest| format!("sha256-{}.", digest.hex())).collect();
    let mut files = Files::new();
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.ends_with(".json") && stems.iter().any(|stem| name.starts_with(stem)) {
            files.insert(format!("signatures/{name}"), std::fs::read(entry.path())?);
        }
    }
    Ok(files)
}

fn facts(
    pod: &StoredPod,
    comparison: Option<&Comparison>,
    verdicts: &Verdicts,
    view: &NamespaceView,
) -> Result<Value> {
    let (state, reason) = comparison.map(|comparison| known_state(comparison, view, verdicts)).unzip();
    let typed: Pod =
        serde_json::from_str(pod.json()).failed_to(format_args!("read pod {}", pod.name_any()))?;
    let (spec, status) = (typed.spec.unwrap_or_default(), typed.status.unwrap_or_default());
    let lists = [status.init_container_statuses, status.container_statuses];
    let reported: BTreeMap<_, _> =
        lists.into_iter().flatten().flatten().map(|status| (status.name, status.image_id)).collect();
    let containers = spec.init_containers.unwrap_or_default().into_iter().chain(spec.containers);
    let is_auditor = |container: &Container| {
        container.env.iter().flatten().any(|variable| variable.name == keys::AUDITOR_ID_ENV)
    };
    let chain = containers.filter(is_auditor).map(|Container { name, image, .. }| {
        json!({"container": name, "image": image, "imageID": reported.get(&name)})
    });
    Ok(json!({
        "name": pod.name_any(),
        "generateName": pod.full_metadata().generate_name,
        "uid": pod.uid(),
        "created": pod.created(),
        "state": state,
        "reason": reason.unwrap_or_default(),
        "chain": chain.collect::<Vec<_>>(),
        "images": comparison.map_or(&[][..], Comparison::images).iter().map(ToString::to_string).collect::<Vec<_>>(),
        "digests": comparison.map_or(&[][..], Comparison::images).iter().filter_map(ImageReference::digest).collect::<Vec<_>>(),
    }))
}

/// Returns the wanted decisions of a log by number.
fn lines(
    directory: &Path,
    namespace: &str,
    is_wanted: &impl Fn(&str, Timestamp) -> bool,
) -> Result<Vec<(u64, Vec<u8>)>> {
    #[derive(Deserialize)]
    struct Line {
        seq: u64,
        time: Timestamp,
        namespace: String,
        name: String,
    }

    if !directory.is_dir() {
        return Err(format!("{} is not the directory of a log", directory.display()).into());
    }
    let (mut found, mut length) = (Vec::new(), 0);
    LogFollower::new(directory).poll(|line| {
        // Records that the log writes about itself have no object.
        let Ok(Line { seq, time, namespace: of, name }) = serde_json::from_slice(line) else { return };
        if of == namespace && is_wanted(&name, time) && length <= MOST_BYTES {
            length += line.len();
            found.push((seq, line.to_vec()));
        }
    })?;
    if length > MOST_BYTES { Err(too_long()) } else { Ok(found) }
}

/// Proves a record, as soon as the log's writer has sealed it.
async fn prove(directory: &Path, seq: u64, line: &[u8]) -> Result<Proof> {
    let mut proof = Proof::of(directory, seq);
    for pause in PAUSES {
        if proof.is_err() {
            tokio::time::sleep(pause).await;
            proof = Proof::of(directory, seq);
        }
    }
    let proof = proof?;
    if proof.record() == Some(line) {
        return Ok(proof);
    }
    let log = directory.display();
    Err(format!("record {seq} of {log} is not the one that was sealed: run lucid audit verify").into())
}

impl Collected {
    pub(super) fn into_files(self) -> Files {
        let text = |value: &Value| format!("{value:#}\n").into_bytes();
        let named = |folder: &str, value: &Value, key: &str| {
            (super::path(folder, value[key].as_str().unwrap_or_default()), text(value))
        };
        let mut files = Files::new();
        files.insert("index.html".to_owned(), page::page(&self).into_bytes());
        files.insert("evidence.json".to_owned(), text(&self.subject));
        files.insert("anchors.json".to_owned(), text(&json!(self.anchors)));
        files.extend(self.bundles);
        files.extend(self.pods.iter().map(|pod| named("pods", pod, "name")));
        files.extend(self.verdicts.iter().map(|verdict| named("verdicts", verdict, "digest")));
        files.extend(
            self.decisions.iter().map(|(path, proof)| (path.clone(), proof.to_string().into_bytes())),
        );
        files
    }
}
