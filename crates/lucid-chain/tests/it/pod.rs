//! Parsing of pods.

use lucid_chain::{ContainerView, PodError, PodView};

fn assert_at(error: &PodError, path: &str) {
    let message = error.to_string();
    assert!(
        message.starts_with(&format!("failed to read the pod at {path}: ")),
        "{message} is not at {path}"
    );
}

#[test]
fn unknown_fields_are_ignored() {
    let pod = PodView::from_json(
        r#"{"apiVersion": "v1", "kind": "Pod", "status": {"phase": "Pending"},
            "metadata": {"generateName": "a-", "namespace": "team-a", "labels": {"l": "1"},
                         "annotations": {"quoted": "\"x\""}, "managedFields": [1, {"a": []}]},
            "spec": {"hostNetwork": true, "volumes": [{}],
                     "containers": [{"name": "web", "image": "web:1", "stdin": true,
                                     "ports": [{"name": "http", "containerPort": 80, "hostPort": 8080}, {"protocol": "UDP"}],
                                     "env": [{"name": "A", "value": "old"}, {"name": "B", "valueFrom": {}}, {"name": "A", "value": "1"}]}],
                     "initContainers": [{"name": "setup"}],
                     "ephemeralContainers": [{"name": "debug"}]}}"#,
    )
    .unwrap();

    assert_eq!((pod.name(), pod.generate_name(), pod.namespace()), (None, Some("a-"), Some("team-a")));
    assert_eq!((pod.label("l"), pod.label("m")), (Some("1"), None));
    assert_eq!(pod.annotation("quoted"), Some("\"x\""));
    assert_eq!(pod.shared_namespaces().collect::<Vec<_>>(), ["hostNetwork"]);
    let web = &pod.containers()[0];
    assert_eq!((web.name(), web.image()), ("web", Some("web:1")));
    let [a, b, c] = ["A", "B", "C"].map(|name| web.env(name));
    assert_eq!((a.as_deref(), b.as_deref(), c), (Some("1"), Some(""), None));
    assert_eq!(web.tcp_ports().collect::<Vec<_>>(), [80]);
    assert!(web.json().starts_with(r#"{"name": "web""#) && web.json().ends_with('}'));
    assert_eq!(pod.init_containers()[0].name(), "setup");
    assert_eq!(pod.ephemeral_containers()[0].name(), "debug");
}

#[test]
fn absent_and_null_are_empty() {
    let pods = [
        r#"{"spec": {}}"#,
        r#"{"metadata": null, "spec": {}}"#,
        r#"{"metadata": {"name": null, "labels": null, "annotations": null, "creationTimestamp": null},
            "spec": {"containers": null, "initContainers": null, "ephemeralContainers": null, "hostNetwork": null}}"#,
        r#"{"metadata": {}, "spec": {"containers": []}}"#,
    ];
    for json in pods {
        let pod = PodView::from_json(json).unwrap();
        assert_eq!((pod.name(), pod.label("a"), pod.annotation("a")), (None, None, None), "{json}");
        assert!(
            pod.containers().is_empty()
                && pod.init_containers().is_empty()
                && pod.shared_namespaces().count() == 0
        );
    }
    let pod = PodView::from_json(r#"{"spec": {"containers": [{"name": null, "ports": null, "env": null}]}}"#);
    assert_eq!(pod.unwrap().containers()[0].name(), "");
    let json = r#"{"metadata": {"labels": {"a": null}, "annotations": {"a": null}}, "spec": {}}"#;
    let pod = PodView::from_json(json).unwrap();
    assert_eq!((pod.label("a"), pod.annotation("a")), (Some(""), Some("")));
}

#[test]
fn lists_and_names_are_bounded() {
    for list in ["containers", "initContainers", "ephemeralContainers", "volumes"] {
        let pod = |count: usize| format!(r#"{{"spec": {{"{list}": [{}{{}}]}}}}"#, "{},".repeat(count - 1));
        assert!(PodView::from_json(&pod(1024)).is_ok(), "{list}");
        let error = PodView::from_json(&pod(1025)).unwrap_err().to_string();
        let expected =
            format!("failed to read the pod at spec.{list}: expected at most 1024 items, found 1025");
        assert_eq!(error, expected);
        let named = |length| format!(r#"{{"spec": {{"{list}": [{{"name": "{}"}}]}}}}"#, "a".repeat(length));
        assert!(PodView::from_json(&named(253)).is_ok(), "{list}");
        assert_at(&PodView::from_json(&named(254)).unwrap_err(), &format!("spec.{list}[0].name"));
    }
}

#[test]
fn contents_of_containers_are_bounded() {
    for (list, contents) in [
        ("containers", r#"{"securityContext": {"capabilities": {"add": [""]}}}"#),
        ("initContainers", r#"{"securityContext": {"capabilities": {"drop": [""]}}}"#),
        ("containers", r#"{"env": [{}]}"#),
        ("ephemeralContainers", r#"{"ports": [{}]}"#),
        ("initContainers", r#"{"volumeMounts": [{}]}"#),
    ] {
        let (before, item) = contents.split_once('[').unwrap();
        let (item, after) = item.split_once(']').unwrap();
        let container = |count: usize| format!("{before}[{}]{after}", vec![item; count].join(","));
        let pod = |counts: &[usize]| {
            let containers: Vec<_> = counts.iter().map(|count| container(*count)).collect();
            format!(r#"{{"spec": {{"{list}": [{}]}}}}"#, containers.join(","))
        };
        assert!(PodView::from_json(&pod(&[65_535, 1])).is_ok(), "{contents}");
        let error = |counts: &[usize]| PodView::from_json(&pod(counts)).unwrap_err().to_string();
        let expected = format!("at spec.{list}: expected at most 65536 items, found 65537");
        assert!(error(&[65_535, 1, 1]).ends_with(&expected), "{contents}");
        let alone = error(&[65_537]);
        assert!(alone.contains("expected at most 65536 items, found more"), "{alone}");
    }
}

#[test]
fn an_error_names_the_json_path() {
    let cases: [(&str, &str); 14] = [
        ("{}", "spec"),
        (r#"{"spec": null}"#, "spec"),
        (r#"{"metadata": {"annotations": {"a.b/c": 1}}}"#, "metadata.annotations.a.b/c"),
        (r#"{"metadata": {"labels": ["a"]}}"#, "metadata.labels"),
        (r#"{"metadata": ["a", "b", "c", {}, {}]}"#, "metadata"),
        (r#"{"spec": {"hostNetwork": "yes"}}"#, "spec.hostNetwork"),
        (r#"{"spec": {"containers": {}}}"#, "spec.containers"),
        (r#"{"spec": {"containers": [{}, 5]}}"#, "spec.containers[1]"),
        (r#"{"spec": {"containers": [["web"]]}}"#, "spec.containers[0]"),
        (
            r#"{"spec": {"containers": [{"ports": [{"containerPort": "80"}]}]}}"#,
            "spec.containers[0].ports[0].containerPort",
        ),
        (r#"{"spec": {"initContainers": [{"env": [{"name": 1}]}]}}"#, "spec.initContainers[0].env[0].name"),
        (r#"{"spec": {"ephemeralContainers": [{"image": []}]}}"#, "spec.ephemeralContainers[0].image"),
        (
            r#"{"spec": {"containers": [{"env": [{"name": "A", "value": "\ud800"}]}]}}"#,
            "spec.containers[0].env[0].value",
        ),
        ("[]", "."),
    ];
    for (json, path) in cases {
        let error = PodView::from_json(json).unwrap_err();
        assert_at(&error, path);
        assert!(error.to_string().starts_with(&format!("failed to read the pod at {path}: ")), "{error}");
        // The path locates the error; a column of the JSON means nothing in the user's manifest.
        assert!(!error.to_string().contains(" column "), "{error}");
    }
}

#[test]
fn invalid_json_is_rejected() {
    for json in ["", "{", "nul", "{} {}", r#"{"metadata": {"name": "a}}"#] {
        assert!(PodView::from_json(json).is_err(), "{json}");
    }
    assert!(PodView::from_json(b"{\"metadata\": {\"name\": \"\xff\"}}").is_err());
}

#[test]
fn a_pod_view_has_privileges_and_image_volumes() {
    let json = r#"{
        "metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}},
        "spec": {
            "hostPID": true, "hostIPC": true, "shareProcessNamespace": true, "securityContext": {"runAsUser": 7, "runAsNonRoot": true},
            "hostname": "h", "hostAliases": [{"ip": "127.0.0.1", "hostnames": ["a", "b"]}, {"ip": "::1", "hostnames": null}, {"hostnames": ["c"]}],
            "volumes": [{"name": "files", "image": {"reference": "shop/files:1"}}, {"name": "x", "emptyDir": {}}, {"name": "y", "image": {}},
                {"name": "logs", "hostPath": {"path": "/var/log", "type": ""}}],
            "containers": [
                {"name": "a", "volumeMounts": [{"name": "files"}, {"name": "logs", "subPath": "a/b"}], "securityContext": {
                    "privileged": true, "procMount": "Unmasked", "runAsUser": 0, "capabilities": {"add": ["CAP_SETUID", "NET_ADMIN"], "drop": ["cap_chown"]}}},
                {"name": "b", "securityContext": {"capabilities": {"add": null, "drop": ["ALL"]}}},
                {"name": "c", "securityContext": null}
            ],
            "ephemeralContainers": [{"name": "d", "targetContainerName": "a"}, {"name": "e", "targetContainerName": ""}]
        }
    }"#;
    let pod = PodView::from_json(json).unwrap();
    assert_eq!(pod.labels().collect::<Vec<_>>(), [("a", "b")]);
    assert_eq!(pod.annotations().collect::<Vec<_>>(), [("c", "d")]);
    let shared: Vec<_> = pod.shared_namespaces().collect();
    assert_eq!(shared, ["hostPID", "hostIPC", "shareProcessNamespace"]);
    let of_pod = pod.privileges().unwrap();
    assert_eq!((of_pod.run_as_user(), of_pod.run_as_non_root()), (Some(7), Some(true)));
    assert_eq!(pod.image_volumes().collect::<Vec<_>>(), [("files", "shop/files:1"), ("y", "")]);
    assert_eq!(pod.host_paths().collect::<Vec<_>>(), [("logs", "/var/log")]);
    let local = Some("127.0.0.1");
    let expected = [(None, "h"), (local, "a"), (local, "b"), (Some(""), "c")];
    assert_eq!(pod.host_names().collect::<Vec<_>>(), expected);
    let named = PodView::from_json(r#"{"metadata": {"name": "n"}, "spec": {"hostname": ""}}"#).unwrap();
    assert_eq!(named.host_names().collect::<Vec<_>>(), [(None, "n")]);
    let targets = pod.ephemeral_containers().iter().map(ContainerView::target);
    assert_eq!(targets.collect::<Vec<_>>(), [Some("a"), None]);
    let [a, b, c] = pod.containers() else { panic!("three containers") };
    assert_eq!(a.mounted_volumes().collect::<Vec<_>>(), ["files", "logs"]);
    let a = a.privileges().unwrap();
    assert_eq!(a.proc_mount(), "Unmasked");
    assert_eq!((a.run_as_user(), a.is_privileged()), (Some(0), true));
    assert_eq!(a.added().collect::<Vec<_>>(), ["SETUID", "NET_ADMIN"]);
    assert!(!a.drops("CHOWN") && !a.drops("SETUID"));
    let b = b.privileges().unwrap();
    assert_eq!(b.proc_mount(), "Default");
    assert!(b.drops("SETUID") && !b.is_privileged() && b.added().next().is_none());
    assert!(c.privileges().is_none());
}

#[test]
fn the_json_of_a_container_is_found() {
    let containers = [
        r#"{"name": "a", "stdin": {"name": "{"}}"#,
        "{ }",
        r#"{"\u006eame": "b", "env": []}"#,
        "{\n\t\"image\": \"{\", \"name\": \"c\"}",
        r#"{"": 1, "name": "d"}"#,
    ];
    for lists in [
        r#"{"spec": {"containers": ["#,
        r#"{"metadata": {"name": "{"}, "spec": {"nodeName": "{", "containers": ["#,
    ] {
        let pod = format!("{lists}{}]}}}}", containers.join(" ,"));
        let pod = PodView::from_json(&pod).unwrap();
        let found: Vec<_> = pod.containers().iter().map(ContainerView::json).collect();
        assert_eq!(found, containers);
    }
}

#[test]
fn only_json_is_read() {
    let accepted = [
        r#" { "spec" : { "containers" : [ { "name" : "a" , "env" : [ ] } , { } ] } } "#,
        "{\"spec\": {}}\n\t\r ",
        r#"{"spec": {"containers": [{"env": [{"name": "a\"\\\/\b\f\n\r\tb", "value": "\"\\\/\b\f\n\r\t"}]}]}}"#,
        r#"{"spec": {"containers": [{"env": [{"name": "\u00e9\ud83e\udd80é🦀", "value": "\u00e9\ud83e\udd80é🦀"}]}]}}"#,
        r#"{"\u0073pec": {"containers": [{"ports": [{"containerPort": -1}]}]}}"#,
    ];
    for json in accepted {
        assert!(PodView::from_json(json).is_ok(), "{json}");
    }
    let rejected = [
        r#"{"spec": {}"#,
        r#"{"spec": {}}}"#,
        r#"{"spec": {},}"#,
        r#"{,"spec": {}}"#,
        r#"{"spec" {}}"#,
        r#"{"spec": {} "metadata": {}}"#,
        r#"{'spec': {}}"#,
        r#"{spec: {}}"#,
        r#"{"spec": {"containers": [{},]}}"#,
        r#"{"spec": {"containers": [,{}]}}"#,
        r#"{"spec": {"containers": [{} {}]}}"#,
        r#"{"spec": {"containers": [{}}]}"#,
        r#"{"spec": {"containers": nul}}"#,
        r#"{"spec": {"containers": nulls}}"#,
        r#"{"spec": {"hostNetwork": truefalse}}"#,
        r#"{"spec": {"containers": [{"ports": [{"containerPort": 01}]}]}}"#,
        r#"{"spec": {"containers": [{"ports": [{"containerPort": 1.0}]}]}}"#,
        r#"{"spec": {"containers": [{"ports": [{"containerPort": 4294967296}]}]}}"#,
        r#"{"spec": {"containers": [{"args": [1,]}]}}"#,
        r#"{"spec": {"containers": [{"args": ["\x"]}]}}"#,
        "{\"spec\": {\"containers\": [{\"args\": [\"a\u{1}\"]}]}}",
        "\u{feff}{\"spec\": {}}",
        r#"{"spec": {"hostname": "a", "hostname": "b"}}"#,
        r#"{"spec": {"containers": [{"name": "a", "name": null}]}}"#,
    ];
    for json in rejected {
        assert!(PodView::from_json(json).is_err(), "{json}");
    }
    // Each position within a word that is scanned at once, and beyond its end.
    for before in 0..18 {
        for after in 0..18 {
            let (before, after) = ("é".repeat(before / 2) + &"a".repeat(before % 2), "z".repeat(after));
            for special in ["\u{0}", "\u{1f}", "\n", "\\x", "\\u12g4", "\\ud800", "\\ ", "\"\"", "\\u12"] {
                for member in ["name", "value"] {
                    let json = format!(
                        r#"{{"spec":{{"containers":[{{"env":[{{"{member}":"{before}{special}{after}"}}]}}]}}}}"#
                    );
                    assert!(PodView::from_json(&json).is_err(), "{json}");
                }
            }
            for (written, text) in
                [("", ""), ("\\\"", "\""), ("\\n", "\n"), (" ", " "), ("\u{7f}", "\u{7f}"), ("\\u0041", "A")]
            {
                let (json, text) = (format!("{before}{written}{after}"), format!("{before}{text}{after}"));
                let pod = format!(
                    r#"{{"spec":{{"containers":[{{"name":"{json}","env":[{{"name":"{json}","value":"{json}"}}]}}]}}}}"#
                );
                let pod = PodView::from_json(&pod).unwrap();
                let found = &pod.containers()[0];
                assert_eq!((found.name(), found.env(&text).as_deref()), (&*text, Some(&*text)), "{json}");
            }
        }
    }
}

#[test]
fn entries_of_maps_and_hostnames_are_bounded() {
    let labels = |count| (0..count).map(|key| format!(r#""{key}":"""#)).collect::<Vec<_>>().join(",");
    let labelled = |count| format!(r#"{{"metadata": {{"labels": {{{}}}}}, "spec": {{}}}}"#, labels(count));
    assert!(PodView::from_json(&labelled(65_536)).is_ok());
    let error = PodView::from_json(&labelled(65_537)).unwrap_err();
    assert_at(&error, "metadata.labels.65536");
    let alias = format!(r#"{{"hostnames": [{}""]}}"#, r#""","#.repeat(40_000));
    let aliased = |aliases: &str| format!(r#"{{"spec": {{"hostAliases": [{aliases}]}}}}"#);
    assert!(PodView::from_json(&aliased(&alias)).is_ok());
    let error = PodView::from_json(&aliased(&format!("{alias},{alias}"))).unwrap_err();
    assert_at(&error, "spec.hostAliases[1]");
}
