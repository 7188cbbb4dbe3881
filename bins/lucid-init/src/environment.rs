//! Environment of the container.

use std::{env, ffi::OsString, path::PathBuf};

use lucid_chain::{keys, redirect::Redirect};
use snafu::{OptionExt as _, ResultExt as _};

use crate::{
    backend::Choice,
    error::{BackendSnafu, Error, NoPlanSnafu, PlanSnafu},
};

/// Search path if `PATH` is not set.
const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The environment variables that `lucid-init` reads.
#[derive(Debug, Clone, Default)]
pub struct Environment {
    redirect: Option<OsString>,
    backend: Option<OsString>,
    path: Option<OsString>,
}

impl Environment {
    /// Reads the environment of this process.
    pub fn of_process() -> Self {
        Self {
            redirect: env::var_os(keys::REDIRECT_ENV),
            backend: env::var_os(keys::INIT_BACKEND_ENV),
            path: env::var_os("PATH"),
        }
    }

    pub(crate) fn redirect(&self) -> Result<Redirect, Error> {
        let plan = self.redirect.as_ref().filter(|plan| !plan.is_empty()).context(NoPlanSnafu)?;
        Redirect::from_json(&plan.to_string_lossy()).context(PlanSnafu)
    }

    pub(crate) fn choice(&self) -> Result<Choice, Error> {
        match self.backend.as_ref().map_or("auto".into(), |backend| backend.to_string_lossy()).as_ref() {
            "auto" | "" => Ok(Choice::Auto),
            "nft" => Ok(Choice::Nft),
            "iptables" => Ok(Choice::Iptables),
            found => BackendSnafu { found }.fail(),
        }
    }

    /// Returns the path of the program `name`, or `None` if the image lacks it.
    pub(crate) fn find(&self, name: &str) -> Option<PathBuf> {
        let path = self.path.clone().unwrap_or_else(|| DEFAULT_PATH.into());
        let programs = env::split_paths(&path).map(|folder| folder.join(name));
        programs.into_iter().find(|program| rustix::fs::access(program, rustix::fs::Access::EXEC_OK).is_ok())
    }
}
