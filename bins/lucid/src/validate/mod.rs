//! `lucid validate`: evaluates pods and workloads as `/validate` does, without a cluster.
//!
//! `subjects` finds them in the files, and `verdict` formats the results.

mod subjects;
mod verdict;

use std::future::ready;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;
use lucid_admission::{evaluate_case, parse_exemptions};
use lucid_chain::{Catalogue, Configuration, Inputs, NamespaceChain, PodChoices};
use lucid_notary::client::{ClientMetrics, Notary};
use lucid_policy::{Case, EvaluatedKeys, Permission, Policy};
use lucid_shared::options::{InjectionArgs, ValidationArgs};
use tokio::time::Instant;

use crate::documents::{self, Input};
use crate::error::{Result, ResultExt, usage_error};
use crate::namespaces::{NamespaceArgs, Namespaces};
use subjects::{Found, ReviewRequest, Subject, Title};
use verdict::Verdict;

const TIMEOUT: Duration = Duration::from_secs(10);

/// Options of `lucid validate`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ValidateArgs {
    /// Manifests in YAML or JSON with any number of documents, including lists; `-` is standard input. Repeatable. Pods
    /// are evaluated as stored, with their auditors injected; workloads by their pod template; AdmissionReviews by
    /// their request. Other objects are skipped.
    #[arg(long = "file", short = 'f', value_name = "FILE", default_value = "-")]
    files: Vec<PathBuf>,

    /// Output format.
    #[arg(long, short = 'o', value_name = "FORMAT", default_value = "text")]
    output: Format,

    /// Catalogue (auditors.yaml) whose auditors are known besides the built-in ones; repeatable.
    #[arg(long, value_name = "FILE")]
    catalogue: Vec<PathBuf>,

    /// Require a chain in every pod, as a namespace can.
    #[arg(long)]
    require_chain: bool,

    /// Annotations that pods may set, as in the namespace's `lucid.computing/pod-choices`: none, chain or all. By
    /// default that of the namespace, or none with `--require-chain`.
    #[arg(long, value_name = "CHOICES")]
    pod_choices: Option<PodChoices>,

    /// YAML file with exemptions from the policy, as in key exemptions.yaml of ConfigMap lucid-policy.
    #[arg(long, value_name = "FILE")]
    exemptions: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) namespaces: NamespaceArgs,

    /// Injection options, with which the expected chain is planned.
    #[command(flatten)]
    injection: InjectionArgs,

    /// Validation options.
    #[command(flatten)]
    validation: ValidationArgs,
}

/// Output format of verdicts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// Lines of text, prefixed with the object's name if there are several.
    Text,
    /// One JSON object per line.
    Json,
}

/// Writes the verdicts to `output`, and to `messages` the errors of objects that cannot be evaluated. Returns `true` if
/// everything is allowed.
pub(crate) async fn validate(
    args: &ValidateArgs,
    output: &mut impl Write,
    messages: &mut impl Write,
) -> Result<bool> {
    let inputs = documents::inputs(&args.files)?;
    let evaluator = Evaluator::new(args, &inputs).await.usage()?;
    let Found { subjects, skipped } = subjects::find(&inputs, &evaluator.namespaces);
    if subjects.is_empty() {
        let file = args.files.first().map_or(Path::new("-"), PathBuf::as_path).display();
        let found = skipped.first().map_or("nothing", String::as_str);
        return Err(usage_error(format!("{file}: expected {}; found {found}", subjects::EXPECTED)));
    }
    let (total, mut failed, mut allowed) = (subjects.len(), 0_usize, true);
    let is_named = total > 1 || !skipped.is_empty();
    for Subject { place, title, request } in subjects {
        let verdict = match request {
            Ok(request) => evaluator.evaluate(title, &request).await,
            Err(problem) => Err(problem),
        };
        match verdict {
            Ok(verdict) => {
                allowed &= verdict.allowed;
                match args.output {
                    Format::Text => verdict.text(is_named, args.files.len() > 1, output),
                    Format::Json => verdict.json(output),
                }
                .failed_to_print()?;
            }
            Err(problem) => {
                failed += 1;
                // Errors of standard error cannot be reported.
                let _ = writeln!(messages, "error: {place}: {problem}");
            }
        }
    }
    output.flush().failed_to_print()?;
    if failed > 0 && allowed {
        return Err(format!("no verdict on {failed} of {total} documents and objects").into());
    }
    Ok(allowed)
}

