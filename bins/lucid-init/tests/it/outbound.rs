//! Requests of the pod to other hosts.

use super::{
    hops::{APP, CHAIN, FIRST, SECOND, expect, serve, start_auditors, start_model},
    init::{Init, networks},
};

/// The first member of the chain is lucid-egress, which also ends it.
const EGRESS: &str = r#"{"version":1,"chain":[{"uid":20003,"port":8084},{"uid":20001,"port":8081},{"uid":20002,"port":8082}],"model":5000,"inbound":false,"outbound":[8000],"exit":8083}"#;

const OUTBOUND: &str = r#"{"version":1,"chain":[{"uid":20001,"port":8090},{"uid":20002,"port":8093}],"model":5000,"inbound":false,"outbound":[8000]}"#;

#[test]
fn outbound_requests_pass_the_chain() {
    for (image, network) in networks() {
        Init::new(image).plan(Some(OUTBOUND)).install(&network.pod);
        start_model(&network);
        start_auditors(&network);
        for port in [8000, 8001] {
            serve(&network.node, APP, port, "REMOTE", None);
        }
        serve(&network.pod, APP, 8000, "APP", None);

        let from_pod =
            |uid, address: String, response| expect(image, &network.pod, uid, &address, Ok(response));
        for host in ["10.0.0.1", "[fd00::1]"] {
            for uid in [APP, 0] {
                from_pod(uid, format!("{host}:8000"), CHAIN);
            }
            for uid in [FIRST, SECOND] {
                from_pod(uid, format!("{host}:8000"), "REMOTE");
            }
            from_pod(APP, format!("{host}:8001"), "REMOTE");
        }
        // The same port within the pod belongs to the application and is not redirected.
        for host in ["127.0.0.1", "10.0.0.2", "[::1]"] {
            from_pod(APP, format!("{host}:8000"), "APP");
            from_pod(APP, format!("{host}:5000"), CHAIN);
        }
        // Inbound requests do not pass the chain, which still keeps its order.
        for (address, response) in
            [("10.0.0.2:8000", "APP"), ("10.0.0.2:5000", "MODEL"), ("[fd00::2]:8093", CHAIN)]
        {
            expect(image, &network.node, APP, address, Ok(response));
        }
    }
}

#[test]
fn all_requests_enter_at_the_intake_of_lucid_egress() {
    for (image, network) in networks() {
        Init::new(image).plan(Some(EGRESS)).install(&network.pod);
        start_model(&network);
        serve(&network.node, APP, 8000, "REMOTE", None);
        serve(&network.pod, 20003, 8083, "EXIT", None);
        serve(&network.pod, SECOND, 8082, "AUD2", Some("127.0.0.1:8083"));
        serve(&network.pod, FIRST, 8081, "AUD1", Some("127.0.0.1:8082"));
        serve(&network.pod, 20003, 8084, "INTAKE", Some("127.0.0.1:8081"));

        const ALL: &str = "INTAKE -> AUD1 -> AUD2 -> EXIT";
        for address in ["10.0.0.1:8000", "[fd00::1]:8000", "127.0.0.1:8081", "[::1]:8083", "10.0.0.2:5000"] {
            for uid in [APP, 0] {
                expect(image, &network.pod, uid, address, Ok(ALL));
            }
        }
        for (uid, address, response) in [
            (20003, "10.0.0.1:8000", "REMOTE"),
            (20003, "127.0.0.1:5000", "MODEL"),
            (SECOND, "127.0.0.1:5000", ALL),
            (FIRST, "127.0.0.1:8083", ALL),
        ] {
            expect(image, &network.pod, uid, address, Ok(response));
        }
        for address in ["10.0.0.2:8081", "10.0.0.2:8083", "[fd00::2]:8082"] {
            expect(image, &network.node, APP, address, Ok(ALL));
        }
    }
}
