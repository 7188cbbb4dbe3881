//! Installs the network rules of a pod's auditor chain and verifies them.
//!
//! The init container `lucid-init` reads its [`Redirect`](lucid_chain::redirect::Redirect) from an environment variable,
//! installs it as rules for `nft` or `iptables-restore`, whichever the image and the kernel support, and then opens
//! connections that the rules have to redirect. It needs only the capability NET_ADMIN, writes no file but the
//! termination message, and is idempotent.

mod addresses;
mod args;
mod backend;
mod environment;
mod error;
mod iptables;
mod proof;
mod report;
mod tool;

use std::{env, process::ExitCode};

use snafu::ResultExt as _;

use args::{Command, Rules};
use error::{Error, ProofSnafu};
use iptables::Variant;

fn main() -> ExitCode {
    let outcome = Command::parse(env::args_os().skip(1)).and_then(|command| match command {
        Command::Help => Ok(args::HELP.to_owned()),
        Command::Version => Ok(concat!("lucid-init ", env!("CARGO_PKG_VERSION")).to_owned()),
        Command::Print(rules) => print(rules),
        Command::Install => install(),
    });
    match outcome {
        Ok(text) => report::success(&text),
        Err(error) => report::failure(&error),
    }
}

fn install() -> Result<String, Error> {
    let redirect = environment::redirect()?;
    let (tool, is_complete) = backend::install(&redirect, environment::choice()?)?;
    let connections = proof::prove(&redirect).context(ProofSnafu { tool })?;
    let lacking = match is_complete {
        true => "",
        false => "; older connections are not reset, because this kernel cannot match TCP flags",
    };
    let ports: Vec<_> = redirect.first_ports().map(|port| port.to_string()).collect();
    let (s, ports) = (if ports.len() == 1 { "" } else { "s" }, ports.join(", "));
    Ok(format!(
        "rules installed by {tool}: {connections} connections of this pod reached port{s} {ports} as they should{lacking}"
    ))
}

fn print(rules: Rules) -> Result<String, Error> {
    let redirect = environment::redirect()?;
    let text = match rules {
        Rules::Nft => redirect.nft_script(),
        Rules::Iptables(family) => {
            let saved = Variant::offered().into_iter().find_map(|variant| variant.saved(family).ok());
            redirect.iptables_restore(saved.as_deref())
        }
    };
    Ok(text.trim_end().to_owned())
}
