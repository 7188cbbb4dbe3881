use std::io::{IsTerminal, stderr};

use snafu::{ResultExt, Snafu};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::util::TryInitError;

/// How log lines are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// For people: one line per event, coloured on a terminal.
    Text,
    /// For machines: one JSON object per line.
    Json,
}

/// The options of logging, to be flattened into a binary's own arguments.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Logging")]
pub struct LogArgs {
    /// What is logged: a level (error, warn, info, debug, trace) or directives such as `info,lucid_chain=debug`.
    #[arg(long = "log", env = "LUCID_LOG", value_name = "FILTER", default_value = "info", global = true)]
    #[arg(value_parser = parse_filter)]
    pub filter: String,

    /// How log lines are written to standard error.
    #[arg(
        long = "log-format",
        env = "LUCID_LOG_FORMAT",
        value_name = "FORMAT",
        default_value = "text",
        global = true
    )]
    pub format: LogFormat,
}

fn parse_filter(text: &str) -> Result<String, String> {
    EnvFilter::try_new(text)
        .map(|_| text.to_owned())
        .map_err(|error| format!("{error}; accepted are a level (error, warn, info, debug, trace) or directives such as `info,lucid_chain=debug`"))
}

/// Logging could not be started.
#[derive(Debug, Snafu)]
#[non_exhaustive]
pub enum LoggingError {
    /// The filter does not parse.
    #[snafu(display("failed to read the log filter {filter:?}"))]
    Filter {
        /// The filter as given.
        filter: String,
        /// What is wrong with it.
        source: tracing_subscriber::filter::ParseError,
    },
    /// Logging was started already.
    #[snafu(display("failed to start logging"))]
    Start {
        /// What the subscriber said.
        source: TryInitError,
    },
}

/// Sends log lines to standard error as `args` say. Call it once, first.
///
/// # Errors
///
/// When the filter does not parse or logging was started before.
pub fn init_logging(args: &LogArgs) -> Result<(), LoggingError> {
    let filter = EnvFilter::try_new(&args.filter).context(FilterSnafu { filter: &args.filter })?;
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(stderr);
    match args.format {
        LogFormat::Text => builder.with_ansi(stderr().is_terminal()).finish().try_init(),
        LogFormat::Json => builder.json().flatten_event(true).finish().try_init(),
    }
    .context(StartSnafu)
}
