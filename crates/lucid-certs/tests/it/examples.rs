//! The programs in `examples`.

use std::{env, fs, path::Path, sync::Arc};

use http::Request;
use lucid_e2e::{Process, command, eventually};
use rcgen::PKCS_ECDSA_P256_SHA256;
use rustls::{pki_types::ServerName, version::TLS13};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::common::{handshake::client, pairs::Pair};

type Error = Box<dyn std::error::Error + Send + Sync>;

/// Sends a request over HTTP/2 to a server that `pair` belongs to, and returns the body of the response.
async fn call(address: &str, pair: &Pair, path: &str, body: &'static [u8]) -> Result<Vec<u8>, Error> {
    let mut tls = Arc::unwrap_or_clone(client(&pair.bundle(), &TLS13));
    tls.alpn_protocols = vec![b"h2".to_vec()];
    let connection = TcpStream::connect(address).await?;
    let name = ServerName::try_from("localhost")?;
    let connection = TlsConnector::from(Arc::new(tls)).connect(name, connection).await?;
    let (sender, connection) = h2::client::handshake(connection).await?;
    tokio::spawn(connection);
    let request = Request::builder().method(if body.is_empty() { "GET" } else { "POST" });
    let request = request.uri(format!("https://localhost{path}")).header("content-type", "application/grpc");
    let (response, mut stream) = sender.ready().await?.send_request(request.body(())?, false)?;
    stream.send_data(body.into(), true)?;
    let mut response = response.await?.into_body();
    let mut read = Vec::new();
    while let Some(part) = response.data().await {
        read.extend(part?);
    }
    Ok(read)
}

#[tokio::test]
async fn examples_serve_renewed_certificates_without_a_restart() {
    // HealthCheckRequest {} and HealthCheckResponse { status: SERVING }, with their lengths.
    let grpc: (&str, &[u8], &[u8]) = ("/grpc.health.v1.Health/Check", &[0; 5], &[0, 0, 0, 0, 2, 8, 1]);
    let http: (&str, &[u8], &[u8]) = ("/", b"", b"Hello\n");
    let programs = env::current_exe().unwrap().parent().and_then(Path::parent).unwrap().join("examples");
    for (name, (path, body, expected)) in [("axum_server", http), ("hyper", http), ("tonic", grpc)] {
        let program = programs.join(name);
        assert!(
            program.is_file(),
            "run `cargo build -p lucid-certs --examples` first: {program:?} is missing"
        );
        let folder = tempfile::tempdir().unwrap();
        let [first, next] = [(); 2].map(|()| Pair::with(&PKCS_ECDSA_P256_SHA256, &["localhost"]));
        first.write(folder.path());
        let mut command = command(&program);
        command.arg("127.0.0.1:0").arg(folder.path());
        let log = folder.path().join("log");
        let _process = Process::start(name, command, log.clone()).unwrap();
        let address = eventually("it listens", async || {
            let said = fs::read_to_string(&log)?;
            let address = said.strip_suffix('\n').and_then(|line| line.strip_prefix("listening on "));
            address.map(str::to_owned).ok_or_else(|| Error::from(said.clone()))
        })
        .await;
        assert_eq!(call(&address, &first, path, body).await.unwrap(), expected, "{name}");
        assert!(call(&address, &next, path, body).await.is_err(), "{name}: another CA is trusted");
        next.write(folder.path());
        let answer =
            eventually("the renewed certificate", async || call(&address, &next, path, body).await).await;
        assert_eq!(answer, expected, "{name}");
    }
}
