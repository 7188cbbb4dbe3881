//! Installs the network rules of a pod's auditor chain and verifies them.
//!
//! The init container `lucid-init` reads its [`Redirect`] from an environment variable, installs it as rules for
//! `nft` or `iptables-restore`, whichever the image and the kernel support, and then opens connections that the rules
//! have to redirect. It needs only the capability NET_ADMIN, writes no file but the termination message, and is
//! idempotent.

mod addresses;
mod args;
mod backend;
mod environment;
mod error;
mod iptables;
mod proof;
pub mod report;
mod tool;

use std::ffi::OsString;

use lucid_chain::redirect::Redirect;
use snafu::ResultExt as _;

use args::{Command, Rules};
use backend::{Backend, IptablesVariant};
use error::{InstallSnafu, ProofSnafu};

pub use environment::Environment;
pub use error::Error;

/// Runs the command given by `arguments`, which exclude the program's name. Returns the text to print to standard
/// output.
///
/// # Errors
///
/// Returns [`Error`], with a one-line message and an exit code, if the arguments or the environment are invalid, no
/// tool can install the rules, or the rules have no effect.
pub fn run(
    arguments: impl IntoIterator<Item = OsString>,
    environment: &Environment,
) -> Result<String, Error> {
    match Command::parse(arguments)? {
        Command::Help => Ok(args::HELP.to_owned()),
        Command::Version => Ok(concat!("lucid-init ", env!("CARGO_PKG_VERSION")).to_owned()),
        Command::Print(rules) => print(rules, environment),
        Command::Install => install(environment),
    }
}

fn install(environment: &Environment) -> Result<String, Error> {
    let redirect = environment.redirect()?;
    let backends = Backend::offered(environment.choice()?, environment);
    let (tool, rules) = backend::install(&redirect, &backends).context(InstallSnafu)?;
    let connections = proof::prove(&redirect).context(ProofSnafu { tool })?;
    let lacking = match rules {
        backend::Rules::All => "",
        backend::Rules::WithoutFlags => {
            "; older connections are not reset, since this kernel matches no TCP flags"
        }
    };
    Ok(format!(
        "rules installed by {tool}: {connections} connections of this pod reached port {} as they should{lacking}",
        redirect.first_port()
    ))
}

fn print(rules: Rules, environment: &Environment) -> Result<String, Error> {
    let redirect = environment.redirect()?;
    let text = match rules {
        Rules::Nft => redirect.nft_script(),
        Rules::Iptables(family) => {
            let saved = IptablesVariant::offered(environment).into_iter().find_map(|v| v.saved(family).ok());
            over(&redirect, saved.as_deref())
        }
    };
    Ok(text.trim_end().to_owned())
}

fn over(redirect: &Redirect, saved: Option<&str>) -> String {
    saved.map_or_else(|| redirect.iptables_restore(), |saved| redirect.iptables_restore_over(saved))
}
