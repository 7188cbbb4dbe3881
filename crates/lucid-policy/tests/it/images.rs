//! Identification of auditors and findings about their images.

use lucid_chain::{Catalogue, Configuration, Inputs};
use lucid_policy::{Case, ContainerList, Request, Strictness, Workload};
use serde_json::{Value, json};

use crate::common::{
    Ask, NOTARIZED, REVOKED, UNREACHABLE, annotated, assert_says, configured, enforced, injected,
    injected_by, plain, secured, verdicts, with_other_model,
};

fn found(spec: &Value) -> Vec<(ContainerList, String)> {
    let ask = Ask::create(&json!({"metadata": {"name": "x"}, "spec": spec}));
    let object = ask.object.to_string();
    let now = crate::common::NOW.parse().unwrap();
    let request = Request::new(Workload::Pod, "shop", now).with_object(Some(object.as_bytes()));
    let subject = request.subject().unwrap().unwrap();
    let catalogues = [Catalogue::builtin()];
    let case = Case::new(&subject, &Inputs::new(&ask.configuration), &catalogues);
    case.auditors().iter().map(|auditor| (auditor.list, auditor.name.to_string())).collect()
}

#[test]
fn auditors_are_identified_by_image_name_or_variable() {
    let image = |image: &str| json!({"name": "web", "image": image});
    let env = |name: &str| json!({"name": "web", "image": "x", "env": [{"name": name, "value": ""}]});
    for (what, container, is_auditor) in [
        ("application", image("shop/web:1"), false),
        ("name", json!({"name": "lucid-toxicity-auditor", "image": "shop/web:1"}), true),
        ("name with ordinal", json!({"name": "lucid-toxicity-auditor-2", "image": "shop/web:1"}), true),
        ("name with suffix", json!({"name": "lucid-toxicity-auditor-x", "image": "shop/web:1"}), false),
        ("image", image(&format!("ghcr.io/lucid/lucid-injection-auditor@{NOTARIZED}")), true),
        ("registry in capitals", image("GHCR.IO/lucid/lucid-injection-auditor"), true),
        ("registry with its port", image("ghcr.io:443/lucid/lucid-injection-auditor"), true),
        ("port with zeros", image("ghcr.io:0443/lucid/lucid-injection-auditor"), true),
        ("another port", image("ghcr.io:444/lucid/lucid-injection-auditor"), false),
        ("another registry", image("evil.test/lucid/lucid-injection-auditor"), false),
        ("id", env("LUCID_AUDITOR_ID"), true),
        (
            "id from a field",
            json!({"name": "web", "image": "x",
                "env": [{"name": "LUCID_AUDITOR_ID", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]}),
            true,
        ),
        ("lucid-init by name", json!({"name": "lucid-init", "image": "x"}), true),
        ("lucid-init by image", image("REG.test/lucid-init:2"), true),
        ("lucid-init by variable", env("LUCID_REDIRECT"), true),
        ("no image", json!({"name": "lucid-toxicity-auditor"}), true),
    ] {
        for (list, place) in [
            ("containers", ContainerList::Containers),
            ("initContainers", ContainerList::InitContainers),
            ("ephemeralContainers", ContainerList::EphemeralContainers),
        ] {
            let expected =
                Vec::from_iter(is_auditor.then(|| (place, container["name"].as_str().unwrap().to_owned())));
            assert_eq!(found(&json!({ list: [container] })), expected, "{what} in {list}");
        }
    }
}

#[test]
fn image_volumes_of_auditors_are_evaluated() {
    let volume = |image: &str| json!([{"name": "files", "image": {"reference": image}}]);
    let mount = json!([{"name": "files", "mountPath": "/files"}]);
    let files = vec![(ContainerList::ImageVolumes, "files".to_owned())];
    for (what, spec, expected) in [
        ("a model's weights", json!({"volumes": volume("shop/weights:1")}), vec![]),
        (
            "an auditor's repository",
            json!({"volumes": volume("ghcr.io/lucid/lucid-injection-auditor:1")}),
            files.clone(),
        ),
        (
            "an auditor's mount",
            json!({"volumes": volume("shop/weights:1"),
                "containers": [{"name": "lucid-injection-auditor", "image": "x", "volumeMounts": mount}]}),
            vec![(ContainerList::Containers, "lucid-injection-auditor".to_owned()), files[0].clone()],
        ),
        (
            "an application's mount",
            json!({"volumes": volume("shop/weights:1"), "containers": [{"name": "web", "image": "x", "volumeMounts": mount}]}),
            vec![],
        ),
        ("another kind of volume", json!({"volumes": [{"name": "files", "emptyDir": {}}]}), vec![]),
    ] {
        assert_eq!(found(&spec), expected, "{what}");
    }
}

#[test]
fn strict_mode_refuses_what_lenient_mode_warns_of() {
    let unasked = format!("sha256:{}", "d".repeat(64));
    for (image, problem) in [
        (format!("r.test/a@{NOTARIZED}"), None),
        (format!("r.test/a:1@{NOTARIZED}"), None),
        ("r.test/a:1".to_owned(), Some("missing digest")),
        (format!("r.test/a@{REVOKED}"), Some("not notarized")),
        (format!("r.test/a@{UNREACHABLE}"), Some("could not be verified: connection refused")),
        (format!("r.test/a@{unasked}"), Some("could not be verified: the Verifier was not asked")),
        ("r.test/UPPER".to_owned(), Some("not an image reference: ")),
        (format!("r.test/a@{}", NOTARIZED.to_uppercase()), Some("not an image reference: ")),
        (String::new(), Some("not an image reference: ")),
    ] {
        let mut pod = plain();
        pod["spec"]["containers"][0] = json!({"name": "lucid-toxicity-auditor", "image": image});
        let strict = Ask::create(&pod).evaluate().unwrap();
        let lenient =
            Ask::create(&pod).with(|ask| ask.policy.strictness = Strictness::Lenient).evaluate().unwrap();
        assert_eq!((lenient.denial(), strict.warnings()), (None, vec![]), "{image}");
        match problem {
            None => assert_eq!((strict.denial(), lenient.warnings()), (None, vec![]), "{image}"),
            Some(problem) => {
                let denial = strict.denial().unwrap();
                let prefix = format!("auditor container lucid-toxicity-auditor, image {image}: {problem}");
                assert!(denial.starts_with(&prefix), "{denial}");
                assert_eq!(lenient.warnings(), [denial]);
            }
        }
    }
}

#[test]
fn a_denial_names_every_auditor_on_one_line() {
    let mut pod = plain();
    pod["spec"]["containers"] = json!([
        {"name": "lucid-toxicity-auditor", "image": "r.test/a"}, {"name": "lucid-injection-auditor", "image": "b\nWARN forged"},
    ]);
    let denial = Ask::create(&pod).denial();
    assert_says(&denial, &["lucid-toxicity-auditor", "lucid-injection-auditor"]);
    assert!(!denial.contains('\n') && denial.contains(r"b\nWARN"), "{denial}");
}

#[test]
fn lucid_egress_is_pinned_and_notarized_like_an_auditor() {
    let mut pod = injected(&annotated(json!({"lucid.computing/direction": "outbound"})));
    assert_eq!(Ask::create(&pod).evaluate().unwrap().denial(), None);
    let containers = pod["spec"]["containers"].as_array_mut().unwrap();
    let place = containers.iter().position(|found| found["name"] == "lucid-egress").unwrap();
    for (image, problem) in [
        ("reg.test/lucid-egress:1".to_owned(), "missing digest"),
        (format!("reg.test/lucid-egress@{REVOKED}"), "not notarized"),
        ("evil.test/any:1".to_owned(), "differs from the plan in image"),
    ] {
        pod["spec"]["containers"][place]["image"] = json!(image);
        let denial = Ask::create(&pod).denial();
        assert_says(&denial, &["container lucid-egress", problem]);
    }
}

#[test]
fn pods_with_a_former_lucid_egress_image_can_be_updated() {
    let old = injected(&annotated(json!({"lucid.computing/direction": "outbound"})));
    let current = format!("other.test/lucid-egress@{REVOKED}");
    let yaml = format!("chain: [{{name: lucid-egress, image: '{current}'}}]");
    let catalogue = crate::common::catalogue().overlay(&Catalogue::parse("auditors.yaml", &yaml).unwrap());
    let configuration = configured(catalogue, &["first", "second"]);
    let denial = |ask: Ask| ask.with(|ask| ask.configuration = configuration.clone()).denial();
    let mut new = with_other_model(&old);
    new["metadata"]["labels"]["a"] = json!("b");
    assert_eq!(denial(Ask::update(&old, &new)), "");
    let message = denial(Ask::create(&old));
    assert_says(&message, &["container lucid-egress", "differs from the plan in image"]);
}

#[test]
fn the_configured_image_of_lucid_init_needs_no_digest() {
    let tagged = "reg.test/lucid-init:1";
    let ask =
        |pod: &Value| Ask::create(pod).with(|ask| ask.configuration.init_image = tagged.parse().unwrap());
    let mut pod = injected(&secured());
    pod["spec"]["initContainers"][0]["image"] = json!(tagged);
    pod["spec"]["initContainers"][0]["imagePullPolicy"] = json!("IfNotPresent");
    let evaluation = ask(&pod).evaluate().unwrap();
    assert_eq!(evaluation.denial(), None);
    let exempted = evaluation.exempted[0].to_string();
    assert!(exempted.starts_with("image of lucid-init as configured: "), "{exempted}");
    assert_says(&exempted, &[tagged]);

    for (image, problem) in [
        ("reg.test/lucid-init:2", "missing digest".to_owned()),
        ("evil.test/lucid-init:1", "missing digest".to_owned()),
        (&format!("reg.test/lucid-init@{REVOKED}"), "not notarized".to_owned()),
    ] {
        pod["spec"]["initContainers"][0]["image"] = json!(image);
        let denial = ask(&pod).denial();
        assert_says(&denial, &[&format!("init container lucid-init, image {image}: {problem}")]);
    }
}

#[test]
fn exempt_and_unpinned_images_need_no_verdict() {
    let mut policy = enforced();
    policy.exemptions = serde_json::from_value(json!([{"name": "dev", "images": ["r.test/dev"]}])).unwrap();
    let mut pod = plain();
    pod["spec"]["containers"] = json!([
        {"name": "lucid-toxicity-auditor", "image": format!("r.test/dev/a@{REVOKED}")},
        {"name": "lucid-toxicity-auditor-2", "image": "r.test/a:1"},
        {"name": "lucid-toxicity-auditor-3", "image": format!("r.test/a@{NOTARIZED}")},
    ]);
    let object = pod.to_string();
    let request = Request::new(Workload::Pod, "shop", crate::common::NOW.parse().unwrap())
        .with_object(Some(object.as_bytes()));
    let subject = request.subject().unwrap().unwrap();
    let (configuration, catalogues) = (crate::common::configuration(), [Catalogue::builtin()]);
    let case = Case::new(&subject, &Inputs::new(&configuration), &catalogues);
    let auditors = case.auditors();
    let asked: Vec<_> = auditors.iter().filter(|auditor| policy.needs_verdict(&case, auditor)).collect();
    assert_eq!(asked.iter().map(|auditor| auditor.name).collect::<Vec<_>>(), ["lucid-toxicity-auditor-3"]);
    let evaluation = policy.evaluate(&case, &auditors, &verdicts(), &lucid_policy::Permission::NotRequired);
    assert_eq!(evaluation.exempted[0].by, "dev");
    assert_eq!(evaluation.findings.len(), 1);
}

#[test]
fn messages_about_images_are_bounded() {
    let long = "é".repeat(1 << 20);
    let pod = json!({"metadata": {"name": "x"}, "spec": {"containers": [{"name": "lucid-toxicity-auditor", "image": long,
        "env": [{"name": "LUCID_AUDITOR_ID", "value": "x"}]}]}});
    let evaluation = Ask::create(&pod).evaluate().unwrap();
    let told = evaluation.findings[0].to_string();
    assert_says(&told, &[&format!("image {}…: ", "é".repeat(512))]);
    for finding in &evaluation.findings {
        assert!(finding.to_string().chars().count() < 2048);
    }
}

fn with_tags() -> Configuration {
    let yaml = "chain: [{name: first, image: 'reg.test/first:1', port: 8090}, {name: second, image: 'reg.test/second:1', port: 8093},
                        {name: lucid-egress, image: 'reg.test/lucid-egress:1'}]";
    let mut configuration =
        configured(Catalogue::parse("auditors.yaml", yaml).unwrap(), &["first", "second"]);
    configuration.init_image = "reg.test/lucid-init:1".parse().unwrap();
    configuration
}

