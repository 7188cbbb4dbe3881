//! A model with two ports, each guarded on its own route.

use super::{
    hops::{APP, FIRST, SECOND, expect, serve},
    init::{Init, networks},
    network::{Namespace, Network},
};

/// Two auditors in front of a model that listens on 8080 and 8085.
const ROUTES: &str = r#"{"version":1,"chain":[{"uid":20001,"port":8090},{"uid":20002,"port":8093}],"model":8080,"inbound":true,"outbound":[],"routes":[{"ports":[8091,8094],"model":8085}]}"#;

const ONE: &str = "A1 -> B1 -> MODEL1";
const TWO: &str = "A2 -> B2 -> MODEL2";

fn start(pod: &Namespace) {
    serve(pod, APP, 8080, "MODEL1", None);
    serve(pod, APP, 8085, "MODEL2", None);
    serve(pod, SECOND, 8093, "B1", Some("127.0.0.1:8080"));
    serve(pod, SECOND, 8094, "B2", Some("127.0.0.1:8085"));
    serve(pod, FIRST, 8090, "A1", Some("127.0.0.1:8093"));
    serve(pod, FIRST, 8091, "A2", Some("127.0.0.1:8094"));
}

/// Port and response to everyone but the auditors.
const GUARDED: [(u16, &str); 6] =
    [(8080, ONE), (8093, ONE), (8090, ONE), (8085, TWO), (8094, TWO), (8091, TWO)];

/// UID of an auditor, port and response: an auditor reaches its own ports and its next hops.
const AUDITORS: [(u32, u16, &str); 8] = [
    (FIRST, 8093, "B1 -> MODEL1"),
    (FIRST, 8094, "B2 -> MODEL2"),
    (FIRST, 8080, ONE),
    (FIRST, 8085, TWO),
    (SECOND, 8080, "MODEL1"),
    (SECOND, 8085, "MODEL2"),
    (SECOND, 8093, "B1 -> MODEL1"),
    (SECOND, 8094, "B2 -> MODEL2"),
];

#[test]
fn every_model_port_is_reached_along_its_route() {
    for (image, network) in networks() {
        let said = Init::new(image).plan(Some(ROUTES)).install(&network.pod);
        // Four guarded ports on each of two IPv4 and two IPv6 addresses.
        let expected = format!(
            "rules installed by {}: 16 connections of this pod reached ports 8090, 8091 as they should\n",
            image.tool()
        );
        assert_eq!(said, expected);
        let Network { node, pod } = &network;
        start(pod);
        for (port, wanted) in GUARDED {
            for (from, uid, host) in [
                (node, APP, "10.0.0.2"),
                (node, SECOND, "[fd00::2]"),
                (pod, APP, "127.0.0.1"),
                (pod, 0, "10.0.0.2"),
                (pod, APP, "[::1]"),
                (pod, 0, "[fd00::2]"),
            ] {
                expect(image, from, uid, &format!("{host}:{port}"), Ok(wanted));
            }
        }
        for (uid, port, wanted) in AUDITORS {
            for host in ["127.0.0.1", "[::1]", "10.0.0.2", "[fd00::2]"] {
                expect(image, pod, uid, &format!("{host}:{port}"), Ok(wanted));
            }
        }
        // A restarted lucid-init verifies the routes while the auditors listen.
        assert_eq!(Init::new(image).plan(Some(ROUTES)).install(pod), expected);
    }
}

#[test]
fn one_auditor_leads_each_port_to_itself() {
    const PLAN: &str = r#"{"version":1,"chain":[{"uid":20001,"port":8090}],"model":8080,"inbound":true,"outbound":[],"routes":[{"ports":[8091],"model":8085}]}"#;
    for (image, network) in networks() {
        Init::new(image).plan(Some(PLAN)).install(&network.pod);
        serve(&network.pod, APP, 8080, "MODEL1", None);
        serve(&network.pod, APP, 8085, "MODEL2", None);
        serve(&network.pod, FIRST, 8090, "A1", Some("127.0.0.1:8080"));
        serve(&network.pod, FIRST, 8091, "A2", Some("127.0.0.1:8085"));
        for (port, wanted) in [(8080, "A1 -> MODEL1"), (8085, "A2 -> MODEL2")] {
            for (from, host) in [(&network.node, "10.0.0.2"), (&network.pod, "[::1]")] {
                expect(image, from, APP, &format!("{host}:{port}"), Ok(wanted));
            }
        }
    }
}

#[test]
fn a_port_that_takes_the_route_of_another_is_detected() {
    let Some(network) = Network::new() else { return };
    // Another route, and none.
    for wrong in ["s/redirect to :8091/redirect to :8090/", "/redirect to :8091/d"] {
        let init = Init::without_tools().plan(Some(ROUTES));
        init.add_script("nft", &format!("/bin/sed '{wrong}' | /usr/sbin/nft -f -"));
        let ended = init.run(&network.pod, &[]);
        assert_eq!(ended.code, 3, "{ended:?}");
        assert!(ended.stderr.contains("to port 8091"), "{ended:?}");
    }
}

#[test]
fn rules_of_several_routes_replace_those_of_one() {
    for (image, network) in networks() {
        Init::new(image).plan(Some(ROUTES)).install(&network.pod);
        let rules = image.rules(&network.pod);
        Init::new(image).install(&network.pod);
        assert!(!image.rules(&network.pod).contains("8091"), "{image:?}");
        Init::new(image).plan(Some(ROUTES)).install(&network.pod);
        assert_eq!(image.rules(&network.pod), rules);
    }
}
