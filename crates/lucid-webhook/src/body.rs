//! Reading a request's body within a size and a time.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http::header::EXPECT;
use http_body_util::BodyExt;
use hyper::body::Body;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::router::BoxError;

/// Requests with bodies of 3 MiB are what the API server takes; two such objects and the rest of a review stay below.
pub(crate) const DEFAULT_LIMIT: usize = 7 * 1024 * 1024;

/// How much of a body beyond the limit is read and thrown away, so that its sender gets to read the answer instead
/// of a reset connection.
const DISCARDED: usize = 64 * 1024 * 1024;

/// How long a body may take.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(20);

/// Up to this size a body is taken as it comes.
const SMALL: usize = 256 * 1024;
/// How many larger ones are in memory at a time; the others wait in their senders' buffers.
const LARGE_AT_A_TIME: usize = 4;

/// Bounds what bodies take of the memory, however many connections there are.
#[derive(Clone, Debug)]
pub(crate) struct Reader {
    limit: usize,
    timeout: Duration,
    large: Arc<Semaphore>,
}

/// A body, and its place among the large ones if it is one. Keep it until the answer is made.
#[derive(Debug)]
pub(crate) struct Received {
    pub(crate) bytes: Bytes,
    _place: Option<OwnedSemaphorePermit>,
}

/// Why there is no body.
#[derive(Debug)]
pub(crate) enum BodyError {
    TooLarge,
    TooSlow,
    Broken(BoxError),
}

impl Default for Reader {
    fn default() -> Self {
        Self {
            limit: DEFAULT_LIMIT,
            timeout: DEFAULT_TIMEOUT,
            large: Arc::new(Semaphore::new(LARGE_AT_A_TIME)),
        }
    }
}

impl Reader {
    pub(crate) const fn set_limit(&mut self, bytes: usize) {
        self.limit = bytes;
    }

    pub(crate) const fn limit(&self) -> usize {
        self.limit
    }

    pub(crate) const fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Reads a whole body.
    pub(crate) async fn read<B>(&self, headers: &HeaderMap, body: B) -> Result<Received, BodyError>
    where
        B: Body<Data = Bytes>,
        B::Error: Into<BoxError>,
    {
        // A client that waits for "100 Continue" has sent nothing yet and need not begin.
        if body.size_hint().lower() > self.limit as u64 && headers.contains_key(EXPECT) {
            return Err(BodyError::TooLarge);
        }
        tokio::time::timeout(self.timeout, self.collect(body)).await.unwrap_or(Err(BodyError::TooSlow))
    }

    async fn collect<B>(&self, body: B) -> Result<Received, BodyError>
    where
        B: Body<Data = Bytes>,
        B::Error: Into<BoxError>,
    {
        let mut body = std::pin::pin!(body.map_err(Into::<BoxError>::into));
        let mut bytes = Chunks::default();
        let mut place = None;
        let mut received = 0;
        while let Some(frame) = body.frame().await {
            let Ok(data) = frame.map_err(BodyError::Broken)?.into_data() else {
                continue;
            };
            received += data.len();
            if received > self.limit {
                // What was kept is of no use any more.
                (bytes, place) = (Chunks::default(), None);
                if received > self.limit + DISCARDED {
                    return Err(BodyError::TooLarge);
                }
                continue;
            }
            if received > SMALL && place.is_none() {
                // It is never closed; without a place the body is merely not counted.
                place = Arc::clone(&self.large).acquire_owned().await.ok();
            }
            bytes.push(data);
        }
        if received > self.limit {
            return Err(BodyError::TooLarge);
        }
        Ok(Received { bytes: bytes.into_bytes(), _place: place })
    }
}

/// Most bodies arrive in one piece, which is then not copied.
#[derive(Default)]
enum Chunks {
    #[default]
    None,
    One(Bytes),
    Many(BytesMut),
}

impl Chunks {
    fn push(&mut self, data: Bytes) {
        *self = match std::mem::take(self) {
            Self::None => Self::One(data),
            Self::One(first) => {
                let mut all = BytesMut::with_capacity(2 * (first.len() + data.len()));
                all.extend_from_slice(&first);
                all.extend_from_slice(&data);
                Self::Many(all)
            }
            Self::Many(mut all) => {
                all.extend_from_slice(&data);
                Self::Many(all)
            }
        };
    }

    fn into_bytes(self) -> Bytes {
        match self {
            Self::None => Bytes::new(),
            Self::One(bytes) => bytes,
            Self::Many(all) => all.freeze(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use futures::stream;
    use http_body_util::{Full, StreamBody};
    use hyper::body::Frame;

    use super::*;

    /// A body that sends `sent` bytes and then nothing.
    fn stalled(sent: usize) -> impl Body<Data = Bytes, Error = Infallible> {
        let first = stream::once(async move { Ok(Frame::data(Bytes::from(vec![b'x'; sent]))) });
        StreamBody::new(futures::StreamExt::chain(first, stream::pending()))
    }

    #[tokio::test]
    async fn large_bodies_wait_for_each_other_and_small_ones_for_nobody() {
        let reader = Reader { timeout: Duration::from_millis(400), ..Reader::default() };
        let headers = HeaderMap::new();
        let large = || Full::new(Bytes::from(vec![b'x'; SMALL + 1]));
        let stalled: Vec<_> = (0..LARGE_AT_A_TIME)
            .map(|_| {
                let reader = reader.clone();
                tokio::spawn(
                    async move { reader.read(&HeaderMap::new(), stalled(SMALL + 1)).await.map(drop) },
                )
            })
            .collect();
        tokio::task::yield_now().await;
        let small = reader.read(&headers, Full::new(Bytes::from_static(b"small"))).await.unwrap();
        assert_eq!(small.bytes, "small");
        let waiting = tokio::time::timeout(reader.timeout / 2, reader.read(&headers, large())).await;
        assert!(waiting.is_err(), "there was room for one more");
        for task in stalled {
            assert!(matches!(task.await.unwrap(), Err(BodyError::TooSlow)));
        }
        assert_eq!(reader.read(&headers, large()).await.unwrap().bytes.len(), SMALL + 1);
    }

    #[tokio::test]
    async fn a_body_in_pieces_is_whole() {
        let pieces = ["a", "bc", "", "def"].map(|piece| Ok::<_, Infallible>(Frame::data(Bytes::from(piece))));
        let body = StreamBody::new(stream::iter(pieces));
        assert_eq!(Reader::default().read(&HeaderMap::new(), body).await.unwrap().bytes, "abcdef");
    }
}
