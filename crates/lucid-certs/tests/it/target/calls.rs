//! Calls by the API server, verified with a bundle written by a target.

use std::{net::IpAddr, sync::Arc, time::SystemTime};

use kube::{
    Api, Client,
    api::{ApiResource, ListParams, PostParams},
    core::{DynamicObject, GroupVersionKind},
};
use lucid_certs::{ServerTls, ServingNames, TrustBundle};
use lucid_e2e::{ClusterExt as _, can_use_namespaces, eventually};
use lucid_testbed::Cluster;
use rustls::{ServerConfig, version::TLS13};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader},
    net::TcpListener,
};
use tokio_rustls::TlsAcceptor;

use super::subject::Subject;
use crate::common::{
    handshake::{client as trusting, connect, resolver},
    objects::Kind,
};

const NAMESPACE: &str = "lucid-system";
const SERVICE: &str = "lucid-operator";

#[tokio::test(flavor = "multi_thread")]
async fn callers_accept_the_server_with_the_bundle() {
    let by_service = can_use_namespaces();
    let builder = Cluster::builder();
    let builder = if by_service { builder.webhooks_by_service() } else { builder };
    let cluster = builder.start().await.unwrap();
    let client = &cluster.client();
    let server = Server::start(cluster.host_address()).await;

    for kind in [Kind::Mutating, Kind::Validating] {
        an_admission_webhook_is_called(client, &server, kind).await;
    }
    a_conversion_webhook_is_called(client, &server).await;
    a_client_that_reads_the_config_map_connects(client, &server).await;
    if by_service {
        cluster.expose_service(NAMESPACE, SERVICE, &[server.port]).await.unwrap();
        an_aggregated_api_server_is_called(client, &server).await;
    }
}

async fn an_admission_webhook_is_called(client: &Client, server: &Server, kind: Kind) {
    let label = format!("{kind:?}").to_lowercase();
    let call = |webhook: &mut Value| {
        webhook["clientConfig"]["url"] = json!(server.url);
        webhook["failurePolicy"] = json!("Fail");
        webhook["rules"] = json!([{
            "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"],
        }]);
        webhook["objectSelector"] = json!({ "matchLabels": { "checked": label } });
    };
    let change =
        |manifest: &mut Value| manifest["webhooks"].as_array_mut().unwrap().iter_mut().for_each(call);
    let subject = Subject::create_changed(client, kind, "called", change).await;
    let config_map = json!({ "metadata": { "generateName": "checked-", "labels": { "checked": label } } });
    let config_map: DynamicObject = serde_json::from_value(config_map).unwrap();
    let config_maps = api(client, "", "ConfigMap");
    let params = PostParams::default();
    let create = || config_maps.create(&params, &config_map);

    let refused = eventually("refused call", async || create().await.map_or_else(Ok, Err)).await;
    assert!(refused.to_string().contains("certificate signed by unknown authority"), "{refused}");
    subject.heal(&server.bundle).await;
    eventually("call", async || create().await).await;
}

async fn a_conversion_webhook_is_called(client: &Client, server: &Server) {
    // A placeholder as in charts: the definition is not even served.
    let config = json!({ "url": server.url, "caBundle": "Cg==" });
    let change = |crd: &mut Value| crd["spec"]["conversion"]["webhook"]["clientConfig"] = config;
    let subject = Subject::create_changed(client, Kind::Conversion, "widget", change).await;
    let state = |condition: &Value| (condition["status"].clone(), condition["reason"].clone());
    let invalid = (json!("False"), json!("InvalidCABundle"));
    condition(&subject, "Established", |condition| state(condition) == invalid).await;
    subject.heal(&server.bundle).await;
    condition(&subject, "Established", |condition| condition["status"] == "True").await;
    let widget = json!({ "apiVersion": "example.com/v1", "kind": "widget", "metadata": { "name": "one" } });
    let widget: DynamicObject = serde_json::from_value(widget).unwrap();
    let widgets = api(client, "example.com", "widget");
    eventually("creation", async || widgets.create(&PostParams::default(), &widget).await).await;
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("example.com", "v2", "widget"));
    let converted: Api<DynamicObject> = Api::namespaced_with(client.clone(), "default", &resource);
    let one = eventually("conversion", async || converted.get("one").await).await;
    assert_eq!(one.data["converted"], true);

    // Without a bundle, the root CAs of the host are used, which do not include ours.
    subject.overwrite_field(None).await.unwrap();
    let refused =
        eventually("refused conversion", async || converted.get("one").await.map_or_else(Ok, Err)).await;
    assert!(refused.to_string().contains("certificate signed by unknown authority"), "{refused}");
    subject.heal(&server.bundle).await;
    eventually("conversion", async || converted.get("one").await).await;
}

async fn a_client_that_reads_the_config_map_connects(client: &Client, server: &Server) {
    let subject = Subject::create(client, Kind::ConfigMap, "roots").await;
    subject.heal(&server.bundle).await;
    let object = subject.object().await;
    let text = object.pointer(subject.pointer()).unwrap().as_str().unwrap();
    let roots = TrustBundle::from_pem(text.as_bytes()).unwrap();
    connect(&trusting(&roots, &TLS13), &server.config, &format!("{SERVICE}.{NAMESPACE}.svc")).unwrap();
}

