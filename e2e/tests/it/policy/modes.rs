//! Admission modes, exemptions and break-glass tickets.

use std::path::Path;

use http::Method;
use lucid_e2e::{Answer, Verifier, ask, eventually};
use serde_json::{Value, json};

use super::{JSON, MERGE, PODS, assert_passed, assert_refused, catalogue, merged, patch, post};
use crate::common::{
    cluster, config_map, decisions, log, logged_in, metric, operator, pod, secured, until, until_called,
};

#[tokio::test]
async fn modes_deny_or_record() {
    let cluster = cluster().await;
    for (mode, refused) in [("audit", false), ("enforce", true)] {
        let log = cluster.folder().join(format!("decisions-{mode}"));
        let folder = log.display().to_string();
        let mut operator = operator(&cluster, |operator| {
            operator.env("LUCID_ADMISSION_MODE", mode).env("LUCID_DECISION_LOG", folder)
        })
        .await;
        until_called(&cluster).await;
        for (tier, message) in [(None, "is missing"), (Some("C"), r#"expected "A" or "B", found "C""#)] {
            let labels = tier.map_or_else(|| json!({}), |tier| json!({"lucid.computing/tier": tier}));
            let reply =
                post(&cluster, PODS, &pod(&format!("{mode}-{}", tier.is_some()), labels, json!({}))).await;
            if refused {
                assert_refused(mode, &reply, &["label lucid.computing/tier", message]);
            } else {
                assert_passed(mode, &reply);
                let warnings = reply.warnings.join("\n");
                assert!(
                    warnings.contains("admission mode enforce would refuse: label lucid.computing/tier"),
                    "{warnings}"
                );
            }
            let mut all = decisions(&log).into_iter();
            let decision = all.rfind(|decision| decision["webhook"] == "validate").unwrap();
            assert_eq!(decision["mode"], mode);
            assert_eq!(decision["tier"], if tier.is_some() { "invalid" } else { "missing" });
            assert_eq!(
                (&decision["allowed"], &decision["wouldDeny"]),
                (&json!(!refused), &json!(true)),
                "{decision}"
            );
            assert!(decision["findings"][0].as_str().unwrap().contains(message), "{decision}");
        }
        // Both webhooks record the tier.
        post(&cluster, PODS, &secured(&format!("{mode}-secured"))).await;
        let all = decisions(&log);
        let both: Vec<_> = all[all.len() - 2..].iter().map(|it| (&it["webhook"], &it["tier"])).collect();
        let missing = json!("missing");
        assert_eq!(both, [(&json!("mutate"), &missing), (&json!("validate"), &missing)]);
        logged_in(&operator.log(), r#"tier="missing" chain=["lucid-guardrails-auditor","#).await;

        let good = pod(&format!("{mode}-good"), json!({"lucid.computing/tier": "A"}), json!({}));
        let reply = post(&cluster, PODS, &good).await;
        assert_passed(mode, &reply);
        assert_eq!(reply.warnings, Vec::<String>::new());
        let outcome = if refused { "denied" } else { "would_deny" };
        for (tier, count) in [("missing", 2), ("invalid", 1)] {
            let labels = format!(r#"mode="{mode}",outcome="{outcome}",tier="{tier}""#);
            let series = format!("lucid_policy_decisions_total{{{labels}}}");
            assert_eq!(metric(&operator, &series).await, count, "{series}");
        }
        assert!(operator.terminate().unwrap().success());
    }
}

#[tokio::test]
async fn a_config_map_switches_mode_and_exemptions_at_run_time() {
    let cluster = cluster().await;
    catalogue(&cluster).await;
    let folders = ["a", "b"].map(|name| cluster.folder().join(format!("decisions-{name}")));
    let start = async |folder: &Path| {
        let folder = folder.display().to_string();
        operator(&cluster, |operator| {
            operator.env("LUCID_DECISION_LOG", folder).env("LUCID_TIER_LABEL", "").env("LUCID_CHAIN", "good")
        })
        .await
    };
    let replicas = [start(&folders[0]).await, start(&folders[1]).await];
    let ipc = |name: &str| merged(name, json!({"hostIPC": true}), json!({}));
    let reply = post(&cluster, PODS, &ipc("audited")).await;
    assert_passed("audit is the default", &reply);
    assert!(reply.warnings.join("\n").contains("would refuse: hostIPC is true"), "{reply:?}");

    let reply = post(&cluster, PODS, &merged("audited-host", json!({"hostNetwork": true}), json!({}))).await;
    assert_passed("audit", &reply);
    let warnings = reply.warnings.join("\n");
    for text in
        ["no auditors: failed", "would refuse: failed"].map(|text| format!("{text} to redirect traffic"))
    {
        assert!(warnings.contains(&text), "{reply:?}");
    }

    // Each replica reads the switch; the record names the field manager.
    config_map(&cluster, "lucid-system", "lucid-policy", "mode", "audit").await;
    let path = "/api/v1/namespaces/lucid-system/configmaps/lucid-policy";
    let set = async |key: &str, value: &str| {
        let change = json!({"data": {key: value}});
        let path = format!("{path}?fieldManager=kubectl-patch");
        assert_passed(value, &patch(&cluster, &path, MERGE, &change).await);
    };
    set("mode", "enforce").await;
    for folder in &folders {
        eventually("the switch is recorded", async || {
            decisions(folder).iter().any(|decision| {
                decision["webhook"] == "mode"
                    && decision["mode"] == "enforce"
                    && decision["message"] == "admission mode enforce, written by field manager kubectl-patch"
            })
        })
        .await;
    }
    assert_refused("enforce", &post(&cluster, PODS, &ipc("refused")).await, &["hostIPC"]);

    // A pod into which no chain fits can be admitted by a ticket.
    let on_node = |name: &str| merged(name, json!({"hostNetwork": true}), json!({}));
    assert_refused("no chain", &post(&cluster, PODS, &on_node("host")).await, &["spec.hostNetwork is true"]);
    let mut with_ticket = on_node("host");
    with_ticket["metadata"]["labels"]["lucid.computing/break-glass"] = json!("INC-1");
    assert_passed("ticket", &post(&cluster, PODS, &with_ticket).await);

    set("exemptions.yaml", "exemptions: [{name: batch, namespaces: [shop]}]").await;
    until(&cluster, "shop", |name| ipc(&format!("exempt-{name}")), |response| response.refusal().is_empty())
        .await;
    let judged = folders.iter().flat_map(|folder| decisions(folder));
    let exempted: Vec<_> = judged.map(|decision| decision["exemptions"].to_string()).collect();
    assert!(exempted.iter().any(|it| it.contains("batch: hostIPC is true")), "{exempted:?}");

    // Invalid content changes nothing.
    set("exemptions.yaml", "exemptions: [{name: everything}]").await;
    for replica in &replicas {
        let series = r#"lucid_configuration_valid{config_map="lucid-policy"}"#;
        eventually("it no longer counts as valid", async || metric(replica, series).await == 0).await;
        let log = log(replica);
        assert!(log.contains("at least one of namespaces, images, digests and hostPaths"), "{log}");
    }
    assert_passed("the last valid content", &post(&cluster, PODS, &ipc("broken")).await);
    set("exemptions.yaml", "exemptions: []").await;
    let is_refused = |response: &Answer| response.refusal().contains("hostIPC");
    until(&cluster, "shop", |name| ipc(&format!("again-{name}")), is_refused).await;
}

#[tokio::test]
async fn strict_notarization_in_audit_is_announced_as_ineffective() {
    let cluster = cluster().await;
    let verifier = Verifier::start(cluster.folder(), &[]).await.unwrap();
    let operator = operator(&cluster, |operator| {
        operator.env("LUCID_STRICT_NOTARIZATION", "true").env("LUCID_VERIFIER_URL", verifier.url())
    })
    .await;
    let log = log(&operator);
    assert!(log.contains("strict notarization refuses nothing in admission mode audit"), "{log}");
    let reply = post(&cluster, PODS, &secured("unnotarized")).await;
    assert_passed("unnotarized", &reply);
    assert!(reply.warnings.join("\n").contains("admission mode enforce would refuse: "), "{reply:?}");
}

#[tokio::test]
async fn changes_of_lucids_labels_and_annotations_are_validated() {
    let cluster = cluster().await;
    let _operator = operator(&cluster, |operator| {
        operator.env("LUCID_ADMISSION_MODE", "enforce").env("LUCID_TIER_LABEL", "example.com/class")
    })
    .await;
    assert_passed(
        "created",
        &post(&cluster, PODS, &pod("web", json!({"example.com/class": "A"}), json!({}))).await,
    );
    let web = format!("{PODS}/web");
    let change = async |field: &str, key: &str, value: Value| {
        patch(&cluster, &web, MERGE, &json!({"metadata": {field: {key: value}}})).await
    };
    for value in [json!("C"), json!(null)] {
        assert_refused("class", &change("labels", "example.com/class", value).await, &["example.com/class"]);
    }
    for (field, key, value) in [
        ("labels", "example.com/class", "B"),
        ("labels", "other", "C"),
        ("annotations", "lucid.computing/audit-mode", "observe"),
    ] {
        assert_passed(key, &change(field, key, json!(value)).await);
    }
    assert_refused("secured", &change("labels", "lucid.io/secured", json!("true")).await, &["auditor chain"]);
}

#[tokio::test]
async fn tickets_count_for_permitted_users() {
    let cluster = cluster().await;
    let log = cluster.folder().join("decisions");
    // Two users who may create pods; one of them may use break-glass.
    let binding = |name: &str, role: &str, users: &[&str]| {
        let subjects: Vec<_> = users
            .iter()
            .map(|user| json!({"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": user}))
            .collect();
        json!({"metadata": {"name": name}, "subjects": subjects,
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": role}})
    };
    let rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces/shop";
    let role = |name: &str, group: &str, verb: &str| json!({"metadata": {"name": name}, "rules": [{"apiGroups": [group], "resources": ["pods"], "verbs": [verb]}]});
    for (kind, object) in [
        ("roles", role("creator", "", "create")),
        ("roles", role("breaker", "lucid.computing", "breakglass")),
        ("rolebindings", binding("creators", "creator", &["jane", "joe"])),
        ("rolebindings", binding("breakers", "breaker", &["jane"])),
    ] {
        assert_passed(kind, &post(&cluster, &format!("{rbac}/{kind}"), &object).await);
    }
    let file = log.display().to_string();
    let operator = operator(&cluster, |operator| {
        operator
            .env("LUCID_ADMISSION_MODE", "enforce")
            .env("LUCID_BREAK_GLASS_PATTERN", "INC-[0-9]+")
            .env("LUCID_BREAK_GLASS_ACCESS_REVIEW", "true")
            .env("LUCID_DECISION_LOG", file)
    })
    .await;
    let create = async |user: &str, name: &str, ticket: &str, until: Option<&str>| {
        let annotations =
            until.map_or_else(|| json!({}), |until| json!({"lucid.computing/break-glass-until": until}));
        let pod = pod(name, json!({"lucid.computing/break-glass": ticket}), annotations);
        ask(&cluster.client(), Some(user), Method::POST, PODS, JSON, &pod).await.unwrap()
    };
    let opened = create("jane", "opened", "INC-4711", None).await;
    assert_passed("jane", &opened);
    let warnings = opened.warnings.join("\n");
    assert!(
        warnings.contains(r#"admitted by ticket "INC-4711""#)
            && warnings.contains("passed over: label lucid.computing/tier"),
        "{warnings}"
    );
    assert_passed("in time", &create("jane", "in-time", "INC-1", Some("2100-01-01T00:00:00Z")).await);
    for (user, ticket, until, says) in [
        ("joe", "INC-4711", None, "user joe may not breakglass pods.lucid.computing in namespace shop"),
        ("jane", "please", None, "expected a ticket that matches INC-[0-9]+"),
        ("jane", "INC-4711", Some("2020-01-01T00:00:00Z"), "has expired"),
    ] {
        let refused = create(user, "refused", ticket, until).await;
        assert_refused(says, &refused, &["label lucid.computing/tier is missing"]);
        assert!(refused.warnings.join("\n").contains(says), "{says}: {refused:?}");
    }
    let decisions = decisions(&log);
    let of = |name: &str| decisions.iter().find(|decision| decision["name"] == name).unwrap();
    let expected = json!(["break-glass", "INC-4711", "jane", true, true]);
    let keys = ["mode", "ticket", "user", "allowed", "wouldDeny"];
    assert_eq!(keys.map(|key| of("opened")[key].clone()).to_vec(), *expected.as_array().unwrap());
    assert!(of("refused")["ticket"].is_null(), "{}", of("refused"));
    assert_eq!(metric(&operator, r#"lucid_break_glass_total{outcome="opened"}"#).await, 2);
    assert_eq!(metric(&operator, r#"lucid_break_glass_total{outcome="refused"}"#).await, 3);
}
