//! Comparison of the permissions in deploy/ with those that the programs need.

#![allow(clippy::unwrap_used, clippy::panic, reason = "these are tests")]

use std::collections::BTreeSet;

use clap::Parser;
use lucid_admission::KeeperAction;
use lucid_shared::serving::rbac::{Needs, Permission};
use lucid_shared::serving::{OPERATOR, Program, ServingArgs, VALIDATOR};
use serde::Deserialize;
use serde_yaml::Value;

#[derive(Parser)]
struct Args {
    #[command(flatten)]
    serving: ServingArgs,
}

/// Permissions with one verb each, formatted by [`words`].
type Permissions = BTreeSet<String>;

fn words(verb: &str, group: &str, resource: &str, name: Option<&str>, namespace: Option<&str>) -> String {
    format!("{verb} {group}/{resource} {} {}", name.unwrap_or("*"), namespace.unwrap_or("*"))
}

/// Permissions that the manifest grants to ServiceAccount `account`.
fn granted(manifest: &str, account: &str) -> Permissions {
    let path = format!("{}/../../deploy/{manifest}", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(path).unwrap();
    let documents = serde_yaml::Deserializer::from_str(&text);
    let documents: Vec<Value> = documents.map(|document| Value::deserialize(document).unwrap()).collect();
    let strings = |value: &Value| -> Vec<String> { serde_yaml::from_value(value.clone()).unwrap() };
    let mut granted = Permissions::new();
    let is_of_rbac =
        |it: &&Value| ["RoleBinding", "ClusterRoleBinding"].contains(&it["kind"].as_str().unwrap());
    for binding in documents.iter().filter(is_of_rbac) {
        let subjects = binding["subjects"].as_sequence().unwrap();
        assert!(subjects.iter().all(|it| it["name"] == account), "{binding:?}");
        let namespace = &binding["metadata"]["namespace"];
        let is_bound = |it: &&Value| {
            it["kind"] == binding["roleRef"]["kind"]
                && it["metadata"]["name"] == binding["roleRef"]["name"]
                && (it["kind"] == "ClusterRole" || &it["metadata"]["namespace"] == namespace)
        };
        let role = documents.iter().find(is_bound).unwrap();
        for rule in role["rules"].as_sequence().unwrap() {
            let names = match &rule["resourceNames"] {
                Value::Null => vec![None],
                names => strings(names).into_iter().map(Some).collect(),
            };
            for verb in strings(&rule["verbs"]) {
                for group in strings(&rule["apiGroups"]) {
                    for resource in strings(&rule["resources"]) {
                        for name in &names {
                            let permission =
                                words(&verb, &group, &resource, name.as_deref(), namespace.as_str());
                            assert!(
                                granted.insert(permission.clone()),
                                "{manifest} grants twice to {permission}"
                            );
                        }
                    }
                }
            }
        }
    }
    granted
}

/// Permissions that any combination of settings needs.
fn needed(program: Program, injects: bool) -> Permissions {
    let mut needed = Permissions::new();
    for source in ["self-signed", "cert-manager", "openshift", "olm", "secret", "files"] {
        for more in
            [&[][..], &["--certificate-per-replica"], &["--tls-directory=/tls"], &["--publish-trust=true"]]
        {
            let words_of_source = ["test", "--certificates", source];
            let args = Args::try_parse_from(words_of_source.iter().chain(more)).unwrap();
            for validates in [true, !injects] {
                let serving = &args.serving;
                let keeper = injects.then_some(&[][..]);
                let needs = Needs { program, serving, injects, validates, keeper };
                for Permission { verbs, group, resource, name, namespace } in
                    needs.permissions().into_iter().map(|need| need.permission)
                {
                    let (name, namespace) = (name.as_deref(), namespace.as_deref());
                    needed.extend(verbs.iter().map(|verb| words(verb, group, resource, name, namespace)));
                }
            }
        }
    }
    needed
}

#[test]
fn the_manifests_grant_what_some_settings_need_and_nothing_else() {
    for (manifest, program, injects) in [("lucid.yaml", OPERATOR, true), ("validator.yaml", VALIDATOR, false)]
    {
        let (granted, needed) = (granted(manifest, program.name), needed(program, injects));
        let missing: Vec<_> = needed.difference(&granted).collect();
        assert!(missing.is_empty(), "{manifest} does not grant {missing:#?}");
        let useless: Vec<_> = granted.difference(&needed).collect();
        assert!(useless.is_empty(), "{manifest} grants unneeded permissions: {useless:#?}");
    }
}

#[test]
fn each_permission_is_needed_once() {
    let args = Args::try_parse_from(["test", "--namespace=default"]).unwrap();
    for injects in [true, false] {
        let keeper = Some(&[KeeperAction::Update, KeeperAction::Evict, KeeperAction::Rollout][..]);
        let serving = &args.serving;
        let needs = Needs { program: VALIDATOR, serving, injects, validates: true, keeper };
        let permissions: Vec<_> = needs.permissions().into_iter().map(|need| need.permission).collect();
        let once: BTreeSet<_> = permissions.iter().collect();
        assert_eq!(once.len(), permissions.len(), "{permissions:#?}");
    }
}
