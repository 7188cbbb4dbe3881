//! Reading a request's body within a size and a time.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use http::header::EXPECT;
use http_body_util::BodyExt;
use hyper::body::Body;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::router::BoxError;

const MIB: usize = 1024 * 1024;

/// Requests with bodies of 3 MiB are what the API server takes; two such objects and the rest of a review stay below.
pub(crate) const DEFAULT_LIMIT: usize = 7 * MIB;

/// A ConversionReview may hold all objects of a LIST.
const CONVERSION_LIMIT: usize = 64 * MIB;

/// How much of a body beyond the limit is read and thrown away, so that its sender gets to read the answer instead
/// of a reset connection.
const DISCARDED: usize = 64 * MIB;

/// How long to read a body that nobody wants, for the same reason. The API server sends what it has at once.
const DISCARD_TIMEOUT: Duration = Duration::from_secs(2);

/// How long a body may take.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(20);

/// As long as the API server waits for a conversion; its timeout cannot be set. No body needs more time than that,
/// however large it is: nobody waits for the answer any more.
const CONVERSION_TIMEOUT: Duration = Duration::from_secs(30);

/// What all bodies together may take of the memory, and their answers; beyond it callers are asked to come again.
const BUDGET: usize = 96 * MIB;
const CONVERSION_BUDGET: usize = 256 * MIB;

/// How long a body may stand still on its way.
const STALL: Duration = Duration::from_secs(5);

/// Room for a body of which little is here yet.
const FIRST_ROOM: usize = 64 * 1024;
/// A sender is believed what it says of the length when this part of it is here.
const PROOF: usize = 16;

/// Bounds what bodies take of the memory, however many connections there are.
#[derive(Clone, Debug)]
pub(crate) struct Reader {
    limit: usize,
    /// Whether an answer is about as long as its body, which needs room from the begin then.
    answers_alike: bool,
    stall: Duration,
    timeout: Duration,
    budget: Arc<Semaphore>,
}

/// A body, and its share of the budget. Keep it until the answer is made, which then [takes](Self::attach) the share.
#[derive(Debug)]
pub(crate) struct Received {
    pub(crate) bytes: Bytes,
    share: Share,
}

impl Received {
    /// `answer`, in the place of the body: it keeps what it needs of the budget until its last byte has left, since a
    /// peer may take its time to read it.
    pub(crate) fn attach(self, answer: impl Into<Bytes>) -> Bytes {
        let (bytes, mut share) = (answer.into(), self.share);
        share.settle(bytes.len());
        Bytes::from_owner(Charged { bytes, _share: share })
    }
}

/// Bytes that have a share of the budget, until hyper drops them.
struct Charged {
    bytes: Bytes,
    _share: Share,
}

impl AsRef<[u8]> for Charged {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
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

/// For admission reviews.
impl Default for Reader {
    fn default() -> Self {
        Self::new(DEFAULT_LIMIT, TIMEOUT, BUDGET)
    }
}

impl Reader {
    /// For conversion reviews, with a budget of their own.
    pub(crate) fn conversion() -> Self {
        Self { answers_alike: true, ..Self::new(CONVERSION_LIMIT, CONVERSION_TIMEOUT, CONVERSION_BUDGET) }
    }

    fn new(limit: usize, timeout: Duration, budget: usize) -> Self {
        let budget = Arc::new(Semaphore::new(budget));
        Self { limit, answers_alike: false, timeout, stall: STALL, budget }
    }

    /// Readers cloned from this one before keep their limit. The budget grows with it: two such bodies have room in
    /// any case, with their answers where these are as long.
    pub(crate) fn set_limit(&mut self, bytes: usize) {
        self.limit = bytes;
        let each = bytes.saturating_mul(if self.answers_alike { 2 } else { 1 });
        let wanted = each.saturating_mul(2).min(Semaphore::MAX_PERMITS);
        if wanted > self.budget.available_permits() {
            self.budget = Arc::new(Semaphore::new(wanted));
        }
    }

    pub(crate) const fn limit(&self) -> usize {
        self.limit
    }

    /// How long a body may take; less if it stands still.
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
        if self.is_announced_too_large(&body) && headers.contains_key(EXPECT) {
            return Err(BodyError::TooLarge);
        }
        tokio::time::timeout(self.timeout, self.collect(body)).await.unwrap_or(Err(BodyError::TooSlow))
    }

    /// Reads a body to its end without keeping it, so that its connection can carry other requests. Gives up after 2 s,
    /// and where it is larger than a review may be; the connection ends with the answer then.
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

