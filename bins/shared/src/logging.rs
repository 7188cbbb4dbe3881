use std::io::{self, IsTerminal, Write, stderr};

use tracing::{Dispatch, Level, Metadata};
use tracing_subscriber::filter::{FilterFn, LevelFilter, filter_fn};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::Registry;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer};

use crate::Error;

/// Target that logs unreadable responses of the API server in full at WARN. A response may be a Secret with a key.
const ANSWERS: &str = "kube_client::client";

/// Format of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// For people: one line per event, coloured on a terminal.
    Text,
    /// For machines: one JSON object per line.
    Json,
}

/// Logging options, to be flattened into a program's arguments.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Logging")]
pub struct LogArgs {
    /// Log filter: a level (error, warn, info, debug, trace) or directives such as `info,lucid_chain=debug`.
    /// `kube_client::client` logs only errors unless named here, because it logs responses that may contain keys.
    #[arg(
        long = "log-filter",
        env = "LUCID_LOG",
        value_name = "FILTER",
        default_value = "info",
        global = true
    )]
    #[arg(value_parser = parse_filter)]
    pub filter: String,

    /// Format of log lines on standard error.
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
    const EXPECTED: &str = "expected a level (error, warn, info, debug, trace, off) or directives such as \
                            `info,lucid_chain=debug`";
    // A single word that is not a level would be parsed as a target and silence everything else.
    let is_level = |word: &str| word.parse::<LevelFilter>().is_ok();
    let words = text.split(',').map(str::trim).filter(|directive| !directive.contains(['=', '[']));
    if let Some(word) = words.into_iter().find(|word| !is_level(word)) {
        return Err(format!("{word:?} is not a level, {EXPECTED}"));
    }
    EnvFilter::try_new(text).map(|_| text.to_owned()).map_err(|error| format!("{error}, {EXPECTED}"))
}

/// Sends log lines to standard error, as configured by `args`. Call it once, before anything logs.
pub fn init_logging(args: &LogArgs) -> Result<(), Error> {
    start(args, None)
}

/// Starts logging as [`init_logging`] does, and adds the layer `traces`.
pub(crate) fn start(args: &LogArgs, traces: Option<Traces>) -> Result<(), Error> {
    let subscriber = subscriber(args, || OneLine(stderr()), traces)?;
    subscriber.try_init().map_err(Error::with_context("failed to start logging"))
}

/// Layer that receives Lucid's own spans and events.
pub(crate) type Traces = Box<dyn Layer<Registry> + Send + Sync>;

/// Directive for request spans, of which traces consist, at any log level. No event has this target.
const SPANS: &str = "lucid_webhook::respond=info";

fn subscriber<W>(args: &LogArgs, writer: W, traces: Option<Traces>) -> Result<Dispatch, Error>
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let filter = match traces {
        Some(_) => format!("{},{SPANS}", args.filter),
        None => args.filter.clone(),
    };
    let refused = Error::with_context(format!("failed to read the log filter {filter:?}"));
    let filter = EnvFilter::try_new(filter).map_err(refused)?;
    // The layer would panic when standard error is closed.
    let lines = tracing_subscriber::fmt::layer().log_internal_errors(false).with_writer(writer);
    let lines = match args.format {
        LogFormat::Text => lines.with_ansi(stderr().is_terminal()).boxed(),
        LogFormat::Json => lines.json().flatten_event(true).boxed(),
    };
    let subscriber = Registry::default().with(traces).with(lines);
    Ok(subscriber.with(filter).with(without_answers(&args.filter)).into())
}

/// Drops the events that may contain keys, unless `filter` names their target.
fn without_answers(filter: &str) -> FilterFn<impl Fn(&Metadata<'_>) -> bool + use<>> {
    let target = |directive: &str| directive.split(['=', '[']).next() == Some(ANSWERS);
    let is_named = filter.split(',').any(target);
    filter_fn(move |event| is_named || event.target() != ANSWERS || *event.level() == Level::ERROR)
}

/// Keeps every event on one line: a newline in untrusted data could otherwise forge log lines. The subscriber writes
/// each event with a single call.
struct OneLine<W>(W);

impl<W: Write> Write for OneLine<W> {
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        let text = event.strip_suffix(b"\n").unwrap_or(event);
        // Escape sequences are the subscriber's own colors; it escapes those in data.
        let is_forged = |byte: &u8| byte.is_ascii_control() && !matches!(byte, b'\x1b' | b'\t');
        if !text.iter().any(is_forged) {
            self.0.write_all(event)?;
            return Ok(event.len());
        }
        let mut line = Vec::with_capacity(event.len() + 16);
        for byte in text {
            match is_forged(byte) {
                true => line.extend(byte.escape_ascii()),
                false => line.push(*byte),
            }
        }
        line.extend_from_slice(&event[text.len()..]);
        self.0.write_all(&line)?;
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[test]
    fn events_stay_on_one_line() {
        let mut written = Vec::new();
        OneLine(&mut written).write_all("INFO é a\n2026 WARN forged\r\0\n".as_bytes()).unwrap();
        assert_eq!(String::from_utf8(written).unwrap(), "INFO é a\\n2026 WARN forged\\r\\x00\n");
    }

    #[derive(Clone, Default)]
    struct Log(Arc<Mutex<Vec<u8>>>);

    impl Write for Log {
        fn write(&mut self, event: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(event)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// Events that are written.
    fn written(filter: &str, format: LogFormat) -> Vec<&'static str> {
        let log = Log::default();
        let writer = log.clone();
        let args = LogArgs { filter: filter.to_owned(), format };
        let subscriber = subscriber(&args, move || writer.clone(), None).unwrap();
        tracing::dispatcher::with_default(&subscriber, || {
            tracing::error!(target: "kube_client::client", "error");
            tracing::warn!(target: "kube_client::client", "warning");
            tracing::trace!(target: "kube_client::client", "detail");
            tracing::warn!(target: "kube_client::client::tls", "other");
        });
        let log = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
        ["error", "warning", "detail", "other"].into_iter().filter(|message| log.contains(message)).collect()
    }

    #[test]
    fn api_server_responses_are_logged_only_on_explicit_request() {
        for (filter, expected) in [
            ("info", &["error", "other"][..]),
            ("trace", &["error", "other"]),
            ("info,kube_client=trace", &["error", "other"]),
            ("info,kube=debug,kube_client::client::tls=off", &["error"]),
            ("off", &[]),
            ("info,kube_client=off", &[]),
            ("info,kube_client::client=warn", &["error", "warning", "other"]),
            ("off,kube_client::client=trace", &["error", "warning", "detail", "other"]),
        ] {
            assert_eq!(written(filter, LogFormat::Text), expected, "{filter}");
            assert_eq!(written(filter, LogFormat::Json), expected, "{filter}");
        }
    }

    #[test]
    fn words_that_are_not_levels_are_rejected() {
        for (filter, is_valid) in [
            ("info", true),
            ("INFO,lucid_chain=debug", true),
            ("off", true),
            ("INF", false),
            ("info,lucid_chain", false),
        ] {
            assert_eq!(parse_filter(filter).is_ok(), is_valid, "{filter}");
        }
    }
}
