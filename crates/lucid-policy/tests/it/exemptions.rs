//! Exemptions and the findings that they cover.

use lucid_policy::{Exemption, ImagePattern};
use serde_json::{Value, json};

use crate::common::{Ask, REVOKED, injected, plain, push, secured};

fn exempting(pod: &Value, exemption: Value) -> Ask {
    let exemption: Exemption = serde_json::from_value(exemption).unwrap();
    Ask::create(pod).with(|ask| ask.policy.exemptions.push(exemption))
}

#[test]
fn a_namespace_is_exempt_from_all_but_invalid_tickets() {
    let mut pod = secured();
    pod["metadata"]["labels"]["lucid.computing/break-glass"] = json!("please");
    push(&mut pod, "containers", json!({"name": "x", "image": "reg.test/first:1"}));
    for (namespace, exempt) in [("shop", true), ("shop-2", false), ("sho", false)] {
        let evaluation =
            exempting(&pod, json!({"name": "legacy", "namespaces": [namespace]})).evaluate().unwrap();
        assert_eq!(evaluation.denial().is_none(), exempt, "{namespace}");
        assert_eq!(evaluation.exempted.is_empty(), !exempt);
        if exempt {
            assert_eq!(evaluation.findings.len(), 1, "{:?}", evaluation.findings);
            assert!(evaluation.exempted.iter().all(|it| it.to_string().starts_with("legacy: ")));
        }
    }
}

#[test]
fn images_are_exempt_by_repository_or_digest() {
    let mut pod = plain();
    push(&mut pod, "containers", json!({"name": "first", "image": format!("reg.test/first@{REVOKED}")}));
    let other = format!("sha256:{}", "9".repeat(64));
    for (condition, exempt) in [
        (json!({"images": ["reg.test/first"]}), true),
        (json!({"images": ["reg.test/*"]}), true),
        (json!({"images": ["*.test/first"]}), true),
        (json!({"images": ["reg.test/fir"]}), false),
        (json!({"images": ["reg.test/first/x"]}), false),
        (json!({"digests": [REVOKED]}), true),
        (json!({"digests": [other]}), false),
        (json!({"images": ["reg.test/first"], "digests": [REVOKED]}), true),
        (json!({"images": ["reg.test/first"], "digests": [other]}), false),
        (json!({"images": ["reg.test/first"], "namespaces": ["shop"]}), true),
        (json!({"images": ["reg.test/first"], "namespaces": ["other"]}), false),
    ] {
        let mut exemption = condition.clone();
        exemption["name"] = json!("x");
        assert_eq!(exempting(&pod, exemption).denial().is_empty(), exempt, "{condition}");
    }
}

#[test]
fn an_exempt_image_cannot_replace_an_auditor() {
    let mesh = json!({"name": "mesh", "images": ["docker.io/istio/proxyv2"]});
    let mut pod = injected(&secured());
    push(
        &mut pod,
        "initContainers",
        json!({"name": "istio-init", "image": "docker.io/istio/proxyv2:1.30",
        "securityContext": {"capabilities": {"add": ["NET_ADMIN", "NET_RAW"]}}}),
    );
    assert_ne!(Ask::create(&pod).denial(), "");
    let evaluation = exempting(&pod, mesh.clone()).evaluate().unwrap();
    assert_eq!((evaluation.denial(), evaluation.exempted.len()), (None, 3));
    // An exempt image does not cover containers of the chain.
    pod["spec"]["containers"][1]["image"] = json!("docker.io/istio/proxyv2:1.30");
    assert!(exempting(&pod, mesh).denial().contains("differs from the plan in image"));
}

