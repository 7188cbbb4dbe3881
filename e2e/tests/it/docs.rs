//! Pages of docs/: their commands are run as they are written, and print what the pages say.
//!
//! What a cluster has besides the API server is played: the operator runs as a process, with the environment that its
//! Deployment has at the moment, and `kubectl logs` gives what it logs.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use k8s_openapi::api::apps::v1::{Deployment, DeploymentSpec};
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt};
use lucid_e2e::{Operator, program};
use lucid_testbed::page::{Shell, blocks, commands};
use lucid_testbed::{Binaries, Cluster, Component, can_use_namespaces};
use regex::Regex;
use serde_json::json;
use tempfile::TempDir;

use crate::common::prepare;
use crate::installation::apply;

/// How long a minute of the pages takes here.
const SETTLE: &str = "2s";

/// The node, its kubelet and the controllers of the Deployment.
struct Node {
    cluster: Cluster,
    operator: Option<Operator>,
    /// What was last seen of the Deployment.
    running: Option<(bool, BTreeMap<String, String>)>,
}

impl Node {
    fn deployments(&self) -> Api<Deployment> {
        Api::namespaced(self.cluster.client(), "lucid-system")
    }

    /// Brings the operator to what its Deployment asks for.
    async fn follow(&mut self) {
        let deployment = self.deployments().get("lucid-operator").await.unwrap();
        let spec = deployment.spec.clone().unwrap();
        let wanted = (spec.replicas != Some(0), environment(&spec));
        if self.running.as_ref() != Some(&wanted) {
            // One after the other: what two of them do at once, other tests show.
            if let Some(mut operator) = self.operator.take() {
                assert!(operator.terminate().unwrap().success());
            }
            if wanted.0 {
                self.operator = Some(self.start(&wanted.1).await);
            }
            self.running = Some(wanted);
        }
        let replicas = spec.replicas.unwrap_or(1);
        let status = json!({"status": {"observedGeneration": deployment.metadata.generation, "replicas": replicas,
            "updatedReplicas": replicas, "readyReplicas": replicas, "availableReplicas": replicas}});
        let name = deployment.name_any();
        self.deployments().patch_status(&name, &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
    }

    async fn start(&self, environment: &BTreeMap<String, String>) -> Operator {
        let mut builder = Operator::builder(&self.cluster).by_service().env("LUCID_TRUST_SETTLE", SETTLE);
        for (variable, value) in environment {
            builder = builder.env(variable, value);
        }
        let operator = builder.start().await.unwrap();
        let (namespace, service) = ("lucid-system", "lucid-operator-webhook");
        self.cluster.expose_service(namespace, service, operator.port()).await.unwrap();
        operator
    }
}

/// What the Deployment sets, but for addresses of what is not there.
fn environment(spec: &DeploymentSpec) -> BTreeMap<String, String> {
    let containers = spec.template.spec.iter().flat_map(|pod| &pod.containers);
    let variables = containers.flat_map(|container| container.env.iter().flatten());
    let set = variables.filter_map(|variable| Some((variable.name.clone(), variable.value.clone()?)));
    set.filter(|(name, _)| name != "LUCID_VERIFIER_URL").collect()
}

/// What differs from run to run: times, and fingerprints, of which those that are one on the page are one here.
struct Differing {
    pattern: Regex,
    fingerprints: BTreeMap<String, String>,
}

impl Differing {
    fn new() -> Self {
        let pattern = r"\b[0-9a-f]{64}\b|\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z";
        Self { pattern: Regex::new(pattern).unwrap(), fingerprints: BTreeMap::new() }
    }

