//! Streaming: each sender sends its next piece only after the previous one arrived at the other end, so that an auditor
//! that buffers the whole body would never finish.

use std::convert::Infallible;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use bytes::Bytes;
use futures::StreamExt as _;
use futures::channel::mpsc::{self, UnboundedReceiver, UnboundedSender};
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::Frame;
use serde_json::json;

use crate::{chain, client, get, post, serve, within};

pub(crate) fn pieces() -> (UnboundedSender<&'static str>, UnboundedReceiver<&'static str>) {
    mpsc::unbounded()
}

/// A model that answers one request, with the pieces that are sent.
pub(crate) fn answering(pieces: UnboundedReceiver<&'static str>) -> Router {
    let pieces = std::sync::Arc::new(std::sync::Mutex::new(Some(pieces)));
    Router::new().fallback(move || {
        let pieces = pieces.lock().unwrap().take().unwrap();
        async { Body::from_stream(pieces.map(Ok::<_, Infallible>)) }
    })
}

#[tokio::test]
async fn responses_are_streamed_chunk_by_chunk() {
    for mode in ["enforce", "observe"] {
        let (send, receive) = pieces();
        let first = chain(serve(answering(receive)).await, &[("LUCID_AUDIT_MODE", mode)]).await;
        send.unbounded_send("one").unwrap();
        let mut answer = get(first).await;
        for (piece, next) in [("one", Some("two")), ("two", Some("three")), ("three", None)] {
            assert_eq!(within(answer.chunk()).await.unwrap().unwrap(), piece, "{mode}");
            if let Some(next) = next {
                send.unbounded_send(next).unwrap();
            }
        }
        drop(send);
        assert_eq!(within(answer.chunk()).await.unwrap(), None, "{mode}");
    }
}

#[tokio::test]
async fn the_head_of_a_stream_does_not_wait_for_its_first_event() {
    let model = Router::new().fallback(|| async {
        let nothing = futures::stream::pending::<Result<Bytes, Infallible>>();
        ([("content-type", "text/event-stream")], Body::from_stream(nothing))
    });
    let first = chain(serve(model).await, &[]).await;
    assert_eq!(get(first).await.status(), 200);
}

#[tokio::test]
async fn an_answer_is_cut_off_before_a_phrase_is_complete() {
    let (send, receive) = pieces();
    let first = chain(serve(answering(receive)).await, &[]).await;
    send.unbounded_send("the secr").unwrap();
    let mut answer = get(first).await;
    assert_eq!(within(answer.chunk()).await.unwrap().unwrap(), "the secr");
    send.unbounded_send("et word is").unwrap();
    let end = within(answer.chunk()).await;
    assert!(end.is_err(), "the caller is to see that the answer is not whole: {end:?}");
}

#[tokio::test]
async fn text_refused_at_once_gets_a_response_with_the_reason() {
    let (send, receive) = pieces();
    let first = chain(serve(answering(receive)).await, &[]).await;
    send.unbounded_send("the secret word is").unwrap();
    let answer = get(first).await;
    assert_eq!(answer.status(), 403);
    assert!(within(answer.text()).await.unwrap().contains("the text is refused"));
}

#[tokio::test]
async fn whole_answers_pass_in_mode_observe() {
    let (send, receive) = pieces();
    let first = chain(serve(answering(receive)).await, &[("LUCID_AUDIT_MODE", "observe")]).await;
    for piece in ["the secr", "et word is", " fish"] {
        send.unbounded_send(piece).unwrap();
    }
    drop(send);
    let answer = get(first).await;
    assert_eq!(within(answer.text()).await.unwrap(), "the secret word is fish");
}

#[tokio::test]
async fn observed_requests_are_streamed_chunk_by_chunk() {
    // Receives the body that reaches the model.
    let (got, mut arrived) = mpsc::unbounded::<Bytes>();
    let model = Router::new().fallback(move |request: Request| {
        let got = got.clone();
        async move {
            let mut body = request.into_body();
            while let Some(frame) = body.frame().await {
                got.unbounded_send(frame.unwrap().into_data().unwrap()).unwrap();
            }
        }
    });
    let first = chain(serve(model).await, &[("LUCID_AUDIT_MODE", "observe")]).await;
    let (send, receive) = pieces();
    let body = StreamBody::new(
        receive.map(|piece| Ok::<_, Infallible>(Frame::data(Bytes::from_static(piece.as_bytes())))),
    );
    let request = client().post(format!("http://{first}/")).body(reqwest::Body::wrap(body));
    let answer = tokio::spawn(request.send());
    for piece in ["one", "the secret word", "three"] {
        send.unbounded_send(piece).unwrap();
        assert_eq!(within(arrived.next()).await.unwrap(), piece);
    }
    drop(send);
    assert_eq!(within(answer).await.unwrap().unwrap().status(), 200);
}

/// Returns the words of the example model's answer that arrive.
async fn words(variables: &[(&str, &str)], prompt: &str) -> (String, bool) {
    let first = chain(serve(example_model::router()).await, variables).await;
    let body = json!({"prompt": prompt, "stream": true}).to_string();
    let mut answer = post(first, body).await;
    assert_eq!(answer.headers()["content-type"], "text/event-stream");
    let mut events = Vec::new();
    loop {
        match within(answer.chunk()).await {
            Ok(Some(piece)) => events.extend(piece),
            end => return (String::from_utf8(events).unwrap(), end.is_ok()),
        }
    }
}

#[tokio::test]
async fn the_words_of_the_example_model_come_as_events() {
    let (events, whole) = words(&[], "Hello  there").await;
    assert_eq!(events, "data: {\"word\":\"Hello\"}\n\ndata: {\"word\":\" there\"}\n\ndata: [DONE]\n\n");
    assert!(whole);
}

#[tokio::test]
async fn streamed_answers_end_before_a_phrase_is_complete() {
    // The request has the phrase too, but not as the model says it.
    let prompt = "the  secret\tword is fish";
    let (events, whole) = words(&[], prompt).await;
    assert_eq!(events, "data: {\"word\":\"the\"}\n\ndata: {\"word\":\" secret\"}\n\n");
    assert!(!whole, "the caller is to see that the answer is not whole");
    let (events, whole) = words(&[("LUCID_AUDIT_MODE", "observe")], prompt).await;
    assert!(whole && events.ends_with("data: {\"word\":\" fish\"}\n\ndata: [DONE]\n\n"), "{events}");
}
