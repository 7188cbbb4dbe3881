//! `cargo xtask crates`: checks that each library is usable on its own. Builds each one without and with each of its features,
//! and packages it.

use lucid_e2e::Error;
use serde_json::Value;

use crate::command::{cargo, metadata, succeed};

/// A published crate under `crates/`.
pub(crate) struct Library {
    pub(crate) name: String,
    features: Vec<String>,
}

pub(crate) fn run() -> Result<(), Error> {
    let libraries = libraries(&metadata()?)?;
    for Library { name, features, .. } in &libraries {
        let alone = ["check", "--package", name, "--locked", "--no-default-features"];
        run_cargo(&alone)?;
        for feature in features {
            run_cargo(&[&alone[..], &["--features", feature]].concat())?;
        }
    }
    // Cargo would verify the packages below this folder, where .cargo/config.toml applies.
    let mut package = vec!["package", "--locked", "--allow-dirty", "--no-verify"];
    for library in &libraries {
        package.extend(["--package", &library.name]);
    }
    run_cargo(&package)
}

pub(crate) fn libraries(metadata: &Value) -> Result<Vec<Library>, Error> {
    let packages = metadata["packages"].as_array().ok_or("cargo metadata has no packages")?;
    let is_library = |package: &&Value| {
        let is_published = package["publish"].as_array().is_none_or(|registries| !registries.is_empty());
        let path = package["manifest_path"].as_str().unwrap_or_default();
        is_published && path.rsplit('/').nth(2) == Some("crates")
    };
    let describe = |package: &Value| {
        let features = package["features"].as_object().into_iter().flat_map(|features| features.keys());
        let features = features.filter(|feature| *feature != "default").cloned().collect();
        Some(Library { name: package["name"].as_str()?.to_owned(), features })
    };
    Ok(packages.iter().filter(is_library).filter_map(describe).collect())
}

pub(crate) fn run_cargo(arguments: &[&str]) -> Result<(), Error> {
    eprintln!("xtask: cargo {}", arguments.join(" "));
    succeed(cargo().args(arguments))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;
    use crate::command::ROOT;

    #[test]
    fn front_pages_have_a_program_failures_features_and_stability() {
        for Library { name, .. } in libraries(&metadata().unwrap()).unwrap() {
            let folder = Path::new(ROOT).join("crates").join(&name);
            let source = fs::read_to_string(folder.join("src/lib.rs")).unwrap();
            let mut page: String =
                source.lines().filter_map(|line| Some(line.strip_prefix("//!")?.to_owned() + "\n")).collect();
            if source.contains("#![doc = include_str!(\"../README.md\")]") {
                page += &fs::read_to_string(folder.join("README.md")).unwrap();
            }
            for part in ["# Failure\n", "# Features\n", "# Stability\n", "```"] {
                assert!(page.contains(part), "{name}: {part}");
            }
            let manifest = fs::read_to_string(folder.join("Cargo.toml")).unwrap();
            assert!(manifest.contains("[package.metadata.docs.rs]\nall-features = true\n"), "{name}");
        }
    }
}
