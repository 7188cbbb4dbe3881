//! `lucid-init`: runs the command of its arguments and says how it ended; what it does is in the library.

use std::{env, process::ExitCode};

use lucid_init::{Environment, report};

fn main() -> ExitCode {
    match lucid_init::run(env::args_os().skip(1), &Environment::of_process()) {
        Ok(text) => report::success(&text),
        Err(error) => report::failure(&error),
    }
}
