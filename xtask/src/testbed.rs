//! `cargo xtask testbed`.

use std::error::Error;

use clap::{Args, Subcommand};
use lucid_testbed::{Binaries, Cluster, Component};
use tokio::signal::unix::{SignalKind, signal};

#[derive(Subcommand)]
pub(crate) enum Task {
    /// Builds all programs into the cache.
    Build,
    /// Starts a cluster and keeps it until Ctrl-C.
    Up(Up),
    /// Prints the folder of the programs.
    Path,
}

#[derive(Args)]
pub(crate) struct Up {
    /// Also run kube-controller-manager: Deployments, ServiceAccounts, deletion of namespaces.
    #[arg(long)]
    controller_manager: bool,
    /// Also run kube-scheduler.
    #[arg(long)]
    scheduler: bool,
}

pub(crate) fn run(task: &Task) -> Result<(), Box<dyn Error>> {
    let binaries = Binaries::from_env()?;
    match task {
        Task::Build => {
            binaries.ensure(&Component::ALL)?;
            eprintln!("{} has every program", binaries.folder().display());
        }
        Task::Up(options) => {
            let runtime = tokio::runtime::Runtime::new()?;
            let outcome = runtime.block_on(up(options, &binaries));
            // Does not wait for a build that the signal has cut short.
            runtime.shutdown_background();
            outcome?;
        }
        Task::Path => println!("{}", binaries.folder().display()),
    }
    Ok(())
}

async fn up(options: &Up, binaries: &Binaries) -> Result<(), Box<dyn Error>> {
    let mut builder = Cluster::builder();
    if options.controller_manager {
        builder = builder.controller_manager();
    }
    if options.scheduler {
        builder = builder.scheduler();
    }
    // From here on a signal no longer ends the process by itself: the cluster is dropped instead.
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    let asked_to_end = async {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    };
    let stay = async {
        let cluster = builder.start().await?;
        tell(&cluster, binaries);
        std::future::pending::<Result<(), Box<dyn Error>>>().await
    };
    tokio::select! {
        outcome = stay => outcome,
        () = asked_to_end => Ok(()),
    }
}

/// How to use the cluster from another terminal.
fn tell(cluster: &Cluster, binaries: &Binaries) {
    println!("A cluster runs at {}; its logs are in {}/logs.", cluster.server(), cluster.folder().display());
    println!("In another terminal:\n");
    println!("    export KUBECONFIG={}", cluster.kubeconfig_path().display());
    if binaries.path(Component::Kubectl).exists() {
        println!("    export PATH={}:$PATH", binaries.folder().display());
    }
    println!("    kubectl get namespaces\n");
    if !binaries.path(Component::Kubectl).exists() {
        println!("No kubectl? `cargo xtask testbed build` makes one.\n");
    }
    println!("Ctrl-C ends it.");
}
