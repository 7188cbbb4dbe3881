//! Settings of replicas with another configuration, as during a roll-out that changes them.
//!
//! Each replica that injects publishes its settings in ConfigMap [`CONFIG_MAP`] of its namespace and renews them there. Other
//! replicas validate a pod that does not fit their own settings by the published ones, too. What a pod says of itself plays
//! no part: an author can no more choose a generation than the replica that is called.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::Settings;
use crate::namespaces::Data;

/// ConfigMap with the settings of all replicas, by generation.
pub(crate) const CONFIG_MAP: &str = "lucid-generations";
/// Interval in which a replica renews its generation.
pub(crate) const RENEW_INTERVAL: Duration = Duration::from_secs(20);
/// Time without renewal after which no replica has a generation any more.
const EXPIRY: Duration = Duration::from_secs(60);
/// Maximum duration of a roll-out, from the first sight of a generation. Settings that differ for longer are a mistake.
const ROLL_OUT: Duration = Duration::from_mins(15);
/// Time without renewal after which a generation is deleted from the ConfigMap.
const KEPT: SignedDuration = SignedDuration::from_hours(1);

/// Value of a key of the ConfigMap.
#[derive(Serialize, Deserialize)]
struct Published {
    settings: Settings,
    renewed: Timestamp,
}

/// Identifier of settings.
pub(crate) fn id(settings: &Settings) -> String {
    // Settings have a JSON form: their keys are strings.
    let json = serde_json::to_vec(settings).unwrap_or_default();
    Sha256::digest(json).iter().take(6).map(|byte| format!("{byte:02x}")).collect()
}

/// The value that publishes `settings`.
pub(crate) fn published(settings: &Settings) -> Result<String, serde_json::Error> {
    serde_json::to_string(&Published { settings: settings.clone(), renewed: Timestamp::now() })
}

/// Generations of other replicas.
#[derive(Debug, Default)]
pub(crate) struct Generations(BTreeMap<String, Generation>);

#[derive(Debug)]
struct Generation {
    settings: Settings,
    renewed: Timestamp,
    first_seen: Instant,
    /// When a renewal was seen; `None` for a generation that was over when this process started.
    last_seen: Option<Instant>,
}

impl Generations {
    /// Takes the content of the ConfigMap; `own` is left out.
    pub(crate) fn set(&mut self, data: &Data, own: &str) {
        let (now, wall) = (Instant::now(), Timestamp::now());
        self.0.retain(|id, _| data.contains_key(id));
        for (id, value) in data.iter().filter(|(id, _)| *id != own) {
            let Published { settings, renewed } = match serde_json::from_str(value) {
                Ok(published) => published,
                Err(error) => {
                    tracing::warn!(generation = id, %error, "failed to read ConfigMap {CONFIG_MAP}");
                    continue;
                }
            };
            match self.0.get_mut(id) {
                Some(known) if known.renewed == renewed => {}
                Some(known) => {
                    known.renewed = renewed;
                    known.last_seen = Some(now);
                }
                None => {
                    let age = wall.duration_since(renewed).unsigned_abs();
                    let last_seen = (age < EXPIRY).then_some(now);
                    self.0.insert(id.clone(), Generation { settings, renewed, first_seen: now, last_seen });
                }
            }
        }
    }

    /// Generations whose chains are accepted at `now`, with their settings.
    pub(crate) fn accepted(&self, now: Instant) -> impl Iterator<Item = (&String, &Settings)> {
        let is_accepted = move |generation: &Generation| {
            now.saturating_duration_since(generation.first_seen) < ROLL_OUT
                && generation.last_seen.is_some_and(|seen| now.saturating_duration_since(seen) < EXPIRY)
        };
        let accepted = self.0.iter().filter(move |(_, generation)| is_accepted(generation));
        accepted.map(|(id, generation)| (id, &generation.settings))
    }

    /// Generations that no replica has had for an hour.
    pub(crate) fn obsolete(&self) -> Vec<String> {
        let now = Timestamp::now();
        let obsolete = self.0.iter().filter(|(_, generation)| now.duration_since(generation.renewed) > KEPT);
        obsolete.map(|(id, _)| id.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(chain: &str) -> Settings {
        Settings { chain: Some(vec![chain.to_owned()]), ..Settings::default() }
    }

    fn value(settings: &Settings, age: i64) -> String {
        let renewed = Timestamp::now() - SignedDuration::from_secs(age);
        serde_json::to_string(&Published { settings: settings.clone(), renewed }).unwrap()
    }

    fn accepted(generations: &Generations, after: u64) -> Vec<String> {
        let now = Instant::now() + Duration::from_secs(after);
        generations.accepted(now).map(|(id, _)| id.clone()).collect()
    }

    #[test]
    fn a_generation_is_accepted_while_it_is_renewed_and_no_longer_than_a_roll_out() {
        let (own, other) = (settings("pii"), settings("toxicity"));
        let mut generations = Generations::default();
        let data = |age| [(id(&own), value(&own, age)), (id(&other), value(&other, age))].into();
        generations.set(&data(30), &id(&own));
        assert_eq!(accepted(&generations, 59), [id(&other)]);
        assert!(accepted(&generations, 61).is_empty());
        generations.set(&data(0), &id(&own));
        assert_eq!(accepted(&generations, 59), [id(&other)]);
        let generation = generations.0.values_mut().next().unwrap();
        generation.last_seen = Some(Instant::now() + ROLL_OUT);
        assert_eq!(accepted(&generations, ROLL_OUT.as_secs() - 1), [id(&other)]);
        assert!(accepted(&generations, ROLL_OUT.as_secs() + 1).is_empty());
        generations.set(&Data::new(), &id(&own));
        assert!(accepted(&generations, 0).is_empty());
    }

    #[test]
    fn a_generation_of_the_past_is_accepted_once_it_is_renewed() {
        let other = settings("toxicity");
        let mut generations = Generations::default();
        generations.set(&[(id(&other), value(&other, 4000))].into(), "own");
        assert!(accepted(&generations, 0).is_empty());
        assert_eq!(generations.obsolete(), [id(&other)]);
        generations.set(&[(id(&other), value(&other, 1))].into(), "own");
        assert_eq!(accepted(&generations, 0), [id(&other)]);
        assert!(generations.obsolete().is_empty());
    }

    #[test]
    fn settings_are_read_back_as_they_were_published() {
        use lucid_chain::{AuditMode, Direction, Intercept, Overrides, SidecarMode, SkipPolicy};
        let settings = Settings {
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
            image_pull_secrets: vec!["registry".to_owned()],
            namespaces: false,
        };
        for settings in [settings, Settings::default()] {
            let read: Published = serde_json::from_str(&published(&settings).unwrap()).unwrap();
            assert_eq!((id(&read.settings), read.settings), (id(&settings), settings));
        }
    }

    #[test]
    fn a_value_that_cannot_be_read_is_left_out() {
        let mut generations = Generations::default();
        generations.set(&[("x".to_owned(), "{}".to_owned())].into(), "own");
        assert!(accepted(&generations, 0).is_empty());
    }
}
