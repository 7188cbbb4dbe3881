//! `lucid validate`: evaluates pods and workloads as `/validate` does, without a cluster.
//!
//! `subjects` finds them in the files, and `verdict` formats the results.

mod subjects;
mod verdict;

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use lucid_chain::{Catalogue, CatalogueError, Configuration, ConfigurationError, Inputs, PodChoices};
use lucid_notary::client::{Metrics, Verifier};
use lucid_policy::{Case, Permission, Policy};
use lucid_shared::options::{InjectionArgs, ValidationArgs};
use snafu::{ResultExt, Snafu, ensure};
use tokio::time::Instant;

use lucid_admission::{Scope, verdicts};

use crate::documents::{self, ReadError};
use subjects::{Found, Reviewed};
use verdict::Verdict;

/// Timeout of the Verifier for all images of a pod.
const PATIENCE: Duration = Duration::from_secs(10);

/// Options of `lucid validate`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ValidateArgs {
    /// Manifests in YAML or JSON with any number of documents, including lists; `-` is standard input. Repeatable. Pods
    /// are evaluated as stored, with their auditors injected; workloads by their pod template; AdmissionReviews by
    /// their request. Other objects are skipped.
    #[arg(long = "file", short = 'f', value_name = "FILE", default_value = "-")]
    pub(crate) files: Vec<PathBuf>,

    /// Output format.
    #[arg(long, short = 'o', value_name = "FORMAT", default_value = "text")]
    pub(crate) output: Format,

    /// Catalogue (auditors.yaml) whose auditors are known besides the built-in ones; repeatable.
    #[arg(long, value_name = "FILE")]
    pub(crate) catalogue: Vec<PathBuf>,

    /// Require a chain in every pod, as a namespace can.
    #[arg(long)]
    pub(crate) require_chain: bool,

    /// Annotations that pods may set, as in the namespace's `lucid.computing/pod-choices`: none, chain or all. By
    /// default none with `--require-chain`, otherwise all.
    #[arg(long, value_name = "CHOICES")]
    pub(crate) pod_choices: Option<PodChoices>,

    /// Namespace of the operator. Objects in it, kube-system, kube-public and kube-node-lease are skipped.
    #[arg(long, env = "LUCID_NAMESPACE", value_name = "NAME", default_value = "lucid-system")]
    #[arg(value_parser = lucid_shared::parse_namespace)]
    pub(crate) operator_namespace: String,

    /// Injection options, with which the expected chain is planned.
    #[command(flatten)]
    pub(crate) injection: InjectionArgs,

    /// Validation options.
    #[command(flatten)]
    pub(crate) validation: ValidationArgs,
}

/// Output format of verdicts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Format {
    /// Lines of text, prefixed with the object's name if there are several.
    Text,
    /// One JSON object per line.
    Json,
}

/// The review could not be completed.
#[derive(Debug, Snafu)]
#[non_exhaustive]
pub(crate) enum ValidateError {
    /// The options contradict each other.
    #[snafu(transparent)]
    Args {
        /// Option, and accepted values.
        source: lucid_shared::Error,
    },
    /// A file could not be read.
    #[snafu(transparent)]
    File {
        /// File and error.
        source: ReadError,
    },
    /// A catalogue is invalid.
    #[snafu(transparent)]
    Catalogue {
        /// Field and error.
        source: CatalogueError,
    },
    /// The catalogues lack an auditor of the chain.
    #[snafu(transparent)]
    Configuration {
        /// Name of the missing auditor.
        source: ConfigurationError,
    },
    /// The files contain nothing to evaluate.
    #[snafu(display("{}: found {found}, accepted is {}", path.display(), subjects::ACCEPTED))]
    Nothing {
        /// Path of the first file.
        path: PathBuf,
        /// Description of its content.
        found: String,
    },
    /// Some objects could not be evaluated. The errors have been written to `messages`.
    #[snafu(display("no verdict on {number} of {total} documents and objects"))]
    Unjudged {
        /// Number of objects without a verdict.
        number: usize,
        /// Total number of documents and objects.
        total: usize,
    },
    /// The output could not be written.
    #[snafu(display("failed to write the review: {source}"))]
    Output {
        /// Error of the operating system.
        source: io::Error,
    },
}

