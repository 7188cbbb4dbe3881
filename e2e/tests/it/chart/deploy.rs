//! The manifests of deploy/ are rendered from the chart, and Kustomize accepts them.

use std::fs;

use serde::Deserialize;
use serde_yaml::Value;

use super::{DEPLOY, documents, key, printed, template};

/// Files of deploy/, and their sources.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Manifest {
    /// Paths below deploy/. Several have the same text.
    files: Vec<String>,
    #[serde(default)]
    says: String,
    #[serde(default)]
    set: Vec<String>,
    templates: Vec<String>,
}

impl Manifest {
    async fn rendered(&self) -> String {
        let mut set = self.set.clone();
        set.push("plain=true".to_owned());
        let templates: Vec<_> =
            self.templates.iter().map(|name| format!("--show-only=templates/{name}")).collect();
        let text = template("lucid-system", &set, &templates).await.unwrap();
        let comment: String =
            self.says.lines().map(|line| format!("# {line}").trim_end().to_owned() + "\n").collect();
        comment + &clean(&text)
    }
}

/// Removes helm's source comments, and the surrounding blank lines.
fn clean(text: &str) -> String {
    let documents = text.trim_start_matches("---\n").split("\n---\n").map(|document| {
        let lines: Vec<_> = document.lines().filter(|line| !line.starts_with("# Source: ")).collect();
        lines.join("\n").trim().to_owned() + "\n"
    });
    documents.collect::<Vec<_>>().join("---\n")
}

#[tokio::test]
async fn the_manifests_are_rendered_from_the_chart() {
    for manifest in serde_yaml::from_str::<Vec<Manifest>>(include_str!("manifests.yaml")).unwrap() {
        let rendered = manifest.rendered().await;
        for file in &manifest.files {
            let path = format!("{DEPLOY}/{file}");
            if std::env::var_os("UPDATE_MANIFESTS").is_some() {
                fs::write(&path, &rendered).unwrap();
            }
            let is_kept = fs::read_to_string(&path).unwrap() == rendered;
            assert!(
                is_kept,
                "deploy/{file}: run UPDATE_MANIFESTS=1 cargo test -p lucid-e2e manifests_are_rendered"
            );
        }
    }
}

async fn kustomized(folder: &str) -> Vec<Value> {
    let mut kubectl = std::process::Command::new(lucid_e2e::binary("kubectl").unwrap());
    documents(&printed(kubectl.arg("kustomize").arg(format!("{DEPLOY}/{folder}")).output().unwrap()).unwrap())
}

/// Normalizes the order of objects, and numbers such as `1` and `1.0`.
fn sorted(mut documents: Vec<Value>) -> Vec<Value> {
    documents.iter_mut().for_each(as_floats);
    let place = |it: &Value| {
        let (kind, name) = key(it);
        [kind, name, it["metadata"]["namespace"].as_str().unwrap_or_default()].map(str::to_owned)
    };
    documents.sort_by_key(place);
    documents
}

fn as_floats(value: &mut Value) {
    match value {
        Value::Number(number) => *number = number.as_f64().unwrap().into(),
        Value::Sequence(items) => items.iter_mut().for_each(as_floats),
        Value::Mapping(members) => members.values_mut().for_each(as_floats),
        _ => {}
    }
}

fn read(file: &str) -> Vec<Value> {
    documents(&fs::read_to_string(format!("{DEPLOY}/{file}")).unwrap())
}

#[tokio::test]
async fn kustomize_builds_the_manifests_unchanged() {
    let files = [read("auditor-crd.yaml"), read("lucid.yaml")].concat();
    assert_eq!(sorted(kustomized("").await), sorted(files));
}

/// Folders of the steps, and their programs.
const ROLL_OUTS: &[(&str, &[&str])] =
    &[("canary", &["lucid-operator"]), ("canary/validator", &["lucid-operator", "lucid-validator"])];

fn deployment<'a>(documents: &'a mut [Value], name: &str) -> &'a mut Value {
    documents.iter_mut().find(|it| key(it) == ("Deployment", name)).unwrap()
}