#[test]
fn a_digest_that_another_webhook_adds_needs_its_verdict() {
    type Rewrite<'r> = &'r dyn Fn(&str) -> String;

    let both = annotated(json!({"lucid.computing/direction": "both"}));
    let original = injected_by(&both, &with_tags());
    let pinned = |written: Rewrite<'_>| {
        let mut pod = original.clone();
        for list in ["containers", "initContainers"] {
            for container in
                pod["spec"][list].as_array_mut().unwrap().iter_mut().filter(|it| it["name"] != "model")
            {
                let image = container["image"].as_str().unwrap().to_owned();
                container["image"] = json!(written(&image));
            }
        }
        pod
    };
    let without_tag = |image: &str| image.strip_suffix(":1").unwrap().to_owned();
    let images: [(Rewrite<'_>, &[&str]); 7] = [
        (&|image| format!("{image}@{NOTARIZED}"), &[]),
        (&|image| format!("{}@{NOTARIZED}", without_tag(image)), &[]),
        (&|image| format!("{image}@{REVOKED}"), &["NotNotarized"]),
        (&|image| format!("{image}@{UNREACHABLE}"), &["Unverified"]),
        (&|image| format!("mirror.test/{image}@{NOTARIZED}"), &["ContainerDiffers"]),
        (&|image| format!("{}:2@{NOTARIZED}", without_tag(image)), &["ContainerDiffers"]),
        (&|image| format!("{}-2@{NOTARIZED}", without_tag(image)), &["ContainerDiffers"]),
    ];
    for (number, (written, reasons)) in images.into_iter().enumerate() {
        let pod = pinned(written);
        let expected: Vec<_> = reasons.iter().flat_map(|reason| [*reason; 4]).collect();
        let ask = Ask::create(&pod).with(|ask| ask.configuration = with_tags());
        assert_eq!(ask.reasons(), expected, "{number}: {}", ask.denial());
        assert_eq!(ask.denial().is_empty(), reasons.is_empty(), "{number}");
        let lenient = ask.with(|ask| ask.policy.strictness = Strictness::Lenient);
        assert_eq!(lenient.denial().is_empty(), reasons.is_empty(), "{number}: {}", lenient.denial());
        let update = Ask::update(&original, &pod).with(|ask| ask.configuration = with_tags());
        assert_eq!(update.denial().is_empty(), reasons.is_empty(), "{number}: {}", update.denial());
        // A reinvocation of /mutate does not change accepted pods.
        let is_kept = injected_by(&pod, &with_tags()) == pod;
        assert_eq!(is_kept, !reasons.contains(&"ContainerDiffers"), "{number}");
    }
}
