//! Reservation of free TCP ports until a component binds them.

use std::{
    io,
    net::{Ipv4Addr, SocketAddrV4},
    os::fd::OwnedFd,
};

use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, getsockname, socket_with, sockopt};

/// A port reserved for the lifetime of this value.
///
/// Binding port 0 and closing the socket could lose the port to another process. Here the socket stays bound with
/// `SO_REUSEPORT` and never listens: only a program that sets the option too can bind the port. etcd and the Kubernetes
/// components have a flag for that.
#[derive(Debug)]
pub(crate) struct ReservedPort {
    pub(crate) number: u16,
    _socket: OwnedFd,
}

impl ReservedPort {
    pub(crate) fn new() -> io::Result<Self> {
        let socket = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        sockopt::set_socket_reuseport(&socket, true)?;
        bind(&socket, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0))?;
        let address = SocketAddrV4::try_from(getsockname(&socket)?)?;
        Ok(Self { number: address.port(), _socket: socket })
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn reserved_ports_are_exclusive_unless_shared() {
        let port = ReservedPort::new().unwrap();
        let address = SocketAddrV4::new(Ipv4Addr::LOCALHOST, port.number);
        assert_eq!(TcpListener::bind(address).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        assert_eq!(TcpStream::connect(address).unwrap_err().kind(), io::ErrorKind::ConnectionRefused);

        let socket =
            socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
        sockopt::set_socket_reuseport(&socket, true).unwrap();
        bind(&socket, &address).unwrap();
        rustix::net::listen(&socket, 1).unwrap();
        TcpStream::connect(address).unwrap();
    }
}
