//! Properties of all workloads.

use super::{InjectArgs, UninjectArgs, inject, uninject};
use clap::Parser;
use proptest::{collection::vec, prelude::*, sample::select};
use serde_json::{Value, json};

/// Returns the values of all documents.
fn values(text: &str) -> Vec<Value> {
    let documents = crate::documents::parse(text);
    documents.iter().filter_map(|document| document.value().unwrap()).collect()
}

#[derive(Parser)]
struct Inject {
    #[command(flatten)]
    args: InjectArgs,
}

#[derive(Parser)]
struct Uninject {
    #[command(flatten)]
    args: UninjectArgs,
}

fn injected(text: &str, options: &[&str]) -> String {
    let file = file(text);
    let args = Inject::parse_from([&["x", "-f", file.path().to_str().unwrap()], options].concat()).args;
    let (mut output, mut messages) = (Vec::new(), Vec::new());
    assert!(inject(&args, &mut output, &mut messages).unwrap(), "{}", String::from_utf8_lossy(&messages));
    String::from_utf8(output).unwrap()
}

fn uninjected(text: &str) -> String {
    let file = file(text);
    let args = Uninject::parse_from(["x", "-f", file.path().to_str().unwrap()]).args;
    let (mut output, mut messages) = (Vec::new(), Vec::new());
    assert!(uninject(&args, &mut output, &mut messages).unwrap());
    String::from_utf8(output).unwrap()
}

fn file(text: &str) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), text).unwrap();
    file
}

fn maybe(value: Value) -> impl Strategy<Value = Option<Value>> {
    proptest::option::of(Just(value))
}

fn object(members: Vec<(&str, Option<Value>)>) -> Value {
    Value::Object(members.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))).collect())
}

fn pod() -> impl Strategy<Value = Value> {
    let annotations = proptest::option::of(vec(
        select(vec![
            ("lucid.computing/direction", "both"),
            ("lucid.computing/auditors", "toxicity"),
            ("a/b", "yes"),
            ("c", "x: y\nz"),
        ]),
        0..3,
    ));
    let container = (
        maybe(json!([])),
        maybe(json!([{"name": "A", "value": "1.10"}])),
        maybe(json!([{"containerPort": 8090}])),
        any::<bool>(),
    );
    let containers = vec(container, 1..3);
    let lists = (
        maybe(json!([])),
        maybe(json!([{"name": "wait", "image": "w"}])),
        maybe(json!([{"name": "own"}])),
        select(vec!["Always", "Never"]),
    );
    (annotations, containers, lists).prop_map(|(annotations, containers, (none, inits, secrets, restart))| {
        let containers = containers.into_iter().enumerate().map(|(number, (empty, env, ports, command))| {
            object(vec![
                ("name", Some(json!(format!("app-{number}")))),
                ("env", env.or(empty)),
                ("ports", ports),
                ("command", command.then(|| json!(["sh", "-c", "a\n  b\n\n"]))),
            ])
        });
        let containers: Vec<_> = containers.collect();
        let annotations = annotations.map(|all| Value::Object(all.into_iter().map(|(key, value)| (key.to_owned(), json!(value))).collect()));
        json!({
            "metadata": object(vec![("labels", Some(json!({"lucid.io/secured": "true"}))), ("annotations", annotations)]),
            "spec": object(vec![
                ("initContainers", inits.or(none)), ("imagePullSecrets", secrets), ("containers", Some(json!(containers))), ("restartPolicy", Some(json!(restart))),
            ]),
        })
    })
}

fn workload(kind: &str, pod: &Value) -> Value {
    match kind {
        "Pod" => json!({"apiVersion": "v1", "kind": "Pod", "metadata": pod["metadata"], "spec": pod["spec"]}),
        "CronJob" => {
            json!({"apiVersion": "batch/v1", "kind": kind, "spec": {"jobTemplate": {"spec": {"template": pod}}}})
        }
        _ => {
            json!({"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": "x"}, "spec": {"template": pod}, "status": {}})
        }
    }
}

proptest! {
    // Each case runs the commands nine times.
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn uninjecting_restores_the_file(
        pods in vec((select(vec!["Pod", "CronJob", "Deployment", "StatefulSet"]), pod()), 1..4),
        as_list in any::<bool>(),
        options in select(vec![&[][..], &["--image-pull-secrets", "mirror"], &["--intercept", "env", "--direction", "outbound", "--target-port", "5000"]]),
    ) {
        let objects: Vec<_> = pods.iter().map(|(kind, pod)| workload(kind, pod)).collect();
        let objects = if as_list { vec![json!({"apiVersion": "v1", "kind": "List", "items": objects})] } else { objects };
        let pretty: String = objects.iter().map(|it| serde_json::to_string_pretty(it).unwrap() + "\n").collect();
        let compact: String = objects.iter().map(|it| format!("{it}\n")).collect();
        let yaml = injected(&pretty.replace("lucid.io/secured", "unasked").replace("lucid.computing/auditors", "other"), &["-o", "yaml"]);
        let yaml = yaml.replace("unasked", "lucid.io/secured").replace("other", "lucid.computing/auditors");
        for text in [pretty, compact, yaml] {
            let there = injected(&text, options);
            prop_assert_ne!(values(&there), values(&text));
            prop_assert_eq!(&injected(&there, options), &there);
            let back = uninjected(&there);
            prop_assert_eq!(values(&back), values(&text), "{}", there);
        }
    }
}
