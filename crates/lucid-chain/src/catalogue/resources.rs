//! The `resources` of a catalogue entry.
//!
//! Values that the API server would reject in a container are rejected here, with the line in the message.

use std::collections::BTreeMap;

use lucid_text::names::is_qualified_name;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    scalars::Found,
    schema::{Fields, Shape},
};
use crate::quantity::Quantity;

/// Quantities by resource name, such as `memory: 128Mi`. A container of a pod may differ from `requests` and `limits`
/// within the bounds `min` and `max`, because autoscalers change them.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(crate) struct Resources {
    #[serde(default)]
    pub(crate) requests: BTreeMap<String, String>,
    #[serde(default)]
    pub(crate) limits: BTreeMap<String, String>,
    /// Smallest allowed request or limit; half of the request by default.
    #[serde(default)]
    pub(crate) min: BTreeMap<String, String>,
    /// Largest allowed request or limit; twice the limit by default.
    #[serde(default)]
    pub(crate) max: BTreeMap<String, String>,
}

impl Default for Resources {
    fn default() -> Self {
        Self::new(["100m", "500m"], ["128Mi", "256Mi"])
    }
}

impl Resources {
    /// Creates resources of a request and a limit each.
    pub(super) fn new(cpu: [&str; 2], memory: [&str; 2]) -> Self {
        let list = |place: usize| {
            [("cpu", cpu[place]), ("memory", memory[place])]
                .map(|(name, it)| (name.to_owned(), it.to_owned()))
        };
        Self { requests: list(0).into(), limits: list(1).into(), min: BTreeMap::new(), max: BTreeMap::new() }
    }

    pub(crate) fn manifest(&self) -> impl Serialize {
        #[derive(Serialize)]
        struct Lists<'r> {
            #[serde(skip_serializing_if = "BTreeMap::is_empty")]
            limits: &'r BTreeMap<String, String>,
            #[serde(skip_serializing_if = "BTreeMap::is_empty")]
            requests: BTreeMap<&'r str, &'r str>,
        }

        Lists { limits: &self.limits, requests: self.effective_requests() }
    }

    /// Returns the bounds of the requests and limits of the resource `name`, if it has any. Resources that can only be
    /// given in units have the planned quantity as both.
    pub(crate) fn bounds(&self, name: &str) -> (Option<Quantity>, Option<Quantity>) {
        let of = |list: &BTreeMap<String, String>| Quantity::parse(list.get(name)?);
        let limit = of(&self.limits);
        let request = of(&self.requests).or(limit);
        if unit(name).is_some() {
            return (request, request);
        }
        let min = of(&self.min).or_else(|| Some(request?.half()));
        let max = of(&self.max).or_else(|| Some(limit? + limit?));
        (min, max)
    }

    /// Returns the requests as completed by the API server, which derives missing ones from the limits.
    pub(crate) fn effective_requests(&self) -> BTreeMap<&str, &str> {
        let all = self.limits.iter().chain(&self.requests);
        all.map(|(name, quantity)| (name.as_str(), quantity.as_str())).collect()
    }

    fn check(&self) -> Result<(), String> {
        for (list, quantities) in [("requests", &self.requests), ("limits", &self.limits)] {
            for (name, quantity) in quantities {
                if let Some((unit, expected)) = unit(name)
                    && !Quantity::parse(quantity).is_some_and(|size| size.is_multiple_of(unit))
                {
                    return Err(format!("`{list}.{name}`: expected {expected}, found {quantity}"));
                }
            }
        }
        for (name, request) in &self.requests {
            let is_exact = unit(name).is_some();
            match self.limits.get(name) {
                None if is_exact => {
                    return Err(format!(
                        "`limits.{name}` is missing, expected {request}, as in `requests.{name}`"
                    ));
                }
                None => {}
                Some(limit) => {
                    let (requested, limited) = (Quantity::parse(request), Quantity::parse(limit));
                    if requested > limited || (is_exact && requested < limited) {
                        let at_most = if is_exact { "" } else { "at most " };
                        return Err(format!(
                            "`requests.{name}`: expected {at_most}`limits.{name}` {limit}, found {request}"
                        ));
                    }
                }
            }
        }
        for (list, quantities) in [("min", &self.min), ("max", &self.max)] {
            for (name, bound) in quantities {
                let (request, limit) = (self.requests.get(name), self.limits.get(name));
                let (planned, nearest) = match (list, request, limit) {
                    ("min", Some(request), _) => ("requests", request),
                    ("max", Some(request), None) => ("requests", request),
                    (_, _, Some(limit)) => ("limits", limit),
                    (_, _, None) => {
                        return Err(format!(
                            "`{list}.{name}` bounds nothing, expected `requests.{name}` as well"
                        ));
                    }
                };
                let side = if list == "min" { "most" } else { "least" };
                let (outer, inner) = (Quantity::parse(bound), Quantity::parse(nearest));
                if if list == "min" { outer > inner } else { outer < inner } {
                    return Err(format!(
                        "`{list}.{name}`: expected at {side} `{planned}.{name}` {nearest}, found {bound}"
                    ));
                }
            }
        }
        let mut names = self.requests.keys().chain(self.limits.keys());
        if let Some(pages) = names.clone().find(|name| page_size(name).is_some())
            && !names.any(|name| matches!(name.as_str(), "cpu" | "memory"))
        {
            return Err(format!("expected cpu or memory besides {pages}, found neither"));
        }
        Ok(())
    }
}

