//! A model over plain HTTP: it streams chat completions, and sends the same response to all other requests.

use std::convert::Infallible;
use std::error::Error;
use std::iter::Cycle;
use std::pin::Pin;
use std::str::SplitInclusive;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use clap::Parser;
use http_body_util::{BodyExt, Either, Full};
use hyper::body::{Body, Frame, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::time::{Interval, interval};

const ANSWER: &str = r#"{"allowed":true}"#;
const TEXT: &str = "The river rises in the hills behind the town and turns south at the old mill. In spring it carries \
    snow water, and the meadows along its banks stay green until late summer. Farmers built low walls of stone to keep their \
    fields dry, and most of these walls still stand. ";

#[derive(Parser)]
struct Program {
    /// Time between two events of a stream, in milliseconds.
    #[arg(long, default_value_t = 20)]
    pause: u64,
}

/// Events with a word each. Their id is the time at which they are sent.
struct Events {
    ticks: Interval,
    words: Cycle<SplitInclusive<'static, char>>,
}

impl Body for Events {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        ready!(self.ticks.poll_tick(cx));
        let (sent, word) = (bench_common::now_us(), self.words.next().unwrap_or_default());
        let event = format!(
            "data: {{\"id\":\"chatcmpl-{sent}\",\"object\":\"chat.completion.chunk\",\"created\":0,\"model\":\"bench\",\
            \"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"{word}\"}},\"finish_reason\":null}}]}}\n\n"
        );
        Poll::Ready(Some(Ok(Frame::data(event.into()))))
    }
}

async fn answer(
    request: Request<Incoming>,
    pause: Duration,
) -> Result<Response<Either<Full<Bytes>, Events>>, hyper::Error> {
    let is_chat = request.uri().path() == "/v1/chat/completions";
    request.into_body().collect().await?;
    let (content_type, body) = match is_chat {
        true => {
            let words = TEXT.split_inclusive(' ').cycle();
            ("text/event-stream", Either::Right(Events { ticks: interval(pause), words }))
        }
        false => ("application/json", Either::Left(Full::new(Bytes::from_static(ANSWER.as_bytes())))),
    };
    let mut response = Response::new(body);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    Ok(response)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let pause = Duration::from_millis(Program::parse().pause);
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    bench_common::announce(listener.local_addr()?);
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let service = service_fn(move |request| answer(request, pause));
        // An error is the end of a connection in use, as when a stream is cancelled.
        tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
    }
}
