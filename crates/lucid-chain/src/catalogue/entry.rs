//! Parsing of catalogue entries.

use std::{collections::BTreeMap, num::NonZeroU16};

use serde::de::{Error as _, MapAccess};

use super::{
    Auditor, Catalogue, DEFAULT_PORT,
    auditor::Entry,
    fields::{self, Budget, Keys, Map, Names, OrNull, ReadMap},
    probes::ReadProbes,
    resources::ReadResources,
    security_context::ReadSecurityContext,
    stem,
};

/// Maximum number of entries in a file.
const ENTRIES: usize = 128;

const KEYS: &[&str] = &[
    "name",
    "description",
    "image",
    "port",
    "env",
    "labels",
    "resources",
    "probes",
    "securityContext",
    "serviceAccountToken",
];

/// Entries that precede the current one in the file; empty for a single entry.
#[derive(Default)]
pub(super) struct Preceding {
    count: usize,
    /// Names by stem.
    names: BTreeMap<String, String>,
    /// Names of the entries that specify a port, by port.
    ports: BTreeMap<NonZeroU16, String>,
}

impl Preceding {
    fn name(&self, text: &str) -> Result<String, String> {
        let name = fields::name(text)?;
        match self.names.get(stem(text)) {
            Some(same) if *same == name => Err(format!("found {name} twice, accepted each name once")),
            Some(same) => Err(format!("found {name}, which means the same as {same}, accepted one of them")),
            None => Ok(name),
        }
    }

    /// Rejects a port that an earlier entry specifies, because both could not use it in one pod. Entries that rely on
    /// the default port are reassigned instead.
    fn port(&self, text: &str, own_name: Option<&str>) -> Result<NonZeroU16, String> {
        let port = fields::port(text)?;
        match self.ports.get(&port) {
            None => Ok(port),
            Some(other) => {
                let both = own_name.map_or_else(String::new, |name| format!(" ({other} and {name} clash)"));
                Err(format!(
                    "found {port}, the port of {other}, accepted a port that no other entry has{both}"
                ))
            }
        }
    }
}

pub(super) struct ReadEntry<'a> {
    pub(super) preceding: &'a mut Preceding,
    /// Catalogue from which the entry inherits omitted keys.
    pub(super) base: Option<&'a Catalogue>,
}

impl ReadMap for ReadEntry<'_> {
    type Value = Auditor;

    fn expected(&self) -> String {
        format!("a map with the keys {}", KEYS.join(", "))
    }

    fn read<'de, A: MapAccess<'de>>(self, mut map: A) -> Result<Auditor, A::Error> {
        let Self { preceding, base } = self;
        if preceding.count == ENTRIES {
            return Err(A::Error::custom(format!(
                "found more than {ENTRIES} entries, accepted at most {ENTRIES}"
            )));
        }
        let budget = &Budget::for_entry();
        let mut keys = Keys::new(budget, KEYS);
        let (mut name, mut image, mut port) = (None, None, None);
        let (mut description, mut env, mut labels) = (None, None, None);
        let (mut resources, mut probes, mut security_context) = (None, None, None);
        let mut service_account_token = None;
        while let Some(key) = keys.next(&mut map)? {
            match key {
                "name" => name = Some(map.next_value_seed(budget.scalar(|text: &str| preceding.name(text)))?),
                "description" => {
                    let text = map.next_value_seed(OrNull(budget.scalar(fields::text)))?;
                    description = Some(text.ok_or_else(|| A::Error::custom(fields::null_message(key)))?);
                }
                "image" => image = Some(map.next_value_seed(budget.scalar(fields::image))?),
                "port" => {
                    let read = |text: &str| preceding.port(text, name.as_deref());
                    port = Some(map.next_value_seed(budget.scalar(read))?);
                }
                "env" => {
                    let variables = Names { budget, key: fields::env_name, value: fields::text };
                    env = Some(map.next_value_seed(Map(variables))?);
                }
                "labels" => {
                    let texts = Names { budget, key: fields::text, value: fields::text };
                    labels = Some(map.next_value_seed(Map(texts))?);
                }
                "resources" => resources = Some(map.next_value_seed(Map(ReadResources { budget }))?),
                "probes" => probes = Some(map.next_value_seed(Map(ReadProbes { budget }))?),
                "serviceAccountToken" => {
                    service_account_token = Some(map.next_value_seed(budget.scalar(fields::boolean))?);
                }
                _ => security_context = Some(map.next_value_seed(Map(ReadSecurityContext { budget }))?),
            }
        }
        let missing = |key, accepted| A::Error::custom(format!("`{key}` is missing, accepted {accepted}"));
        let name = name.ok_or_else(|| missing("name", fields::NAME_ACCEPTED))?;
        let base = base.and_then(|base| base.resolve(&name).ok());
        // The token is granted to an image, so an entry that sets an image does not inherit the grant.
        let token = service_account_token
            .unwrap_or_else(|| image.is_none() && base.is_some_and(Auditor::service_account_token));
        let image = image.or_else(|| Some((base?.image().to_owned(), base?.image_reference().clone())));
        let (image, reference) = image.ok_or_else(|| missing("image", fields::IMAGE_ACCEPTED))?;
        preceding.count += 1;
        preceding.names.insert(stem(&name).to_owned(), name.clone());
        if let Some(port) = port {
            preceding.ports.insert(port, name.clone());
        }
        let port = port.or_else(|| Some(base?.port())).unwrap_or(DEFAULT_PORT);
        Ok(Auditor::from(Entry {
            name,
            description: or_inherited(description, base, Auditor::description),
            image,
            reference,
            port,
            env: or_inherited(env, base, Auditor::env),
            labels: or_inherited(labels, base, Auditor::labels),
            resources: or_inherited(resources, base, Auditor::resources),
            probes: or_inherited(probes, base, Auditor::probes),
            security_context: or_inherited(security_context, base, Auditor::security_context),
            service_account_token: token,
        }))
    }
}

/// Returns the written value, the value of the base entry, or the default.
fn or_inherited<T: Default, B: ToOwned<Owned = T> + ?Sized>(
    written: Option<T>,
    base: Option<&Auditor>,
    of: impl FnOnce(&Auditor) -> &B,
) -> T {
    written.or_else(|| Some(of(base?).to_owned())).unwrap_or_default()
}
