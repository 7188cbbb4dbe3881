//! Request bodies that report their progress to an [`Activity`](super::activity::Activity).

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};

use super::activity::Reading;

/// The body of a request to a [`Server`](crate::Server).
///
/// Wraps hyper's body and tracks its progress: at the connection limit, a connection whose body stalls is replaced.
#[derive(Debug)]
pub struct RequestBody {
    body: Incoming,
    reading: Reading,
}

impl RequestBody {
    pub(super) const fn new(body: Incoming, reading: Reading) -> Self {
        Self { body, reading }
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let frame = Pin::new(&mut self.body).poll_frame(cx);
        match &frame {
            Poll::Pending => self.reading.waits(),
            Poll::Ready(Some(Ok(frame))) => self.reading.came(frame.data_ref().map_or(0, Bytes::len)),
            Poll::Ready(_) => self.reading.came(0),
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
