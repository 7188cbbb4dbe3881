//! `/audit` over HTTP.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use lucid_admission::Audit;
use lucid_audit::log::Options;
use lucid_audit::note::SigningKey;
use lucid_audit::{Decision, Recorder};
use lucid_e2e::eventually;
use lucid_webhook::{Router, TokenFile};
use serde_json::{Value, json};
use tempfile::TempDir;
use tower::ServiceExt;

const TOKEN: &str = "a-token-of-tests";
const ALERT_TOKEN: &str = "a-token-of-alerts";

struct Ring {
    recorder: Arc<Recorder>,
    router: Router,
    folder: TempDir,
}

struct Answer {
    status: StatusCode,
    headers: HeaderMap,
    body: String,
}

impl Answer {
    /// Uids of the decisions, and the whole page.
    fn page(&self) -> (Vec<u64>, Value) {
        let page = self.json();
        let uid = |decision: &Value| decision["uid"].as_str().unwrap().parse().unwrap();
        (page["decisions"].as_array().unwrap().iter().map(uid).collect(), page)
    }

    fn json(&self) -> Value {
        assert_eq!(self.status, StatusCode::OK, "{}", self.body);
        serde_json::from_str(&self.body).unwrap()
    }
}

fn router_of(token_file: Option<&Path>, recorder: &Arc<Recorder>) -> Router {
    let alert_token = token_file.map(|file| file.with_extension("alert"));
    if let Some(file) = &alert_token {
        std::fs::write(file, ALERT_TOKEN).unwrap();
    }
    let audit = Audit::new(Arc::clone(recorder), token_file.map(|file| TokenFile::open(file).unwrap()));
    let audit = audit.with_replica("replica-0".to_owned());
    let audit = match alert_token {
        Some(file) => audit.with_alert_token(TokenFile::open(file).unwrap()),
        None => audit,
    };
    audit.mount(Router::new())
}

async fn ask(router: &Router, method: Method, uri: &str, token: Option<&str>, body: &str) -> Answer {
    let mut request = Request::builder().method(method).uri(uri);
    if let Some(token) = token {
        request = request.header("authorization", format!("Bearer {token}"));
    }
    let request = request.body(Full::new(Bytes::copy_from_slice(body.as_bytes()))).unwrap();
    let (head, body) = router.clone().oneshot(request).await.unwrap().into_parts();
    let body = String::from_utf8(body.collect().await.unwrap().to_bytes().into()).unwrap();
    assert_eq!(head.headers["cache-control"], "no-store");
    assert_eq!(head.headers["x-content-type-options"], "nosniff");
    Answer { status: head.status, headers: head.headers, body }
}

impl Ring {
    fn new(capacity: usize) -> Self {
        Self::of(Recorder::new(capacity), tempfile::tempdir().unwrap())
    }

    fn with_log(options: Options) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let key = SigningKey::generate("lucid.computing/test/0").unwrap();
        let recorder = Recorder::new(10);
        recorder.open_log(&folder.path().join("log"), options.with_key(key)).unwrap();
        Self::of(recorder, folder)
    }

    fn of(recorder: Recorder, folder: TempDir) -> Self {
        let (recorder, token) = (Arc::new(recorder), folder.path().join("token"));
        std::fs::write(&token, TOKEN).unwrap();
        Self { router: router_of(Some(&token), &recorder), recorder, folder }
    }

    async fn record(&self, uids: impl IntoIterator<Item = u64>) {
        for uid in uids {
            let mut decision =
                Decision::new(if uid % 2 == 0 { "mutate" } else { "validate" }, uid.to_string());
            decision.namespace = format!("n{}", uid % 3);
            decision.allowed = uid % 4 != 0;
            self.recorder.record(decision).await.unwrap();
        }
    }

    async fn get(&self, uri: &str) -> Answer {
        ask(&self.router, Method::GET, uri, Some(TOKEN), "").await
    }

    async fn page(&self, uri: &str) -> (Vec<u64>, Value) {
        self.get(uri).await.page()
    }

    /// Returns the uids of all pages of `uri`; `after_page` runs after each of them.
    async fn all_pages(&self, uri: &str, mut after_page: impl AsyncFnMut(&[u64], &Answer)) -> Vec<u64> {
        let (mut seen, mut next) = (Vec::new(), uri.to_owned());
        loop {
            let answer = self.get(&next).await;
            let (uids, page) = answer.page();
            after_page(&uids, &answer).await;
            seen.extend(uids);
            let Some(cursor) = page["next"].as_str() else { return seen };
            next = format!("{uri}&cursor={cursor}");
        }
    }
}

