//! Reads the files of the offline commands: manifests, and the configuration of a cluster.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use lucid_chain::{Catalogue, CatalogueError, ConfigurationError, NamespaceChainError, keys};
use serde_json::Value;
use snafu::{ResultExt, Snafu};

use crate::documents::{self, ReadError};

/// Errors of reading the input files of a command.
#[derive(Debug, Snafu)]
#[snafu(visibility(pub(crate)))]
#[non_exhaustive]
pub(crate) enum FilesError {
    /// The file cannot be read.
    #[snafu(transparent)]
    File {
        /// Cause, with the path.
        source: ReadError,
    },
    /// The catalogue is invalid.
    #[snafu(display("failed to read --config: {source}"))]
    Catalogue {
        /// Cause, with its location.
        source: CatalogueError,
    },
    /// The chain names an auditor that is not in the catalogue.
    #[snafu(transparent)]
    Configuration {
        /// Cause, with the name.
        source: ConfigurationError,
    },
    /// The file of `--namespace-config` holds something other than the expected ConfigMaps.
    #[snafu(display("failed to read --namespace-config {}: {problem}", path.display()))]
    NamespaceConfig {
        /// Path of the file.
        path: PathBuf,
        /// Content found, and accepted content.
        problem: String,
    },
    /// The chain of a namespace is invalid.
    #[snafu(display("failed to read --namespace-config: {source}"))]
    NamespaceChain {
        /// Cause, with its location.
        source: NamespaceChainError,
    },
}

/// `data` of a ConfigMap.
pub(crate) type Data = BTreeMap<String, String>;

/// Reads a file; `-` is standard input.
pub(crate) fn read(path: &Path) -> Result<String, FilesError> {
    Ok(documents::read(path)?)
}

/// Reads a catalogue from a file and overlays it on the built-in one.
pub(crate) fn catalogue(path: Option<&Path>) -> Result<Catalogue, FilesError> {
    let builtin = Catalogue::builtin();
    let Some(path) = path else { return Ok(builtin) };
    let own = Catalogue::parse(&path.display().to_string(), &read(path)?).context(CatalogueSnafu)?;
    Ok(builtin.overlay(&own))
}

/// Reads the ConfigMaps `lucid-auditor-chain` in a file, with the namespaces that they name.
pub(crate) fn namespace_configs(path: &Path) -> Result<Vec<(Option<String>, Data)>, FilesError> {
    let accepted = format!("accepted are ConfigMaps {} as manifests", keys::NAMESPACE_CONFIG_MAP);
    let problem =
        |found: String| NamespaceConfigSnafu { path, problem: format!("{found}, {accepted}") }.build();
    let mut found = Vec::new();
    for document in &documents::parse(&read(path)?) {
        let Some(value) = document.value().map_err(|error| problem(error.to_string()))? else { continue };
        let metadata = &value["metadata"];
        if value["kind"] != "ConfigMap" || metadata["name"] != keys::NAMESPACE_CONFIG_MAP {
            return Err(problem(format!("found {} {}", value["kind"], metadata["name"])));
        }
        let namespace = metadata["namespace"].as_str().filter(|it| !it.is_empty()).map(str::to_owned);
        found.push((namespace, strings(&value["data"])));
    }
    Ok(found)
}

/// Returns the members that are strings.
pub(crate) fn strings(map: &Value) -> Data {
    let members = map.as_object().into_iter().flatten();
    members.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect()
}
