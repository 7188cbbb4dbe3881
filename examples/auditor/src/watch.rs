//! A body that is looked at while it passes.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use axum::BoxError;
use axum::body::Body;
use bytes::Bytes;
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use tracing::Span;

use crate::Mode;
use crate::phrases::Watch;

/// Kind of message that a body belongs to.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Which {
    Request,
    Answer,
}

/// A body whose pieces pass one by one.
///
/// To enforce, the piece with which a phrase is complete is held back, and the connection is cut off: the status has gone
/// out already, so that only an incomplete message tells the receiver that something is wrong. Who could not tell one from a
/// whole message must not get it piece by piece.
pub(crate) struct Watched {
    body: Body,
    which: Which,
    watch: Watch,
    mode: Mode,
    found: bool,
    span: Span,
}

impl Watched {
    pub(crate) fn new(body: Body, which: Which, watch: Watch, mode: Mode) -> Self {
        Self { body, which, watch, mode, found: false, span: Span::current() }
    }
}

impl HttpBody for Watched {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = &mut *self;
        let Some(frame) = ready!(Pin::new(&mut this.body).poll_frame(cx)) else { return Poll::Ready(None) };
        let frame = frame?;
        if !this.found
            && let Some(data) = frame.data_ref()
            && let Some(phrase) = this.watch.look(data)
        {
            this.found = true;
            let held_back = this.mode == Mode::Enforce;
            tracing::warn!(parent: &this.span, phrase, held_back, "found in {:?}", this.which);
            if this.mode == Mode::Enforce {
                return Poll::Ready(Some(Err(format!("contains \"{phrase}\"").into())));
            }
        }
        Poll::Ready(Some(Ok(frame)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
