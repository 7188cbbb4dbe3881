//! Requests and responses across the chain.

use axum::Router;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode};
use axum::routing::any;
use serde_json::{Value, json};

use crate::{NOBODY, Phrase, auditor, auditor_with, chain, client, get, serve, wire::status_of, within};

#[tokio::test]
async fn the_model_gets_the_request_as_it_was_sent() {
    let second = auditor(serve(example_model::router()).await, &[]).await;
    let first = auditor(second, &[("LUCID_AUDITOR_ID", "first")]).await;
    let request = client()
        .put(format!("http://{first}/v1/a%20b?x=1&x=2&y"))
        .header("host", "model.shop.svc:5000")
        .header("authorization", "Bearer a")
        .header("x-many", "one")
        .header("x-many", "two")
        .header("accept-encoding", "gzip")
        .header("connection", "x-mine, x-forwarded-for")
        .header("x-mine", "1")
        .header("via", "1.0 proxy")
        .body("hello");
    let asked: Value = request.send().await.unwrap().json().await.unwrap();
    assert_eq!(asked["method"], "PUT");
    assert_eq!(asked["uri"], "/v1/a%20b?x=1&x=2&y");
    assert_eq!(asked["body"], "hello");
    let headers = &asked["headers"];
    assert_eq!(headers["host"], json!(["model.shop.svc:5000"]));
    assert_eq!(headers["authorization"], json!(["Bearer a"]));
    assert_eq!(headers["x-many"], json!(["one", "two"]));
    assert_eq!(headers["accept-encoding"], json!(["identity"]), "the answer is to be readable");
    assert_eq!(headers["content-length"], json!(["5"]));
    assert_eq!(headers["x-forwarded-for"], json!(["127.0.0.1"]), "nobody can have it removed");
    let way = json!(["1.0 proxy", "1.1 first", "1.1 lucid-auditor"]);
    assert_eq!(headers["via"], way, "each auditor, in the order of the chain");
    assert_eq!(headers["x-mine"], Value::Null, "named by Connection, it is for the first neighbour alone");
}

#[tokio::test]
async fn connection_cannot_hide_headers_from_later_auditors() {
    let model = serve(example_model::router()).await;
    let first = chain(model, &[("LUCID_AUDITOR_ID", "a")]).await;
    let headers = async |name: &str, connection: [&str; 2]| {
        let request = client().post(format!("http://{first}/")).body("hello").header(name, "1.1 proxy");
        let request =
            connection.into_iter().fold(request, |request, value| request.header("connection", value));
        let asked: Value = request.send().await.unwrap().json().await.unwrap();
        asked["headers"].clone()
    };
    for (name, expected) in [
        ("content-type", json!(["1.1 proxy"])),
        ("content-language", json!(["1.1 proxy"])),
        ("content-disposition", json!(["1.1 proxy"])),
        ("lucid-route", json!(["1.1 proxy"])),
        ("lucid-anything", json!(["1.1 proxy"])),
        ("traceparent", json!(["1.1 proxy"])),
        ("tracestate", json!(["1.1 proxy"])),
        ("via", json!(["1.1 proxy", "1.1 a", "1.1 a"])),
        ("x-forwarded-for", json!(["1.1 proxy"])),
        ("x-mine", Value::Null),
    ] {
        let other = name.to_uppercase();
        for connection in [["close", name], [&format!("x-other, {other} ,close"), "x-another"]] {
            assert_eq!(headers(name, connection).await[name], expected, "{connection:?}");
        }
    }
    for name in ["host", "content-length", "transfer-encoding"] {
        let headers = headers("x-other", [name, "close"]).await;
        assert_eq!(headers["host"], json!([first.to_string()]), "{name}");
        assert_eq!(headers["content-length"], json!(["5"]), "{name}");
    }
}

/// A form is judged by the second auditor, whatever the request says about the first hop.
#[tokio::test]
async fn forms_are_decoded_by_every_auditor() {
    let second = auditor(serve(example_model::router()).await, &[]).await;
    let first = auditor_with(second, &[], |auditor| auditor.judge(Phrase("something else"))).await;
    let form = "application/x-www-form-urlencoded";
    for head in [
        "Content-Type: FORM\r\nConnection: content-type",
        "Content-Type: FORM\r\nConnection: close\r\nConnection: x, Content-TYPE , y",
        "content-type: FORM; charset=utf-8; a=\u{e9}\r\nConnection: CONTENT-TYPE",
        "Content-Type: Application/X-WWW-Form-URLEncoded\r\nConnection: close",
    ] {
        let body = "prompt=the+%73ecret%20w%6frd";
        let head = head.replace("FORM", form);
        let length = body.len();
        let request =
            format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n{head}\r\n\r\n{body}");
        let status = status_of(first, &request).await;
        assert_eq!(status, "403", "{head}");
    }
    for head in [
        "Content-Type: application/json\r\nContent-Type: FORM",
        "Content-Type: FORM\r\nContent-Type: application/json",
        "Content-Type: text/plain, FORM",
        "Content-Type: text/plain; a=\"b,c\", FORM",
        "Content-Type: text/plain;\r\n FORM",
    ] {
        let head = head.replace("FORM", form);
        let request = format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n{head}\r\n\r\nhello");
        assert_eq!(status_of(first, &request).await, "400", "{head}");
    }
}

