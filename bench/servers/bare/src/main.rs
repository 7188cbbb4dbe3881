//! A minimal HTTPS server on hyper and rustls: it reads a body and responds without looking at it.

use std::error::Error;
use std::time::Duration;

use bench_common::Arguments;
use bytes::Bytes;
use clap::Parser;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

#[derive(Parser)]
struct Program {
    #[command(flatten)]
    arguments: Arguments,
}

async fn answer(request: Request<Incoming>, hold: Duration) -> Result<Response<Full<Bytes>>, hyper::Error> {
    let body = request.into_body().collect().await?;
    if !hold.is_zero() {
        tokio::time::sleep(hold).await;
    }
    drop(body);
    let mut response = Response::new(Full::new(Bytes::from_static(bench_common::ANSWER.as_bytes())));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(response)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let Program { arguments } = Program::parse();
    let hold = arguments.hold;
    let acceptor = TlsAcceptor::from(arguments.tls()?);
    let listener = TcpListener::bind(arguments.listen).await?;
    bench_common::announce(listener.local_addr()?);
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let acceptor = acceptor.clone();
        tokio::spawn(async move {
            let Ok(stream) = acceptor.accept(stream).await else { return };
            let service = service_fn(move |request| answer(request, hold));
            let builder = auto::Builder::new(TokioExecutor::new());
            if let Err(error) = builder.serve_connection(TokioIo::new(stream), service).await {
                eprintln!("connection ended: {error}");
            }
        });
    }
}
