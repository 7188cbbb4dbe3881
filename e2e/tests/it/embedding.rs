//! The operator that `template/` generates, with the permissions of its manifest.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::Duration;

use http::StatusCode;
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::core::v1::{Endpoints, Pod, Secret};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::PostParams;
use kube::{Api, ResourceExt};
use lucid_e2e::{
    ClusterExt as _, Process, binary, call, can_use_namespaces, eventually,
    page::{Page, Shell, root},
    template::{generate, render},
};
use lucid_testbed::Cluster;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::cli::{kubeconfig_for, kubectl};
use crate::common::{create, dry_run, finalize_namespaces, pod};
use crate::traffic::Traffic;

#[test]
fn users_of_the_template_change_at_most_40_lines() {
    let lines = include_str!("../../../template/src/webhooks.rs").lines();
    let own = lines.filter(|line| !line.is_empty() && !line.starts_with("use ") && !line.starts_with("//!"));
    assert!(own.count() <= 40);
}

#[test]
fn the_template_depends_on_the_versions_of_the_workspace() {
    let [workspace, template] = ["Cargo.toml", "template/Cargo.toml.liquid"].map(|path| {
        let text = std::fs::read_to_string(root().join(path)).unwrap();
        let entries = text.lines().filter_map(|line| line.split_once(" = "));
        let version = |value: &str| value.split('"').nth(1).unwrap_or_default().to_owned();
        entries.map(|(name, value)| (name.to_owned(), version(value))).collect::<BTreeMap<_, _>>()
    });
    for name in [
        "k8s-openapi",
        "kube",
        "schemars",
        "serde",
        "serde_json",
        "serde_yaml",
        "tokio",
        "tracing-subscriber",
    ] {
        assert_eq!(template[name], workspace[name], "{name}");
    }
    assert_eq!(template["rust-version"], workspace["rust-version"]);
}

const USER: &str = "system:serviceaccount:tidy-system:tidy";

/// A cluster with the manifest applied, and the namespaces `shop`, which enables the webhook, and `other`.
struct Site {
    cluster: Cluster,
    /// Address of the operator, on the machine of the API server, which stands for the node of its Deployment.
    address: String,
    log: PathBuf,
}

impl Site {
    async fn prepare() -> Self {
        Self::with(|cluster| {
            let manifest = render(include_str!("../../../template/deploy.yaml"));
            kubectl(cluster, &["apply", "--server-side", "-f", "-"], &manifest);
            kubectl(cluster, &["label", "namespace", "shop", "tidy.example.com/enabled=true"], "");
        })
        .await
    }

    /// Creates a site in which `install` applies the manifest and enables the webhook for `shop`.
    async fn with(install: impl FnOnce(&Cluster)) -> Self {
        let cluster = Cluster::builder().webhooks_by_service().start().await.unwrap();
        cluster.create_namespace("shop", &[]).await.unwrap();
        cluster.create_namespace("other", &[]).await.unwrap();
        install(&cluster);
        let address = cluster.server().parse::<http::Uri>().unwrap().host().unwrap().to_owned();
        let slice: EndpointSlice = serde_json::from_value(json!({
            "metadata": {"name": "tidy", "labels": {"kubernetes.io/service-name": "tidy"}}, "addressType": "IPv4",
            "ports": [{"port": 8443}], "endpoints": [{"addresses": [address], "conditions": {"ready": true}}],
        }))
        .unwrap();
        let slices = Api::<EndpointSlice>::namespaced(cluster.client(), "tidy-system");
        slices.create(&PostParams::default(), &slice).await.unwrap();
        // API servers before 1.34 read no slices.
        let endpoints: Endpoints = serde_json::from_value(json!({
            "metadata": {"name": "tidy"}, "subsets": [{"addresses": [{"ip": address}], "ports": [{"port": 8443}]}],
        }))
        .unwrap();
        let all = Api::<Endpoints>::namespaced(cluster.client(), "tidy-system");
        all.create(&PostParams::default(), &endpoints).await.unwrap();
        let log = cluster.folder().join("tidy.log");
        Self { cluster, address, log }
    }

    fn start(&self) -> Process {
        let mut command = self.cluster.command(generate().unwrap());
        command.env("KUBECONFIG", kubeconfig_for(&self.cluster, USER));
        Process::start("tidy", command, self.log.clone()).unwrap()
    }

    fn at(&self, port: u16) -> SocketAddr {
        format!("{}:{port}", self.address).parse().unwrap()
    }

    /// Waits until pods are changed: the API server applies the registration and its bundle with a delay.
    async fn until_it_is_called(&self) {
        eventually("it is ready", async || self.readiness().await == Some(StatusCode::OK)).await;
        eventually("the pod has an owner", async || {
            let pod =
                dry_run(&self.cluster, "shop", &plain("web")).await.stored().map_err(|it| it.to_string())?;
            owner(&pod)
        })
        .await;
    }