#[tokio::test]
async fn the_callers_address_is_forwarded_once() {
    let first = chain(serve(example_model::router()).await, &[]).await;
    let asked: Value = get(first).await.json().await.unwrap();
    assert_eq!(asked["headers"]["x-forwarded-for"], json!(["127.0.0.1"]));
}

#[tokio::test]
async fn the_caller_gets_status_and_headers_of_the_model() {
    let model = Router::new().fallback(any(|| async {
        let mut headers = HeaderMap::new();
        for cookie in ["a=1", "b=2"] {
            headers.append("set-cookie", HeaderValue::from_static(cookie));
        }
        headers.insert("x-model", HeaderValue::from_static("yes"));
        (StatusCode::IM_A_TEAPOT, headers, "short and stout")
    }));
    let first = chain(serve(model).await, &[]).await;
    let answer = get(first).await;
    assert_eq!(answer.status().as_u16(), 418);
    let cookies: Vec<_> =
        answer.headers().get_all("set-cookie").iter().map(|value| value.to_str().unwrap()).collect();
    assert_eq!(cookies, ["a=1", "b=2"]);
    assert_eq!(answer.headers()["x-model"], "yes");
    assert_eq!(answer.headers()["content-length"], "15");
    assert_eq!(answer.text().await.unwrap(), "short and stout");
}

#[tokio::test]
async fn responses_without_a_body_are_forwarded_without_one() {
    let first = chain(serve(example_model::router()).await, &[]).await;
    let answer = client().head(format!("http://{first}/anything")).send().await.unwrap();
    assert_eq!(answer.status(), 200);
    assert!(answer.headers().contains_key("content-length"));
    assert_eq!(answer.bytes().await.unwrap().len(), 0);
}

#[tokio::test]
async fn only_probes_of_the_model_reach_its_health_path() {
    let variables = |paths| [("LUCID_AUDITOR_PORT", "8090"), ("LUCID_PROBE_PATHS", paths)];
    let without_model = auditor(NOBODY.parse().unwrap(), &variables("/health,/ready?deep=1")).await;
    for (host, method, path, status) in [
        ("10.0.0.7:8090", Method::GET, "/health", 200),
        ("model", Method::GET, "/health", 200),
        ("10.0.0.7:5000", Method::HEAD, "/health", 200),
        ("10.0.0.7:5000", Method::GET, "/health?deep=1", 200),
        // The model is not up, and its probe says so.
        ("10.0.0.7:5000", Method::GET, "/health", 502),
        ("[fd00::7]:5000", Method::GET, "/health", 502),
    ] {
        let request = client().request(method.clone(), format!("http://{without_model}{path}"));
        let answer = within(request.header("host", host).send()).await.unwrap();
        assert_eq!(answer.status(), status, "{host} {method} {path}");
        if (status, method) == (200, Method::GET) {
            assert_eq!(answer.text().await.unwrap(), r#"{"status":"ok"}"#);
        }
    }
    let other = auditor(NOBODY.parse().unwrap(), &variables("/ready")).await;
    let answer = client().get(format!("http://{other}/health")).header("host", "10.0.0.7:5000").send();
    assert_eq!(within(answer).await.unwrap().status(), 200, "not a path of a probe");
}

#[tokio::test]
async fn requests_at_the_paths_of_probes_are_judged() {
    let probes = [("LUCID_AUDITOR_PORT", "8090"), ("LUCID_PROBE_PATHS", "/health,/v1/chat")];
    let first = chain(serve(example_model::router()).await, &probes).await;
    for (method, path) in [
        (Method::POST, "/health"),
        (Method::PUT, "/v1/chat"),
        (Method::GET, "/v1/chat"),
        (Method::GET, "/v1/chat?x=1"),
        (Method::GET, "/v1/chat/more"),
        (Method::GET, "/v1/%63hat"),
    ] {
        let ask = |text: &'static str| {
            let request = client().request(method.clone(), format!("http://{first}{path}"));
            request.header("host", "10.0.0.7:5000").body(text).send()
        };
        assert_eq!(ask("the secret word").await.unwrap().status(), 403, "{method} {path}");
        let passed = ask("hello").await.unwrap();
        // The example model takes only GET at /health.
        if path == "/health" {
            assert_eq!(passed.status(), 405, "the model's answer");
        } else {
            let passed: Value = passed.json().await.unwrap();
            assert_eq!((&passed["uri"], &passed["body"]), (&json!(path), &json!("hello")), "{method} {path}");
        }
    }
}

#[tokio::test]
async fn unreachable_next_hops_are_named() {
    let first = auditor(NOBODY.parse().unwrap(), &[("LUCID_AUDITOR_ID", "lucid-injection-auditor")]).await;
    let answer = get(first).await;
    assert_eq!(answer.status(), 502);
    let told: Value = answer.json().await.unwrap();
    assert_eq!(told["error"]["auditor"], "lucid-injection-auditor");
    assert!(told["error"]["message"].as_str().unwrap().contains(NOBODY), "{told}");
}
