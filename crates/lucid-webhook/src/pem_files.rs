//! A certificate that somebody else keeps in files.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use rustls::ServerConfig;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use snafu::{ResultExt, Snafu, ensure};
use tokio::task::AbortHandle;

use crate::server::Tls;

/// How often the files are read. They are small, and there is no event for all the ways in which files are replaced.
const PERIOD: Duration = Duration::from_secs(2);

/// Why certificate and key are not taken.
#[derive(Debug, Snafu)]
#[snafu(visibility(pub(crate)))]
#[non_exhaustive]
pub enum PemFilesError {
    /// A file cannot be read.
    #[snafu(display("failed to read {}: {source}", path.display()))]
    Read {
        /// Which one.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A file is not PEM.
    #[snafu(display("failed to read {} as PEM: {source}", path.display()))]
    Pem {
        /// Which one.
        path: PathBuf,
        /// What is wrong with it.
        source: pem::Error,
    },
    /// There is no certificate where the chain is expected.
    #[snafu(display("{} holds no certificate", path.display()))]
    NoCertificate {
        /// The file of the chain.
        path: PathBuf,
    },
    /// There is no key where it is expected.
    #[snafu(display("{} holds no private key", path.display()))]
    NoKey {
        /// The file of the key.
        path: PathBuf,
    },
    /// The key is of a kind that TLS has no use for.
    #[snafu(display("failed to use the key in {}: {source}", path.display()))]
    Key {
        /// The file of the key.
        path: PathBuf,
        /// What the library said.
        source: rustls::Error,
    },
    /// Certificate and key do not belong together.
    #[snafu(display("the key in {} is not that of the certificate in {}: {source}", key.display(), chain.display()))]
    Pair {
        /// The file of the chain.
        chain: PathBuf,
        /// The file of the key.
        key: PathBuf,
        /// What the library said.
        source: rustls::Error,
    },
    /// The crypto provider lacks what TLS 1.2 and 1.3 need.
    #[snafu(display("failed to configure TLS: {source}"))]
    Tls {
        /// What the library said.
        source: rustls::Error,
    },
}

/// A server's certificate and key in two PEM files, which are read again when they change.
///
/// Whoever renews them, such as cert-manager by way of a mounted Secret, need not tell: the files are looked at every two
/// seconds. New connections get the new certificate; those that stand go on. Files that cannot be read, are half
/// written, or do not belong together leave the last good pair in use, and are logged.
///
/// ```no_run
/// use lucid_webhook::{BoxError, PemFiles, Router, Server};
///
/// # async fn run(router: Router) -> Result<(), BoxError> {
/// let tls = PemFiles::load("/tls/tls.crt", "/tls/tls.key").await?;
/// Server::bind(([0, 0, 0, 0], 8443).into()).await?.serve(tls, router, std::future::pending()).await;
/// # Ok(())
/// # }
/// ```
///
/// The caBundle of the registration is not touched: with cert-manager that is the job of its cainjector. `lucid-certs`
/// makes certificates itself and publishes the bundle as well.
///
/// Clones are the same. The files are read for as long as a clone, a resolver or a server with it lives.
#[derive(Clone, Debug)]
pub struct PemFiles {
    resolver: Arc<Resolver>,
    config: Arc<ServerConfig>,
}

impl PemFiles {
    /// Reads the certificate with its chain from one file, the server's first, and its key from another; it may be the
    /// same. Formats of the key are PKCS #8, SEC 1 and PKCS #1.
    ///
    /// # Errors
    ///
    /// When a file cannot be read or is not PEM, or when they do not belong together.
    pub async fn load(chain: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Result<Self, PemFilesError> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let paths = Paths { chain: chain.into(), key: key.into(), provider: Arc::clone(&provider) };
        let texts = paths.read().await?;
        let current = Arc::new(ArcSwap::from_pointee(paths.decode(&texts)?));
        let task = tokio::spawn(follow(paths, texts, Arc::clone(&current)));
        let resolver = Arc::new(Resolver { current, task: task.abort_handle() });
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .context(TlsSnafu)?
            .with_no_client_auth()
            .with_cert_resolver(Arc::<Resolver>::clone(&resolver));
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Self { resolver, config: Arc::new(config) })
    }

    /// The certificate for a TLS configuration of another making, such as one that asks
    /// for client certificates.
    #[must_use]
    pub fn resolver(&self) -> Arc<dyn ResolvesServerCert> {
        Arc::<Resolver>::clone(&self.resolver)
    }
}

/// For TLS 1.2 and 1.3, HTTP/2 and HTTP/1.1.
impl From<PemFiles> for Tls {
    fn from(files: PemFiles) -> Self {
        Self::from(files.config)
    }
}

/// Where a pair is.
#[derive(Debug)]
struct Paths {
    chain: PathBuf,
    key: PathBuf,
    provider: Arc<CryptoProvider>,
}

/// What stands in the files.
#[derive(PartialEq, Eq)]
struct Texts {
    chain: Vec<u8>,
    key: Vec<u8>,
}

impl Paths {
    async fn read(&self) -> Result<Texts, PemFilesError> {
        Ok(Texts { chain: read(&self.chain).await?, key: read(&self.key).await? })
    }

    fn decode(&self, texts: &Texts) -> Result<CertifiedKey, PemFilesError> {
        let (path, chain) = (&self.chain, CertificateDer::pem_slice_iter(&texts.chain));
        let chain: Vec<_> = chain.collect::<Result<_, _>>().context(PemSnafu { path })?;
        ensure!(!chain.is_empty(), NoCertificateSnafu { path });
        let path = &self.key;
        let key = match PrivateKeyDer::from_pem_slice(&texts.key) {
            Err(pem::Error::NoItemsFound) => NoKeySnafu { path }.fail(),
            key => key.context(PemSnafu { path }),
        };
        let key = self.provider.key_provider.load_private_key(key?).context(KeySnafu { path })?;
        let certified = CertifiedKey::new(chain, key);
        certified.keys_match().context(PairSnafu { chain: &self.chain, key: path })?;
        Ok(certified)
    }
}

async fn read(path: &Path) -> Result<Vec<u8>, PemFilesError> {
    tokio::fs::read(path).await.context(ReadSnafu { path })
}

/// Puts each new pair that is good in the place of the present one.
///
/// The two files are not read at one moment. A pair of which one half is older does not match, and the next time the
/// text is another.
async fn follow(paths: Paths, mut seen: Texts, current: Arc<ArcSwap<CertifiedKey>>) {
    let mut complaint = String::new();
    loop {
        tokio::time::sleep(PERIOD).await;
        let certified = match paths.read().await {
            Ok(texts) if texts == seen => {
                complaint.clear();
                continue;
            }
            Ok(texts) => {
                let certified = paths.decode(&texts);
                seen = texts;
                certified
            }
            Err(error) => Err(error),
        };
        match certified {
            Ok(certified) => {
                current.store(Arc::new(certified));
                complaint.clear();
                tracing::info!(path = %paths.chain.display(), "took a new certificate");
            }
            Err(error) => {
                let error = error.to_string();
                if error != complaint {
                    tracing::error!("the certificate in use stays: {error}");
                }
                complaint = error;
            }
        }
    }
}

/// Hands the present certificate out. The task ends with it.
#[derive(Debug)]
struct Resolver {
    current: Arc<ArcSwap<CertifiedKey>>,
    task: AbortHandle,
}

impl ResolvesServerCert for Resolver {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.current.load_full())
    }
}

impl Drop for Resolver {
    fn drop(&mut self) {
        self.task.abort();
    }
}
