//! Inspection of streamed bodies.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use axum::BoxError;
use axum::body::Body;
use bytes::Bytes;
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use tracing::Span;

use crate::Mode;
use crate::phrases::Watch;

/// A body that is searched while its pieces are forwarded.
///
/// In `enforce`, the piece that completes a phrase is withheld and the connection is cut off: the status is already sent, so
/// only an incomplete message shows that something is wrong. Receivers that cannot detect one need buffered responses.
pub(crate) struct Watched {
    body: Body,
    message: &'static str,
    watch: Watch,
    mode: Mode,
    found: bool,
    span: Span,
}

impl Watched {
    pub(crate) fn new(body: Body, message: &'static str, watch: Watch, mode: Mode) -> Self {
        Self { body, message, watch, mode, found: false, span: Span::current() }
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
            let blocked = this.mode == Mode::Enforce;
            tracing::warn!(parent: &this.span, phrase, blocked, "phrase found in the {}", this.message);
            if blocked {
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