#[tokio::test]
async fn only_the_page_is_readable_without_a_token() {
    let ring = Ring::new(10);
    ring.record(0..3).await;
    for (method, uri) in [
        (Method::GET, "/audit"),
        (Method::GET, "/audit?format=jsonl"),
        (Method::GET, "/audit?format=nonsense"),
        (Method::HEAD, "/audit"),
        (Method::GET, "/audit/status"),
        (Method::GET, "/audit/pods"),
        (Method::POST, "/audit/alerts"),
        (Method::POST, "/audit/cosignatures"),
        (Method::DELETE, "/audit"),
    ] {
        for token in [None, Some("another"), Some(&TOKEN[1..]), Some("")] {
            let answer = ask(&ring.router, method.clone(), uri, token, r#"{"drifts":[]}"#).await;
            assert_eq!(answer.status, StatusCode::UNAUTHORIZED, "{method} {uri} {token:?}");
            assert_eq!(answer.headers["www-authenticate"], "Bearer");
            assert!(!answer.body.contains("uid") && !answer.body.contains(TOKEN), "{}", answer.body);
        }
    }
    // The token is accepted in the header only.
    let uri = format!("/audit?token={TOKEN}");
    assert_eq!(ask(&ring.router, Method::GET, &uri, None, "").await.status, StatusCode::UNAUTHORIZED);
    let page = ask(&ring.router, Method::GET, "/audit/ui", None, "").await;
    assert_eq!(page.status, StatusCode::OK);

    let token = ring.folder.path().join("token");
    std::fs::write(&token, "another").unwrap();
    assert_eq!(ring.get("/audit").await.status, StatusCode::UNAUTHORIZED);
    assert_eq!(
        ask(&ring.router, Method::GET, "/audit", Some("another"), "").await.status,
        StatusCode::OK,
        "a new token counts at once"
    );
}

#[tokio::test]
async fn a_missing_token_configuration_is_explained() {
    let recorder = Arc::new(Recorder::new(10));
    recorder.record(Decision::new("validate", "secret")).await.unwrap();
    let router = router_of(None, &recorder);
    for (method, uri) in [
        (Method::GET, "/audit"),
        (Method::GET, "/audit/status"),
        (Method::GET, "/audit/ui"),
        (Method::POST, "/audit/alerts"),
    ] {
        for token in [None, Some(""), Some("secret")] {
            let answer = ask(&router, method.clone(), uri, token, "{}").await;
            assert_eq!(answer.status, StatusCode::FORBIDDEN, "{uri}");
            let purpose = if uri.ends_with("alerts") { "drift reports" } else { "decisions" };
            let expected = format!("no token for {purpose} is configured");
            assert!(answer.body.contains(&expected), "{}", answer.body);
        }
    }
}

#[tokio::test]
async fn reading_and_alerting_use_different_tokens() {
    let ring = Ring::new(10);
    for (method, uri, token, status) in [
        (Method::POST, "/audit/alerts", TOKEN, 401),
        (Method::POST, "/audit/alerts", ALERT_TOKEN, 204),
        (Method::GET, "/audit", ALERT_TOKEN, 401),
        (Method::GET, "/audit/status", ALERT_TOKEN, 401),
        (Method::GET, "/audit/pods", ALERT_TOKEN, 401),
        (Method::POST, "/audit/cosignatures", ALERT_TOKEN, 401),
        (Method::GET, "/audit", TOKEN, 200),
    ] {
        let answer = ask(&ring.router, method, uri, Some(token), r#"{"drifts":[]}"#).await;
        assert_eq!(answer.status, status, "{uri} {token}");
    }
}

#[tokio::test]
async fn running_pods_are_shown_by_programs_that_watch_them() {
    let ring = Ring::new(10);
    let answer = ring.get("/audit/pods").await;
    assert_eq!(answer.status, StatusCode::NOT_FOUND);
    assert!(answer.body.contains("does not watch running pods"), "{}", answer.body);

    let pods = json!({"watches": true, "counts": {"Missing": 1}, "pods": [], "more": 0});
    let token = TokenFile::open(ring.folder.path().join("token")).unwrap();
    let shown = pods.clone();
    let audit = Audit::new(ring.recorder, Some(token)).with_running_pods(move || shown.clone());
    let router = audit.mount(Router::new());
    let answer = ask(&router, Method::GET, "/audit/pods", Some(TOKEN), "").await;
    assert_eq!(serde_json::from_str::<Value>(&answer.body).unwrap(), pods);
    for (method, token, status) in
        [(Method::GET, None, 401), (Method::GET, Some("another"), 401), (Method::POST, Some(TOKEN), 405)]
    {
        assert_eq!(ask(&router, method, "/audit/pods", token, "").await.status, status);
    }
}

#[tokio::test]
async fn pages_are_stable_while_decisions_are_added() {
    let ring = Ring::new(100);
    ring.record(0..10).await;
    let mut late = 100..;
    let seen = ring.all_pages("/audit?limit=3", async |_, _| ring.record(late.next()).await).await;
    assert_eq!(seen, (0..10).rev().collect::<Vec<_>>());
}

#[tokio::test]
async fn the_oldest_first_cursor_continues_with_new_decisions() {
    let ring = Ring::new(5);
    let (uids, page) = ring.page("/audit?order=oldest").await;
    assert_eq!((uids, &page["missed"]), (Vec::new(), &json!(0)));
    let follow =
        |page: &Value| format!("/audit?order=oldest&limit=2&cursor={}", page["next"].as_str().unwrap());
    ring.record(0..3).await;
    let (uids, page) = ring.page(&follow(&page)).await;
    assert_eq!(uids, [0, 1]);
    let (uids, page) = ring.page(&follow(&page)).await;
    assert_eq!(uids, [2]);
    let (uids, page) = ring.page(&follow(&page)).await;
    assert_eq!((uids, &page["missed"]), (Vec::new(), &json!(0)));
    // Decisions 3 to 6 are gone at the next request.
    ring.record(3..12).await;
    let (uids, page) = ring.page(&follow(&page)).await;
    assert_eq!((uids, &page["missed"]), (vec![7, 8], &json!(4)));

    // The same from the newest page.
    let (_, page) = ring.page("/audit?limit=1").await;
    ring.record([12]).await;
    let latest = page["latest"].as_str().unwrap();
    assert_eq!(ring.page(&format!("/audit?order=oldest&cursor={latest}")).await.0, [12]);
}

#[tokio::test]
async fn pages_contain_only_filtered_decisions() {
    let ring = Ring::new(100);
    ring.record(0..24).await;
    for (filter, holds) in [
        ("namespace=n1", (|uid| uid % 3 == 1) as fn(u64) -> bool),
        ("decision=denied", |uid| uid % 4 == 0),
        ("decision=allowed&webhook=mutate", |uid| uid % 4 == 2),
        ("namespace=n0&decision=denied,would-deny&webhook=mutate", |uid| uid % 12 == 0),
        ("namespace=elsewhere", |_| false),
        ("until=2026-01-01T00:00:00Z", |_| false),
        ("since=2026-01-01T00:00:00Z", |_| true),
    ] {
        let uri = format!("/audit?{filter}&limit=2");
        let seen = ring.all_pages(&uri, async |uids, _| assert!(uids.len() <= 2)).await;
        assert_eq!(seen, (0..24).rev().filter(|uid| holds(*uid)).collect::<Vec<_>>(), "{filter}");
    }
    let (times, _) = ring.page("/audit?limit=2").await;
    assert_eq!(times.len(), 2);
}

#[tokio::test]
async fn json_lines_name_the_next_page_in_a_header() {
    let ring = Ring::new(10);
    ring.record(0..3).await;
    let first = ring.get("/audit?format=jsonl&limit=2&namespace=").await;
    assert_eq!(first.headers["content-type"], "application/jsonl");
    let lines: Vec<Decision> = first.body.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.iter().map(|decision| &*decision.uid).collect::<Vec<_>>(), ["2", "1"]);
    let link = first.headers["link"].to_str().unwrap();
    let next = link.strip_prefix('<').unwrap().strip_suffix(">; rel=\"next\"").unwrap();
    let last = ring.get(next).await;
    assert_eq!((last.body.lines().count(), last.headers.get("link")), (1, None));
    let request = Request::get("/audit")
        .header("authorization", format!("Bearer {TOKEN}"))
        .header("accept", "application/x-ndjson")
        .body(Full::<Bytes>::default())
        .unwrap();
    let answer = ring.router.clone().oneshot(request).await.unwrap();
    assert_eq!(answer.headers()["content-type"], "application/jsonl");
}

#[tokio::test]
async fn foreign_cursors_get_410_and_bad_queries_a_reason() {
    let ring = Ring::new(10);
    ring.record(0..2).await;
    for (uri, status, says) in [
        ("/audit?limit=0", StatusCode::BAD_REQUEST, "1 to 1000"),
        ("/audit?nothing=1", StatusCode::BAD_REQUEST, "unknown parameter"),
        ("/audit?cursor=0123456789abcdef-1", StatusCode::GONE, "another replica"),
    ] {
        let answer = ring.get(uri).await;
        assert_eq!(answer.status, status, "{uri}: {}", answer.body);
        assert!(answer.body.contains(says), "{uri}: {}", answer.body);
    }
    for (method, uri, allowed) in [
        (Method::POST, "/audit", "GET, HEAD"),
        (Method::PUT, "/audit/status", "GET, HEAD"),
        (Method::POST, "/audit/ui", "GET, HEAD"),
        (Method::GET, "/audit/alerts", "POST"),
        (Method::PUT, "/audit/cosignatures", "POST"),
    ] {
        let token = if uri == "/audit/alerts" { ALERT_TOKEN } else { TOKEN };
        let answer = ask(&ring.router, method, uri, Some(token), "").await;
        assert_eq!(answer.status, StatusCode::METHOD_NOT_ALLOWED, "{uri}");
        assert_eq!(answer.headers["allow"], allowed, "{uri}");
    }
}

#[tokio::test]
async fn pages_are_bounded_in_bytes_without_loss() {
    let ring = Ring::new(1_200);
    for uid in 0..1_200 {
        let mut decision = Decision::new("validate", uid.to_string());
        decision.message = "<".repeat(100_000);
        ring.recorder.record(decision).await.unwrap();
    }
    let is_bounded = async |_: &[u64], page: &Answer| {
        assert!(page.body.len() < 3 * 1024 * 1024, "{} bytes", page.body.len());
    };
    let seen: BTreeSet<_> = ring.all_pages("/audit?limit=1000", is_bounded).await.into_iter().collect();
    assert_eq!(seen.len(), 1_200);
}

#[tokio::test]
async fn the_status_describes_the_log_and_decisions_have_anchors() {
    let ring = Ring::with_log(Options::new());
    ring.record(0..3).await;
    let page = ring.get("/audit").await.json();
    let anchor = &page["decisions"][0]["anchor"];
    assert_eq!(anchor["seq"], 2);
    assert_eq!(anchor["leaf"].as_str().unwrap().len(), 64);
    eventually("all records are sealed", async || {
        let log = &ring.get("/audit/status").await.json()["log"];
        assert_eq!((&log["origin"], &log["size"]), (&json!("lucid.computing/test/0"), &json!(3)));
        log["sealed"] == 3
    })
    .await;
    // The key is public.
    let vkey = ask(&ring.router, Method::GET, "/audit/vkey", None, "").await;
    assert_eq!(vkey.status, StatusCode::OK);
    assert!(vkey.body.starts_with("lucid.computing/test/0+") && vkey.body.ends_with('\n'), "{}", vkey.body);
    assert_eq!(ring.get("/audit/status").await.json()["log"]["vkey"], vkey.body.trim());
    let ring = Ring::new(10);
    assert_eq!(ask(&ring.router, Method::GET, "/audit/vkey", None, "").await.status, StatusCode::NOT_FOUND);
    let error = ring.recorder.open_log(Path::new("/dev/null/log"), Options::new()).unwrap_err();
    let status = ring.get("/audit/status").await.json();
    assert_eq!(status["log"]["failing"], error.to_string());
}

#[tokio::test]
async fn reported_drift_is_in_the_status() {
    let ring = Ring::new(10);
    ring.record(0..12).await;
    for (body, status) in [
        (
            r#"{"drifts":[{"class":"rewritten","log":"a","seq":7,"auditID":"u","detail":"the leaf differs"},{"detail":"again"}]}"#,
            204,
        ),
        (r#"{"drifts":[{"detail":"again","time":"never","count":9}]}"#, 204),
        (r#"{"drifts":[]}"#, 204),
        ("{}", 400),
        ("[]", 400),
        ("", 400),
        (r#"{"drifts":[{"detail":"x","seq":-1}]}"#, 400),
    ] {
        let answer = ask(&ring.router, Method::POST, "/audit/alerts", Some(ALERT_TOKEN), body).await;
        assert_eq!(answer.status, status, "{body}: {}", answer.body);
    }
    let status = ring.get("/audit/status").await.json();
    assert_eq!((&status["decided"], &status["inMemory"]), (&json!(12), &json!(10)));
    assert_eq!(status["log"], Value::Null);
    let alerts = status["alerts"].as_array().unwrap();
    assert_eq!(alerts.len(), 2);
    assert_eq!((&alerts[0]["detail"], &alerts[0]["count"]), (&json!("again"), &json!(2)));
    assert_eq!((&alerts[1]["class"], &alerts[1]["seq"]), (&json!("rewritten"), &json!(7)));
}

#[tokio::test]
async fn cosignatures_are_accepted_from_configured_witnesses_only() {
    // Any key can be that of a witness in this test.
    let [witness, stranger] = ["w1", "w2"].map(|name| SigningKey::generate(name).unwrap());
    let ring = Ring::with_log(Options::new().with_witnesses([witness.verifier().clone()]));
    let file = |name: &str| std::fs::read_to_string(ring.folder.path().join("log").join(name)).unwrap();
    let note = file("checkpoint");
    let signed = |key: &SigningKey| {
        let mut note: lucid_audit::note::Note = note.parse().unwrap();
        note.sign(key);
        note.to_string()
    };
    for (body, status, says) in [
        (String::new(), 400, "a signed note is"),
        (note.clone(), 400, "none of the signatures is by a configured witness"),
        (signed(&stranger), 400, "configured are w1+"),
        (signed(&witness).replace("test/0\n0", "test/0\n1"), 400, "text or signature was changed"),
        (signed(&witness), 200, r#"{"size":0,"witnesses":["w1"]}"#),
    ] {
        let answer = ask(&ring.router, Method::POST, "/audit/cosignatures", Some(TOKEN), &body).await;
        assert_eq!(answer.status, status, "{body}: {}", answer.body);
        assert!(answer.body.contains(says), "{body}: {}", answer.body);
    }
    assert_eq!(file("checkpoint.cosigned"), signed(&witness));
    let ring = Ring::new(10);
    let answer = ask(&ring.router, Method::POST, "/audit/cosignatures", Some(TOKEN), &note).await;
    assert_eq!(answer.status, StatusCode::CONFLICT);
    assert!(answer.body.contains("there is no log"), "{}", answer.body);
}
