//! Captured log messages.

use std::{
    io,
    sync::{Arc, Mutex},
};

use tracing::{Dispatch, subscriber::DefaultGuard};

pub(crate) struct Log {
    written: Written,
    _guard: DefaultGuard,
    /// With only one subscriber, tracing caches the interest of the first thread that reaches an event. A
    /// thread without a subscriber would disable the event.
    _other: Dispatch,
}

#[derive(Clone, Default)]
struct Written(Arc<Mutex<Vec<u8>>>);

impl Log {
    pub(crate) fn begin() -> Self {
        let written = Written::default();
        let writer = {
            let written = written.clone();
            move || written.clone()
        };
        let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(writer).finish();
        let other = Dispatch::new(tracing::subscriber::NoSubscriber::default());
        Self { written, _guard: tracing::subscriber::set_default(subscriber), _other: other }
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.written.0.lock().unwrap().clone()).unwrap()
    }

    pub(crate) fn lines(&self, text: &str) -> usize {
        self.text().lines().filter(|line| line.contains(text)).count()
    }
}

impl io::Write for Written {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
