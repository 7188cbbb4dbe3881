//! A certificate authority managed by the replicas themselves.

mod contents;
mod leaf;
mod report;
mod request;
mod store;

use std::{
    collections::BTreeSet,
    fmt,
    time::{Duration, Instant, SystemTime},
};

use futures::{StreamExt, stream::BoxStream};
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client, core::PartialObjectMeta, runtime::events::Reporter};

pub use self::request::{CaStatus, RotationRequest};
use self::{
    contents::{Contents, is_ours, salvage},
    leaf::Leaves,
    report::{Repair, Report},
    store::Store,
};
use crate::{
    bundle::TrustBundle,
    ca::CertificateAuthority,
    names::ServingNames,
    rotation::{Ca, KnownSince, Seen, Step},
    source::{CertificateSource, ObservedTrust, Offer, Reason, Rotation, SourceError, Trust},
    target::Contention,
    timing::Timing,
    watch,
};
use lucid_text::with_causes;

/// Attempts to write the Secret before backing off. Each conflict means that another replica has made
/// progress.
const ATTEMPTS: u32 = 8;

/// A source with its own certificate authority, which all replicas share in a Secret of type
/// `kubernetes.io/tls`.
///
/// There is no leader. A replica that finds no CA generates one and creates the Secret. A replica that finds
/// a rotation step due writes it, conditional on the `resourceVersion` that it read. On concurrent writes one
/// replica succeeds and the others continue from its result.
///
/// | key | content |
/// |---|---|
/// | `tls.crt`, `tls.key` | the signing CA |
/// | `next.crt`, `next.key` | the next signing CA, during a rotation |
/// | `ca.crt` | all trusted CAs, newest first |
/// | `rotation.json` | retirement times of previous CAs, revoked CAs and pending rotation requests |
///
/// # External changes to the Secret
///
/// - **Deleted**: a running replica restores it from memory and starts a rotation. Deleting the Secret is
///   therefore a safe way to request one. If no replica is running, the next one generates a new CA.
/// - **Corrupt** (missing or malformed certificate or key, mismatch, not a CA, not for our names): restored
///   from memory or, without memory, replaced by a new CA, with a Warning event. Damage to other keys is
///   repaired.
/// - **Foreign**: an externally created CA that may sign for our names becomes the next signer. Running
///   replicas restore the previous signer until callers trust the new one. If none is running, it signs
///   immediately. It is renewed like a generated CA.
/// - **Restored from a backup**: handled like a foreign CA, unless its CA was revoked.
///
/// # Permissions
///
/// - `get`, `list`, `watch`, `create`, `patch` and `update` on the Secret; `resourceNames` is sufficient,
///   also for `create`, because the Secret is created by server-side apply
/// - `create` and `patch` on `events` of `events.k8s.io` in its namespace
/// - with [`with_shared_leaf`](Self::with_shared_leaf), `get`, `create`, `patch` and `update` on that Secret
pub struct SelfManaged {
    store: Store,
    changes: BoxStream<'static, ()>,
    report: Report,
    names: ServingNames,
    timing: Timing,
    leaves: Leaves,
    /// Last known content of the Secret, used to restore it.
    memory: Option<Memory>,
    known_since: KnownSince,
    contention: Contention,
}

#[derive(Debug)]
struct Memory {
    /// `resourceVersion` of the Secret that `contents` was read from.
    version: Option<String>,
    contents: Contents,
}

impl SelfManaged {
    pub(crate) fn new(
        client: Client,
        namespace: &str,
        secret: &str,
        names: ServingNames,
        timing: Timing,
    ) -> Self {
        let watched: Api<PartialObjectMeta<Secret>> = Api::namespaced(client.clone(), namespace);
        Self {
            store: Store::new(client.clone(), namespace, secret),
            changes: watch::changes(watched, watch::only(secret), format!("Secret {namespace}/{secret}")),
            report: Report::new(client, secret.into()),
            names,
            timing,
            leaves: Leaves::default(),
            memory: None,
            known_since: KnownSince::default(),
            contention: Contention::default(),
        }
    }

