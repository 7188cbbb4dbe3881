use std::ffi::OsString;
use std::fmt::Display;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::str::FromStr;

use clap::error::{ContextKind, ContextValue};
use clap::{Command, Error, Parser};

/// Parses the arguments and environment of this process, or exits as clap does: help and version go to standard output
/// with exit code 0, errors to standard error with exit code 2.
///
/// See [`try_parse_from`] for the additions to clap's own messages.
#[must_use]
pub fn parse<A: Parser>() -> A {
    try_parse_from(std::env::args_os()).unwrap_or_else(|error| error.exit())
}

/// Parses `arguments`, the first of which is the program's name, and the environment.
///
/// # Errors
///
/// Returns the error of clap. Where the rejected value or the missing argument belongs to an environment variable, the
/// message names the variable as well: clap names only the flag.
pub fn try_parse_from<A: Parser>(arguments: impl IntoIterator<Item = OsString>) -> Result<A, Error> {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    A::try_parse_from(&arguments).map_err(|error| name_the_variable::<A>(error, &arguments))
}

fn name_the_variable<A: Parser>(error: Error, arguments: &[OsString]) -> Error {
    if let Some(ContextValue::Strings(missing)) = error.get(ContextKind::InvalidArg) {
        return name_what_is_missing::<A>(&error, missing);
    }
    let Some(ContextValue::String(refused)) = error.get(ContextKind::InvalidArg) else { return error };
    let Some((flag, variable)) = variable_of(&A::command(), refused) else { return error };
    let on_command_line = arguments.iter().any(|argument| {
        argument.to_str().is_some_and(|text| text == flag || text.starts_with(&format!("{flag}=")))
    });
    if on_command_line || std::env::var_os(&variable).is_none() {
        return error;
    }
    let kind = error.kind();
    let text = error.to_string();
    let text = text.strip_prefix("error: ").unwrap_or(&text);
    Error::raw(kind, format!("environment variable {variable} (the same as {flag}): {text}"))
}

/// Adds the environment variable to each missing argument, for users who set variables only.
fn name_what_is_missing<A: Parser>(error: &Error, missing: &[String]) -> Error {
    let text = error.to_string();
    let mut text = text.strip_prefix("error: ").unwrap_or(&text).to_owned();
    for argument in missing {
        if let Some((_, variable)) = variable_of(&A::command(), argument) {
            text = text.replacen(argument.as_str(), &format!("{argument} [env: {variable}]"), 1);
        }
    }
    Error::raw(error.kind(), text)
}

/// Finds the argument that clap calls `refused` (such as `--listen <ADDRESS>`) in `command` or its subcommands, and
/// returns its flag and variable.
fn variable_of(command: &Command, refused: &str) -> Option<(String, String)> {
    command
        .get_arguments()
        .find_map(|argument| {
            let flag = format!("--{}", argument.get_long()?);
            let named = refused
                .strip_prefix(&flag)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', '[']));
            let variable = argument.get_env()?.to_str()?.to_owned();
            named.then_some((flag, variable))
        })
        .or_else(|| command.get_subcommands().find_map(|sub| variable_of(sub, refused)))
}

/// Parses a socket address to listen on, for clap's `value_parser`.
pub fn parse_address(text: &str) -> Result<SocketAddr, &'static str> {
    text.parse()
        .map_err(|_| "expected an IP address and a port, such as 0.0.0.0:8443, 127.0.0.1:0 or [::]:8443")
}

/// Returns a parser of numbers within `range`, for clap's `value_parser`.
pub fn within<T>(
    range: RangeInclusive<T>,
) -> impl Fn(&str) -> Result<T, String> + Clone + Send + Sync + 'static
where
    T: FromStr + PartialOrd + Display + Clone + Send + Sync + 'static,
{
    move |text| {
        let number = text.parse().ok().filter(|number| range.contains(number));
        number.ok_or_else(|| format!("expected a whole number from {} to {}", range.start(), range.end()))
    }
}
