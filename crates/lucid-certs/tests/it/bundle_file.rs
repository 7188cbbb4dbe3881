//! Trust bundles in files.

use lucid_certs::{TrustBundle, source::watch_bundle};
use lucid_testbed::AtomicWriter;
use tokio::{sync::watch, time::timeout};

use crate::common::{TIMEOUT, pairs::Pair};

async fn wait_for(bundle: &mut watch::Receiver<TrustBundle>, expected: &TrustBundle) {
    drop(timeout(TIMEOUT, bundle.wait_for(|bundle| bundle == expected)).await.unwrap().unwrap());
}

#[tokio::test]
async fn a_bundle_is_watched_while_a_receiver_remains() {
    let pairs = Pair::several::<4>();
    let folder = tempfile::tempdir().unwrap();
    let volume = AtomicWriter::new(folder.path());
    volume.write(&pairs[0].files()).unwrap();
    let mut first = watch_bundle(folder.path().join("ca.crt")).await.unwrap();
    for pair in &pairs {
        volume.write(&pair.files()).unwrap();
        wait_for(&mut first, &pair.bundle()).await;
    }
    let mut second = first.clone();
    drop(first);
    volume.write(&pairs[0].files()).unwrap();
    wait_for(&mut second, &pairs[0].bundle()).await;
}
