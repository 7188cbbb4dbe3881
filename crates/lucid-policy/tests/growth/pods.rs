//! Pods that are expensive to evaluate, one for each field that an author can enlarge, and the work done for each
//! request.

use std::collections::BTreeMap;

use lucid_chain::{Catalogue, Configuration, Decision, Inputs, NamespaceSettings, PodView, plan};
use lucid_policy::{Case, DEFAULT_TICKET_PATTERN, Mode, Permission, Policy, Request, Tickets, Workload};

const ITEMS: usize = 1000;
/// Maximum number of items of a list. Larger pods are rejected while they are parsed.
const CONTENTS: usize = 65_536;

/// Returns name and JSON of each pod, about `size` bytes each.
pub(crate) fn all(size: usize) -> Vec<(&'static str, String)> {
    let fill = |item: &dyn Fn(usize) -> String| fill_to(size, CONTENTS, item);
    // Fields that are not parsed as lists have no maximum.
    let any = |item: &dyn Fn(usize) -> String| fill_to(size, usize::MAX, item);
    let few = |item: &dyn Fn(usize) -> String| fill_to(size, ITEMS, item);
    let long = "x".repeat(size / 2);
    let name = "n".repeat(253);
    let chain = vec!["lucid-guardrails-auditor"; 100].join(",");
    let auditors = format!(r#""lucid.computing/auditor-chain":"{chain}""#);
    let model = |fields: &str| format!(r#"{{"name":"{name}","image":"a",{fields}}}"#);
    let containers = |list: &str| format!(r#""containers":[{list}]"#);
    let auditor = |number: usize| match number {
        0 => "lucid-guardrails-auditor".to_owned(),
        _ => format!("lucid-guardrails-auditor-{}", number + 1),
    };
    let mounts = fill_to(size / 2, usize::MAX, &|_| r#"{"name":"v","mountPath":"/a"}"#.to_owned());
    let host_path = format!(r#""volumes":[{{"name":"v","hostPath":{{"path":"/{long}"}}}}],"#);
    let projected = fill_to(size / 2, ITEMS, &|number| {
        let pad = "p".repeat(size / 2 / ITEMS);
        format!(r#"{{"name":"{number:0>250}","emptyDir":{{"medium":"{pad}"}}}}"#)
    });
    let tokens = r#"{"name":"kube-api-access-x","mountPath":"/var/run/secrets/kubernetes.io/serviceaccount","readOnly":true}"#;
    let with_tokens = fill_to(size / 2, 100, &|number| {
        format!(r#"{{"name":"{}","volumeMounts":[{tokens},{tokens}]}}"#, auditor(number))
    });
    let aliases = |item: &str| {
        format!(
            r#""hostAliases":[{{"ip":"10.0.0.1","hostnames":[{}]}}],{}"#,
            fill(&|_| item.to_owned()),
            containers("{}")
        )
    };
    let of_model = |field: &str, list: String| pod("", &containers(&model(&format!(r#""{field}":{list}"#))));
    vec![
        (
            "hostPath × mounts",
            pod("", &(host_path + &containers(&model(&format!(r#""volumeMounts":[{mounts}]"#))))),
        ),
        ("mounts", of_model("volumeMounts", format!("[{}]", fill(&|n| format!(r#"{{"name":"{n}"}}"#))))),
        ("empty mounts", of_model("volumeMounts", format!("[{}]", fill(&|_| "{}".to_owned())))),
        (
            "ports",
            pod(
                &auditors,
                &containers(&model(&format!(
                    r#""ports":[{}]"#,
                    fill(&|n| format!(r#"{{"containerPort":{}}}"#, 1 + n % 65535))
                ))),
            ),
        ),
        (
            "ports of auditors",
            of_model("ports", format!("[{}]", fill(&|_| r#"{"containerPort":8090}"#.to_owned()))),
        ),
        ("empty ports", of_model("ports", format!("[{}]", fill(&|_| "{}".to_owned())))),
        (
            "env × auditors",
            pod(
                &auditors,
                &containers(&model(&format!(r#""env":[{}]"#, fill(&|n| format!(r#"{{"name":"A{n}"}}"#))))),
            ),
        ),
        ("empty env", of_model("env", format!("[{}]", fill(&|_| "{}".to_owned())))),
        (
            "capabilities",
            of_model(
                "securityContext",
                format!(r#"{{"capabilities":{{"add":[{}]}}}}"#, fill(&|_| r#""X""#.to_owned())),
            ),
        ),
        (
            "dropped capabilities",
            of_model(
                "securityContext",
                format!(r#"{{"capabilities":{{"drop":[{}]}}}}"#, fill(&|_| r#""""#.to_owned())),
            ),
        ),
        (
            "value of a security context",
            of_model("securityContext", format!(r#"{{"runAsUser":[{}]}}"#, any(&|_| r#"{"":0}"#.to_owned()))),
        ),
        (
            "containers",
            pod(
                &auditors,
                &containers(&few(&|n| {
                    format!(r#"{{"name":"{n:0>200}","image":"b","securityContext":{{"privileged":true}}}}"#)
                })),
            ),
        ),
        ("too many containers", pod(&auditors, &containers(&fill(&|_| "{}".to_owned())))),
        (
            "leftover auditors",
            pod(
                "",
                &containers(&few(&|n| {
                    format!(
                        r#"{{"name":"{n:0>200}","image":"ghcr.io/lucid/lucid-injection-auditor","env":[{{"name":"LUCID_AUDITOR_ID"}}]}}"#
                    )
                })),
            ),
        ),
        (
            "auditors × volumes",
            pod(&auditors, &format!(r#""volumes":[{projected}],{}"#, containers(&with_tokens))),
        ),
        (
            "a forged auditor",
            pod(
                &auditors,
                &containers(&format!(
                    r#"{{"name":"{}","a":[{}]}}"#,
                    auditor(0),
                    any(&|_| r#"{"":0}"#.to_owned())
                )),
            ),
        ),
        (
            "forged rules",
            pod(
                "",
                &containers(&model(&format!(
                    r#""env":[{{"name":"LUCID_REDIRECT","value":"{{\"version\":1,\"chain\":[{}]}}"}}]"#,
                    any(&|_| r#"{\"port\":{\"a\":0}}"#.to_owned())
                ))),
            ),
        ),
        ("hostAliases", pod("", &aliases(r#""localhost""#))),
        ("empty hostAliases", pod("", &aliases(r#""""#))),
        (
            "hostname",
            pod("", &format!(r#""hostname":"{long}","hostnameOverride":"{long}",{}"#, containers("{}"))),
        ),
        ("image", pod("", &containers(&format!(r#"{{"image":"{long}","ports":[{mounts}]}}"#)))),
        ("annotations", pod(&any(&|n| format!(r#""{n:x}":"""#)), &containers("{}"))),
        (
            "annotations like ours",
            pod(&any(&|n| format!(r#""lucid.computin/auditor{n:x}":"""#)), &containers("{}")),
        ),
        (
            "chain annotation",
            pod(
                &format!(r#""lucid.computing/auditor-chain":"{}""#, any(&|_| "a".to_owned())),
                &containers("{}"),
            ),
        ),
        (
            "status annotation",
            pod(
                &format!(
                    r#""lucid.computing/status":"{{\"added\":[{}]}}""#,
                    any(&|n| format!(r#"\"{n:x}\""#))
                ),
                &containers("{}"),
            ),
        ),
        (
            "probes",
            pod(
                "",
                &containers(&few(&|n| {
                    format!(
                        r#"{{"name":"{n}","ports":[{{"containerPort":5000}}],"readinessProbe":{{"grpc":{{"port":5000}}}},"livenessProbe":{{"httpGet":{{"port":5000,"path":"/{n:0>200}"}}}}}}"#
                    )
                })),
            ),
        ),
        (
            "requests",
            pod(
                "",
                &format!(
                    r#""resources":{{"requests":{{"cpu":"9"}}}},{}"#,
                    containers(&model(&format!(
                        r#""resources":{{"requests":{{{}}}}}"#,
                        any(&|n| format!(r#""{n:x}":{{"":0}}"#))
                    )))
                ),
            ),
        ),
        (
            "pull secrets",
            pod("", &format!(r#""imagePullSecrets":[{}],{}"#, fill(&|_| "{}".to_owned()), containers("{}"))),
        ),
        (
            "volumes",
            pod(
                "",
                &format!(
                    r#""volumes":[{}],{}"#,
                    few(&|n| format!(r#"{{"name":"{n}","image":{{"reference":"{n:0>200}"}}}}"#)),
                    containers("{}")
                ),
            ),
        ),
    ]
}

fn pod(annotations: &str, spec: &str) -> String {
    format!(
        r#"{{"metadata":{{"name":"web","labels":{{"lucid.io/secured":"true"}},"annotations":{{{annotations}}}}},"spec":{{{spec}}}}}"#
    )
}

/// Joins at most `most` items that fit into `size` bytes.
fn fill_to(size: usize, most: usize, item: &dyn Fn(usize) -> String) -> String {
    let mut list = String::new();
    for number in 0..most {
        let item = item(number);
        if list.len() + item.len() > size {
            break;
        }
        list.push_str(if list.is_empty() { "" } else { "," });
        list.push_str(&item);
    }
    list
}

/// Does the work of `/mutate`. Returns the length of the response.
pub(crate) fn mutate(pod: &str) -> usize {
    let Ok(configuration) = Configuration::new(Catalogue::builtin(), None) else { return 0 };
    let Ok(view) = PodView::from_json(pod) else { return 0 };
    let outcome = plan(&view, &Inputs::new(&configuration));
    let mut length = outcome.warnings.iter().map(|warning| warning.to_string().len()).sum();
    if let Decision::Planned(plan) = outcome.decision {
        let patch = plan.patch(&view);
        length += patch.text.len();
        length += patch.warnings.iter().map(|warning| warning.to_string().len()).sum::<usize>();
    }
    length
}

/// Does the work of `/validate` for a created pod, or for an update from `old`. Returns the length of the response.
pub(crate) fn validate(pod: &str, old: Option<&str>) -> usize {
    let Ok(configuration) = Configuration::new(Catalogue::builtin(), None) else { return 0 };
    let mut policy = Policy::default();
    policy.mode = Mode::Enforce;
    policy.require_non_root = true;
    policy.tickets = Tickets::new(DEFAULT_TICKET_PATTERN).unwrap_or_default();
    let exemptions = r#"[{"name": "a", "images": ["a.test/b"]}, {"name": "b", "hostPaths": ["/x"]}]"#;
    policy.exemptions = serde_json::from_str(exemptions).unwrap_or_default();
    let request = Request::new(Workload::Pod, "shop", jiff::Timestamp::UNIX_EPOCH);
    let request = request.with_object(Some(pod.as_bytes())).with_old_object(old.map(str::as_bytes));
    let Ok(Some(subject)) = request.subject() else { return 0 };
    let catalogues = [Catalogue::builtin()];
    let mut settings = NamespaceSettings::default();
    settings.requires_chain = true;
    let inputs = Inputs { settings: &settings, ..Inputs::new(&configuration) };
    let case = Case::new(&subject, &inputs, &catalogues);
    let evaluation = policy.evaluate(&case, &case.auditors(), &BTreeMap::new(), &Permission::NotRequired);
    let exempted = evaluation.exempted.iter().map(|exempted| exempted.to_string().len());
    let length = evaluation.denial().map_or(0, |denial| denial.len()) + exempted.sum::<usize>();
    length + evaluation.warnings().iter().map(String::len).sum::<usize>()
}
