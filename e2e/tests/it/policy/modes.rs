//! Admission modes, exemptions and break-glass tickets.

use http::Method;
use lucid_e2e::{Answer, Verifier, ask};
use serde_json::json;

use super::{JSON, NOTARIZED, PODS, assert_passed, assert_refused, catalogue, merged, post};
use crate::common::{cluster, decisions, eventually_holds, log, metric, operator, pod, until};

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
        for (tier, message) in [(None, "is missing"), (Some("C"), r#"found "C", accepted "A" or "B""#)] {
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
        let good = pod(&format!("{mode}-good"), json!({"lucid.computing/tier": "A"}), json!({}));
        let reply = post(&cluster, PODS, &good).await;
        assert_passed(mode, &reply);
        assert_eq!(reply.warnings, Vec::<String>::new());
        let outcome = if refused { "denied" } else { "would_deny" };
        for tier in ["missing", "invalid"] {
            let labels = format!(r#"mode="{mode}",outcome="{outcome}",tier="{tier}""#);
            let series = format!("lucid_policy_decisions_total{{{labels}}}");
            assert_eq!(metric(&operator, &series).await, 1, "{series}");
        }
        assert!(operator.terminate().unwrap().success());
    }
}

#[tokio::test]
async fn exemptions_are_reloaded_and_invalid_ones_ignored() {
    let cluster = cluster().await;
    catalogue(&cluster).await;
    let verifier = Verifier::start(cluster.folder(), &[NOTARIZED]).await.unwrap();
    let file = cluster.folder().join("exemptions.yaml");
    // By rename, like an editor, so that readers never see a partial file.
    let write = |text: &str| {
        let whole = file.with_extension("new");
        std::fs::write(&whole, text).unwrap();
        std::fs::rename(whole, &file).unwrap();
    };
    write("exemptions: []");
    let folder = cluster.folder().join("decisions");
    let operator = operator(&cluster, |operator| {
        operator
            .env("LUCID_DECISION_LOG", folder.display().to_string())
            .env("LUCID_ADMISSION_MODE", "enforce")
            .env("LUCID_TIER_LABEL", "")
            .env("LUCID_CHAIN", "good")
            .env("LUCID_VERIFIER_URL", verifier.url())
            .env("LUCID_EXEMPTIONS", file.display().to_string())
    })
    .await;
    let ipc = |name: &str| merged(name, json!({"hostIPC": true}), json!({}));
    assert_refused("none", &post(&cluster, PODS, &ipc("a")).await, &["hostIPC"]);
    write("exemptions: [{name: batch, namespaces: [shop]}]");
    until(&cluster, "shop", |name| ipc(&format!("exempt-{name}")), |answer| answer.refusal().is_empty())
        .await;

    let mut judged = decisions(&folder).into_iter().filter(|decision| decision["webhook"] == "validate");
    let exempted = judged.next_back().unwrap()["exemptions"].to_string();
    assert!(exempted.contains("batch: hostIPC is true"), "{exempted}");

    let reloads = async |result: &str| {
        let series = format!(r#"lucid_policy_file_reloads_total{{file="exemptions",result="{result}"}}"#);
        metric(&operator, &series).await
    };
    assert_eq!((reloads("ok").await, reloads("error").await), (1, 0));
    write("exemptions: [{name: everything}]");
    let mut attempts = 0..;
    eventually_holds("the file is not read", async || {
        let name = format!("broken-{}", attempts.next().unwrap_or(0));
        assert_passed("broken", &post(&cluster, PODS, &ipc(&name)).await);
        reloads("error").await == 1
    })
    .await;
    let log = log(&operator);
    assert!(log.contains("at least one of namespaces, images, digests and hostPaths"), "{log}");
    write("exemptions: []");
    let is_refused = |answer: &Answer| answer.refusal().contains("hostIPC");
    until(&cluster, "shop", |name| ipc(&format!("again-{name}")), is_refused).await;
    assert_eq!((reloads("ok").await, reloads("error").await), (2, 1));
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
        ("jane", "please", None, "accepted is a ticket that matches INC-[0-9]+"),
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