#[test]
fn patterns_match_whole_components() {
    for (pattern, image, matches) in [
        ("ghcr.io/acme", "ghcr.io/acme", true),
        ("ghcr.io/acme", "ghcr.io/acme/web:1", true),
        ("ghcr.io/acme", "ghcr.io/acme-evil/web", false),
        ("ghcr.io/acme", "evil.test/ghcr.io/acme/web", false),
        ("ghcr.io/acme", "ghcr.io.evil.test/acme/web", false),
        ("ghcr.io/acme", "ghcr.io:444/acme/web", false),
        ("ghcr.io/acme", "GHCR.io:443/acme/web", true),
        ("ghcr.io/*", "ghcr.io/anything/at/all", true),
        ("ghcr.io/acme/*", "ghcr.io/acme/web", true),
        ("*.acme.test/*", "eu.acme.test/web", true),
        ("*.acme.test/*", "acme.test/web", false),
        ("*.acme.test/*", "a.eu.acme.test/web", false),
        ("*.acme.test/*", "evil-acme.test/web", false),
        ("*.acme.test/*", "x/eu.acme.test/web", false),
        ("docker.io/library", "nginx", true),
        ("docker.io/library/nginx", "nginx:1", true),
        ("docker.io/library/nginx", "nginx-evil", false),
        ("index.docker.io/library/nginx", "nginx", false),
        ("localhost:5000/a", "localhost:5000/a/b", true),
        ("localhost:5000/a", "localhost:5001/a/b", false),
        ("[2001:db8::1]:5000/*", "[2001:DB8::1]:5000/a", true),
        ("[2001:db8::1]/*", "[2001:db8::1]/a", true),
    ] {
        let Ok(parsed) = pattern.parse::<ImagePattern>() else {
            assert!(!matches, "{pattern} is refused");
            continue;
        };
        assert_eq!(parsed.matches(&image.parse().unwrap()), matches, "{pattern} {image}");
    }
    for (pattern, says) in [
        ("nginx", "does not name a registry"),
        ("acme/web", "does not name a registry"),
        ("index.docker.io/library/nginx", "write docker.io"),
        ("", "registry/path"),
        ("*", "registry/path"),
        ("*/web", "registry/path"),
        ("ghcr.io/*/web", "registry/path"),
        ("ghcr.io/acme:1", "has a tag or a digest"),
        ("ghcr.io/acme*", "registry/path"),
        ("gh*.io/acme", "registry/path"),
        ("https://ghcr.io/acme", "registry/path"),
    ] {
        let error = pattern.parse::<ImagePattern>().unwrap_err().to_string();
        assert!(error.contains(says), "{pattern}: {error}");
    }
}

#[test]
fn an_exemption_without_bounds_or_name_is_rejected() {
    for exemption in [
        json!({"name": "all"}),
        json!({"name": "all", "namespaces": []}),
        json!({"name": "", "namespaces": ["a"]}),
        json!({"name": "a b", "namespaces": ["a"]}),
        json!({"namespaces": ["a"]}),
        json!({"name": "a", "namespaces": ["*"]}),
        json!({"name": "a", "namespaces": ["a", "team-*"]}),
        json!({"name": "a", "namespaces": ["Shop"]}),
        json!({"name": "a", "namespaces": ["a.b"]}),
        json!({"name": "a", "namespaces": ["-a"]}),
        json!({"name": "a", "namespaces": [""]}),
        json!({"name": "a", "namespaces": ["a".repeat(64)]}),
        json!({"name": "a", "namespace": ["a"]}),
        json!({"name": "a", "digests": ["sha256:00"]}),
        json!({"name": "a", "hostPaths": ["srv"]}),
        json!({"name": "a", "hostPaths": ["/srv/../etc"]}),
    ] {
        assert!(serde_json::from_value::<Exemption>(exemption.clone()).is_err(), "{exemption}");
    }
}

#[test]
fn exempt_images_of_a_pod_are_listed() {
    let exemption: Exemption = serde_json::from_value(
        json!({"name": "mesh", "namespaces": ["shop"], "images": ["docker.io/istio"]}),
    )
    .unwrap();
    let mut policy = lucid_policy::Policy::default();
    let pod = json!({"spec": {
        "containers": [{"name": "a", "image": "istio/proxyv2:1"}, {"name": "b", "image": "other"}, {"name": "c"}],
        "initContainers": [{"name": "d", "image": "docker.io/istio/proxyv2:2"}],
    }})
    .to_string();
    let view = lucid_chain::PodView::from_json(&pod).unwrap();
    assert!(policy.exempt_images("shop", &view).is_empty());
    policy.exemptions.push(exemption);
    let exempt: Vec<_> = policy.exempt_images("shop", &view).into_iter().collect();
    assert_eq!(exempt, ["docker.io/istio/proxyv2:2", "istio/proxyv2:1"]);
    assert!(policy.exempt_images("other", &view).is_empty());
}
