//! Agreement of the policy and the planner.

use std::collections::BTreeMap;
use std::path::Path;

use lucid_chain::{
    Catalogue, Configuration, Inputs, NamespaceChain, NamespaceSettings, Overrides, SkipPolicy, keys,
};
use lucid_e2e::{Answer, ClusterExt as _};
use lucid_testbed::Cluster;
use serde::Deserialize as _;
use serde_json::{Value, json};

use super::{in_force, planned, printed};
use crate::cli::apply;
use crate::common::{ENABLED, cluster, dry_run, has_kubernetes};

/// Runs every pod of the planner's tests, each in a separate namespace with its own policy.
#[tokio::test]
async fn planned_pods_pass_and_unplanned_pods_do_not() {
    let cluster = cluster().await;
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/lucid-chain/tests/it/goldens");
    let mut cases = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "yaml") {
            continue;
        }
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let text = std::fs::read_to_string(&path).unwrap();
        let mut documents = serde_yaml::Deserializer::from_str(&text);
        let mut pod = Value::deserialize(documents.next().unwrap()).unwrap();
        let said = documents.next().map(|said| Value::deserialize(said).unwrap()).unwrap_or_default();
        let Some(metadata) = pod["metadata"].as_object_mut().filter(|_| said["forced"] != true) else {
            continue;
        };
        metadata.remove("namespace");
        // The cluster has no runtime classes.
        pod["spec"].as_object_mut().unwrap().remove("runtimeClassName");
        let case = Case::read(&cluster, &name, &said);
        let level = said["podSecurity"].as_str().map(|level| ("pod-security.kubernetes.io/enforce", level));
        let labels: Vec<_> = std::iter::once(ENABLED).chain(level).collect();
        cluster.create_namespace(&name, &labels).await.unwrap();
        if let Some(range) = said["uidRange"].as_str() {
            let annotations = json!({keys::SCC_UID_RANGE: range});
            apply(
                &cluster,
                &[
                    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": &name, "annotations": annotations}}),
                ],
            );
        }
        let mut documents = printed(&case.arguments.iter().map(String::as_str).collect::<Vec<_>>());
        for document in &mut documents {
            document["metadata"]["name"] = json!(format!("lucid-backstop-{name}"));
        }
        documents[1]["spec"]["policyName"] = documents[0]["metadata"]["name"].clone();
        apply(&cluster, &documents);
        cases.push((name, pod, case));
    }
    assert!(cases.len() > 25, "{}", cases.len());
    for (name, pod, case) in &cases {
        in_force(&cluster, name).await;
        let before = dry_run(&cluster, name, pod).await;
        let inputs = Inputs {
            namespace: Some(name),
            settings: &case.settings,
            namespace_chain: Ok(case.chain.as_ref()),
            ..Inputs::new(&case.configuration)
        };
        let stopped = |response: &Answer| response.refusal().contains("lucid-backstop");
        match planned(pod, &inputs) {
            Ok(after) => {
                let volumes = after["spec"]["volumes"].as_array().into_iter().flatten();
                let has_image = volumes.into_iter().any(|volume| volume["image"].is_object());
                if has_image && !has_kubernetes(&cluster, 35, "an image volume").await {
                    continue;
                }
                let after = dry_run(&cluster, name, &after).await;
                assert!(!stopped(&after), "{name}: {after:?}");
                assert!(
                    before.status == 422 || stopped(&before) || after.status == 403,
                    "{name}: {before:?}"
                );
            }
            Err(why) => {
                assert_eq!(stopped(&before), why.starts_with("Impossible"), "{name}: {before:?}");
            }
        }
    }
}

struct Case {
    configuration: Configuration,
    chain: Option<NamespaceChain>,
    settings: NamespaceSettings,
    arguments: Vec<String>,
}

impl Case {
    fn read(cluster: &Cluster, name: &str, said: &Value) -> Self {
        let mut arguments =
            vec!["--namespace-selector".to_owned(), format!("kubernetes.io/metadata.name={name}")];
        let mut add = |option: &str, value: &str| arguments.push(format!("--{option}={value}"));
        let write = |kind: &str, text: &str| {
            let path = cluster.folder().join(format!("{name}.{kind}.yaml"));
            std::fs::write(&path, text).unwrap();
            path.display().to_string()
        };
        let mut catalogue = Catalogue::builtin();
        if let Some(yaml) = said["auditors.yaml"].as_str() {
            catalogue = catalogue.overlay(&Catalogue::parse("auditors.yaml", yaml).unwrap());
            add("catalogue", &write("auditors", yaml));
        }
        let names: Option<Vec<String>> =
            said.get("chain").map(|names| serde_json::from_value(names.clone()).unwrap());
        if let Some(names) = &names {
            add("chain", &names.join(","));
        }
        let mut configuration = Configuration::new(catalogue, names.as_deref()).unwrap();
        for (option, value) in said["operator"].as_object().into_iter().flatten() {
            add(option, &value.as_str().map_or_else(|| value.to_string(), str::to_owned));
        }
        if let Some(settings) = said.get("operator") {
            let yaml = json!({"defaults": settings}).to_string();
            let written = Catalogue::parse("operator", &yaml).unwrap().defaults();
            let text = |key| written.get(key).map_or("", String::as_str);
            configuration.overrides = Overrides {
                audit_mode: text("audit-mode").parse().ok(),
                direction: text("direction").parse().ok(),
                target_port: text("target-port").parse().ok(),
                sidecar_mode: text("sidecar-mode").parse().ok(),
                intercept: text("intercept").parse().ok(),
                outbound_port: text("outbound-port").parse().ok(),
            };
        }
        if let Some(listed) = said.get("skipServiceAccounts") {
            let listed: Vec<String> = serde_json::from_value(listed.clone()).unwrap();
            // Limited to this namespace.
            let listed: Vec<_> =
                listed.iter().map(|it| format!("{name}/{}", it.rsplit_once('/').unwrap().1)).collect();
            add("allow-skip", &listed.join(","));
            configuration.skip = SkipPolicy::ServiceAccounts(listed.into_iter().collect());
        }
        let settings =
            [("pod-security.kubernetes.io/enforce", "podSecurity"), (keys::SCC_UID_RANGE, "uidRange")];
        let settings = settings.map(|(key, name)| {
            said[name].as_str().map(|value| (key.to_owned(), value.to_owned())).into_iter().collect()
        });
        let settings = NamespaceSettings::new(&settings[0], &settings[1]).with_any_auditor_image();
        let chain = said.get("namespace").map(|data| {
            let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": data,
                "metadata": {"name": "lucid-auditor-chain", "namespace": name}});
            add("namespace-config", &write("chain", &map.to_string()));
            let data: BTreeMap<String, String> = serde_json::from_value(data.clone()).unwrap();
            NamespaceChain::from_data(name, &data, configuration.catalogue(), &settings).unwrap()
        });
        // The policy was given the chains of all namespaces.
        add("exact-chain", "");
        arguments.last_mut().unwrap().truncate("--exact-chain".len());
        Self { configuration, chain, settings, arguments }
    }
}
