//! Selects the tool that installs the rules.

use std::{fmt, path::PathBuf};

use lucid_chain::redirect::Redirect;

pub(crate) use crate::iptables::{IptablesVariant, Rules};
use crate::{
    environment::Environment,
    iptables,
    tool::{self, ToolError},
};

/// Value of `LUCID_INIT_BACKEND`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Choice {
    Auto,
    Nft,
    Iptables,
}

/// A tool of the image.
#[derive(Debug)]
pub(crate) enum Backend {
    Nft(PathBuf),
    Iptables(IptablesVariant),
}

impl Backend {
    /// Returns the tools of the image that `choice` allows, in order of preference.
    pub(crate) fn offered(choice: Choice, environment: &Environment) -> Vec<Self> {
        let nft = match choice {
            Choice::Auto | Choice::Nft => environment.find("nft"),
            Choice::Iptables => None,
        };
        let iptables = match choice {
            Choice::Auto | Choice::Iptables => IptablesVariant::offered(environment),
            Choice::Nft => Vec::new(),
        };
        nft.into_iter().map(Self::Nft).chain(iptables.into_iter().map(Self::Iptables)).collect()
    }

    fn name(&self) -> &'static str {
        match self {
            Self::Nft(_) => "nft",
            Self::Iptables(variant) => variant.name(),
        }
    }

    fn install(&self, redirect: &Redirect) -> Result<Rules, ToolError> {
        match self {
            Self::Nft(nft) => tool::run(nft, &["-f", "-"], &redirect.nft_script()).map(|_| Rules::All),
            Self::Iptables(variant) => variant.install(redirect),
        }
    }
}

/// Installs the rules with the first of `backends` that succeeds. Returns its name.
pub(crate) fn install(redirect: &Redirect, backends: &[Backend]) -> Result<(&'static str, Rules), Attempts> {
    let mut attempts = Vec::new();
    for backend in backends {
        match backend.install(redirect) {
            Ok(rules) => return Ok((backend.name(), rules)),
            Err(error) => attempts.push((backend.name(), error)),
        }
    }
    Err(Attempts(attempts))
}

/// The tools that were tried, with their errors.
#[derive(Debug)]
pub struct Attempts(Vec<(&'static str, ToolError)>);

impl Attempts {
    /// Returns `true` if the image has no tool.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns `true` if only iptables-legacy was tried.
    pub(crate) fn are_legacy_only(&self) -> bool {
        self.0.iter().all(|(tool, _)| *tool == iptables::LEGACY[0])
    }
}

impl std::error::Error for Attempts {}

impl fmt::Display for Attempts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("this image has none of the requested tools (nft, iptables-restore)");
        }
        for (place, (tool, error)) in self.0.iter().enumerate() {
            write!(f, "{}{tool}: {error}", if place == 0 { "" } else { "; " })?;
        }
        Ok(())
    }
}
