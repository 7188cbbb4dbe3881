//! The operator and the validator as they are told to run, which their Deployments know.

use clap::{Args, Command};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Container, EnvVar};
use kube::{Api, Client};
use lucid_cluster::InjectionArgs;
use lucid_process::LogArgs;
use lucid_serving::Program;

use super::report::{Check, Status, Unread};
use crate::config::RunArgs;
use crate::run::PROGRAM;

/// What a process is told, by its options.
pub(super) struct Told<A> {
    pub(super) args: A,
    /// Whether its Deployment says so; otherwise settings of registration are not known.
    pub(super) is_known: bool,
    /// Whether there is a Deployment, as far as it may be looked at.
    pub(super) is_deployed: bool,
    pub(super) check: Check,
}

impl Told<RunArgs> {
    /// The operator's. Without a Deployment `own` is what counts.
    ///
    /// # Errors
    ///
    /// When the defaults contradict each other.
    pub(super) async fn operator(
        client: &Client,
        namespace: &str,
        own: &InjectionArgs,
    ) -> Result<Self, String> {
        let args = RunArgs { injection: own.clone(), ..parse(PROGRAM, &in_namespace(namespace))? };
        Ok(Self::find(client, PROGRAM, "operator", namespace, args).await)
    }
}

impl Told<lucid_validator::RunArgs> {
    /// That of a validator of its own, likewise.
    ///
    /// # Errors
    ///
    /// When the defaults contradict each other.
    pub(super) async fn validator(
        client: &Client,
        namespace: &str,
        own: &InjectionArgs,
    ) -> Result<Self, String> {
        let program = lucid_validator::PROGRAM;
        let defaults = parse(program, &in_namespace(namespace))?;
        let args = lucid_validator::RunArgs { injection: own.clone(), ..defaults };
        Ok(Self::find(client, program, "validator", namespace, args).await)
    }
}

fn in_namespace(namespace: &str) -> [String; 1] {
    [format!("--namespace={namespace}")]
}

impl<A: Args> Told<A> {
    async fn find(client: &Client, program: Program, check: &'static str, namespace: &str, args: A) -> Self {
        let deployments: Api<Deployment> = Api::namespaced(client.clone(), namespace);
        let name = program.name;
        let right = format!("get deployments in namespace {namespace}");
        match deployments.get_opt(name).await {
            Err(error) => {
                let check = Check::unread(check, &Unread::of(&error, right));
                Self { args, is_known: false, is_deployed: false, check }
            }
            Ok(None) => {
                let found = format!(
                    "there is no Deployment {namespace}/{name}: what the {check} is told is taken from the options and the \
                     environment of this command"
                );
                let check = Check::new(check, Status::Warning, found)
                    .action(format!("give the options of `{name} run`, or --namespace"));
                Self { args, is_known: false, is_deployed: false, check }
            }
            Ok(Some(deployment)) => match told(program, &deployment, namespace) {
                Ok((args, not_known)) => {
                    let check = state(program, check, &deployment, namespace, &not_known);
                    Self { args, is_known: true, is_deployed: true, check }
                }
                Err(error) => {
                    let found =
                        format!("the options of Deployment {namespace}/{name} cannot be read: {error}");
                    let check = Check::new(check, Status::Failed, found)
                        .action("use the lucid-operator of the version that runs");
                    Self { args, is_known: false, is_deployed: true, check }
                }
            },
        }
    }
}

fn state(
    program: Program,
    check: &'static str,
    deployment: &Deployment,
    namespace: &str,
    not_known: &[String],
) -> Check {
    let wanted = deployment.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
    let ready = deployment.status.as_ref().and_then(|status| status.ready_replicas).unwrap_or(0);
    let container = container(program, deployment);
    let image = container.and_then(|container| container.image.as_deref()).unwrap_or("no image");
    let name = program.name;
    let found =
        format!("Deployment {namespace}/{name} has {ready} of {wanted} replicas ready, image {image}");
    let version = env!("CARGO_PKG_VERSION");
    let tag = image.parse::<lucid_notary::ImageReference>().ok().and_then(|it| it.tag().map(str::to_owned));
    if ready == 0 {
        let action = format!("kubectl -n {namespace} describe pods -l {}={name}", lucid_serving::NAME_LABEL);
        Check::new(check, Status::Failed, found).action(action)
    } else if !not_known.is_empty() {
        let found =
            format!("{found}; not known here, for they come from elsewhere: {}", not_known.join(", "));
        Check::new(check, Status::Warning, found)
            .action("what is said of chains may be wrong in these settings")
    } else if tag
        .as_deref()
        .is_some_and(|tag| tag.starts_with(|it: char| it.is_ascii_digit()) && tag != version)
    {
        let found = format!("{found}; this command is {version}, and may plan other chains");
        Check::new(check, Status::Warning, found).action("use the lucid-operator of the version that runs")
    } else if ready < wanted {
        Check::new(check, Status::Warning, found)
    } else {
        Check::new(check, Status::Ok, found)
    }
}

fn container(program: Program, deployment: &Deployment) -> Option<&Container> {
    let containers = &deployment.spec.as_ref()?.template.spec.as_ref()?.containers;
    containers.iter().find(|container| container.name == program.name).or_else(|| containers.first())
}

