//! `lucid-validator review`: what `/validate` would say of a pod, without a cluster.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use lucid_chain::{Catalogue, CatalogueError, PodError, PodView};
use lucid_notary::client::Metrics;
use lucid_policy::{auditor_containers, judge};
use serde::Deserialize;
use snafu::{ResultExt, Snafu, ensure};
use tokio::time::Instant;

use crate::args::{ArgsError, ValidationArgs};
use crate::validator::{image_verdict, plain, verdicts};

/// How long the Verifier may take for all images of the pod.
const PATIENCE: Duration = Duration::from_secs(10);

/// The options of `lucid-validator review`.
#[derive(Clone, Debug, clap::Args)]
pub struct ReviewArgs {
    /// The pod in JSON, as `kubectl get -o json` prints it; `-` is standard input.
    #[arg(long, short = 'f', value_name = "FILE", default_value = "-")]
    pub file: PathBuf,

    /// A catalogue (auditors.yaml) whose auditors count besides the built-in ones; may be given several times.
    #[arg(long, env = "LUCID_CATALOGUE", value_name = "FILE")]
    pub catalogue: Vec<PathBuf>,

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
    /// The pod is none.
    #[snafu(display("{}: {source}", path.display()))]
    Pod {
        /// Which file.
        path: PathBuf,
        /// What is wrong where.
        source: PodError,
    },
    /// The file holds something else.
    #[snafu(display("{}: found {found}, accepted is one v1 Pod with containers", path.display()))]
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

/// Writes to `output` what is known of each auditor image, and returns whether the pod may run.
///
/// # Errors
///
/// When pod or catalogue cannot be read.
pub async fn review(args: &ReviewArgs, output: &mut impl Write) -> Result<bool, ReviewError> {
    let verifier = args.validation.verifier(&Metrics::default())?;
    let mut catalogues = vec![Catalogue::builtin()];
    for path in &args.catalogue {
        let yaml = read(path)?;
        catalogues.push(Catalogue::parse(&path.display().to_string(), &yaml)?);
    }
    let json = read(&args.file)?;
    let pod = PodView::from_json(&json).context(PodSnafu { path: &args.file })?;
    // A Deployment or a List reads as a pod without containers, which would be allowed.
    let found = serde_json::from_str::<TypeMeta>(&json).unwrap_or_default();
    let is_pod = found.api_version == "v1" && found.kind == "Pod" && !pod.containers().is_empty();
    ensure!(
        is_pod,
        NotAPodSnafu { path: &args.file, found: format!("{:?} {:?}", found.api_version, found.kind) }
    );

    let auditors = auditor_containers(&pod, &catalogues);
    let verdicts = verdicts(verifier.as_ref(), &auditors, Instant::now() + PATIENCE).await;
    let judgement = judge(&auditors, &plain(&verdicts), args.validation.strictness());
    let mut write = || {
        if auditors.is_empty() {
            writeln!(output, "no auditor containers")?;
        }
        for auditor in &auditors {
            let image = image_verdict(auditor, &verdicts);
            let (container, name) = (image.container.escape_debug(), image.image.escape_debug());
            writeln!(output, "{} {container}, image {name}: {}", auditor.place, image.verdict)?;
        }
        let warned = if judgement.warnings().is_empty() { "" } else { " with warnings" };
        match judgement.denial() {
            Some(_) => writeln!(output, "refused"),
            None => writeln!(output, "allowed{warned}"),
        }
    };
    write().context(OutputSnafu)?;
    Ok(judgement.denial().is_none())
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct TypeMeta {
    api_version: String,
    kind: String,
}

fn read(path: &Path) -> Result<String, ReviewError> {
    let text =
        if path == Path::new("-") { io::read_to_string(io::stdin()) } else { fs::read_to_string(path) };
    text.context(FileSnafu { path })
}
