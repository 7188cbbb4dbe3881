//! Chains that Lucid did not create, and the conditions to accept one.

use lucid_chain::{Catalogue, Configuration};
use lucid_testbed::Cluster;
use serde_json::{Value, json};

use super::{builtin, containers, forward, injected, install, refused, variables};
use crate::common::{cluster, dry_run, secured_with, with_chain};

/// The destinations in `lucid-egress` are those that the planner writes for the pod.
pub(super) async fn outbound_traffic_goes_where_the_pod_says(cluster: &Cluster) {
    let other = "forwards outbound traffic to other destinations";
    let hosts = "Llm.models.svc:8000 *.example.com\t10.0.0.1,fd00:0::1, 10.1.0.0/16\nFD01::/16 :: ::ffff:192.0.2.1 1:2:3:4:5:6:7:8/127 10.0.0.256";
    for (intercept, upstream, hosts) in [
        ("redirect", "", ""),
        ("redirect", "", hosts),
        ("redirect", " HTTPS://API.example.com:443/V1// ", "*.example.com"),
        ("redirect", "http://[fd00::1]/a'b[1];%20", hosts),
        ("redirect", "ftp://example.com", "a..b"),
        ("redirect", "https://user@example.com", "10.0.0.0/99"),
        ("env", "http://example.com", ""),
        ("env", "http://example.com", "fd00::1::2"),
        ("env", "http://example.com", "1:2:3"),
        ("env", "http://a.example.com", hosts),
    ] {
        let annotations = json!({"lucid.computing/direction": "outbound", "lucid.computing/target-port": "5000",
            "lucid.computing/intercept": intercept, "lucid.computing/upstream": upstream,
            "lucid.computing/allowed-hosts": hosts});
        for mode in ["containers", "native"] {
            let mut annotations = annotations.clone();
            annotations["lucid.computing/sidecar-mode"] = json!(mode);
            let pod = injected(&secured_with("web", annotations), &builtin());
            let response = dry_run(cluster, "shop", &pod).await;
            assert_eq!(response.status, 201, "{intercept} {upstream:?} {hosts:?}: {response:?}");
            for (from, to) in [
                (r#""model":5000"#, r#""model":5000,"upstream":"http://evil.example""#),
                (r#""upstream":"http"#, r#""upstream":"http://evil.example/http"#),
                (r#""allowedHosts":"#, r#""allowedHosts":"evil.example","allowedHosts":"#),
                (r#"example.com"#, r#"evil.example"#),
            ] {
                let mut pod = pod.clone();
                let spec = pod["spec"].as_object_mut().unwrap();
                let lists = spec.iter_mut().filter(|(key, _)| key.ends_with("ontainers"));
                let mut all = lists.flat_map(|(_, list)| list.as_array_mut().unwrap());
                if !all.any(|container| egress(container, from, to)) {
                    continue;
                }
                let response = dry_run(cluster, "shop", &pod).await;
                assert!(response.refusal().contains(other), "{intercept} {upstream:?} {from}: {response:?}");
            }
        }
    }
}

/// Changes the settings of `lucid-egress`, and returns `true` if they differ.
fn egress(container: &mut Value, from: &str, to: &str) -> bool {
    let settings = variables(container).iter_mut().find(|it| it["name"] == "LUCID_EGRESS");
    settings.is_some_and(|settings| {
        let before = settings["value"].as_str().unwrap().to_owned();
        settings["value"] = json!(before.replacen(from, to, 1));
        settings["value"] != before
    })
}

pub(super) async fn handmade_chains_are_complete(cluster: &Cluster) {
    let configuration = builtin();
    let asking = |annotations: Value| secured_with("web", annotations);
    let two = asking(json!({"lucid.computing/auditor-chain": "injection,toxicity"}));
    let native = asking(
        json!({"lucid.computing/auditor-chain": "injection,toxicity", "lucid.computing/sidecar-mode": "native"}),
    );
    let both = [injected(&two, &configuration), injected(&native, &configuration)];
    let any = injected(&asking(json!({})), &configuration);
    let routed = asking(
        json!({"lucid.computing/auditor-chain": "injection,toxicity", "lucid.computing/target-port": "8000,8001"}),
    );
    let routed = injected(&routed, &configuration);
    for pod in both.iter().chain([&any, &routed]) {
        let response = dry_run(cluster, "shop", pod).await;
        assert_eq!(response.status, 201, "{response:?}");
    }

    let chain = "does not have its chain";
    for (from, to) in [
        ("8090=8093,8091=8094", "8090=8093,8092=8094"),
        ("8090=8093,8091=8094", "8090=8000,8091=8094"),
        ("8090=8093,8091=8094", "8090=8093"),
    ] {
        let pod = serde_json::from_str(&routed.to_string().replace(from, to)).unwrap();
        assert_ne!(pod, routed);
        let response = dry_run(cluster, "shop", &pod).await;
        assert!(response.refusal().contains(chain), "{to}: {response:?}");
    }

    let rules = "no init container lucid-init";
    type Change = fn(&mut Value);
    // Beside the changes of single fields in fields.rs. `auditor` is the first auditor of the chain, and `init` installs the rules.
    let wrong: [(&str, &str, Change); 29] = [
        ("foreign image", chain, |it| auditor(it)["image"] = json!("example.com/lucid-injection-auditor:1")),
        ("another registry", chain, |it| {
            auditor(it)["image"] = json!("ghcr.io.example.com/lucid/lucid-injection-auditor:1")
        }),
        ("below another path", chain, |it| {
            auditor(it)["image"] = json!("example.com/ghcr.io/lucid/lucid-injection-auditor:1")
        }),
        ("a longer path", chain, |it| {
            auditor(it)["image"] = json!("ghcr.io/lucid/lucid-injection-auditor/x:1")
        }),
        ("a port like a tag", chain, |it| {
            auditor(it)["image"] = json!("ghcr.io:5000/lucid/lucid-injection-auditor")
        }),
        ("another auditor's image", chain, |it| {
            auditor(it)["image"] = json!("ghcr.io/lucid/lucid-toxicity-auditor:latest")
        }),
        ("probe", chain, |it| auditor(it)["livenessProbe"] = json!({"exec": {"command": ["kill", "1"]}})),
        ("files", chain, |it| {
            list(&mut it["spec"], "volumes").push(json!({"name": "v", "emptyDir": {}}));
            list(auditor(it), "volumeMounts").push(json!({"name": "v", "mountPath": "/app"}));
        }),
        ("files by a way around", chain, |it| {
            list(&mut it["spec"], "volumes").push(json!({"name": "v", "emptyDir": {}}));
            let path = "/var/run/secrets/../../../app";
            let mount = json!({"name": "v", "mountPath": path, "readOnly": true});
            list(auditor(it), "volumeMounts").push(mount);
        }),
        ("variable", chain, |it| variables(auditor(it)).push(json!({"name": "THRESHOLD", "value": "9"}))),
        ("next hop twice", chain, |it| {
            variables(auditor(it))
                .push(json!({"name": "LUCID_CHAIN_NEXT", "value": "http://localhost:5000"}));
        }),
        ("past the next auditor", chain, |it| forward(auditor(it), "http://localhost:5000")),
        ("out of the pod", chain, |it| forward(auditor(it), "http://example.com:8093")),
        ("other mode", chain, |it| {
            for variable in variables(auditor(it)) {
                if variable["name"] == "LUCID_AUDIT_MODE" {
                    variable["value"] = json!("off");
                }
            }
        }),
        ("no marker", chain, |it| variables(auditor(it)).retain(|it| it["name"] != "LUCID_AUDITOR_ID")),
        ("marker alone", chain, |it| {
            *variables(auditor(it)) =
                vec![json!({"name": "LUCID_AUDITOR_ID", "value": "lucid-injection-auditor"})];
        }),
        ("uid of the next", chain, |it| auditor(it)["securityContext"]["runAsUser"] = json!(20002)),
        ("order", chain, |it| {
            it["metadata"]["annotations"]["lucid.computing/auditor-chain"] = json!("toxicity,injection")
        }),
        ("one is missing", chain, |it| {
            it["metadata"]["annotations"]["lucid.computing/auditor-chain"] =
                json!("injection,toxicity,guardrails")
        }),
        ("no rules", rules, |it| inits(it).retain(|it| it["name"] != "lucid-init")),
        ("rules of a foreign image", rules, |it| init(it)["image"] = json!("example.com/lucid-init:1")),
        ("rules past the second", rules, |it| rule(it, r#",{"uid":20002,"port":8093}"#, "")),
        ("rules for nothing", rules, |it| rule(it, r#""inbound":true"#, r#""inbound":false"#)),
        ("rules with an extra hop", rules, |it| {
            rule(it, r#"],"model""#, r#",{"uid":1000,"port":9999}],"model""#);
        }),
        ("rules with the next uid for an extra hop", rules, |it| {
            rule(it, r#"],"model""#, r#",{"uid":20003,"port":9999}],"model""#);
        }),
        ("rules with a hop twice", rules, |it| {
            rule(it, r#"],"model""#, r#",{"uid":20002,"port":8093}],"model""#);
        }),
        ("rules in another order", rules, |it| {
            rule(
                it,
                r#"{"uid":20001,"port":8090},{"uid":20002,"port":8093}"#,
                r#"{"uid":20002,"port":8093},{"uid":20001,"port":8090}"#,
            );
        }),
        ("rules for another model", rules, |it| rule(it, r#""model":5000"#, r#""model":5001"#)),
        ("rules with an outbound port", rules, |it| rule(it, r#""outbound":[]"#, r#""outbound":[443]"#)),
    ];
    for (name, part, change) in wrong {
        for pod in &both {
            let mut pod = pod.clone();
            change(&mut pod);
            let response = dry_run(cluster, "shop", &pod).await;
            assert!(response.refusal().contains(part), "{name}: {response:?}");
            refused(&response, &[]);
        }
    }
    // A container that ends before the pod does.
    let mut ends = both[1].clone();
    auditor(&mut ends).as_object_mut().unwrap().remove("restartPolicy");
    for probe in ["startupProbe", "readinessProbe", "livenessProbe"] {
        auditor(&mut ends).as_object_mut().unwrap().remove(probe);
    }
    refused(&dry_run(cluster, "shop", &ends).await, &[chain]);

    // Without an exact chain, a broken chain counts as none.
    let broken: [(&str, Change); 3] = [
        ("no first one", |it| containers(it).retain(|it| it["securityContext"]["runAsUser"] != 20001)),
        ("hop to itself", |it| forward(&mut containers(it)[1], "http://localhost:8090")),
        ("foreign image", |it| containers(it)[1]["image"] = json!("example.com/x:1")),
    ];
    for (name, change) in broken {
        let mut pod = any.clone();
        change(&mut pod);
        let response = dry_run(cluster, "shop", &pod).await;
        assert!(response.refusal().contains(chain), "{name}: {response:?}");
    }

    let mut hop = any.clone();
    rule(&mut hop, r#"],"model""#, r#",{"uid":20003,"port":9999}],"model""#);
    refused(&dry_run(cluster, "shop", &hop).await, &[rules]);

    // Permitted differences.
    let fine: [(&str, Change); 7] = [
        ("tag", |it| auditor(it)["image"] = json!("ghcr.io/lucid/lucid-injection-auditor:2")),
        ("digest", |it| {
            auditor(it)["image"] =
                json!(format!("ghcr.io/lucid/lucid-injection-auditor@sha256:{}", "1".repeat(64)))
        }),
        ("pull policy", |it| auditor(it)["imagePullPolicy"] = json!("Never")),
        ("resources", |it| auditor(it)["resources"] = json!({"limits": {"cpu": "1"}})),
        ("identity", |it| {
            variables(auditor(it)).push(json!({"name": "AWS_REGION", "value": "eu-west-1"}));
        }),
        ("sidecars", |it| {
            containers(it)
                .push(json!({"name": "proxy", "image": "example.com/proxy:1", "env": [{"name": "A"}]}))
        }),
        ("status", |it| {
            drop(it["metadata"]["annotations"].as_object_mut().unwrap().remove("lucid.computing/status"))
        }),
    ];
    for (name, change) in fine {
        for pod in &both {
            let mut pod = pod.clone();
            change(&mut pod);
            let response = dry_run(cluster, "shop", &pod).await;
            assert_eq!(response.status, 201, "{name}: {response:?}");
        }
    }
}

/// A cloud provider's webhook adds these to all containers. The policy and the planner accept the same ones.
#[tokio::test]
async fn identity_variables_are_accepted_by_their_form() {
    const TOKEN: &str = "/var/run/secrets/eks.amazonaws.com/serviceaccount";
    let cluster = cluster().await;
    let yaml = "chain: [{name: pinned, image: example.com/pinned:1, env: {AWS_ROLE_ARN: planned, AWS_REGION: eu-west-1}}]";
    let file = cluster.folder().join("auditors.yaml");
    std::fs::write(&file, yaml).unwrap();
    let catalogue = Catalogue::builtin().overlay(&Catalogue::parse("auditors.yaml", yaml).unwrap());
    let configuration = Configuration::new(catalogue, None).unwrap();
    install(&cluster, &["--catalogue", &file.display().to_string()]).await;
    let mut before = with_chain("web", "pinned,injection");
    before["spec"]["serviceAccountName"] = json!("web");
    let token = json!({"serviceAccountToken": {"audience": "sts.amazonaws.com", "path": "token"}});
    before["spec"]["volumes"] =
        json!([{"name": "identity", "projected": {"sources": [token]}}, {"name": "scratch", "emptyDir": {}}]);
    let planned = injected(&before, &configuration);
    let mount = |name: &str, path: &str| json!({"name": name, "mountPath": path, "readOnly": true});
    let token_file = format!("{TOKEN}/token");
    for (name, value, is_accepted) in [
        ("AWS_DEFAULT_REGION", "eu-west-1", true),
        ("AWS_DEFAULT_REGION", "us-gov-east-1", true),
        ("AWS_DEFAULT_REGION", "x.evil.test/#", false),
        ("AWS_DEFAULT_REGION", "eu-west-1.evil.test", false),
        ("AWS_DEFAULT_REGION", "eu-west-1\n", false),
        ("AWS_DEFAULT_REGION", "EU-WEST-1", false),
        ("AWS_DEFAULT_REGION", "eu-west-123", false),
        ("AWS_DEFAULT_REGION", "eu-1", false),
        ("AWS_DEFAULT_REGION", "", false),
        ("AWS_REGION", "eu-west-2", false),
        ("AWS_STS_REGIONAL_ENDPOINTS", "regional", true),
        ("AWS_STS_REGIONAL_ENDPOINTS", "none", false),
        ("AWS_WEB_IDENTITY_TOKEN_FILE", &token_file, true),
        ("AWS_WEB_IDENTITY_TOKEN_FILE", "/var/run/secrets/eks.amazonaws.com/serviceaccount/..", false),
        ("AWS_WEB_IDENTITY_TOKEN_FILE", "/var/run/secrets/eks.amazonaws.com/serviceaccount/a/b", false),
        ("AWS_WEB_IDENTITY_TOKEN_FILE", "/tmp/token", false),
        ("AZURE_AUTHORITY_HOST", "https://login.microsoftonline.com/", true),
        ("AZURE_AUTHORITY_HOST", "https://login.microsoftonline.com.evil.test/", false),
        ("AZURE_AUTHORITY_HOST", "https://loginxmicrosoftonline.com/", false),
        ("AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://[fd00:ec2::23]/v1/credentials", true),
        ("AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://169.254.170.2/v1/credentials", false),
        ("AWS_ROLE_ARN", "arn:aws:iam::1:role/evil", false),
        ("AZURE_CLIENT_ID", "6e6f6e65-0000-4000-8000-000000000000", false),
        ("AZURE_TENANT_ID", "6e6f6e65-0000-4000-8000-000000000000", false),
    ] {
        let mut pod = planned.clone();
        for container in containers(&mut pod).iter_mut().skip(1) {
            variables(container).push(json!({"name": name, "value": value}));
            list(container, "volumeMounts").push(mount("identity", TOKEN));
        }
        same(&cluster, &pod, &configuration, is_accepted, &format!("{name}={value:?}")).await;
    }
    for (added, is_accepted) in [
        (mount("identity", TOKEN), true),
        (mount("scratch", TOKEN), false),
        (mount("identity", "/var/run/secrets/other"), false),
        (json!({"name": "identity", "mountPath": TOKEN}), false),
        (json!({"name": "identity", "mountPath": TOKEN, "readOnly": true, "subPath": "x"}), false),
    ] {
        let mut pod = planned.clone();
        list(&mut containers(&mut pod)[1], "volumeMounts").push(added.clone());
        same(&cluster, &pod, &configuration, is_accepted, &added.to_string()).await;
    }
}

async fn same(cluster: &Cluster, pod: &Value, configuration: &Configuration, is_accepted: bool, what: &str) {
    assert_eq!(injected(pod, configuration) == *pod, is_accepted, "planner: {what}");
    let response = dry_run(cluster, "shop", pod).await;
    assert_eq!(response.status == 201, is_accepted, "{what}: {response:?}");
}

/// Returns the list with this key, created if absent.
fn list<'v>(of: &'v mut Value, key: &str) -> &'v mut Vec<Value> {
    of.as_object_mut().unwrap().entry(key).or_insert(json!([])).as_array_mut().unwrap()
}

fn inits(pod: &mut Value) -> &mut Vec<Value> {
    pod["spec"]["initContainers"].as_array_mut().unwrap()
}

fn auditor(pod: &mut Value) -> &mut Value {
    let name = "lucid-injection-auditor";
    let list = if containers(pod).iter().any(|it| it["name"] == name) { containers(pod) } else { inits(pod) };
    list.iter_mut().find(|it| it["name"] == name).unwrap()
}

fn init(pod: &mut Value) -> &mut Value {
    inits(pod).iter_mut().find(|it| it["name"] == "lucid-init").unwrap()
}

fn rule(pod: &mut Value, from: &str, to: &str) {
    let value = &mut variables(init(pod))[0]["value"];
    let text = value.as_str().unwrap();
    assert!(text.contains(from), "{text}");
    *value = json!(text.replace(from, to));
}
