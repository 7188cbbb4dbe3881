//! `audit tail` of a running process.

use lucid_e2e::eventually;
use serde_json::Value;

use super::{authorities, decide, key, read, sealed, start};
use crate::common::{PATIENCE, cluster, operator};
use crate::correlation::audit;

/// Names in the output so far, from decisions of the validating webhook.
fn names(printed: &str) -> Vec<String> {
    let decisions = printed.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let validated = decisions.filter(|it| it["webhook"] == "validate");
    validated.map(|it| it["name"].as_str().unwrap_or_default().to_owned()).collect()
}

fn web(numbers: std::ops::Range<u32>) -> impl Iterator<Item = String> {
    numbers.map(|number| format!("web-{number}"))
}

#[tokio::test]
async fn decisions_are_printed_once_and_across_restarts() {
    let cluster = cluster().await;
    let log = cluster.folder().join("decisions");
    key(&log, "lucid.computing/test/0");
    let mut operator = operator(&cluster, |operator| sealed(operator, &log, "lucid.computing/test/0")).await;
    let ca = authorities(&cluster, "lucid-operator").await;
    let (url, token) = (operator.url(), super::token(cluster.folder()));
    let access = ["tail", &url, "--token-file", &token, "--ca", &ca];
    decide(&cluster, web(0..6)).await;

    let text = audit(&[&access[..], &["-n4"]].concat()).printed();
    // Both webhooks decide about each pod.
    let expected = ["web-4", "web-4", "web-5", "web-5"];
    assert_eq!(text.lines().count(), 4, "{text}");
    for (line, name) in text.lines().zip(expected) {
        assert!(line.contains(&format!("CREATE Pod shop/{name} by")), "{text}");
    }
    let last = ["-n1", "-ojson", "--decision=allowed", "--namespace=shop"];
    let json = audit(&[&access[..], &last].concat()).json();
    assert_eq!((&json["name"], &json["anchor"]["seq"]), (&"web-5".into(), &11.into()));
    assert_eq!(json["tier"], "missing");
    for (without, said) in [("--token-file", "401"), ("--ca", "certificate")] {
        let at = access.iter().position(|it| *it == without).unwrap();
        let ran = audit(&[&access[..at], &access[at + 2..]].concat());
        assert!(ran.status == Some(1) && ran.stderr.contains(said), "{without}: {ran:?}");
    }

    let (process, printed) = start(&cluster, "tail", &[&access[..], &["--follow", "-n2", "-ojson"]].concat());
    let come = |expected: Vec<String>| {
        let printed = printed.clone();
        async move {
            eventually("all decisions are printed", async || {
                let found = names(&read(&printed));
                if found == expected { Ok(()) } else { Err(format!("{found:?}, not {expected:?}")) }
            })
            .await;
        }
    };
    come(web(5..6).collect()).await;
    decide(&cluster, web(6..20)).await;
    come(web(5..20).collect()).await;
    assert!(operator.terminate().unwrap().success());
    operator.restart().await.unwrap();
    decide(&cluster, web(20..30)).await;
    come(web(5..30).collect()).await;
    let status = process.terminate(PATIENCE);
    assert!(status.is_some_and(|status| status.success()), "{status:?}");
    let printed = read(&printed);
    assert_eq!(printed.matches("another process responds").count(), 1, "{printed}");
    assert!(printed.contains("to its end were not seen"), "{printed}");
}
