//! Nodes that run pods.

mod cgroup;
mod config;
mod images;

use std::{
    env,
    ffi::{OsStr, OsString},
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Command,
    sync::atomic::{AtomicU32, Ordering},
    thread,
    time::{Duration, Instant},
};

use k8s_openapi::api::core::v1::Node as NodeObject;
use kube::Api;
use rustix::process::{Pid, Signal, kill_process};
use snafu::{OptionExt as _, ResultExt as _, ensure_whatever};

use crate::{
    Binaries, Cluster, Component, Error, Image, components,
    error::FILES,
    folder::Folder,
    network::{Namespace, Network},
    process::{self, Process},
    readiness, skip,
};

pub(crate) use cgroup::{Cgroup, remove as remove_cgroup};
pub(crate) use config::NODE_NAME;
use config::Place;
use images::Ctr;

/// Timeout for the kernel to end every process of the node.
const END: Duration = Duration::from_secs(20);

/// First process of the node's namespaces. It reports its pid on this machine, while /proc is still that of this machine.
const INIT: &str = "read -r pid rest </proc/self/stat && echo \"$pid\" && exec sleep infinity";

/// Fixed paths outside the cluster's folder that containerd, the kubelet and the CNI plugins write to.
const HIDDEN: [&str; 3] = ["/run", "/var/lib", "/var/log"];

/// Makes mounts private to the node, but shared within it, as volumes of pods require.
const SET_UP: &str = r#"
mount --make-rshared /
mount -t proc proc /proc
for folder in "$@"; do mount -t tmpfs -o mode=755 tmpfs "$folder"; done
"#;

/// Masquerades traffic from pods to this machine, which has no route back to pods. Every other destination has a route, so that
/// the rules of kube-proxy apply, but is unreachable.
const SET_UP_NETWORK: &str = r#"
ip route add default dev eth0
ip address add "$DNS/32" dev lo
echo 1 >/proc/sys/net/ipv4/ip_forward
echo 1 >/proc/sys/net/ipv6/conf/all/forwarding
nft add table ip testbed
nft add chain ip testbed leave '{ type nat hook postrouting priority srcnat; }'
nft add rule ip testbed leave ip saddr "$PODS" oifname eth0 masquerade
"#;

const SET_UP_FAILED: &str = "failed to set up the namespaces of a node (util-linux, iproute2, nftables and a privileged root are needed)";
const CGROUP_FAILED: &str = "failed to make a cgroup for a node";
const STAGE_FAILED: &str = "failed to make an image";
const NO_NODE: &str = "failed to reach a node: the cluster has none; start it with Builder::node (root)";

/// Namespaces of a node: the network of its cluster, and separate mounts and processes. All processes in it and every mount end
/// with its first process, at the latest when this process ends.
#[derive(Debug)]
pub(crate) struct Node {
    /// Parent of the first process; ends after every process of the node.
    holder: Process,
    /// Pid of the first process on this machine.
    init: u32,
    binaries: Binaries,
    place: Place,
}

impl Node {
    fn create(place: Place, network: &Network, folder: &Folder, binaries: &Binaries) -> Result<Self, Error> {
        let mut unshare = network.command("unshare");
        unshare.args(["--mount", "--propagation", "slave", "--pid", "--fork", "--kill-child"]);
        unshare.args(["--", "sh", "-c", INIT]);
        let mut holder = Process::start("node", unshare, folder.log(&place.name))
            .whatever_context("failed to start `unshare`")?;
        let output = holder.first_output()?;
        let init = output.trim().parse();
        let init =
            init.with_whatever_context(|_| format!("failed to make a node: `unshare` says: {output}"))?;
        let node = Self { holder, init, binaries: binaries.clone(), place };

        // Keeps folders in use visible: a folder of programs may be below one of these.
        let used = [folder.path().to_owned(), binaries.folder(), binaries.node_folder()];
        let hides = |hidden: &Path| used.iter().any(|path| path.starts_with(hidden));
        let hidden = HIDDEN.map(Path::new).into_iter().filter(|path| path.is_dir() && !hides(path));
        let mut set_up = node.command("sh");
        set_up
            .args(["-ec", SET_UP, "sh"])
            .args(hidden)
            .env("PODS", config::POD_RANGE)
            .env("DNS", config::DNS.to_string());
        process::output(&mut set_up).whatever_context(SET_UP_FAILED)?;
        Ok(node)
    }

