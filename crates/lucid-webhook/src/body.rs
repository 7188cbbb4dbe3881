//! Reads request bodies within limits of size and time.

use std::pin::pin;
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use http::header::EXPECT;
use http_body_util::BodyExt;
use hyper::body::Body;
use tower::BoxError;

use crate::budget::{Budget, HEAD, Share};

const MIB: usize = 1024 * 1024;

/// The API server accepts bodies of up to 3 MiB; a review with two such objects fits.
pub(crate) const DEFAULT_LIMIT: usize = 7 * MIB;

/// A ConversionReview may hold all objects of a LIST.
const CONVERSION_LIMIT: usize = 64 * MIB;

/// Number of bytes beyond the limit that are read and discarded, so that the sender receives the response instead of a
/// connection reset.
const DISCARDED: usize = 64 * MIB;

/// Time spent on discarding a body, for the same reason. The API server sends all of it at once.
const DISCARD_TIMEOUT: Duration = Duration::from_secs(2);

pub(crate) const TIMEOUT: Duration = Duration::from_secs(20);

/// The API server's timeout for conversions, which is not configurable. After that nothing waits for the response.
const CONVERSION_TIMEOUT: Duration = Duration::from_secs(30);

/// Memory for all bodies and their responses, in bytes. Above it, requests are answered with 429.
const BUDGET: usize = 96 * MIB;
const CONVERSION_BUDGET: usize = 257 * MIB;

/// Maximum time without progress on a body.
const STALL: Duration = Duration::from_secs(5);

/// Limits the memory used by bodies, independently of the number of connections.
#[derive(Clone, Debug)]
pub(crate) struct Reader {
    limit: usize,
    /// `true` if a response is about as long as its request, and needs room from the start.
    responds_alike: bool,
    stall: Duration,
    timeout: Duration,
    budget: Budget,
}

/// A body and its share of the budget. Keep it until the response is built and [takes](Self::attach) the share.
#[derive(Debug)]
pub(crate) struct Received {
    pub(crate) bytes: Bytes,
    share: Share,
}

impl Received {
    /// Transfers the share of the budget from the body to `response`. It is held until the last byte is sent, since a
    /// peer may read slowly.
    pub(crate) fn attach(self, response: impl Into<Bytes>) -> Bytes {
        let (bytes, share) = (response.into(), self.share);
        share.settle(bytes.len());
        Bytes::from_owner(Charged { bytes, _share: share })
    }
}

struct Charged {
    bytes: Bytes,
    _share: Share,
}

impl AsRef<[u8]> for Charged {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

#[derive(Debug)]
pub(crate) enum BodyError {
    TooLarge,
    TooSlow,
    Busy,
    Broken(BoxError),
}

impl Default for Reader {
    fn default() -> Self {
        Self::new(DEFAULT_LIMIT, TIMEOUT, BUDGET)
    }
}

impl Reader {
    pub(crate) fn conversion() -> Self {
        Self { responds_alike: true, ..Self::new(CONVERSION_LIMIT, CONVERSION_TIMEOUT, CONVERSION_BUDGET) }
    }

    fn new(limit: usize, timeout: Duration, budget: usize) -> Self {
        Self { limit, responds_alike: false, timeout, stall: STALL, budget: Budget::new(budget) }
    }

    /// Sets the maximum size of a body. Existing clones keep their limit. The budget grows with it, so that any caller
    /// has room for two such bodies, including responses if these are as long.
    pub(crate) fn set_limit(&mut self, bytes: usize) {
        self.limit = bytes;
        let each = bytes.saturating_mul(if self.responds_alike { 2 } else { 1 });
        let wanted = each.saturating_add(HEAD).saturating_mul(4);
        if wanted > self.budget.size() {
            self.budget = Budget::new(wanted);
        }
    }

    pub(crate) const fn limit(&self) -> usize {
        self.limit
    }

    /// Maximum time for reading a body, without the limit on stalls.
    pub(crate) const fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Reads a whole body. Room is reserved for `authenticated` callers.
    pub(crate) async fn read<B>(
        &self,
        headers: &HeaderMap,
        authenticated: bool,
        body: B,
    ) -> Result<Received, BodyError>
    where
        B: Body<Data = Bytes>,
        B::Error: Into<BoxError>,
    {
        // A client that waits for "100 Continue" has not sent the body yet.
        if self.is_announced_too_large(&body) && headers.contains_key(EXPECT) {
            return Err(BodyError::TooLarge);
        }
        tokio::time::timeout(self.timeout, self.collect(authenticated, body))
            .await
            .unwrap_or(Err(BodyError::TooSlow))
    }

