//! Starting a cluster.

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::process::Command;

use snafu::ResultExt as _;

use crate::{
    Binaries, Cluster, Component, Error, cert_manager, client,
    cluster::ADMIN_KUBECONFIG,
    components,
    error::{BinariesSnafu, FolderSnafu, NetworkSnafu, NodeSnafu, PkiSnafu, PortSnafu, StartSnafu},
    folder::Folder,
    network::{self, Network},
    node,
    pki::{self, Authority},
    ports::ReservedPort,
    process::{self, Process},
    readiness,
};

/// What a cluster consists of; made by [`Cluster::builder`].
#[derive(Clone, Debug, Default)]
#[must_use = "nothing happens until `start`"]
pub struct Builder {
    controller_manager: bool,
    scheduler: bool,
    cert_manager: bool,
    cainjector: bool,
    webhooks_by_service: bool,
    nodes: u8,
    webhook_client: Option<String>,
    audit_log_rotation: bool,
    audit_service_accounts: bool,
    tracing: bool,
    keep_files: bool,
}

impl Builder {
    /// Runs kube-controller-manager: Deployments make pods, deleted namespaces go away, every
    /// namespace gets its ServiceAccount `default`.
    ///
    /// Without it no namespace has a ServiceAccount, and a pod would be refused for that. So the
    /// API server's admission plugin ServiceAccount is on only together with this.
    pub fn controller_manager(mut self) -> Self {
        self.controller_manager = true;
        self
    }

    /// Runs kube-scheduler. There are no nodes unless the test makes Node objects.
    pub fn scheduler(mut self) -> Self {
        self.scheduler = true;
        self
    }

    /// Defines cert-manager's kinds and runs its controller, which makes the Secrets of Certificates of the issuers CA and
    /// self-signed. Its webhook does not run: what that would refuse, such as a Certificate of less than an hour, is not
    /// refused.
    pub fn cert_manager(mut self) -> Self {
        self.cert_manager = true;
        self
    }

    /// Defines cert-manager's kinds and runs its cainjector, which writes CAs into whatever asks for them by annotation.
    pub fn cainjector(mut self) -> Self {
        self.cainjector = true;
        self
    }

    /// Puts the API server into a network namespace of its own, so that a webhook of this process can
    /// be registered by Service; see [`Cluster::expose_service`]. Needs root, see
    /// [`can_use_namespaces`](crate::can_use_namespaces).
    ///
    /// This machine's 127.0.0.1 is then not reachable from the API server: servers of the test,
    /// also those registered by URL, listen on [`Cluster::host_address`].
    pub fn webhooks_by_service(mut self) -> Self {
        self.webhooks_by_service = true;
        self
    }

    /// Adds a node on which pods really run: containerd with runc and CNI plugins, kubelet and kube-proxy, and
    /// what makes use of it: kube-controller-manager, kube-scheduler and the network of
    /// [`Builder::webhooks_by_service`]. Needs root and more, see [`node::check`](crate::node::check).
    ///
    /// Pods have addresses of IPv4 and IPv6, and reach the API server by the Service `kubernetes` and servers of this
    /// process on [`Cluster::host_address`]. Services have names. Nothing beyond this machine is reached or named, and images come
    /// from [`Cluster::load_image`]. This process reaches pods and cluster IPs by [`Cluster::connect`].
    pub fn node(self) -> Self {
        self.nodes(1)
    }

    /// As [`Builder::node`], with several of them: `node`, `node-2` and so on. Each has a containerd and a kubelet of its own, and
    /// ends by itself ([`Cluster::kill_node`]); the network is one, as if they were one machine.
    pub fn nodes(mut self, count: u8) -> Self {
        self.nodes = count;
        self.controller_manager().scheduler().webhooks_by_service()
    }

    /// Has the API server show a certificate with this common name to webhooks that ask for one. It is of the cluster's own
    /// authority, see [`Cluster::authority_path`].
    pub fn webhook_client(mut self, common_name: &str) -> Self {
        self.webhook_client = Some(common_name.to_owned());
        self
    }

    /// Has the API server rotate its audit log when it has grown to a mebibyte, the least it can; [`Cluster::audit_log`] stays
    /// the name of the latest file.
    pub fn audit_log_rotation(mut self) -> Self {
        self.audit_log_rotation = true;
        self
    }

    /// Has the audit log also tell of all that service accounts ask for, of whatever kind.
    pub fn audit_service_accounts(mut self) -> Self {
        self.audit_service_accounts = true;
        self
    }

    /// Has the API server trace every request, so that calls of webhooks carry a `traceparent`. What it traces itself goes
    /// nowhere.
    pub fn tracing(mut self) -> Self {
        self.tracing = true;
        self
    }

    /// Leaves the cluster's folder with all its files, also after a good end. For a single run the environment
    /// variable `LUCID_TESTBED_KEEP=1` does the same for every cluster.
    pub fn keep_files(mut self) -> Self {
        self.keep_files = true;
        self
    }

