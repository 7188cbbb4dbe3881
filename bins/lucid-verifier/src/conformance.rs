//! Reports of `lucid auditor test -o json`.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use snafu::{ResultExt, Snafu, ensure};

/// Maximum size of a report in bytes.
const MAX_LENGTH: u64 = 4 * 1024 * 1024;
/// Maximum number of checks, and maximum length of their names in bytes.
const MAX_CHECKS: usize = 256;
const MAX_NAME: usize = 64;
const VERSION: u32 = 1;

/// Summary of a report, which is stored with a digest.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Conformance {
    /// Program and version that tested the auditor.
    pub(crate) kit: String,
    pub(crate) passed: usize,
    pub(crate) skipped: usize,
    pub(crate) failed: Vec<String>,
}

#[derive(Debug, Snafu)]
pub(crate) enum ReportError {
    #[snafu(display("failed to read {} (expected the output of lucid auditor test -o json)", path.display()))]
    Read { path: PathBuf, source: io::Error },
    #[snafu(display("failed to read {}: expected at most {MAX_LENGTH} bytes", path.display()))]
    TooLong { path: PathBuf },
    #[snafu(display("failed to parse {} (expected the output of lucid auditor test -o json)", path.display()))]
    Parse { path: PathBuf, source: serde_json::Error },
    #[snafu(display("{}: expected version {VERSION}, found {found}", path.display()))]
    Version { path: PathBuf, found: u32 },
    #[snafu(display(
        "{}: expected 1 to {MAX_CHECKS} checks with names of at most {MAX_NAME} bytes, found {found} checks",
        path.display()
    ))]
    Checks { path: PathBuf, found: usize },
}

#[derive(Deserialize)]
struct Report {
    version: u32,
    kit: String,
    checks: Vec<Check>,
}

#[derive(Deserialize)]
struct Check {
    name: String,
    status: Status,
}

#[derive(Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum Status {
    Passed,
    Failed,
    Skipped,
}

impl Conformance {
    pub(crate) fn read(path: &Path) -> Result<Self, ReportError> {
        let mut text = Vec::new();
        let file = File::open(path).context(ReadSnafu { path })?;
        file.take(MAX_LENGTH + 1).read_to_end(&mut text).context(ReadSnafu { path })?;
        ensure!(text.len() as u64 <= MAX_LENGTH, TooLongSnafu { path });
        let Report { version, kit, checks } = serde_json::from_slice(&text).context(ParseSnafu { path })?;
        ensure!(version == VERSION, VersionSnafu { path, found: version });
        let is_bounded = kit.len() <= MAX_NAME && checks.iter().all(|check| check.name.len() <= MAX_NAME);
        let found = checks.len();
        ensure!(is_bounded && (1..=MAX_CHECKS).contains(&found), ChecksSnafu { path, found });
        let count = |status| checks.iter().filter(|check| check.status == status).count();
        let (passed, skipped) = (count(Status::Passed), count(Status::Skipped));
        let failed = checks.into_iter().filter(|check| check.status == Status::Failed);
        Ok(Self { kit, passed, skipped, failed: failed.map(|check| check.name).collect() })
    }

    pub(crate) fn summary(&self) -> String {
        let Self { passed, failed, .. } = self;
        match failed.len() {
            0 => format!("{passed} passed"),
            count => format!("{count} failed, {passed} passed"),
        }
    }
}
