//! Break-glass tickets.

use lucid_e2e::{ClusterExt as _, eventually};
use serde_json::{Value, json};

use super::{builtin, injected, install, printed, refused};
use crate::cli::{apply, run};
use crate::common::{ENABLED, cluster, create, dry_run, patch_pod, pod, secured};

/// Without reachable webhooks, the API server accepts tickets by itself and records them in its audit log.
#[tokio::test]
async fn tickets_are_accepted_and_in_the_audit_log() {
    let cluster = cluster().await;
    let pattern = r"(?i)[a-z&&[^x]]+-\d{2,5}|(?<change>chg)[0-9]";
    install(&cluster, &["--break-glass-pattern", pattern]).await;
    let with = |ticket: &str, until: Option<&str>| {
        let labels = json!({"lucid.io/secured": "true", "lucid.computing/break-glass": ticket});
        let annotations =
            until.map_or_else(|| json!({}), |it| json!({"lucid.computing/break-glass-until": it}));
        pod("web", labels, annotations)
    };
    for ticket in ["INC-4711", "inc-10", "CHG7"] {
        let response = dry_run(&cluster, "shop", &with(ticket, None)).await;
        assert_eq!(response.status, 201, "{ticket}: {response:?}");
        let events = cluster.audit_events().unwrap();
        let noted = |event: &Value| event["annotations"]["lucid-backstop/break-glass"] == ticket;
        assert_eq!(events.iter().filter(|event| noted(event)).count(), 1, "{ticket}");
    }
    for ticket in
        ["", "true", "INC-1", "INC-4711.x", "xINC-4711", "INC-123456", "AX-12", "CHG77", "4-12", "CHG7-a"]
    {
        let response = dry_run(&cluster, "shop", &with(ticket, None)).await;
        refused(&response, &["does not have its chain"]);
        assert_eq!(
            response.refusal().contains("LUCID_BREAK_GLASS_PATTERN"),
            !ticket.is_empty(),
            "{response:?}"
        );
    }
    let events = cluster.audit_events().unwrap();
    let noted = events.iter().filter(|event| !event["annotations"]["lucid-backstop/break-glass"].is_null());
    assert_eq!(noted.count(), 3);
    let written = |seconds: i64, zone: &str| {
        let offset = jiff::tz::TimeZone::fixed(jiff::tz::offset(if zone == "Z" { 0 } else { 9 }));
        let time = jiff::Timestamp::now() + jiff::SignedDuration::from_secs(seconds);
        format!("{}{zone}", time.to_zoned(offset).strftime("%Y-%m-%dT%H:%M:%S"))
    };
    let open =
        [&*written(300, "Z"), &written(300, "+09:00"), "2096-02-29t00:00:00.5z", " 9999-01-01T00:00:00Z "];
    for until in open {
        let response = dry_run(&cluster, "shop", &with("INC-4711", Some(until))).await;
        assert_eq!(response.status, 201, "{until}: {response:?}");
    }
    for until in [&*written(-300, "Z"), &written(-300, "+09:00"), "1970-01-01T00:00:00Z"] {
        let response = dry_run(&cluster, "shop", &with("INC-4711", Some(until))).await;
        refused(&response, &["Ticket INC-4711 does not count: it has expired"]);
    }
    let nonsense = [
        "",
        "tomorrow",
        "2096-01-01",
        "2096-01-01T00:00:00",
        "2095-02-29T00:00:00Z",
        "2100-02-29T00:00:00Z",
        "2096-04-31T00:00:00Z",
        "2096-01-01T24:00:00Z",
        "9999-12-31T23:59:59-01:00",
        "0000-01-01T00:00:00Z",
    ];
    for until in nonsense {
        let response = dry_run(&cluster, "shop", &with("INC-4711", Some(until))).await;
        refused(&response, &["does not count: lucid.computing/break-glass-until is not an RFC 3339 time"]);
    }
    // The API server sets the creation time.
    let mut forged = with("INC-4711", Some(&written(-300, "Z")));
    forged["metadata"]["creationTimestamp"] = json!("2020-01-01T00:00:00Z");
    refused(&dry_run(&cluster, "shop", &forged).await, &["it has expired"]);

    // Updates: an auditor gets another image.
    let mut chained = injected(&secured("made"), &builtin());
    chained["metadata"]["labels"]["lucid.computing/break-glass"] = json!("none");
    create(&cluster, "shop", &chained).await.stored().unwrap();
    let change = async |ticket: &str, until: Option<&str>| {
        let metadata = with(ticket, until)["metadata"].clone();
        let patch = json!({"metadata": {"labels": metadata["labels"], "annotations": metadata["annotations"]},
            "spec": {"containers": [{"name": "lucid-guardrails-auditor", "image": "example.com/rescue:1"}]}});
        patch_pod(&cluster, "made?dryRun=All", &patch).await
    };
    refused(&change("none", None).await, &["of another repository", "LUCID_BREAK_GLASS_PATTERN"]);
    refused(
        &change("INC-4711", Some(&written(300, "Z"))).await,
        &["of another repository", "for new pods only"],
    );
    let response = change("INC-4711", None).await;
    assert_eq!(response.status, 200, "{response:?}");

    for argument in ["--break-glass-pattern=", "--no-break-glass"] {
        apply(&cluster, &printed(&[argument]));
        let response = eventually("the ticket is refused", async || {
            let response = dry_run(&cluster, "shop", &with("INC-4711", None)).await;
            if response.status == 201 { Err(response) } else { Ok(response) }
        })
        .await;
        refused(&response, &["does not count", "break-glass is disabled"]);
    }
    let ran = run("lucid", &["manifests", "--backstop", r"--break-glass-pattern=\b{start}[0-9]+"]);
    assert_eq!(ran.status, Some(1), "{ran:?}");
    assert!(ran.stderr.contains("LUCID_BREAK_GLASS_PATTERN"), "{ran:?}");
}

