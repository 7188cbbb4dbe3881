//! Repeated runs.

use std::{
    io::{Read as _, Write as _},
    net::{TcpListener, TcpStream},
};

use rustix::net::{AddressFamily, SocketType, bind, socket};

use super::{
    hops::{APP, CHAIN, expect, start_auditors, start_model},
    init::{Image, Init, networks},
    network::Network,
};

#[test]
fn a_repeated_run_changes_nothing() {
    for (image, network) in networks() {
        // Foreign rules before and after those of lucid-init.
        let foreign = |number: u16| match image {
            Image::Nft => network.pod.run(&format!("nft add table inet other{number}")),
            _ => network
                .pod
                .run(&format!("{} -t nat -A OUTPUT -p tcp --dport {number} -j ACCEPT", image.tool())),
        };
        foreign(1);
        let init = Init::new(image);
        let said = init.install(&network.pod);
        foreign(2);
        let rules = image.rules(&network.pod);
        assert!(rules.contains("8093"), "{rules}");

        assert_eq!(init.install(&network.pod), said);
        assert_eq!(image.rules(&network.pod), rules);

        start_model(&network);
        start_auditors(&network);
        assert_eq!(init.install(&network.pod), said);
        assert_eq!(image.rules(&network.pod), rules);
    }
}

#[test]
fn a_new_plan_replaces_the_old_one() {
    const OTHER: &str =
        r#"{"version":1,"chain":[{"uid":20001,"port":8090}],"model":5001,"inbound":true,"outbound":[]}"#;
    for (image, network) in networks() {
        Init::new(image).plan(Some(OTHER)).install(&network.pod);
        let rules = image.rules(&network.pod);
        Init::new(image).install(&network.pod);
        assert_ne!(image.rules(&network.pod), rules);
        Init::new(image).plan(Some(OTHER)).install(&network.pod);
        assert_eq!(image.rules(&network.pod), rules);
    }
}

#[test]
fn connections_through_the_chain_survive_a_repeated_run() {
    for (image, network) in networks() {
        let init = Init::new(image);
        init.install(&network.pod);
        let auditor = network.pod.as_user(APP, || TcpListener::bind("[::]:8090")).unwrap();
        for (inside, address) in [(&network.node, "10.0.0.2:5000"), (&network.pod, "[::1]:5000")] {
            let mut client = inside.as_user(APP, || TcpStream::connect(address)).unwrap();
            let (mut accepted, _) = auditor.accept().unwrap();
            init.install(&network.pod);
            client.write_all(b"?").unwrap();
            accepted.read_exact(&mut [0]).unwrap();
            accepted.write_all(b"!").unwrap();
            client.read_exact(&mut [0]).unwrap();
            // Drains the connections of the verification.
            auditor.set_nonblocking(true).unwrap();
            while auditor.accept().is_ok() {}
            auditor.set_nonblocking(false).unwrap();
        }
    }
}

#[test]
fn the_longest_chain_is_installed() {
    let auditors =
        (0..32).map(|place| format!(r#"{{"uid":{},"port":{}}}"#, 20001 + 2 * place, 8090 + 3 * place));
    let chain = auditors.collect::<Vec<_>>().join(",");
    let plan =
        format!(r#"{{"version":1,"chain":[{chain}],"model":5000,"inbound":true,"outbound":[8000,8001]}}"#);
    for (image, network) in networks() {
        let said = Init::new(image).plan(Some(&plan)).install(&network.pod);
        // 32 guarded ports on four addresses, and two outbound ports on two hosts.
        assert!(said.contains(": 132 connections"), "{said}");
    }
}

#[test]
fn legacy_iptables_is_preferred_where_it_is_in_use() {
    let Some(network) = Network::new() else { return };
    if !Image::IptablesLegacy.is_available(&network) {
        return;
    }
    let both = || {
        let init = Init::new(Image::IptablesLegacy);
        for program in Image::IptablesNft.programs() {
            init.add(&program, &format!("/usr/sbin/{program}"));
        }
        init
    };
    assert!(both().install(&network.pod).starts_with("rules installed by iptables-nft: "));
    network.pod.run("iptables-legacy -t nat -A OUTPUT -p udp -j ACCEPT");
    assert!(both().install(&network.pod).starts_with("rules installed by iptables-legacy: "));
    let without_raw_sockets = both().capabilities("-all,+net_admin");
    assert!(without_raw_sockets.install(&network.pod).starts_with("rules installed by iptables-nft: "));
}

#[test]
fn the_first_auditor_can_bind_its_port_at_once() {
    for (image, network) in networks() {
        Init::new(image).install(&network.pod);
        network.pod.as_user(APP, || {
            // Without SO_REUSEADDR, which the standard library would set.
            let socket = socket(AddressFamily::INET6, SocketType::STREAM, None).unwrap();
            bind(&socket, &"[::]:8090".parse::<std::net::SocketAddr>().unwrap()).unwrap();
        });
    }
}

#[test]
fn an_ipv4_only_auditor_is_supported() {
    for (image, network) in networks() {
        let init = Init::new(image);
        let said = init.install(&network.pod);
        let _auditor = network.pod.as_user(APP, || TcpListener::bind("0.0.0.0:8090")).unwrap();
        assert_eq!(init.install(&network.pod), said);
    }
}

#[test]
fn printed_rules_are_idempotent() {
    for (image, network) in networks() {
        let init = Init::new(image);
        let kinds = match image {
            Image::Nft => vec![("nft", "nft -f -".to_owned())],
            _ => ["iptables", "ip6tables"]
                .map(|kind| {
                    (kind, format!("{} --noflush", image.tool().replace("iptables", kind) + "-restore"))
                })
                .to_vec(),
        };
        for _ in 0..2 {
            for (kind, apply) in &kinds {
                let printed = init.run(&network.pod, &["--print", kind]).stdout;
                let script = format!("printf '%s\\n' \"$1\" | {apply}");
                let output =
                    network.pod.command("sh").args(["-c", &script, "sh", &printed]).output().unwrap();
                assert!(output.status.success(), "{printed}{output:?}");
            }
        }
        let rules = image.rules(&network.pod);
        init.install(&network.pod);
        assert_eq!(image.rules(&network.pod), rules);

        start_model(&network);
        start_auditors(&network);
        expect(image, &network.node, APP, "[fd00::2]:5000", Ok(CHAIN));
    }
}
