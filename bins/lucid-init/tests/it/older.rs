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

/// Where the client is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum From {
    Outside,
    Pod,
}

/// Whether a connection that is older than the rules still reaches the model. `model_first`: whether the model says
/// something before the client does; then the kernel takes the connection for one that the model made.
fn survives(image: Image, from: From, model_first: bool) -> Option<bool> {
    let network = Network::new()?;
    if !image.is_available(&network) {
        return None;
    }
    let listener = network.pod.as_user(APP, || TcpListener::bind("[::]:5000")).unwrap();
    let inside = if from == From::Outside { &network.node } else { &network.pod };
    let mut client = inside.as_user(APP, || TcpStream::connect("10.0.0.2:5000")).unwrap();
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
fn a_connection_that_is_older_than_the_rules_ends_when_its_client_speaks_first() {
    for image in [Image::Nft, Image::IptablesNft, Image::IptablesLegacy] {
        for from in [From::Outside, From::Pod] {
            assert_ne!(survives(image, from, false), Some(true), "{image:?} {from:?}");
        }
    }
}

#[test]
fn it_ends_when_the_model_speaks_first_too() {
    assert_ne!(survives(Image::Nft, From::Outside, true), Some(true));
    assert_ne!(survives(Image::Nft, From::Pod, true), Some(true));
    for image in [Image::IptablesNft, Image::IptablesLegacy] {
        assert_ne!(survives(image, From::Outside, true), Some(true), "{image:?}");
    }
}

/// A gap, which docs/interception.md names.
#[test]
fn with_iptables_one_of_the_pod_itself_remains_then() {
    for image in [Image::IptablesNft, Image::IptablesLegacy] {
        assert_ne!(survives(image, From::Pod, true), Some(false), "{image:?}");
    }
}