    /// Reads a body to its end and discards it, so that its connection can be reused. Gives up after 2 s, or if the
    /// body exceeds the limit; the connection is then closed after the response.
    pub(crate) async fn discard<B>(&self, headers: &HeaderMap, body: B)
    where
        B: Body<Data = Bytes>,
        B::Error: Into<BoxError>,
    {
        if !headers.contains_key(EXPECT) {
            let _ = tokio::time::timeout(DISCARD_TIMEOUT, self.skip(body)).await;
        }
    }

    async fn skip<B: Body<Data = Bytes>>(&self, body: B) {
        let mut left = self.limit.min(DEFAULT_LIMIT);
        if body.size_hint().lower() > left as u64 {
            return;
        }
        let mut body = pin!(body);
        while let Some(Ok(frame)) = body.frame().await {
            match left.checked_sub(frame.data_ref().map_or(0, Bytes::len)) {
                Some(rest) => left = rest,
                None => return,
            }
        }
    }

    fn is_announced_too_large<B: Body>(&self, body: &B) -> bool {
        body.size_hint().lower() > self.limit as u64
    }

    /// Reads a body. A rejected body is read to its end, so that its sender receives the response instead of a
    /// connection reset.
    async fn collect<B>(&self, authenticated: bool, body: B) -> Result<Received, BodyError>
    where
        B: Body<Data = Bytes>,
        B::Error: Into<BoxError>,
    {
        let length = body.size_hint().exact().and_then(|length| usize::try_from(length).ok());
        let share = self.budget.share(authenticated).ok_or(BodyError::Busy)?;
        let mut kept = match self.is_announced_too_large(&body) {
            true => Err(BodyError::TooLarge),
            false => Ok(Kept::new(length.unwrap_or(self.limit))),
        };
        let mut body = pin!(body.map_err(Into::<BoxError>::into));
        let mut received = 0_usize;
        loop {
            let frame = tokio::select! {
                frame = tokio::time::timeout(self.stall, body.frame()) => frame,
                () = share.dropped() => return Err(BodyError::Busy),
            };
            let Some(frame) = frame.map_err(|_elapsed| BodyError::TooSlow)? else { break };
            let Ok(data) = frame.map_err(BodyError::Broken)?.into_data() else { continue };
            received = received.saturating_add(data.len());
            if received > self.limit.saturating_add(DISCARDED) {
                return Err(BodyError::TooLarge);
            } else if received > self.limit {
                kept = Err(BodyError::TooLarge);
            } else if let Ok(so_far) = &mut kept
                && so_far.push(data, &share).is_none()
            {
                // Never wait: bodies that hold parts of the budget could deadlock.
                kept = Err(BodyError::Busy);
            }
            if kept.is_err() {
                share.settle(0);
            }
        }
        let bytes = kept?.into_bytes();
        if self.responds_alike {
            share.raise(bytes.len().saturating_mul(2)).ok_or(BodyError::Busy)?;
        }
        share.complete().ok_or(BodyError::Busy)?;
        Ok(Received { bytes, share })
    }
}

/// The received part of a body. Most bodies arrive in one piece, which is not copied.
struct Kept {
    /// Announced length, or the limit.
    most: usize,
    first: Bytes,
    all: Vec<u8>,
}

impl Kept {
    const fn new(most: usize) -> Self {
        Self { most, first: Bytes::new(), all: Vec::new() }
    }

    /// Appends `data`, and charges at most twice the received length. Returns `None` if the budget is exhausted.
    fn push(&mut self, data: Bytes, share: &Share) -> Option<()> {
        if self.first.is_empty() && self.all.is_empty() {
            share.raise(data.len())?;
            self.first = data;
            return Some(());
        }
        let received = self.first.len() + self.all.len() + data.len();
        if received > self.all.capacity() {
            let room = received.saturating_mul(2).min(self.most).max(received);
            share.raise(room)?;
            self.all.reserve_exact(room - self.all.len());
        }
        self.all.extend_from_slice(&std::mem::take(&mut self.first));
        self.all.extend_from_slice(&data);
        Some(())
    }