    /// A body that is refused is read to its end all the same: its sender gets to read the answer then, instead of a
    /// reset connection.
    async fn collect<B>(&self, body: B) -> Result<Received, BodyError>
    where
        B: Body<Data = Bytes>,
        B::Error: Into<BoxError>,
    {
        let length = body.size_hint().exact().and_then(|length| usize::try_from(length).ok());
        let mut kept = match self.is_announced_too_large(&body) {
            true => Err(BodyError::TooLarge),
            false => Ok(Kept::new(length, &self.budget)),
        };
        let mut body = pin!(body.map_err(Into::<BoxError>::into));
        let mut received = 0_usize;
        while let Some(frame) =
            tokio::time::timeout(self.stall, body.frame()).await.map_err(|_elapsed| BodyError::TooSlow)?
        {
            let Ok(data) = frame.map_err(BodyError::Broken)?.into_data() else { continue };
            received = received.saturating_add(data.len());
            if received > self.limit.saturating_add(DISCARDED) {
                return Err(BodyError::TooLarge);
            } else if received > self.limit {
                kept = Err(BodyError::TooLarge);
            } else if let Ok(so_far) = &mut kept
                && so_far.push(data).is_none()
            {
                // Not to wait: those who have a part of the room might wait for each other.
                kept = Err(BodyError::Busy);
            }
        }
        let Kept { bytes, mut share, .. } = kept?;
        let bytes = bytes.into_bytes();
        if self.answers_alike {
            share.raise(bytes.len().saturating_mul(2)).ok_or(BodyError::Busy)?;
        }
        Ok(Received { bytes, share })
    }
}

/// A share of a budget.
#[derive(Debug)]
struct Share {
    budget: Arc<Semaphore>,
    permit: Option<OwnedSemaphorePermit>,
}

impl Share {
    fn bytes(&self) -> usize {
        self.permit.as_ref().map_or(0, OwnedSemaphorePermit::num_permits)
    }

    /// Brings it to `bytes`, unless it is more already; `None` if the budget has no room for that.
    fn raise(&mut self, bytes: usize) -> Option<()> {
        let more = u32::try_from(bytes.saturating_sub(self.bytes())).ok()?;
        let more = Arc::clone(&self.budget).try_acquire_many_owned(more).ok()?;
        match &mut self.permit {
            Some(permit) => permit.merge(more),
            None => self.permit = Some(more),
        }
        Some(())
    }

    /// Brings it to `bytes` that are there in any case. If the budget has less, then all of it: nothing more comes in
    /// until some of that is given back.
    fn settle(&mut self, bytes: usize) {
        match self.bytes().checked_sub(bytes) {
            Some(spare) => drop(self.permit.as_mut().and_then(|permit| permit.split(spare))),
            None => {
                let all = self.bytes().saturating_add(self.budget.available_permits());
                // Somebody else may take of it meanwhile, in which case it is too little by as much.
                let _ = self.raise(bytes.min(all));
            }
        }
    }
}

/// What is here of a body, and the room that it has.
struct Kept {
    /// What the sender says that it will be.
    length: Option<usize>,
    bytes: Chunks,
    share: Share,
}

/// Most bodies arrive in one piece, which is then not copied.
enum Chunks {
    None,
    One(Bytes),
    Many(Vec<u8>),
}

impl Kept {
    fn new(length: Option<usize>, budget: &Arc<Semaphore>) -> Self {
        Self { length, bytes: Chunks::None, share: Share { budget: Arc::clone(budget), permit: None } }
    }

    /// Adds `data`; `None` if the budget has no room for it.
    fn push(&mut self, data: Bytes) -> Option<()> {
        if data.is_empty() {
            return Some(());
        }
        match &mut self.bytes {
            Chunks::None => {
                self.share.raise(data.len())?;
                self.bytes = Chunks::One(data);
            }
            Chunks::One(first) => {
                let room = room(first.len() + data.len(), self.length);
                self.share.raise(room)?;
                let mut all = Vec::with_capacity(room);
                all.extend_from_slice(first);
                all.extend_from_slice(&data);
                self.bytes = Chunks::Many(all);
            }
            Chunks::Many(all) => {
                let received = all.len() + data.len();
                if received > all.capacity() {
                    let room = room(received, self.length);
                    self.share.raise(room)?;
                    all.reserve_exact(room - all.len());
                }
                all.extend_from_slice(&data);
            }
        }
        Some(())
    }
}

/// How much room a body gets when `received` bytes are here. Once a part of the announced length is here, all of it:
/// the body is copied once then, into no more than it needs. Before, a few times of what is here, so that nobody takes
/// much of the memory with a promise.
fn room(received: usize, length: Option<usize>) -> usize {
    match length {
        Some(length) if received.saturating_mul(PROOF) >= length => length.max(received),
        Some(_) => FIRST_ROOM.max(received.saturating_mul(4)),
        None => FIRST_ROOM.max(received.saturating_mul(2)),
    }
}

