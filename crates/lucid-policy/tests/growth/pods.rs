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
    let same = |item: &str| fill(&|_| item.to_owned());
    // Fields that are not parsed as lists have no maximum.
    let any = |item: &dyn Fn(usize) -> String| fill_to(size, usize::MAX, item);
    let few = |item: &dyn Fn(usize) -> String| fill_to(size, ITEMS, item);
    let long = "x".repeat(size / 2);
    let name = "n".repeat(253);
    let chain = |chain: &str| format!(r#""lucid.computing/auditor-chain":"{chain}""#);
    let auditors = || chain(&vec!["lucid-guardrails-auditor"; 100].join(","));
    let none = String::new;
    let containers = |list: &str| format!(r#""containers":[{list}]"#);
    let empty = || containers("{}");
    let model = |field: &str, value: String| {
        containers(&format!(r#"{{"name":"{name}","image":"a","{field}":{value}}}"#))
    };
    let list = |field: &str, items: String| model(field, format!("[{items}]"));
    let context = |field: &str, items: String| {
        model("securityContext", format!(r#"{{"capabilities":{{"{field}":[{items}]}}}}"#))
    };
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
    let forged = any(&|_| r#"{\"port\":{\"a\":0}}"#.to_owned());
    let forged = format!(r#"{{"name":"LUCID_REDIRECT","value":"{{\"version\":1,\"chain\":[{forged}]}}"}}"#);
    let aliases =
        |names: String| format!(r#""hostAliases":[{{"ip":"10.0.0.1","hostnames":[{names}]}}],{}"#, empty());
    let privileged =
        few(&|n| format!(r#"{{"name":"{n:0>200}","image":"b","securityContext":{{"privileged":true}}}}"#));
    let leftovers = few(&|n| {
        let image = "ghcr.io/lucid/lucid-injection-auditor";
        format!(r#"{{"name":"{n:0>200}","image":"{image}","env":[{{"name":"LUCID_AUDITOR_ID"}}]}}"#)
    });
    let probes = few(&|n| {
        let liveness = format!(r#"{{"httpGet":{{"port":5000,"path":"/{n:0>200}"}}}}"#);
        format!(
            r#"{{"name":"{n}","ports":[{{"containerPort":5000}}],"readinessProbe":{{"grpc":{{"port":5000}}}},"livenessProbe":{liveness}}}"#
        )
    });
    let requests = format!(r#"{{"requests":{{{}}}}}"#, any(&|n| format!(r#""{n:x}":{{"":0}}"#)));
    let volumes = few(&|n| format!(r#"{{"name":"{n}","image":{{"reference":"{n:0>200}"}}}}"#));
    let forged_auditor = any(&|_| r#"{"":0}"#.to_owned());
    let status = any(&|n| format!(r#"\"{n:x}\""#));
    // Name, annotations and fields of the spec.
    let pods = vec![
        ("hostPath × mounts", none(), host_path + &list("volumeMounts", mounts.clone())),
        ("mounts", none(), list("volumeMounts", fill(&|n| format!(r#"{{"name":"{n}"}}"#)))),
        ("empty mounts", none(), list("volumeMounts", same("{}"))),
        ("ports", auditors(), list("ports", fill(&|n| format!(r#"{{"containerPort":{}}}"#, 1 + n % 65535)))),
        ("ports of auditors", none(), list("ports", same(r#"{"containerPort":8090}"#))),
        ("empty ports", none(), list("ports", same("{}"))),
        ("env × auditors", auditors(), list("env", fill(&|n| format!(r#"{{"name":"A{n}"}}"#)))),
        ("empty env", none(), list("env", same("{}"))),
        ("capabilities", none(), context("add", same(r#""X""#))),
        ("dropped capabilities", none(), context("drop", same(r#""""#))),
        (
            "value of a security context",
            none(),
            model("securityContext", format!(r#"{{"runAsUser":[{}]}}"#, any(&|_| r#"{"":0}"#.to_owned()))),
        ),
        ("containers", auditors(), containers(&privileged)),
        ("too many containers", auditors(), containers(&same("{}"))),
        ("leftover auditors", none(), containers(&leftovers)),
        (
            "auditors × volumes",
            auditors(),
            format!(r#""volumes":[{projected}],{}"#, containers(&with_tokens)),
        ),
        (
            "a forged auditor",
            auditors(),
            containers(&format!(r#"{{"name":"{}","a":[{forged_auditor}]}}"#, auditor(0))),
        ),
        ("forged rules", none(), list("env", forged)),
        ("hostAliases", none(), aliases(same(r#""localhost""#))),
        ("empty hostAliases", none(), aliases(same(r#""""#))),
        ("hostname", none(), format!(r#""hostname":"{long}","hostnameOverride":"{long}",{}"#, empty())),
        ("image", none(), containers(&format!(r#"{{"image":"{long}","ports":[{mounts}]}}"#))),
        ("annotations", any(&|n| format!(r#""{n:x}":"""#)), empty()),
        ("annotations like ours", any(&|n| format!(r#""lucid.computin/auditor{n:x}":"""#)), empty()),
        ("chain annotation", chain(&any(&|_| "a".to_owned())), empty()),
        ("status annotation", format!(r#""lucid.computing/status":"{{\"added\":[{status}]}}""#), empty()),
        ("probes", none(), containers(&probes)),
        (
            "requests",
            none(),
            format!(r#""resources":{{"requests":{{"cpu":"9"}}}},{}"#, model("resources", requests)),
        ),
        ("pull secrets", none(), format!(r#""imagePullSecrets":[{}],{}"#, same("{}"), empty())),
        ("volumes", none(), format!(r#""volumes":[{volumes}],{}"#, empty())),
    ];
    pods.into_iter().map(|(name, annotations, spec)| (name, pod(&annotations, &spec))).collect()
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
