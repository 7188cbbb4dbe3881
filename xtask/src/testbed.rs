//! `cargo xtask testbed`.

use std::path::Path;

use clap::{Args, Subcommand};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use lucid_e2e::{ClusterExt as _, Error};
use lucid_testbed::{Cluster, binary};
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
    /// Programs, such as kube-apiserver [default: those of the control plane, and kubectl]
    programs: Vec<String>,
    /// Also build the programs of a node.
    #[arg(long)]
    node: bool,
}

#[derive(Args)]
pub(crate) struct Up {
    /// Minor version of Kubernetes, such as 1.31.
    #[arg(long, value_name = "MINOR")]
    kubernetes: Option<String>,
    /// Also run cert-manager: its controller and its cainjector.
    #[arg(long)]
    cert_manager: bool,
    /// Also run a node, with kube-controller-manager and kube-scheduler, so that pods run. Needs root.
    #[arg(long)]
    node: bool,
}

/// Programs of the control plane, and kubectl.
pub(crate) const CONTROL_PLANE: &[&str] =
    &["etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl"];

/// Additional programs of a node.
pub(crate) const NODE: &[&str] = &[
    "kubelet",
    "kube-proxy",
    "containerd",
    "containerd-shim-runc-v2",
    "ctr",
    "runc",
    "ptp",
    "loopback",
    "host-local",
    "coredns",
    "pause",
    "hello",
];

pub(crate) fn run(task: &Task) -> Result<(), Error> {
    let runtime = tokio::runtime::Runtime::new()?;
    match task {
        Task::Build(options) => runtime.block_on(build(options)),
        Task::Up(options) => runtime.block_on(up(options)),
        Task::Path => {
            println!("{}", folder(&runtime.block_on(binary("kube-apiserver"))?).display());
            Ok(())
        }
    }
}

fn folder(program: &Path) -> &Path {
    program.parent().unwrap_or(program)
}

async fn build(options: &Build) -> Result<(), Error> {
    let programs: Vec<_> = options.programs.iter().map(String::as_str).collect();
    let programs = if programs.is_empty() { CONTROL_PLANE } else { &programs };
    let names = [programs, if options.node { NODE } else { &[] }].concat();
    let shutdown_signal = shutdown_signal()?;
    let build = async {
        for name in names {
            println!("{}", binary(name).await?.display());
        }
        Ok(())
    };
    tokio::select! {
        outcome = build => outcome,
        () = shutdown_signal => Err("interrupted before every program was built".into()),
    }
}

pub(crate) async fn build_all(names: &[&str]) -> Result<(), Error> {
    for name in names {
        binary(name).await?;
    }
    Ok(())
}

async fn up(options: &Up) -> Result<(), Error> {
    let mut builder = Cluster::builder();
    if let Some(minor) = &options.kubernetes {
        builder = builder.kubernetes(minor);
    }
    if options.cert_manager {
        builder = builder.cert_manager().cainjector();
    }
    if options.node {
        builder = builder.nodes(1);
    }
    let shutdown_signal = shutdown_signal()?;
    let stay = async {
        let cluster = builder.start().await?;
        print_instructions(&cluster).await?;
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
async fn print_instructions(cluster: &Cluster) -> Result<(), Error> {
    println!("A cluster runs at {}; its logs are in {}/logs.", cluster.server(), cluster.folder().display());
    println!("In another terminal:\n");
    point_kubectl_at(cluster).await?;
    println!("    kubectl get namespaces\n");
    println!("Ctrl-C ends it.");
    Ok(())
}

/// Prints the shell commands that configure kubectl for the cluster.
pub(crate) async fn point_kubectl_at(cluster: &Cluster) -> Result<(), Error> {
    println!("    export KUBECONFIG={}", cluster.kubeconfig_path().display());
    println!("    export PATH={}:$PATH", folder(&binary("kubectl").await?).display());
    Ok(())
}
