//! What a person sees while a component is built.

use std::{
    io::{self, IsTerminal as _, Write as _},
    process::{Child, ExitStatus},
    thread,
    time::{Duration, Instant},
};

use crate::say;

/// How often a log, which cannot be rewritten like a terminal's line, gets a new line.
const LOG_INTERVAL: Duration = Duration::from_secs(15);

pub(super) struct Progress<'a> {
    title: &'a str,
    started: Instant,
    terminal: bool,
}

impl<'a> Progress<'a> {
    pub(super) fn start(title: &'a str) -> Self {
        let progress = Self { title, started: Instant::now(), terminal: io::stderr().is_terminal() };
        progress.show();
        progress
    }

    /// Waits for the child to end, showing the seconds.
    pub(super) fn watch(self, child: &mut Child) -> io::Result<ExitStatus> {
        let interval = if self.terminal { Duration::from_secs(1) } else { LOG_INTERVAL };
        let mut next = interval;
        loop {
            if let Some(status) = child.try_wait()? {
                self.show();
                if self.terminal {
                    let _ = writeln!(io::stderr());
                }
                return Ok(status);
            }
            if self.started.elapsed() >= next {
                self.show();
                next += interval;
            }
            thread::sleep(Duration::from_millis(50));
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
