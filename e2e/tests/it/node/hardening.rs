//! Privileges that would bypass the chain, which are removed from containers.

use std::{fs, io::Write as _, path::Path, process::Command};

use k8s_openapi::api::core::v1::Container;
use lucid_e2e::{Answer, Installation, build_image};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::common::until;

use super::{assert_through_the_chain, create, installed, on_node, pod, processes, stored, wait};

/// Runs its arguments as the user of its setuid bit. Without arguments, opens a raw socket.
const PROGRAM: &str = r#"
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

int main(int count, char **arguments) {
    if (count == 1) {
        puts(socket(AF_INET, SOCK_RAW, IPPROTO_TCP) < 0 ? strerror(errno) : "open");
        return 0;
    }
    if (setreuid(geteuid(), geteuid()) != 0) return 1;
    execv(arguments[1], arguments + 1);
    return 127;
}
"#;

const IMAGE: &str = "example.com/setuid:1";

/// The uid of the last auditor, which may connect to the model.
const LAST_AUDITOR: u32 = 20_002;

/// Setuid files of an auditor's uid: `shared/…` created by init containers that run before lucid-init, `image` in the image
/// itself.
const FILES: [&str; 3] = ["/shared/of-its-user", "/shared/of-root", "/setuid"];

#[tokio::test]
async fn setuid_files_and_raw_sockets_cannot_bypass_the_chain() {
    if !Installation::can_run() {
        return;
    }
    let site = installed(1).await;
    // An annotation of the pod applies only if the administrator allows it.
    let labelled = site.kubectl_says(&["label", "namespace", "shop", "lucid.computing/pod-choices=all"]);
    assert!(labelled.contains("labeled"), "{labelled}");
    site.cluster.load_image(&image().path().join("image.tar")).await.unwrap();
    create(&site, "shop", &with_tools("hardened", json!({}))).await;
    // Shows that the attacks work.
    let keeps = json!({"lucid.computing/keep-privileges": "true"});
    let is_kept = |response: &Answer| {
        let pod = response.result.as_ref().unwrap();
        let containers = &pod.spec.as_ref().unwrap().containers;
        let context = |it: &Container| it.security_context.as_ref()?.allow_privilege_escalation;
        containers.iter().any(|it| it.name == "tools" && context(it).is_none())
    };
    let kept = until(&site.cluster, "shop", |name| with_tools(name, keeps.clone()), is_kept).await;
    let kept = kept.stored().unwrap().metadata.name.unwrap();
    for pod in ["hardened", &kept] {
        wait(&site, "shop", &format!("pod/{pod}"), "condition=Ready");
    }

    for file in FILES {
        let dial = [
            "/busybox",
            "timeout",
            "10",
            file,
            "/busybox",
            "wget",
            "-q",
            "-O",
            "-",
            "http://127.0.0.1:5000/",
        ];
        let response = |pod: &str| -> Value {
            let said = run(&site, pod, "tools", &dial);
            serde_json::from_str(&said).unwrap_or_else(|_| panic!("{pod}, {file}: {said}"))
        };
        assert_through_the_chain(&response("hardened"), file);
        assert_eq!(response(&kept)["headers"]["via"], Value::Null, "{file}");
    }
    // As root, with the capabilities granted by the container runtime.
    assert_eq!(run(&site, "hardened", "root", &["/plain"]).trim(), "Operation not permitted");
    assert_eq!(run(&site, &kept, "root", &["/plain"]).trim(), "open");
    no_auditor_has_a_token(&site).await;
}

fn run(site: &Installation, pod: &str, container: &str, command: &[&str]) -> String {
    let mut all = vec!["exec", "-n", "shop", pod, "-c", container, "--"];
    all.extend(command);
    site.kubectl_says(&all)
}

async fn no_auditor_has_a_token(site: &Installation) {
    let pod = stored(site, "shop", "hardened").await;
    for (container, expected) in [
        ("app", "ca.crt\nnamespace\ntoken\n"),
        ("lucid-injection-auditor", ""),
        ("lucid-toxicity-auditor", ""),
    ] {
        let process = &processes(site, &pod, container)[0];
        let path = format!("/proc/{process}/root/var/run/secrets/kubernetes.io/serviceaccount");
        assert_eq!(on_node(site, &pod, &format!("ls {path}")), expected, "{container}");
    }
}

/// Adds containers with the [`PROGRAM`] to a pod: `tools` as a user without capabilities, `root` with those of the runtime.
fn with_tools(name: &str, annotations: Value) -> Value {
    let mut pod = pod(name, &annotations);
    let mounts = json!([{"name": "shared", "mountPath": "/shared"}]);
    let container = |name: &str, context: Value| {
        json!({"name": name, "image": IMAGE, "imagePullPolicy": "Never", "args": ["sleep", "3600"],
            "securityContext": context, "volumeMounts": mounts})
    };
    let init = |name: &str, context: Value, line: &str| {
        let mut container = container(name, context);
        container["args"] = json!(["sh", "-c", line]);
        container
    };
    let [of_its_user, of_root, _] = FILES;
    pod["spec"]["initContainers"] = json!([
        init(
            "its-user",
            json!({"runAsUser": LAST_AUDITOR, "capabilities": {"drop": ["ALL"]}}),
            &format!("/busybox cp /plain {of_its_user} && /busybox chmod 4755 {of_its_user}")
        ),
        init(
            "root-user",
            json!({"runAsUser": 0, "capabilities": {"drop": ["ALL"], "add": ["CHOWN", "FOWNER"]}}),
            &format!(
                "/busybox cp /plain {of_root} && /busybox chown {LAST_AUDITOR} {of_root} && /busybox chmod 4755 {of_root}"
            )
        ),
    ]);
    let containers = pod["spec"]["containers"].as_array_mut().unwrap();
    containers.push(container("tools", json!({"runAsUser": 1000, "capabilities": {"drop": ["ALL"]}})));
    containers.push(container("root", json!({"runAsUser": 0})));
    pod["spec"]["volumes"] = json!([{"name": "shared", "emptyDir": {}}]);
    pod
}

/// Folder with `image.tar`: busybox, the [`PROGRAM`] as `/plain`, and the same as `/setuid` with the setuid bit and the uid of an auditor.
fn image() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::copy("/bin/busybox", path("busybox")).unwrap();
    let mut compiler = Command::new("cc")
        .args(["-static", "-x", "c", "-o"])
        .args([&path("plain"), Path::new("-")])
        .stdin(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    compiler.stdin.take().unwrap().write_all(PROGRAM.as_bytes()).unwrap();
    assert!(compiler.wait().unwrap().success());
    fs::copy(path("plain"), path("setuid")).unwrap();
    let containerfile = format!(
        "FROM scratch\nCOPY busybox plain /\nCOPY --chown={LAST_AUDITOR}:0 --chmod=4755 setuid /\nENTRYPOINT [\"/busybox\"]\n"
    );
    build_image(IMAGE, &containerfile, folder.path()).unwrap();
    folder
}
