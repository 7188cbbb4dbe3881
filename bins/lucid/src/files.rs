//! Reads the files of the offline commands: manifests, and the configuration of a cluster.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt::Display;
use std::path::Path;

use lucid_chain::{Catalogue, keys};
use serde_json::Value;

use crate::documents;
use crate::error::{Result, ResultExt, usage_error};

/// `data` of a ConfigMap.
pub(crate) type Data = BTreeMap<String, String>;

/// Reads a catalogue from a file and overlays it on the built-in one.
pub(crate) fn catalogue(path: Option<&Path>) -> Result<Catalogue> {
    let builtin = Catalogue::builtin();
    let Some(path) = path else { return Ok(builtin) };
    let text = documents::read(path)?;
    let own = Catalogue::parse(&path.display().to_string(), &text).failed_to("read --catalogue").usage()?;
    Ok(builtin.overlay(&own))
}

/// Reads the ConfigMaps `lucid-auditor-chain` in a file, with the namespaces that they name.
pub(crate) fn namespace_configs(path: &Path) -> Result<Vec<(Option<String>, Data)>> {
    let mut found = Vec::new();
    for document in &documents::parse(&documents::read(path)?) {
        document.len().map_err(|error| namespace_config_error(path, error))?;
        for part in document.parts() {
            let metadata = &part.value["metadata"];
            if part.value["kind"] != "ConfigMap" || metadata["name"] != keys::NAMESPACE_CONFIG_MAP {
                let problem = format!("found {} {}", part.value["kind"], metadata["name"]);
                return Err(namespace_config_error(path, problem));
            }
            let namespace = metadata["namespace"].as_str().filter(|it| !it.is_empty()).map(str::to_owned);
            found.push((namespace, strings(&part.value["data"])));
        }
    }
    Ok(found)
}

pub(crate) fn namespace_config_error(path: &Path, problem: impl Display) -> Box<dyn Error> {
    let expected = format!("expected ConfigMaps {} as manifests", keys::NAMESPACE_CONFIG_MAP);
    usage_error(format!("failed to read --namespace-config {} ({expected}): {problem}", path.display()))
}

pub(crate) fn strings(map: &Value) -> Data {
    let members = map.as_object().into_iter().flatten();
    members.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect()
}
