//! Logs whose volume fills up, disappears or returns while they are open.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use lucid_audit::log::{AppendError, OpenErrorKind, Options};
use lucid_audit::{Log, LogFailurePolicy, Recorder};
use lucid_e2e::Disk;
use rustix::mount::{UnmountFlags, mount_bind, unmount};

use crate::support::format;
use crate::support::{self, again, copy, decision, fill, key, record};

async fn log(directory: &Path) -> Log {
    let log = Log::open(directory, Options::new()).unwrap();
    log.append(record(0)).await.unwrap();
    log
}

async fn assert_lost(log: &Log, says: &str) {
    let error = log.append(record("refused")).await.unwrap_err();
    assert!(matches!(error, AppendError::Lost { .. }) && error.to_string().contains(says), "{error}");
    let status = log.status();
    assert!(status.failure().unwrap().contains(says), "{status:?}");
}

fn modified(path: &Path) -> SystemTime {
    fs::metadata(path).unwrap().modified().unwrap()
}

#[tokio::test]
async fn logs_stay_full_until_enough_space_is_free() {
    let Some(disk) = Disk::mount(8 << 20) else { return };
    let directory = disk.path().join("log");
    let key = key();
    let log = Log::open(&directory, Options::new().with_key(again(&key))).unwrap();
    let ballast = fill(&disk, 0);
    let mut kept = 0;
    while log.append(record(kept)).await.is_ok() {
        kept += 1;
        assert!(kept < 1000, "the disk does not fill up");
    }
    assert!(log.status().failure().unwrap().contains("the disk is full"));
    let length = fs::metadata(&ballast).unwrap().len();
    fs::File::options().write(true).open(&ballast).unwrap().set_len(length - 500_000).unwrap();
    // Each probe creates and removes a file, so one probe has ended after the third change.
    for _ in 0..3 {
        let (before, begin) = (modified(&directory), Instant::now());
        while modified(&directory) == before {
            assert!(begin.elapsed() < Duration::from_secs(60), "it is never tried again");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
    let error = log.append(record("while")).await.unwrap_err();
    assert!(matches!(error, AppendError::Full { .. }), "{error}");
    fs::remove_file(ballast).unwrap();
    support::until(&log, |status| status.failure().is_none()).await;
    log.append(record("after")).await.unwrap();
    drop(log);
    assert!(!directory.join("reserve").exists());
    assert_eq!(support::verify(&directory, key.verifier()).len(), kept + 1);
}

#[tokio::test]
async fn deleted_logs_reject_records_until_the_next_start() {
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path().join("log");
    let log = log(&directory).await;
    fs::remove_dir_all(&directory).unwrap();
    for _ in 0..3 {
        assert_lost(&log, "failed to list").await;
    }
    assert!(!directory.exists());
    // Another log in its place is not continued.
    let other = Log::open(&directory, Options::new()).unwrap();
    support::until(&log, |status| {
        status.failure().is_some_and(|it| it.contains("1 records were written, 0 records are there"))
    })
    .await;
    assert_lost(&log, "1 records were written").await;
    drop(log);
    other.append(record("new")).await.unwrap();
    drop(other);
    assert_eq!(support::lines(&directory).len(), 1);
}

#[tokio::test]
async fn moved_segments_are_missing_until_they_return() {
    let folder = tempfile::tempdir().unwrap();
    let log = log(folder.path()).await;
    let segment = format::segment(folder.path(), 0);
    let moved = folder.path().join("moved");
    fs::rename(&segment, &moved).unwrap();
    assert_lost(&log, "1 records were written, 0 records are there").await;
    fs::rename(&moved, &segment).unwrap();
    support::until(&log, |status| status.failure().is_none()).await;
    assert_eq!(log.append(record(1)).await.unwrap().seq, 1);
    drop(log);
    assert_eq!(support::lines(folder.path()).len(), 2);
}

#[tokio::test]
async fn replaced_segments_must_hold_the_same_records() {
    let folder = tempfile::tempdir().unwrap();
    let log = log(folder.path()).await;
    let segment = format::segment(folder.path(), 0);
    let replace = |bytes: &[u8]| {
        let other = folder.path().join("other");
        fs::write(&other, bytes).unwrap();
        fs::rename(other, &segment).unwrap();
    };
    let same = fs::read(&segment).unwrap();
    replace(&same);
    assert_eq!(log.append(record(1)).await.unwrap().seq, 1);
    assert_eq!(fs::read(&segment).unwrap(), same);
    drop(log);

    let log = Log::open(folder.path(), Options::new()).unwrap();
    let segment = format::segment(folder.path(), 1);
    let text = fs::read_to_string(&segment).unwrap();
    fs::write(folder.path().join("other"), text.replace("validate", "VALIDATE")).unwrap();
    fs::rename(folder.path().join("other"), &segment).unwrap();
    assert_lost(&log, "2 records were written, 2 others are there").await;
}

#[tokio::test]
async fn a_volume_that_returns_is_written_to_again() {
    let Some(disk) = Disk::mount(8 << 20) else { return };
    let folder = tempfile::tempdir().unwrap();
    let mounted = folder.path().join("mounted");
    fs::create_dir(&mounted).unwrap();
    mount_bind(disk.path(), &mounted).unwrap();
    let key = key();
    let log = Log::open(&mounted.join("log"), Options::new().with_key(again(&key))).unwrap();
    log.append(record(0)).await.unwrap();
    unmount(&mounted, UnmountFlags::DETACH).unwrap();
    assert_lost(&log, "failed to list").await;
    mount_bind(disk.path(), &mounted).unwrap();
    support::until(&log, |status| status.failure().is_none()).await;
    log.append(record(1)).await.unwrap();
    drop(log);
    unmount(&mounted, UnmountFlags::DETACH).unwrap();
    assert_eq!(support::verify(&disk.path().join("log"), key.verifier()).len(), 2);
}

#[tokio::test]
async fn volumes_written_by_another_process_are_not_written_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let log = log(&path("log")).await;
    // Simulate a volume that returns from another node: the same records in different files.
    let exchange = |name: &str| {
        copy(&path("log"), &path("copy"));
        fs::rename(path("log"), path(name)).unwrap();
        fs::rename(path("copy"), path("log")).unwrap();
    };
    exchange("before");
    assert_eq!(log.append(record(1)).await.unwrap().seq, 1);
    assert_eq!(Log::open(&path("log"), Options::new()).unwrap_err().kind(), OpenErrorKind::Locked);
    exchange("long before");
    let other = Log::open(&path("log"), Options::new()).unwrap();
    assert_lost(&log, "another process writes the log").await;
    other.append(record(2)).await.unwrap();
    drop(other);
    support::until(&log, |status| {
        status.failure().is_some_and(|it| it.contains("2 records were written, 3 records are there"))
    })
    .await;
    drop(log);
    assert_eq!(support::lines(&path("log")).len(), 3);
}

#[tokio::test]
async fn a_lock_that_was_removed_is_taken_again() {
    let folder = tempfile::tempdir().unwrap();
    let log = log(folder.path()).await;
    fs::remove_file(folder.path().join(format::LOCK)).unwrap();
    log.append(record(1)).await.unwrap();
    let error = Log::open(folder.path(), Options::new()).unwrap_err();
    assert_eq!(error.kind(), OpenErrorKind::Locked);
    assert!(error.to_string().contains("another process writes the log in"), "{error}");
    drop(log);
    Log::open(folder.path(), Options::new()).unwrap();
}

#[tokio::test]
async fn a_recorder_that_denies_is_ready_while_its_log_takes_records() {
    assert!(Recorder::new(1).with_on_failure(LogFailurePolicy::ServeAndAlarm).ready().is_none());
    assert!(*Recorder::new(1).ready().unwrap().borrow());
    let folder = tempfile::tempdir().unwrap();
    let holder = log(folder.path()).await;
    let recorder = Recorder::new(1);
    let mut ready = recorder.ready().unwrap();
    let error = recorder.open_log(folder.path(), Options::new()).unwrap_err();
    assert_eq!(error.kind(), OpenErrorKind::Locked, "{error}");
    assert!(!*ready.borrow());
    drop(holder);
    recorder.open_log(folder.path(), Options::new()).unwrap();
    assert!(*ready.borrow());
    assert_eq!(recorder.record(decision(1)).await.unwrap().unwrap().seq, 1);
    let (segment, moved) = (format::segment(folder.path(), 0), folder.path().join("moved"));
    fs::rename(&segment, &moved).unwrap();
    recorder.record(decision(2)).await.unwrap_err();
    assert!(!*ready.borrow());
    fs::rename(moved, segment).unwrap();
    tokio::time::timeout(Duration::from_mins(1), ready.wait_for(|ready| *ready)).await.unwrap().unwrap();
}

#[test]
fn only_curable_failures_are_transient() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("decisions.jsonl");
    fs::write(&file, "").unwrap();
    fs::create_dir(folder.path().join(format::SEGMENTS)).unwrap();
    fs::create_dir(format::segment(folder.path(), 0)).unwrap();
    for (path, says) in [
        (Path::new("/proc/nonexistent/log"), "failed to make /proc/nonexistent/log/segments"),
        (folder.path(), ""),
        (&file, "decisions.jsonl is not a directory"),
    ] {
        let error = Log::open(path, Options::new()).unwrap_err();
        assert!(!matches!(error.kind(), OpenErrorKind::Transient | OpenErrorKind::Locked), "{error}");
        assert_eq!(error.kind() == OpenErrorKind::Conflict, path == file, "{error}");
        assert!(error.to_string().contains(says), "{error}");
    }
}
