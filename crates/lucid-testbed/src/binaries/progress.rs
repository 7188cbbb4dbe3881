//! Progress display of a build.

use std::{
    io::{self, IsTerminal as _, Write as _},
    time::{Duration, Instant},
};

use crate::say;

/// Interval between lines in a log, which cannot be rewritten like a terminal's line.
const LOG_INTERVAL: Duration = Duration::from_secs(15);

/// Shows a title with the elapsed seconds: at the start, at every due tick, and on drop.
pub(super) struct Progress {
    title: String,
    started: Instant,
    terminal: bool,
    interval: Duration,
    next: Duration,
}

impl Progress {
    pub(super) fn start(title: String) -> Self {
        let terminal = io::stderr().is_terminal();
        let interval = if terminal { Duration::from_secs(1) } else { LOG_INTERVAL };
        let progress = Self { title, started: Instant::now(), terminal, interval, next: interval };
        progress.show();
        progress
    }

    pub(super) fn tick(&mut self) {
        if self.started.elapsed() >= self.next {
            self.show();
            self.next += self.interval;
        }
    }

    fn show(&self) {
        let line = format_args!("{}, {} s", self.title, self.started.elapsed().as_secs()).to_string();
        if self.terminal {
            let _ = write!(io::stderr(), "\r\x1b[2Ktestbed: {line}");
        } else {
            say(line);
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.show();
        if self.terminal {
            let _ = writeln!(io::stderr());
        }
    }
}
