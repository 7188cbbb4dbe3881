//! Nodes that run pods.

mod config;
mod images;
mod start;

use std::{
    env,
    ffi::{OsStr, OsString},
    net::Ipv4Addr,
    path::{Path, PathBuf},
    process::Command,
    sync::atomic::{AtomicU32, Ordering},
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};
use snafu::{ResultExt as _, ensure_whatever};

use crate::{
    Error,
    binaries::{Binaries, Component},
    cgroup::Cgroup,
    folder::Folder,
    layout::NODE_NAME,
    network::Network,
    process::{self, Process},
};

pub(crate) use start::start;

/// Timeout for the kernel to end every process of the node.
const END: Duration = Duration::from_secs(20);

/// First process of the node's namespaces. It reports its pid on this machine, while /proc is still that of this machine.
const INIT: &str = "read -r pid rest </proc/self/stat && echo \"$pid\" && exec sleep infinity";

/// Addresses of the pods of all nodes.
const POD_RANGE: &str = "10.78.0.0/16";
/// Address of the cluster's DNS server: one of the nodes, so that it needs no Service.
const DNS: Ipv4Addr = Ipv4Addr::new(169, 254, 20, 10);

/// Fixed paths outside the cluster's folder that containerd, the kubelet and the CNI plugins write to.
const HIDDEN: [&str; 3] = ["/run", "/var/lib", "/var/log"];

/// Makes mounts private to the node, but shared within it, as volumes of pods require.
const SET_UP: &str = r#"
mount --make-rshared /
mount -t proc proc /proc
for folder in "$@"; do mount -t tmpfs -o mode=755 tmpfs "$folder"; done
"#;

const SET_UP_FAILED: &str = "failed to set up the namespaces of a node (util-linux, iproute2, nftables and a privileged root are needed)";
const CGROUP_FAILED: &str = "failed to make a cgroup for a node";
const STAGE_FAILED: &str = "failed to make an image";
const NO_NODE: &str = "failed to reach a node: the cluster has none; start it with Builder::nodes (root)";

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
        set_up.args(["-ec", SET_UP, "sh"]).args(hidden).env("PODS", POD_RANGE).env("DNS", DNS.to_string());
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

    pub(crate) fn logs(&self, folder: &Folder) -> [PathBuf; 2] {
        [Component::Containerd, Component::Kubelet].map(|program| folder.log(&self.place.own(program.name())))
    }
}

/// Identity and paths of one node. All nodes share one network, like processes on one machine, so each has its own ports and
/// pod addresses.
#[derive(Clone, Debug)]
struct Place {
    index: u8,
    name: String,
    folder: PathBuf,
}

impl Place {
    fn new(folder: &Folder, index: u8) -> Self {
        let name = match index {
            0 => NODE_NAME.to_owned(),
            _ => format!("{NODE_NAME}-{}", index + 1),
        };
        Self { index, folder: folder.path().join(&name), name }
    }

    fn socket(&self) -> PathBuf {
        self.folder.join("containerd.sock")
    }

    fn own(&self, name: &str) -> String {
        match self.index {
            0 => name.to_owned(),
            _ => format!("{name}-{}", self.name),
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Checks if [`Builder::nodes`](crate::Builder::nodes) works here: it needs root with permission to create namespaces, mounts and
/// cgroups, and the programs `unshare`, `nsenter`, `mount` (util-linux), `ip` (iproute2) and `nft` (nftables).
pub(crate) fn check() -> Result<(), Error> {
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
    Ok(())
}
