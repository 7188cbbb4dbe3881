//! Checks the serving certificate against the trusted bundle.

use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use lucid_certs::{TrustBundle, Validity};

use super::endpoint::{Endpoint, presented_chain};
use super::registration::RegisteredWebhook;
use super::report::{Check, Status};

const CHECK: &str = "certificate";
/// Remaining validity below which a certificate is reported, as in the alerts.
const SOON: Duration = Duration::from_hours(7 * 24);
const MAX_SERVERS: usize = 20;

pub(super) async fn check(registered: &RegisteredWebhook, endpoint: &Endpoint) -> Check {
    let now = SystemTime::now();
    let check = |status, found: String| Check::new(CHECK, status, found).of(&registered.object);
    let bundle = match bundle(registered) {
        Ok(bundle) => bundle,
        Err(problem) => {
            return check(Status::Failed, problem).action(
                "restart lucid-operator, which writes the caBundle, or see docs/certificates/troubleshooting.md",
            );
        }
    };
    if bundle.validities().all(|(_, validity)| now > validity.not_after) {
        return check(Status::Failed, "all certificates of the caBundle are expired".to_owned())
            .action("lucid certs rotate, or renew the authority that issued them");
    }
    let (mut good, mut bad, mut unreached) = (Vec::new(), Vec::new(), Vec::new());
    for address in endpoint.addresses.iter().take(MAX_SERVERS) {
        match presented_chain(address, &endpoint.name).await {
            Err(problem) => unreached.push(format!("{address}: {problem}")),
            Ok(chain) => match bundle.verify_chain(&chain, &endpoint.name, now) {
                Ok(validity) => good.push((address, validity)),
                Err(error) => bad.push(format!("{address}: {}", lucid_shared::with_causes(&error))),
            },
        }
    }
    if !bad.is_empty() {
        return check(
            Status::Failed,
            format!("the caBundle does not verify the serving certificate: {}", bad.join("; ")),
        )
        .action("lucid certs status, and docs/certificates/troubleshooting.md");
    }
    if good.is_empty() {
        let reason = if unreached.is_empty() { "no endpoints".to_owned() } else { unreached.join("; ") };
        return check(
            Status::Unknown,
            format!("the caBundle is valid, but no server is reachable from here: {reason}"),
        )
        .action(
            "run lucid check where pods are reachable; the check reachable covers calls by the API server",
        );
    }
    let newest = bundle.validities().map(|(_, validity)| validity).max_by_key(|validity| validity.not_after);
    let ends: Vec<_> = good
        .iter()
        .map(|(address, validity)| (format!("the certificate of {address}"), *validity))
        .chain(newest.map(|validity| ("the newest authority of the caBundle".to_owned(), validity)))
        .filter(|(_, validity)| is_soon(*validity, now))
        .map(|(what, validity)| format!("{what} expires at {}", moment(validity.not_after)))
        .collect();
    if !ends.is_empty() {
        return check(Status::Warning, ends.join("; "))
            .action("renewal is overdue: see the log of lucid-operator");
    }
    let until = good.iter().map(|(_, validity)| validity.not_after).min().map(moment).unwrap_or_default();
    let found = format!(
        "{} of {} servers present a certificate that the caBundle verifies, until {until}",
        good.len(),
        endpoint.addresses.len()
    );
    if unreached.is_empty() {
        check(Status::Ok, found)
    } else {
        check(Status::Warning, format!("{found}; not reachable from here: {}", unreached.join("; ")))
    }
}

fn bundle(registered: &RegisteredWebhook) -> Result<TrustBundle, String> {
    let encoded = registered.webhook["clientConfig"]["caBundle"].as_str().unwrap_or_default();
    if encoded.is_empty() {
        return Err(
            "the caBundle is empty: the API server trusts the authorities of its host instead".to_owned()
        );
    }
    let pem = BASE64_STANDARD
        .decode(encoded)
        .map_err(|error| format!("the caBundle is not valid base64: {error}"))?;
    TrustBundle::from_pem(&pem).map_err(|error| lucid_shared::with_causes(&error))
}

/// Returns `true` if renewal is overdue: less than [`SOON`] and less than a fifth of the lifetime remain. The fraction
/// accounts for certificates that are valid for a day only.
fn is_soon(validity: Validity, now: SystemTime) -> bool {
    let left = validity.not_after.duration_since(now).unwrap_or_default();
    let lifetime = validity.not_after.duration_since(validity.not_before).unwrap_or_default();
    left < SOON.min(lifetime / 5)
}

fn moment(at: SystemTime) -> String {
    jiff::Timestamp::try_from(at).map(|at| format!("{at:.0}")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overdue_renewal_is_reported() {
        let day = Duration::from_hours(24);
        let now = SystemTime::now();
        for (lifetime, left, soon) in
            [(7, 6, false), (7, 2, false), (7, 1, true), (365, 30, false), (365, 8, false), (365, 6, true)]
        {
            let not_after = now + day * left;
            let validity = Validity { not_before: not_after - day * lifetime, not_after };
            assert_eq!(is_soon(validity, now), soon, "{left} of {lifetime} days");
        }
    }
}
