//! Whether anybody can call the webhooks.

use super::endpoint::{Endpoint, anonymous_call};
use super::report::{Check, Status};

const CHECK: &str = "callers";
/// Answer to a caller without a client certificate where one is demanded.
const FORBIDDEN: u16 = 403;

/// Calls each server without a client certificate. Where none can be reached from here, the settings decide: whether they
/// demand a certificate, if they are known.
pub(super) async fn check(endpoint: &Endpoint, demanded: Option<bool>) -> Check {
    let mut open = Vec::new();
    let mut closed = 0_u32;
    for address in &endpoint.addresses {
        match anonymous_call(address, endpoint).await {
            Ok(FORBIDDEN) => closed += 1,
            Ok(_) => open.push(address.as_str()),
            Err(_) => {}
        }
    }
    let check = |status, found: String| Check::new(CHECK, status, found).of(&endpoint.name);
    let advise = |check: Check| {
        check.action(
            "set LUCID_CLIENT_CA (webhooks.clientCa of the chart); where API servers present no certificate, restrict callers \
             by a NetworkPolicy: docs/authentication.md",
        )
    };
    match (open.is_empty(), closed, demanded) {
        (false, _, _) => advise(check(
            Status::Warning,
            format!("anybody can call the webhooks: {} answered without a client certificate", open.join(", ")),
        )),
        (true, 1.., _) => check(Status::Ok, "callers without a client certificate are refused".to_owned()),
        (true, 0, Some(true)) => check(Status::Ok, "the settings demand a client certificate".to_owned()),
        (true, 0, Some(false)) => advise(check(
            Status::Warning,
            "the settings demand no client certificate: anybody whom the network lets through can call the webhooks".to_owned(),
        )),
        (true, 0, None) => check(Status::Unknown, "no server could be called from here".to_owned()),
    }
}
