//! Client authentication.

use lucid_e2e::{ClusterExt as _, Operator, eventually};
use lucid_testbed::Cluster;

use super::{Authority, Pair, logged};
use crate::check::check;
use crate::common::{
    GUARDRAILS, assert_injected, authenticated_cluster, cluster, create, operator, secured, until_injected,
};

/// HTTP status of a call with this client certificate, or `None` if the handshake fails.
async fn call(operator: &Operator, client: Option<&Pair>) -> Option<u16> {
    ask(operator, client, "/mutate", None).await
}

async fn ask(operator: &Operator, client: Option<&Pair>, path: &str, token: Option<&str>) -> Option<u16> {
    let mut builder = reqwest::Client::builder().tls_danger_accept_invalid_certs(true).no_proxy();
    if let Some(pair) = client {
        let pem = format!("{}{}", pair.certificate, pair.key);
        builder = builder.identity(reqwest::Identity::from_pem(pem.as_bytes()).unwrap());
    }
    let mut request = builder.build().unwrap().get(format!("{}{path}", operator.url()));
    if let Some(token) = token {
        request = request.bearer_auth(token);
    }
    let response = request.send().await.ok()?;
    Some(response.status().as_u16())
}

/// In one cluster, one operator after the other.
#[tokio::test]
async fn connections_need_a_certificate_and_a_current_tls_version() {
    let cluster = cluster().await;
    an_api_server_without_a_certificate(&cluster).await;
    clients_need_a_certificate_of_the_authority(&cluster).await;
    old_versions_of_tls(&cluster).await;
}

async fn clients_need_a_certificate_of_the_authority(cluster: &Cluster) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("clients.crt");
    let [first, second] = ["first", "second"].map(Authority::new);
    std::fs::write(&file, &first.certificate).unwrap();
    let path = file.to_str().unwrap().to_owned();
    let settings = |operator: lucid_e2e::OperatorBuilder| {
        operator.env("LUCID_CLIENT_CA", path).flag("--client-names", "kube-apiserver,other")
    };
    let operator = operator(cluster, settings).await;
    let good = first.issue("kube-apiserver", Vec::new());
    let is_in = |status| status == Some(405);
    assert!(is_in(call(&operator, Some(&good)).await));
    assert_eq!(call(&operator, None).await, Some(403), "no certificate is let in");
    for (what, client) in [
        ("another name", first.issue("stranger", Vec::new())),
        ("another authority", second.issue("kube-apiserver", Vec::new())),
    ] {
        assert_eq!(call(&operator, Some(&client)).await, None, "{what} is let in");
    }

    // A replaced authority applies at once, and an unreadable file changes nothing.
    let new = second.issue("kube-apiserver", Vec::new());
    std::fs::write(&file, &second.certificate).unwrap();
    eventually("the new authority counts", async || is_in(call(&operator, Some(&new)).await)).await;
    assert_eq!(call(&operator, Some(&good)).await, None, "the authority before still counts");
    std::fs::write(&file, "no certificate").unwrap();
    logged(&operator, "clients.crt").await;
    assert!(is_in(call(&operator, Some(&new)).await));
}

#[tokio::test]
async fn callers_need_a_client_certificate_or_a_token() {
    let cluster = authenticated_cluster().await;
    the_page_has_this_configuration(&cluster);
    let token = cluster.folder().join("audit-token");
    std::fs::write(&token, "a-token-of-tests").unwrap();
    let authority = cluster.authority_path().to_str().unwrap().to_owned();
    let operator = operator(&cluster, |operator| {
        operator
            .env("LUCID_CLIENT_CA", authority)
            .flag("--client-names", "kube-apiserver")
            .flag("--audit-token-file", token.to_str().unwrap())
    })
    .await;
    assert_injected(&cluster, "web", GUARDRAILS).await;
    for (path, token, status) in [
        ("/mutate", None, 403),
        ("/validate", None, 403),
        ("/validate", Some("a-token-of-tests"), 403),
        ("/healthz", None, 200),
        ("/audit", None, 401),
        ("/audit", Some("another"), 401),
        ("/audit", Some("a-token-of-tests"), 200),
        ("/audit?namespace=shop&decision=allowed", Some("a-token-of-tests"), 200),
        ("/audit/ui", None, 200),
    ] {
        assert_eq!(ask(&operator, None, path, token).await, Some(status), "{path} {token:?}");
    }
    let checked = check(&cluster).await;
    checked.assert("callers", "", "ok", &["without a client certificate are rejected"]);
    checked.assert("certificate", "mutate.lucid.computing", "ok", &["1 of 1 servers"]);
    let open = reqwest::get(operator.admin_url("/audit")).await.unwrap();
    assert_eq!(open.status(), 404, "the token would travel in the clear");
}

/// Block of docs/authentication.md that begins with this comment.
fn block(first_line: &str) -> String {
    let page = include_str!("../../../../docs/authentication.md");
    let block = page.split("```yaml\n").find(|block| block.trim_start().starts_with(first_line)).unwrap();
    block.split("```").next().unwrap().to_owned()
}

/// The configuration on the page equals that of the tests above, except for paths.
fn the_page_has_this_configuration(cluster: &Cluster) {
    let files: Vec<String> = std::fs::read_dir(cluster.folder())
        .unwrap()
        .filter_map(|entry| std::fs::read_to_string(entry.unwrap().path()).ok())
        .collect();
    let parse = |text: &str| serde_yaml::from_str::<serde_yaml::Value>(text).unwrap();
    let admission = files.iter().find(|text| text.contains("kind: AdmissionConfiguration")).unwrap();
    let mut admission = parse(admission);
    let path = "/etc/kubernetes/admission/kubeconfig.yaml";
    for plugin in admission["plugins"].as_sequence_mut().unwrap() {
        plugin["configuration"]["kubeConfigFile"] = path.into();
    }
    assert_eq!(parse(&block("# /etc/kubernetes/admission/config.yaml")), admission);

    let kubeconfig = files.iter().find(|text| text.contains("name: '*'")).unwrap();
    let mut kubeconfig = parse(kubeconfig);
    let user = kubeconfig["users"][0]["user"].as_mapping_mut().unwrap();
    user.clear();
    user.insert("client-certificate".into(), "/etc/kubernetes/admission/client.crt".into());
    user.insert("client-key".into(), "/etc/kubernetes/admission/client.key".into());
    assert_eq!(parse(&block("# /etc/kubernetes/admission/kubeconfig.yaml")), kubeconfig);
}

async fn an_api_server_without_a_certificate(cluster: &Cluster) {
    let authority = cluster.authority_path().to_str().unwrap().to_owned();
    let _operator = operator(cluster, |operator| operator.env("LUCID_CLIENT_CA", authority)).await;
    let refused = create(cluster, "shop", &secured("web")).await;
    assert!(refused.refusal().contains("failed calling webhook"), "{refused:?}");
}

async fn old_versions_of_tls(cluster: &Cluster) {
    for (minimum, is_spoken) in [("1.2", true), ("1.3", false)] {
        let operator = operator(cluster, |operator| operator.flag("--tls-min-version", minimum)).await;
        let client = reqwest::Client::builder().tls_danger_accept_invalid_certs(true).no_proxy();
        let client = client.tls_version_max(reqwest::tls::Version::TLS_1_2).build().unwrap();
        let response = client.get(format!("{}/mutate", operator.url())).send().await;
        assert_eq!(response.is_ok(), is_spoken, "with {minimum} at least: {response:?}");
        until_injected(cluster, "shop", &format!("web-{}", minimum.replace('.', "-")), GUARDRAILS).await;
    }
}
