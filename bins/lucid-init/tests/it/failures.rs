//! Error messages and exit codes.

use super::{
    init::{Ended, Image, Init, PLAN},
    network::Network,
};

/// Returns the error line, which standard error and the termination message share.
fn line(ended: &Ended, code: i32) -> &str {
    assert_eq!(ended.code, code, "{ended:?}");
    assert_eq!(ended.stdout, "", "{ended:?}");
    let line = ended.stderr.strip_suffix('\n').unwrap();
    assert!(line.starts_with("lucid-init: failed to ") && !line.contains('\n'), "{ended:?}");
    assert_eq!(line, ended.termination_log);
    line
}

#[test]
fn a_missing_capability_is_reported_with_a_remedy() {
    let Some(network) = Network::new() else { return };
    for image in [Image::Nft, Image::IptablesNft, Image::IptablesLegacy] {
        let ended = Init::new(image).capabilities("-all,+net_raw").run(&network.pod, &[]);
        let line = line(&ended, 1);
        let start = format!("lucid-init: failed to install the redirect: {}: ", image.tool());
        assert!(line.starts_with(&start), "{line}");
        // Error messages of nft and iptables.
        let own = ["Operation not permitted", "(you must be root)", "unable to initialize table 'nat'"];
        assert!(own.iter().any(|words| line.contains(words)), "{line}");
        assert!(line.contains("this container lacks the capability NET_ADMIN"), "{line}");
        let remedy = "the annotation lucid.computing/intercept: env on the pod does without network rules";
        assert!(line.ends_with(remedy), "{line}");
    }
    let none = Init::without_tools().run(&network.pod, &[]);
    assert!(line(&none, 1).contains("this image has none of the requested tools"));
    let other = Init::new(Image::Nft).backend("iptables").run(&network.pod, &[]);
    assert!(line(&other, 1).contains("this image has none of the requested tools"));
}

#[test]
fn a_missing_capability_of_legacy_iptables_is_reported() {
    let Some(network) = Network::new() else { return };
    let ended = Init::new(Image::IptablesLegacy).capabilities("-all,+net_admin").run(&network.pod, &[]);
    let line = line(&ended, 1);
    let says = "iptables-legacy needs the capability NET_RAW, which this container lacks";
    assert!(line.contains(says), "{line}");
}

#[test]
fn the_next_tool_is_tried_after_a_failure() {
    let Some(network) = Network::new() else { return };
    let init = Init::new(Image::IptablesNft);
    init.add_script("nft", "echo 'Error: no such kernel' >&2; exit 1");
    assert!(init.install(&network.pod).starts_with("rules installed by iptables-nft: "));

    let init = init.backend("nft");
    assert!(line(&init.run(&network.pod, &[]), 1).contains("redirect: nft: Error: no such kernel; "));
}

#[test]
fn tcp_flag_rules_are_omitted_only_if_the_kernel_rejects_them() {
    let Some(network) = Network::new() else { return };
    if !Image::IptablesNft.is_available(&network) {
        return;
    }
    let lock =
        "echo 'Another app is currently holding the xtables lock. Stopped waiting after 5s.' >&2; exit 4";
    let without_flags = |case| Init::with_iptables_nft(&format!("*--tcp-flags*) {case}"));
    let ended = without_flags(lock).run(&network.pod, &[]);
    assert!(line(&ended, 1).contains("iptables-nft: Another app is currently holding"), "{ended:?}");
    assert!(!Image::IptablesNft.rules(&network.pod).contains("LUCID"));

    let gvisor = without_flags("echo 'iptables-restore: line 9 failed' >&2; exit 1");
    for _ in 0..2 {
        let said = gvisor.install(&network.pod);
        let not_reset = "; older connections are not reset, because this kernel cannot match TCP flags\n";
        assert!(said.ends_with(not_reset), "{said}");
    }
    assert!(!Image::IptablesNft.rules(&network.pod).contains("--tcp-flags"));

    // Fails once per family and succeeds afterwards.
    let once = "[ -e /dev/shm/$0 ] || { /bin/mkdir -p /dev/shm/$0; echo 'failed' >&2; exit 1; }";
    let said = without_flags(once).install(&network.pod);
    assert!(said.ends_with(" as they should\n"), "{said}");
    assert!(Image::IptablesNft.rules(&network.pod).contains("--tcp-flags"));
}

