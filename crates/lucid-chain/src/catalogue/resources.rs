//! The `resources` of a catalogue entry.
//!
//! Values that the API server would reject in a container are rejected here, with the line in the message.

use std::collections::BTreeMap;

use serde::de::{Error as _, MapAccess};

use super::{
    Resources,
    fields::{Budget, Found, Keys, Map, Names, ReadMap, is_dns_label},
};
use crate::quantity::Quantity;

const HUGE_PAGES: &str = "hugepages-";

pub(super) struct ReadResources<'b> {
    pub(super) budget: &'b Budget,
}

impl ReadMap for ReadResources<'_> {
    type Value = Resources;

    fn expected(&self) -> String {
        "a map with the keys requests and limits".to_owned()
    }

    fn read<'de, A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut keys = Keys::new(self.budget, &["requests", "limits"]);
        let mut resources = Resources { requests: BTreeMap::new(), limits: BTreeMap::new() };
        while let Some(key) = keys.next(&mut map)? {
            let quantities =
                map.next_value_seed(Map(Names { budget: self.budget, key: name, value: quantity }))?;
            match key {
                "requests" => resources.requests = quantities,
                _ => resources.limits = quantities,
            }
        }
        check(&resources).map_err(A::Error::custom)?;
        Ok(resources)
    }
}

/// Parses the name of a resource that a container may request.
fn name(text: &str) -> Result<String, String> {
    let standard = matches!(text, "cpu" | "memory" | "ephemeral-storage");
    if standard || page_size(text).is_some() || is_extended(text) {
        Ok(text.to_owned())
    } else {
        Err(format!(
            "found {}, accepted cpu, memory, ephemeral-storage, hugepages-<size> or <domain>/<name>",
            Found(text)
        ))
    }
}

/// Checks a resource quantity, which is kept as written.
fn quantity(text: &str) -> Result<String, String> {
    match Quantity::parse(text) {
        Some(_) => Ok(text.to_owned()),
        None => Err(format!("found {}, accepted a quantity such as 100m, 0.5 or 256Mi", Found(text))),
    }
}

/// Checks the rules that relate the quantities of a container.
fn check(resources: &Resources) -> Result<(), String> {
    let lists = [("requests", &resources.requests), ("limits", &resources.limits)];
    for (list, quantities) in lists {
        for (name, quantity) in quantities {
            // `quantity` has validated it.
            let Some(size) = Quantity::parse(quantity) else { continue };
            let unit = page_size(name).or_else(|| is_extended(name).then_some(Quantity::ONE));
            if unit.is_some_and(|unit| !size.is_multiple_of(unit)) {
                let accepted =
                    if is_extended(name) { "a whole number" } else { "a multiple of the page size" };
                return Err(format!("`{list}.{name}` is {quantity}, accepted {accepted}"));
            }
        }
    }
    for (name, request) in &resources.requests {
        let exact = page_size(name).is_some() || is_extended(name);
        match resources.limits.get(name) {
            None if exact => {
                return Err(format!("`limits.{name}` is missing, accepted {request} as `requests.{name}`"));
            }
            None => {}
            Some(limit) => {
                let (requested, limited) = (Quantity::parse(request), Quantity::parse(limit));
                if exact && requested != limited {
                    return Err(format!("`requests.{name}` is {request}, accepted `limits.{name}` {limit}"));
                }
                if requested > limited {
                    return Err(format!(
                        "`requests.{name}` is {request}, accepted at most `limits.{name}` {limit}"
                    ));
                }
            }
        }
    }
    let mut names = resources.requests.keys().chain(resources.limits.keys());
    if let Some(pages) = names.clone().find(|name| page_size(name).is_some())
        && !names.any(|name| matches!(name.as_str(), "cpu" | "memory"))
    {
        return Err(format!("found {pages} alone, accepted with cpu or memory"));
    }
    Ok(())
}

/// Returns the size in `hugepages-<size>`.
fn page_size(name: &str) -> Option<Quantity> {
    let size = Quantity::parse(name.strip_prefix(HUGE_PAGES)?)?;
    // A qualified name is stricter than a quantity: no leading sign.
    let qualified = name.len() <= 63 && name.bytes().all(is_name_byte) && !name.ends_with('.');
    (qualified && size > Quantity::ZERO && size.is_multiple_of(Quantity::ONE)).then_some(size)
}

/// Returns `true` for an extended resource such as `example.com/gpu`: a qualified name outside of kubernetes.io that
/// is still valid with the quota prefix `requests.`.
fn is_extended(name: &str) -> bool {
    const LONGEST_DOMAIN: usize = 253 - "requests.".len();
    let Some((domain, name)) = name.split_once('/') else { return false };
    let ends = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    domain.len() <= LONGEST_DOMAIN
        && domain.split('.').all(is_dns_label)
        && !domain.ends_with("kubernetes.io")
        && !domain.starts_with("requests.")
        && name.len() <= 63
        && name.bytes().all(is_name_byte)
        && ends(name.as_bytes().first())
        && ends(name.as_bytes().last())
}

fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.')
}