    fn into_bytes(self) -> Bytes {
        if self.all.is_empty() { self.first } else { self.all.into() }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::pin::Pin;
    use std::task::{Context, Poll};

    use futures::stream;
    use http_body_util::{Full, StreamBody};
    use hyper::body::{Frame, SizeHint};

    use super::*;

    fn stalled(sent: usize) -> impl Body<Data = Bytes, Error = Infallible> {
        let first = stream::once(async move { Ok(Frame::data(Bytes::from(vec![b'x'; sent]))) });
        StreamBody::new(futures::StreamExt::chain(first, stream::pending()))
    }

    #[tokio::test]
    async fn stalled_bodies_are_limited_in_memory_and_time() {
        let budget = Budget::new(1000 + 4 * HEAD);
        let reader = Reader { stall: Duration::from_millis(400), budget, ..Reader::default() };
        let body = |bytes: usize| Full::new(Bytes::from(vec![b'x'; bytes]));
        let stalling: Vec<_> = (0..3)
            .map(|_| {
                let reader = reader.clone();
                tokio::spawn(
                    async move { reader.read(&HeaderMap::new(), true, stalled(300)).await.map(drop) },
                )
            })
            .collect();
        tokio::task::yield_now().await;
        let headers = HeaderMap::new();
        assert_eq!(reader.read(&headers, true, body(100)).await.unwrap().bytes.len(), 100);
        assert!(matches!(reader.read(&headers, true, body(101)).await, Err(BodyError::Busy)));
        for task in stalling {
            assert!(matches!(task.await.unwrap(), Err(BodyError::TooSlow)));
        }
        let held = reader.read(&headers, true, body(1000 + 3 * HEAD)).await.unwrap();
        assert!(matches!(reader.read(&headers, true, body(1)).await, Err(BodyError::Busy)));
        drop(held);
        assert!(
            reader.read(&headers, true, body(1)).await.is_ok(),
            "a share that is given back is there again"
        );
    }

    struct Announced<B>(u64, Pin<Box<B>>);

    impl<B: Body> Body for Announced<B> {
        type Data = B::Data;
        type Error = B::Error;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
            self.1.as_mut().poll_frame(cx)
        }

        fn size_hint(&self) -> SizeHint {
            SizeHint::with_exact(self.0)
        }
    }

    #[tokio::test]
    async fn slow_bodies_do_not_starve_others() {
        const LENGTH: usize = 20 * MIB;
        const TICKS: usize = 200;
        // Fills the budget with announced lengths, then with received bytes, within 20 s.
        for (connections, rate) in [(13, 1_700_000), (200, 40_000_000)] {
            let budget = Budget::new(BUDGET).with_slow(Duration::ZERO);
            let reader = Reader { limit: LENGTH, budget, ..Reader::default() };
            let (clock, ticks) = tokio::sync::watch::channel(());
            let piece = rate / 10 / connections;
            let trickle = || {
                let pieces = stream::unfold(ticks.clone(), move |mut ticks| async move {
                    ticks.changed().await.ok()?;
                    Some((Ok::<_, Infallible>(Frame::data(Bytes::from(vec![b'x'; piece]))), ticks))
                });
                let body = Announced(LENGTH as u64, Box::pin(StreamBody::new(pieces)));
                let reader = reader.clone();
                tokio::spawn(async move { reader.read(&HeaderMap::new(), false, body).await.map(drop) })
            };
            let trickles: Vec<_> = (0..connections).map(|_| trickle()).collect();
            for tick in 0..TICKS {
                clock.send_replace(());
                tokio::task::yield_now().await;
                for length in [900, 5 * MIB] {
                    let body = Full::new(Bytes::from(vec![b'x'; length]));
                    let read = reader.read(&HeaderMap::new(), false, body).await;
                    assert!(read.is_ok(), "{length} among {connections} at {tick}: {read:?}");
                }
                assert!(reader.budget.used() <= BUDGET);
            }
            trickles.iter().for_each(tokio::task::JoinHandle::abort);
            for trickle in trickles {
                trickle.await.ok();
            }
            assert_eq!(reader.budget.used(), 0);
        }
    }

    #[tokio::test]
    async fn a_budget_has_room_for_two_of_the_largest_bodies() {
        let mut reader = Reader::default();
        reader.set_limit(80 * MIB);
        let body = || Full::new(Bytes::from(vec![b'x'; 80 * MIB]));
        let _first = reader.read(&HeaderMap::new(), false, body()).await.unwrap();
        let _second = reader.read(&HeaderMap::new(), false, body()).await.unwrap();
        assert!(matches!(reader.read(&HeaderMap::new(), false, body()).await, Err(BodyError::Busy)));
        assert!(reader.read(&HeaderMap::new(), true, body()).await.is_ok());
    }