    /// Sets the reporting controller of events on the Secret, by default its name.
    #[must_use]
    pub fn with_reporter(mut self, reporter: Reporter) -> Self {
        self.report.set_reporter(reporter);
        self
    }

    /// Shares one serving certificate between all replicas, in a second Secret of type `kubernetes.io/tls`.
    /// By default each replica keeps its own in memory. Use it if another component needs the certificate,
    /// such as a proxy.
    #[must_use]
    pub fn with_shared_leaf(mut self, client: Client, namespace: &str, secret: &str) -> Self {
        self.leaves = Leaves::shared(Store::new(client, namespace, secret));
        self
    }

    /// Reads the Secret, performs all due steps and returns the resulting contents.
    async fn update_secret(
        &mut self,
        observed: &ObservedTrust,
        now: SystemTime,
    ) -> Result<Contents, SourceError> {
        for attempt in 0..ATTEMPTS {
            if attempt > 0 {
                tokio::time::sleep(pause(attempt)).await;
            }
            let secret = self.store.get().await?;
            if let Some(contents) = self.proceed(secret, observed, now).await? {
                return Ok(contents);
            }
        }
        let problem =
            format!("failed to update {}: it was changed concurrently {ATTEMPTS} times in a row", self.store);
        Err(SourceError::new(Reason::Unreadable, problem))
    }

    /// Continues from the content of the Secret. Returns `None` on a write conflict.
    async fn proceed(
        &mut self,
        mut secret: Option<Secret>,
        observed: &ObservedTrust,
        now: SystemTime,
    ) -> Result<Option<Contents>, SourceError> {
        let (mut contents, repair) = self.interpret(secret.as_ref(), observed, now)?;
        if let Some((repair, why)) = repair {
            // Two deployments with different names, for example, each find the other's CA unusable.
            let pause = self.contention.heal_after(Instant::now());
            if !pause.is_zero() {
                let problem = format!(
                    "{} is overwritten repeatedly by another client and repaired once a minute: {why}",
                    self.store
                );
                return Err(SourceError::new(Reason::Malformed, problem));
            }
            self.contention.note_healed(Instant::now());
            match put(&self.store, secret.as_ref(), &contents).await? {
                Some(written) => secret = Some(written),
                None => return Ok(None),
            }
            self.report
                .repair(repair, &why, &self.store.reference(secret.as_ref()), &contents.shared.signer)
                .await;
        }
        self.remember(secret.as_ref(), &contents);

        loop {
            let issuer = self.leaves.issuer();
            let superseded_for = self.known_since.superseded_for(Instant::now());
            let seen = Seen {
                trusted_for: &observed.trusted_for,
                issuer: issuer.as_ref().map(|(ca, _)| *ca),
                superseded_for: &superseded_for,
            };
            let step = contents.shared.step(seen, &self.timing, now);
            if step == Step::None {
                return Ok(Some(contents));
            }
            let new = match step {
                Step::Publish | Step::Replace => Some(self.generate(now)?),
                _ => None,
            };
            let recorded = issuer.map(|(_, bundle)| bundle);
            let after = contents.after(step, new, recorded.as_ref(), &self.timing, now);
            match put(&self.store, secret.as_ref(), &after).await? {
                Some(written) => secret = Some(written),
                None => return Ok(None),
            }
            self.report
                .step(step, &self.store.reference(secret.as_ref()), &contents.shared, &after.shared)
                .await;
            contents = after;
            self.remember(secret.as_ref(), &contents);
        }
    }