    async fn registration(&self) -> Option<MutatingWebhookConfiguration> {
        Api::all(self.cluster.client()).get_opt("tidy").await.unwrap()
    }

    async fn is_registered(&self) -> bool {
        self.registration().await.is_some_and(|it| it.webhooks.is_some_and(|webhooks| !webhooks.is_empty()))
    }

    async fn readiness(&self) -> Option<StatusCode> {
        call(&self.cluster, self.at(8080), "/readyz", None).await.ok().map(|response| response.status)
    }

    async fn has_authority(&self) -> bool {
        let secrets = Api::<Secret>::namespaced(self.cluster.client(), "tidy-system");
        secrets.get_metadata_opt("tidy-ca").await.unwrap().is_some()
    }

    async fn bundle(&self) -> String {
        let webhook = self.registration().await.unwrap().webhooks.unwrap().remove(0);
        String::from_utf8(webhook.client_config.ca_bundle.unwrap_or_default().0).unwrap()
    }

    async fn metric(&self, series: &str) -> Option<f64> {
        let metrics = reqwest::get(format!("http://{}/metrics", self.at(8080))).await.unwrap();
        let metrics = metrics.text().await.unwrap();
        let line = metrics.lines().find(|line| line.starts_with(series))?;
        line.rsplit(' ').next()?.parse().ok()
    }

    fn assert_nothing_went_wrong(&self) {
        let said = std::fs::read_to_string(&self.log).unwrap();
        assert!(!said.contains("forbidden") && !said.contains("ERROR"), "{said}");
    }
}

fn owner(pod: &Pod) -> Result<(), String> {
    let owner = pod.annotations().get("tidy.example.com/owner").map(String::as_str);
    if owner == Some("kubernetes-admin") { Ok(()) } else { Err(format!("{owner:?}")) }
}

fn plain(name: &str) -> Value {
    pod(name, json!({}), json!({}))
}

#[tokio::test]
async fn third_party_operators_change_pods_until_they_end() {
    if !can_use_namespaces() {
        return;
    }
    let site = Site::prepare().await;
    let operator = site.start();
    site.until_it_is_called().await;
    let other = create(&site.cluster, "other", &plain("web")).await.stored().unwrap();
    assert_eq!(other.metadata.annotations, None, "a namespace that is not enabled");

    assert!(site.has_authority().await);
    assert!(site.bundle().await.contains("BEGIN CERTIFICATE"));
    let changed =
        r#"admission_requests_total{webhook="owner.tidy.example.com",operation="CREATE",outcome="patched"}"#;
    assert!(site.metric(changed).await.is_some_and(|calls| calls >= 1.0));
    assert_eq!(site.metric("certificate_ready ").await, Some(1.0));

    // A terminating operator responds, but no longer writes.
    let ended = terminate(operator);
    eventually("it is no longer ready", async || {
        site.readiness().await == Some(StatusCode::SERVICE_UNAVAILABLE)
    })
    .await;
    // Like `kubectl delete deployment/tidy secret/tidy-ca`.
    let secrets = Api::<Secret>::namespaced(site.cluster.client(), "tidy-system");
    secrets.delete("tidy-ca", &Default::default()).await.unwrap();
    owner(&create(&site.cluster, "shop", &plain("last")).await.stored().unwrap()).unwrap();
    assert!(ended.await.unwrap().unwrap().success());
    assert!(!site.has_authority().await, "a terminating operator has made another authority");
    site.assert_nothing_went_wrong();
}

