//! Configuration and start of a cluster.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::Command;

use snafu::ResultExt as _;

use crate::{
    Cluster, Error,
    binaries::{Binaries, Component},
    cert_manager, client, components,
    error::{FILES, KEYS, PORT},
    folder::Folder,
    layout::{ADMIN_KUBECONFIG, MASTERS},
    network::{self, Network},
    node,
    pki::Authority,
    ports::ReservedPort,
    process::{self, Process},
    readiness,
};

/// Configuration of a cluster, created by [`Cluster::builder`].
#[derive(Clone, Debug, Default)]
#[must_use = "nothing happens until `start`"]
pub struct Builder {
    pub(crate) controller_manager: bool,
    cert_manager: bool,
    cainjector: bool,
    webhooks_by_service: bool,
    pub(crate) nodes: u8,
    pub(crate) webhook_client: Option<String>,
    pub(crate) api_server_args: Vec<String>,
    kubernetes: Option<String>,
}

impl Builder {
    /// Runs kube-controller-manager: Deployments create pods, deleted namespaces are finalized, and every namespace gets its
    /// ServiceAccount `default`.
    ///
    /// Without it no namespace has a ServiceAccount, and the admission plugin ServiceAccount would deny pods. The API server
    /// therefore enables that plugin only together with kube-controller-manager.
    pub fn controller_manager(mut self) -> Self {
        self.controller_manager = true;
        self
    }

    /// Installs cert-manager's CustomResourceDefinitions and runs its controller, which creates the Secrets of Certificates
    /// with CA and self-signed issuers.
    ///
    /// Its webhook does not run: objects that it would deny, such as a Certificate of less than an hour, are accepted.
    pub fn cert_manager(mut self) -> Self {
        self.cert_manager = true;
        self
    }

    /// Installs cert-manager's CustomResourceDefinitions and runs its cainjector, which injects CAs into annotated objects.
    pub fn cainjector(mut self) -> Self {
        self.cainjector = true;
        self
    }

    /// Puts the API server into a separate network namespace, so that a webhook of this process can be registered by Service,
    /// with [`Cluster::host_address`] in an EndpointSlice (before Kubernetes 1.34 in Endpoints). Needs root, see [`Builder::check`].
    ///
    /// The API server cannot reach this machine's 127.0.0.1 then: servers of the test, including those registered by URL,
    /// listen on [`Cluster::host_address`].
    pub fn webhooks_by_service(mut self) -> Self {
        self.webhooks_by_service = true;
        self
    }

    /// Adds nodes that run pods: `node`, `node-2` and so on, each with containerd, runc, CNI plugins and a kubelet. Adds
    /// kube-proxy, CoreDNS, kube-controller-manager, kube-scheduler and the network of [`Builder::webhooks_by_service`]. Needs
    /// root and more, see [`Builder::check`].
    ///
    /// Pods have IPv4 and IPv6 addresses. They reach the API server by the Service `kubernetes`, and servers of this process on
    /// [`Cluster::host_address`]. The names of Services resolve. Pods reach and resolve nothing beyond this machine. Images come
    /// from [`Cluster::load_image`]; `testbed.test/hello:1` is there, which responds to HTTP requests on port 8080 with the
    /// pod's name. This process reaches pods and cluster IPs by [`Cluster::connect`].
    ///
    /// All nodes share one network, like processes on one machine. Each can be ended separately ([`Cluster::kill_node`]).
    pub fn nodes(mut self, count: u8) -> Self {
        self.nodes = count;
        self.controller_manager().webhooks_by_service()
    }

    /// Makes the API server present a certificate with this common name to webhooks that request one. The cluster's authority
    /// issues it: `pki/ca.crt` in [`Cluster::folder`].
    pub fn webhook_client(mut self, common_name: &str) -> Self {
        self.webhook_client = Some(common_name.to_owned());
        self
    }

