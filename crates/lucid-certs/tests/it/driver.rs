//! The driver with failing targets and sources.

use std::{
    future,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, SystemTime},
};

use futures::{
    future::BoxFuture,
    stream::{self, BoxStream},
};
use lucid_certs::{
    Certificates, ServingNames, TrustBundle,
    source::{CertificateSource, FileSource, ObservedTrust, Offer, SourceError},
    target::{Reading, TargetError, TrustTarget},
};
use tokio::time::sleep;

use crate::common::pairs::Pair;

fn names() -> ServingNames {
    ServingNames::for_services("lucid-system", &["lucid-operator"]).unwrap()
}

/// A target whose writes all conflict, such as behind an admission webhook or proxy that responds with 409.
#[derive(Debug, Default)]
struct Refusing {
    readings: Arc<AtomicUsize>,
}

impl TrustTarget for Refusing {
    fn name(&self) -> &str {
        "Refusing/one"
    }

    fn read(&self) -> BoxFuture<'_, Result<Reading, TargetError>> {
        self.readings.fetch_add(1, Ordering::Relaxed);
        Box::pin(async { Ok(Reading::present("1", [("webhook".to_owned(), Vec::new())])) })
    }

    fn write<'a>(
        &'a self,
        _: &'a TrustBundle,
        _: &'a Reading,
    ) -> BoxFuture<'a, Result<Reading, TargetError>> {
        Box::pin(async { Err(TargetError::Changed { target: "Refusing/one".to_owned() }) })
    }

    fn changes(&self) -> BoxStream<'static, ()> {
        Box::pin(stream::pending())
    }
}

#[tokio::test]
async fn persistent_conflicts_back_off() {
    let folder = tempfile::tempdir().unwrap();
    Pair::new().write(folder.path());
    let target = Refusing::default();
    let readings = Arc::clone(&target.readings);
    let certificates = Certificates::new(names()).with_targets([target]);
    let source = FileSource::in_directory(folder.path()).with_publishing();
    let task = tokio::spawn(certificates.run(source, future::pending()));
    sleep(Duration::from_secs(8)).await;
    task.abort();
    let readings = readings.load(Ordering::Relaxed);
    assert!((4..30).contains(&readings), "{readings} readings in 8 s");
}

/// A source that never responds.
struct Silent(Arc<AtomicUsize>);

impl CertificateSource for Silent {
    fn name(&self) -> &'static str {
        "silent"
    }

    async fn offer(&mut self, _: &ObservedTrust, _: SystemTime) -> Result<Offer, SourceError> {
        self.0.fetch_add(1, Ordering::Relaxed);
        future::pending().await
    }

    async fn changed(&mut self) {
        future::pending().await
    }
}

#[tokio::test]
#[ignore = "takes half a minute"]
async fn slow_an_unresponsive_source_is_retried() {
    let requests = Arc::new(AtomicUsize::new(0));
    let source = Silent(Arc::clone(&requests));
    let task = tokio::spawn(Certificates::new(names()).run(source, future::pending()));
    sleep(Duration::from_secs(40)).await;
    task.abort();
    assert_eq!(requests.load(Ordering::Relaxed), 2);
}
