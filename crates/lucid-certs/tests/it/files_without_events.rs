//! File sources on a system without inotify resources.

use std::{env, process::Command, time::Duration};

use lucid_certs::source::FileSource;
use lucid_e2e::{AtomicWriter, skip};

use crate::common::{following::Following, pairs::Pair};

/// Set in the subprocess, which has no inotify resources.
const INSIDE: &str = "LUCID_CERTS_WITHOUT_EVENTS";

/// Runs this test again in a user namespace with its own limits.
fn run_without(limit: &str) {
    let test = "files_without_events::files_are_polled_without_inotify_resources";
    let script = format!("echo 0 > /proc/sys/user/{limit} && exec \"$0\" --exact {test} --nocapture");
    let mut unshare = Command::new("unshare");
    unshare.args(["--user", "--map-root-user", "sh", "-c", &script]).arg(env::current_exe().unwrap());
    let Ok(output) = unshare.env(INSIDE, limit).output() else {
        return skip("unshare cannot be run");
    };
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if !out.contains("running 1 test") {
        return skip(format_args!("no user namespace can be made: {err}"));
    }
    assert!(output.status.success() && out.contains("1 passed"), "{limit}: {out}{err}");
}

#[tokio::test]
async fn files_are_polled_without_inotify_resources() {
    let Some(limit) = env::var_os(INSIDE) else {
        for limit in ["max_inotify_instances", "max_inotify_watches"] {
            run_without(limit);
        }
        return;
    };
    let path = std::path::Path::new("/proc/sys/user").join(limit);
    assert_eq!(std::fs::read_to_string(path).unwrap().trim(), "0");
    let folder = tempfile::tempdir().unwrap();
    let volume = AtomicWriter::new(folder.path());
    let files = FileSource::in_directory(folder.path()).with_poll(Duration::from_millis(10));
    let mut source = Following::new(files);
    for pair in Pair::several::<3>() {
        volume.write(&pair.files()).unwrap();
        source.offers(pair.fingerprint).await;
    }
}
