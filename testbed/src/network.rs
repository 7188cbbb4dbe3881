//! A network namespace for one API server, joined to this machine by a veth pair.

use std::{
    fs, io,
    net::Ipv4Addr,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::{Duration, Instant},
};

use snafu::{ResultExt as _, Snafu, ensure};

use crate::process::{self, Process};

/// The namespace has no name: it lives as long as a process is in it, so that nothing of it can
/// outlive us.
#[derive(Debug)]
pub(crate) struct Network {
    /// A process that does nothing but keep the namespace.
    holder: Process,
    link: String,
    subnet: u16,
}

/// Networks of four addresses in 10.77.0.0/16.
const SUBNETS: u16 = 1 << 14;

impl Network {
    pub(crate) fn create(log: PathBuf) -> Result<Self, Error> {
        let mut sleep = process::command("unshare");
        sleep.args(["--net", "--", "sleep", "infinity"]);
        let holder = Process::start("unshare", sleep, log).context(RunSnafu { command: "unshare --net" })?;
        await_namespace(&holder)?;
        let (link, subnet) = claim_link(holder.pid())?;
        let network = Self { holder, link, subnet };
        network.set_up()?;
        Ok(network)
    }

    fn set_up(&self) -> Result<(), Error> {
        let host = format!("{}/30", self.host_address());
        let inside = format!("{}/30", self.inside_address());
        run(Command::new("ip").args(["address", "add", &host, "dev", &self.link]))?;
        run(Command::new("ip").args(["link", "set", &self.link, "up"]))?;
        run(self.command("ip").args(["link", "set", "lo", "up"]))?;
        run(self.command("ip").args(["address", "add", &inside, "dev", "eth0"]))?;
        run(self.command("ip").args(["link", "set", "eth0", "up"]))
    }

    /// A command that runs inside.
    pub(crate) fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = process::command("nsenter");
        command.arg(format!("--net=/proc/{}/ns/net", self.holder.pid())).arg("--").arg(program);
        command
    }

    /// This machine as seen from inside.
    pub(crate) fn host_address(&self) -> Ipv4Addr {
        self.address(1)
    }

    /// The API server as seen from this machine.
    pub(crate) fn inside_address(&self) -> Ipv4Addr {
        self.address(2)
    }

    fn address(&self, host: u32) -> Ipv4Addr {
        let network = u32::from(Ipv4Addr::new(10, 77, 0, 0)) + u32::from(self.subnet) * 4;
        Ipv4Addr::from(network + host)
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        // The kernel would remove it with the namespace, but some time afterwards.
        let _ = run(Command::new("ip").args(["link", "delete", &self.link]));
    }
}

fn await_namespace(holder: &Process) -> Result<(), Error> {
    let ours = fs::read_link("/proc/self/ns/net").context(RunSnafu { command: "readlink" })?;
    let deadline = Instant::now() + Duration::from_secs(10);
    while Instant::now() < deadline {
        // An empty link or none: the holder has ended, or has not begun.
        match fs::read_link(format!("/proc/{}/ns/net", holder.pid())) {
            Ok(theirs) if theirs != ours => return Ok(()),
            _ => thread::sleep(Duration::from_millis(5)),
        }
    }
    FailedSnafu { command: "unshare --net", output: process::tail(&holder.log) }.fail()
}

/// A link's name belongs to one interface on this machine, so that the name, with the number of the
/// subnet in it, is also the claim to the subnet.
fn claim_link(namespace: u32) -> Result<(String, u16), Error> {
    let namespace = namespace.to_string();
    for subnet in 0..SUBNETS {
        let link = format!("lucidtb{subnet}");
        let taken = Path::new("/sys/class/net").join(&link);
        if taken.exists() {
            continue;
        }
        let added = run(Command::new("ip")
            .args(["link", "add", &link, "type", "veth"])
            .args(["peer", "name", "eth0", "netns", &namespace]));
        match added {
            Ok(()) => return Ok((link, subnet)),
            Err(_) if taken.exists() => {}
            Err(error) => return Err(error),
        }
    }
    FailedSnafu { command: "ip link add", output: "all subnets of 10.77.0.0/16 are taken" }.fail()
}

fn run(command: &mut Command) -> Result<(), Error> {
    let text = || {
        let words = std::iter::once(command.get_program()).chain(command.get_args());
        words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
    };
    let text = text();
    let output = command.output().context(RunSnafu { command: &text })?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), FailedSnafu { command: text, output: errors.trim() });
    Ok(())
}

pub(crate) fn ensure_root() -> Result<(), Error> {
    ensure!(rustix::process::geteuid().is_root(), NotRootSnafu);
    Ok(())
}

/// Whether [`Builder::webhooks_by_service`](crate::Builder::webhooks_by_service) can work: we are
/// root, may make network namespaces and veth pairs, and have the programs `unshare`, `nsenter`
/// (util-linux) and `ip` (iproute2).
pub fn can_use_namespaces() -> bool {
    // In a namespace that ends with the probe.
    let probe = ["--net", "nsenter", "--net=/proc/self/ns/net", "ip", "link", "add", "type", "veth"];
    ensure_root().is_ok() && run(Command::new("unshare").args(probe)).is_ok()
}

/// Why there is no network namespace.
#[derive(Debug, Snafu)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the message of each variant says what it is")]
pub enum Error {
    #[snafu(display(
        "failed to make a network namespace: webhooks by Service need root; as another user register \
         webhooks by URL, without Builder::webhooks_by_service"
    ))]
    NotRoot,

    #[snafu(display("failed to run `{command}` (util-linux and iproute2 are needed)"))]
    Run { command: String, source: io::Error },

    #[snafu(display("failed to make a network namespace: `{command}` says: {output}"))]
    Failed { command: String, output: String },
}
