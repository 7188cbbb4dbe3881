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
pub(crate) const TIMEOUT: Duration = Duration::from_secs(20);

/// What all bodies together may take of the memory; beyond it callers are asked to come again.
const BUDGET: usize = 96 * 1024 * 1024;

/// How long a body may stand still on its way.
const STALL: Duration = Duration::from_secs(5);

/// Bounds what bodies take of the memory, however many connections there are.
#[derive(Clone, Debug)]
pub(crate) struct Reader {
    limit: usize,
    stall: Duration,
    budget: Arc<Semaphore>,
}

/// A body, and its share of the budget. Keep it until the answer is made.
#[derive(Debug)]
pub(crate) struct Received {
    pub(crate) bytes: Bytes,
    _share: Option<OwnedSemaphorePermit>,
}

/// Why there is no body.
#[derive(Debug)]
pub(crate) enum BodyError {
    TooLarge,
    TooSlow,
    /// There is no room for it now.
    Busy,
    Broken(BoxError),
}

impl Default for Reader {
    fn default() -> Self {
        Self { limit: DEFAULT_LIMIT, stall: STALL, budget: Arc::new(Semaphore::new(BUDGET)) }
    }
}

impl Reader {
    pub(crate) fn conversion() -> Self {
        Self { limit: 64 * 1024 * 1024, stall: STALL, budget: Arc::new(Semaphore::new(2 * 64 * 1024 * 1024)) }
    }

    pub(crate) const fn timeout(&self) -> Duration {
        TIMEOUT
    }

    pub(crate) const fn set_limit(&mut self, bytes: usize) {
        self.limit = bytes;
    }

    pub(crate) const fn limit(&self) -> usize {
        self.limit
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
        tokio::time::timeout(TIMEOUT, self.collect(body)).await.unwrap_or(Err(BodyError::TooSlow))
    }

    /// A body that is refused is read to its end all the same: its sender gets to read the answer then, instead of a
    /// reset connection.
    async fn collect<B>(&self, body: B) -> Result<Received, BodyError>
    where
        B: Body<Data = Bytes>,
        B::Error: Into<BoxError>,
    {
        let mut body = std::pin::pin!(body.map_err(Into::<BoxError>::into));
        let mut kept = Ok((Chunks::default(), None::<OwnedSemaphorePermit>));
        let mut received = 0;
        while let Some(frame) =
            tokio::time::timeout(self.stall, body.frame()).await.map_err(|_elapsed| BodyError::TooSlow)?
        {
            let Ok(data) = frame.map_err(BodyError::Broken)?.into_data() else { continue };
            received += data.len();
            if received > self.limit + DISCARDED {
                return Err(BodyError::TooLarge);
            } else if received > self.limit {
                kept = Err(BodyError::TooLarge);
            } else if let Ok((chunks, share)) = &mut kept {
                match self.share(data.len()) {
                    Some(more) => {
                        chunks.push(data);
                        match share {
                            Some(share) => share.merge(more),
                            None => *share = Some(more),
                        }
                    }
                    // Not to wait: those who have a part of the room might wait for each other.
                    None => kept = Err(BodyError::Busy),
                }
            }
        }
        kept.map(|(chunks, share)| Received { bytes: chunks.into_bytes(), _share: share })
    }

    fn share(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        let bytes = u32::try_from(bytes).ok()?;
        Arc::clone(&self.budget).try_acquire_many_owned(bytes).ok()
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
    async fn bodies_that_stall_take_no_more_than_the_budget_and_not_for_long() {
        let reader = Reader {
            stall: Duration::from_millis(400),
            budget: Arc::new(Semaphore::new(1000)),
            ..Reader::default()
        };
        let body = |bytes: usize| Full::new(Bytes::from(vec![b'x'; bytes]));
        let stalling: Vec<_> = (0..3)
            .map(|_| {
                let reader = reader.clone();
                tokio::spawn(async move { reader.read(&HeaderMap::new(), stalled(300)).await.map(drop) })
            })
            .collect();
        tokio::task::yield_now().await;
        let headers = HeaderMap::new();
        assert_eq!(reader.read(&headers, body(100)).await.unwrap().bytes.len(), 100);
        assert!(matches!(reader.read(&headers, body(101)).await, Err(BodyError::Busy)));
        for task in stalling {
            assert!(matches!(task.await.unwrap(), Err(BodyError::TooSlow)));
        }
        let held = reader.read(&headers, body(1000)).await.unwrap();
        assert!(matches!(reader.read(&headers, body(1)).await, Err(BodyError::Busy)));
        drop(held);
        assert!(reader.read(&headers, body(1)).await.is_ok(), "a share that is given back is there again");
    }

    #[tokio::test]
    async fn a_body_in_pieces_is_whole() {
        let pieces = ["a", "bc", "", "def"].map(|piece| Ok::<_, Infallible>(Frame::data(Bytes::from(piece))));
        let body = StreamBody::new(stream::iter(pieces));
        assert_eq!(Reader::default().read(&HeaderMap::new(), body).await.unwrap().bytes, "abcdef");
    }
}
