//! Only notarized auditors run: strict denies, lenient warns.

use std::path::Path;

use crate::common::{
    cluster, config_map, create, decisions, has_kubernetes, logged_in, operator, patch_pod, pod, secured,
    until, with_chain,
};
use crate::record::{key, read, sealed};
use lucid_e2e::{Answer, Verifier};
use lucid_testbed::Cluster;
use serde_json::json;

const NOTARIZED: &str = "sha256:1111111111111111111111111111111111111111111111111111111111111111";
const ALSO_NOTARIZED: &str = "sha256:2222222222222222222222222222222222222222222222222222222222222222";
const UNCHECKED: &str = "sha256:4444444444444444444444444444444444444444444444444444444444444444";
const ORIGIN: &str = "lucid.computing/test/0";
const UNKNOWN: &str = "sha256:3333333333333333333333333333333333333333333333333333333333333333";

/// Writes a catalogue with one auditor for each possible verdict on an image.
async fn catalogue(cluster: &Cluster) {
    let entry = |name: &str, image: &str| format!("  - {{name: {name}, image: \"example.com/{image}\"}}\n");
    let catalogue = format!(
        "chain:\n{}{}{}{}",
        entry("good", &format!("good:1@{NOTARIZED}")),
        entry("better", &format!("better@{ALSO_NOTARIZED}")),
        entry("unknown", &format!("unknown@{UNKNOWN}")),
        entry("tagged", "tagged:1"),
    );
    config_map(cluster, "lucid-system", "lucid-auditors", "auditors.yaml", &catalogue).await;
}

fn assert_refused(response: &Answer, parts: &[&str]) {
    assert_eq!(response.status, 403, "{response:?}");
    for part in [r#"admission webhook "validate.lucid.computing" denied the request"#].iter().chain(parts) {
        assert!(response.refusal().contains(part), "{part:?} is not in {:?}", response.refusal());
    }
}