    /// Starts the cluster and waits until it serves. The first time on a machine this builds the
    /// programs, which takes minutes ([`Binaries::ensure_async`]); later some 4 s, with a node a few more. Dropping the future ends what it
    /// has begun.
    ///
    /// # Errors
    /// A program cannot be had; no namespace although one was asked for; a component ends by itself
    /// or is not ready within two minutes. The error then quotes the end of that component's log, and
    /// the logs stay.
    pub async fn start(self) -> Result<Cluster, Error> {
        // Said before minutes are spent on building.
        if self.nodes > 0 {
            node::check().context(NodeSnafu)?;
        } else if self.webhooks_by_service {
            network::ensure_root().context(NetworkSnafu)?;
        }
        let binaries = self.binaries().await?;
        let mut cluster = self.prepare()?;

        let etcd_port = cluster.reserve_port()?;
        let args = components::etcd(&cluster, etcd_port);
        cluster.run(Component::Etcd, &binaries, &args)?;
        let args = components::api_server(&cluster, etcd_port);
        cluster.run(Component::ApiServer, &binaries, &args)?;
        readiness::api_server(&mut cluster).await?;

        if self.controller_manager {
            let port = cluster.reserve_port()?;
            let args = components::controller_manager(&cluster, port);
            cluster.run(Component::ControllerManager, &binaries, &args)?;
            readiness::healthy(&mut cluster, Component::ControllerManager, port).await?;
            cluster.await_service_account("default").await?;
        }
        if self.scheduler {
            let port = cluster.reserve_port()?;
            let args = components::scheduler(&cluster, port);
            cluster.run(Component::Scheduler, &binaries, &args)?;
            readiness::healthy(&mut cluster, Component::Scheduler, port).await?;
        }
        if self.nodes > 0 {
            node::start(&mut cluster, &binaries, self.nodes).await?;
        }
        let parts =
            [(self.cert_manager, cert_manager::CONTROLLER), (self.cainjector, cert_manager::CAINJECTOR)];
        let parts: Vec<_> = parts.into_iter().filter_map(|(wanted, part)| wanted.then_some(part)).collect();
        if !parts.is_empty() {
            cert_manager::start(&mut cluster, &binaries, &parts).await?;
        }
        cluster.folder.failed = false;
        Ok(cluster)
    }

    async fn binaries(&self) -> Result<Binaries, Error> {
        let binaries = Binaries::from_env().context(BinariesSnafu)?;
        let mut needed = vec![Component::Etcd, Component::ApiServer];
        needed.extend(self.controller_manager.then_some(Component::ControllerManager));
        needed.extend(self.scheduler.then_some(Component::Scheduler));
        if self.nodes > 0 {
            needed.extend(Component::NODE);
        }
        if self.cert_manager || self.cainjector {
            needed.extend(Component::CERT_MANAGER);
        }
        binaries.ensure_async(&needed).await.context(BinariesSnafu)?;
        Ok(binaries)
    }

    /// A cluster with its folder, network, keys and client; nothing runs yet.
    fn prepare(&self) -> Result<Cluster, Error> {
        let folder = Folder::create(self.keep_files).context(FolderSnafu)?;
        let network = self
            .webhooks_by_service
            .then(|| Network::create(folder.log("namespace")))
            .transpose()
            .context(NetworkSnafu)?;
        let address: IpAddr = network.as_ref().map_or(Ipv4Addr::LOCALHOST, Network::inside_address).into();
        let port = ReservedPort::new().context(PortSnafu)?;
        let server = format!("https://{address}:{}", port.number);

        let authority = Authority::new().context(PkiSnafu)?;
        let kubeconfig =
            authority.kubeconfig(&server, "kubernetes-admin", Some(pki::MASTERS)).context(PkiSnafu)?;
        folder.write(ADMIN_KUBECONFIG, &kubeconfig).context(FolderSnafu)?;
        let client = client::with_user(&server, &authority, client::user_of(&kubeconfig)?)?;
        let serving = authority.serving_pair(address).context(PkiSnafu)?;
        components::write_files(&folder, &authority, &serving, self.audit_service_accounts)?;
        if let Some(name) = &self.webhook_client {
            components::write_admission(&folder, &authority, name)?;
        }

        Ok(Cluster {
            nodes: Vec::new(),
            cgroup: None,
            processes: process::Processes::default(),
            network,
            api_port: port.number,
            ports: vec![port],
            folder,
            authority,
            server,
            address,
            kubeconfig,
            client,
            controller_manager: self.controller_manager,
            has_node: self.nodes > 0,
            shows_certificates: self.webhook_client.is_some(),
            audit_log_rotation: self.audit_log_rotation,
            traces: self.tracing,
        })
    }
}

impl Cluster {
    fn reserve_port(&mut self) -> Result<u16, Error> {
        let port = ReservedPort::new().context(PortSnafu)?;
        let number = port.number;
        self.ports.push(port);
        Ok(number)
    }

    /// Starts a component in the cluster's network, which is this machine's unless it has its own.
    pub(crate) fn run(
        &mut self,
        component: Component,
        binaries: &Binaries,
        args: &[String],
    ) -> Result<(), Error> {
        self.run_as(component.name(), component, binaries, args)
    }

    /// As [`Self::run`], for a program that runs under several names.
    pub(crate) fn run_as(
        &mut self,
        name: &'static str,
        component: Component,
        binaries: &Binaries,
        args: &[String],
    ) -> Result<(), Error> {
        let program = binaries.path(component);
        let mut command = self
            .network
            .as_ref()
            .map_or_else(|| process::command(&program), |network| network.command(&program));
        // Go collects garbage less often: a fifth of the processor time of an API server that starts.
        command.env("GOGC", "400");
        self.start_process(name, command, args, self.folder.log(name))
    }

    /// Starts a command as a component.
    pub(crate) fn start_process(
        &mut self,
        name: &'static str,
        mut command: Command,
        args: &[String],
        log: PathBuf,
    ) -> Result<(), Error> {
        command.args(args);
        let process = Process::start(name, command, log);
        self.processes.push(process.context(StartSnafu { component: name })?);
        Ok(())
    }
}
