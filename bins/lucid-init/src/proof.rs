//! Verifies the installed rules by connecting to redirected ports.

use std::{
    collections::HashSet,
    fs, io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream},
    num::NonZeroU16,
    thread,
    time::{Duration, Instant},
};

use lucid_chain::redirect::Redirect;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, listen, socket_with, sockopt};
use snafu::{ResultExt as _, Snafu};

use crate::addresses;

/// Connections stay on this machine, but the kernel retransmits a dropped SYN only after a second.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// Longest pause between two attempts before giving up.
const MAX_PAUSE: Duration = Duration::from_secs(1);

/// Deadline of all connections.
const DEADLINE: Duration = Duration::from_secs(10);

/// Maximum number of concurrent connections; below the backlog of a listener.
const MAX_CONCURRENT: usize = 64;

/// Documentation addresses (RFC 5737, RFC 3849), used as the target of outbound connections.
const EXTERNAL_HOSTS: [IpAddr; 2] =
    [IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1))];

/// Connects to every guarded port on every address of the pod and to the outbound ports of an external host, and
/// checks that each connection arrives at the first auditor's port of its route. Listens on that port if no auditor
/// does yet. Returns the number of connections.
pub(crate) fn prove(redirect: &Redirect) -> Result<usize, NotProven> {
    let mut listeners = Vec::new();
    for first in redirect.first_ports() {
        let families = [listener(AddressFamily::INET, first)?, listener(AddressFamily::INET6, first)?];
        listeners.extend(families.into_iter().flatten().map(|listener| (first, listener)));
    }
    let deadline = Instant::now() + DEADLINE;

    let (own, external) = (own_targets(redirect), external_targets(redirect));
    let mut proven = 0;
    // The pod's own addresses come first: if the rules have no effect at all, no traffic leaves the pod.
    for targets in own.chunks(MAX_CONCURRENT).chain(external.chunks(MAX_CONCURRENT)) {
        proven += arrive(targets, &listeners, deadline)?;
    }
    Ok(proven)
}

#[derive(Debug, Clone, Copy)]
struct Target {
    address: SocketAddr,
    /// Port of the first auditor at which the connection has to arrive.
    first: NonZeroU16,
    /// `true` for an address of this pod. External addresses may be unreachable: then no traffic can leave and no
    /// rule is needed.
    own: bool,
}

fn own_targets(redirect: &Redirect) -> Vec<Target> {
    let (addresses, guarded) = (addresses::all(), redirect.guarded());
    let of_address = |ip| {
        let address = move |port: &NonZeroU16| SocketAddr::new(ip, port.get());
        guarded.iter().map(move |(port, first)| Target { address: address(port), first: *first, own: true })
    };
    addresses.into_iter().flat_map(of_address).collect()
}

fn external_targets(redirect: &Redirect) -> Vec<Target> {
    let address = |port: NonZeroU16| EXTERNAL_HOSTS.map(|host| SocketAddr::new(host, port.get()));
    let first = redirect.first_ports().next();
    let targets = first.into_iter().flat_map(|first| {
        redirect.outbound().flat_map(address).map(move |address| Target { address, first, own: false })
    });
    targets.collect()
}

/// Connects to the targets. Returns the number of connections if all that can be established arrive at the first
/// auditor.
fn arrive(
    targets: &[Target],
    listeners: &[(NonZeroU16, TcpListener)],
    deadline: Instant,
) -> Result<usize, NotProven> {
    let mut proven = 0;
    let mut targets = targets.to_vec();
    let mut pause = Duration::from_micros(100);
    loop {
        let mut open = Vec::new();
        let mut failure = None;
        let mut again = Vec::new();
        for target in targets {
            match connect(target.address) {
                Ok((stream, source)) => open.push((target, stream, source)),
                Err(error) if !target.own && is_unreachable(&error) => {}
                Err(source) => {
                    let timed_out = source.kind() == io::ErrorKind::TimedOut;
                    let error = NotProven::Connect { address: target.address, first: target.first, source };
                    if timed_out || Instant::now() > deadline {
                        return Err(error);
                    }
                    failure.get_or_insert(error);
                    again.push(target);
                }
            }
        }
        let mut arrived = accepted(listeners);
        if open.iter().any(|(target, _, source)| !arrived.contains(&(target.first, *source))) {
            // The connections may have been accepted by an auditor.
            arrived.extend(received());
        }
        for (target, _, source) in &open {
            if arrived.contains(&(target.first, *source)) {
                proven += 1;
            } else {
                let Target { address, first, .. } = *target;
                failure.get_or_insert(NotProven::Elsewhere { address, first });
                again.push(*target);
            }
        }
        let Some(failure) = failure else { return Ok(proven) };
        // Retries, because an address may not be usable yet or a connection not be accepted yet.
        if Instant::now() > deadline || pause > MAX_PAUSE {
            return Err(failure);
        }
        thread::sleep(pause);
        pause *= 4;
        targets = again;
    }
}

/// Returns a connection and its source address.
fn connect(address: SocketAddr) -> io::Result<(TcpStream, SocketAddr)> {
    let stream = TcpStream::connect_timeout(&address, CONNECT_TIMEOUT)?;
    // Closes with a reset: a connection in TIME-WAIT could prevent the auditor from binding its port.
    sockopt::set_socket_linger(&stream, Some(Duration::ZERO))?;
    let source = canonical(stream.local_addr()?);
    Ok((stream, source))
}