#[tokio::test]
async fn access_reviews_restrict_tickets() {
    let cluster = cluster().await;
    install(&cluster, &["--break-glass-access-review"]).await;
    let rule =
        |group: &str, verb: &str| json!({"apiGroups": [group], "resources": ["pods"], "verbs": [verb]});
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
        "metadata": {"name": "on-call", "namespace": "shop"}, "rules": [rule("lucid.computing", "breakglass")]});
    let creator = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "creator"},
        "rules": [rule("", "create"), rule("", "breakglass")]});
    let bound = |kind: &str, role: &str, role_kind: &str, user: &str| {
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": {"name": format!("{role}-{user}"),
            "namespace": (kind == "RoleBinding").then_some("shop")},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": role_kind, "name": role},
            "subjects": [{"kind": "User", "name": user}]})
    };
    apply(
        &cluster,
        &[
            role,
            creator,
            bound("ClusterRoleBinding", "creator", "ClusterRole", "jane"),
            bound("ClusterRoleBinding", "creator", "ClusterRole", "joe"),
            bound("RoleBinding", "on-call", "Role", "jane"),
        ],
    );
    cluster.create_namespace("office", &[ENABLED]).await.unwrap();
    let labels = json!({"lucid.io/secured": "true", "lucid.computing/break-glass": "INC-4711"});
    let manifest = pod("web", labels, json!({})).to_string();
    let create_as = |user: &str, namespace: &str| {
        let arguments = ["create", "--dry-run=server", "-f", "-", "--as", user, "-n", namespace];
        let output = cluster.kubectl(&arguments, &manifest).unwrap();
        (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    // The authorizer learns of roles with a delay.
    eventually("the pod is created", async || {
        let (is_created, said) = create_as("jane", "shop");
        if is_created { Ok(()) } else { Err(said) }
    })
    .await;
    for (user, namespace) in [("joe", "shop"), ("jane", "office")] {
        let (is_created, said) = create_as(user, namespace);
        let why = "Ticket INC-4711 does not count: the user may not breakglass pods.lucid.computing";
        assert!(!is_created && said.contains(why), "{user} in {namespace}: {said}");
    }
}