pub(super) const FIELDS: Fields = Fields {
    keys: &[("requests", QUANTITIES), ("limits", QUANTITIES), ("min", BOUNDS), ("max", BOUNDS)],
    refused: &[],
    finish: |resources, _| {
        let resources = Resources::deserialize(&*resources).map_err(|error| error.to_string())?;
        resources.check()
    },
};

const QUANTITIES: Shape = Shape::Names(name, &Shape::NotNull(&Shape::Scalar(quantity)));

const BOUNDS: Shape = Shape::Names(bounded, &Shape::NotNull(&Shape::Scalar(quantity)));

fn bounded(text: &str) -> Result<Value, String> {
    match DIVISIBLE.contains(&text) {
        true => Ok(text.into()),
        false => Err(format!("expected cpu, memory or ephemeral-storage, found {}", Found(text))),
    }
}

const DIVISIBLE: [&str; 3] = ["cpu", "memory", "ephemeral-storage"];

fn name(text: &str) -> Result<Value, String> {
    if DIVISIBLE.contains(&text) || page_size(text).is_some() || is_extended(text) {
        Ok(text.into())
    } else {
        Err(format!(
            "expected cpu, memory, ephemeral-storage, hugepages-<size> or <domain>/<name>, found {}",
            Found(text)
        ))
    }
}

/// Checks a resource quantity, which is kept as written.
fn quantity(text: &str) -> Result<Value, String> {
    match Quantity::parse(text) {
        Some(_) => Ok(text.into()),
        None => Err(format!("expected a quantity such as 100m, 0.5 or 256Mi, found {}", Found(text))),
    }
}

/// Returns the unit of which a container may have only multiples, with its description, if the resource has one. Its
/// requests and limits must be equal.
fn unit(name: &str) -> Option<(Quantity, &'static str)> {
    let pages = page_size(name).map(|size| (size, "a multiple of the page size"));
    pages.or_else(|| is_extended(name).then_some((Quantity::ONE, "a whole number")))
}

fn page_size(name: &str) -> Option<Quantity> {
    let size = Quantity::parse(name.strip_prefix("hugepages-")?)?;
    // A qualified name is stricter than a quantity: no leading sign.
    let qualified = name.len() <= 63 && name.bytes().all(is_name_byte) && !name.ends_with('.');
    (qualified && size > Quantity::ZERO && size.is_multiple_of(Quantity::ONE)).then_some(size)
}

/// Returns `true` for an extended resource such as `example.com/gpu`: a qualified name outside of kubernetes.io that
/// is still valid with the quota prefix `requests.`.
fn is_extended(name: &str) -> bool {
    const LONGEST_DOMAIN: usize = 253 - "requests.".len();
    name.split_once('/').is_some_and(|(domain, _)| {
        domain.len() <= LONGEST_DOMAIN
            && !domain.ends_with("kubernetes.io")
            && !domain.starts_with("requests.")
            && is_qualified_name(name)
    })
}

fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.')
}
