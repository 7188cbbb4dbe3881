//! `cargo xtask crates`: that each library is of use to others: built alone with the least and with each of its features, and
//! packaged.

use clap::Args;
use lucid_e2e::Error;
use serde_json::Value;

use crate::command::{cargo, metadata, succeed};

#[derive(Args)]
pub(crate) struct Crates {
    /// Also build each package as whoever downloads it does, from nothing: takes some ten minutes.
    #[arg(long)]
    verify: bool,
}

pub(crate) fn run(options: &Crates) -> Result<(), Error> {
    let libraries = libraries()?;
    for (name, features) in &libraries {
        // The program that depends on it has to choose one; in this repository .cargo/config.toml does.
        let alone = ["check", "--package", name, "--locked", "--no-default-features"];
        run_cargo(&alone)?;
        for feature in features {
            run_cargo(&[&alone[..], &["--features", feature]].concat())?;
        }
    }
    let mut package = vec!["package", "--locked", "--allow-dirty"];
    if !options.verify {
        package.push("--no-verify");
    }
    for (name, _) in &libraries {
        package.extend(["--package", name]);
    }
    run_cargo(&package)
}

/// The crates under `crates/`, each with its features.
fn libraries() -> Result<Vec<(String, Vec<String>)>, Error> {
    let metadata = metadata()?;
    let packages = metadata["packages"].as_array().ok_or("cargo metadata tells no packages")?;
    let is_library = |package: &&Value| {
        package["manifest_path"].as_str().is_some_and(|path| path.rsplit('/').nth(2) == Some("crates"))
    };
    let describe = |package: &Value| {
        let features = package["features"].as_object().into_iter().flat_map(|features| features.keys());
        let features = features.filter(|feature| *feature != "default").cloned().collect();
        Some((package["name"].as_str()?.to_owned(), features))
    };
    Ok(packages.iter().filter(is_library).filter_map(describe).collect())
}

fn run_cargo(arguments: &[&str]) -> Result<(), Error> {
    eprintln!("xtask: cargo {}", arguments.join(" "));
    succeed(cargo().args(arguments))
}
