//! Reads the options of a program from its container.

use clap::{Args, Command};
use k8s_openapi::api::core::v1::{Container, EnvVar};
use lucid_shared::LogArgs;
use lucid_shared::serving::Program;

/// Returns the options of `program`, and the variables whose values are not in the manifest.
pub(super) fn read<A: Args>(
    program: Program,
    container: &Container,
    namespace: &str,
) -> Result<(A, Vec<String>), String> {
    let mut arguments: Vec<String> =
        container.command.iter().flatten().chain(container.args.iter().flatten()).cloned().collect();
    match arguments.iter().position(|argument| argument == "run") {
        Some(place) => drop(arguments.drain(..=place)),
        None => return Err(format!("it does not run `{} run`", program.name)),
    }
    let mut unknown = Vec::new();
    if container.env_from.as_ref().is_some_and(|sources| !sources.is_empty()) {
        unknown.push("envFrom".to_owned());
    }
    for (variable, flag) in variables::<A>(program) {
        let is_given = arguments.iter().any(|it| *it == flag || it.starts_with(&format!("{flag}=")));
        let set = container.env.iter().flatten().rev().find(|it| it.name == variable).filter(|_| !is_given);
        match set.map(|set| value(set, namespace)) {
            None => {}
            Some(Some(value)) => arguments.push(format!("{flag}={value}")),
            Some(None) => unknown.push(variable),
        }
    }
    Ok((parse(program, &arguments)?, unknown))
}

/// Returns the value of `variable`, or `None` if it is not in the manifest.
fn value(variable: &EnvVar, namespace: &str) -> Option<String> {
    let Some(source) = &variable.value_from else { return Some(variable.value.clone().unwrap_or_default()) };
    let field = source.field_ref.as_ref()?;
    (field.field_path == "metadata.namespace").then(|| namespace.to_owned())
}

fn command<A: Args>(program: Program) -> Command {
    LogArgs::augment_args(A::augment_args(Command::new(program.name).no_binary_name(true)))
}

/// Returns every environment variable with the equivalent flag.
fn variables<A: Args>(program: Program) -> Vec<(String, String)> {
    let pair = |argument: &clap::Arg| {
        Some((argument.get_env()?.to_str()?.to_owned(), format!("--{}", argument.get_long()?)))
    };
    command::<A>(program).get_arguments().filter_map(pair).collect()
}

/// Parses the options as the program does, without reading the environment of this process.
pub(crate) fn parse<A: Args>(program: Program, arguments: &[String]) -> Result<A, String> {
    /// Not a valid name, so no variable matches.
    const NO_VARIABLE: &str = "=";
    let command = command::<A>(program).mut_args(|argument| argument.env(NO_VARIABLE));
    let matches = command.try_get_matches_from(arguments).map_err(|error| error.to_string())?;
    A::from_arg_matches(&matches).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use lucid_chain::SkipPolicy;
    use lucid_shared::options::{OperatorArgs, ServeArgs};
    use lucid_shared::serving::{OPERATOR, VALIDATOR};
    use lucid_webhook::registration::FailurePolicy;
    use serde_json::{Value, json};

    use super::*;

    fn container(container: Value) -> Container {
        serde_json::from_value(container).unwrap()
    }

    #[test]
    fn options_are_read_as_the_operator_reads_them() {
        let container = container(json!({
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
        let (args, unknown) = read::<OperatorArgs>(OPERATOR, &container, "audit").unwrap();
        assert_eq!(args.common.serving.namespace, "audit");
        assert_eq!(args.common.injection.chain.as_deref(), Some(&["toxicity".to_owned()][..]), "a flag wins");
        assert_eq!(args.common.injection.allow_skip, SkipPolicy::Always);
        assert_eq!(args.failure_policy, FailurePolicy::Ignore);
        assert_eq!(unknown, ["LUCID_AUDIT_MODE"]);
    }

    #[test]
    fn a_separate_validator_has_its_own_options() {
        let deployed = |args: Value| {
            let container = container(json!({
                "name": "lucid-validator", "args": args,
                "env": [
                    {"name": "LUCID_VALIDATION_FAILURE_POLICY", "value": "Ignore"},
                    {"name": "LUCID_STRICT_NOTARIZATION", "value": "true"},
                ],
            }));
            read::<ServeArgs>(VALIDATOR, &container, "audit")
        };
        let (args, _) = deployed(json!(["run"])).unwrap();
        assert!(args.validation.strict_notarization);
        assert_eq!(args.validation_failure_policy, FailurePolicy::Ignore);
        let Err(problem) = deployed(json!(["review"])) else { panic!("accepted another subcommand") };
        assert!(problem.contains("`lucid-validator run`"), "{problem}");
    }

    #[test]
    fn missing_options_have_defaults() {
        let args: OperatorArgs = parse(OPERATOR, &["--namespace=audit".to_owned()]).unwrap();
        assert_eq!(args.common.serving.namespace, "audit");
        assert_eq!(args.common.injection.allow_skip, SkipPolicy::Never);
        assert!(args.validate);
    }
}