    /// Returns the intended contents, and why they differ from the Secret, if they do.
    fn interpret(
        &self,
        secret: Option<&Secret>,
        observed: &ObservedTrust,
        now: SystemTime,
    ) -> Result<(Contents, Option<(Repair, String)>), SourceError> {
        let Some(secret) = secret else {
            return match &self.memory {
                // Deleting the Secret requests a rotation. The current CA signs until the next one is
                // trusted. The memory may be outdated; the targets hold all CAs in use.
                Some(memory) => {
                    let contents = self.recall(memory, observed, now).with_request(false);
                    Ok((contents, Some((Repair::Deleted, "deleted".to_owned()))))
                }
                None => {
                    let contents = self.create(trusted_by_callers(observed), now)?;
                    Ok((contents, Some((Repair::Created, "the Secret did not exist".to_owned()))))
                }
            };
        };
        if let Some(memory) = &self.memory
            && memory.version == secret.metadata.resource_version
        {
            return Ok((memory.contents.clone(), None));
        }
        let found = Contents::read(secret, Some(&self.names), &self.timing, now);
        let Some(memory) = &self.memory else {
            return match found {
                Ok(found) => {
                    let contents = if is_ours(secret) {
                        found.contents
                    } else {
                        // A foreign Secret cannot know the CAs in use.
                        found.contents.adopting(trusted_by_callers(observed).as_ref(), &self.timing, now)
                    };
                    Ok((contents, found.damage.map(|damage| (Repair::Mended, damage))))
                }
                Err(unusable) => {
                    let trusted = [trusted_by_callers(observed), salvage(secret)].into_iter().flatten();
                    let trusted = trusted.reduce(|all, bundle| all.merge(&bundle));
                    let contents = self.create(trusted, now)?.with_rotation_of(secret, &self.timing, now);
                    Ok((contents, Some((Repair::Replaced, unusable.problem))))
                }
            };
        };
        let found = match found {
            Ok(found) => found,
            Err(unusable) => {
                let contents = self.recall(memory, observed, now);
                return Ok((contents, Some((Repair::Restored, unusable.problem))));
            }
        };
        let signer = found.contents.shared.signer;
        if memory.contents.shared.retired.contains(&signer) {
            let why =
                format!("tls.crt holds the certificate authority {}, which was revoked", signer.fingerprint);
            return Ok((self.recall(memory, observed, now), Some((Repair::Restored, why))));
        }
        let why = match found.damage {
            Some(damage) => damage,
            None if found.contents.shared.lacks_records_of(&memory.contents.shared, now) => {
                "records of revoked or previous authorities are missing".to_owned()
            }
            None => return Ok((found.contents, None)),
        };
        // The memory may be outdated; the targets hold all CAs in use.
        let contents = found.contents.with_memory(&memory.contents, &self.timing, now);
        Ok((
            contents.adopting(trusted_by_callers(observed).as_ref(), &self.timing, now),
            Some((Repair::Mended, why)),
        ))
    }

    fn remember(&mut self, secret: Option<&Secret>, contents: &Contents) {
        let version = secret.and_then(|secret| secret.metadata.resource_version.clone());
        self.known_since.observe(&contents.shared, Instant::now());
        self.memory = Some(Memory { version, contents: contents.clone() });
    }

    fn recall(&self, memory: &Memory, observed: &ObservedTrust, now: SystemTime) -> Contents {
        memory.contents.adopting(trusted_by_callers(observed).as_ref(), &self.timing, now)
    }

    fn create(&self, trusted: Option<TrustBundle>, now: SystemTime) -> Result<Contents, SourceError> {
        Ok(Contents::new(self.generate(now)?, trusted.as_ref(), &self.timing, now))
    }

    fn generate(&self, now: SystemTime) -> Result<CertificateAuthority, SourceError> {
        CertificateAuthority::generate_for(self.timing.ca_lifetime, &self.names, now).map_err(|error| {
            SourceError::new(
                Reason::Unreadable,
                format!("failed to generate a certificate authority: {}", with_causes(&error)),
            )
        })
    }
}

