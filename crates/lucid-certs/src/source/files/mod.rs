//! A certificate in files.

mod bundle;
mod set;
mod snapshot;
mod watches;

use std::{
    fmt,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use super::{
    CertificateSource, ObservedTrust, Offer, SourceError,
    pair::{Found, Text},
};
use set::FileSet;
use snapshot::{Content, Snapshot};

pub use bundle::watch_bundle;

#[derive(Debug, Clone, Copy)]
struct Watching {
    events: bool,
    poll: Duration,
}

impl Default for Watching {
    fn default() -> Self {
        Self { events: true, poll: Duration::from_secs(5) }
    }
}

/// A certificate and its key in two PEM files, which are reloaded when they change. The files may be a
/// mounted Secret or managed by any other program.
///
/// The key may be PKCS#8, SEC1 or PKCS#1, and may be in the same file as the certificate. If the directory is
/// replaced atomically, as kubelet and CSI drivers do (`..data`), certificate, key and bundle are read from
/// the same version: symbolic links are resolved once for all files. Files that are written one after the
/// other mismatch for a moment. Until they match, and while files are missing, unreadable or truncated, the
/// previous certificate stays in use.
///
/// Changes are detected by file system events, and by polling every five seconds. Events are handled 25 ms after the last
/// of a series, so that a writer can finish. Polling covers network file systems, which have no events, and systems whose
/// watch limit is exhausted.
///
/// Mount the volume, not single files: a `subPath` mount never changes. Kubelet updates a mounted Secret
/// within about two minutes; [`SecretSource`](super::SecretSource) is faster.
///
/// ```
/// use lucid_certs::source::FileSource;
///
/// // Also publishes ca.crt to the targets, without cainjector.
/// let source = FileSource::in_directory("/tls").with_publishing();
/// ```
///
/// [`in_directory`](Self::in_directory) and [`olm_api_server`](Self::olm_api_server) use the file names of common issuers.
pub struct FileSource {
    certificate: PathBuf,
    key: PathBuf,
    ca: Option<PathBuf>,
    publishes: bool,
    watching: Watching,
    state: Option<State>,
}

struct State {
    files: FileSet,
    /// Digest and result of the last read.
    found: Option<([u8; 32], Result<Found, SourceError>)>,
}

impl FileSource {
    /// Creates a source with a certificate chain in one file and its key in another. Reads nothing yet.
    #[must_use]
    pub fn new(certificate: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        Self {
            certificate: certificate.into(),
            key: key.into(),
            ca: None,
            publishes: false,
            watching: Watching::default(),
            state: None,
        }
    }

    /// Reads the CA from this file, which then has to verify the certificate, such as one that is projected from a
    /// ClusterTrustBundle.
    #[must_use]
    pub fn with_ca(mut self, ca: impl Into<PathBuf>) -> Self {
        self.ca = Some(ca.into());
        self
    }

    /// Publishes the [CA](Self::with_ca), or else the last certificate of the chain: targets hold at least these
    /// certificates. Otherwise the bundle is managed externally.
    #[must_use]
    pub fn with_publishing(mut self) -> Self {
        self.publishes = true;
        self
    }

    /// Sets the poll interval (default 5 s, minimum 1 ms).
    #[must_use]
    pub fn with_poll(mut self, poll: Duration) -> Self {
        self.watching.poll = poll.max(Duration::from_millis(1));
        self
    }

    /// Disables file system events.
    #[must_use]
    pub fn without_events(mut self) -> Self {
        self.watching.events = false;
        self
    }

    fn state(&mut self) -> &mut State {
        let Self { certificate, key, ca, watching, state, .. } = self;
        state.get_or_insert_with(|| {
            let paths = [&*certificate, &*key].into_iter().chain(&*ca).cloned().collect();
            State { files: FileSet::new(paths, *watching), found: None }
        })
    }

    fn decode(&self, snapshot: &Snapshot) -> Result<Found, SourceError> {
        let (certificate, key, ca) = match snapshot.contents.as_slice() {
            [certificate, key] => (certificate, key, None),
            [certificate, key, ca, ..] => (certificate, key, Some(ca)),
            _ => return Err(SourceError::new(super::Reason::Missing, "no files were named")),
        };
        let certificate = text(&self.certificate, certificate)?;
        let key = text(&self.key, key)?;
        let ca = match (&self.ca, ca) {
            (Some(path), Some(content)) => Some(text(path, content)),
            _ => None,
        };
        Found::decode(certificate, key, ca, self.publishes)
    }
}

impl FileSource {
    /// Reads `tls.crt`, `tls.key` and, if present, `ca.crt` from `directory`, which then has to verify the certificate: a mounted Secret of type
    /// `kubernetes.io/tls`, such as those of cert-manager and OpenShift's service CA, or files created with openssl.
    #[must_use]
    pub fn in_directory(directory: impl AsRef<Path>) -> Self {
        let directory = directory.as_ref();
        Self::new(directory.join("tls.crt"), directory.join("tls.key")).with_ca(directory.join("ca.crt"))
    }

    /// Reads the `credentialBundlePath` of a projected volume's `podCertificate` (Kubernetes 1.37): key and certificate
    /// chain in one file, which kubelet renews.
    ///
    /// ```
    /// use lucid_certs::source::FileSource;
    ///
    /// // ca.crt is the path of a clusterTrustBundle in the same volume, selected by its signer:
    /// // kubelet serves one selected by name from a cache for up to five minutes.
    /// let source = FileSource::pod_certificate("/tls/bundle.pem").with_ca("/tls/ca.crt");
    /// ```
    #[must_use]
    pub fn pod_certificate(bundle: impl AsRef<Path>) -> Self {
        Self::new(bundle.as_ref(), bundle.as_ref())
    }

    /// Reads the certificate that the Operator Lifecycle Manager mounts into each container of a
    /// deployment with [webhooks][docs], in its API server location: `apiserver.crt` and `apiserver.key` in
    /// `/apiserver.local.config/certificates`.
    ///
    /// OLM publishes the bundle. The certificate is valid for `<deployment>-service.<namespace>` and
    /// `<deployment>-service.<namespace>.svc`; its key is ECDSA P-256 in SEC1 format.
    ///
    /// [docs]: https://olm.operatorframework.io/docs/advanced-tasks/adding-admission-and-conversion-webhooks/
    #[must_use]
    pub fn olm_api_server() -> Self {
        let directory = Path::new("/apiserver.local.config/certificates");
        Self::new(directory.join("apiserver.crt"), directory.join("apiserver.key"))
    }
}

fn text<'a>(path: &Path, content: &'a Content) -> Result<Text<'a>, SourceError> {
    match content {
        Ok(bytes) => Ok(Text { place: path.display().to_string(), bytes }),
        Err(error) => Err(error.clone()),
    }
}

