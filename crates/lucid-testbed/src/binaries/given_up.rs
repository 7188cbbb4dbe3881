//! Cancellation of a build.

use std::{
    convert::Infallible,
    sync::mpsc::{self, Receiver, RecvTimeoutError, Sender},
    time::Duration,
};

use snafu::whatever;

use crate::Error;

/// Held by the caller of the build. Dropping it cancels the build, and waits until it has ended.
pub(super) struct Wish {
    alive: Option<Sender<Infallible>>,
    ended: Receiver<Infallible>,
}

/// Held by the build until its end.
pub(super) struct GivenUp {
    wish: Receiver<Infallible>,
    _running: Sender<Infallible>,
}

pub(super) fn channel() -> (Wish, GivenUp) {
    let ((alive, wish), (running, ended)) = (mpsc::channel(), mpsc::channel());
    (Wish { alive: Some(alive), ended }, GivenUp { wish, _running: running })
}

impl GivenUp {
    /// Sleeps until the time has passed or the build is cancelled.
    pub(super) fn pause(&self, time: Duration) -> Result<(), Error> {
        match self.wish.recv_timeout(time) {
            Err(RecvTimeoutError::Timeout) => Ok(()),
            _ => whatever!("failed to finish the build: it was given up"),
        }
    }
}

impl Drop for Wish {
    fn drop(&mut self) {
        self.alive = None;
        // Nothing is ever sent: this returns when the other half is dropped.
        let _ = self.ended.recv();
    }
}