impl CertificateSource for SelfManaged {
    fn name(&self) -> &'static str {
        "self-managed"
    }

    async fn offer(&mut self, observed: &ObservedTrust, now: SystemTime) -> Result<Offer, SourceError> {
        self.leaves.observe(observed.serving.as_ref());
        // Taken before the Secret is read, so that the Secret contains all CAs recorded by then.
        let asked_at = Instant::now();
        let contents = self.update_secret(observed, now).await?;
        // The bundle does not depend on the certificate, and publishing it may resolve the problem.
        let next = self.leaves.next(&contents, &self.names, &self.timing, now).await;
        let (certificate, problem) = match next {
            Ok(certificate) => (Some(certificate), None),
            Err(problem) => (None, Some(problem)),
        };

        let (issuer, issuing) = self.leaves.issuer().unzip();
        let superseded_for = self.known_since.superseded_for(Instant::now());
        let seen = Seen { trusted_for: &observed.trusted_for, issuer, superseded_for: &superseded_for };
        let trusted = contents.shared.trusted(issuer, now);
        let trusted = contents.bundle_with(issuing.as_ref(), &trusted);
        let record_period = self.known_since.record_period(asked_at);
        let other_trusted =
            record_period.and_then(|_| other_trusted(observed, &contents.shared.retired, now));
        let trust =
            Trust::Exactly(other_trusted.iter().fold(trusted, |all, other_trusted| all.merge(other_trusted)));
        // A certificate that cannot be renewed is always due; the driver's backoff applies.
        let renewal = self.leaves.due_in(now).filter(|_| problem.is_none());
        let due_in = [contents.shared.due_in(seen, &self.timing, now), renewal, record_period];
        let due_in = due_in.into_iter().flatten().fold(self.timing.check_interval, Duration::min);
        Ok(Offer {
            certificate,
            trust,
            next_check: Some(due_in),
            problem,
            rotation: Some(Rotation {
                phase: contents.shared.phase(seen, &self.timing, now),
                ca: contents.shared.signer.validity,
                next: contents.shared.next.map(|next| next.validity),
            }),
        })
    }

    async fn changed(&mut self) {
        if self.changes.next().await.is_none() {
            std::future::pending::<()>().await;
        }
    }
}

impl fmt::Debug for SelfManaged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SelfManaged")
            .field("store", &self.store)
            .field("names", &self.names)
            .field("timing", &self.timing)
            .finish_non_exhaustive()
    }
}

async fn put(
    store: &Store,
    before: Option<&Secret>,
    contents: &Contents,
) -> Result<Option<Secret>, SourceError> {
    store.put(before, |secret| contents.write(secret)).await
}

/// Certificates in the targets. Replicas may serve under any of them.
fn trusted_by_callers(observed: &ObservedTrust) -> Option<TrustBundle> {
    let readings = observed.targets.values().flatten();
    let all = readings.filter_map(crate::target::Reading::bundle).reduce(|all, bundle| all.merge(&bundle))?;
    let mut room = MAX_ADOPTED;
    let newest = all.fingerprints().zip(all.certificates()).take_while(|(_, certificate)| {
        let fits = certificate.len() <= room;
        room = room.saturating_sub(certificate.len());
        fits
    });
    let newest: BTreeSet<_> = newest.map(|(fingerprint, _)| fingerprint).collect();
    all.filter(|fingerprint, _| newest.contains(fingerprint))
}

/// Certificates in the targets that are neither expired nor retired. Retired CAs are removed immediately.
fn other_trusted(observed: &ObservedTrust, retired: &BTreeSet<Ca>, now: SystemTime) -> Option<TrustBundle> {
    trusted_by_callers(observed)?.filter(|fingerprint, validity| {
        !validity.is_over(now) && !retired.contains(&Ca { fingerprint: *fingerprint, validity })
    })
}

/// Limit of adopted certificates, in bytes of DER. Exceeds the certificates in use; a Secret cannot hold
/// everything that can be written to targets.
const MAX_ADOPTED: usize = 64 * 1024;