impl CertificateSource for FileSource {
    fn name(&self) -> &'static str {
        "files"
    }

    async fn offer(&mut self, _observed: &ObservedTrust, now: SystemTime) -> Result<Offer, SourceError> {
        let snapshot = self.state().files.read().await?;
        let known = self.state().found.take().filter(|(digest, _)| *digest == snapshot.digest);
        let found = known.map_or_else(|| self.decode(&snapshot), |(_, found)| found);
        let (_, found) = self.state().found.insert((snapshot.digest, found));
        found.as_ref().map_err(Clone::clone)?.offer(now)
    }

    fn has_external_trust(&self) -> bool {
        !self.publishes
    }

    async fn changed(&mut self) {
        self.state().files.changed().await;
    }
}

impl fmt::Debug for FileSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { certificate, key, ca, publishes, watching, state: _ } = self;
        f.debug_struct("FileSource")
            .field("certificate", certificate)
            .field("key", key)
            .field("ca", ca)
            .field("publishes", publishes)
            .field("watching", watching)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn presets_use_the_file_names_of_issuers() {
        for (files, [certificate, key, ca]) in [
            (FileSource::in_directory("/a"), ["/a/tls.crt", "/a/tls.key", "/a/ca.crt"]),
            (
                FileSource::olm_api_server(),
                [
                    "/apiserver.local.config/certificates/apiserver.crt",
                    "/apiserver.local.config/certificates/apiserver.key",
                    "",
                ],
            ),
        ] {
            assert_eq!(files.certificate, Path::new(certificate));
            assert_eq!(files.key, Path::new(key));
            assert_eq!(files.ca.as_deref(), (!ca.is_empty()).then_some(Path::new(ca)));
            assert!(!files.publishes);
        }
    }
}
