//! The project that `cargo generate` makes of `template/`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use crate::Error;
use crate::page::root;

/// Substitutes the placeholders like cargo-generate, which takes minutes to build.
#[must_use]
pub fn render(text: &str) -> String {
    let text = text.replace("{{project-name}}", "tidy").replace("{{project-name | kebab_case}}", "tidy");
    text.replace("{{group}}", "tidy.example.com")
}

/// Generates the operator `tidy` once, runs its tests against the crates of the checkout, and returns its program.
///
/// # Errors
///
/// Returns an error if a file cannot be read or written, if the project does not build, or if a test fails.
pub fn generate() -> Result<PathBuf, Error> {
    static PROGRAM: Mutex<Option<PathBuf>> = Mutex::new(None);
    let mut program = PROGRAM.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(program) = &*program {
        return Ok(program.clone());
    }
    Ok(program.insert(build()?).clone())
}

fn build() -> Result<PathBuf, Error> {
    let (template, target) = (root().join("template"), root().join("target"));
    let project = target.join("template/tidy");
    // Without files that the template has no more.
    let _ = fs::remove_dir_all(&project);
    copy(&template, &project)?;
    // A workspace of its own, with the profile of this one, so that most dependencies are compiled once.
    let mut own =
        "\n[workspace]\n\n[profile.dev]\ndebug = \"line-tables-only\"\n\n[profile.dev.package.\"*\"]\n\
                   debug = false\n\n[patch.crates-io]\n"
            .to_owned();
    for library in ["lucid-certs", "lucid-testbed", "lucid-text", "lucid-webhook", "lucid-webhook-test"] {
        own.push_str(&format!("{library} = {{ path = {:?} }}\n", root().join("crates").join(library)));
    }
    let manifest = fs::read_to_string(project.join("Cargo.toml"))?;
    fs::write(project.join("Cargo.toml"), manifest + &own)?;
    fs::copy(root().join("Cargo.lock"), project.join("Cargo.lock"))?;
    for task in ["test", "build"] {
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        let status = cargo.arg(task).current_dir(&project).env("CARGO_TARGET_DIR", &target).status()?;
        if !status.success() {
            return Err(format!("cargo {task} failed in {}; see above", project.display()).into());
        }
    }
    Ok(target.join("debug/tidy"))
}

fn copy(from: &Path, to: &Path) -> Result<(), Error> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let to = to.join(name.trim_end_matches(".liquid"));
        if path.is_dir() {
            copy(&path, &to)?;
        } else if name != "cargo-generate.toml" {
            fs::write(to, render(&fs::read_to_string(&path)?))?;
        }
    }
    Ok(())
}
