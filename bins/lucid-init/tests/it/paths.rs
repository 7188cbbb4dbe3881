//! All traffic to the model passes the chain, and no other traffic does.

use super::{
    hops::{APP, CHAIN, FIRST, SECOND, get, serve, start_auditors, start_model},
    init::{Init, networks},
};

const ROOT: u32 = 0;
const NODE: bool = false;
const POD: bool = true;

/// Description, origin, UID, address and expected response.
const CALLS: [(&str, bool, u32, &str, &str); 25] = [
    ("from outside", NODE, APP, "10.0.0.2:5000", CHAIN),
    ("from outside by IPv6", NODE, APP, "[fd00::2]:5000", CHAIN),
    ("from outside, a later auditor", NODE, APP, "10.0.0.2:8093", CHAIN),
    ("from outside by IPv6, a later auditor", NODE, APP, "[fd00::2]:8093", CHAIN),
    ("from outside, the first auditor", NODE, APP, "10.0.0.2:8090", CHAIN),
    ("from outside, with an auditor's uid there", NODE, SECOND, "10.0.0.2:5000", CHAIN),
    ("in the pod by 127.0.0.1", POD, APP, "127.0.0.1:5000", CHAIN),
    ("in the pod by another address of loopback", POD, APP, "127.1.2.3:5000", CHAIN),
    ("in the pod by no address", POD, APP, "0.0.0.0:5000", CHAIN),
    ("in the pod by the pod's address", POD, APP, "10.0.0.2:5000", CHAIN),
    ("in the pod by ::1", POD, APP, "[::1]:5000", CHAIN),
    ("in the pod by the pod's IPv6 address", POD, APP, "[fd00::2]:5000", CHAIN),
    ("in the pod by IPv4 within IPv6", POD, APP, "[::ffff:127.0.0.1]:5000", CHAIN),
    ("in the pod, a later auditor", POD, APP, "127.0.0.1:8093", CHAIN),
    ("in the pod by IPv6, a later auditor", POD, APP, "[::1]:8093", CHAIN),
    ("root in the pod", POD, ROOT, "127.0.0.1:5000", CHAIN),
    ("root in the pod, a later auditor", POD, ROOT, "10.0.0.2:8093", CHAIN),
    ("the first auditor, past the second", POD, FIRST, "127.0.0.1:5000", CHAIN),
    ("the first auditor by IPv6, past the second", POD, FIRST, "[::1]:5000", CHAIN),
    ("the first auditor, its next hop", POD, FIRST, "10.0.0.2:8093", "AUD2 -> MODEL"),
    ("the last auditor, its next hop", POD, SECOND, "[::1]:5000", "MODEL"),
    ("an auditor itself, as its own probe does", POD, SECOND, "127.0.0.1:8093", "AUD2 -> MODEL"),
    ("another host's port of that number", POD, APP, "10.0.0.1:5000", "REMOTE"),
    ("another host's port of that number by IPv6", POD, APP, "[fd00::1]:5000", "REMOTE"),
    ("another port of the pod", NODE, APP, "10.0.0.2:9000", "METRICS"),
];

#[test]
fn all_traffic_passes_the_chain() {
    for (image, network) in networks() {
        let said = Init::new(image).install(&network.pod);
        // Two guarded ports on each of two IPv4 and two IPv6 addresses, and two external hosts.
        let expected = format!(
            "rules installed by {}: 10 connections of this pod reached port 8090 as they should\n",
            image.tool()
        );
        assert_eq!(said, expected);
        start_model(&network);
        start_auditors(&network);
        serve(&network.node, APP, 5000, "REMOTE", None);
        serve(&network.pod, APP, 9000, "METRICS", None);

        let responses = CALLS.map(|(what, inside, uid, address, _)| {
            let from = if inside { &network.pod } else { &network.node };
            (what, get(from, uid, address, "/"))
        });
        let wanted = CALLS.map(|(what, _, _, _, response)| (what, Ok(response.to_owned())));
        let wrong: Vec<_> =
            responses.iter().zip(&wanted).filter(|(response, wanted)| response != wanted).collect();
        assert!(wrong.is_empty(), "{wrong:#?}");

        // A link-local address gets no response, as the redirect leaves the link.
        let link = network.pod.run("cat /sys/class/net/eth0/ifindex");
        let response = get(&network.pod, APP, &format!("[fe80::2%{}]:5000", link.trim()), "/");
        assert!(response.as_ref().is_err() || response == Ok(CHAIN.to_owned()), "{response:?}");

        // A kubelet probe of the model, sent from the node, passes the chain.
        assert_eq!(get(&network.node, ROOT, "10.0.0.2:5000", "/healthz"), Ok(CHAIN.to_owned()));
    }
}
