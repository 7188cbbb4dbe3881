//! Services of a router next to its webhooks, and access to both.

use std::convert::Infallible;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use lucid_certs::{ClientCertificates, ServerTls};
use lucid_webhook::{AdmissionRequest, AdmissionResponse, Router, Webhook};
use serde_json::json;
use tower::{ServiceExt, service_fn};

use crate::common::things;
use crate::handlers::review;
use crate::server_under_test::TestServer;
use crate::wire::{Authority, Http1, Identity};

async fn tell(request: Request<Bytes>) -> Result<Response<Full<Bytes>>, Infallible> {
    let text = format!("{} {} {}", request.method(), request.uri(), request.body().len());
    let mut response = Response::new(Full::new(text.into()));
    *response.status_mut() = StatusCode::IM_A_TEAPOT;
    Ok(response)
}

async fn allow(_: AdmissionRequest) -> AdmissionResponse {
    AdmissionResponse::allow()
}

fn router() -> Router {
    Router::new()
        .webhook("/allow", Webhook::validating("allow.example.com", allow))
        .convert("/convert", things())
        .service("/tell", service_fn(tell))
}

async fn ask(method: Method, uri: &str, body: Vec<u8>) -> (StatusCode, String) {
    let request = Request::builder().method(method).uri(uri).body(Full::new(Bytes::from(body))).unwrap();
    let response = router().oneshot(request).await.unwrap();
    let (head, body) = response.into_parts();
    (head.status, String::from_utf8(body.collect().await.unwrap().to_bytes().into()).unwrap())
}

#[tokio::test]
async fn a_service_gets_every_method_and_limited_bodies() {
    for (method, uri, length, text) in [
        (Method::GET, "/tell", 0, "GET /tell 0"),
        (Method::POST, "/tell?a=b%20c", 3, "POST /tell?a=b%20c 3"),
        (Method::DELETE, "/tell", 64 * 1024, "DELETE /tell 65536"),
    ] {
        let (status, said) = ask(method, uri, vec![b'x'; length]).await;
        assert_eq!((status, said.as_str()), (StatusCode::IM_A_TEAPOT, text));
    }
    assert_eq!(ask(Method::POST, "/tell", vec![b'x'; 64 * 1024 + 1]).await.0, StatusCode::PAYLOAD_TOO_LARGE);
    for uri in ["/tell/", "/tell/more", "/Tell", "//tell"] {
        assert_eq!(ask(Method::GET, uri, Vec::new()).await.0, StatusCode::NOT_FOUND, "{uri}");
    }
    assert_eq!(router().registrations().count(), 1, "a service is registered");
}

#[tokio::test]
async fn conflicting_services_fail_every_request() {
    let router = router().service("/allow", service_fn(tell)).service("/tell", service_fn(tell));
    for path in ["/allow", "/tell"] {
        let request = Request::get(path).body(Full::<Bytes>::default()).unwrap();
        let response = router.clone().oneshot(request).await.unwrap();
        assert_eq!(response.status(), StatusCode::INTERNAL_SERVER_ERROR);
    }
}

async fn status(server: &TestServer, identity: Option<&Identity>, path: &str) -> Option<u16> {
    let config = server.authority.client_config_of("http/1.1", rustls::ALL_VERSIONS, identity);
    let mut client = Http1::connect_as(server.address, config).await.ok()?;
    let review = review(json!({})).to_string();
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        review.len()
    );
    client.send(head + &review).await.ok()?;
    Some(client.answer().await.ok()?.status)
}

#[tokio::test]
async fn client_certificates_are_required_except_for_conversions() {
    let (server_ca, client_ca) = (Authority::new(), Authority::new());
    let clients = ClientCertificates::optional(client_ca.pem.as_bytes()).unwrap();
    let tls = ServerTls::new(server_ca.localhost()).with_clients(&clients).build().unwrap();
    let router = router().with_client_certificates();
    let server = TestServer::with_tls(server_ca, Some(tls.into()), router, |it| it).await;

    let known = client_ca.client("kube-apiserver", &[]);
    let stranger = Authority::new().client("kube-apiserver", &[]);
    for (path, with, without) in
        [("/allow", 200, 403), ("/convert", 400, 400), ("/tell", 418, 418), ("/none", 404, 404)]
    {
        assert_eq!(status(&server, Some(&known), path).await, Some(with), "{path}");
        assert_eq!(status(&server, None, path).await, Some(without), "{path}");
        assert_eq!(status(&server, Some(&stranger), path).await, None, "{path}");
    }
}
