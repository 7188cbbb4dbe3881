//! Errors of the test bed.

use std::{fmt, io, path::PathBuf, process::ExitStatus};

use snafu::{Report, Snafu};

use crate::{binaries, network, node};

/// Error of starting or operating a cluster.
///
/// `Debug` prints the message with its causes, which is the output of a test's `unwrap`.
#[derive(Snafu)]
#[snafu(visibility(pub(crate)))]
#[non_exhaustive]
#[allow(missing_docs, reason = "the message of each variant says what it is")]
pub enum Error {
    #[snafu(display("failed to have the programs of the control plane"))]
    Binaries { source: binaries::Error },

    #[snafu(display("failed to write the files of the cluster"))]
    Folder { source: io::Error },

    #[snafu(display("failed to reserve a port"))]
    Port { source: io::Error },

    #[snafu(display("failed to make the keys and certificates of the cluster"))]
    Pki { source: rcgen::Error },

    #[snafu(display("failed to have an API server that reaches Services"))]
    Network { source: network::Error },

    #[snafu(display("failed to have a node"))]
    Node { source: node::Error },

    #[snafu(display("failed to start {component}"))]
    Start { component: &'static str, source: io::Error },

    #[snafu(display(
        "failed to keep {component} running: it ended ({status}); the end of {}:\n{tail}", log.display()
    ))]
    Ended { component: &'static str, status: ExitStatus, log: PathBuf, tail: String },

    #[snafu(display(
        "failed to see {component} ready within {seconds} s (last: {last}); the end of {}:\n{tail}", log.display()
    ))]
    NotReady { component: &'static str, seconds: u64, last: String, log: PathBuf, tail: String },

    #[snafu(display("failed to read the definitions of cert-manager's kinds, {}", path.display()))]
    Kinds { path: PathBuf, source: io::Error },

    #[snafu(display("failed to read the kubeconfig of the cluster"))]
    Kubeconfig {
        #[snafu(source(from(kube::config::KubeconfigError, Box::new)))]
        source: Box<kube::config::KubeconfigError>,
    },

    #[snafu(display("failed to make a client of {server}"))]
    Client {
        server: String,
        #[snafu(source(from(kube::Error, Box::new)))]
        source: Box<kube::Error>,
    },

    #[snafu(display("failed to make {object}"))]
    Object {
        object: String,
        #[snafu(source(from(kube::Error, Box::new)))]
        source: Box<kube::Error>,
    },

    #[snafu(display(
        "failed to see the ServiceAccount default in namespace {namespace} within {seconds} s: \
         kube-controller-manager makes it"
    ))]
    NoServiceAccount { namespace: String, seconds: u64 },

    #[snafu(display(
        "failed to expose a Service: an endpoint may not be a loopback address; start the cluster with \
         Builder::webhooks_by_service (root)"
    ))]
    LoopbackEndpoint,

    #[snafu(display("failed to run {client}"))]
    Run { client: &'static str, source: io::Error },

    #[snafu(display("failed to read the audit log {}", path.display()))]
    AuditLog { path: PathBuf, source: io::Error },

    #[snafu(display("failed to read line {line} of the audit log {}", path.display()))]
    AuditEvent { path: PathBuf, line: usize, source: serde_json::Error },
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&Report::from_error(self), f)
    }
}
