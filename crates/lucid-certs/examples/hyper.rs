//! hyper with certificates from files.
//!
//! `cargo run -p lucid-certs --features files --example hyper 127.0.0.1:8443 FOLDER`

use std::{convert::Infallible, future::pending, sync::Arc};

use hyper::{Response, service::service_fn};
use hyper_util::{rt::TokioExecutor, rt::TokioIo, server::conn::auto};
use lucid_certs::{Certificates, ServerTls, ServingNames, source::FileSource};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let address = arguments.next().ok_or("expected IP:PORT")?;
    let folder = arguments.next().ok_or("expected a folder with tls.crt and tls.key")?;

    let certificates = Certificates::new(ServingNames::for_hosts(&["localhost"])?);
    let tls = TlsAcceptor::from(Arc::new(ServerTls::new(certificates.resolver()).build()?));
    let first_certificate = certificates.first_certificate();
    tokio::spawn(certificates.run(FileSource::in_directory(folder), pending()));
    first_certificate.await;

    let listener = TcpListener::bind(address).await?;
    println!("listening on {}", listener.local_addr()?);
    loop {
        let (connection, _) = listener.accept().await?;
        let handshake = tls.accept(connection);
        tokio::spawn(async move {
            // Errors concern this connection only.
            let Ok(connection) = handshake.await else { return };
            let service = service_fn(async |_| Ok::<_, Infallible>(Response::new("Hello\n".to_owned())));
            let _ = auto::Builder::new(TokioExecutor::new())
                .serve_connection(TokioIo::new(connection), service)
                .await;
        });
    }
}