    /// Returns a command that runs on the node with access to its programs. Its working folder is `/`.
    pub(crate) fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = process::command("nsenter");
        for (option, namespace) in [("net", "net"), ("mount", "mnt"), ("pid", "pid")] {
            command.arg(format!("--{option}=/proc/{}/ns/{namespace}", self.init));
        }
        command.arg("--").arg(program).env("PATH", self.path());
        command
    }

    fn path(&self) -> OsString {
        let mut path = self.binaries.node_folder().into_os_string();
        if let Some(ours) = env::var_os("PATH") {
            path.push(":");
            path.push(ours);
        }
        path
    }

    /// Kills all processes on the node at once, like a power cut.
    pub(crate) fn kill(&mut self) {
        // While its parent lives, the pid is not reused. The kernel ends the other processes with the first one.
        if self.holder.ended().is_none()
            && let Some(pid) = i32::try_from(self.init).ok().and_then(Pid::from_raw)
        {
            let _ = kill_process(pid, Signal::KILL);
        }
        let deadline = Instant::now() + END;
        while self.holder.ended().is_none() && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(10));
        }
    }

    pub(crate) fn name(&self) -> &str {
        &self.place.name
    }

    /// Log files of its programs.
    pub(crate) fn logs(&self, folder: &Folder) -> [PathBuf; 2] {
        [Component::Containerd, Component::Kubelet].map(|program| folder.log(&self.place.own(program.name())))
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Adds nodes to a cluster with a running control plane.
pub(crate) async fn start(cluster: &mut Cluster, binaries: &Binaries, count: u8) -> Result<(), Error> {
    let network = cluster.network.as_ref().whatever_context(NO_NODE)?;
    let mut set_up = network.command("sh");
    set_up.args(["-ec", SET_UP_NETWORK]).env("PODS", config::POD_RANGE).env("DNS", config::DNS.to_string());
    process::output(&mut set_up).whatever_context(SET_UP_FAILED)?;
    let name = cluster.folder.path().file_name().unwrap_or_default().to_string_lossy();
    cluster.cgroup = Some(Cgroup::create(&name).whatever_context(CGROUP_FAILED)?);
    config::write_files(cluster).whatever_context(FILES)?;
    cluster.run(Component::KubeProxy, binaries, &config::proxy_args(cluster))?;
    cluster.run(Component::CoreDns, binaries, &config::dns_args(cluster))?;

    for index in 0..count {
        add(cluster, binaries, Place::of(cluster, index)).await?;
    }
    let namespace = cluster.network.as_ref().map(Network::namespace);
    for (component, address) in [
        (Component::KubeProxy, SocketAddr::from((components::KUBERNETES_SERVICE, 443))),
        (Component::CoreDns, SocketAddr::from((config::DNS, 53))),
    ] {
        readiness::until(cluster, component.name(), || reaches(namespace.clone(), address)).await?;
    }
    Ok(())
}

/// Adds one node, and waits until it is ready.
async fn add(cluster: &mut Cluster, binaries: &Binaries, place: Place) -> Result<(), Error> {
    let network = cluster.network.as_ref().whatever_context(NO_NODE)?;
    let cgroup = cluster.cgroup.as_ref().whatever_context(NO_NODE)?;
    let cgroup = cgroup.child(&place.name).whatever_context(CGROUP_FAILED)?;
    let node = Node::create(place.clone(), network, &cluster.folder, binaries)?;
    place.write_files(cluster, binaries, &cgroup).whatever_context(FILES)?;

    let run = |cluster: &mut Cluster, component: Component, arguments: &[String]| {
        let command = node.command(binaries.path(component));
        let log = cluster.folder.log(&place.own(component.name()));
        cluster.start_process(component.name(), command, arguments, log)
    };
    run(cluster, Component::Containerd, &place.containerd_args())?;
    let ctr = Ctr::of(&node);
    readiness::until(cluster, Component::Containerd.name(), || containerd(ctr.clone())).await?;
    let pause = Image::of_program(config::PAUSE_IMAGE, &binaries.path(Component::Pause));
    ctr.load_image(&pause.whatever_context(STAGE_FAILED)?, cluster.folder.path())?;
    let arguments = place.kubelet_args(cluster);
    run(cluster, Component::Kubelet, &arguments)?;
    cluster.nodes.push(node);
    let nodes = Api::<NodeObject>::all(cluster.client());
    readiness::until(cluster, Component::Kubelet.name(), || ready(nodes.clone(), place.name.clone())).await
}

async fn containerd(ctr: Ctr) -> Result<(), String> {
    let answer = tokio::task::spawn_blocking(move || ctr.run(&["version"]));
    let answer = answer.await.map_err(|error| error.to_string())?;
    answer.map(|_| ()).map_err(|error| error.to_string())
}

async fn ready(nodes: Api<NodeObject>, name: String) -> Result<(), String> {
    let node = nodes.get_opt(&name).await.map_err(|error| error.to_string())?;
    let status = node.ok_or("it has not registered")?.status.unwrap_or_default();
    let condition = status.conditions.into_iter().flatten().find(|condition| condition.type_ == "Ready");
    match condition {
        Some(condition) if condition.status == "True" => Ok(()),
        Some(condition) => Err(condition.message.unwrap_or_default()),
        None => Err("it has not reported its condition".to_owned()),
    }
}

async fn reaches(namespace: Option<Namespace>, service: SocketAddr) -> Result<(), String> {
    let namespace = namespace.ok_or("there is no network")?;
    let connecting = tokio::task::spawn_blocking(move || namespace.connect(service, Duration::from_secs(1)));
    let connected = connecting.await.map_err(|error| error.to_string())?;
    connected.map(|_| ()).map_err(|error| format!("{service}: {error}"))
}

/// Checks if [`Builder::node`](crate::Builder::node) works here: it needs root with permission to create namespaces, mounts and
/// cgroups, and the programs `unshare`, `nsenter`, `mount` (util-linux), `ip` (iproute2) and `nft` (nftables); until runc is built,
/// also `pkg-config` and libseccomp with its headers.
///
/// # Errors
///
/// Returns the first missing requirement.
pub fn check() -> Result<(), Error> {
    ensure_whatever!(rustix::process::geteuid().is_root(), "failed to run a node: that needs root");
    // In namespaces that end with the probe.
    let probe = "mount --make-rprivate / && mount -t tmpfs tmpfs /run && mount -t proc proc /proc \
         && nsenter --net=/proc/self/ns/net ip link add type veth && nft add table ip testbed";
    let mut unshare = Command::new("unshare");
    process::output(unshare.args(["--net", "--mount", "--pid", "--fork", "sh", "-c", probe]))
        .whatever_context(SET_UP_FAILED)?;
    // Other threads may probe concurrently.
    static PROBES: AtomicU32 = AtomicU32::new(0);
    let number = PROBES.fetch_add(1, Ordering::Relaxed);
    let probe = Cgroup::create(&format!("lucid-testbed-probe-{}-{number}", std::process::id()));
    probe.whatever_context(CGROUP_FAILED).map(drop)?;
    if !Binaries::from_env()?.path(Component::Runc).exists() {
        let mut library = Command::new("pkg-config");
        process::output(library.args(["--exists", "libseccomp"])).whatever_context(
            "failed to run a node: to build runc, pkg-config and libseccomp-dev are needed",
        )?;
    }
    Ok(())
}

/// Returns `true` if a node can run here. Otherwise, if [`check`] fails, [skips](skip()) the test.
///
/// # Panics
///
/// See [`skip()`].
pub fn can_run() -> bool {
    let can = check();
    if let Err(error) = &can {
        skip(snafu::Report::from_error(error).to_string().trim_end());
    }
    can.is_ok()
}
