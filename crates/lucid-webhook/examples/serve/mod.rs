//! Command line and server of the examples.

use std::env;
use std::net::SocketAddr;

use lucid_certs::source::FileSource;
use lucid_certs::{Certificates, ServerTls, ServingNames};
use lucid_webhook::{BoxError, Router, Server, shutdown_signal};

/// Serves `router` with the certificate of the command line.
pub(crate) async fn serve(router: Router) -> Result<(), BoxError> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [listen, certificate, key, host @ ..] = arguments.as_slice() else {
        return Err("expected the arguments <listen> <cert.pem> <key.pem> [<host>]".into());
    };
    let listen: SocketAddr = listen.parse()?;
    // Host in the URL that the API server calls, for which the certificate has to be valid.
    let host = host.first().cloned().unwrap_or_else(|| listen.ip().to_string());
    let certificates = Certificates::new(ServingNames::for_hosts(&[&host])?);
    let tls = ServerTls::new(certificates.resolver()).build()?;
    let shutdown = shutdown_signal()?;
    let mut ready = certificates.ready();
    tokio::spawn(certificates.run(FileSource::new(certificate, key), shutdown.clone()));
    // While the files are invalid, the log states the reason.
    ready.wait_for(|ready| *ready).await?;
    let server = Server::bind(listen).await?;
    println!("listening on {}", server.local_addr());
    server.serve(tls, router, shutdown).await;
    Ok(())
}