    #[tokio::test]
    async fn a_response_keeps_its_budget_until_it_is_sent() {
        let (headers, body) = (HeaderMap::new(), || Full::new(Bytes::from(vec![b'x'; 100])));
        let mut reader = Reader { budget: Budget::new(250 + HEAD), ..Reader::conversion() };
        for length in [0, 30, 100, 200, 240, 250, 1000] {
            let received = reader.read(&headers, true, body()).await.unwrap();
            assert_eq!(reader.budget.used(), 200 + HEAD, "a head, a body, and an answer as long");
            let mut response = received.attach(vec![b'y'; length]);
            assert_eq!((response.len(), reader.budget.used()), (length, length));
            let last = response.split_off(length / 2);
            drop(response);
            assert_eq!(reader.budget.used(), length);
            drop(last);
            assert_eq!(reader.budget.used(), 0);
        }
        reader.budget = Budget::new(199 + HEAD);
        assert!(matches!(reader.read(&headers, true, body()).await, Err(BodyError::Busy)));
        reader.responds_alike = false;
        assert!(reader.read(&headers, true, body()).await.is_ok());
    }

    #[test]
    fn a_body_is_charged_at_most_twice_its_received_length() {
        const FRAME: usize = 16 * 1024;
        for length in [17_000, 70_000, 300_000, 1_100_000, 1_500_000, 7 * MIB, 64 * MIB] {
            let budget = Budget::new(usize::MAX);
            let share = budget.share(false).unwrap();
            let used = || budget.used() - HEAD;
            let mut kept = Kept::new(length);
            let mut received = 0;
            while received < length {
                let data = Bytes::from(vec![b'x'; FRAME.min(length - received)]);
                received += data.len();
                kept.push(data, &share).unwrap();
                assert!(kept.all.capacity() <= used(), "memory that the budget does not know");
                assert!((received..=2 * received).contains(&used()), "{} for {received}", used());
            }
            assert_eq!((used(), kept.into_bytes().len()), (length, length));
        }
        let budget = Budget::new(MIB);
        let (share, mut kept) = (budget.share(false).unwrap(), Kept::new(2));
        for piece in ["abc", "def"] {
            kept.push(Bytes::from(piece), &share).unwrap();
        }
        assert_eq!(kept.into_bytes(), "abcdef", "a length that is wrong does no harm");
    }

    #[tokio::test]
    async fn an_oversized_announced_body_is_read_and_discarded() {
        let reader = Reader { limit: 10, budget: Budget::new(2 * HEAD), ..Reader::default() };
        let body = Full::new(Bytes::from(vec![b'x'; 11]));
        assert!(matches!(reader.read(&HeaderMap::new(), false, body).await, Err(BodyError::TooLarge)));
        let pieces = [4, 4, 4].map(|len| Ok::<_, Infallible>(Frame::data(Bytes::from(vec![b'x'; len]))));
        let body = StreamBody::new(stream::iter(pieces));
        let reader = Reader { limit: 10, ..Reader::default() };
        assert!(matches!(reader.read(&HeaderMap::new(), false, body).await, Err(BodyError::TooLarge)));
    }

    fn trickle() -> impl Body<Data = Bytes, Error = Infallible> {
        StreamBody::new(stream::unfold((), |()| async {
            tokio::time::sleep(Duration::from_millis(20)).await;
            Some((Ok(Frame::data(Bytes::from_static(b"x"))), ()))
        }))
    }

    #[tokio::test]
    async fn unwanted_bodies_are_limited_in_time_and_size() {
        let (reader, headers) = (Reader::conversion(), HeaderMap::new());
        for body in [stalled(5).boxed_unsync(), trickle().boxed_unsync()] {
            let begin = std::time::Instant::now();
            reader.discard(&headers, body).await;
            assert!((1900..4000).contains(&begin.elapsed().as_millis()), "{:?}", begin.elapsed());
        }
        let begin = std::time::Instant::now();
        reader.discard(&headers, stalled(DEFAULT_LIMIT + 1)).await;
        assert!(begin.elapsed() < DISCARD_TIMEOUT / 2, "it gives up at once");
    }

    #[tokio::test]
    async fn a_trickling_body_times_out() {
        let reader = Reader { timeout: Duration::from_millis(300), ..Reader::default() };
        let begin = std::time::Instant::now();
        let read = reader.read(&HeaderMap::new(), false, trickle()).await;
        assert!(matches!(read, Err(BodyError::TooSlow)));
        assert!(begin.elapsed() < Duration::from_secs(2));
    }
}
