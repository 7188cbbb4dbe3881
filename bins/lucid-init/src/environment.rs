//! Environment of the container.

use std::{env, path::PathBuf};

use lucid_chain::{keys, redirect::Redirect};
use snafu::{OptionExt as _, ResultExt as _};

use crate::error::{BackendSnafu, Error, NoPlanSnafu, PlanSnafu};

/// Environment variable with the tool that installs the rules: `auto`, `nft` or `iptables`.
pub(crate) const BACKEND: &str = "LUCID_INIT_BACKEND";

/// Search path if `PATH` is not set.
const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Value of `LUCID_INIT_BACKEND`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Choice {
    Auto,
    Nft,
    Iptables,
}

fn variable(name: &str) -> Option<String> {
    env::var_os(name).map(|value| value.to_string_lossy().into_owned()).filter(|value| !value.is_empty())
}

pub(crate) fn redirect() -> Result<Redirect, Error> {
    Redirect::from_json(&variable(keys::REDIRECT_ENV).context(NoPlanSnafu)?).context(PlanSnafu)
}

pub(crate) fn choice() -> Result<Choice, Error> {
    match variable(BACKEND).as_deref() {
        Some("auto") | None => Ok(Choice::Auto),
        Some("nft") => Ok(Choice::Nft),
        Some("iptables") => Ok(Choice::Iptables),
        Some(found) => BackendSnafu { found }.fail(),
    }
}

pub(crate) fn find(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_else(|| DEFAULT_PATH.into());
    let mut programs = env::split_paths(&path).map(|folder| folder.join(name));
    programs.find(|program| rustix::fs::access(program, rustix::fs::Access::EXEC_OK).is_ok())
}
