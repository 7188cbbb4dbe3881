//! Network namespace of one cluster, connected to this machine by a veth pair.

use std::{
    fmt,
    fs::File,
    io,
    net::{Ipv4Addr, SocketAddr, TcpStream},
    os::fd::AsFd as _,
    path::PathBuf,
    process::Command,
    thread,
    time::Duration,
};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use serde_json::Value;
use snafu::{ResultExt as _, ensure_whatever, whatever};

use crate::{
    Error,
    process::{self, Process},
};

/// An unnamed network namespace: it exists as long as a process is in it, so that it cannot outlive this process.
#[derive(Debug)]
pub(crate) struct Network {
    /// Idle process that keeps the namespace.
    holder: Process,
    link: String,
    subnet: u16,
}

/// Range of the /30 networks.
const RANGE: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 0);
const RANGE_LENGTH: u8 = 16;
const SUBNETS: u16 = 1 << 14;
const SUBNET_LENGTH: u8 = 30;

const HOLDER: &str = "failed to make a network namespace: `unshare` did not start";

impl Network {
    pub(crate) fn create(log: PathBuf) -> Result<Self, Error> {
        let mut shell = process::command("unshare");
        shell.args(["--net", "--", "sh", "-c", "echo ready && exec sleep infinity"]);
        let mut holder = Process::start("unshare", shell, log).whatever_context(HOLDER)?;
        let output = holder.first_output()?;
        ensure_whatever!(output == "ready", "failed to make a network namespace: `unshare` says: {output}");
        let (link, subnet) = claim_link(holder.pid())?;
        let network = Self { holder, link, subnet };
        network.set_up()?;
        Ok(network)
    }

    fn set_up(&self) -> Result<(), Error> {
        let host = format!("{}/{SUBNET_LENGTH}", self.host_address());
        let inside = format!("{}/{SUBNET_LENGTH}", self.inside_address());
        run(Command::new("ip").args(["address", "add", &host, "dev", &self.link]))?;
        run(Command::new("ip").args(["link", "set", &self.link, "up"]))?;
        run(self.command("ip").args(["link", "set", "lo", "up"]))?;
        run(self.command("ip").args(["address", "add", &inside, "dev", "eth0"]))?;
        run(self.command("ip").args(["link", "set", "eth0", "up"]))?;
        Ok(())
    }

