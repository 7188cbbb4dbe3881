//! Simulated node for tests of pages: runs the operator as a process with the current environment of its Deployment.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use k8s_openapi::api::apps::v1::{Deployment, DeploymentSpec};
use k8s_openapi::api::core::v1::{Endpoints, Pod};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use lucid_e2e::{ClusterExt as _, Operator, Process, free_port, program};
use lucid_testbed::Cluster;
use serde_json::json;

use crate::certificates::injector;
use crate::common::finalize_namespaces;

/// Settle time here, in place of a minute on the pages.
const SETTLE: &str = "2s";

const POD: &str = "lucid-operator-1";

const INJECTOR: &str = "lucid-cainjector";

/// The node, its kubelet and the controllers of the Deployments.
pub(super) struct Node {
    cluster: Cluster,
    operator: Option<Operator>,
    injector: Option<Process>,
    examples: Vec<Process>,
    /// Last observed state of the operator's Deployment.
    running: Option<(bool, BTreeMap<String, String>)>,
}

impl Node {
    pub(super) fn new(cluster: Cluster) -> Self {
        Self { cluster, operator: None, injector: None, examples: Vec::new(), running: None }
    }

    fn deployments(&self) -> Api<Deployment> {
        Api::namespaced(self.cluster.client(), "lucid-system")
    }

    fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.cluster.client(), "lucid-system")
    }

    /// Finalizes deleted namespaces, applies the operator's Deployment if it exists, and starts our CA injector if it has a
    /// Deployment.
    pub(super) async fn follow(&mut self) {
        finalize_namespaces(&self.cluster).await;
        let deployment = self.deployments().get_opt("lucid-operator").await.unwrap();
        let spec = deployment.as_ref().map(|deployment| deployment.spec.clone().unwrap());
        let wanted = spec.as_ref().map(|spec| (spec.replicas != Some(0), settings(spec)));
        if self.running != wanted {
            // Sequentially: other tests cover concurrent replicas.
            if let Some(mut operator) = self.operator.take() {
                assert!(operator.terminate().unwrap().success());
                let slices: Api<EndpointSlice> = Api::namespaced(self.cluster.client(), "lucid-system");
                slices.delete_collection(&DeleteParams::default(), &ListParams::default()).await.unwrap();
                let endpoints: Api<Endpoints> = Api::namespaced(self.cluster.client(), "lucid-system");
                endpoints.delete_collection(&DeleteParams::default(), &ListParams::default()).await.unwrap();
                let at_once = DeleteParams::default().grace_period(0);
                self.pods().delete(POD, &at_once).await.unwrap();
            }
            if let (Some(spec), Some((true, environment))) = (&spec, &wanted) {
                self.operator = Some(self.start(spec, environment).await);
            }
            self.running = wanted;
        }
        let others = self.deployments().get_opt(INJECTOR).await.unwrap();
        if others.is_some() && self.injector.is_none() {
            self.injector = Some(injector(&self.cluster));
        }
        for deployment in deployment.into_iter().chain(others) {
            self.is_available(&deployment).await;
        }
    }

    /// Starts an example operator by its command `cargo run -p NAME -- IP:PORT`, at an address that the API server reaches.
    pub(super) fn start_example(&mut self, command: &str) {
        let name = command.split_whitespace().nth(3).unwrap();
        let address = self.cluster.host_address();
        let mut command = lucid_e2e::command(program(name).unwrap());
        command.arg(SocketAddr::new(address, free_port(address).unwrap()).to_string());
        command.env("KUBECONFIG", self.cluster.kubeconfig_path());
        let log = self.cluster.folder().join(format!("logs/{name}.log"));
        self.examples.push(Process::start("example", command, log).unwrap());
    }

    async fn is_available(&self, deployment: &Deployment) {
        let replicas = deployment.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
        let status = json!({"status": {"observedGeneration": deployment.metadata.generation, "replicas": replicas,
            "updatedReplicas": replicas, "readyReplicas": replicas, "availableReplicas": replicas}});
        let name = deployment.name_any();
        // The Deployment may have been deleted meanwhile.
        let _ = self.deployments().patch_status(&name, &PatchParams::default(), &Patch::Merge(status)).await;
    }

    async fn start(&self, spec: &DeploymentSpec, environment: &BTreeMap<String, String>) -> Operator {
        let mut pod = json!({"metadata": spec.template.metadata, "spec": spec.template.spec});
        pod["metadata"]["name"] = json!(POD);
        self.pods().create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
        let mut builder = Operator::builder(&self.cluster).by_service().flag("--trust-settle", SETTLE);
        for (name, value) in environment {
            builder = match name.starts_with("--") {
                true => builder.flag(name, value),
                false => builder.env(name, value),
            };
        }
        let operator = builder.start().await.unwrap();
        let (namespace, service) = ("lucid-system", "lucid-operator-webhook");
        self.cluster.expose_service(namespace, service, &[operator.port()]).await.unwrap();
        operator
    }
}

/// Variables and flags of the Deployment, except addresses of absent components.
fn settings(spec: &DeploymentSpec) -> BTreeMap<String, String> {
    let containers = || spec.template.spec.iter().flat_map(|pod| &pod.containers);
    let variables = containers().flat_map(|container| container.env.iter().flatten());
    let variables = variables.filter_map(|variable| Some((variable.name.clone(), variable.value.clone()?)));
    let flags = containers().flat_map(|container| container.args.iter().flatten());
    let flags = flags.filter(|argument| argument.starts_with("--")).map(|argument| {
        let (flag, value) = argument.split_once('=').unwrap_or((argument, "true"));
        (flag.to_owned(), value.to_owned())
    });
    variables.chain(flags).filter(|(_, value)| !value.contains("lucid-verifier")).collect()
}
