//! A thousand atomic volume swaps, as by kubelet.

use std::time::Duration;

use futures::future::join_all;
use lucid_certs::{
    Fingerprint,
    source::{CertificateSource, FileSource, Trust},
};
use lucid_e2e::AtomicWriter;
use tokio::{sync::watch, time::timeout};

use crate::common::{
    TIMEOUT,
    following::{Watching, ask, by_events, by_polling},
    pairs::Pair,
};

const SWAPS: usize = 1000;
const VOLUMES: usize = 20;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_swaps_are_detected_by_events() {
    swaps(by_events).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_swaps_are_detected_by_polling() {
    swaps(by_polling).await;
}

async fn swaps(watching: Watching) {
    let pairs = Pair::several::<8>();
    join_all((0..VOLUMES).map(|_| follow_a_volume(&pairs, watching))).await;
}

async fn follow_a_volume(pairs: &[Pair], watching: Watching) {
    let folder = tempfile::tempdir().unwrap();
    let volume = AtomicWriter::new(folder.path());
    let mut source = watching(FileSource::in_directory(folder.path()).with_publishing());
    volume.write(&pairs[0].files()).unwrap();
    let (offered, mut seen) = watch::channel::<Option<Fingerprint>>(None);
    let all = pairs.to_vec();
    let server = tokio::spawn(async move {
        loop {
            // Files are never missing, and never of different versions.
            let offer = ask(&mut source).await.unwrap();
            check(&offer, &all);
            offered.send_replace(Some(offer.certificate.as_ref().unwrap().fingerprint()));
            source.changed().await;
        }
    });
    for swap in 1..=SWAPS / VOLUMES {
        let pair = &pairs[swap % pairs.len()];
        volume.write(&pair.files()).unwrap();
        let is_seen = seen.wait_for(|seen| *seen == Some(pair.fingerprint));
        let outcome = timeout(TIMEOUT, is_seen).await;
        assert!(matches!(outcome, Ok(Ok(_))), "swap {swap} was missed, or an offer was wrong");
    }
    server.abort();
}

fn check(offer: &lucid_certs::source::Offer, pairs: &[Pair]) {
    let pair = pairs
        .iter()
        .find(|pair| pair.fingerprint == offer.certificate.as_ref().unwrap().fingerprint())
        .unwrap();
    assert_eq!(offer.trust, Trust::AtLeast(pair.bundle()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_volume_replaced_during_a_read_is_consistent() {
    let pairs = Pair::several::<8>();
    let folder = tempfile::tempdir().unwrap();
    let volume = AtomicWriter::new(folder.path());
    volume.write(&pairs[0].files()).unwrap();
    let source = FileSource::in_directory(folder.path()).with_publishing();
    let mut source = source.without_events().with_poll(Duration::from_millis(1));
    let mut writer = tokio::task::spawn_blocking({
        let pairs = pairs.to_vec();
        move || (1..=SWAPS).for_each(|swap| volume.write(&pairs[swap % pairs.len()].files()).unwrap())
    });
    loop {
        check(&ask(&mut source).await.unwrap(), &pairs);
        // No change follows the last write.
        tokio::select! {
            () = source.changed() => {}
            written = &mut writer => return written.unwrap(),
        }
    }
}
