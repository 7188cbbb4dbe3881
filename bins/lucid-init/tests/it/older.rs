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

/// Whether a connection that is older than the rules still reaches the model. `model_first`: whether the model says
/// something before the client does; then the kernel takes the connection for one that the model made.
fn survives(image: Image, model_first: bool) -> Option<bool> {
    let network = Network::new()?;
    if !image.is_available(&network) {
        return None;
    }
    let listener = network.pod.as_user(APP, || TcpListener::bind("[::]:5000")).unwrap();
    let mut client = network.node.as_user(APP, || TcpStream::connect("10.0.0.2:5000")).unwrap();
    let (mut model, _) = listener.accept().unwrap();
    for stream in [&client, &model] {
        stream.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
    }

    Init::new(image).install(&network.pod);
    start_auditors(&network);
    let mut talk = || -> io::Result<()> {
        if model_first {
            model.write_all(b"?")?;
            client.read_exact(&mut [0])?;
        }
        client.write_all(b"!")?;
        model.read_exact(&mut [0])
    };
    Some(talk().is_ok())
}

#[test]
fn nftables_end_connections_that_are_older_than_the_rules() {
    for model_first in [false, true] {
        assert_ne!(survives(Image::Nft, model_first), Some(true), "{model_first}");
    }
}

/// A gap, which docs/interception.md names.
#[test]
fn iptables_leave_an_older_connection_alone_when_the_model_speaks_first() {
    for image in [Image::IptablesNft, Image::IptablesLegacy] {
        assert_ne!(survives(image, false), Some(true), "{image:?}");
        assert_ne!(survives(image, true), Some(false), "{image:?}");
    }
}
