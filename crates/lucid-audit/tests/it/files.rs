//! Kind and permissions of a log's files.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc;
use std::time::Duration;

use lucid_audit::Log;
use lucid_audit::log::Options;
use lucid_audit::note::SigningKey;

use crate::support::format;
use crate::support::{self, again, key, record};

/// Opens a log in a separate thread, since a pipe without a writer would block it.
fn open(directory: &Path, key: &SigningKey, adopt: bool) -> Result<(), String> {
    let (directory, key, (send, receive)) = (directory.to_owned(), again(key), mpsc::channel());
    std::thread::spawn(move || {
        let opened = Log::open(&directory, Options::new().with_key(key).with_adoption(adopt));
        send.send(opened.map(drop).map_err(|error| error.to_string()))
    });
    receive.recv_timeout(Duration::from_mins(1)).unwrap_or_else(|_| panic!("opening the log hangs"))
}

#[tokio::test]
async fn a_pipe_in_place_of_a_file_is_an_error_that_names_it() {
    let key = key();
    for (place, adopt) in
        [("first", false), ("last", false), ("behind", false), ("last", true), ("lock", false)]
    {
        let folder = tempfile::tempdir().unwrap();
        let options = Options::new().with_key(again(&key)).with_segment_bytes(4_096);
        let log = Log::open(folder.path(), options).unwrap();
        support::append(&log, 0..100).await;
        drop(log);
        let segments = support::segments(folder.path());
        let pipe = match place {
            "first" => segments[0].clone(),
            "last" => segments.last().unwrap().clone(),
            "behind" => format::segment(folder.path(), 100),
            other => folder.path().join(other),
        };
        let _ = fs::remove_file(&pipe);
        assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let error = open(folder.path(), &key, adopt).unwrap_err();
        assert!(error.contains(&pipe.display().to_string()), "{place}: {error}");
        assert!(error.contains("not a regular file"), "{place}: {error}");
    }
}

#[tokio::test]
async fn a_pipe_among_temporary_files_is_replaced() {
    let (folder, key) = (tempfile::tempdir().unwrap(), key());
    drop(support::open(folder.path(), &key));
    let pipe = folder.path().join("checkpoint.tmp");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    open(folder.path(), &key, false).unwrap();
    let log = support::open(folder.path(), &key);
    log.append(record(1)).await.unwrap();
    log.close();
    assert_eq!(log.status().sealed_size, 1);
}

fn all(directory: &Path, found: &mut Vec<PathBuf>) {
    found.push(directory.to_owned());
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { all(&path, found) } else { found.push(path) }
    }
}

#[tokio::test]
async fn only_owner_and_group_have_access() {
    let (folder, key) = (tempfile::tempdir().unwrap(), key());
    let directory = folder.path().join("var/log");
    let log = Log::open(&directory, Options::new().with_key(key).with_segment_bytes(4_096)).unwrap();
    support::append(&log, 0..300).await;
    drop(log);
    let mut found = Vec::new();
    all(&directory, &mut found);
    assert!(found.len() > 10);
    for path in found {
        let mode = fs::metadata(&path).unwrap().permissions().mode() & 0o777;
        let most = if path.is_dir() { 0o750 } else { 0o640 };
        assert_eq!(mode & !most, 0, "{} has mode {mode:o}", path.display());
    }
}
