//! One entry of a catalogue, as it is written.

use std::{collections::BTreeMap, num::NonZeroU16};

use serde::de::{Error as _, MapAccess};

use super::{
    Auditor, DEFAULT_PORT, Probes, Resources, SecurityContext,
    auditor::Entry,
    fields::{self, Budget, Keys, Map, Names, OrNull, ReadMap},
    probes::ReadProbes,
    resources::ReadResources,
    security_context::ReadSecurityContext,
    stem,
};

/// The most entries of a file.
const ENTRIES: usize = 128;

const KEYS: &[&str] =
    &["name", "description", "image", "port", "env", "labels", "resources", "probes", "securityContext"];

/// The entries of the file before the one that is read; none for one that stands alone.
#[derive(Default)]
pub(super) struct Before {
    count: usize,
    /// Names by their stems.
    names: BTreeMap<String, String>,
    /// The names of the entries that write a port, by port.
    ports: BTreeMap<NonZeroU16, String>,
}

impl Before {
    fn name(&self, text: &str) -> Result<String, String> {
        let name = fields::name(text)?;
        match self.names.get(stem(text)) {
            Some(same) if *same == name => Err(format!("found {name} twice, accepted each name once")),
            Some(same) => Err(format!("found {name}, which means the same as {same}, accepted one of them")),
            None => Ok(name),
        }
    }

    /// Two entries that write the same port cannot both have it in one pod. Those that write none can: they are moved.
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

/// Reads an entry.
pub(super) struct ReadEntry<'a> {
    pub(super) before: &'a mut Before,
}

impl ReadMap for ReadEntry<'_> {
    type Value = Auditor;

    fn expected(&self) -> String {
        format!("a map with the keys {}", KEYS.join(", "))
    }

    fn read<'de, A: MapAccess<'de>>(self, mut map: A) -> Result<Auditor, A::Error> {
        let before = self.before;
        if before.count == ENTRIES {
            return Err(A::Error::custom(format!(
                "found more than {ENTRIES} entries, accepted at most {ENTRIES}"
            )));
        }
        let budget = &Budget::of_an_entry();
        let mut keys = Keys::new(budget, KEYS);
        let (mut name, mut image, mut port) = (None, None, None);
        let mut description = String::new();
        let (mut env, mut labels) = (BTreeMap::new(), BTreeMap::new());
        let mut resources = Resources::default();
        let mut probes = Probes::default();
        let mut security_context = SecurityContext::default();
        while let Some(key) = keys.next(&mut map)? {
            match key {
                "name" => name = Some(map.next_value_seed(budget.scalar(|text: &str| before.name(text)))?),
                "description" => {
                    let text = map.next_value_seed(OrNull(budget.scalar(fields::text)))?;
                    description = text.ok_or_else(|| A::Error::custom(fields::null(key)))?;
                }
                "image" => image = Some(map.next_value_seed(budget.scalar(fields::image))?),
                "port" => {
                    let read = |text: &str| before.port(text, name.as_deref());
                    port = Some(map.next_value_seed(budget.scalar(read))?);
                }
                "env" => {
                    let variables = Names { budget, key: fields::env_name, value: fields::text };
                    env = map.next_value_seed(Map(variables))?;
                }
                "labels" => {
                    labels =
                        map.next_value_seed(Map(Names { budget, key: fields::text, value: fields::text }))?;
                }
                "resources" => resources = map.next_value_seed(Map(ReadResources { budget }))?,
                "probes" => probes = map.next_value_seed(Map(ReadProbes { budget }))?,
                _ => security_context = map.next_value_seed(Map(ReadSecurityContext { budget }))?,
            }
        }
        let missing = |key, accepted| A::Error::custom(format!("`{key}` is missing, accepted {accepted}"));
        let name = name.ok_or_else(|| missing("name", fields::NAME_ACCEPTED))?;
        let (image, reference) = image.ok_or_else(|| missing("image", fields::IMAGE_ACCEPTED))?;
        before.count += 1;
        before.names.insert(stem(&name).to_owned(), name.clone());
        if let Some(port) = port {
            before.ports.insert(port, name.clone());
        }
        let port = port.unwrap_or(DEFAULT_PORT);
        Ok(Auditor::from(Entry {
            name,
            description,
            image,
            reference,
            port,
            env,
            labels,
            resources,
            probes,
            security_context,
        }))
    }
}