impl Chunks {
    fn into_bytes(self) -> Bytes {
        match self {
            Self::None => Bytes::new(),
            Self::One(bytes) => bytes,
            Self::Many(all) => Bytes::from(all),
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

    #[tokio::test]
    async fn a_budget_has_room_for_two_of_the_largest_bodies() {
        let mut reader = Reader::default();
        reader.set_limit(80 * MIB);
        let body = || Full::new(Bytes::from(vec![b'x'; 80 * MIB]));
        let _first = reader.read(&HeaderMap::new(), body()).await.unwrap();
        let _second = reader.read(&HeaderMap::new(), body()).await.unwrap();
        assert!(matches!(reader.read(&HeaderMap::new(), body()).await, Err(BodyError::Busy)));
    }

    #[tokio::test]
    async fn an_answer_keeps_its_room_until_its_last_piece_has_left() {
        let (headers, body) = (HeaderMap::new(), || Full::new(Bytes::from(vec![b'x'; 100])));
        let mut reader = Reader { budget: Arc::new(Semaphore::new(250)), ..Reader::conversion() };
        let free = |reader: &Reader| reader.budget.available_permits();
        // The length of the answer, and what is left then.
        for (length, left) in [(0, 250), (30, 220), (100, 150), (200, 50), (240, 10), (250, 0), (1000, 0)] {
            let received = reader.read(&headers, body()).await.unwrap();
            assert_eq!(free(&reader), 50, "a body, and an answer as long");
            let mut answer = received.attach(vec![b'y'; length]);
            assert_eq!((answer.len(), free(&reader)), (length, left));
            let last = answer.split_off(length / 2);
            drop(answer);
            assert_eq!(free(&reader), left);
            drop(last);
            assert_eq!(free(&reader), 250);
        }
        reader.budget = Arc::new(Semaphore::new(199));
        assert!(matches!(reader.read(&headers, body()).await, Err(BodyError::Busy)));
        reader.answers_alike = false;
        assert!(reader.read(&headers, body()).await.is_ok());
    }

    /// The most that is reserved at once while a body of `length` comes in frames, and what is in the end.
    fn reserved(length: usize, announced: bool, frame: usize) -> (usize, usize) {
        let budget = Arc::new(Semaphore::new(Semaphore::MAX_PERMITS));
        let mut kept = Kept::new(announced.then_some(length), &budget);
        let capacity = |kept: &Kept| match &kept.bytes {
            Chunks::Many(all) => all.capacity(),
            _ => 0,
        };
        let (mut left, mut most) = (length, 0);
        while left > 0 {
            let data = Bytes::from(vec![b'x'; frame.min(left)]);
            left -= data.len();
            let (before, ()) = (capacity(&kept), kept.push(data).unwrap());
            let after = capacity(&kept);
            most = most.max(if after == before { after } else { before + after });
        }
        assert!(kept.share.bytes() >= capacity(&kept), "memory that the budget does not know");
        (most, capacity(&kept))
    }

    #[test]
    fn a_body_of_announced_length_takes_little_more_than_itself() {
        for length in [17_000, 70_000, 300_000, 1_100_000, 1_500_000, 7 * MIB, 64 * MIB] {
            let (most, last) = reserved(length, true, 16 * 1024);
            assert_eq!(last, length);
            assert!(most <= length + length / 4, "{most} for {length}");
            assert!(reserved(length, false, 16 * 1024).1 <= FIRST_ROOM.max(2 * length));
        }
    }

    #[test]
    fn a_promise_takes_no_more_than_a_few_times_of_what_came() {
        assert_eq!(room(1, Some(7 * MIB)), FIRST_ROOM);
        assert_eq!(room(200_000, Some(7 * MIB)), 800_000);
        assert_eq!(room(7 * MIB / 16, Some(7 * MIB)), 7 * MIB);
        assert_eq!(room(10, Some(5)), 10, "a length that is wrong does no harm");
    }

    #[tokio::test]
    async fn a_body_announced_too_large_is_read_and_not_kept() {
        let reader = Reader { limit: 10, budget: Arc::new(Semaphore::new(0)), ..Reader::default() };
        let body = Full::new(Bytes::from(vec![b'x'; 11]));
        assert!(matches!(reader.read(&HeaderMap::new(), body).await, Err(BodyError::TooLarge)));
        let pieces = [4, 4, 4].map(|len| Ok::<_, Infallible>(Frame::data(Bytes::from(vec![b'x'; len]))));
        let body = StreamBody::new(stream::iter(pieces));
        let reader = Reader { limit: 10, ..Reader::default() };
        assert!(matches!(reader.read(&HeaderMap::new(), body).await, Err(BodyError::TooLarge)));
    }

    fn trickle() -> impl Body<Data = Bytes, Error = Infallible> {
        StreamBody::new(stream::unfold((), |()| async {
            tokio::time::sleep(Duration::from_millis(20)).await;
            Some((Ok(Frame::data(Bytes::from_static(b"x"))), ()))
        }))
    }

    #[tokio::test]
    async fn a_body_that_nobody_wants_has_2_s_and_the_size_of_a_review() {
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
    async fn a_body_that_trickles_has_its_time_only() {
        let reader = Reader { timeout: Duration::from_millis(300), ..Reader::default() };
        let begin = std::time::Instant::now();
        let read = reader.read(&HeaderMap::new(), trickle()).await;
        assert!(matches!(read, Err(BodyError::TooSlow)));
        assert!(begin.elapsed() < Duration::from_secs(2));
    }
}
