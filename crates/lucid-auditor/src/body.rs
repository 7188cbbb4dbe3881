//! Bodies: buffered, discarded, copied, and read as text.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use futures::stream;
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited, StreamBody, combinators::UnsyncBoxBody};
use hyper::{
    HeaderMap, StatusCode,
    body::{Frame, SizeHint},
    header::{CONTENT_TYPE, EXPECT, HeaderValue},
};
use serde_json::Value;
use tokio::{
    sync::{
        OwnedSemaphorePermit, Semaphore, TryAcquireError,
        mpsc::{self, error::TrySendError},
    },
    time::timeout,
};
use tower::BoxError;

pub(crate) type Body = UnsyncBoxBody<Bytes, BoxError>;
pub(crate) type Response = hyper::Response<Body>;

/// Limits for draining an unwanted body: bytes and time.
const DISCARDED: usize = 64 << 20;
const DISCARD_LIMIT: Duration = Duration::from_secs(2);

/// Number of pieces that a copy may be behind.
const COPIED: usize = 256;

/// Returns a body of one piece.
pub(crate) fn full(data: impl Into<Bytes>) -> Body {
    Full::new(data.into()).map_err(|never| match never {}).boxed_unsync()
}

pub(crate) fn json_response(status: StatusCode, body: &Value) -> Response {
    let mut response = Response::new(full(body.to_string()));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

pub(crate) fn content_type(headers: &HeaderMap) -> String {
    let value = headers.get(CONTENT_TYPE).map(|value| String::from_utf8_lossy(value.as_bytes()));
    value.unwrap_or_default().to_ascii_lowercase()
}

/// Returns a body as text, if it is UTF-8. JSON in UTF-16 contains NUL.
pub(crate) fn as_text(data: &[u8]) -> Option<&str> {
    str::from_utf8(data).ok().filter(|text| !text.contains('\0'))
}

/// Returns `true` for the beginning of a JSON object or array, in any encoding that parsers detect.
pub(crate) fn begins_like_json(data: &[u8]) -> bool {
    // Byte order marks, and what pads characters in UTF-16 and UTF-32.
    let is_ignored = |byte: &u8| b"\0\xef\xbb\xbf\xfe\xff".contains(byte) || byte.is_ascii_whitespace();
    data.iter().find(|byte| !is_ignored(byte)).is_some_and(|first| b"{[".contains(first))
}

/// Returns `true` unless `content_type` states an encoding in which ASCII has another meaning.
pub(crate) fn is_like_ascii(content_type: &str) -> bool {
    let known = ["utf-8", "utf8", "us-ascii", "ascii", "iso-8859-1", "latin1", "windows-1252"];
    let parameters = content_type.split(';').map(|parameter| parameter.trim());
    let mut charsets = parameters.filter_map(|parameter| parameter.strip_prefix("charset="));
    charsets.all(|charset| known.contains(&charset.trim_matches(['"', '\'']).trim()))
}

#[derive(Debug)]
pub(crate) struct Buffered {
    pub(crate) data: Vec<u8>,
    trailers: Option<HeaderMap>,
    room: OwnedSemaphorePermit,
}

impl AsRef<[u8]> for Buffered {
    fn as_ref(&self) -> &[u8] {
        &self.data
    }
}

impl Buffered {
    /// Converts it to a body, which holds its memory until it is sent.
    pub(crate) fn into_body(mut self) -> Body {
        let trailers = self.trailers.take().map(|trailers| Ok(Frame::trailers(trailers)));
        let data = Bytes::from_owner(self);
        match trailers {
            None => full(data),
            Some(trailers) => StreamBody::new(stream::iter([Ok(Frame::data(data)), trailers])).boxed_unsync(),
        }
    }

    pub(crate) fn without_trailers(self) -> Self {
        Self { trailers: None, ..self }
    }
}

#[derive(Debug)]
pub(crate) enum Unbuffered {
    TooLarge,
    Busy,
    Failed(BoxError),
}

#[derive(Debug)]
pub(crate) struct Room {
    max_bytes: usize,
    free: Arc<Semaphore>,
}

impl Room {
    pub(crate) fn new(max_bytes: usize, count: usize) -> Self {
        let bytes = max_bytes.saturating_mul(count).min(Semaphore::MAX_PERMITS);
        Self { max_bytes, free: Arc::new(Semaphore::new(bytes)) }
    }

    pub(crate) async fn collect<B>(&self, body: B) -> Result<Buffered, Unbuffered>
    where
        B: hyper::body::Body<Data = Bytes, Error = BoxError> + Unpin,
    {
        if body.size_hint().lower() > self.max_bytes as u64 {
            return Err(Unbuffered::TooLarge);
        }
        self.read(body).await.map_err(|error| match () {
            () if error.is::<LengthLimitError>() => Unbuffered::TooLarge,
            () if error.is::<TryAcquireError>() => Unbuffered::Busy,
            () => Unbuffered::Failed(error),
        })
    }

    async fn read<B>(&self, body: B) -> Result<Buffered, BoxError>
    where
        B: hyper::body::Body<Data = Bytes, Error = BoxError> + Unpin,
    {
        let take = |bytes| Arc::clone(&self.free).try_acquire_many_owned(bytes);
        let mut body = Limited::new(body, self.max_bytes);
        let mut buffered = Buffered { data: Vec::new(), trailers: None, room: take(0)? };
        while let Some(frame) = body.frame().await {
            match frame?.into_data() {
                Ok(data) => {
                    buffered.room.merge(take(data.len().try_into()?)?);
                    buffered.data.extend_from_slice(&data);
                }
                Err(frame) => buffered.trailers = frame.into_trailers().ok(),
            }
        }
        Ok(buffered)
    }
}

/// Reads the beginning of a body: up to the piece that reaches `max_bytes`.
pub(crate) async fn beginning(mut body: Body, max_bytes: usize) -> Vec<u8> {
    let mut data = Vec::new();
    while data.len() < max_bytes
        && let Some(Ok(frame)) = body.frame().await
    {
        data.extend_from_slice(&frame.into_data().unwrap_or_default());
    }
    data
}

/// Discards the body of a request that is refused unread. Clients that wait for `100 Continue` have not sent it.
pub(crate) async fn skip(headers: &HeaderMap, body: Body) {
    if !headers.contains_key(EXPECT) {
        discard(body).await;
    }
}

/// Reads and discards the rest of a body. Otherwise a client that is still sending sees a connection reset instead of the
/// response.
pub(crate) async fn discard(body: Body) {
    let mut body = Limited::new(body, DISCARDED);
    let end = async { while let Some(Ok(_)) = body.frame().await {} };
    let _ = timeout(DISCARD_LIMIT, end).await;
}

/// A body whose pieces are copied as they pass. A copy that falls behind ends early; the body is never delayed.
#[derive(Debug)]
pub(crate) struct Copied {
    body: Body,
    copy: Option<mpsc::Sender<Bytes>>,
}

pub(crate) fn copied(body: Body) -> (Body, Body) {
    let (copy, mut pieces) = mpsc::channel(COPIED);
    let pieces = stream::poll_fn(move |cx| pieces.poll_recv(cx).map(|piece| Some(Ok(Frame::data(piece?)))));
    (Copied { body, copy: Some(copy) }.boxed_unsync(), StreamBody::new(pieces).boxed_unsync())
}

impl hyper::body::Body for Copied {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        if let Some(data) = frame.as_ref().and_then(|frame| frame.as_ref().ok()?.data_ref())
            && let Some(copy) = &self.copy
            && let Err(error) = copy.try_send(data.clone())
        {
            // The receiver has closed the channel otherwise, at the end of the judged part.
            if matches!(error, TrySendError::Full(_)) {
                tracing::warn!("the judges are behind: the rest of a message is not judged");
            }
            self.copy = None;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
