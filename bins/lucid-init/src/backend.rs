//! Selects the tool that installs the rules.

use std::path::PathBuf;

use lucid_chain::redirect::Redirect;

use crate::{
    environment,
    error::{Error, InstallSnafu, advice_for},
    iptables::Variant,
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
enum Backend {
    Nft(PathBuf),
    Iptables(Variant),
}

impl Backend {
    /// Returns the tools of the image that `choice` allows, in order of preference.
    fn offered(choice: Choice) -> Vec<Self> {
        let nft = if choice == Choice::Iptables { None } else { environment::find("nft") };
        let iptables = if choice == Choice::Nft { Vec::new() } else { Variant::offered() };
        nft.into_iter().map(Self::Nft).chain(iptables.into_iter().map(Self::Iptables)).collect()
    }

    fn name(&self) -> &'static str {
        match self {
            Self::Nft(_) => "nft",
            Self::Iptables(variant) => variant.name(),
        }
    }

    fn install(&self, redirect: &Redirect) -> Result<bool, ToolError> {
        match self {
            Self::Nft(nft) => tool::run(nft, &["-f", "-"], &redirect.nft_script()).map(|_| true),
            Self::Iptables(variant) => variant.install(redirect),
        }
    }
}

/// Installs the rules with the first tool that succeeds. Returns its name, and `false` if it had to omit the rules that
/// match TCP flags.
pub(crate) fn install(redirect: &Redirect, choice: Choice) -> Result<(&'static str, bool), Error> {
    let (mut tools, mut errors) = (Vec::new(), Vec::new());
    for backend in Backend::offered(choice) {
        let tool = backend.name();
        match backend.install(redirect) {
            Ok(is_complete) => return Ok((tool, is_complete)),
            Err(error) => errors.push(format!("{tool}: {error}")),
        }
        tools.push(tool);
    }
    if tools.is_empty() {
        errors.push("this image has none of the requested tools (nft, iptables-restore)".to_owned());
    }
    InstallSnafu { errors: errors.join("; "), advice: advice_for(&tools) }.fail()
}
