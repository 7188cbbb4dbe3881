//! A certificate that others keep in files

mod bundle;
mod set;
mod snapshot;
mod watches;

use std::{
    fmt,
    path::PathBuf,
    time::{Duration, SystemTime},
};

use super::{
    CertificateSource, Live, Offer, SourceError,
    pair::{Found, Text},
};
use set::FileSet;
use snapshot::{Content, Snapshot};

pub use bundle::BundleFile;

/// How changes of files are noticed: by events of the file system, and by reading every five seconds besides.
///
/// Events tell within a fraction of a second: 25 ms after the last of several, so that a writer gets to finish.
/// Reading finds what has no event: file systems of other machines
/// have none, and a system may have given all it has to others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Watching {
    events: bool,
    poll: Duration,
}

impl Watching {
    /// Without events
    #[must_use]
    pub fn by_poll_alone() -> Self {
        Self { events: false, ..Self::default() }
    }

    /// Reads this often; at least a millisecond passes in between
    #[must_use]
    pub fn with_poll(self, poll: Duration) -> Self {
        Self { poll: poll.max(Duration::from_millis(1)), ..self }
    }
}

impl Default for Watching {
    fn default() -> Self {
        Self { events: true, poll: Duration::from_secs(5) }
    }
}

/// A certificate and its key in two PEM files, which are read again when they change: a mounted Secret, or
/// whatever somebody else keeps up to date.
///
/// The key may be PKCS#8, SEC1 or PKCS#1; it may stand in the same file. Certificate, key and bundle are
/// read as one version where the directory is replaced as one, as kubelet and CSI drivers replace a volume
/// (`..data`): links are resolved once for all of the files. Written one after the other, they do not match
/// for a moment; what was offered before stays good until they do. So it does when files are missing,
/// unreadable or cut off.
///
/// Mount the volume, not single files of it: what is mounted with `subPath` never changes. Kubelet brings a
/// changed Secret into its volume within some two minutes; [`SecretSource`](super::SecretSource) is faster.
///
/// ```
/// use lucid_certs::source::Files;
///
/// // Brings ca.crt to the targets as well, which needs no cainjector.
/// let source = Files::new("/tls/tls.crt", "/tls/tls.key").with_ca("/tls/ca.crt").with_publishing();
/// ```
///
/// [`in_directory`](Self::in_directory) and those beside it know the places that others have agreed on.
pub struct Files {
    certificate: PathBuf,
    key: PathBuf,
    ca: Option<PathBuf>,
    publishes: bool,
    watching: Watching,
    state: Option<State>,
}

/// What there is once the files were asked for
struct State {
    files: FileSet,
    /// The outcome of the last reading, with its digest
    found: Option<([u8; 32], Result<Found, SourceError>)>,
}

impl Files {
    /// The certificate, with its chain behind it, in one file and its key in another; nothing is read yet
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

    /// The bundle that came with the certificate, in a third file. The certificate is offered only if the bundle
    /// vouches for it. The file may be missing, unless it is to be published.
    #[must_use]
    pub fn with_ca(mut self, ca: impl Into<PathBuf>) -> Self {
        self.ca = Some(ca.into());
        self
    }

    /// The targets are to hold at least what [`with_ca`](Self::with_ca) names. Without this, somebody else
    /// brings the bundle there.
    #[must_use]
    pub fn with_publishing(mut self) -> Self {
        self.publishes = true;
        self
    }

    /// How changes are noticed
    #[must_use]
    pub fn with_watching(mut self, watching: Watching) -> Self {
        self.watching = watching;
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

fn text<'a>(path: &std::path::Path, content: &'a Content) -> Result<Text<'a>, SourceError> {
    match content {
        Ok(bytes) => Ok(Text { place: path.display().to_string(), bytes }),
        Err(error) => Err(error.clone()),
    }
}

impl CertificateSource for Files {
    fn name(&self) -> &'static str {
        "files"
    }

    async fn offer(&mut self, _live: &Live, now: SystemTime) -> Result<Offer, SourceError> {
        let snapshot = self.state().files.read().await?;
        let known = self.state().found.take().filter(|(digest, _)| *digest == snapshot.digest);
        let found = known.map_or_else(|| self.decode(&snapshot), |(_, found)| found);
        let (_, found) = self.state().found.insert((snapshot.digest, found));
        found.as_ref().map_err(Clone::clone)?.offer(now)
    }

    async fn changed(&mut self) {
        self.state().files.changed().await;
    }
}

impl fmt::Debug for Files {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { certificate, key, ca, publishes, watching, state: _ } = self;
        f.debug_struct("Files")
            .field("certificate", certificate)
            .field("key", key)
            .field("ca", ca)
            .field("publishes", publishes)
            .field("watching", watching)
            .finish_non_exhaustive()
    }
}
