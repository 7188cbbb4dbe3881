//! Client authentication.

use lucid_e2e::Operator;
use lucid_testbed::Cluster;

use super::{Authority, Pair, logged};
use crate::common::{
    GUARDRAILS, assert_injected, cluster, create, eventually_holds, operator, prepare, secured,
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
    let answer = request.send().await.ok()?;
    Some(answer.status().as_u16())
}

#[tokio::test]
async fn only_clients_with_a_certificate_of_the_authorities_in_the_file_are_let_in() {
    let cluster = cluster().await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("clients.crt");
    let [first, second] = ["first", "second"].map(Authority::new);
    std::fs::write(&file, &first.certificate).unwrap();
    let path = file.to_str().unwrap().to_owned();
    let settings = |operator: lucid_e2e::OperatorBuilder| {
        operator.env("LUCID_CLIENT_CA", path).env("LUCID_CLIENT_NAMES", "kube-apiserver,other")
    };
    let operator = operator(&cluster, settings).await;
    let good = first.issue("kube-apiserver", Vec::new());
    let is_in = |status| status == Some(405);
    assert!(is_in(call(&operator, Some(&good)).await));
    assert_eq!(call(&operator, None).await, Some(403), "no certificate is let in");
    for (what, client) in [
        ("another name", first.issue("somebody", Vec::new())),
        ("another authority", second.issue("kube-apiserver", Vec::new())),
    ] {
        assert_eq!(call(&operator, Some(&client)).await, None, "{what} is let in");
    }

    // A replaced authority applies at once, and an unreadable file changes nothing.
    let new = second.issue("kube-apiserver", Vec::new());
    std::fs::write(&file, &second.certificate).unwrap();
    eventually_holds("the new authority does not count", async || is_in(call(&operator, Some(&new)).await))
        .await;
    assert_eq!(call(&operator, Some(&good)).await, None, "the authority before still counts");
    std::fs::write(&file, "no certificate").unwrap();
    logged(&operator, "clients.crt").await;
    assert!(is_in(call(&operator, Some(&new)).await));
}

#[tokio::test]
async fn an_api_server_with_its_certificate_is_answered_and_others_have_only_what_needs_none() {
    let cluster = prepare(Cluster::builder().webhook_client("kube-apiserver").start().await.unwrap()).await;
    let token = cluster.folder().join("audit-token");
    std::fs::write(&token, "a-token-of-tests").unwrap();
    let authority = cluster.authority_path().to_str().unwrap().to_owned();
    let operator = operator(&cluster, |operator| {
        operator
            .env("LUCID_CLIENT_CA", authority)
            .env("LUCID_CLIENT_NAMES", "kube-apiserver")
            .env("LUCID_AUDIT_TOKEN_FILE", token.to_str().unwrap())
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
#[tokio::test]
async fn the_page_has_the_configuration_that_api_servers_of_the_tests_run_with() {
    let cluster = Cluster::builder().webhook_client("kube-apiserver").start().await.unwrap();
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

#[tokio::test]
async fn an_api_server_without_a_certificate_is_refused_and_nothing_is_let_through() {
    let cluster = cluster().await;
    let authority = cluster.authority_path().to_str().unwrap().to_owned();
    let _operator = operator(&cluster, |operator| operator.env("LUCID_CLIENT_CA", authority)).await;
    let refused = create(&cluster, "shop", &secured("web")).await;
    assert!(refused.refusal().contains("failed calling webhook"), "{refused:?}");
}

#[tokio::test]
async fn versions_of_tls_that_are_too_old_are_not_spoken() {
    let cluster = cluster().await;
    for (minimum, is_spoken) in [("1.2", true), ("1.3", false)] {
        let operator = operator(&cluster, |operator| operator.env("LUCID_TLS_MIN_VERSION", minimum)).await;
        let client = reqwest::Client::builder().tls_danger_accept_invalid_certs(true).no_proxy();
        let client = client.tls_version_max(reqwest::tls::Version::TLS_1_2).build().unwrap();
        let answer = client.get(format!("{}/mutate", operator.url())).send().await;
        assert_eq!(answer.is_ok(), is_spoken, "with {minimum} at least: {answer:?}");
        assert_injected(&cluster, &format!("web-{}", minimum.replace('.', "-")), GUARDRAILS).await;
    }
}
