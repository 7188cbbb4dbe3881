//! axum-server with certificates from files.
//!
//! `cargo run -p lucid-certs --features files --example axum_server 127.0.0.1:8443 FOLDER`

use std::{future::pending, net::TcpListener, sync::Arc};

use axum::{Router, routing::get};
use axum_server::tls_rustls::{RustlsConfig, from_tcp_rustls};
use lucid_certs::{Certificates, ServerTls, ServingNames, source::FileSource};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let address = arguments.next().ok_or("expected IP:PORT")?;
    let folder = arguments.next().ok_or("expected a folder with tls.crt and tls.key")?;

    let certificates = Certificates::new(ServingNames::for_hosts(&["localhost"])?);
    let tls = ServerTls::new(certificates.resolver()).build()?;
    let first_certificate = certificates.first_certificate();
    tokio::spawn(certificates.run(FileSource::in_directory(folder), pending()));
    first_certificate.await;

    let listener = TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    println!("listening on {}", listener.local_addr()?);
    let router = Router::new().route("/", get(async || "Hello\n"));
    from_tcp_rustls(listener, RustlsConfig::from_config(Arc::new(tls)))?
        .serve(router.into_make_service())
        .await?;
    Ok(())
}
