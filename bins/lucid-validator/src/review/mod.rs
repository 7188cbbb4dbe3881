//! `lucid-validator review`: what `/validate` would say of a pod or workload, without a cluster.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;
use lucid_chain::{Catalogue, CatalogueError, ConfigurationError, Inputs};
use lucid_cluster::InjectionArgs;
use lucid_notary::client::Metrics;
use lucid_policy::{Case, Check, Operation, Permission, Request, SubjectError, Workload};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use snafu::{OptionExt, ResultExt, Snafu, ensure};
use tokio::time::Instant;

use crate::args::{ArgsError, ValidationArgs};
use crate::validator::{image_verdict, verdicts};

/// How long the Verifier may take for all images of the pod.
const PATIENCE: Duration = Duration::from_secs(10);

/// The options of `lucid-validator review`.
#[derive(Clone, Debug, clap::Args)]
pub struct ReviewArgs {
    /// The pod, or the workload with its template, in YAML or JSON as `kubectl get -o json` prints it; `-` is standard input.
    /// A pod is judged as it is to be stored, with its auditors injected.
    #[arg(long, short = 'f', value_name = "FILE", default_value = "-")]
    pub file: PathBuf,

    /// A catalogue (auditors.yaml) whose auditors count besides the built-in ones; may be given several times.
    #[arg(long, env = "LUCID_CATALOGUE", value_name = "FILE")]
    pub catalogue: Vec<PathBuf>,

    /// Judge it as in a namespace that demands a chain of every pod.
    #[arg(long)]
    pub require_chain: bool,

    /// Options of injection: the chain is planned again to be judged.
    #[command(flatten)]
    pub injection: InjectionArgs,

    /// Options of validation.
    #[command(flatten)]
    pub validation: ValidationArgs,
}

/// Why there is no review.
#[derive(Debug, Snafu)]
#[non_exhaustive]
pub enum ReviewError {
    /// Options that contradict each other.
    #[snafu(transparent)]
    Args {
        /// Which, and what is accepted.
        source: ArgsError,
    },
    /// A file cannot be read.
    #[snafu(display("failed to read {}: {source}", path.display()))]
    File {
        /// Which.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A catalogue is none.
    #[snafu(transparent)]
    Catalogue {
        /// What is wrong where.
        source: CatalogueError,
    },
    /// The catalogues lack an auditor of the chain.
    #[snafu(transparent)]
    Configuration {
        /// Which.
        source: ConfigurationError,
    },
    /// The text is neither YAML nor JSON.
    #[snafu(display("{}: {source}", path.display()))]
    Syntax {
        /// Which file.
        path: PathBuf,
        /// What is wrong where.
        source: serde_yaml::Error,
    },
    /// The pod is none.
    #[snafu(display("{}: {source}", path.display()))]
    Subject {
        /// Which file.
        path: PathBuf,
        /// What is wrong where.
        source: SubjectError,
    },
    /// The file holds something else.
    #[snafu(display(
        "{}: found {found}, accepted is one v1 Pod with containers, or one workload that has a template of such pods",
        path.display()
    ))]
    NotAPod {
        /// Which file.
        path: PathBuf,
        /// What it is.
        found: String,
    },
    /// Nobody reads the answer.
    #[snafu(display("failed to write the review: {source}"))]
    Output {
        /// What the system said.
        source: io::Error,
    },
}

/// Writes to `output` what is known of each auditor image and what else is wrong, and returns whether the pod may run.
///
/// # Errors
///
/// When pod or catalogue cannot be read.
pub async fn review(args: &ReviewArgs, output: &mut impl Write) -> Result<bool, ReviewError> {
    let path = &args.file;
    let verifier = args.validation.verifier(&Metrics::default())?;
    let policy = args.validation.policy()?.get().await;
    let mut catalogues = vec![Catalogue::builtin()];
    for path in &args.catalogue {
        let yaml = read(path)?;
        catalogues.push(Catalogue::parse(&path.display().to_string(), &yaml)?);
    }
    let all = catalogues.iter().skip(1).fold(Catalogue::builtin(), |all, own| all.overlay(own));
    let configuration = args.injection.settings().configuration(all)?;

    let text = read(path)?;
    // JSON as it is, for messages that point into it.
    let json = match serde_json::from_str::<&RawValue>(&text) {
        Ok(json) => json.get().to_owned(),
        Err(_) => serde_yaml::from_str::<Value>(&text).context(SyntaxSnafu { path })?.to_string(),
    };
    let meta = serde_json::from_str::<Meta>(&json).unwrap_or_default();
    let (group, version) = meta.api_version.rsplit_once('/').unwrap_or(("", &meta.api_version));
    let not_a_pod = NotAPodSnafu { path, found: format!("{:?} {:?}", meta.api_version, meta.kind) };
    let workload = Workload::of(group, &meta.kind).filter(|_| version == "v1").context(not_a_pod.clone())?;
    let request = Request {
        operation: Operation::Create,
        workload,
        subresource: None,
        object: Some(json.as_bytes()),
        old_object: None,
        namespace: meta.metadata.namespace.as_deref().unwrap_or("default"),
        user: "",
        now: Timestamp::now(),
    };
    // Of a pod that is being deleted the webhook says nothing, nor does this.
    let subject = request.subject().context(SubjectSnafu { path })?.context(not_a_pod.clone())?;
    ensure!(!subject.pod.containers().is_empty(), not_a_pod);

    let case = Case::new(&subject, &Inputs::new(&configuration), &catalogues, args.require_chain);
    let auditors = case.auditors();
    let asked: Vec<_> =
        auditors.iter().filter(|auditor| policy.asks_about(&case, auditor)).cloned().collect();
    let verdicts = verdicts(verifier.as_ref(), &asked, Instant::now() + PATIENCE).await;
    let judgement = policy.judge(&case, &auditors, &verdicts, &Permission::NotAsked);
    let mut write = || {
        if auditors.is_empty() {
            writeln!(output, "no auditor containers")?;
        }
        for auditor in &auditors {
            let image = image_verdict(auditor, &verdicts);
            let (container, name) = (image.container.escape_debug(), image.image.escape_debug());
            writeln!(output, "{} {container}, image {name}: {}", auditor.place, image.verdict)?;
        }
        for finding in judgement.told().filter(|finding| finding.problem.check() != Check::Images) {
            writeln!(output, "{finding}")?;
        }
        for exempted in &judgement.exempted {
            writeln!(output, "exempt by {exempted}")?;
        }
        if let Some(ticket) = &judgement.ticket {
            writeln!(output, "break-glass by ticket {ticket:?}")?;
        }
        let warned = if judgement.warnings().is_empty() { "" } else { " with warnings" };
        match (judgement.refuses(), workload.is_pod()) {
            (true, true) => writeln!(output, "refused"),
            (true, false) => writeln!(output, "allowed{warned}, its pods would be refused"),
            (false, _) => writeln!(output, "allowed{warned}"),
        }
    };
    write().context(OutputSnafu)?;
    Ok(!judgement.refuses())
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Meta {
    api_version: String,
    kind: String,
    metadata: Metadata,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Metadata {
    namespace: Option<String>,
}

fn read(path: &Path) -> Result<String, ReviewError> {
    let text =
        if path == Path::new("-") { io::read_to_string(io::stdin()) } else { fs::read_to_string(path) };
    text.context(FileSnafu { path })
}
