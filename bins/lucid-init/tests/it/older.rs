//! Connections established before the rules.

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

const NODE: bool = false;
const POD: bool = true;

/// Client, server, and the address of the server.
const CONNECTIONS: [(bool, bool, &str); 6] = [
    (NODE, POD, "10.0.0.2:5000"),
    (NODE, POD, "[fd00::2]:5000"),
    (POD, POD, "10.0.0.2:5000"),
    (POD, POD, "[::1]:5000"),
    (POD, NODE, "10.0.0.1:8000"),
    (POD, NODE, "[fd00::1]:8000"),
];

/// Returns `true` if the client of a connection established before the rules still reaches the server. With
/// `server_first`, the server sends before the client, so that the kernel attributes the connection to the server.
fn survives(image: Image, (from, to, address): (bool, bool, &str), server_first: bool) -> Option<bool> {
    let network = Network::new()?;
    if !image.is_available(&network) {
        return None;
    }
    let [from, to] = [from, to].map(|in_pod| if in_pod { &network.pod } else { &network.node });
    let port = address.rsplit_once(':').unwrap().1;
    let listener = to.as_user(APP, || TcpListener::bind(format!("[::]:{port}"))).unwrap();
    let mut client = from.as_user(APP, || TcpStream::connect(address)).unwrap();
    let (mut server, _) = listener.accept().unwrap();
    for stream in [&client, &server] {
        stream.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
    }

    Init::new(image).install(&network.pod);
    start_auditors(&network);
    let mut talk = || -> io::Result<()> {
        if server_first {
            server.write_all(b"?")?;
            // A server whose packets are dropped may still receive.
            let _ = client.read_exact(&mut [0]);
        }
        client.write_all(b"!")?;
        server.read_exact(&mut [0])
    };
    Some(talk().is_ok())
}

fn ends_every_older_connection(image: Image) {
    for connection in CONNECTIONS {
        for server_first in [false, true] {
            let survives = survives(image, connection, server_first);
            assert_ne!(survives, Some(true), "{connection:?}, server first: {server_first}");
        }
    }
}

#[test]
fn nftables_reset_older_connections() {
    ends_every_older_connection(Image::Nft);
}

#[test]
fn iptables_resets_older_connections() {
    ends_every_older_connection(Image::IptablesNft);
}

#[test]
fn legacy_iptables_resets_older_connections() {
    ends_every_older_connection(Image::IptablesLegacy);
}
