//! Pod-level resources: checks that a chain fits into `spec.resources` and leaves room for the application.

use std::collections::BTreeSet;

use super::impossible::ImpossibleReason;
use crate::{
    catalogue::Resources,
    pod::{ContainerView, PodView, Quantities},
    quantity::Quantity,
    warning::Warning,
};

pub(super) struct Demand<'p, 'a> {
    pub(super) others: &'p [&'p ContainerView<'a>],
    pub(super) auditors: Vec<&'p Resources>,
    pub(super) native: bool,
    pub(super) init: Option<&'p Resources>,
}

impl Demand<'_, '_> {
    /// Fails if the chain does not fit into `spec.resources`. Returns a warning if it leaves nothing for a container.
    pub(super) fn check(&self, pod: &PodView<'_>) -> Result<Option<Warning>, ImpossibleReason> {
        let Some(room) = pod.resources() else { return Ok(None) };
        let lists = [("limits", room.limits.as_ref()), ("requests", room.requests.as_ref())];
        let others: Vec<_> = self.others.iter().map(|found| (*found, found.resources())).collect();
        let (mut missing, mut used_up, mut starved) = (Vec::new(), Vec::new(), BTreeSet::new());
        let chain = || self.auditors.iter().copied().chain(self.init);
        let names: BTreeSet<_> = chain().flat_map(|it| it.requests.keys().chain(it.limits.keys())).collect();
        for name in names {
            let planned = |it: &Resources| Quantity::parse(it.effective_requests().get(name.as_str())?);
            let auditors: Vec<_> = self.auditors.iter().filter_map(|it| planned(it)).collect();
            let requests: Vec<_> =
                others.iter().map(|(found, resources)| (*found, request(resources, name))).collect();
            let used = sum(auditors.iter().chain(requests.iter().map(|(_, request)| request)));
            // The init container runs beside native sidecars only.
            let sidecars = requests.iter().filter(|(found, _)| found.is_native_sidecar()).map(|(_, it)| it);
            let native = auditors.iter().filter(|_| self.native);
            let beside = sum(native.chain(sidecars));
            let init = self.init.and_then(planned).map(|init| init + beside);
            let requested = init.into_iter().chain((!auditors.is_empty()).then_some(used)).max();
            // No container may exceed the pod's limit. The sum of the requests may exceed neither the pod's request nor
            // its limit, from which the API server derives an absent request.
            let largest = chain().filter_map(|it| Quantity::parse(it.limits.get(name)?)).max();
            for (list, room) in lists {
                let Some(found) = room.and_then(|room| quantity(room, name)) else { continue };
                let needed = requested.max(largest.filter(|_| list == "limits")).unwrap_or(Quantity::ZERO);
                let shortage = |expected| Shortage { list, resource: name.clone(), found, expected };
                if found < needed {
                    missing.push(shortage(format!("at least {needed}")));
                } else if found == used && !auditors.is_empty() {
                    let without = requests.iter().filter(|(_, request)| *request == Quantity::ZERO);
                    let without: Vec<_> = without.map(|(found, _)| found.name().to_owned()).collect();
                    if !without.is_empty() {
                        used_up.push(shortage(format!("more than {used}")));
                        starved.extend(without);
                    }
                }
            }
        }
        if !missing.is_empty() {
            let is_of_requests = missing.iter().any(|it| it.list == "requests");
            return Err(ImpossibleReason::PodResources { shortages: join(&missing), is_of_requests });
        }
        let containers = starved.into_iter().collect();
        Ok((!used_up.is_empty()).then_some(Warning::NothingLeft { containers, shortages: join(&used_up) }))
    }
}

struct Shortage {
    /// `requests` or `limits`.
    list: &'static str,
    resource: String,
    found: Quantity,
    /// Quantity that the containers of the pod need, as `at least 1` or `more than 1`.
    expected: String,
}

fn join(shortages: &[Shortage]) -> String {
    let texts = shortages.iter().map(|Shortage { list, resource, found, expected }| {
        format!("{list}.{resource}: expected {expected}, found {found}")
    });
    texts.collect::<Vec<_>>().join("; ")
}

fn sum<'q>(quantities: impl Iterator<Item = &'q Quantity>) -> Quantity {
    quantities.copied().fold(Quantity::ZERO, std::ops::Add::add)
}

/// Returns a request of a container, which the API server derives from the limit if it is absent.
fn request((requests, limits): &(Quantities<'_>, Quantities<'_>), name: &str) -> Quantity {
    quantity(requests, name).or_else(|| quantity(limits, name)).unwrap_or(Quantity::ZERO)
}

/// Maximum size of a quantity that is parsed, in bytes of JSON.
const LONGEST: usize = 1024;

fn quantity(list: &Quantities<'_>, name: &str) -> Option<Quantity> {
    let json = *list.get(name).filter(|json| json.len() <= LONGEST)?;
    Quantity::from_json(&serde_json::from_str(json).ok()?)
}
