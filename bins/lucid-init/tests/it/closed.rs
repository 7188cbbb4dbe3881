//! Ports that are neither guarded nor listed, in a pod that closes them.

use std::{
    io::{ErrorKind, Read as _, Write as _},
    net::{TcpListener, TcpStream, UdpSocket},
    time::Duration,
};

use super::{
    hops::{APP, CHAIN, expect, get, serve, start_auditors, start_model},
    init::{Init, networks},
    network::Network,
};

/// Two auditors in front of a model, and the open port 9090.
const CLOSED: &str = r#"{"version":1,"chain":[{"uid":20001,"port":8090},{"uid":20002,"port":8093}],"model":5000,"inbound":true,"outbound":[],"open":[9090]}"#;

const REFUSED: &str = "Connection refused (os error 111)";

fn start(network: &Network) {
    start_model(network);
    start_auditors(network);
    serve(&network.pod, APP, 7000, "UNDECLARED", None);
    serve(&network.pod, APP, 9090, "METRICS", None);
    serve(&network.node, APP, 7000, "REMOTE", None);
}

#[test]
fn closed_ports_are_refused_from_outside_only() {
    for (image, network) in networks() {
        Init::new(image).plan(Some(CLOSED)).install(&network.pod);
        start(&network);
        let Network { node, pod } = &network;
        for host in ["10.0.0.2", "[fd00::2]"] {
            for (port, wanted) in [
                (5000, Ok(CHAIN)),
                (8093, Ok(CHAIN)),
                (8090, Ok(CHAIN)),
                (9090, Ok("METRICS")),
                (7000, Err(REFUSED)),
                (7001, Err(REFUSED)),
            ] {
                for uid in [0, APP, 20002] {
                    expect(image, node, uid, &format!("{host}:{port}"), wanted);
                }
            }
        }
        for host in ["127.0.0.1", "[::1]", "10.0.0.2", "[fd00::2]"] {
            for (port, wanted) in [(5000, CHAIN), (7000, "UNDECLARED"), (9090, "METRICS")] {
                expect((image, "in the pod"), pod, APP, &format!("{host}:{port}"), Ok(wanted));
            }
        }
        for host in ["10.0.0.1", "[fd00::1]"] {
            expect((image, "out of the pod"), pod, APP, &format!("{host}:7000"), Ok("REMOTE"));
        }
    }
}

#[test]
fn the_same_ports_are_reachable_in_an_open_pod() {
    for (image, network) in networks() {
        // Rules of a closed pod that are replaced.
        Init::new(image).plan(Some(CLOSED)).install(&network.pod);
        Init::new(image).install(&network.pod);
        start(&network);
        for host in ["10.0.0.2", "[fd00::2]"] {
            expect(image, &network.node, APP, &format!("{host}:7000"), Ok("UNDECLARED"));
        }
    }
}

#[test]
fn other_traffic_of_a_closed_pod_is_not_affected() {
    for (image, network) in networks() {
        // Established before the rules; the node responds only afterwards.
        let server = network.node.as_user(APP, || TcpListener::bind("10.0.0.1:7000")).unwrap();
        let mut older = network.pod.as_user(APP, || TcpStream::connect("10.0.0.1:7000")).unwrap();
        let (mut accepted, _) = server.accept().unwrap();
        Init::new(image).plan(Some(CLOSED)).install(&network.pod);
        accepted.write_all(b"?").unwrap();
        older.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        older.read_exact(&mut [0]).unwrap();

        // UDP in both directions, such as the response of a DNS server.
        let [in_pod, in_node] =
            [(&network.pod, "10.0.0.2:7000"), (&network.node, "10.0.0.1:7000")].map(|(inside, address)| {
                let socket = inside.as_user(APP, || UdpSocket::bind(address)).unwrap();
                socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
                socket
            });
        in_pod.send_to(b"?", "10.0.0.1:7000").unwrap();
        let (_, from) = in_node.recv_from(&mut [0]).unwrap();
        in_node.send_to(b"!", from).unwrap();
        in_pod.recv_from(&mut [0]).unwrap();

        // ICMP: the node reports that nothing listens on a port.
        in_pod.connect("10.0.0.1:7001").unwrap();
        in_pod.send(b"?").unwrap();
        let error = in_pod.recv(&mut [0]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused, "{image:?}");
    }
}

#[test]
fn a_closed_pod_is_verified_again_with_the_same_rules() {
    for (image, network) in networks() {
        let init = Init::new(image).plan(Some(CLOSED));
        let said = init.install(&network.pod);
        let rules = image.rules(&network.pod);
        start(&network);
        assert_eq!(init.install(&network.pod), said);
        assert_eq!(image.rules(&network.pod), rules);
    }
}

#[test]
fn a_mesh_that_takes_all_connections_does_not_open_closed_ports() {
    for (image, network) in networks() {
        network.pod.run("nft add table ip mesh");
        network.pod.run("nft add chain ip mesh pre { type nat hook prerouting priority -110 ; }");
        network.pod.run("nft add rule ip mesh pre tcp dport != 15021 redirect to :15006");
        Init::new(image).plan(Some(CLOSED)).install(&network.pod);
        serve(&network.pod, APP, 15006, "MESH", None);
        for (port, wanted) in [(9090, Ok("MESH")), (7000, Err(REFUSED)), (15006, Err(REFUSED))] {
            expect(image, &network.node, APP, &format!("10.0.0.2:{port}"), wanted);
        }
    }
}

#[test]
fn without_a_model_the_guarded_port_does_not_respond() {
    // The model listens on an undeclared port, and 5000 is guarded: it is unreachable instead of unguarded.
    for (image, network) in networks() {
        Init::new(image).plan(Some(CLOSED)).install(&network.pod);
        serve(&network.pod, APP, 8200, "MODEL", None);
        start_auditors(&network);
        for host in ["10.0.0.2", "[fd00::2]"] {
            expect(image, &network.node, APP, &format!("{host}:8200"), Err(REFUSED));
            let response = get(&network.node, APP, &format!("{host}:5000"), "/").unwrap_or_default();
            assert!(!response.contains("MODEL"), "{image:?}: {response}");
        }
    }
}

#[test]
fn a_kernel_that_cannot_close_ports_is_an_error() {
    let Some(network) = Network::new() else { return };
    // gVisor has neither the match conntrack nor TCP flags.
    let case = "*--tcp-flags*|*conntrack*) echo 'line 9 failed' >&2; exit 1";
    let init = Init::with_iptables_nft(case).plan(Some(CLOSED));
    let ended = init.run(&network.pod, &[]);
    assert_eq!(ended.code, 1, "{ended:?}");
    assert!(ended.stderr.contains("line 9 failed"), "{ended:?}");
}
