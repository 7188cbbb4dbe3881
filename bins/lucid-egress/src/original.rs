//! Callers of connections, and destinations before the redirect.

use std::{
    io,
    net::{IpAddr, SocketAddr, UdpSocket},
};

use lucid_chain::Egress;
use rustix::net::sockopt;
use tokio::net::TcpStream;

/// Caller of a connection.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Peer {
    pub(crate) address: IpAddr,
    /// `true` if the caller is in the pod.
    pub(crate) is_own: bool,
}

impl Peer {
    pub(crate) fn of(stream: &TcpStream) -> io::Result<Self> {
        let address = stream.peer_addr()?.ip().to_canonical();
        Ok(Self { address, is_own: is_own(address) })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Destination {
    Host(SocketAddr),
    Model,
    /// The auditor in the pod on this port, whose callers mean the upstream.
    Auditor(u16),
    /// The intake itself: no rule redirected the connection.
    Intake,
}

impl Destination {
    /// Returns the destination of an accepted connection before the network rules redirected it.
    pub(crate) fn of(stream: &TcpStream, settings: &Egress) -> io::Result<Self> {
        // Without a redirect, the kernel may not know an original destination.
        let address = original(stream, stream.peer_addr()?.ip())
            .or_else(|_| stream.local_addr())
            .map(|address| SocketAddr::new(address.ip().to_canonical(), address.port()))?;
        Ok(match address.port() {
            _ if !is_own(address.ip()) => Self::Host(address),
            port if port == settings.model.get() => Self::Model,
            port if Some(port) == settings.intake.map(u16::from) => Self::Intake,
            port => Self::Auditor(port),
        })
    }
}

fn original(stream: &TcpStream, peer: IpAddr) -> io::Result<SocketAddr> {
    Ok(match peer.to_canonical() {
        IpAddr::V4(_) => sockopt::ip_original_dst(stream)?.into(),
        IpAddr::V6(_) => sockopt::ipv6_original_dst(stream)?.into(),
    })
}

/// Returns `true` for an address of the pod: only these can be bound.
pub(crate) fn is_own(address: IpAddr) -> bool {
    address.is_loopback() || UdpSocket::bind((address, 0)).is_ok()
}
