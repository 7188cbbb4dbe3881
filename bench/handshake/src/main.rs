//! Makes TLS 1.3 handshakes with two servers in turn and prints how many each makes per second of its CPU time, as JSON:
//! one shows what lucid-certs' resolver has, the other the same certificate for good. `cargo xtask bench` starts it.

use std::error::Error;
use std::io::Cursor;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use clap::Parser;
use lucid_certs::{
    CertificateAuthority, LeafParams, ServerTls, ServingCertificate, ServingCertificateResolver,
    ServingNames, pem,
};
use rustix::time::{ClockId, clock_gettime};
use rustls::client::Resumption;
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::ServerName;
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, ClientConnection, Connection, RootCertStore, ServerConfig, ServerConnection};
use serde::Serialize;

#[derive(Parser)]
struct Program {
    /// Number of samples of each measurement.
    #[arg(long)]
    rounds: usize,
    /// Handshakes of each in a round.
    #[arg(long)]
    handshakes: u32,
}

/// Handshakes per second of the server's CPU time, in one round.
#[derive(Serialize)]
struct Round {
    resolver: f64,
    fixed: f64,
}

type Outcome<T> = Result<T, Box<dyn Error>>;

fn main() -> Outcome<()> {
    let Program { rounds, handshakes } = Program::parse();
    let names = ServingNames::for_services("shop", &["webhook"])?;
    let now = SystemTime::now();
    let ca = CertificateAuthority::generate(&names, now)?;
    let pair = ca.issue_pem(LeafParams::default(), &names, now)?;

    let leaf = ServingCertificate::from_pem(pair.certificate.as_bytes(), pair.private_key.as_bytes())?;
    let resolver = Arc::new(ServingCertificateResolver::new(&leaf));
    let resolver = Arc::new(ServerTls::new(resolver).build()?);
    let mut fixed = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_protocol_versions(&[&TLS13, &TLS12])?
        .with_no_client_auth()
        .with_single_cert(
            pem::parse_certificates(pair.certificate.as_bytes())?,
            pem::parse_private_key(pair.private_key.as_bytes())?.clone_key(),
        )?;
    fixed.alpn_protocols.clone_from(&resolver.alpn_protocols);
    let fixed = Arc::new(fixed);
    let client = client(&ca)?;

    // The order in a pair alternates, so that neither side benefits from warm caches.
    let measure = || -> Outcome<Round> {
        let (mut of_resolver, mut of_fixed) = (Duration::ZERO, Duration::ZERO);
        for n in 0..handshakes {
            if n % 2 == 0 {
                of_resolver += handshake(&client, &resolver)?;
                of_fixed += handshake(&client, &fixed)?;
            } else {
                of_fixed += handshake(&client, &fixed)?;
                of_resolver += handshake(&client, &resolver)?;
            }
        }
        let rate = |time: Duration| f64::from(handshakes) / time.as_secs_f64();
        Ok(Round { resolver: rate(of_resolver), fixed: rate(of_fixed) })
    };
    measure()?; // to warm up
    let rounds = (0..rounds).map(|_| measure()).collect::<Outcome<Vec<_>>>()?;
    println!("{}", serde_json::to_string(&rounds)?);
    Ok(())
}

/// Mimics kube-apiserver: TLS 1.3, ALPN http/1.1, no session resumption.
fn client(ca: &CertificateAuthority) -> Outcome<Arc<ClientConfig>> {
    let mut roots = RootCertStore::empty();
    for certificate in ca.trust_bundle().certificates() {
        roots.add(certificate.clone())?;
    }
    let mut client = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_protocol_versions(&[&TLS13])?
        .with_root_certificates(roots)
        .with_no_client_auth();
    client.alpn_protocols = vec![b"http/1.1".to_vec()];
    client.resumption = Resumption::disabled();
    Ok(Arc::new(client))
}

/// One handshake in memory, and the CPU time that the server took for it.
fn handshake(client: &Arc<ClientConfig>, server: &Arc<ServerConfig>) -> Outcome<Duration> {
    let name = ServerName::try_from("webhook.shop.svc")?;
    let mut client = Connection::from(ClientConnection::new(Arc::clone(client), name)?);
    let begin = cpu_time();
    let mut server = Connection::from(ServerConnection::new(Arc::clone(server))?);
    let mut of_server = cpu_time() - begin;
    let (mut to_server, mut to_client) = (Vec::new(), Vec::new());
    while client.is_handshaking() || server.is_handshaking() {
        turn(&mut client, &to_client, &mut to_server)?;
        let begin = cpu_time();
        turn(&mut server, &to_server, &mut to_client)?;
        of_server += cpu_time() - begin;
    }
    Ok(of_server)
}

/// One side reads what came and says what it has to say.
fn turn(side: &mut Connection, came: &[u8], said: &mut Vec<u8>) -> Outcome<()> {
    let mut came = Cursor::new(came);
    while side.read_tls(&mut came)? > 0 {
        side.process_new_packets()?;
    }
    said.clear();
    while side.wants_write() {
        side.write_tls(said)?;
    }
    Ok(())
}

/// Of this thread, so that it does not matter who else is on the machine.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or_default())
}
