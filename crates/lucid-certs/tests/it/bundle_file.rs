//! Trust bundles in files.

use std::{fs, time::Duration};

use lucid_certs::{
    TrustBundle,
    source::{BundleFile, Reason, Watching},
};
use lucid_testbed::AtomicWriter;
use tokio::time::timeout;

use crate::common::{TIMEOUT, pairs::Pair};

async fn wait_for(file: &BundleFile, expected: &TrustBundle) {
    let mut bundle = file.subscribe();
    timeout(TIMEOUT, bundle.wait_for(|bundle| bundle == expected)).await.unwrap().unwrap();
    assert_eq!(file.current(), *expected);
}

async fn wait_for_problem(file: &BundleFile, expected: Option<Reason>) {
    let mut problem = file.problem();
    let is_it = problem.wait_for(|problem| problem.as_ref().map(|problem| problem.reason) == expected);
    let problem = timeout(TIMEOUT, is_it).await.unwrap().unwrap().clone();
    assert!(problem.is_none_or(|problem| problem.to_string().contains("ca.crt")));
}

#[tokio::test]
async fn a_bundle_is_reloaded_and_the_last_valid_one_kept() {
    for watching in [
        Watching::default().with_poll(Duration::from_hours(1)),
        Watching::by_poll_alone().with_poll(Duration::from_millis(10)),
    ] {
        let [first, second, third] = Pair::several();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ca.crt");
        let missing = BundleFile::load(&path, watching).await.unwrap_err();
        assert_eq!(missing.reason, Reason::Missing);

        fs::write(&path, &first.ca).unwrap();
        let file = BundleFile::load(&path, watching).await.unwrap();
        assert_eq!(file.current(), first.bundle());

        fs::write(&path, first.ca.clone() + &second.ca).unwrap();
        wait_for(&file, &first.bundle().merge(&second.bundle())).await;
        wait_for_problem(&file, None).await;

        let last_good = file.current();
        fs::write(&path, &first.ca[..100]).unwrap();
        wait_for_problem(&file, Some(Reason::Malformed)).await;
        fs::remove_file(&path).unwrap();
        wait_for_problem(&file, Some(Reason::Missing)).await;
        assert_eq!(file.current(), last_good);

        fs::write(&path, &third.ca).unwrap();
        wait_for(&file, &third.bundle()).await;
        wait_for_problem(&file, None).await;
    }
}

#[tokio::test]
async fn a_bundle_is_watched_until_the_last_clone_is_dropped() {
    let pairs = Pair::several::<4>();
    let folder = tempfile::tempdir().unwrap();
    let volume = AtomicWriter::new(folder.path());
    volume.write(&pairs[0].files()).unwrap();
    let file = BundleFile::load(folder.path().join("ca.crt"), Watching::default()).await.unwrap();
    for pair in &pairs {
        volume.write(&pair.files()).unwrap();
        wait_for(&file, &pair.bundle()).await;
    }
    let mut bundle = file.subscribe();
    let clone = file.clone();
    drop(file);
    volume.write(&pairs[0].files()).unwrap();
    wait_for(&clone, &pairs[0].bundle()).await;
    bundle.borrow_and_update();
    drop(clone);
    assert!(timeout(TIMEOUT, bundle.changed()).await.unwrap().is_err(), "the file is no longer watched");
}
