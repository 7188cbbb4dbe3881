//! An in-memory TLS client and server.

use std::{io, sync::Arc};

use lucid_certs::{ServingCertificate, ServingCertificateResolver, TrustBundle};
use rustls::{
    ClientConfig, ClientConnection, Connection, RootCertStore, ServerConfig, ServerConnection,
    SupportedProtocolVersion,
    crypto::{CryptoProvider, aws_lc_rs},
    pki_types::ServerName,
};

/// Client configuration of an API server with `bundle` as caBundle.
pub(crate) fn client(bundle: &TrustBundle, version: &'static SupportedProtocolVersion) -> Arc<ClientConfig> {
    client_with(aws_lc_rs::default_provider(), bundle, version)
}

pub(crate) fn client_with(
    provider: CryptoProvider,
    bundle: &TrustBundle,
    version: &'static SupportedProtocolVersion,
) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    for certificate in bundle.certificates() {
        roots.add(certificate.clone()).unwrap();
    }
    let mut config = ClientConfig::builder_with_provider(Arc::new(provider))
        .with_protocol_versions(&[version])
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Arc::new(config)
}

pub(crate) fn resolver(certificate: &ServingCertificate) -> Arc<ServingCertificateResolver> {
    let resolver = Arc::new(ServingCertificateResolver::default());
    resolver.swap(certificate);
    resolver
}

fn ends(client: &Arc<ClientConfig>, server: &Arc<ServerConfig>, name: &str) -> (Connection, Connection) {
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let client = ClientConnection::new(Arc::clone(client), name).unwrap();
    (client.into(), ServerConnection::new(Arc::clone(server)).unwrap().into())
}

pub(crate) fn connect(
    client: &Arc<ClientConfig>,
    server: &Arc<ServerConfig>,
    name: &str,
) -> Result<(ClientConnection, ServerConnection), rustls::Error> {
    let (mut client, mut server) = ends(client, server, name);
    while client.is_handshaking() || server.is_handshaking() {
        carry(&mut client, &mut server)?;
        carry(&mut server, &mut client)?;
    }
    match (client, server) {
        (Connection::Client(client), Connection::Server(server)) => Ok((client, server)),
        _ => unreachable!(),
    }
}

pub(crate) fn refusal(client: &Arc<ClientConfig>, server: &Arc<ServerConfig>, name: &str) -> rustls::Error {
    let (mut client, mut server) = ends(client, server, name);
    for _ in 0..10 {
        // An error of the server reaches the client as an alert.
        drop(carry(&mut client, &mut server));
        if let Err(error) = carry(&mut server, &mut client) {
            return error;
        }
    }
    panic!("the handshake was not refused");
}

fn carry(from: &mut Connection, to: &mut Connection) -> Result<(), rustls::Error> {
    let mut wire = Vec::new();
    while from.wants_write() {
        from.write_tls(&mut wire).unwrap();
    }
    let mut wire = io::Cursor::new(wire);
    while to.read_tls(&mut wire).unwrap() > 0 {
        to.process_new_packets()?;
    }
    Ok(())
}