/// Returns `true` if there is no route to the address, or no source address.
fn is_unreachable(error: &io::Error) -> bool {
    use io::ErrorKind::{AddrNotAvailable, HostUnreachable, NetworkUnreachable};
    matches!(error.kind(), NetworkUnreachable | HostUnreachable | AddrNotAvailable)
        || error.raw_os_error() == Some(rustix::io::Errno::AFNOSUPPORT.raw_os_error())
}

/// Listens on all addresses of `family`. Returns `None` if the port is in use or the family is disabled.
fn listener(family: AddressFamily, port: NonZeroU16) -> Result<Option<TcpListener>, NotProven> {
    use rustix::io::Errno;
    let any: IpAddr = match family {
        AddressFamily::INET6 => Ipv6Addr::UNSPECIFIED.into(),
        _ => Ipv4Addr::UNSPECIFIED.into(),
    };
    let make = || {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(family, SocketType::STREAM, flags, None)?;
        if family == AddressFamily::INET6 {
            // IPv4 has a separate listener.
            sockopt::set_ipv6_v6only(&socket, true)?;
        }
        sockopt::set_socket_reuseaddr(&socket, true)?;
        bind(&socket, &SocketAddr::new(any, port.get()))?;
        listen(&socket, 2 * i32::try_from(MAX_CONCURRENT).unwrap_or(i32::MAX))?;
        Ok(TcpListener::from(socket))
    };
    match make() {
        Ok(listener) => Ok(Some(listener)),
        Err(Errno::ADDRINUSE | Errno::AFNOSUPPORT | Errno::ADDRNOTAVAIL) => Ok(None),
        Err(error) => Err(io::Error::from(error)).context(ListenSnafu { port }),
    }
}

/// Returns the ports of the listeners and the source addresses of the accepted connections.
fn accepted(listeners: &[(NonZeroU16, TcpListener)]) -> HashSet<(NonZeroU16, SocketAddr)> {
    let mut sources = HashSet::new();
    for (port, listener) in listeners {
        while let Ok((_, source)) = listener.accept() {
            sources.insert((*port, canonical(source)));
        }
    }
    sources
}

/// Returns the ports and source addresses of all connections to this network namespace.
fn received() -> Vec<(NonZeroU16, SocketAddr)> {
    let tables =
        ["/proc/net/tcp", "/proc/net/tcp6"].map(|table| fs::read_to_string(table).unwrap_or_default());
    tables.iter().flat_map(|table| table.lines().skip(1)).filter_map(peer).collect()
}

/// Parses the local port and the remote address from a line of /proc/net/tcp. A line has a number, the local and the
/// remote address: `0: 0100007F:1F9A 0100007F:B5C2 01 …`.
fn peer(line: &str) -> Option<(NonZeroU16, SocketAddr)> {
    let mut fields = line.split_ascii_whitespace().skip(1);
    let (own, other) = (socket_address(fields.next()?)?, socket_address(fields.next()?)?);
    (other.port() != 0).then_some((NonZeroU16::new(own.port())?, canonical(other)))
}

fn socket_address(text: &str) -> Option<SocketAddr> {
    let (address, port) = text.split_once(':')?;
    let word = |place: usize| {
        let word = u32::from_str_radix(address.get(8 * place..8 * place + 8)?, 16).ok()?;
        Some(u32::from_be_bytes(word.to_ne_bytes()))
    };
    let ip: IpAddr = match address.len() {
        8 => Ipv4Addr::from(word(0)?).into(),
        _ => {
            let words = [word(0)?, word(1)?, word(2)?, word(3)?];
            Ipv6Addr::from(words.iter().fold(0, |ip, word| ip << 32 | u128::from(*word))).into()
        }
    };
    Some(SocketAddr::new(ip, u16::from_str_radix(port, 16).ok()?))
}

/// Converts IPv4-mapped IPv6 addresses to IPv4, so that both ends of a connection compare equal.
fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

#[derive(Debug, Snafu)]
pub(crate) enum NotProven {
    #[snafu(display("a connection to {address}, which should lead to port {first}, failed: {source}"))]
    Connect { address: SocketAddr, first: NonZeroU16, source: io::Error },
    #[snafu(display("a connection to {address} was not redirected to port {first}"))]
    Elsewhere { address: SocketAddr, first: NonZeroU16 },
    #[snafu(display("could not listen on port {port}: {source}"))]
    Listen { port: NonZeroU16, source: io::Error },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proc_net_tcp_lists_the_sources_of_a_port() {
        for any in [IpAddr::from(Ipv4Addr::UNSPECIFIED), Ipv6Addr::UNSPECIFIED.into()] {
            let listener = TcpListener::bind((any, 0)).unwrap();
            let port = NonZeroU16::new(listener.local_addr().unwrap().port()).unwrap();
            for host in [IpAddr::from(Ipv4Addr::LOCALHOST), Ipv6Addr::LOCALHOST.into()] {
                let Ok((_stream, source)) = connect(SocketAddr::new(host, port.get())) else { continue };
                assert!(received().contains(&(port, source)), "{any} {host}");
                assert!(!received().contains(&(NonZeroU16::MIN, source)));
            }
        }
    }
}
