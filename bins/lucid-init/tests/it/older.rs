//! Connections that are older than the rules.

use std::{
    io::{self, Read as _, Write as _},
    net::{TcpListener, TcpStream},
    time::Duration,
};

use super::{
    hops::{APP, start_auditors},
    init::{Image, Init},
    network::Network,
};

/// The path of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Path {
    /// From outside to the model.
    In,
    /// Within the pod to the model.
    Within,
    /// From the pod to the outbound port of another host.
    Out,
}

/// Whether the client of a connection that is older than the rules still reaches the server. `server_first`: whether the
/// server sends something before the client does; then the kernel takes the connection for one that the server opened.
fn survives(image: Image, path: Path, address: &str, server_first: bool) -> Option<bool> {
    let network = Network::new()?;
    if !image.is_available(&network) {
        return None;
    }
    let Network { node, pod } = &network;
    let (from, to) = match path {
        Path::In => (node, pod),
        Path::Within => (pod, pod),
        Path::Out => (pod, node),
    };
    let port = address.rsplit_once(':').unwrap().1;
    let listener = to.as_user(APP, || TcpListener::bind(format!("[::]:{port}"))).unwrap();
    let mut client = from.as_user(APP, || TcpStream::connect(address)).unwrap();
    let (mut server, _) = listener.accept().unwrap();
    for stream in [&client, &server] {
        stream.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
    }

    Init::new(image).install(pod);
    start_auditors(&network);
    let mut talk = || -> io::Result<()> {
        if server_first {
            server.write_all(b"?")?;
            // A server that is not heard may still hear.
            let _ = client.read_exact(&mut [0]);
        }
        client.write_all(b"!")?;
        server.read_exact(&mut [0])
    };
    Some(talk().is_ok())
}

fn ends_every_older_connection(image: Image) {
    for (path, addresses) in [
        (Path::In, ["10.0.0.2:5000", "[fd00::2]:5000"]),
        (Path::Within, ["10.0.0.2:5000", "[::1]:5000"]),
        (Path::Out, ["10.0.0.1:8000", "[fd00::1]:8000"]),
    ] {
        for address in addresses {
            for server_first in [false, true] {
                let survives = survives(image, path, address, server_first);
                assert_ne!(survives, Some(true), "{path:?} {address}, server first: {server_first}");
            }
        }
    }
}

#[test]
fn nftables_end_connections_that_are_older_than_the_rules() {
    ends_every_older_connection(Image::Nft);
}

#[test]
fn iptables_end_connections_that_are_older_than_the_rules() {
    ends_every_older_connection(Image::IptablesNft);
}

#[test]
fn legacy_iptables_end_connections_that_are_older_than_the_rules() {
    ends_every_older_connection(Image::IptablesLegacy);
}
