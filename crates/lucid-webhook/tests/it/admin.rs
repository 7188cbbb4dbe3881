//! Liveness, readiness and metrics over HTTP.

use lucid_webhook::{AdminServer, Readiness};
use prometheus_client::registry::Registry;

#[tokio::test]
async fn readiness_says_what_is_missing_and_liveness_does_not_depend_on_it() {
    let readiness = Readiness::default();
    let certificates = readiness.condition("certificates");
    let synced = readiness.condition("configuration synced");
    let mut registry = Registry::default();
    registry.register("answers", "A counter", prometheus_client::metrics::counter::Counter::<u64>::default());
    let server = AdminServer::bind(([127, 0, 0, 1], 0).into()).await.unwrap();
    let base = format!("http://{}", server.local_addr());
    tokio::spawn(server.serve(readiness, registry));
    let get = async |path: &str| {
        let response = reqwest::get(format!("{base}{path}")).await.unwrap();
        (response.status().as_u16(), response.text().await.unwrap())
    };
    assert_eq!(get("/healthz").await, (200, "ok\n".into()));
    assert_eq!(get("/readyz").await, (503, "not ready: certificates, configuration synced\n".into()));
    synced.set(true);
    assert_eq!(get("/readyz").await, (503, "not ready: certificates\n".into()));
    certificates.set(true);
    assert_eq!(get("/readyz").await, (200, "ok\n".into()));
    certificates.set(false);
    assert_eq!(get("/readyz").await.0, 503);
    let (status, text) = get("/metrics").await;
    assert!(status == 200 && text.contains("answers_total 0\n") && text.ends_with("# EOF\n"), "{text}");
    assert_eq!(get("/").await.0, 404);
}