#[tokio::test]
async fn strict_notarization_denies_unnotarized_images() {
    let cluster = cluster().await;
    catalogue(&cluster).await;
    let mut verifier = Verifier::start(cluster.folder(), &[NOTARIZED, ALSO_NOTARIZED]).await.unwrap();
    the_shortest_timeout_is_enough(&cluster, &verifier).await;
    let _operator = operator(&cluster, |operator| {
        operator
            .env("LUCID_ADMISSION_MODE", "enforce")
            .env("LUCID_TIER_LABEL", "")
            .env("LUCID_STRICT_NOTARIZATION", "true")
            .env("LUCID_VERIFIER_URL", verifier.url())
    })
    .await;

    // CREATE
    let accepted = |response: &Answer| response.status == 201;
    until(&cluster, "shop", |name| with_chain(&format!("first-{name}"), "good"), accepted).await;
    let response = create(&cluster, "shop", &with_chain("web", "good,better")).await;
    assert_eq!((response.status, &response.warnings[..]), (201, &[][..]), "{response:?}");
    assert_refused(
        &create(&cluster, "shop", &with_chain("a", "good,unknown")).await,
        &["unknown", UNKNOWN, "not notarized"],
    );
    assert_refused(
        &create(&cluster, "shop", &with_chain("b", "tagged")).await,
        &["tagged:1", "missing digest"],
    );
    let by_hand = json!({
        "metadata": {"name": "c"},
        "spec": {"containers": [{"name": "x", "image": "example.com/x:1", "env": [{"name": "LUCID_AUDITOR_ID"}]}]},
    });
    assert_refused(&create(&cluster, "shop", &by_hand).await, &["container x", "missing digest"]);
    let elsewhere = json!({
        "metadata": {"name": "e"},
        "spec": {"containers": [{"name": "x", "image": "EXAMPLE.com:443/good:evil"}]},
    });
    assert_refused(&create(&cluster, "shop", &elsewhere).await, &["container x", "missing digest"]);
    let as_init = json!({
        "metadata": {"name": "d"},
        "spec": {"containers": [{"name": "x", "image": "example.com/x:1"}],
            "initContainers": [{"name": "y", "image": "example.com/good:2"}]},
    });
    assert_refused(&create(&cluster, "shop", &as_init).await, &["init container y", "missing digest"]);
    let plain = create(&cluster, "shop", &pod("plain", json!({}), json!({}))).await;
    assert_eq!(plain.status, 201, "a pod without auditors is allowed: {plain:?}");

    // UPDATE: the image of a running container is mutable.
    let image = |image: String| json!({"spec": {"containers": [{"name": "good", "image": image}]}});
    let update = patch_pod(&cluster, "web", &image(format!("example.com/good@{UNKNOWN}"))).await;
    assert_refused(&update, &["container good", UNKNOWN, "not notarized"]);
    assert_refused(
        &patch_pod(&cluster, "web", &image("example.com/good:2".to_owned())).await,
        &["missing digest"],
    );
    let update = patch_pod(&cluster, "web", &image(format!("example.com/good@{ALSO_NOTARIZED}"))).await;
    assert_refused(&update, &["differs from the plan in image"]);

    // pods/ephemeralcontainers
    let ephemeral = |name: &str, image: &str| {
        let security = json!({"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}});
        json!({"spec": {"ephemeralContainers": [{"name": name, "image": image, "securityContext": security}]}})
    };
    let debug =
        patch_pod(&cluster, "web/ephemeralcontainers", &ephemeral("shell", "example.com/shell:1")).await;
    assert_eq!(debug.status, 200, "a debug container is not an auditor: {debug:?}");
    let smuggled =
        patch_pod(&cluster, "web/ephemeralcontainers", &ephemeral("e", "example.com/good:2")).await;
    assert_refused(&smuggled, &["ephemeral container e", "missing digest"]);

    // The registry is reloaded when its file changes.
    verifier.notarize(&[NOTARIZED, ALSO_NOTARIZED, UNKNOWN]).unwrap();
    until(&cluster, "shop", |name| with_chain(name, "unknown"), accepted).await;

    // An unavailable Verifier confirms nothing, but pods without auditors pass.
    verifier.stop();
    let update = patch_pod(&cluster, "web", &image(format!("example.com/good@{UNCHECKED}"))).await;
    assert_refused(&update, &["container good", "could not be verified"]);
    let label = json!({"metadata": {"labels": {"tier": "A"}}});
    assert_eq!(patch_pod(&cluster, "web", &label).await.status, 200);
    let debug =
        patch_pod(&cluster, "web/ephemeralcontainers", &ephemeral("shell-2", "example.com/shell:1")).await;
    assert_eq!(debug.status, 200, "{debug:?}");
}

#[tokio::test]
async fn lenient_notarization_warns() {
    let cluster = cluster().await;
    catalogue(&cluster).await;
    let mut verifier = Verifier::start(cluster.folder(), &[NOTARIZED]).await.unwrap();
    let log = cluster.folder().join("decisions");
    let vkey = key(&log, ORIGIN);
    let with = |operator| {
        sealed(operator, &log, ORIGIN).env("LUCID_TIER_LABEL", "").env("LUCID_VERIFIER_URL", verifier.url())
    };
    let operator = operator(&cluster, with).await;
    decisions_of_both_webhooks_are_logged(&cluster, &log).await;
    let cases = [("good", None), ("unknown", Some("not notarized")), ("tagged", Some("missing digest"))];
    for (chain, warning) in cases {
        let response = create(&cluster, "shop", &with_chain(chain, chain)).await;
        assert_eq!(response.status, 201, "{response:?}");
        let warnings = response.warnings.join("\n");
        assert_eq!(warnings.is_empty(), warning.is_none(), "{chain}: {warnings}");
        assert!(warnings.contains(warning.unwrap_or_default()), "{chain}: {warnings}");
    }
    verifier.stop();
    let by_hand = json!({
        "metadata": {"name": "down"},
        "spec": {"containers": [{"name": "x", "image": format!("example.com/good@{UNCHECKED}")}]},
    });
    let response = create(&cluster, "shop", &by_hand).await;
    assert_eq!(response.status, 201, "{response:?}");
    assert!(response.warnings.join("\n").contains("could not be verified"), "{:?}", response.warnings);

    logged_in(&operator.log(), &format!("vkey={vkey}")).await;
    drop(operator);
    assert_eq!(read(&log.join("vkey")).trim(), vkey);
    let checkpoint = read(&log.join("checkpoint"));
    assert!(checkpoint.starts_with(&format!("{ORIGIN}\n")), "{checkpoint}");
}

async fn the_shortest_timeout_is_enough(cluster: &Cluster, verifier: &Verifier) {
    let _operator = operator(cluster, |operator| {
        let operator = operator
            .env("LUCID_ADMISSION_MODE", "enforce")
            .env("LUCID_TIER_LABEL", "")
            .env("LUCID_STRICT_NOTARIZATION", "true")
            .env("LUCID_VERIFIER_URL", verifier.url());
        operator.flag("--webhook-timeout-seconds", "2")
    })
    .await;
    until(cluster, "shop", |name| with_chain(&format!("timeout-{name}"), "good"), |it| it.status == 201)
        .await;
}

async fn decisions_of_both_webhooks_are_logged(cluster: &Cluster, log: &Path) {
    create(cluster, "shop", &secured("web")).await.stored().unwrap();
    let decisions = decisions(log);
    let of = |webhook: &str| decisions.iter().find(|decision| decision["webhook"] == webhook).unwrap();
    assert_eq!(of("mutate")["chain"], json!(["lucid-guardrails-auditor", "lucid-guardrails-auditor-2"]));
    assert_eq!(of("mutate")["patched"], true);
    assert_eq!(of("validate")["images"][0]["verdict"], "missing digest");
    for (seq, webhook) in ["mutate", "validate"].into_iter().enumerate() {
        let decision = of(webhook);
        assert_eq!((&decision["namespace"], &decision["name"]), (&json!("shop"), &json!("web")), "{webhook}");
        assert_eq!(decision["seq"], seq);
    }
}

/// A catalogue entry brings files. Its image volume is evaluated like its image, and `/mutate` restores what the pod's author
/// changes.
#[tokio::test]
async fn files_of_auditors_are_mounted_and_image_volumes_notarized() {
    let cluster = cluster().await;
    if !has_kubernetes(&cluster, 35, "an image volume").await {
        return;
    }
    let entry = |name: &str, weights: &str| {
        format!(
            "  - {{name: {name}, image: \"example.com/{name}@{NOTARIZED}\", env: {{TOKEN: {{valueFrom: {{secretKeyRef: {{name: s, \
             key: k}}}}}}}}, files: [{{mountPath: /models, image: {{reference: \"example.com/weights{weights}\"}}}}, \
             {{mountPath: /rules, configMap: {{name: rules}}}}]}}\n"
        )
    };
    let (good, bad) = (format!("@{ALSO_NOTARIZED}"), format!("@{UNKNOWN}"));
    let catalogue =
        format!("chain:\n{}{}{}", entry("good", &good), entry("unknown", &bad), entry("tagged", ":1"));
    config_map(&cluster, "lucid-system", "lucid-auditors", "auditors.yaml", &catalogue).await;
    let verifier = Verifier::start(cluster.folder(), &[NOTARIZED, ALSO_NOTARIZED]).await.unwrap();
    let log = cluster.folder().join("decisions");
    key(&log, ORIGIN);
    let _operator = operator(&cluster, |operator| {
        sealed(operator, &log, ORIGIN)
            .env("LUCID_ADMISSION_MODE", "enforce")
            .env("LUCID_TIER_LABEL", "")
            .env("LUCID_STRICT_NOTARIZATION", "true")
            .env("LUCID_VERIFIER_URL", verifier.url())
    })
    .await;
    let accepted = |response: &Answer| response.status == 201;
    until(&cluster, "shop", |name| with_chain(&format!("first-{name}"), "good"), accepted).await;

    let stored = create(&cluster, "shop", &with_chain("web", "good")).await.stored().unwrap();
    let spec = serde_json::to_value(stored.spec).unwrap();
    let mounted = |path: &str| {
        let containers = spec["containers"].as_array().unwrap();
        let auditor = containers.iter().find(|container| container["name"] == "good").unwrap();
        let mounts = auditor["volumeMounts"].as_array().unwrap();
        let mount = mounts.iter().find(|mount| mount["mountPath"] == path).unwrap();
        spec["volumes"].as_array().unwrap().iter().find(|it| it["name"] == mount["name"]).unwrap().clone()
    };
    let image = mounted("/models");
    assert_eq!(image["image"]["reference"], format!("example.com/weights{good}"));
    assert_eq!(mounted("/rules")["configMap"]["name"], "rules");
    for (chain, weights, problem) in [("unknown", &*bad, "not notarized"), ("tagged", ":1", "missing digest")]
    {
        let response = create(&cluster, "shop", &with_chain("web-2", chain)).await;
        let image = format!(", image example.com/weights{weights}: {problem}");
        assert_refused(&response, &["image volume lucid-files-", &image]);
    }

    // The author of a pod cannot bring other files by the name of the volume.
    let mut taken = with_chain("taken", "good");
    taken["spec"]["volumes"] = json!([{"name": image["name"], "image": {"reference": "example.com/evil:1"}}]);
    let response = create(&cluster, "shop", &taken).await;
    assert!(
        response.warnings.iter().any(|it| it.contains("is replaced: its name is reserved")),
        "{response:?}"
    );
    let stored = response.stored().unwrap();
    assert_eq!(serde_json::to_value(&stored.spec.unwrap().volumes.unwrap()[0]).unwrap(), image);

    let recorded = decisions(&log);
    let mut verdicts = recorded.iter().flat_map(|it| it["images"].as_array().into_iter().flatten());
    let of_volume = verdicts.find(|it| it["image"] == image["image"]["reference"]).unwrap();
    assert_eq!((&of_volume["container"], &of_volume["verdict"]), (&image["name"], &json!("notarized")));
}