    pub(crate) fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = process::command("nsenter");
        command.arg(format!("--net=/proc/{}/ns/net", self.holder.pid())).arg("--").arg(program);
        command
    }

    pub(crate) fn namespace(&self) -> Namespace {
        Namespace(format!("/proc/{}/ns/net", self.holder.pid()).into())
    }

    /// Address of this machine from inside the namespace.
    pub(crate) fn host_address(&self) -> Ipv4Addr {
        self.address(1)
    }

    /// Address of the API server from this machine.
    pub(crate) fn inside_address(&self) -> Ipv4Addr {
        self.address(2)
    }

    fn address(&self, host: u32) -> Ipv4Addr {
        Ipv4Addr::from(u32::from(subnet_address(self.subnet)) + host)
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Namespace(PathBuf);

impl Namespace {
    /// Connects from inside the namespace. Blocks.
    pub(crate) fn connect(&self, address: SocketAddr, patience: Duration) -> io::Result<TcpStream> {
        let namespace = File::open(&self.0)?;
        // A thread enters a namespace for itself only, and a socket stays in the namespace of its creation.
        let connecting = thread::spawn(move || {
            move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?;
            TcpStream::connect_timeout(&address, patience)
        });
        connecting.join().map_err(|_| io::Error::other("the connecting thread panicked"))?
    }
}

fn subnet_address(subnet: u16) -> Ipv4Addr {
    Ipv4Addr::from(u32::from(RANGE) + u32::from(subnet) * 4)
}

impl Drop for Network {
    fn drop(&mut self) {
        // The kernel would remove the link with the namespace, but only some time afterwards.
        let _ = run(Command::new("ip").args(["link", "delete", &self.link]));
    }
}

/// Claims a subnet by its link. The name of a link, which contains the number of the subnet, is unique on this machine. Skips
/// subnets that this machine has a route to.
fn claim_link(namespace: u32) -> Result<(String, u16), Error> {
    let namespace = namespace.to_string();
    let routes = Route::all()?;
    let routed = |subnet| routes.iter().any(|route| route.overlaps(subnet_address(subnet), SUBNET_LENGTH));
    for subnet in (0..SUBNETS).filter(|subnet| !routed(*subnet)) {
        let link = format!("lucidtb{subnet}");
        let added = run(Command::new("ip")
            .args(["link", "add", &link, "type", "veth"])
            .args(["peer", "name", "eth0", "netns", &namespace]));
        match added {
            Ok(_) => return Ok((link, subnet)),
            // Of another cluster.
            Err(error) if format!("{error:?}").contains("File exists") => {}
            Err(error) => return Err(error),
        }
    }
    let routes = routes.iter().filter(|route| route.overlaps(RANGE, RANGE_LENGTH));
    let routes = routes.map(ToString::to_string).collect::<Vec<_>>().join(", ");
    whatever!(
        "failed to choose a subnet for a network namespace: this machine has routes into every one of {RANGE}/{RANGE_LENGTH}: {routes}"
    )
}

/// A destination in this machine's routing tables, at most as wide as [`RANGE`].
#[derive(Debug, PartialEq, Eq)]
struct Route {
    network: Ipv4Addr,
    length: u8,
    device: String,
}

impl Route {
    fn all() -> Result<Vec<Self>, Error> {
        let mut command = Command::new("ip");
        let json = run(command.args(["-json", "-4", "route", "show", "table", "all"]))?;
        let routes: Vec<Value> = serde_json::from_slice(&json)
            .whatever_context("failed to read the routes of this machine, the output of `ip -json route`")?;
        Ok(routes.iter().filter_map(Self::parse).collect())
    }

    /// Skips wider routes: the default route, and those of a VPN.
    fn parse(route: &Value) -> Option<Self> {
        let destination = route["dst"].as_str()?;
        let (network, length) = destination.split_once('/').unwrap_or((destination, "32"));
        let route = Self {
            network: network.parse().ok()?,
            length: length.parse().ok()?,
            device: route["dev"].as_str().unwrap_or("no device").to_owned(),
        };
        (route.length >= RANGE_LENGTH).then_some(route)
    }

    fn overlaps(&self, network: Ipv4Addr, length: u8) -> bool {
        let differing = u32::from(self.network) ^ u32::from(network);
        differing.leading_zeros() >= self.length.min(length).into()
    }
}

impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{} ({})", self.network, self.length, self.device)
    }
}

fn run(command: &mut Command) -> Result<Vec<u8>, Error> {
    process::output(command)
        .whatever_context("failed to make a network namespace (util-linux and iproute2 are needed)")
}

/// Checks if [`Builder::webhooks_by_service`](crate::Builder::webhooks_by_service) works here. Needs root, permission to create
/// network namespaces and veth pairs, and the programs `unshare`, `nsenter` (util-linux) and `ip` (iproute2).
pub(crate) fn check() -> Result<(), Error> {
    ensure_whatever!(
        rustix::process::geteuid().is_root(),
        "failed to make a network namespace: webhooks by Service need root; as another user register webhooks by URL, without Builder::webhooks_by_service"
    );
    // In a namespace that ends with the probe.
    let probe = ["--net", "nsenter", "--net=/proc/self/ns/net", "ip", "link", "add", "type", "veth"];
    run(Command::new("unshare").args(probe)).map(drop)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn subnets_overlapping_a_route_are_taken() {
        // 10.77.0.4/30
        for (destination, taken) in [
            ("default", false),
            ("0.0.0.0/0", false),
            ("0.0.0.0/1", false),
            ("10.0.0.0/8", false),
            ("10.77.0.0/16", true),
            ("10.77.0.0/29", true),
            ("10.77.0.4/30", true),
            ("10.77.0.6", true),
            ("10.77.0.0/30", false),
            ("10.77.0.8/29", false),
            ("192.168.0.0/16", false),
        ] {
            let route = Route::parse(&json!({"dst": destination, "dev": "tun0", "flags": []}));
            let overlaps = route.is_some_and(|route| route.overlaps(subnet_address(1), SUBNET_LENGTH));
            assert_eq!(overlaps, taken, "{destination}");
        }
    }
}
