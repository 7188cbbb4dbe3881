//! The Auditor objects of the cluster. No I/O.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;
use kube::api::DynamicObject;
use lucid_chain::{Auditor, Catalogue};
use serde::Deserialize;

use crate::cluster::auditor::{self, AuditorStatus};

/// Maximum number of objects in use, the oldest ones. The limit bounds the memory of the replicas.
const MOST: usize = 4096;
/// Maximum number of problems in the warnings for one pod.
const REPEATED: usize = 3;

/// State of one Auditor object, without its parsed content.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct AuditorObject {
    pub(crate) name: String,
    /// `metadata.generation`, which the API server increments with each change of `spec`.
    pub(crate) generation: i64,
    pub(crate) resource_version: String,
    /// `spec.image`, valid or not.
    pub(crate) image: String,
    /// `status`, empty if absent or invalid.
    pub(crate) status: AuditorStatus,
    pub(crate) acceptance: Acceptance,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Acceptance {
    Accepted,
    /// `spec` is invalid. Valid content that this replica has read before stays in force until the replica restarts.
    Invalid(String),
    /// An older object defines the same auditor.
    NameTaken(String),
    /// The number of objects exceeds the limit, and this one is not among the oldest.
    TooMany(String),
}

impl Acceptance {
    pub(crate) fn problem(&self) -> Option<&str> {
        match self {
            Self::Accepted => None,
            Self::Invalid(problem) | Self::NameTaken(problem) | Self::TooMany(problem) => Some(problem),
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Auditors {
    is_listed: bool,
    by_name: BTreeMap<String, Known>,
}

#[derive(Debug)]
struct Known {
    uid: String,
    created: Option<Time>,
    problem: Option<String>,
    good: Option<Auditor>,
    object: AuditorObject,
}

impl Auditors {
    pub(crate) const fn is_listed(&self) -> bool {
        self.is_listed
    }

    /// Replaces all objects. Objects that were known before keep their last valid content.
    pub(crate) fn set_all(&mut self, listed: Vec<DynamicObject>) {
        let names: BTreeSet<String> = listed.iter().map(ResourceExt::name_any).collect();
        self.by_name.retain(|name, _| names.contains(name));
        for object in listed {
            self.set(object);
        }
        self.is_listed = true;
    }

    pub(crate) fn set(&mut self, object: DynamicObject) {
        let name = object.name_any();
        let uid = object.uid().unwrap_or_default();
        let before = self.by_name.remove(&name).filter(|before| before.uid == uid);
        let generation = object.metadata.generation.unwrap_or_default();
        let (problem, good) = match before {
            // A change of the status or of managed fields does not require parsing.
            Some(before) if before.object.generation == generation && generation != 0 => {
                (before.problem, before.good)
            }
            before => {
                let good = before.and_then(|before| before.good);
                match auditor::read(&object) {
                    // Keeping the existing allocation makes later comparisons cheap.
                    Ok(read) => (None, good.filter(|good| *good == read).or(Some(read))),
                    Err(error) => {
                        tracing::warn!("{error}");
                        (Some(error.problem().to_owned()), good)
                    }
                }
            }
        };
        let known = Known {
            uid,
            created: object.metadata.creation_timestamp.clone(),
            problem,
            good,
            object: AuditorObject {
                name: name.clone(),
                generation,
                resource_version: object.resource_version().unwrap_or_default(),
                image: object.data["spec"]["image"].as_str().unwrap_or_default().to_owned(),
                status: AuditorStatus::deserialize(&object.data["status"]).unwrap_or_default(),
                acceptance: Acceptance::Accepted,
            },
        };
        self.by_name.insert(name, known);
    }

    pub(crate) fn remove(&mut self, name: &str) {
        self.by_name.remove(name);
    }

    /// Decides which objects are accepted. The result depends only on the objects, so all replicas agree.
    pub(crate) fn settle(&mut self) -> Catalogue {
        let mut oldest_first: Vec<&mut Known> = self.by_name.values_mut().collect();
        // The map is ordered by name, and the sort is stable.
        oldest_first.sort_by(|a, b| a.created.cmp(&b.created));
        let mut named: BTreeMap<String, String> = BTreeMap::new();
        let mut auditors = Vec::new();
        for (place, known) in oldest_first.into_iter().enumerate() {
            let name = &known.object.name;
            let short = lucid_chain::short_name(name).to_owned();
            known.object.acceptance = if place >= MOST {
                Acceptance::TooMany(format!(
                    "exceeds the limit of {MOST} Auditors; older ones take precedence"
                ))
            } else if let Some(older) = named.get(&short) {
                Acceptance::NameTaken(format!("the older Auditor {older} defines the same auditor"))
            } else {
                named.insert(short, name.clone());
                auditors.extend(known.good.clone());
                known.problem.clone().map_or(Acceptance::Accepted, Acceptance::Invalid)
            };
        }
        Catalogue::from_auditors(auditors)
    }

    /// Names of the objects without any valid content, after [`Self::settle`]. Auditors of the same name in a lower
    /// layer are not used instead of them.
    pub(crate) fn never_valid(&self) -> impl Iterator<Item = &str> {
        let all = self.by_name.values().filter(|known| known.good.is_none());
        let invalid = all.filter(|known| matches!(known.object.acceptance, Acceptance::Invalid(_)));
        invalid.map(|known| known.object.name.as_str())
    }

    /// Problems of rejected objects, after [`Self::settle`].
    pub(crate) fn problems(&self) -> Vec<String> {
        let unusable = self.by_name.values().filter_map(|known| {
            let problem = known.object.acceptance.problem()?;
            let kept = match (&known.object.acceptance, &known.good) {
                (Acceptance::Invalid(_), Some(_)) => "the last valid content stays in use",
                _ => "it is ignored",
            };
            Some(format!("Auditor {}: {problem}; {kept}", known.object.name))
        });
        let mut problems: Vec<String> = unusable.collect();
        if let Some(more) = problems.len().checked_sub(REPEATED).filter(|more| *more > 0) {
            problems.truncate(REPEATED);
            problems.push(format!("{more} more Auditors cannot be used: kubectl get auditors -o wide"));
        }
        problems
    }

    pub(crate) fn objects(&self) -> impl Iterator<Item = &AuditorObject> {
        self.by_name.values().map(|known| &known.object)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(name: &str, created: i64, generation: i64, image: &str) -> DynamicObject {
        let created = format!("2026-01-01T00:00:{created:02}Z");
        serde_json::from_value(json!({
            "apiVersion": "lucid.computing/v1", "kind": "Auditor",
            "metadata": {
                "name": name, "uid": format!("{name}-{created}"), "generation": generation,
                "creationTimestamp": created,
            },
            "spec": {"image": image},
        }))
        .unwrap()
    }

    fn images(auditors: &mut Auditors) -> Vec<String> {
        auditors.settle().auditors().iter().map(|auditor| auditor.image().to_owned()).collect()
    }

    #[test]
    fn the_last_valid_object_stays_in_force() {
        let mut auditors = Auditors::default();
        auditors.set_all(vec![
            object("a", 1, 1, "r.test/a"),
            object("b", 2, 1, "B!"),
            object("c", 3, 1, "r.test/c"),
        ]);
        assert_eq!(images(&mut auditors), ["r.test/a", "r.test/c"]);
        auditors.set(object("a", 1, 2, "A!"));
        assert_eq!(images(&mut auditors), ["r.test/a", "r.test/c"]);
        let problems = auditors.problems();
        assert!(problems[0].starts_with("Auditor a: spec.image"), "{problems:?}");
        assert!(problems[0].ends_with("the last valid content stays in use"), "{problems:?}");
        assert!(problems[1].ends_with("it is ignored"), "{problems:?}");
        // Another object of the same name.
        auditors.set(object("a", 9, 1, "A!"));
        assert_eq!(images(&mut auditors), ["r.test/c"]);
        auditors.set(object("a", 9, 2, "r.test/new"));
        auditors.remove("c");
        assert_eq!(images(&mut auditors), ["r.test/new"]);
    }

    #[test]
    fn the_oldest_of_conflicting_objects_applies() {
        let mut auditors = Auditors::default();
        auditors.set_all(vec![
            object("lucid-pii-auditor", 2, 1, "r.test/new"),
            object("pii", 1, 1, "r.test/old"),
        ]);
        assert_eq!(images(&mut auditors), ["r.test/old"]);
        let refused = auditors.objects().find(|object| object.name == "lucid-pii-auditor").unwrap();
        let message = "the older Auditor pii defines the same auditor".to_owned();
        assert_eq!(refused.acceptance, Acceptance::NameTaken(message));
        auditors.remove("pii");
        assert_eq!(images(&mut auditors), ["r.test/new"]);
    }

    #[test]
    fn a_thousand_objects_are_known_and_their_number_is_bounded() {
        let name = |number: usize| format!("a{number}");
        let mut auditors = Auditors::default();
        auditors.set_all((0..MOST + 2).map(|number| object(&name(number), 1, 1, "r.test/a")).collect());
        assert_eq!(auditors.settle().auditors().len(), MOST);
        assert_eq!(auditors.problems().len(), 2);
        auditors.set(object("bad", 0, 1, "B!"));
        auditors.set(object("worse", 0, 1, "B!"));
        auditors.settle();
        assert_eq!(auditors.problems().len(), REPEATED + 1);
    }
}
