//! The operator as it is told to run, which its Deployment knows.

use clap::{Args as _, Command, FromArgMatches as _};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Container, EnvVar};
use kube::{Api, Client};
use lucid_cluster::InjectionArgs;
use lucid_process::LogArgs;

use super::report::{Check, Status, Unread};
use crate::config::RunArgs;
use crate::run::PROGRAM;

const CHECK: &str = "operator";

/// What an operator is told.
pub(super) struct Operator {
    pub(super) args: RunArgs,
    /// Whether the Deployment says so; otherwise settings of registration are not known.
    pub(super) is_known: bool,
    pub(super) check: Check,
}

impl Operator {
    /// Of the Deployment; without one, `own` is what counts.
    ///
    /// # Errors
    ///
    /// When the defaults contradict each other.
    pub(super) async fn find(client: &Client, namespace: &str, own: &InjectionArgs) -> Result<Self, String> {
        let args = without_deployment(namespace, own)?;
        let deployments: Api<Deployment> = Api::namespaced(client.clone(), namespace);
        let name = PROGRAM.name;
        let right = format!("get deployments in namespace {namespace}");
        Ok(match deployments.get_opt(name).await {
            Err(error) => {
                let check = Check::unread(CHECK, &Unread::of(&error, right));
                Self { args, is_known: false, check }
            }
            Ok(None) => {
                let found = format!(
                    "there is no Deployment {namespace}/{name}: what the operator is told is taken from the options and the \
                     environment of this command"
                );
                let check = Check::new(CHECK, Status::Warning, found)
                    .action("give the options of `lucid-operator run`, or --namespace");
                Self { args, is_known: false, check }
            }
            Ok(Some(deployment)) => match told(&deployment, namespace) {
                Ok((args, not_known)) => {
                    Self { args, is_known: true, check: state(&deployment, namespace, &not_known) }
                }
                Err(error) => {
                    let found =
                        format!("the options of Deployment {namespace}/{name} cannot be read: {error}");
                    let check = Check::new(CHECK, Status::Failed, found)
                        .action("use the lucid-operator of the version that runs");
                    Self { args, is_known: false, check }
                }
            },
        })
    }
}

fn state(deployment: &Deployment, namespace: &str, not_known: &[String]) -> Check {
    let wanted = deployment.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
    let ready = deployment.status.as_ref().and_then(|status| status.ready_replicas).unwrap_or(0);
    let container = container(deployment);
    let image = container.and_then(|container| container.image.as_deref()).unwrap_or("no image");
    let found = format!(
        "Deployment {namespace}/{} has {ready} of {wanted} replicas ready, image {image}",
        PROGRAM.name
    );
    let version = env!("CARGO_PKG_VERSION");
    let tag = image.parse::<lucid_notary::ImageReference>().ok().and_then(|it| it.tag().map(str::to_owned));
    if ready == 0 {
        let action =
            format!("kubectl -n {namespace} describe pods -l {}={}", lucid_serving::NAME_LABEL, PROGRAM.name);
        Check::new(CHECK, Status::Failed, found).action(action)
    } else if !not_known.is_empty() {
        let found =
            format!("{found}; not known here, for they come from elsewhere: {}", not_known.join(", "));
        Check::new(CHECK, Status::Warning, found)
            .action("what is said of chains may be wrong in these settings")
    } else if tag
        .as_deref()
        .is_some_and(|tag| tag.starts_with(|it: char| it.is_ascii_digit()) && tag != version)
    {
        let found = format!("{found}; this command is {version}, and may plan other chains");
        Check::new(CHECK, Status::Warning, found).action("use the lucid-operator of the version that runs")
    } else if ready < wanted {
        Check::new(CHECK, Status::Warning, found)
    } else {
        Check::new(CHECK, Status::Ok, found)
    }
}

fn container(deployment: &Deployment) -> Option<&Container> {
    let containers = &deployment.spec.as_ref()?.template.spec.as_ref()?.containers;
    containers.iter().find(|container| container.name == PROGRAM.name).or_else(|| containers.first())
}

/// The options of the Deployment, and the variables whose values it does not tell.
fn told(deployment: &Deployment, namespace: &str) -> Result<(RunArgs, Vec<String>), String> {
    let container = container(deployment).ok_or("it has no container")?;
    let mut arguments: Vec<String> =
        container.command.iter().flatten().chain(container.args.iter().flatten()).cloned().collect();
    match arguments.iter().position(|argument| argument == "run") {
        Some(place) => drop(arguments.drain(..=place)),
        None => return Err("it does not run `lucid-operator run`".to_owned()),
    }
    let mut not_known = Vec::new();
    if container.env_from.as_ref().is_some_and(|sources| !sources.is_empty()) {
        not_known.push("envFrom".to_owned());
    }
    for (variable, flag) in variables() {
        let is_given = arguments.iter().any(|it| *it == flag || it.starts_with(&format!("{flag}=")));
        let set = container.env.iter().flatten().rev().find(|it| it.name == variable).filter(|_| !is_given);
        match set.map(|set| value(set, namespace)) {
            None => {}
            Some(Some(value)) => arguments.push(format!("{flag}={value}")),
            Some(None) => not_known.push(variable),
        }
    }
    Ok((parse(&arguments)?, not_known))
}

/// `None` where it is somewhere else.
fn value(variable: &EnvVar, namespace: &str) -> Option<String> {
    let Some(source) = &variable.value_from else { return Some(variable.value.clone().unwrap_or_default()) };
    let field = source.field_ref.as_ref()?;
    (field.field_path == "metadata.namespace").then(|| namespace.to_owned())
}

fn command() -> Command {
    LogArgs::augment_args(RunArgs::augment_args(Command::new("run").no_binary_name(true)))
}

/// Every environment variable with the flag that means the same.
fn variables() -> Vec<(String, String)> {
    let pair = |argument: &clap::Arg| {
        Some((argument.get_env()?.to_str()?.to_owned(), format!("--{}", argument.get_long()?)))
    };
    command().get_arguments().filter_map(pair).collect()
}

/// As the operator reads them, but without the environment of this process.
fn parse(arguments: &[String]) -> Result<RunArgs, String> {
    /// No variable can be called so.
    const NOWHERE: &str = "=";
    let command = command().mut_args(|argument| argument.env(NOWHERE));
    let matches = command.try_get_matches_from(arguments).map_err(|error| error.to_string())?;
    RunArgs::from_arg_matches(&matches).map_err(|error| error.to_string())
}

/// The defaults, with these settings of injection.
fn without_deployment(namespace: &str, own: &InjectionArgs) -> Result<RunArgs, String> {
    let args = parse(&[format!("--namespace={namespace}")])?;
    Ok(RunArgs { injection: own.clone(), ..args })
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
            "command": ["/lucid-operator", "--log", "debug"],
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
        let (args, not_known) = told(&deployment, "audit").unwrap();
        assert_eq!(args.serving.namespace, "audit");
        assert_eq!(args.injection.chain.as_deref(), Some(&["toxicity".to_owned()][..]), "a flag wins");
        assert!(args.injection.allow_skip);
        assert_eq!(args.registration.failure_policy, crate::registration::FailurePolicy::Ignore);
        assert_eq!(not_known, ["LUCID_AUDIT_MODE"]);
    }

    #[test]
    fn without_a_deployment_there_are_the_defaults() {
        let own = parse(&["--allow-skip".to_owned()]).unwrap().injection;
        let args = without_deployment("audit", &own).unwrap();
        assert_eq!(args.serving.namespace, "audit");
        assert!(args.injection.allow_skip && args.registration.validate);
    }
}
