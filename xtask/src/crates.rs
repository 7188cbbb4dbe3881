//! `cargo xtask crates`: checks that each library is usable on its own. Builds each one without and with each of its features,
//! and packages it.

use std::fs::{self, File};
use std::path::Path;

use clap::Args;
use flate2::read::GzDecoder;
use lucid_e2e::Error;
use serde_json::{Value, json};

use crate::command::{ROOT, cargo, metadata, succeed};

#[derive(Args)]
pub(crate) struct Crates {
    /// Also build each package as its users do: its documentation as on docs.rs, its tests and examples, and the program on
    /// its first page. Takes some minutes.
    #[arg(long)]
    verify: bool,
}

/// Pages whose first program a user copies, with its dependencies.
const PAGES: [&str; 2] = ["crates/lucid-webhook/src/lib.rs", "crates/lucid-webhook/README.md"];

/// A published crate under `crates/`.
pub(crate) struct Library {
    pub(crate) name: String,
    /// Name and version of the package, as in its file name.
    stem: String,
    features: Vec<String>,
    /// Cargo arguments used by docs.rs.
    docs: Vec<String>,
}

pub(crate) fn run(options: &Crates) -> Result<(), Error> {
    let metadata = metadata()?;
    let libraries = libraries(&metadata)?;
    for Library { name, features, .. } in &libraries {
        // The program that depends on the library chooses the Kubernetes version; in this repository .cargo/config.toml does.
        let alone = ["check", "--package", name, "--locked", "--no-default-features"];
        run_cargo(&alone, Path::new(ROOT))?;
        for feature in features {
            run_cargo(&[&alone[..], &["--features", feature]].concat(), Path::new(ROOT))?;
        }
    }
    // Cargo would verify the packages below this folder, where .cargo/config.toml applies.
    let mut package = vec!["package", "--locked", "--allow-dirty", "--no-verify"];
    for library in &libraries {
        package.extend(["--package", &library.name]);
    }
    run_cargo(&package, Path::new(ROOT))?;
    if options.verify {
        let target = metadata["target_directory"].as_str().ok_or("cargo metadata has no target directory")?;
        verify(&libraries, Path::new(target))?;
    }
    Ok(())
}

/// Builds the packages outside this repository. Packages resolve each other as if they were published.
fn verify(libraries: &[Library], target: &Path) -> Result<(), Error> {
    let folder = tempfile::tempdir()?;
    for Library { stem, .. } in libraries {
        let package = File::open(target.join("package").join(format!("{stem}.crate")))?;
        tar::Archive::new(GzDecoder::new(package)).unpack(folder.path())?;
    }
    let mut members: Vec<_> = libraries.iter().map(|library| json!(library.stem).to_string()).collect();
    for (index, page) in PAGES.iter().enumerate() {
        let name = format!("page-{index}");
        let text = fs::read_to_string(Path::new(ROOT).join(page))?;
        let (manifest, program) =
            first_program(&text).ok_or(format!("{page} has no program and its manifest"))?;
        fs::create_dir_all(folder.path().join(&name).join("src"))?;
        let package =
            format!("[package]\nname = {name:?}\nversion = \"0.1.0\"\nedition = \"2024\"\n\n{manifest}");
        fs::write(folder.path().join(&name).join("Cargo.toml"), package)?;
        fs::write(folder.path().join(&name).join("src/main.rs"), program)?;
        members.push(json!(name).to_string());
    }
    let patches =
        libraries.iter().map(|Library { name, stem, .. }| format!("{name} = {{ path = {stem:?} }}\n"));
    let manifest = format!(
        "[workspace]\nresolver = \"3\"\nmembers = [{}]\n\n[patch.crates-io]\n{}",
        members.join(", "),
        patches.collect::<String>()
    );
    fs::write(folder.path().join("Cargo.toml"), manifest)?;
    fs::copy(Path::new(ROOT).join("Cargo.lock"), folder.path().join("Cargo.lock"))?;
    let target = target.join("unpacked").display().to_string();
    for Library { name, docs, .. } in libraries {
        let of_package = ["--package", name, "--target-dir", &target];
        let docs: Vec<_> = docs.iter().map(String::as_str).collect();
        run_cargo(&[&["doc", "--no-deps"], &of_package[..], &docs].concat(), folder.path())?;
        run_cargo(&[&["check", "--all-targets"], &of_package[..]].concat(), folder.path())?;
    }
    for index in 0..PAGES.len() {
        let name = format!("page-{index}");
        run_cargo(&["check", "--package", &name, "--target-dir", &target], folder.path())?;
    }
    Ok(())
}

/// Returns the first block of TOML on a page, and its first complete program in Rust.
fn first_program(page: &str) -> Option<(String, String)> {
    let lines = page
        .lines()
        .map(|line| line.strip_prefix("//!").map_or(line, |rest| rest.strip_prefix(' ').unwrap_or(rest)));
    let text = lines.collect::<Vec<_>>().join("\n");
    let blocks = || text.split("```").skip(1).step_by(2).filter_map(|block| block.split_once('\n'));
    let manifest = blocks().find(|(language, _)| *language == "toml")?.1;
    let program = blocks().find(|(_, code)| code.contains("fn main("))?.1;
    Some((manifest.to_owned(), program.to_owned()))
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
        let name = package["name"].as_str()?.to_owned();
        let stem = format!("{name}-{}", package["version"].as_str()?);
        Some(Library { name, stem, features, docs: docs(&package["metadata"]["docs"]["rs"]) })
    };
    Ok(packages.iter().filter(is_library).filter_map(describe).collect())
}

/// Arguments from the keys of `package.metadata.docs.rs` in use here (<https://docs.rs/about/metadata>).
fn docs(metadata: &Value) -> Vec<String> {
    let all = metadata["all-features"].as_bool().unwrap_or_default().then(|| "--all-features".to_owned());
    let features = metadata["features"].as_array().into_iter().flatten().filter_map(Value::as_str);
    all.into_iter().chain(features.map(|feature| format!("--features={feature}"))).collect()
}

/// Runs Cargo in a folder with the configuration of that folder only: the Cargo that started this task has set environment
/// variables from ours.
fn run_cargo(arguments: &[&str], folder: &Path) -> Result<(), Error> {
    eprintln!("xtask: cargo {}", arguments.join(" "));
    succeed(cargo().args(arguments).current_dir(folder).env_remove("K8S_OPENAPI_ENABLED_VERSION"))
}
