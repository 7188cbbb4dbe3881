//! Allowlisted digests count as notarized without a request.

use std::fs;
use std::mem::ManuallyDrop;
use std::process::Command;
use std::time::Duration;

use lucid_notary::client::{Allowlist, Answer, ClientMetrics};
use tempfile::tempdir;
use tokio::time::{sleep, timeout};

use crate::common::{Scrape, Script, digest, told, until};

#[tokio::test]
async fn listed_digests_and_images_are_notarized_without_a_request() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("list");
    let sha512 = format!("sha512:{}", "d".repeat(128));
    let text = format!(
        "# auditors\n{}  # reviewed\n\n  ghcr.io/lucid/auditor:1@{}\r\n{sha512}",
        digest('a'),
        digest('c')
    );
    fs::write(&path, text).unwrap();
    let (script, scrape) = (Script::new(|_| Ok(Answer::NotNotarized)), Scrape::new());
    let list = Allowlist::open(&path, scrape.metrics.clone()).unwrap();
    let builder = script.client().with_allowlist(list);
    let verifier = builder.with_metrics(scrape.metrics.clone()).build();
    for digest in [digest('a'), digest('c'), sha512.parse().unwrap()] {
        let checked = verifier.check(digest).await;
        assert_eq!(told(&checked), ("notarized".to_owned(), "allowlist"));
        assert_eq!(checked.to_string(), "notarized (allowlist)");
    }
    assert_eq!(script.calls(), 0);
    assert_eq!(told(&verifier.check(digest('b')).await), ("not notarized".to_owned(), "verifier"));
    assert_eq!(scrape.value("verifier_allowlisted_total"), 3.0);
    assert_eq!(scrape.value("verifier_allowlist_entries"), 3.0);
}

#[tokio::test]
async fn a_changed_file_is_reloaded_and_an_invalid_one_ignored() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("list");
    fs::write(&path, digest('a').as_str()).unwrap();
    let scrape = Scrape::new();
    let list = Allowlist::open(&path, scrape.metrics.clone()).unwrap();
    assert!(list.contains(&digest('a')).await && !list.contains(&digest('b')).await);

    fs::write(&path, digest('b').as_str()).unwrap();
    until(async || list.contains(&digest('b')).await).await;
    assert!(!list.contains(&digest('a')).await);

    let failed = "verifier_file_reloads_total{file=\"allowlist\",result=\"error\"}";
    fs::write(&path, "sha256:short").unwrap();
    until(async || list.contains(&digest('b')).await && scrape.value(failed) == 1.0).await;
    fs::remove_file(&path).unwrap();
    until(async || list.contains(&digest('b')).await && scrape.value(failed) == 2.0).await;

    fs::write(&path, "").unwrap();
    until(async || !list.contains(&digest('b')).await).await;
}

#[test]
fn a_hanging_file_does_not_block_callers_and_uses_one_thread() {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().max_blocking_threads(2).build().unwrap();
    // Leaked on purpose: if an assertion fails, dropping the runtime would wait for the hanging threads.
    let runtime = ManuallyDrop::new(runtime);
    runtime.block_on(async {
        let folder = tempdir().unwrap();
        let (path, pipe) = (folder.path().join("list"), folder.path().join("pipe"));
        fs::write(&path, digest('a').as_str()).unwrap();
        let list = Allowlist::open(&path, ClientMetrics::default()).unwrap();
        // Opening a named pipe blocks until there is a writer.
        assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        fs::rename(&pipe, &path).unwrap();
        let patience = Duration::from_secs(30);
        for _ in 0..3 {
            sleep(Duration::from_millis(1100)).await;
            assert!(timeout(patience, list.contains(&digest('a'))).await.unwrap());
        }
        let other = timeout(patience, tokio::task::spawn_blocking(|| ())).await;
        other.expect("a thread for something else").unwrap();

        fs::rename(&path, &pipe).unwrap();
        fs::write(&path, digest('b').as_str()).unwrap();
        drop(fs::File::options().write(true).open(&pipe).unwrap());
        until(async || list.contains(&digest('b')).await).await;
    });
}

#[test]
fn an_invalid_list_is_rejected_with_file_and_line() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("list");
    let missing = Allowlist::open(&path, ClientMetrics::default()).unwrap_err().to_string();
    assert!(missing.contains(path.to_str().unwrap()) && missing.contains("No such file"), "{missing}");
    for (line, reason) in [
        ("sha256:abc", "has 3 hexadecimal digits"),
        ("busybox", "has no ':'"),
        ("ghcr.io/lucid/auditor:1", "does not have a digest; expected sha256:HEX or IMAGE@sha256:HEX"),
        ("ghcr.io/Lucid/auditor@sha256:abc", "has 'L' in the repository"),
        ("*", "has no ':'"),
    ] {
        fs::write(&path, format!("# first\n{line}\n")).unwrap();
        let message = Allowlist::open(&path, ClientMetrics::default()).unwrap_err().to_string();
        let place = format!("{}: line 2: ", path.display());
        assert!(message.contains(&place) && message.contains(reason), "{message}");
    }
    fs::write(&path, [0xff]).unwrap();
    let message = Allowlist::open(&path, ClientMetrics::default()).unwrap_err().to_string();
    assert!(message.contains("not UTF-8"), "{message}");
}