    /// Adds command line arguments of the API server, such as `--audit-log-maxsize=1`. They override those of the test bed.
    ///
    /// Clients connect to the address in `--bind-address`, which is an address of this machine, such as `::1` for IPv6. Without
    /// it and without [`Builder::webhooks_by_service`], the API server binds to 127.0.0.1.
    pub fn api_server_args<A: Into<String>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.api_server_args.extend(args.into_iter().map(Into::into));
        self
    }

    /// Checks if this machine can run the cluster. [`Builder::start`] begins with this check.
    ///
    /// # Errors
    ///
    /// Returns the first missing requirement, such as root, or Go if a program has to be built, or an unknown version of
    /// Kubernetes.
    pub fn check(&self) -> Result<(), Error> {
        let binaries = self.selected()?;
        if self.nodes > 0 {
            node::check()?;
        } else if self.webhooks_by_service {
            network::check()?;
        }
        binaries.check(&self.components())
    }

    /// Runs this minor version of Kubernetes, from `1.30` to `1.37`. Without it, `LUCID_TESTBED_KUBERNETES` may name one.
    /// [`Builder::check`] tells whether a version is known.
    pub fn kubernetes(mut self, minor: &str) -> Self {
        self.kubernetes = Some(minor.to_owned());
        self
    }

    /// Starts the cluster and waits until it serves.
    ///
    /// The first start on a machine builds the programs, which takes minutes; a line on standard error says so. Later ones take
    /// some 4 s, and a few more with a node. Dropping the future ends the processes it has started.
    ///
    /// # Errors
    ///
    /// Returns an error if a program is unavailable, if a required network namespace cannot be created, or if a component ends or is
    /// not ready within two minutes. The error then quotes the end of the component's log, and the logs are kept.
    pub async fn start(self) -> Result<Cluster, Error> {
        // Reported before minutes are spent on building.
        self.check()?;
        let binaries = self.selected()?;
        binaries.ensure_async(&self.components()).await?;
        let mut cluster = self.clone().prepare()?;

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
            readiness::service_account(&mut cluster).await?;
        }
        if self.nodes > 0 {
            let port = cluster.reserve_port()?;
            let args = components::scheduler(&cluster, port);
            cluster.run(Component::Scheduler, &binaries, &args)?;
            readiness::healthy(&mut cluster, Component::Scheduler, port).await?;
            node::start(&mut cluster, &binaries, self.nodes).await?;
        }
        let mut parts = Vec::new();
        parts.extend(self.cert_manager.then_some(cert_manager::CONTROLLER));
        parts.extend(self.cainjector.then_some(cert_manager::CAINJECTOR));
        if !parts.is_empty() {
            cert_manager::start(&mut cluster, &binaries, &parts).await?;
        }
        cluster.folder.failed = false;
        Ok(cluster)
    }

    fn selected(&self) -> Result<Binaries, Error> {
        let binaries = Binaries::from_env()?;
        match &self.kubernetes {
            Some(minor) => binaries.kubernetes(minor),
            None => Ok(binaries),
        }
    }

    /// Address of the API server in the network of this machine.
    fn bind_address(&self) -> IpAddr {
        let mut args = self.api_server_args.iter().rev();
        let given = args.find_map(|arg| arg.strip_prefix("--bind-address=")?.parse().ok());
        given.unwrap_or_else(|| Ipv4Addr::LOCALHOST.into())
    }

    fn components(&self) -> Vec<Component> {
        let mut needed = vec![Component::Etcd, Component::ApiServer];
        needed.extend(self.controller_manager.then_some(Component::ControllerManager));
        if self.nodes > 0 {
            needed.push(Component::Scheduler);
            needed.extend(Component::NODE);
        }
        if self.cert_manager || self.cainjector {
            needed.extend(Component::CERT_MANAGER);
        }
        needed
    }

    /// Creates a cluster with its folder, network, keys and client, without processes.
    fn prepare(self) -> Result<Cluster, Error> {
        let folder = Folder::create().whatever_context(FILES)?;
        let network =
            self.webhooks_by_service.then(|| Network::create(folder.log("namespace"))).transpose()?;
        let address = network.as_ref().map_or_else(|| self.bind_address(), |it| it.inside_address().into());
        let port = ReservedPort::new().whatever_context(PORT)?;
        let server = format!("https://{}", SocketAddr::new(address, port.number));

        let authority = Authority::new().whatever_context(KEYS)?;
        let kubeconfig =
            authority.kubeconfig(&server, "kubernetes-admin", Some(MASTERS)).whatever_context(KEYS)?;
        folder.write(ADMIN_KUBECONFIG, &kubeconfig).whatever_context(FILES)?;
        let client = client::with_user(&server, &authority, client::user_of(&kubeconfig)?)?;
        let serving = authority.serving_pair(address).whatever_context(KEYS)?;
        components::write_files(&folder, &authority, &serving)?;
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
            client,
            options: self,
        })
    }
}

impl Cluster {
    fn reserve_port(&mut self) -> Result<u16, Error> {
        let port = ReservedPort::new().whatever_context(PORT)?;
        let number = port.number;
        self.ports.push(port);
        Ok(number)
    }

    /// Starts a component in the cluster's network, by default that of this machine.
    pub(crate) fn run(
        &mut self,
        component: Component,
        binaries: &Binaries,
        args: &[String],
    ) -> Result<(), Error> {
        self.run_as(component.name(), component, binaries, args)
    }

    /// Like [`Self::run`], for a program that runs under several names.
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
        // Less frequent garbage collection saves a fifth of the CPU time of a starting API server.
        command.env("GOGC", "400");
        self.start_process(name, command, args, self.folder.log(name))
    }

    pub(crate) fn start_process(
        &mut self,
        name: &'static str,
        mut command: Command,
        args: &[String],
        log: PathBuf,
    ) -> Result<(), Error> {
        command.args(args);
        let process = Process::start(name, command, log);
        self.processes.push(process.with_whatever_context(|_| format!("failed to start {name}"))?);
        Ok(())
    }
}