    /// Whether what was printed is what the page says.
    fn agree(&mut self, page: &str, printed: &str) -> bool {
        if self.pattern.replace_all(page, "…") != self.pattern.replace_all(printed, "…") {
            return false;
        }
        let mut known = self.fingerprints.clone();
        let pairs = self.pattern.find_iter(page).zip(self.pattern.find_iter(printed));
        for (said, found) in pairs.map(|(said, found)| (said.as_str(), found.as_str())) {
            let is_time = said.len() != 64;
            if !is_time && known.entry(said.to_owned()).or_insert_with(|| found.to_owned()) != found {
                return false;
            }
        }
        let distinct: BTreeSet<_> = known.values().collect();
        let agree = distinct.len() == known.len();
        if agree {
            self.fingerprints = known;
        }
        agree
    }
}

/// Whether it only looks, so that it can be repeated until what is expected has come.
fn looks(command: &str) -> bool {
    [" get ", " logs ", " status", " run probe "].iter().any(|part| command.contains(part))
}

/// Goes through a page from its first block to its last.
async fn follow(page: &str) {
    if !can_use_namespaces() {
        eprintln!("skipped: needs root and network namespaces");
        return;
    }
    let page = format!("{}/../docs/{page}", env!("CARGO_MANIFEST_DIR"));
    let page = fs::read_to_string(page).unwrap();
    let cluster = Cluster::builder().webhooks_by_service().start().await.unwrap();
    apply(&cluster, "lucid.yaml");
    let cluster = prepare(cluster).await;
    let folder = TempDir::new().unwrap();
    let shell = shell(&cluster, folder.path());
    let mut node = Node { cluster, operator: None, running: None };
    node.follow().await;
    let mut differing = Differing::new();
    let mut sessions = 0;
    for (language, text) in blocks(&page) {
        match language {
            "ini" | "yaml" => {
                let (name, _) = text.strip_prefix("# ").unwrap().split_once('\n').unwrap();
                fs::write(folder.path().join(name), text).unwrap();
            }
            "console" => {
                sessions += 1;
                for (command, said) in commands(text) {
                    run(&shell, &mut differing, &command, &said).await;
                    node.follow().await;
                }
            }
            // Not for a shell.
            "text" => {}
            other => panic!("what to do with {other}?"),
        }
    }
    assert!(sessions > 2, "{sessions} sessions");
}

async fn run(shell: &Shell, differing: &mut Differing, command: &str, said: &str) {
    let begin = Instant::now();
    loop {
        let shell = shell.clone();
        let script = command.to_owned();
        let ran = tokio::task::spawn_blocking(move || shell.run(&script)).await.unwrap();
        let (_, printed) = ran.unwrap();
        if differing.agree(said, &printed) {
            return;
        }
        let in_vain = !looks(command) || begin.elapsed() > Duration::from_secs(30);
        assert!(!in_vain, "$ {command}prints\n{printed}\nthe page says\n{said}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// One that has openssl, lucid-operator and kubectl, which knows the operator's log.
fn shell(cluster: &Cluster, folder: &Path) -> Shell {
    let binaries = Binaries::from_env().unwrap();
    binaries.ensure(&[Component::Kubectl]).unwrap();
    let programs = cluster.folder().join("programs");
    fs::create_dir(&programs).unwrap();
    let operator = program("lucid-operator").unwrap();
    std::os::unix::fs::symlink(operator, programs.join("lucid-operator")).unwrap();
    let kubectl = programs.join("kubectl");
    let log = cluster.folder().join("logs/lucid-operator.log");
    let (log, real) = (log.display(), binaries.path(Component::Kubectl));
    let script = format!(
        "#!/bin/sh\ncase \" $* \" in\n*\" logs \"*) exec cat {log};;\n*) exec {} \"$@\";;\nesac\n",
        real.display()
    );
    fs::write(&kubectl, script).unwrap();
    fs::set_permissions(&kubectl, fs::Permissions::from_mode(0o755)).unwrap();
    Shell::new(cluster, &binaries, folder).with_programs(programs)
}

#[tokio::test]
async fn an_authority_of_our_own_behaves_as_its_page_says() {
    follow("certificates/self-signed.md").await;
}

#[tokio::test]
async fn certificates_by_openssl_are_taken_and_renewed_as_their_page_says() {
    follow("certificates/openssl.md").await;
}

#[tokio::test]
async fn each_step_of_a_roll_out_behaves_as_its_page_says() {
    follow("canary.md").await;
}