/// Variables of the last step except the mode: those of the chart's profile.
const PRODUCTION: [(&str, &str); 5] = [
    ("LUCID_CLIENT_CA", "/etc/lucid/client-ca/ca.crt"),
    ("LUCID_STRICT_NOTARIZATION", "true"),
    ("LUCID_INTERCEPT", "redirect"),
    ("LUCID_BREAK_GLASS_ACCESS_REVIEW", "true"),
    ("LUCID_REQUIRE_NON_ROOT", "true"),
];

/// Removes the variables of [`PRODUCTION`] from a Deployment.
fn take_production(deployment: &mut Value) -> Vec<Value> {
    let env = deployment["spec"]["template"]["spec"]["containers"][0]["env"].as_sequence_mut().unwrap();
    env.extract_if(.., |it| PRODUCTION.iter().any(|(name, _)| it["name"] == *name)).collect()
}

/// Removes the settings of the last step from a Deployment.
fn without_production(deployment: &mut Value) {
    let taken = take_production(deployment);
    for (name, value) in PRODUCTION {
        assert!(taken.iter().any(|it| it["name"] == name && it["value"] == value), "{name}: {taken:?}");
    }
    let pod = &mut deployment["spec"]["template"]["spec"];
    let container = &mut pod["containers"][0];
    let mount = container["volumeMounts"].as_sequence_mut().unwrap().remove(0);
    assert_eq!(mount["mountPath"], "/etc/lucid/client-ca");
    let volume = pod["volumes"].as_sequence_mut().unwrap().remove(0);
    assert_eq!(volume["configMap"]["name"], "lucid-client-ca");
}

#[tokio::test]
async fn canary_steps_are_overlays_of_replicas_mode_and_profile() {
    for (folder, programs) in ROLL_OUTS {
        let mut base = kustomized("").await;
        if programs.contains(&"lucid-validator") {
            base.extend(read("validator.yaml"));
        }
        let base = sorted(base);
        for (step, replicas, mode) in
            [("1", 1, "audit"), ("2", 3, "audit"), ("3", 1, "enforce"), ("4", 3, "enforce")]
        {
            let mut expected = base.clone();
            let mut found = sorted(kustomized(&format!("{folder}/{step}")).await);
            for program in *programs {
                deployment(&mut expected, program)["spec"]["replicas"] = f64::from(replicas).into();
                let made = deployment(&mut found, program);
                let env = made["spec"]["template"]["spec"]["containers"][0]["env"].as_sequence_mut().unwrap();
                let at = env.iter().position(|it| it["name"] == "LUCID_ADMISSION_MODE").unwrap();
                assert_eq!(env.remove(at)["value"], mode, "{folder}/{step}: {program}");
                if step == "4" {
                    without_production(made);
                    take_production(deployment(&mut expected, program));
                }
            }
            assert_eq!(found, expected, "{folder}/{step}");
        }
    }
}

#[tokio::test]
async fn canary_steps_equal_values_of_the_chart() {
    for step in 1..=4 {
        let values = format!("--values={}/canary/{step}.yaml", super::CHART);
        let set = ["webhooks.validating.by=both", "notary.url=http://lucid-verifier.lucid-system.svc:8080"];
        let rendered = template("lucid-system", &set, &[values]).await.unwrap();
        let facts = |mut documents: Vec<Value>| {
            ["lucid-operator", "lucid-validator"].map(|program| {
                let found = deployment(&mut documents, program);
                let pod = &found["spec"]["template"]["spec"];
                let mut env = pod["containers"][0]["env"].as_sequence().unwrap().clone();
                env.sort_by_key(|it| it["name"].as_str().map(str::to_owned));
                (found["spec"]["replicas"].clone(), env, pod["volumes"].clone())
            })
        };
        assert_eq!(
            facts(documents(&rendered)),
            facts(kustomized(&format!("canary/validator/{step}")).await),
            "step {step}"
        );
    }
}
