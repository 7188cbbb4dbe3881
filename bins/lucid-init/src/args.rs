//! The command line.

use std::ffi::OsString;

use crate::error::{Error, UsageSnafu};

pub(crate) const HELP: &str = "\
Installs the network rules that send a pod's traffic through its auditors, and proves that they work.

Usage: lucid-init [--print nft|iptables|ip6tables | --help | --version]

Without an argument it installs the rules and connects through them. It needs to run as root with the
capability NET_ADMIN; it needs no other, no writable file system and no new privileges.

  --print RULES  Print the input it would give to `nft -f` (nft) or to `iptables-restore --noflush`
                 (iptables, ip6tables) here, and change nothing.
  --help         Print this text.
  --version      Print the version.

Environment:
  LUCID_REDIRECT      What to install, in JSON. The operator writes it.
  LUCID_INIT_BACKEND  auto (default): nft where it works, else iptables; nft, iptables: only that one.

Exit codes:
  0  The rules are installed, and connections take the way they should.
  1  No tool could install the rules.
  2  The arguments or the environment make no sense.
  3  The rules are installed, but a connection did not take the way it should.
  4  The result could not be printed.

A failure is reported in one line on standard error and in /dev/termination-log.";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Command {
    Install,
    Print(Rules),
    Help,
    Version,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rules {
    Nft,
    Iptables(Family),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Family {
    Ipv4,
    Ipv6,
}

impl Command {
    pub(crate) fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Self, Error> {
        let arguments: Vec<_> =
            arguments.into_iter().map(|word| word.to_string_lossy().into_owned()).collect();
        let words: Vec<_> = arguments.iter().map(String::as_str).collect();
        let (rules, rest) = match *words {
            [] => return Ok(Self::Install),
            ["--help" | "-h"] => return Ok(Self::Help),
            ["--version" | "-V"] => return Ok(Self::Version),
            ["--print", rules, ref rest @ ..] => (rules, rest),
            [word, ref rest @ ..] => (word.strip_prefix("--print=").unwrap_or_default(), rest),
        };
        match (rules, rest) {
            ("nft", []) => Ok(Self::Print(Rules::Nft)),
            ("iptables", []) => Ok(Self::Print(Rules::Iptables(Family::Ipv4))),
            ("ip6tables", []) => Ok(Self::Print(Rules::Iptables(Family::Ipv6))),
            _ => UsageSnafu { found: words.join(" ") }.fail(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Command, Error> {
        Command::parse(line.split_whitespace().map(OsString::from))
    }

    #[test]
    fn parses_arguments() {
        for (line, command) in [
            ("", Command::Install),
            ("--help", Command::Help),
            ("-V", Command::Version),
            ("--print nft", Command::Print(Rules::Nft)),
            ("--print=nft", Command::Print(Rules::Nft)),
            ("--print iptables", Command::Print(Rules::Iptables(Family::Ipv4))),
            ("--print ip6tables", Command::Print(Rules::Iptables(Family::Ipv6))),
        ] {
            assert_eq!(parse(line).unwrap(), command, "{line}");
        }
        for line in
            ["nft", "--print", "--print=", "--print pf", "--print nft nft", "--help --version", "install"]
        {
            let message = parse(line).unwrap_err().to_string();
            assert!(message.contains(line) && message.contains("expected --print nft"), "{message}");
        }
    }
}
