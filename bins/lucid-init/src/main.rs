//! Entry point of `lucid-init`. The library implements the commands.

use std::{env, process::ExitCode};

use lucid_init::{Environment, report};

fn main() -> ExitCode {
    match lucid_init::run(env::args_os().skip(1), &Environment::of_process()) {
        Ok(text) => report::success(&text),
        Err(error) => report::failure(&error),
    }
}
