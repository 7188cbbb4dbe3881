//! JSON form and rules of a redirect. The tests of lucid-init apply the rules in real networks.

use std::num::NonZeroU16;

use lucid_chain::{MAX_CHAIN, redirect::Redirect};
use serde_json::{Value, json};

const PLAN: &str = r#"{"version":1,"chain":[{"uid":20001,"port":8090},{"uid":20002,"port":8093}],"model":5000,"inbound":true,"outbound":[8000]}"#;

fn port(number: u16) -> NonZeroU16 {
    NonZeroU16::new(number).unwrap()
}

fn form(length: u16, model: u16, inbound: bool, outbound: &[u16]) -> Value {
    let chain = (0..length).map(|at| json!({"uid": 20001 + u32::from(at), "port": 8090 + 3 * at}));
    let chain: Vec<_> = chain.collect();
    json!({"version": 1, "chain": chain, "model": model, "inbound": inbound, "outbound": outbound})
}

fn read(form: &Value) -> Redirect {
    Redirect::from_json(&form.to_string()).unwrap()
}

fn opened(ports: &[u16]) -> Redirect {
    let mut form = form(2, 5000, true, &[8000]);
    form["open"] = json!(ports);
    read(&form)
}

#[test]
fn the_json_form_is_canonical() {
    let redirect = Redirect::from_json(PLAN).unwrap();
    assert_eq!(redirect.to_json(), PLAN);
    assert_eq!(redirect, read(&form(2, 5000, true, &[8000])));

    let another_order = r#" {"outbound": [9000, 8000], "inbound": false, "model": 1,
        "chain": [{"port": 2, "uid": 7}], "version": 1} "#;
    assert_eq!(
        Redirect::from_json(another_order).unwrap().to_json(),
        r#"{"version":1,"chain":[{"uid":7,"port":2}],"model":1,"inbound":false,"outbound":[8000,9000]}"#
    );
}