#[tokio::test]
async fn third_party_operators_validate_and_convert_a_resource() {
    if !can_use_namespaces() {
        return;
    }
    let site = Site::prepare().await;
    let operator = site.start();
    site.until_it_is_called().await;
    let team = |name: &str, members: &str| {
        let team = json!({"apiVersion": "tidy.example.com/v1", "kind": "Team", "metadata": {"name": name}, "spec": {"members": members}});
        team.to_string()
    };
    let apply = ["apply", "--server-side", "-f", "-"];
    let denied = async |what: &str, arguments: &[&str], input: &str| {
        eventually("kubectl is denied", async || {
            let output = site.cluster.kubectl(arguments, input).unwrap();
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            if said.contains(what) { Ok(()) } else { Err(said) }
        })
        .await;
    };
    // An emptied registration is restored. The operator may not create a deleted one.
    let empty =
        ["patch", "validatingwebhookconfiguration", "tidy", "--type=merge", "-p", r#"{"webhooks":null}"#];
    kubectl(&site.cluster, &empty, "");
    let problem =
        "The Team \"empty\" is invalid: spec.members: Required value: a team has at least one member";
    denied(problem, &["create", "--dry-run=server", "-f", "-"], &team("empty", " , ")).await;

    kubectl(&site.cluster, &apply, &team("blue", "alice, bob"));
    let stored = ["get", "teams.v2.tidy.example.com", "blue", "-o", "jsonpath={.spec.members}"];
    assert_eq!(site.cluster.kubectl(&stored, "").unwrap().stdout, br#"["alice","bob"]"#);
    let shown = ["get", "teams.v1.tidy.example.com", "blue", "-o", "jsonpath={.spec.members}"];
    assert_eq!(site.cluster.kubectl(&shown, "").unwrap().stdout, b"alice, bob");
    // Another field manager applies a part of the object.
    let labelled = json!({"apiVersion": "tidy.example.com/v2", "kind": "Team", "metadata": {"name": "blue", "labels": {"a": "b"}}});
    let second = ["apply", "--server-side", "--field-manager", "second", "-f", "-"];
    kubectl(&site.cluster, &second, &labelled.to_string());

    kubectl(&site.cluster, &["delete", "team", "blue"], "");
    site.assert_nothing_went_wrong();
    operator.kill();
}

#[tokio::test]
#[ignore = "takes more than a minute: as long as API servers are given to hear of another authority"]
async fn slow_third_party_operators_rotate_while_pods_are_created() {
    if !can_use_namespaces() {
        return;
    }
    let site = Site::prepare().await;
    let operator = site.start();
    site.until_it_is_called().await;
    let before = site.bundle().await;
    let swapped = "certificate_reloads_total{source=\"self-managed\",result=\"swapped\"";
    let swaps = site.metric(swapped).await.unwrap();

    let traffic = Traffic::start(&site.cluster, plain, owner);
    // Deleting the authority requests a new one.
    let secrets = Api::<Secret>::namespaced(site.cluster.client(), "tidy-system");
    secrets.delete("tidy-ca", &Default::default()).await.unwrap();
    eventually("another authority is published", async || {
        let bundle = site.bundle().await;
        bundle.contains(before.trim()) && bundle.len() > before.len()
    })
    .await;
    eventually("the certificate is replaced", async || {
        site.metric(swapped).await.is_some_and(|now| now > swaps)
    })
    .await;
    traffic.end().await;
    owner(&create(&site.cluster, "shop", &plain("last")).await.stored().unwrap()).unwrap();
    site.assert_nothing_went_wrong();
    operator.kill();
}

#[tokio::test]
async fn a_third_party_operator_without_its_port_registers_nothing() {
    if !can_use_namespaces() {
        return;
    }
    let site = Site::prepare().await;
    let mut command = site.cluster.command("busybox");
    command.args(["httpd", "-f", "-p", "8443"]);
    let other = Process::start("httpd", command, site.cluster.folder().join("httpd.log")).unwrap();
    eventually("it accepts connections", async || site.cluster.connect(site.at(8443)).await).await;
    let mut operator = site.start();
    let status = eventually("it ends", async || operator.ended()).await;
    assert!(!status.success(), "{status}");
    let said = operator.log_tail();
    assert!(said.contains("8443"), "{said}");
    assert!(!site.is_registered().await);
    other.kill();
}

/// Sends SIGTERM, and waits for the end.
fn terminate(operator: Process) -> tokio::task::JoinHandle<Option<ExitStatus>> {
    tokio::task::spawn_blocking(move || operator.terminate(Duration::from_secs(30)))
}

#[tokio::test]
async fn third_party_operators_install_and_uninstall_as_documented() {
    if !can_use_namespaces() {
        return;
    }
    let page = Page::read("template/README.md").unwrap();
    let scripts = page.blocks().into_iter().filter(|(language, _)| *language == "sh");
    let scripts: Vec<_> = scripts.map(|(_, script)| script).collect();
    let [install, remove] = scripts[..] else { panic!("{scripts:?}") };
    let kubectl = binary("kubectl").unwrap();
    let folder = TempDir::new().unwrap();
    let text = render(include_str!("../../../template/deploy.yaml"));
    std::fs::write(folder.path().join("deploy.yaml"), text).unwrap();
    let site = Site::with(|cluster| {
        let (success, printed) = Shell::new(cluster, &kubectl, folder.path()).run(&render(install)).unwrap();
        assert!(success, "{printed}");
    })
    .await;
    let operator = site.start();
    site.until_it_is_called().await;
    let may_create = ["auth", "can-i", "create", "mutatingwebhookconfigurations", "--as", USER];
    assert_eq!(site.cluster.kubectl(&may_create, "").unwrap().stdout, b"no\n");

    let (shell, script) = (Shell::new(&site.cluster, &kubectl, folder.path()), render(remove));
    let mut running = tokio::task::spawn_blocking(move || shell.run(&script));
    let (success, printed) = loop {
        tokio::select! {
            ran = &mut running => break ran.unwrap().unwrap(),
            () = tokio::time::sleep(Duration::from_millis(100)) => finalize_namespaces(&site.cluster).await,
        }
    };
    assert!(success, "{printed}");
    for script in scripts {
        page.ran(script);
    }
    // Its replicas end only now.
    assert!(terminate(operator).await.unwrap().unwrap().success());
    assert_eq!(site.registration().await, None);
    eventually("the pod is created", async || create(&site.cluster, "shop", &plain("web")).await.stored())
        .await;
}