/// State that the webhook would have from the cluster.
struct Evaluator {
    notary: Option<Notary>,
    policy: Policy,
    catalogues: Vec<Catalogue>,
    configuration: Configuration,
    namespaces: Namespaces,
    requires_chain: bool,
    pod_choices: Option<PodChoices>,
}

impl Evaluator {
    async fn new(args: &ValidateArgs, inputs: &[Input<'_>]) -> Result<Self> {
        let notary = args.validation.notary(&ClientMetrics::default())?;
        let mut policy = args.validation.policy();
        if let Some(path) = &args.exemptions {
            let yaml = documents::read(path)?;
            let place = path.display();
            policy.exemptions = parse_exemptions(&yaml).map_err(|error| format!("{place}: {error}"))?;
        }
        let mut catalogues = vec![Catalogue::builtin()];
        for path in &args.catalogue {
            let yaml = documents::read(path)?;
            catalogues.push(Catalogue::parse(&path.display().to_string(), &yaml)?);
        }
        let all = catalogues.iter().skip(1).fold(Catalogue::builtin(), |all, own| all.overlay(own));
        let configuration = args.injection.settings().configuration(all)?;
        let requires_chain = args.require_chain;
        let by_requirement = requires_chain.then_some(PodChoices::None);
        let pod_choices = args.pod_choices.or(by_requirement);
        let namespaces = Namespaces::new(&args.namespaces, configuration.catalogue(), inputs)?;
        Ok(Self { notary, policy, catalogues, configuration, namespaces, requires_chain, pod_choices })
    }

    async fn evaluate(&self, title: Title, review: &ReviewRequest) -> Result<Verdict, String> {
        let mut context = self.namespaces.get(&review.namespace, self.configuration.catalogue());
        if let Some(reason) = &context.skip_reason {
            return Ok(Verdict::not_evaluated(title, reason));
        }
        let required = self.policy.required_label.iter().map(|required| &required.key);
        let keys = EvaluatedKeys::default().with(required);
        let request = review.request(Timestamp::now()).with_evaluated_keys(&keys);
        let subject = match request.subject() {
            Ok(Some(subject)) => subject,
            Ok(None) if review.may_be_empty => {
                return Ok(Verdict::not_evaluated(title, "nothing to evaluate"));
            }
            Ok(None) => return Err(format!("{} is missing", review.evaluated_path())),
            Err(error) => return Err(error.to_string()),
        };
        if subject.pod.containers().is_empty() {
            return Err(format!("{} is empty, expected at least one", review.containers_path()));
        }
        let settings = &mut context.settings;
        settings.pod_choices = self.pod_choices.unwrap_or(settings.pod_choices);
        settings.requires_chain |= self.requires_chain;
        let inputs = Inputs {
            settings: &context.settings,
            namespace_chain: Ok(context.chain.as_ref()),
            ..Inputs::new(&self.configuration)
        };
        let own = context.chain.iter().map(NamespaceChain::catalogue).cloned();
        let catalogues: Vec<_> = self.catalogues.iter().cloned().chain(own).collect();
        let case = Case::new(&subject, &inputs, &catalogues);
        let auditors = case.auditors();
        let (notary, permission) = (self.notary.as_ref(), ready(Permission::NotRequired));
        let deadline = Instant::now() + TIMEOUT;
        let evaluated = evaluate_case(&self.policy, &case, notary, permission, deadline).await;
        Ok(Verdict::new(title, review.workload, &auditors, evaluated).with_warnings(context.problems))
    }
}
