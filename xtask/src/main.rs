//! Checks and tasks of this repository.

mod api;
mod bench;
mod book;
mod checks;
mod command;
mod crates;
mod demo;
mod images;
mod manual;
mod matrix;
mod picture;
mod process;
mod release;
mod report;
mod soak;
mod testbed;

use std::process::ExitCode;

use lucid_e2e::Error;

use clap::{Parser, Subcommand};

/// Checks and tasks of this repository.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Xtask {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Shows Lucid at work: starts a control plane, the verifier and the operator, creates sample pods and prints the results.
    Demo(demo::Demo),
    /// Runs every check: format, clippy, documentation, unit and end-to-end tests.
    Test(checks::Test),
    /// Builds the images as OCI archives with buildah.
    Images(images::Images),
    /// Builds each library alone, without and with each of its features, and packages it.
    Crates,
    /// Runs the end-to-end tests on several minor versions of Kubernetes.
    Matrix(matrix::Matrix),
    /// Lists the public items of each library in docs/api.
    Api(api::Api),
    /// Writes man pages and completions in the layout of packages.
    Manual(manual::Manual),
    /// Checks a release and makes what it publishes, without publishing it.
    Release(release::Release),
    /// Runs as mdBook preprocessor on the pages of docs/; see book.toml.
    #[command(hide = true)]
    Book(book::Book),
    /// Checks dependencies against deny.toml with cargo-deny.
    Deny,
    /// Benchmarks on this machine.
    Bench(bench::Bench),
    /// Soak tests: rotations, faults and attacks, repeated many times.
    Soak(soak::Soak),
    /// A real Kubernetes control plane, built from source.
    #[command(subcommand)]
    Testbed(testbed::Task),
}

fn main() -> ExitCode {
    let outcome: Result<(), Error> = match Xtask::parse().task {
        Task::Demo(demo) => demo::run(&demo),
        Task::Images(options) => images::run(&options),
        Task::Matrix(options) => matrix::run(&options),
        Task::Crates => crates::run(),
        Task::Api(options) => api::run(&options),
        Task::Manual(options) => manual::run(&options),
        Task::Release(options) => release::run(&options),
        Task::Book(book) => book::run(&book),
        Task::Test(options) => checks::run(&options),
        Task::Deny => checks::deny(),
        Task::Bench(bench) => bench::run(&bench),
        Task::Soak(soak) => soak::run(&soak),
        Task::Testbed(task) => testbed::run(&task),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{}", snafu::Report::from_error(&*error));
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use lucid_e2e::page::{blocks, root};

    use super::Xtask;

    /// Covers every page, including the README and commands that take too long for a test.
    #[test]
    fn tasks_that_pages_name_are_there_with_their_options() {
        let mut tasks = 0;
        for path in [
            "README.md",
            "CONTRIBUTING.md",
            "docs/install.md",
            "docs/images.md",
            "docs/benchmarks.md",
            "docs/interception.md",
            "crates/lucid-testbed/README.md",
        ] {
            let page = std::fs::read_to_string(root().join(path)).unwrap();
            let shell = blocks(&page).into_iter();
            let shell =
                shell.filter(|(info, _)| ["sh", "console"].iter().any(|language| info.starts_with(language)));
            for line in shell.flat_map(|(_, text)| text.lines()) {
                let line = line.trim_start_matches("$ ").split('#').next().unwrap_or_default();
                if let Some(words) = line.trim().strip_prefix("cargo xtask") {
                    tasks += 1;
                    let parsed = Xtask::try_parse_from(
                        [&["xtask"], &words.split_whitespace().collect::<Vec<_>>()[..]].concat(),
                    );
                    assert!(parsed.is_ok(), "{path}: {line}: {}", parsed.err().unwrap());
                }
            }
        }
        assert!(tasks > 10, "{tasks} tasks");
    }
}
