//! `cargo xtask testbed`.

use clap::{Args, Subcommand};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use lucid_e2e::Error;
use lucid_testbed::{Binaries, Cluster, Component};
use lucid_webhook::shutdown_signal;
use serde_json::json;

#[derive(Subcommand)]
pub(crate) enum Task {
    /// Builds the programs of the control plane into the cache, and kubectl.
    Build(Build),
    /// Starts a cluster and keeps it running until Ctrl-C.
    Up(Up),
    /// Prints the folder of the programs of the control plane.
    Path,
}

#[derive(Args)]
pub(crate) struct Build {
    /// Also build the programs of a node.
    #[arg(long)]
    node: bool,
}

#[derive(Args)]
pub(crate) struct Up {
    /// Also run cert-manager: its controller and its cainjector.
    #[arg(long)]
    cert_manager: bool,
    /// Also run a node, with kube-controller-manager and kube-scheduler, so that pods run. Needs root.
    #[arg(long)]
    node: bool,
}

pub(crate) fn run(task: &Task) -> Result<(), Error> {
    let binaries = Binaries::from_env()?;
    let runtime = tokio::runtime::Runtime::new()?;
    match task {
        Task::Build(options) => runtime.block_on(build(options, &binaries)),
        Task::Up(options) => runtime.block_on(up(options, &binaries)),
        Task::Path => {
            println!("{}", binaries.folder().display());
            Ok(())
        }
    }
}

async fn build(options: &Build, binaries: &Binaries) -> Result<(), Error> {
    let mut components = Component::CONTROL_PLANE.to_vec();
    components.push(Component::Kubectl);
    if options.node {
        components.extend(Component::NODE);
    }
    let shutdown_signal = shutdown_signal()?;
    tokio::select! {
        outcome = binaries.ensure_async(&components) => outcome?,
        () = shutdown_signal => return Err("interrupted before every program was built".into()),
    }
    eprintln!("{} has every program that was asked for", binaries.folder().display());
    Ok(())
}

async fn up(options: &Up, binaries: &Binaries) -> Result<(), Error> {
    let mut builder = Cluster::builder();
    if options.cert_manager {
        builder = builder.cert_manager().cainjector();
    }
    if options.node {
        builder = builder.node();
    }
    let shutdown_signal = shutdown_signal()?;
    let stay = async {
        let cluster = builder.start().await?;
        print_instructions(&cluster, binaries);
        std::future::pending::<Result<(), Error>>().await
    };
    tokio::select! {
        outcome = stay => outcome,
        () = shutdown_signal => Ok(()),
    }
}

/// Writes one key of a ConfigMap, and creates the ConfigMap if it is absent.
pub(crate) async fn apply_config_map(
    client: &Client,
    namespace: &str,
    name: &str,
    key: &str,
    text: &str,
) -> Result<(), Error> {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    let map =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {key: text}});
    maps.patch(name, &PatchParams::apply("xtask").force(), &Patch::Apply(map)).await?;
    Ok(())
}

/// Prints instructions to use the cluster from another terminal.
fn print_instructions(cluster: &Cluster, binaries: &Binaries) {
    println!("A cluster runs at {}; its logs are in {}/logs.", cluster.server(), cluster.folder().display());
    println!("In another terminal:\n");
    point_kubectl_at(cluster, binaries);
    println!("    kubectl get namespaces\n");
    if !binaries.path(Component::Kubectl).exists() {
        println!("No kubectl? `cargo xtask testbed build` makes one.\n");
    }
    println!("Ctrl-C ends it.");
}

/// Prints the shell commands that configure kubectl for the cluster.
pub(crate) fn point_kubectl_at(cluster: &Cluster, binaries: &Binaries) {
    println!("    export KUBECONFIG={}", cluster.kubeconfig_path().display());
    if binaries.path(Component::Kubectl).exists() {
        println!("    export PATH={}:$PATH", binaries.folder().display());
    }
}