/// Random backoff of about 10 ms, doubled with each attempt.
fn pause(attempt: u32) -> Duration {
    Duration::from_millis(10 << attempt.min(6)).mul_f64(0.5 + leaf::spread())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::Reading;

    const DAY: Duration = Duration::from_hours(24);

    fn now() -> SystemTime {
        SystemTime::UNIX_EPOCH + 20_000 * DAY
    }

    fn names() -> ServingNames {
        ServingNames::for_services("my-system", &["my-webhook"]).unwrap()
    }

    fn generate(at: SystemTime) -> CertificateAuthority {
        CertificateAuthority::generate(&names(), at).unwrap()
    }

    fn observed(pem: String) -> ObservedTrust {
        let reading = Reading::present("1", [("webhook".to_owned(), pem.into())]);
        ObservedTrust { targets: [("target".to_owned(), Some(reading))].into(), ..ObservedTrust::default() }
    }

    #[test]
    fn other_trusted_cas_are_kept_unless_retired_or_expired() {
        let [unknown, retired, expired] = [0, 1, 400].map(|days| generate(now() - days * DAY));
        let all = [&unknown, &retired, &expired].map(|ca| ca.trust_bundle().to_pem()).concat();
        let of_retired = BTreeSet::from([Ca::of(&retired)]);
        assert_eq!(other_trusted(&observed(all), &of_retired, now()), Some(unknown.trust_bundle()));
    }

    fn fresh(now: SystemTime) -> Contents {
        Contents::new(generate(now), None, &Timing::default(), now)
    }

    fn stored(contents: &Contents) -> Secret {
        let mut secret = Secret::default();
        contents.write(&mut secret);
        secret
    }

    fn read(secret: &Secret) -> Contents {
        Contents::read(secret, None, &Timing::default(), now()).unwrap().contents
    }

    #[test]
    fn a_revoked_ca_without_expiry_stays_revoked() {
        // 99991231235959Z means no expiry (RFC 5280).
        let lifetime = Duration::from_hours(24 * 366 * 9_000);
        let endless = Ca::of(&CertificateAuthority::generate_for(lifetime, &names(), now()).unwrap());
        let mut contents = fresh(now());
        contents.shared.retired.insert(endless);
        let found = read(&stored(&contents)).shared;
        assert!(found.retired.contains(&endless));
        let nothing = std::collections::BTreeMap::new();
        let cut_off = Seen { trusted_for: &nothing, issuer: Some(endless), superseded_for: &nothing };
        assert_eq!(found.step(cut_off, &Timing::default(), now()), Step::None);
    }

    #[test]
    fn an_urgent_request_is_never_downgraded() {
        let ordinary = fresh(now()).with_request(false);
        let urgent = ordinary.with_request(true);
        assert!(urgent.with_request(false).shared.request.unwrap().urgent);
        let restored = ordinary.with_memory(&urgent, &Timing::default(), now());
        assert!(restored.shared.request.unwrap().urgent);
    }

    #[test]
    fn an_urgent_request_drops_the_next_ca() {
        let timing = Timing::default();
        let next = generate(now());
        let leaked = Ca::of(&next);
        let contents = fresh(now()).after(Step::Publish, Some(next), None, &timing, now());
        let urgent = read(&stored(&contents.with_request(true)));
        assert_eq!(urgent.shared.next, None);
        assert!(urgent.shared.retired.contains(&leaked));
        let settled = [(leaked.fingerprint, timing.settle)].into();
        let seen = Seen { trusted_for: &settled, issuer: None, superseded_for: &settled };
        assert_eq!(urgent.shared.step(seen, &timing, now()), Step::Publish);
    }

    #[test]
    fn revocations_survive_the_loss_of_the_ca() {
        let timing = Timing::default();
        let [revoked, before] = [1, 2].map(|days| {
            let ca = generate(now() - days * DAY);
            (Ca::of(&ca), ca.trust_bundle())
        });
        let trusted = revoked.1.merge(&before.1);
        let soon = now() + Duration::from_mins(3);
        let mut contents = fresh(now()).adopting(Some(&trusted), &timing, now());
        contents.shared.previous = [(before.0, soon)].into();
        contents.shared.retired.insert(revoked.0);
        let secret = stored(&contents);
        let again = fresh(now()).adopting(Some(&trusted), &timing, now());
        let again = again.with_rotation_of(&secret, &timing, now()).shared;
        assert!(again.retired.contains(&revoked.0));
        assert_eq!(again.previous, [(before.0, soon)].into());
    }

    #[test]
    fn adopted_certificates_fit_into_a_secret() {
        let ca = generate(now());
        let leaf = |_| ca.issue(&names(), now()).unwrap().certificate().clone();
        let pem: String = (0..200).map(leaf).map(|leaf| crate::pem::encode_certificate(&leaf)).collect();
        let adopted = trusted_by_callers(&observed(pem)).unwrap().to_pem();
        assert!((32 * 1024..2 * MAX_ADOPTED).contains(&adopted.len()), "{}", adopted.len());
    }
}