/// Writes the verdicts to `output`, and to `messages` the errors of objects that cannot be evaluated. Returns `true` if
/// everything is allowed. A rejection takes precedence over errors.
///
/// # Errors
///
/// Returns an error if a file or the options cannot be read, or an object has no verdict and nothing is rejected.
pub(crate) async fn validate(
    args: &ValidateArgs,
    output: &mut impl Write,
    messages: &mut impl Write,
) -> Result<bool, ValidateError> {
    let judge = Judge::new(args).await?;
    let inputs = documents::inputs(&args.files)?;
    let Found { reviewed, passed } = subjects::find(&inputs);
    if reviewed.is_empty() {
        let path = args.files.first().map_or(Path::new("-"), PathBuf::as_path);
        let found = passed.first().map_or("nothing", String::as_str);
        return NothingSnafu { path, found }.fail();
    }
    let (total, mut number, mut allowed) = (reviewed.len(), 0_usize, true);
    for found in reviewed {
        let place = found.place.clone();
        match judge.verdict(found).await {
            Ok(verdict) => {
                allowed &= verdict.allowed;
                let named = total > 1 || !passed.is_empty();
                let is_written = match args.output {
                    Format::Text => verdict.text(named, args.files.len() > 1, output),
                    Format::Json => verdict.json(output),
                };
                is_written.context(OutputSnafu)?;
            }
            Err(problem) => {
                number += 1;
                // Errors of standard error cannot be reported.
                let _ = writeln!(messages, "error: {place}: {problem}");
            }
        }
    }
    output.flush().context(OutputSnafu)?;
    ensure!(number == 0 || !allowed, UnjudgedSnafu { number, total });
    Ok(allowed)
}

/// State that the webhook would have from the cluster.
struct Judge {
    verifier: Option<Verifier>,
    policy: Arc<Policy>,
    catalogues: Vec<Catalogue>,
    configuration: Configuration,
    requires_chain: bool,
    pod_choices: PodChoices,
    scope: Scope,
}

impl Judge {
    async fn new(args: &ValidateArgs) -> Result<Self, ValidateError> {
        let verifier = args.validation.verifier(&Metrics::default())?;
        let policy = args.validation.policy()?.get().await;
        let mut catalogues = vec![Catalogue::builtin()];
        for path in &args.catalogue {
            let yaml = documents::read(path)?;
            catalogues.push(Catalogue::parse(&path.display().to_string(), &yaml)?);
        }
        let all = catalogues.iter().skip(1).fold(Catalogue::builtin(), |all, own| all.overlay(own));
        let configuration = args.injection.settings().configuration(all)?;
        let requires_chain = args.require_chain;
        let pod_choices = args.pod_choices.unwrap_or_else(|| PodChoices::default_for(requires_chain));
        let scope = Scope::new(&args.operator_namespace);
        Ok(Self { verifier, policy, catalogues, configuration, requires_chain, pod_choices, scope })
    }

    /// Returns the verdict on one object, or the error.
    async fn verdict(&self, found: Reviewed) -> Result<Verdict, String> {
        let asked = found.asked?;
        if !self.scope.covers(&asked.namespace) {
            let reason = format!("Lucid never touches pods of namespace {}", asked.namespace);
            return Ok(Verdict::passes(found.title, &reason));
        }
        let request = asked.request(Timestamp::now());
        let subject = match request.subject() {
            Ok(Some(subject)) => subject,
            Ok(None) if asked.passes => return Ok(Verdict::passes(found.title, "nothing to evaluate")),
            Ok(None) => return Err(format!("{} is missing", asked.judged())),
            Err(error) => return Err(error.to_string()),
        };
        if subject.pod.containers().is_empty() {
            return Err(format!("{} is empty, accepted is at least one", asked.containers()));
        }
        let inputs = Inputs::new(&self.configuration).with_pod_choices(self.pod_choices);
        let case = Case::new(&subject, &inputs, &self.catalogues, self.requires_chain);
        let auditors = case.auditors();
        let asks = auditors.iter().filter(|auditor| self.policy.needs_verdict(&case, auditor));
        let asks: Vec<_> = asks.cloned().collect();
        let verdicts = verdicts(self.verifier.as_ref(), &asks, Instant::now() + PATIENCE).await;
        let evaluation = self.policy.evaluate(&case, &auditors, &verdicts, &Permission::NotRequired);
        Ok(Verdict::new(found.title, asked.workload, &auditors, &verdicts, &evaluation))
    }
}