#[test]
fn a_hanging_tool_is_killed() {
    let Some(network) = Network::new() else { return };
    let init = Init::new(Image::IptablesNft);
    init.add_script("nft", "exec /bin/sleep 1000");
    assert!(init.install(&network.pod).starts_with("rules installed by iptables-nft: "));
}

#[test]
fn rules_without_effect_are_detected() {
    let Some(network) = Network::new() else { return };
    let init = Init::without_tools();
    init.add_script("nft", "exit 0");
    let ended = init.run(&network.pod, &[]);
    let line1 = line(&ended, 3);
    assert!(line1.contains("prove the redirect that nft installed: a connection to "), "{line1}");

    // The model is already listening: a successful connection alone proves nothing.
    super::hops::start_model(&network);
    super::hops::serve(&network.pod, 20002, 8093, "AUD2", None);
    let ended = init.run(&network.pod, &[]);
    assert!(line(&ended, 3).contains(" was not redirected to port 8090"), "{ended:?}");

    // Rules for IPv4 only.
    let init = Init::without_tools();
    init.add_script("nft", "/bin/sed 's/redirect/meta nfproto ipv4 redirect/' | /usr/sbin/nft -f -");
    let ended = init.run(&network.pod, &[]);
    let line = line(&ended, 3);
    let (to, says) = ("a connection to [", " was not redirected to port 8090");
    assert!(line.contains(to) && line.contains(says), "{line}");
}

#[test]
fn ipv6_needs_rules_if_the_pod_has_it() {
    let Some(network) = Network::new() else { return };
    let init = Init::without_tools();
    for program in ["iptables-nft-restore", "iptables-nft-save"] {
        init.add(program, &format!("/usr/sbin/{program}"));
    }
    let ended = init.run(&network.pod, &[]);
    assert!(
        line(&ended, 1).contains("iptables-nft: the pod has IPv6, and the image no ip6tables of this kind")
    );

    let disable = || std::fs::write("/proc/sys/net/ipv6/conf/all/disable_ipv6", "1");
    network.pod.as_user(0, disable).unwrap();
    // Two ports on each of 127.0.0.1 and the pod's address, and one external address.
    let said = init.install(&network.pod);
    assert!(said.contains("iptables-nft: 5 connections"), "{said}");
    let said = Init::new(Image::Nft).install(&network.pod);
    assert!(said.contains("nft: 5 connections"), "{said}");
}

#[test]
fn invalid_input_is_reported_in_one_line_and_changes_nothing() {
    let Some(network) = Network::new() else { return };
    let later = PLAN.replace("\"version\":1", "\"version\":2");
    let nonsense = "x\n".repeat(10_000);
    for (plan, backend, arguments, said) in [
        (None, "auto", &[][..], "LUCID_REDIRECT is not set"),
        (Some(""), "auto", &[], "LUCID_REDIRECT is not set"),
        (Some("{}"), "auto", &[], "missing field `version`"),
        (Some(&*later), "auto", &[], "expected version 1, found 2"),
        (Some(&*nonsense), "auto", &[], "expected value at line 1 column 1"),
        (Some(PLAN), "pf", &[], "LUCID_INIT_BACKEND: expected one of auto, nft, iptables; found \"pf\""),
        (Some(PLAN), "auto", &["--flush"], "or nothing; found `--flush`"),
        (None, "auto", &["--print", "nft"], "LUCID_REDIRECT is not set"),
    ] {
        let init = Init::new(Image::Nft).plan(plan).backend(backend);
        let ended = init.run(&network.pod, arguments);
        let line = line(&ended, 2);
        assert!(line.contains(said) && line.len() < 300, "{line}");
    }
    assert_eq!(Image::Nft.rules(&network.pod), "");
}

#[test]
fn help_and_version_need_no_plan() {
    let Some(network) = Network::new() else { return };
    let init = Init::without_tools().plan(None);
    assert!(init.run(&network.pod, &["--help"]).stdout.contains("Exit codes:"));
    assert!(init.run(&network.pod, &["--version"]).stdout.starts_with("lucid-init 0."));
}
