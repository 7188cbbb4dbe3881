//! Network namespaces of a pod and its node, connected by a veth pair.

use std::{
    fs::File,
    io::{self, Read as _},
    net::{TcpListener, TcpStream, ToSocketAddrs},
    os::fd::{AsFd as _, AsRawFd as _},
    process::{Command, Stdio},
    sync::{Arc, mpsc},
    thread,
};

use rustix::{
    process::Uid,
    thread::{LinkNameSpaceType, move_into_link_name_space, set_thread_groups, set_thread_res_uid},
};

/// An unnamed network namespace. The kernel removes it with its last handle and thread, so that namespaces neither
/// outlive the tests nor are shared between them.
#[derive(Debug, Clone)]
pub(crate) struct Namespace(Arc<File>);

impl Namespace {
    fn new() -> Self {
        let mut holder = Command::new("unshare");
        // Prints a line when inside the namespace and exits at the end of its input, when the test drops it or exits.
        holder.args(["--net", "--", "sh", "-c", "echo inside; exec cat"]);
        let mut holder = holder.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        holder.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
        let file = File::open(format!("/proc/{}/ns/net", holder.id())).unwrap();
        drop(holder.stdin.take());
        holder.wait().unwrap();
        Self(Arc::new(file))
    }

    fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.0.as_raw_fd())
    }

    pub(crate) fn command(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net={}", self.path())).arg("--").arg(program);
        command
    }

    /// Runs `line`, split at white space, inside the namespace. Returns its output and asserts that it succeeds.
    pub(crate) fn run(&self, line: &str) -> String {
        let mut words = line.split_whitespace();
        let output = self.command(words.next().unwrap()).args(words).output().unwrap();
        assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Runs `what` on a thread inside the namespace with the UID `uid`. Sockets that it creates keep both.
    pub(crate) fn as_user<T: Send>(&self, uid: u32, what: impl FnOnce() -> T + Send) -> T {
        thread::scope(|scope| {
            let thread = scope.spawn(|| {
                self.enter(uid).unwrap();
                what()
            });
            thread.join().unwrap()
        })
    }

    /// Handles every connection to `address` on a separate thread, inside the namespace with the UID `uid`, until the
    /// process ends.
    pub(crate) fn serve(
        &self,
        uid: u32,
        address: impl ToSocketAddrs + Send + 'static,
        handle: impl Fn(TcpStream) -> io::Result<()> + Send + Sync + 'static,
    ) {
        let (inside, handle) = (self.clone(), Arc::new(handle));
        let (ready, is_ready) = mpsc::channel();
        thread::spawn(move || {
            inside.enter(uid).unwrap();
            let listener = TcpListener::bind(address).unwrap();
            ready.send(()).unwrap();
            for stream in listener.incoming().flatten() {
                let handle = Arc::clone(&handle);
                // A new thread inherits the namespace and UID of its creator.
                thread::spawn(move || drop(handle(stream)));
            }
        });
        is_ready.recv().unwrap();
    }

    /// Moves only this thread into the namespace and sets its UID.
    pub(crate) fn enter(&self, uid: u32) -> io::Result<()> {
        move_into_link_name_space(self.0.as_fd(), Some(LinkNameSpaceType::Network))?;
        if uid != 0 {
            set_thread_groups(&[])?;
            let uid = Uid::from_raw(uid);
            set_thread_res_uid(uid, uid, uid)?;
        }
        Ok(())
    }
}

/// A node with the addresses 10.0.0.1 and fd00::1 and a pod with 10.0.0.2 and fd00::2. Both also have link-local
/// addresses.
#[derive(Debug)]
pub(crate) struct Network {
    pub(crate) node: Namespace,
    pub(crate) pod: Namespace,
}

impl Network {
    /// Returns `None`, with a message, if network namespaces cannot be created.
    pub(crate) fn new() -> Option<Self> {
        // The namespace of the probe ends with it.
        let probe = Command::new("unshare").args(["--net", "ip", "link", "add", "type", "veth"]).output();
        if !rustix::process::geteuid().is_root() || !probe.is_ok_and(|output| output.status.success()) {
            lucid_e2e::skip("network namespaces need root, unshare (util-linux) and ip (iproute2)");
            return None;
        }
        let network = Self { node: Namespace::new(), pod: Namespace::new() };
        let Self { node, pod } = &network;
        node.run(&format!("ip link add pod type veth peer name eth0 netns {}", pod.path()));
        for (namespace, link, host) in [(node, "pod", 1), (pod, "eth0", 2)] {
            namespace.run("ip link set lo up");
            namespace.run(&format!("ip link set {link} addrgenmode none"));
            namespace.run(&format!("ip address add 10.0.0.{host}/24 dev {link}"));
            namespace.run(&format!("ip address add fd00::{host}/64 dev {link} nodad"));
            namespace.run(&format!("ip address add fe80::{host}/64 dev {link} nodad"));
            namespace.run(&format!("ip link set {link} up"));
        }
        pod.run("ip route add default via 10.0.0.1");
        pod.run("ip route add default via fd00::1");
        Some(network)
    }
}
