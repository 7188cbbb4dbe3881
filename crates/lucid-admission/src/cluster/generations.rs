//! Settings of replicas with another configuration, as during a roll-out that changes them.
//!
//! Each replica that injects publishes its settings in ConfigMap [`CONFIG_MAP`] of its namespace and renews them there.
//! Other replicas also evaluate a pod by the published settings if it does not conform to their own. The author of a
//! pod cannot choose a generation: nothing in the pod names it.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use lucid_chain::{Catalogue, Configuration};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::ChainSettings;
use crate::cluster::namespaces::Data;

/// ConfigMap with the settings of all replicas, by generation.
pub const CONFIG_MAP: &str = "lucid-generations";
pub(crate) const RENEW_INTERVAL: Duration = Duration::from_secs(20);
/// Time without renewal after which a generation counts as unused.
const EXPIRY: Duration = Duration::from_secs(60);
/// Maximum duration of a roll-out, from the first observed renewal. Settings that differ for longer indicate a
/// misconfiguration.
const ROLL_OUT: Duration = Duration::from_mins(15);
/// Maximum number of accepted generations: each costs another evaluation of a pod.
const MOST: usize = 4;
/// Time without renewal after which a generation is deleted from the ConfigMap.
const KEPT: SignedDuration = SignedDuration::from_hours(1);

#[derive(Serialize, Deserialize)]
struct Published {
    settings: ChainSettings,
    renewed: Timestamp,
}

/// Returns `settings` with the defaults of this version of Lucid, which may differ between versions.
pub(crate) fn resolved(settings: &ChainSettings) -> ChainSettings {
    let mut resolved = settings.clone();
    let Ok(builtin) = Configuration::new(Catalogue::builtin(), None) else { return resolved };
    let names = || builtin.chain().iter().map(|auditor| auditor.name().to_owned()).collect();
    resolved.chain.get_or_insert_with(names);
    resolved.init_image.get_or_insert_with(|| builtin.init_image.clone());
    let egress = || builtin.catalogue().egress()?.image().parse().ok();
    resolved.egress_image = resolved.egress_image.or_else(egress);
    resolved
}

pub(crate) fn id(settings: &ChainSettings) -> String {
    // Serialization cannot fail: all map keys are strings.
    let json = serde_json::to_vec(settings).unwrap_or_default();
    Sha256::digest(json).iter().take(6).map(|byte| format!("{byte:02x}")).collect()
}

pub(crate) fn published(settings: &ChainSettings) -> Result<String, serde_json::Error> {
    serde_json::to_string(&Published { settings: settings.clone(), renewed: Timestamp::now() })
}

#[derive(Debug, Default)]
pub(crate) struct Generations {
    by_id: BTreeMap<String, Generation>,
    /// Generations whose value cannot be read, for example from another version. Each is reported once.
    unreadable: BTreeSet<String>,
}

#[derive(Debug)]
struct Generation {
    settings: ChainSettings,
    renewed: Timestamp,
    /// Times of the first and of the latest renewal, without a gap in between; `None` while no replica is known to use
    /// it.
    seen: Option<(Instant, Instant)>,
}

impl Generation {
    /// Records a renewal observed at `now`. After a gap the period begins anew, for example when a roll-out is
    /// reverted.
    fn renew(&mut self, now: Instant) {
        let first =
            self.seen.filter(|&(_, last)| is_within(last, now, EXPIRY)).map_or(now, |(first, _)| first);
        self.seen = Some((first, now));
    }

    fn is_accepted(&self, now: Instant) -> bool {
        self.seen.is_some_and(|(first, last)| is_within(first, now, ROLL_OUT) && is_within(last, now, EXPIRY))
    }
}

fn is_within(begin: Instant, now: Instant, limit: Duration) -> bool {
    now.saturating_duration_since(begin) < limit
}

impl Generations {
    /// Sets the content of the ConfigMap at `now`; `own` is left out.
    pub(crate) fn set(&mut self, data: &Data, own: &str, now: Instant) {
        let wall = Timestamp::now();
        self.by_id.retain(|id, _| data.contains_key(id));
        self.unreadable.retain(|id| data.contains_key(id));
        for (id, value) in data.iter().filter(|(id, _)| *id != own) {
            let Published { settings, renewed } = match serde_json::from_str(value) {
                Ok(published) => published,
                Err(error) => {
                    if self.unreadable.insert(id.clone()) {
                        tracing::warn!(generation = id, %error, "failed to read ConfigMap {CONFIG_MAP}");
                    }
                    continue;
                }
            };
            match self.by_id.get_mut(id) {
                Some(known) if known.renewed == renewed => {}
                Some(known) => {
                    known.renewed = renewed;
                    known.renew(now);
                }
                None => {
                    let is_recent = wall.duration_since(renewed).unsigned_abs() < EXPIRY;
                    let seen = is_recent.then_some((now, now));
                    self.by_id.insert(id.clone(), Generation { settings, renewed, seen });
                }
            }
        }
    }

    /// The latest [`MOST`] generations whose chains are accepted at `now`, with their settings.
    pub(crate) fn accepted(&self, now: Instant) -> impl Iterator<Item = (&String, &ChainSettings)> {
        let mut accepted: Vec<_> =
            self.by_id.iter().filter(|(_, generation)| generation.is_accepted(now)).collect();
        accepted.sort_by_key(|(_, generation)| Reverse(generation.seen));
        accepted.into_iter().take(MOST).map(|(id, generation)| (id, &generation.settings))
    }