/// The options of the Deployment, and the variables whose values it does not tell.
fn told<A: Args>(
    program: Program,
    deployment: &Deployment,
    namespace: &str,
) -> Result<(A, Vec<String>), String> {
    let container = container(program, deployment).ok_or("it has no container")?;
    let mut arguments: Vec<String> =
        container.command.iter().flatten().chain(container.args.iter().flatten()).cloned().collect();
    match arguments.iter().position(|argument| argument == "run") {
        Some(place) => drop(arguments.drain(..=place)),
        None => return Err(format!("it does not run `{} run`", program.name)),
    }
    let mut not_known = Vec::new();
    if container.env_from.as_ref().is_some_and(|sources| !sources.is_empty()) {
        not_known.push("envFrom".to_owned());
    }
    for (variable, flag) in variables::<A>(program) {
        let is_given = arguments.iter().any(|it| *it == flag || it.starts_with(&format!("{flag}=")));
        let set = container.env.iter().flatten().rev().find(|it| it.name == variable).filter(|_| !is_given);
        match set.map(|set| value(set, namespace)) {
            None => {}
            Some(Some(value)) => arguments.push(format!("{flag}={value}")),
            Some(None) => not_known.push(variable),
        }
    }
    Ok((parse(program, &arguments)?, not_known))
}

/// `None` where it is somewhere else.
fn value(variable: &EnvVar, namespace: &str) -> Option<String> {
    let Some(source) = &variable.value_from else { return Some(variable.value.clone().unwrap_or_default()) };
    let field = source.field_ref.as_ref()?;
    (field.field_path == "metadata.namespace").then(|| namespace.to_owned())
}

fn command<A: Args>(program: Program) -> Command {
    LogArgs::augment_args(A::augment_args(Command::new(program.name).no_binary_name(true)))
}

/// Every environment variable with the flag that means the same.
fn variables<A: Args>(program: Program) -> Vec<(String, String)> {
    let pair = |argument: &clap::Arg| {
        Some((argument.get_env()?.to_str()?.to_owned(), format!("--{}", argument.get_long()?)))
    };
    command::<A>(program).get_arguments().filter_map(pair).collect()
}

/// As the process reads them, but without the environment of this one.
fn parse<A: Args>(program: Program, arguments: &[String]) -> Result<A, String> {
    /// No variable can be called so.
    const NOWHERE: &str = "=";
    let command = command::<A>(program).mut_args(|argument| argument.env(NOWHERE));
    let matches = command.try_get_matches_from(arguments).map_err(|error| error.to_string())?;
    A::from_arg_matches(&matches).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn deployment(container: serde_json::Value) -> Deployment {
        let spec = serde_json::json!({"selector": {}, "template": {"spec": {"containers": [container]}}});
        serde_json::from_value(serde_json::json!({"metadata": {"name": "lucid-operator"}, "spec": spec}))
            .unwrap()
    }

    #[test]
    fn what_the_deployment_says_is_read_as_the_operator_reads_it() {
        let deployment = deployment(serde_json::json!({
            "name": "lucid-operator",
            "command": ["/lucid-operator", "--log-filter", "debug"],
            "args": ["run", "--chain", "toxicity"],
            "env": [
                {"name": "LUCID_NAMESPACE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}},
                {"name": "LUCID_CHAIN", "value": "injection"},
                {"name": "LUCID_ALLOW_SKIP", "value": "true"},
                {"name": "LUCID_FAILURE_POLICY", "value": "Ignore"},
                {"name": "LUCID_AUDIT_MODE", "valueFrom": {"configMapKeyRef": {"name": "a", "key": "b"}}},
                {"name": "OTHER", "value": "x"},
            ],
        }));
        let (args, not_known) = told::<RunArgs>(PROGRAM, &deployment, "audit").unwrap();
        assert_eq!(args.serving.namespace, "audit");
        assert_eq!(args.injection.chain.as_deref(), Some(&["toxicity".to_owned()][..]), "a flag wins");
        assert!(args.injection.allow_skip);
        assert_eq!(args.registration.failure_policy, lucid_validator::FailurePolicy::Ignore);
        assert_eq!(not_known, ["LUCID_AUDIT_MODE"]);
    }

    #[test]
    fn a_validator_of_its_own_is_read_likewise_and_in_its_own_words() {
        let container = |words: serde_json::Value| {
            deployment(serde_json::json!({
                "name": "lucid-validator", "args": words,
                "env": [
                    {"name": "LUCID_VALIDATION_FAILURE_POLICY", "value": "Ignore"},
                    {"name": "LUCID_STRICT_NOTARIZATION", "value": "true"},
                ],
            }))
        };
        let told =
            |words| told::<lucid_validator::RunArgs>(lucid_validator::PROGRAM, &container(words), "audit");
        let (args, _) = told(serde_json::json!(["run"])).unwrap();
        assert!(args.validation.strict_notarization);
        assert_eq!(args.failure.validation_failure_policy, lucid_validator::FailurePolicy::Ignore);
        let Err(problem) = told(serde_json::json!(["review"])) else { panic!("it does not run") };
        assert!(problem.contains("`lucid-validator run`"), "{problem}");
    }

    #[test]
    fn without_a_deployment_there_are_the_defaults() {
        let args: RunArgs = parse(PROGRAM, &in_namespace("audit")).unwrap();
        assert_eq!(args.serving.namespace, "audit");
        assert!(!args.injection.allow_skip && args.registration.validate);
    }
}
