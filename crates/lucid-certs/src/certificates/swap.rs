//! Whether it is time to serve another certificate, as a function of what was seen

use std::{
    collections::BTreeMap,
    time::{Duration, SystemTime},
};

use crate::{fingerprint::Fingerprint, names::ServingNames, serving::ServingCertificate, target::Reading};

type Readings = BTreeMap<String, Option<Reading>>;

/// What to do with a certificate that is offered
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Swap {
    /// It is served already.
    None,
    /// Serve it.
    Now,
    /// Not yet; look again then.
    Wait(Duration),
}

/// What is known of the certificate that is offered in place of another
#[derive(Debug, Clone, Copy)]
pub(crate) struct Candidate {
    /// Whether callers of all targets accept it
    pub(crate) is_accepted: bool,
    /// How long until every target has trusted its issuer for long enough, if it does
    pub(crate) settled_in: Option<Duration>,
    /// Whether callers of some target are known to refuse the one in service
    pub(crate) is_other_rejected: bool,
    /// Whether the one in service is expired
    pub(crate) is_other_over: bool,
}

/// How soon it is looked again when nobody can say when callers will accept a certificate
const LOOK_AGAIN: Duration = Duration::from_secs(5);

impl Swap {
    pub(super) fn decide(
        candidate: &ServingCertificate,
        serving: Option<&ServingCertificate>,
        readings: &Readings,
        names: &ServingNames,
        trusted_for: &BTreeMap<Fingerprint, Duration>,
        settle: Duration,
        now: SystemTime,
    ) -> Self {
        let Some(serving) = serving else {
            return Self::Now;
        };
        if serving.fingerprint() == candidate.fingerprint() {
            return Self::None;
        }
        Self::of(Candidate {
            is_accepted: accepted(candidate, readings, names, now),
            settled_in: settled_in(candidate, readings, trusted_for, settle, now),
            is_other_rejected: rejected(serving, readings, names, now),
            is_other_over: serving.validity().is_over(now),
        })
    }

    /// A certificate takes the place of another when every target has trusted its issuer for long enough. When callers
    /// do not accept what is served, there is nothing to wait for.
    pub(crate) fn of(candidate: Candidate) -> Self {
        if candidate.is_other_over {
            return Self::Now;
        }
        if !candidate.is_accepted {
            return Self::Wait(LOOK_AGAIN);
        }
        if candidate.is_other_rejected {
            return Self::Now;
        }
        match candidate.settled_in {
            Some(wait) if wait.is_zero() => Self::Now,
            Some(wait) => Self::Wait(wait),
            None => Self::Wait(LOOK_AGAIN),
        }
    }
}

/// Whether callers that use any target accept this certificate, as far as all targets are known
pub(super) fn accepted(
    certificate: &ServingCertificate,
    readings: &Readings,
    names: &ServingNames,
    now: SystemTime,
) -> bool {
    refusal(certificate, readings, names, now).is_none()
}

/// Why callers that use some target refuse this certificate, or may refuse it because nobody knows
pub(super) fn refusal(
    certificate: &ServingCertificate,
    readings: &Readings,
    names: &ServingNames,
    now: SystemTime,
) -> Option<String> {
    let (fingerprint, validity) = (certificate.fingerprint(), certificate.validity());
    if !validity.contains(now) {
        return Some(format!("{fingerprint} is valid from {validity}"));
    }
    readings.iter().find_map(|(target, reading)| match reading {
        None => Some(format!("{target} could not be read yet")),
        Some(reading) => reading.refusal(certificate, names, now).map(|why| format!("{target}: {why}")),
    })
}

/// Whether callers that use some target are known to refuse it
fn rejected(
    certificate: &ServingCertificate,
    readings: &Readings,
    names: &ServingNames,
    now: SystemTime,
) -> bool {
    !certificate.validity().contains(now)
        || readings.values().flatten().any(|reading| !reading.accepts(certificate, names, now))
}

/// How long until every target has trusted an issuer of the certificate for `settle`; `None` when none is trusted
pub(super) fn settled_in(
    certificate: &ServingCertificate,
    readings: &Readings,
    trusted_for: &BTreeMap<Fingerprint, Duration>,
    settle: Duration,
    now: SystemTime,
) -> Option<Duration> {
    let bundles = readings.values().flatten().filter_map(Reading::bundle);
    let Some(live) = bundles.reduce(|all, bundle| all.merge(&bundle)) else {
        // Nobody is called through any target.
        return Some(Duration::ZERO);
    };
    let issues = |fingerprint: &Fingerprint| {
        let issuer = live.filter(|held, _| held == fingerprint);
        issuer.is_some_and(|issuer| certificate.verify_chain(&issuer, now).is_ok())
    };
    let issuers = trusted_for.iter().filter(|(fingerprint, _)| issues(fingerprint));
    issuers.map(|(_, trusted)| settle.saturating_sub(*trusted)).min()
}
