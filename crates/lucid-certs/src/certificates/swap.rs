//! Decides when to swap the serving certificate. Pure functions of the observed state.

use std::{
    collections::BTreeMap,
    time::{Duration, SystemTime},
};

use crate::{fingerprint::Fingerprint, names::ServingNames, serving::ServingCertificate, target::Reading};

/// Reading of each target by name, or `None` if the target could not be read.
pub(super) type Readings<'a> = Vec<(&'a str, Option<&'a Reading>)>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Swap {
    /// The certificate is already in service.
    None,
    Now,
    Wait(Duration),
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Candidate {
    /// `true` if the callers of all targets accept the offered certificate.
    pub(crate) is_accepted: bool,
    /// Time until every target has trusted its issuer for the settle time; `None` if some target does not
    /// trust it.
    pub(crate) settled_in: Option<Duration>,
    /// `true` if the callers of some target are known to reject the certificate in service.
    pub(crate) is_other_rejected: bool,
    pub(crate) is_other_over: bool,
}

/// Retry interval if it is unknown when callers will accept a certificate.
const RETRY_INTERVAL: Duration = Duration::from_secs(5);

impl Swap {
    pub(super) fn decide(
        candidate: &ServingCertificate,
        serving: Option<&ServingCertificate>,
        readings: &Readings<'_>,
        names: &ServingNames,
        serving_names: &ServingNames,
        settled_in: Option<Duration>,
        now: SystemTime,
    ) -> Self {
        let Some(serving) = serving else { return Self::Now };
        if serving.fingerprint() == candidate.fingerprint() {
            return Self::None;
        }
        Self::of(Candidate {
            is_accepted: refusal(candidate, readings, names, now).is_none(),
            settled_in,
            is_other_rejected: is_rejected(serving, readings, serving_names, now),
            is_other_over: serving.validity().is_over(now),
        })
    }

    /// Decides by the state of both certificates. Swaps immediately if the certificate in service has expired, or
    /// if callers reject it and accept the candidate; otherwise after the settle time of the candidate's issuer.
    pub(crate) fn of(candidate: Candidate) -> Self {
        if candidate.is_other_over {
            return Self::Now;
        }
        if !candidate.is_accepted {
            return Self::Wait(RETRY_INTERVAL);
        }
        if candidate.is_other_rejected {
            return Self::Now;
        }
        match candidate.settled_in {
            Some(wait) if wait.is_zero() => Self::Now,
            Some(wait) => Self::Wait(wait),
            None => Self::Wait(RETRY_INTERVAL),
        }
    }
}

/// Returns why the callers of some target reject the certificate or, for an unreadable target, might reject
/// it.
pub(super) fn refusal(
    certificate: &ServingCertificate,
    readings: &Readings<'_>,
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

/// Returns `true` if the callers of some target are known to reject the certificate.
fn is_rejected(
    certificate: &ServingCertificate,
    readings: &Readings<'_>,
    names: &ServingNames,
    now: SystemTime,
) -> bool {
    !certificate.validity().contains(now)
        || readings.iter().filter_map(|(_, it)| *it).any(|it| !it.accepts(certificate, names, now))
}

/// Returns the time until every target has trusted an issuer of the certificate for `settle`; `None` if no
/// issuer is trusted.
pub(super) fn settled_in(
    certificate: &ServingCertificate,
    readings: &Readings<'_>,
    trusted_for: &BTreeMap<Fingerprint, Duration>,
    settle: Duration,
    now: SystemTime,
) -> Option<Duration> {
    let bundles = readings.iter().filter_map(|(_, reading)| reading.as_ref()?.bundle());
    let Some(live) = bundles.reduce(|all, bundle| all.merge(&bundle)) else {
        // No target holds a bundle, so no caller uses one.
        return Some(Duration::ZERO);
    };
    let issues = |fingerprint: &Fingerprint| {
        let issuer = live.filter(|held, _| held == fingerprint);
        issuer.is_some_and(|issuer| certificate.verify_chain(&issuer, now).is_ok())
    };
    let issuers = trusted_for.iter().filter(|(fingerprint, _)| issues(fingerprint));
    issuers.map(|(_, trusted)| settle.saturating_sub(*trusted)).min()
}
