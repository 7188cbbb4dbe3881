//! Checks that callers of the webhooks need a client certificate.

use super::endpoint::{Endpoint, Response};
use super::report::{Check, Status};

const CHECK: &str = "callers";
/// Response to a caller without a client certificate where one is required.
const FORBIDDEN: u16 = 403;
/// Response of a webhook to the call itself, whose body is empty.
const BAD_REQUEST: u16 = 400;

/// Calls each server without a client certificate. If no server is reachable from here, `demanded` decides: `Some(true)`
/// if the settings require a client certificate, `None` if they are unknown.
pub(super) async fn check(endpoint: &Endpoint, demanded: Option<bool>) -> Check {
    // The body is empty, so nothing is evaluated.
    conclude(&endpoint.name, &endpoint.ask_each("POST", &endpoint.path).await, demanded)
}

fn conclude(name: &str, responses: &[(&str, Response)], demanded: Option<bool>) -> Check {
    let mut open = Vec::new();
    let mut closed = 0_u32;
    for (address, response) in responses {
        match response {
            Ok((FORBIDDEN, _)) => closed += 1,
            Ok((BAD_REQUEST, _)) => open.push(*address),
            // Overloaded, or not a webhook.
            Ok(_) | Err(_) => {}
        }
    }
    let check = |status, found: String| Check::new(CHECK, status, found).of(name);
    let advise = |check: Check| {
        check.action(
            "set LUCID_CLIENT_CA (webhooks.clientCa of the chart); where API servers present no certificate, restrict callers \
             by a NetworkPolicy: docs/authentication.md",
        )
    };
    match (open.is_empty(), closed, demanded) {
        (false, _, _) => advise(check(
            Status::Warning,
            format!("calls without a client certificate are accepted by {}", open.join(", ")),
        )),
        (true, 1.., _) => check(Status::Ok, "calls without a client certificate are rejected".to_owned()),
        (true, 0, Some(true)) => check(Status::Ok, "the settings require a client certificate".to_owned()),
        (true, 0, Some(false)) => advise(check(
            Status::Warning,
            "the settings require no client certificate: any client with network access can call the webhooks".to_owned(),
        )),
        (true, 0, None) => check(Status::Unknown, "no server is reachable from here, or none responded as a webhook".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_webhooks_own_response_counts_as_open() {
        for (statuses, expected) in [
            (&[400][..], Status::Warning),
            (&[403], Status::Ok),
            (&[403, 400], Status::Warning),
            (&[404], Status::Unknown),
            (&[429, 503, 200], Status::Unknown),
            (&[503, 403], Status::Ok),
            (&[], Status::Unknown),
        ] {
            let found: Vec<_> =
                statuses.iter().map(|status| ("192.0.2.1:443", Ok((*status, String::new())))).collect();
            assert_eq!(conclude("web", &found, None).status, expected, "{statuses:?}");
        }
    }
}
