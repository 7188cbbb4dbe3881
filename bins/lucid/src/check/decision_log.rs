//! Reads the keys that verify the decision logs.

use lucid_admission::VKEY_PATH;
use lucid_audit::note::VerifierKey;

use super::endpoint::{Endpoint, Response};
use super::report::{Check, Status};

const CHECK: &str = "decision-log";
const OK: u16 = 200;
const NOT_FOUND: u16 = 404;

/// Asks each replica for its key. `wanted` is `true` if the settings name a log.
pub(super) async fn check(endpoint: &Endpoint, wanted: bool) -> Check {
    conclude(&endpoint.name, &endpoint.ask_each("GET", VKEY_PATH).await, wanted)
}

fn conclude(name: &str, responses: &[(&str, Response)], wanted: bool) -> Check {
    let (mut keys, mut without, mut silent) = (Vec::new(), Vec::new(), Vec::new());
    for (address, response) in responses {
        match response {
            Ok((NOT_FOUND, _)) => without.push(*address),
            Ok((OK, body)) if let Ok(key) = body.trim().parse::<VerifierKey>() => keys.push(key),
            Ok(_) | Err(_) => silent.push(*address),
        }
    }
    let check = |status, found: String| Check::new(CHECK, status, found).of(name);
    if !without.is_empty() && wanted {
        let found = format!("no log is open in {}: decisions are in memory only", without.join(", "));
        return check(Status::Warning, found).action("read the logs of its pods");
    }
    if !silent.is_empty() || responses.is_empty() {
        let silent = silent.join(", ");
        return check(
            Status::Unknown,
            format!("no replica is reachable from here, or one gave no key: {silent}"),
        );
    }
    if !keys.is_empty() {
        let keys: Vec<_> = keys.iter().map(ToString::to_string).collect();
        return check(Status::Ok, format!("sealed with {}", keys.join(", ")));
    }
    check(Status::Ok, "no decision log is configured".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_shown_and_missing_logs_are_reported() {
        let vkey =
            "lucid.computing/prod/lucid-operator-0+9af35244+AW3P18mFKyWsDM5Wds9N/Zp/LpTMfMafn3pLMlyq87VH";
        let sealed = || Ok((200, format!("{vkey}\n")));
        let missing = || Ok((404, "{}".to_owned()));
        for (responses, wanted, status, found) in [
            (vec![sealed()], true, Status::Ok, vkey),
            (vec![sealed(), missing()], true, Status::Warning, "192.0.2.1:443"),
            (vec![missing()], false, Status::Ok, "no decision log"),
            (vec![Err("refused".to_owned())], true, Status::Unknown, "reachable"),
            (vec![Ok((200, "x".to_owned()))], true, Status::Unknown, "reachable"),
        ] {
            let responses: Vec<_> =
                responses.into_iter().map(|response| ("192.0.2.1:443", response)).collect();
            let check = conclude("web", &responses, wanted);
            assert!(check.status == status && check.found.contains(found), "{check:?}");
        }
    }
}
