//! Handle of a running cluster.

use std::{
    ffi::OsStr,
    fmt, io,
    net::{IpAddr, SocketAddr},
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use kube::Client;
use snafu::ResultExt as _;
use tokio::net::TcpStream;

use crate::{
    Builder, Error,
    cgroup::Cgroup,
    error::KEYS,
    folder::Folder,
    layout::ADMIN_KUBECONFIG,
    network::Network,
    node::Node,
    pki::Authority,
    ports::ReservedPort,
    process::{self, Processes},
    say,
};

const CONNECT_WITHIN: Duration = Duration::from_secs(5);

/// A Kubernetes API server with its etcd, for one or a few tests.
///
/// Dropping the cluster ends the components, which takes a second or two, and removes its network namespace and its folder;
/// with a node also its pods, its mounts and its cgroup.
///
/// The logs are kept, with a line about their path on standard error, if the dropping thread panics, as in a failed test, or if
/// a component has ended by itself. The drop cannot detect a test that returns an `Err`, so tests should `unwrap`.
/// `LUCID_TESTBED_KEEP=1` in the environment keeps the files of every cluster.
///
/// When the process is killed, the components end too, and the next start of a cluster removes the folder.
///
/// Do not keep a cluster in a `static`: Rust does not drop those.
pub struct Cluster {
    // The drop order matters.
    pub(crate) nodes: Vec<Node>,
    pub(crate) processes: Processes,
    // Dropped after all processes.
    pub(crate) cgroup: Option<Cgroup>,
    pub(crate) network: Option<Network>,
    pub(crate) ports: Vec<ReservedPort>,
    pub(crate) folder: Folder,

    pub(crate) authority: Authority,
    pub(crate) address: IpAddr,
    pub(crate) api_port: u16,
    pub(crate) server: String,
    pub(crate) client: Client,
    pub(crate) options: Builder,
}

impl Cluster {
    /// Configures an API server with etcd, and additional components.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Returns a client with all permissions. It does not retry, so that tests see each response.
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// Path of the administrator's kubeconfig, which includes keys.
    pub fn kubeconfig_path(&self) -> PathBuf {
        self.folder.path().join(ADMIN_KUBECONFIG)
    }

    /// Returns a kubeconfig for a user with a new client certificate. The user has only the permissions that RBAC grants to the
    /// user or the group; the certificate holds at most one group.
    ///
    /// # Errors
    ///
    /// Returns an error if the certificate cannot be created.
    pub fn kubeconfig_for(&self, user: &str, group: Option<&str>) -> Result<String, Error> {
        self.authority.kubeconfig(&self.server, user, group).whatever_context(KEYS)
    }

    /// Folder of this cluster. `logs/` has a file per component. `pki/ca.crt` and `pki/ca.key` are the cluster's authority, which
    /// issues the API server's serving certificate and client certificates of users. `audit.jsonl` is the API server's audit
    /// log: events of audit.k8s.io/v1 at level Metadata, for requests to pods and pods/ephemeralcontainers.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Address at which the API server reaches servers on this machine: 127.0.0.1, the API server's `--bind-address`, or a
    /// dedicated one with [`Builder::webhooks_by_service`]. Webhook servers of tests listen here.
    pub fn host_address(&self) -> IpAddr {
        self.network.as_ref().map_or(self.address, |network| network.host_address().into())
    }

    /// Returns a command that runs on the first node if there is one, else in the API server's network. On a node its working
    /// folder is `/`, and `/run`, `/var/lib` and `/var/log` are the node's own.
    ///
    /// The kernel kills the program when the thread that spawned it ends: spawn it from one that outlives it, such as that of
    /// the test. It leads a process group, and does not inherit proxy variables.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        match (self.nodes.first(), &self.network) {
            (Some(node), _) => node.command(program),
            (None, Some(network)) => network.command(program),
            (None, None) => process::command(program),
        }
    }

    /// Kills all processes on the node with this name at once, like a power cut. The Node object stays. Returns `false` if
    /// there is no such node.
    pub fn kill_node(&mut self, node: &str) -> bool {
        let Some(index) = self.nodes.iter().position(|one| one.name() == node) else { return false };
        let mut node = self.nodes.remove(index);
        node.kill();
        for log in node.logs(&self.folder) {
            self.processes.remove(&log);
        }
        true
    }

    /// Connects from inside the cluster's network to a pod or to the cluster IP of a Service. Times out after 5 s.
    ///
    /// # Errors
    ///
    /// See [`tokio::net::TcpStream::connect`].
    pub async fn connect(&self, address: SocketAddr) -> io::Result<TcpStream> {
        let namespace = self.network.as_ref().map(Network::namespace);
        let connect = move || match namespace {
            Some(namespace) => namespace.connect(address, CONNECT_WITHIN),
            None => std::net::TcpStream::connect_timeout(&address, CONNECT_WITHIN),
        };
        let stream = tokio::task::spawn_blocking(connect).await.map_err(io::Error::other)??;
        stream.set_nonblocking(true)?;
        TcpStream::from_std(stream)
    }
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cluster")
            .field("server", &self.server)
            .field("folder", &self.folder.path())
            .finish_non_exhaustive()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if !self.folder.failed
            && let Some((process, status)) = self.processes.ended()
        {
            say(format_args!("{} ended by itself ({status})", process.name));
            self.folder.failed = true;
        }
    }
}