#[test]
fn an_invalid_redirect_is_rejected_with_the_problem() {
    for (from, to, message) in [
        (PLAN, "", "EOF while parsing"),
        (PLAN, "[]", "invalid length 0"),
        (PLAN, "7", "invalid type: integer `7`"),
        (r#""version":1,"#, "", "missing field `version`"),
        (r#""version":1"#, r#""version":2,"chains":[]"#, "expected version 1, found 2"),
        (r#""version":1"#, r#""version":"1""#, r#"version: invalid type: string "1""#),
        (r#""inbound":true"#, r#""inbound":true,"udp":1"#, "udp: unknown field `udp`"),
        (r#""uid":20001"#, r#""uid":20001,"gid":1"#, "chain[0].gid: unknown field `gid`"),
        (r#""inbound":true,"#, "", "missing field `inbound`"),
        (r#","outbound":[8000]"#, "", "missing field `outbound`"),
        (r#""model":5000"#, r#""model":5000,"model":5001"#, "duplicate field `model`"),
        ("}]", "}],", "key must be a string at line 1 column 76"),
        ("[8000]}", "[8000]} x", "trailing characters"),
        ("5000", "0", r#"model: expected a port from 1 to 65535, found "0""#),
        ("5000", "70000", r#"model: expected a port from 1 to 65535, found "70000""#),
        ("5000", "-1", r#"model: expected a port from 1 to 65535, found "-1""#),
        ("8093", "\"8093\"", r#"chain[1].port: expected a port from 1 to 65535, found "\"8093\"""#),
        ("[8000]", "[8000,0]", r#"outbound[1]: expected a port from 1 to 65535, found "0""#),
        ("20001", "0", "uid of auditor 1: expected 1 to 2147483647, found 0"),
        ("20002", "2147483648", "uid of auditor 2: expected 1 to 2147483647, found 2147483648"),
        ("20002", "-1", "chain[1].uid: invalid value: integer `-1`"),
        ("20002", "20001", "uid 20001 of auditor 2 is already used by an earlier auditor"),
        ("8093", "8090", "port 8090 of auditor 2 is already used by auditor 1"),
        ("8093", "5000", "port 5000 of auditor 2 is already used by the model"),
        ("[8000]", "[8000,8000]", "expected each outbound port once, found 8000 twice"),
        (r#"{"uid":20001,"port":8090},{"uid":20002,"port":8093}"#, "", "chain is empty, expected 1 to 128"),
    ] {
        let plan = PLAN.replacen(from, to, 1);
        let error = Redirect::from_json(&plan).unwrap_err().to_string();
        assert!(error.starts_with("failed to read the redirect: "), "{error}");
        assert!(error.contains(message), "{plan}: {error}");
    }
}

const ROUTES: &str = r#"{"version":1,"chain":[{"uid":20001,"port":8090},{"uid":20002,"port":8093}],"model":8080,"inbound":true,"outbound":[],"routes":[{"ports":[8091,8094],"model":8085}]}"#;

fn ports<const N: usize>(numbers: [u16; N]) -> [NonZeroU16; N] {
    numbers.map(port)
}

#[test]
fn routes_are_written_only_if_there_are_several() {
    let one = read(&form(2, 8080, true, &[]));
    assert!(!one.to_json().contains("routes"), "{}", one.to_json());
    let two = Redirect::from_json(ROUTES).unwrap();
    assert_eq!(two.to_json(), ROUTES);
    assert_eq!(two.first_ports().collect::<Vec<_>>(), ports([8090, 8091]));
    let guarded = [(8080, 8090), (8085, 8091), (8093, 8090), (8094, 8091)];
    assert_eq!(two.guarded(), guarded.map(|(from, to)| (port(from), port(to))).into());
}

#[test]
fn a_route_has_its_own_port_for_every_auditor() {
    for (to, message) in [
        (r#""ports":[8091]"#, "expected a port for each of 2 auditors in route 2, found 1"),
        (r#""ports":[]"#, "expected a port for each of 2 auditors in route 2, found 0"),
        (r#""ports":[8091,8094,8095]"#, "expected a port for each of 2 auditors in route 2, found more"),
        (r#""ports":[8090,8094]"#, "expected different ports on all routes, found 8090 twice"),
        (r#""ports":[8091,8093]"#, "expected different ports on all routes, found 8093 twice"),
        (r#""ports":[8091,8080]"#, "expected different ports on all routes, found 8080 twice"),
        (r#""ports":[8091,8091]"#, "expected different ports on all routes, found 8091 twice"),
        (r#""ports":[8091,8085]"#, "expected different ports on all routes, found 8085 twice"),
        (r#""ports":[8091,0]"#, r#"routes[0].ports[1]: expected a port from 1 to 65535, found "0""#),
        (r#""port":[8091]"#, "routes[0].port: unknown field `port`"),
    ] {
        let error =
            Redirect::from_json(&ROUTES.replace(r#""ports":[8091,8094]"#, to)).unwrap_err().to_string();
        assert!(error.contains(message), "{to}: {error}");
    }
    let same_model = ROUTES.replace("8085", "8080");
    let error = Redirect::from_json(&same_model).unwrap_err().to_string();
    assert!(error.ends_with("expected different ports on all routes, found 8080 twice"), "{error}");
    let with_exit = ROUTES.replace(r#","routes""#, r#","exit":8099,"routes""#);
    let error = Redirect::from_json(&with_exit).unwrap_err().to_string();
    assert!(error.ends_with("expected one route with an exit, found 2"), "{error}");
}

#[test]
fn up_to_eight_routes_are_accepted() {
    let mut form = form(1, 1, true, &[]);
    let routes =
        |most| (2..=most).map(|at: u16| json!({"ports": [at + 100], "model": at})).collect::<Vec<_>>();
    form["routes"] = json!(routes(8));
    let redirect = read(&form);
    assert_eq!(Redirect::from_json(&redirect.to_json()).unwrap(), redirect);
    form["routes"] = json!(routes(9));
    let error = Redirect::from_json(&form.to_string()).unwrap_err().to_string();
    assert!(error.ends_with("expected at most 8 routes, found more"), "{error}");
}

#[test]
fn each_port_is_redirected_to_the_first_auditor_of_its_route() {
    let redirect = Redirect::from_json(ROUTES).unwrap();
    let script = r#"add table inet lucid
flush table inet lucid
add chain inet lucid prerouting { type nat hook prerouting priority -100; policy accept; }
add rule inet lucid prerouting tcp dport { 8080, 8093 } redirect to :8090
add rule inet lucid prerouting tcp dport { 8085, 8094 } redirect to :8091
add chain inet lucid input { type filter hook input priority 0; policy accept; }
add rule inet lucid input iifname != "lo" tcp dport { 8080, 8085, 8093, 8094 } reject with tcp reset
add chain inet lucid output { type nat hook output priority -100; policy accept; }
add rule inet lucid output oifname "lo" tcp sport { 8080, 8085, 8093, 8094 } tcp flags & (fin | syn | rst | ack) != syn redirect to :8090
add rule inet lucid output oifname "lo" meta skuid 20001 tcp dport { 8093, 8094 } return
add rule inet lucid output oifname "lo" meta skuid 20002 tcp dport { 8080, 8085, 8093, 8094 } return
add rule inet lucid output oifname "lo" tcp dport { 8080, 8093 } redirect to :8090
add rule inet lucid output oifname "lo" tcp dport { 8085, 8094 } redirect to :8091
"#;
    assert_eq!(redirect.nft_script(), script);
    let restore = redirect.iptables_restore(None);
    let chain = "-A LUCID_REDIRECT -p tcp -m tcp --dport 8085 -j REDIRECT --to-ports 8091
-A LUCID_REDIRECT -p tcp -m tcp --dport 8094 -j REDIRECT --to-ports 8091
-A LUCID_REDIRECT -p tcp -j REDIRECT --to-ports 8090
COMMIT
";
    assert!(restore.contains(chain), "{restore}");
    for port in [8080, 8085] {
        let jump = format!("OUTPUT -o lo -p tcp -m tcp --dport {port} -m owner ! --uid-owner 20002 -j");
        assert!(restore.contains(&jump), "{restore}");
    }
}

#[test]
fn open_ports_are_written_only_if_others_are_closed() {
    let open = Redirect::from_json(PLAN).unwrap();
    assert!(!open.to_json().contains("open"), "{}", open.to_json());
    assert!(
        !open.nft_script().contains("proto-dst") && !open.iptables_restore(None).contains("LUCID_CLOSED")
    );
    for (ports, json) in [(&[][..], r#","open":[]}"#), (&[9091, 9090], r#","open":[9090,9091]}"#)] {
        let closed = opened(ports);
        assert_eq!(closed.to_json(), format!("{}{json}", PLAN.strip_suffix('}').unwrap()));
        assert_eq!(Redirect::from_json(&closed.to_json()).unwrap(), closed);
    }
    let error = Redirect::from_json(&PLAN.replace(r#""outbound""#, r#""open":[0],"outbound""#)).unwrap_err();
    assert!(error.to_string().contains("open[0]: expected a port"), "{error}");
}

#[test]
fn closed_ports_are_refused_last() {
    let redirect = opened(&[9090]);
    let input = r#"add rule inet lucid input iifname != "lo" tcp dport { 5000, 8093 } reject with tcp reset
add rule inet lucid input tcp flags & (fin | syn | rst | ack) != syn return
add rule inet lucid input meta l4proto tcp ct original proto-dst 5000 return
add rule inet lucid input meta l4proto tcp ct original proto-dst 8090 return
add rule inet lucid input meta l4proto tcp ct original proto-dst 8093 return
add rule inet lucid input meta l4proto tcp ct original proto-dst 9090 return
add rule inet lucid input iifname != "lo" meta l4proto tcp reject with tcp reset
"#;
    assert!(redirect.nft_script().contains(input), "{}", redirect.nft_script());
    let filter = "-A LUCID_OLDER -p tcp -j DROP
:LUCID_CLOSED - [0:0]
-A INPUT ! -i lo -p tcp -j LUCID_CLOSED
-A LUCID_CLOSED -p tcp -m tcp ! --syn -j RETURN
-A LUCID_CLOSED -p tcp -m conntrack --ctorigdstport 5000 -j RETURN
-A LUCID_CLOSED -p tcp -m conntrack --ctorigdstport 8090 -j RETURN
-A LUCID_CLOSED -p tcp -m conntrack --ctorigdstport 8093 -j RETURN
-A LUCID_CLOSED -p tcp -m conntrack --ctorigdstport 9090 -j RETURN
-A LUCID_CLOSED -p tcp -j REJECT --reject-with tcp-reset
COMMIT
";
    let restore = redirect.iptables_restore(None);
    assert!(restore.ends_with(filter), "{restore}");

    // An open pod removes the rules of a closed one.
    let over = Redirect::from_json(PLAN).unwrap().iptables_restore(Some(&restore));
    assert!(
        over.contains(":LUCID_CLOSED - [0:0]\n-D INPUT ! -i lo -p tcp -j LUCID_CLOSED\nCOMMIT\n"),
        "{over}"
    );

    // The model of a chain for outbound traffic is not guarded from outside.
    let mut outbound = form(1, 5000, false, &[8000]);
    outbound["open"] = json!([]);
    let outbound = read(&outbound);
    let script = outbound.nft_script();
    assert!(script.contains("proto-dst 8090 ") && !script.contains("proto-dst 5000 "), "{script}");
}

#[test]
fn errors_are_one_short_line() {
    for plan in [
        "{\"\u{7f}\u{202e}\": 1}",
        &PLAN.replace("uid", "\u{7f}"),
        &format!("{{\"{}\": 1}}", "x".repeat(100_000)),
    ] {
        let error = Redirect::from_json(plan).unwrap_err().to_string();
        assert!(!error.contains(char::is_control) && error.chars().count() <= 256, "{error:?}");
    }
}

#[test]
fn the_maximum_chain_is_accepted() {
    // With the intake of outbound traffic.
    let longest = u16::try_from(MAX_CHAIN + 1).unwrap();
    let redirect = read(&form(longest, 5000, true, &[]));
    assert_eq!(Redirect::from_json(&redirect.to_json()).unwrap(), redirect);

    let longer = form(longest + 1, 5000, true, &[]).to_string();
    let error = Redirect::from_json(&longer).unwrap_err();
    assert_eq!(
        error.to_string(),
        "failed to read the redirect: chain is longer than the limit of 128 auditors"
    );
}

#[test]
fn the_nft_script_replaces_one_table() {
    let redirect = Redirect::from_json(PLAN).unwrap();
    let script = r#"add table inet lucid
flush table inet lucid
add chain inet lucid prerouting { type nat hook prerouting priority -100; policy accept; }
add rule inet lucid prerouting tcp dport { 5000, 8093 } redirect to :8090
add rule inet lucid prerouting iifname != "lo" tcp sport 8000 tcp flags & (fin | syn | rst | ack) != syn redirect to :8090
add chain inet lucid input { type filter hook input priority 0; policy accept; }
add rule inet lucid input iifname != "lo" tcp dport { 5000, 8093 } reject with tcp reset
add chain inet lucid output { type nat hook output priority -100; policy accept; }
add rule inet lucid output oifname "lo" tcp sport { 5000, 8093 } tcp flags & (fin | syn | rst | ack) != syn redirect to :8090
add rule inet lucid output oifname "lo" meta skuid 20001 tcp dport 8093 return
add rule inet lucid output oifname "lo" meta skuid 20002 tcp dport { 5000, 8093 } return
add rule inet lucid output oifname "lo" tcp dport { 5000, 8093 } redirect to :8090
add rule inet lucid output meta skuid { 20001, 20002 } return
add rule inet lucid output oifname != "lo" tcp dport 8000 redirect to :8090
"#;
    assert_eq!(redirect.nft_script(), script);
}

#[test]
fn a_single_outbound_auditor_guards_nothing_from_outside() {
    let redirect = read(&form(1, 5000, false, &[8000]));
    let script = redirect.nft_script();
    assert!(
        !script.contains("prerouting tcp dport") && !script.contains("rule inet lucid input"),
        "{script}"
    );
    assert!(script.contains("oifname \"lo\" tcp dport 5000 redirect to :8090"), "{script}");
    let restore = redirect.iptables_restore(None);
    assert!(!restore.contains("PREROUTING -p") && !restore.contains("*filter"), "{restore}");
    // Rules of an earlier plan are removed.
    let over = redirect.iptables_restore(Some(RESTORE));
    assert!(over.contains("-D INPUT ! -i lo -p tcp -m tcp --dport 8093 -j LUCID_OLDER\n"), "{over}");
    assert!(!over.contains("-A INPUT"), "{over}");
}

const RESTORE: &str = "*nat
-N LUCID_REDIRECT
-A PREROUTING -p tcp -m tcp --dport 5000 -j LUCID_REDIRECT
-A PREROUTING -p tcp -m tcp --dport 8093 -j LUCID_REDIRECT
-A PREROUTING ! -i lo -p tcp -m tcp --sport 8000 ! --tcp-flags FIN,SYN,RST,ACK SYN -j LUCID_REDIRECT
-A OUTPUT -o lo -p tcp -m tcp --dport 5000 -m owner ! --uid-owner 20002 -j LUCID_REDIRECT
-A OUTPUT -o lo -p tcp -m tcp --dport 8093 -m owner ! --uid-owner 20001-20002 -j LUCID_REDIRECT
-A OUTPUT ! -o lo -p tcp -m tcp --dport 8000 -m owner ! --uid-owner 20001-20002 -j LUCID_REDIRECT
-A OUTPUT -o lo -p tcp -m tcp --sport 5000 ! --tcp-flags FIN,SYN,RST,ACK SYN -j LUCID_REDIRECT
-A OUTPUT -o lo -p tcp -m tcp --sport 8093 ! --tcp-flags FIN,SYN,RST,ACK SYN -j LUCID_REDIRECT
-A LUCID_REDIRECT -p tcp -j REDIRECT --to-ports 8090
COMMIT
*filter
:LUCID_OLDER - [0:0]
-A INPUT ! -i lo -p tcp -m tcp --dport 5000 -j LUCID_OLDER
-A INPUT ! -i lo -p tcp -m tcp --dport 8093 -j LUCID_OLDER
-A LUCID_OLDER -p tcp -j DROP
COMMIT
";

#[test]
fn the_iptables_input_adds_one_chain_with_jumps() {
    let redirect = Redirect::from_json(PLAN).unwrap();
    assert_eq!(redirect.iptables_restore(None), RESTORE);

    let mut apart = form(0, 5000, true, &[8000]);
    apart["chain"] =
        [7, 5, 6, 9].into_iter().zip(1..).map(|(uid, port)| json!({"uid": uid, "port": port})).collect();
    let restore = read(&apart).iptables_restore(None);
    let owners = "--dport 8000 -m owner ! --uid-owner 5-7 -m owner ! --uid-owner 9 -j LUCID_REDIRECT";
    assert!(restore.contains(owners), "{restore}");
}

#[test]
fn the_iptables_input_keeps_current_and_third_party_rules() {
    let redirect = Redirect::from_json(PLAN).unwrap();
    let others = "-A OUTPUT -p tcp -j MESH\n";
    let saved = RESTORE.replace("-N LUCID_REDIRECT", ":LUCID_REDIRECT - [0:0]").replace("COMMIT", others);
    assert_eq!(
        redirect.iptables_restore(Some(&saved)),
        "*nat\n:LUCID_REDIRECT - [0:0]\n-A LUCID_REDIRECT -p tcp -j REDIRECT --to-ports 8090\nCOMMIT\n\
         *filter\n:LUCID_OLDER - [0:0]\n-A LUCID_OLDER -p tcp -j DROP\nCOMMIT\n"
    );

    // An earlier plan with another outbound port.
    let over = redirect.iptables_restore(Some(&saved.replace("8000", "8001")));
    let (old, new) = over.split_once("-A PREROUTING").unwrap();
    assert_eq!(old.matches("-D ").count(), 8, "{over}");
    assert!(old.contains("-D OUTPUT ! -o lo -p tcp -m tcp --dport 8001 "), "{over}");
    assert!(!over.contains("MESH") && !over.contains("-D LUCID_REDIRECT"), "{over}");
    let (nat, _) = RESTORE.split_once("*filter").unwrap();
    assert!(new.starts_with(nat.split_once("-A PREROUTING").unwrap().1), "{over}");

    // Nothing is installed.
    let over = redirect.iptables_restore(Some("*nat\n:OUTPUT ACCEPT [0:0]\nCOMMIT\n"));
    assert_eq!(over, RESTORE.replace("-N LUCID_REDIRECT", ":LUCID_REDIRECT - [0:0]"));
}