    /// Generations that no replica has renewed for an hour.
    pub(crate) fn obsolete(&self) -> Vec<String> {
        let now = Timestamp::now();
        let obsolete =
            self.by_id.iter().filter(|(_, generation)| now.duration_since(generation.renewed) > KEPT);
        obsolete.map(|(id, _)| id.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(chain: &str) -> ChainSettings {
        ChainSettings { chain: Some(vec![chain.to_owned()]), ..ChainSettings::default() }
    }

    fn value(settings: &ChainSettings, age: i64) -> String {
        let renewed = Timestamp::now() - SignedDuration::from_secs(age);
        serde_json::to_string(&Published { settings: settings.clone(), renewed }).unwrap()
    }

    #[test]
    fn generations_expire_without_renewal_and_after_a_roll_out() {
        let (own, other) = (settings("pii"), settings("toxicity"));
        let mut generations = Generations::default();
        let begin = Instant::now();
        let at = |seconds| begin + Duration::from_secs(seconds);
        let set = |generations: &mut Generations, age, seconds| {
            let data = [(id(&own), value(&own, age)), (id(&other), value(&other, age))].into();
            generations.set(&data, &id(&own), at(seconds));
        };
        let accepted = |generations: &Generations, seconds| {
            generations.accepted(at(seconds)).map(|(id, _)| id.clone()).collect::<Vec<_>>()
        };
        set(&mut generations, 30, 0);
        assert_eq!(accepted(&generations, 59), [id(&other)]);
        assert!(accepted(&generations, 61).is_empty());
        for seconds in (20..=880).step_by(20) {
            set(&mut generations, 1000 - i64::try_from(seconds).unwrap(), seconds);
        }
        assert_eq!(accepted(&generations, 899), [id(&other)]);
        assert!(accepted(&generations, 901).is_empty());
        // A renewal after a gap is another roll-out, such as a rollback.
        set(&mut generations, 2, 960);
        assert_eq!(accepted(&generations, 961), [id(&other)]);
        generations.set(&Data::new(), &id(&own), at(962));
        assert!(accepted(&generations, 962).is_empty());
    }

    #[test]
    fn an_expired_generation_is_accepted_once_it_is_renewed() {
        let other = settings("toxicity");
        let mut generations = Generations::default();
        let now = Instant::now();
        generations.set(&[(id(&other), value(&other, 4000))].into(), "own", now);
        assert_eq!(generations.accepted(now).count(), 0);
        assert_eq!(generations.obsolete(), [id(&other)]);
        let later = now + ROLL_OUT;
        generations.set(&[(id(&other), value(&other, 1))].into(), "own", later);
        assert_eq!(generations.accepted(later).count(), 1);
        assert!(generations.obsolete().is_empty());
    }

    #[test]
    fn settings_are_read_back_as_they_were_published() {
        use lucid_chain::{AuditMode, Direction, Intercept, Overrides, SidecarMode, SkipPolicy};
        let settings = ChainSettings {
            chain: Some(vec!["injection".to_owned(), "pii".to_owned()]),
            overrides: Overrides {
                audit_mode: Some(AuditMode::Observe),
                target_port: "5001".parse().ok(),
                direction: Some(Direction::Both),
                sidecar_mode: Some(SidecarMode::Native),
                intercept: Some(Intercept::Env),
                outbound_port: "8001".parse().ok(),
            },
            skip: SkipPolicy::ServiceAccounts(["a/b".to_owned()].into()),
            init_image: Some("r.test/init:1".parse().unwrap()),
            egress_image: Some("r.test/egress:1".parse().unwrap()),
            image_pull_secrets: vec!["registry".to_owned()],
        };
        for settings in [settings, ChainSettings::default()] {
            let read: Published = serde_json::from_str(&published(&settings).unwrap()).unwrap();
            assert_eq!((id(&read.settings), read.settings), (id(&settings), settings));
        }
    }

    #[test]
    fn settings_of_other_versions_and_defaults_are_shared() {
        let published: Published =
            serde_json::from_str(r#"{"settings": {"later": 1}, "renewed": "2026-01-01T00:00:00Z"}"#).unwrap();
        assert_eq!(published.settings, ChainSettings::default());
        let resolved = resolved(&ChainSettings::default());
        assert_ne!(id(&resolved), id(&ChainSettings::default()));
        let image = concat!("ghcr.io/lucid/lucid-init:", env!("CARGO_PKG_VERSION"));
        assert_eq!(resolved.init_image.unwrap().to_string(), image);
        assert_eq!(resolved.chain.unwrap(), ["lucid-guardrails-auditor"; 2]);
    }

    #[test]
    fn generations_differ_in_the_image_of_lucid_egress() {
        let settings =
            |image: &str| ChainSettings { egress_image: image.parse().ok(), ..ChainSettings::default() };
        let planned = |settings: &ChainSettings, catalogue: &Catalogue| {
            let configuration = settings.configuration(catalogue.clone()).unwrap();
            (
                configuration.catalogue().egress().unwrap().image().to_owned(),
                configuration.catalogue().clone(),
            )
        };
        let default = ChainSettings::default();
        let before = planned(&default, &Catalogue::builtin()).0;
        let (after, own) = planned(&settings("r.test/egress:2"), &Catalogue::builtin());
        assert_eq!(after, "r.test/egress:2");
        for (other, image) in [(settings("r.test/egress:1"), "r.test/egress:1"), (default, &*before)] {
            assert_eq!(planned(&resolved(&other), &own).0, image);
        }
    }

    #[test]
    fn unreadable_values_are_omitted() {
        let mut generations = Generations::default();
        for value in ["{}", "{", "7"] {
            generations.set(&[("x".to_owned(), value.to_owned())].into(), "own", Instant::now());
        }
        assert_eq!(generations.accepted(Instant::now()).count(), 0);
        assert_eq!(generations.unreadable.len(), 1, "it is reported once");
    }
}
