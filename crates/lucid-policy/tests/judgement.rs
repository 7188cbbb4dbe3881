//! Who is an auditor, and what is said of its image.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::collections::BTreeMap;

use lucid_chain::{Catalogue, PodView};
use lucid_notary::{Digest, Verdict};
use lucid_policy::{Place, Strictness, auditor_containers, changed_since, judge};
use serde_json::{Value, json};

const A: &str = "sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
const B: &str = "sha256:bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb";
const C: &str = "sha256:cccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccc";

/// Names of the containers that count as auditors, with their place.
fn found(spec: Value) -> Vec<(Place, String)> {
    let json = json!({ "spec": spec }).to_string();
    let pod = PodView::from_json(&json).unwrap();
    let auditors = auditor_containers(&pod, [&Catalogue::builtin()]);
    auditors.iter().map(|auditor| (auditor.place, auditor.name.to_owned())).collect()
}

#[test]
fn an_auditor_is_known_by_image_name_or_id_in_every_list() {
    for (name, container, is_auditor) in [
        ("application", json!({"name": "web", "image": "shop/web:1"}), false),
        ("name", json!({"name": "lucid-toxicity-auditor", "image": "shop/web:1"}), true),
        ("name with ordinal", json!({"name": "lucid-toxicity-auditor-2", "image": "shop/web:1"}), true),
        ("name with suffix", json!({"name": "lucid-toxicity-auditor-x", "image": "shop/web:1"}), false),
        (
            "image",
            json!({"name": "web", "image": format!("ghcr.io/lucid/lucid-injection-auditor@{A}")}),
            true,
        ),
        (
            "image of the same registry, in capitals",
            json!({"name": "web", "image": "GHCR.IO/lucid/lucid-injection-auditor"}),
            true,
        ),
        (
            "image of the same registry, with its port",
            json!({"name": "web", "image": "ghcr.io:443/lucid/lucid-injection-auditor"}),
            true,
        ),
        (
            "image of the same port, with zeros",
            json!({"name": "web", "image": "ghcr.io:0443/lucid/lucid-injection-auditor"}),
            true,
        ),
        (
            "image of another port",
            json!({"name": "web", "image": "ghcr.io:444/lucid/lucid-injection-auditor"}),
            false,
        ),
        (
            "image of another registry",
            json!({"name": "web", "image": "evil.test/lucid/lucid-injection-auditor"}),
            false,
        ),
        (
            "id",
            json!({"name": "web", "image": "x", "env": [{"name": "LUCID_AUDITOR_ID", "value": ""}]}),
            true,
        ),
        (
            "id from a field",
            json!({"name": "web", "image": "x",
            "env": [{"name": "LUCID_AUDITOR_ID", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]}),
            true,
        ),
        ("no image", json!({"name": "lucid-toxicity-auditor"}), true),
    ] {
        for (list, place) in [
            ("containers", Place::Containers),
            ("initContainers", Place::InitContainers),
            ("ephemeralContainers", Place::EphemeralContainers),
        ] {
            let expected =
                Vec::from_iter(is_auditor.then(|| (place, container["name"].as_str().unwrap().to_owned())));
            assert_eq!(found(json!({ list: [container.clone()] })), expected, "{name} in {list}");
        }
    }
}

#[test]
fn an_auditor_whose_own_name_ends_in_a_number_is_known_by_it() {
    let yaml = "chain: [{name: llm-guard-2, image: example.com/guard}]";
    let catalogue = Catalogue::parse("auditors.yaml", yaml).unwrap();
    for (name, is_auditor) in [("llm-guard-2", true), ("llm-guard-2-2", true), ("llm-guard", false)] {
        let json =
            json!({"spec": {"containers": [{"name": name, "image": "evil.test/guard:1"}]}}).to_string();
        let pod = PodView::from_json(&json).unwrap();
        assert_eq!(auditor_containers(&pod, [&catalogue]).len(), usize::from(is_auditor), "{name}");
    }
}

#[test]
fn a_message_has_no_control_characters_of_the_pod() {
    let json =
        json!({"spec": {"containers": [{"name": "lucid-toxicity-auditor", "image": "a\nWARN forged"}]}});
    let json = json.to_string();
    let pod = PodView::from_json(&json).unwrap();
    let auditors = auditor_containers(&pod, [&Catalogue::builtin()]);
    let denial = judge(&auditors, &verdicts(), Strictness::Strict).denial().unwrap();
    assert!(!denial.contains('\n') && denial.contains(r"a\nWARN"), "{denial}");
}

fn verdicts() -> BTreeMap<Digest, Verdict> {
    let unknown = Verdict::Unknown { reason: "connection refused".to_owned() };
    [(A, Verdict::Notarized), (B, Verdict::NotNotarized), (C, unknown)]
        .map(|(digest, verdict)| (digest.parse().unwrap(), verdict))
        .into()
}

#[test]
fn strict_refuses_what_lenient_warns_of() {
    let d = format!("sha256:{}", "d".repeat(64));
    for (image, problem) in [
        (format!("r.test/a@{A}"), None),
        (format!("r.test/a:1@{A}"), None),
        ("r.test/a:1".to_owned(), Some("missing digest")),
        (format!("r.test/a@{B}"), Some("not notarized")),
        (format!("r.test/a@{C}"), Some("could not be verified: connection refused")),
        (format!("r.test/a@{d}"), Some("could not be verified: the Verifier was not asked")),
        ("r.test/UPPER".to_owned(), Some("not an image reference: ")),
        (format!("r.test/a@{}", A.to_uppercase()), Some("not an image reference: ")),
        (String::new(), Some("not an image reference: ")),
    ] {
        let json =
            json!({"spec": {"containers": [{"name": "lucid-toxicity-auditor", "image": image}]}}).to_string();
        let pod = PodView::from_json(&json).unwrap();
        let auditors = auditor_containers(&pod, [&Catalogue::builtin()]);
        let strict = judge(&auditors, &verdicts(), Strictness::Strict);
        let lenient = judge(&auditors, &verdicts(), Strictness::Lenient);
        assert_eq!((lenient.denial(), strict.warnings()), (None, vec![]), "{image}");
        match problem {
            None => assert_eq!((strict.denial(), lenient.warnings()), (None, vec![]), "{image}"),
            Some(problem) => {
                let denial = strict.denial().expect("it is refused");
                let prefix = format!("auditor container lucid-toxicity-auditor, image {image}: {problem}");
                assert!(denial.starts_with(&prefix), "{denial}");
                assert_eq!(lenient.warnings(), [denial]);
            }
        }
    }
}

#[test]
fn every_auditor_is_named_in_the_denial() {
    let json = json!({"spec": {"containers": [
        {"name": "lucid-toxicity-auditor", "image": "r.test/a"}, {"name": "lucid-injection-auditor", "image": "r.test/b"},
    ]}})
    .to_string();
    let pod = PodView::from_json(&json).unwrap();
    let denial = judge(&auditor_containers(&pod, [&Catalogue::builtin()]), &verdicts(), Strictness::Strict)
        .denial()
        .unwrap();
    assert!(
        denial.contains("lucid-toxicity-auditor") && denial.contains("lucid-injection-auditor"),
        "{denial}"
    );
}

#[test]
fn an_update_answers_only_for_the_auditors_it_changes() {
    let pod = |image: &str, list: &str| {
        json!({"spec": {list: [{"name": "lucid-toxicity-auditor", "image": image}]}}).to_string()
    };
    let changed = |old: &str, new: &str| {
        let (old, new) = (PodView::from_json(old).unwrap(), PodView::from_json(new).unwrap());
        changed_since(auditor_containers(&new, [&Catalogue::builtin()]), &old).len()
    };
    let old = pod("r.test/a:1", "containers");
    assert_eq!(changed(&old, &old), 0);
    assert_eq!(changed(&old, &pod("r.test/a:2", "containers")), 1);
    assert_eq!(changed(&old, &pod("r.test/a:1", "ephemeralContainers")), 1);
    assert_eq!(changed("{}", &old), 1);
}
