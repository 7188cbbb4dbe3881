//! Shared test helpers.

pub(crate) mod following;
pub(crate) mod handshake;
pub(crate) mod pairs;

use std::time::{Duration, SystemTime};

use lucid_certs::ServingNames;

pub(crate) const HOUR: Duration = Duration::from_hours(1);
pub(crate) const DAY: Duration = Duration::from_hours(24);

pub(crate) fn names() -> ServingNames {
    ServingNames::for_services("lucid-system", &["lucid-operator", "lucid-operator-webhook"])
        .and_then(|names| names.with_host("127.0.0.1"))
        .unwrap()
}

/// Current time in whole seconds, the resolution of certificates.
pub(crate) fn now() -> SystemTime {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    SystemTime::UNIX_EPOCH + Duration::from_secs(since.as_secs())
}

pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    std::iter::successors(Some(error), |error| error.source()).map(|error| error.to_string() + ": ").collect()
}

pub(crate) fn certificate_pem(der: &[u8]) -> String {
    use base64::{Engine, prelude::BASE64_STANDARD};
    format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", BASE64_STANDARD.encode(der))
}
