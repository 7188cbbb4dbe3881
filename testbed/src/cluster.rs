//! A running cluster, as a test holds it.

use std::{
    ffi::OsStr,
    fmt, fs, io,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use kube::Client;
use snafu::ResultExt as _;
use tokio::net::TcpStream;

use crate::{
    Builder, Error, components,
    error::{AuditEventSnafu, AuditLogSnafu, PkiSnafu},
    folder::Folder,
    network::Network,
    node::{Cgroup, Node},
    pki::Authority,
    ports::ReservedPort,
    process::{self, Processes},
    say,
};

pub(crate) const ADMIN_KUBECONFIG: &str = "admin.kubeconfig";
pub(crate) const AUDIT_LOG: &str = "audit.jsonl";

const CONNECT_WITHIN: Duration = Duration::from_secs(5);

/// A Kubernetes API server with its etcd, for one test or a few.
///
/// Dropping it ends the components, which takes a second or two, and removes its network namespace and
/// its folder; with a node also its pods, its mounts and its cgroup. When the dropping thread panics, as a failed test does, or when a component has ended by
/// itself, the logs stay and a line on standard error says where. A test that returns an `Err` instead has
/// not failed as far as the drop can see, so tests should `unwrap`; `LUCID_TESTBED_KEEP=1` in the environment
/// makes every cluster leave its files. When the process is killed the components end too; the folder goes
/// with the next start of a cluster.
///
/// Do not keep one in a `static`: Rust does not drop those.
pub struct Cluster {
    // Dropped in this order.
    pub(crate) nodes: Vec<Node>,
    pub(crate) processes: Processes,
    // Without processes.
    pub(crate) cgroup: Option<Cgroup>,
    pub(crate) network: Option<Network>,
    pub(crate) ports: Vec<ReservedPort>,
    pub(crate) folder: Folder,

    pub(crate) authority: Authority,
    pub(crate) address: IpAddr,
    pub(crate) api_port: u16,
    pub(crate) server: String,
    pub(crate) kubeconfig: String,
    pub(crate) client: Client,
    pub(crate) controller_manager: bool,
    pub(crate) has_node: bool,
    pub(crate) shows_certificates: bool,
    pub(crate) audit_log_rotation: bool,
    pub(crate) traces: bool,
}

impl Cluster {
    /// An API server with etcd, and what is added to it.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// The file with the certificate of the cluster's authority, which issues the certificates of users, and that of the API
    /// server for webhooks.
    pub fn authority_path(&self) -> PathBuf {
        self.folder.path().join(components::CA)
    }

    /// A client that may do everything. It does not retry: a test sees each answer.
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// The address of the API server, such as `https://127.0.0.1:41233`.
    pub fn server(&self) -> &str {
        &self.server
    }

    /// The administrator's kubeconfig, keys included.
    pub fn kubeconfig(&self) -> &str {
        &self.kubeconfig
    }

    /// The file with the administrator's kubeconfig.
    pub fn kubeconfig_path(&self) -> PathBuf {
        self.folder.path().join(ADMIN_KUBECONFIG)
    }

    /// A kubeconfig for a user with a new client certificate, without any rights but those that RBAC
    /// gives to the user or the group. (The certificate holds at most one group.)
    ///
    /// # Errors
    /// [`Error::Pki`] when no certificate can be made.
    pub fn kubeconfig_for(&self, user: &str, group: Option<&str>) -> Result<String, Error> {
        self.authority.kubeconfig(&self.server, user, group).context(PkiSnafu)
    }

    /// The folder of this cluster: `logs/` has a file per component.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The address on which the API server reaches servers of this machine: 127.0.0.1, or with
    /// [`Builder::webhooks_by_service`] one of its own. A webhook server of a test listens here.
    pub fn host_address(&self) -> IpAddr {
        self.network.as_ref().map_or(Ipv4Addr::LOCALHOST, Network::host_address).into()
    }

    /// A command that runs where the cluster does: on the first node when it has one, else in the API server's network. Its
    /// working folder on a node is `/`, and `/run`, `/var/lib` and `/var/log` are the node's own.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        match (self.nodes.first(), &self.network) {
            (Some(node), _) => node.command(program),
            (None, Some(network)) => network.command(program),
            (None, None) => process::command(program),
        }
    }

    /// A command that runs on the node with this name; none when there is no such node.
    pub fn command_on(&self, node: &str, program: impl AsRef<OsStr>) -> Option<Command> {
        self.nodes.iter().find(|one| one.name() == node).map(|node| node.command(program))
    }

    /// Ends everything that runs on the node with this name, as a power cut does: at once, and nobody is told. The Node object
    /// stays, as it would. False when there is no such node.
    pub fn kill_node(&mut self, node: &str) -> bool {
        let Some(index) = self.nodes.iter().position(|one| one.name() == node) else { return false };
        let mut node = self.nodes.remove(index);
        node.kill();
        for log in node.logs(&self.folder) {
            self.processes.remove(&log);
        }
        true
    }

    /// A connection from inside the cluster's network: to a pod, or to a Service's cluster IP. Waits 5 s at most.
    ///
    /// # Errors
    /// As of [`tokio::net::TcpStream::connect`].
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

    /// The file of the API server's audit log: JSON lines of audit.k8s.io/v1 Event, at level Metadata,
    /// for requests to pods and pods/ephemeralcontainers and no others, but for [`Builder::audit_service_accounts`].
    pub fn audit_log(&self) -> PathBuf {
        self.folder.path().join(AUDIT_LOG)
    }

    /// The events of the audit log so far. The API server writes an event before it answers the request.
    ///
    /// # Errors
    /// The file cannot be read, or a line is not JSON.
    pub fn audit_events(&self) -> Result<Vec<serde_json::Value>, Error> {
        let path = self.audit_log();
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            // Written with the first event.
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            Err(error) => return Err(error).context(AuditLogSnafu { path }),
        };
        // What follows the last line end is still being written.
        let complete = text.rfind('\n').map_or("", |end| &text[..end]);
        let parse = |(index, line)| {
            serde_json::from_str(line).context(AuditEventSnafu { path: &path, line: index + 1 })
        };
        complete.lines().enumerate().map(parse).collect()
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