async fn an_aggregated_api_server_is_called(client: &Client, server: &Server) {
    let service = json!({ "namespace": NAMESPACE, "name": SERVICE });
    let change = |manifest: &mut Value| manifest["spec"]["service"] = service;
    let subject = Subject::create_changed(client, Kind::ApiService, "aggregated", change).await;
    let failed = condition(&subject, "Available", |it| it["reason"] == "FailedDiscoveryCheck").await;
    let message = failed["message"].as_str().unwrap();
    assert!(message.contains("certificate signed by unknown authority"), "{message}");

    subject.heal(&server.bundle).await;
    condition(&subject, "Available", |condition| condition["status"] == "True").await;
    let answers = api(client, "aggregated.example.com", "Answer");
    eventually("list", async || answers.list(&ListParams::default()).await.map(drop)).await;
}

/// Waits until a condition of the object's status is as expected, and returns it.
async fn condition(subject: &Subject, kind: &str, is_expected: impl Fn(&Value) -> bool) -> Value {
    eventually(kind, async || {
        let conditions = subject.object().await["status"]["conditions"].take();
        let found = conditions.as_array().and_then(|all| all.iter().find(|it| it["type"] == kind));
        found.filter(|condition| is_expected(condition)).cloned().ok_or(conditions.clone())
    })
    .await
}

fn api(client: &Client, group: &str, kind: &str) -> Api<DynamicObject> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, "v1", kind));
    Api::namespaced_with(client.clone(), "default", &resource)
}

/// Responds to admission reviews, conversion reviews and requests to an aggregated API server.
struct Server {
    port: u16,
    url: String,
    bundle: TrustBundle,
    config: Arc<ServerConfig>,
}

impl Server {
    async fn start(address: IpAddr) -> Self {
        let names = ServingNames::for_services(NAMESPACE, &[SERVICE]).unwrap();
        let names = names.with_host(&address.to_string()).unwrap();
        let now = SystemTime::now();
        let authority = lucid_certs::CertificateAuthority::generate(&names, now).unwrap();
        let certificate = authority.issue(&names, now).unwrap();
        let config = ServerTls::new(resolver(&certificate)).with_alpn(["http/1.1"]).build().unwrap();
        let config = Arc::new(config);

        let listener = TcpListener::bind((address, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let acceptor = TlsAcceptor::from(Arc::clone(&config));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let acceptor = acceptor.clone();
                tokio::spawn(async move {
                    // Callers without the bundle abort the handshake.
                    if let Ok(stream) = acceptor.accept(stream).await {
                        drop(converse(stream).await);
                    }
                });
            }
        });
        // A second CA, as during a rotation.
        let bundle = authority.trust_bundle().merge(&super::subject::authority().trust_bundle());
        Self { port, url: format!("https://{address}:{port}/call"), bundle, config }
    }
}

/// Minimal HTTP/1.1 server for the requests of the API server.
async fn converse(stream: impl AsyncRead + AsyncWrite + Unpin) -> std::io::Result<()> {
    let mut stream = BufReader::new(stream);
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if stream.read_line(&mut head).await? == 0 {
                return Ok(());
            }
        }
        let length =
            head.lines().find_map(|line| line.to_lowercase().strip_prefix("content-length: ")?.parse().ok());
        let mut body = vec![0; length.unwrap_or(0)];
        stream.read_exact(&mut body).await?;
        let path = head.split_whitespace().nth(1).unwrap_or_default();
        let answer = answer(path, &serde_json::from_slice(&body).unwrap_or_default()).to_string();
        let head = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
            answer.len()
        );
        stream.write_all(head.as_bytes()).await?;
        stream.write_all(answer.as_bytes()).await?;
        stream.flush().await?;
    }
}

fn answer(path: &str, review: &Value) -> Value {
    let uid = &review["request"]["uid"];
    let response = match review["kind"].as_str() {
        Some("AdmissionReview") => json!({ "uid": uid, "allowed": true }),
        Some("ConversionReview") => {
            let convert = |object: &Value| {
                let mut object = object.clone();
                object["apiVersion"] = review["request"]["desiredAPIVersion"].clone();
                object["converted"] = json!(true);
                object
            };
            let objects: Vec<_> =
                review["request"]["objects"].as_array().unwrap().iter().map(convert).collect();
            json!({ "uid": uid, "result": { "status": "Success" }, "convertedObjects": objects })
        }
        _ if path.ends_with("answers") => {
            return json!({ "apiVersion": "v1", "kind": "List", "metadata": {}, "items": [] });
        }
        _ => {
            return json!({ "apiVersion": "v1", "kind": "APIResourceList", "groupVersion": "v1", "resources": [] });
        }
    };
    json!({ "apiVersion": review["apiVersion"], "kind": review["kind"], "response": response })
}
