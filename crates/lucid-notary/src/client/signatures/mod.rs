//! Verdicts by signatures: Sigstore bundles from files or registries, verified offline.
//!
//! Keyless bundles are verified by `sigstore-verify`: its only cryptography is aws-lc-rs and it has no network code
//! without its default features, while `sigstore` needs the RustCrypto signature crates and an HTTP client. Bundles by a
//! key use its primitives only, because it rejects those without a log entry or a timestamp, which a pinned key does not
//! need.

mod bundle;
mod policy;
mod referrers;
mod registry_credentials;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use lucid_text::Line;
use snafu::{IntoError, ResultExt};
use tower::BoxError;

pub(super) use self::policy::{Policies, Require};
use super::metrics::ClientMetrics;
use super::reloading_files::{FileError, FileSnafu, ReloadingFiles};
use crate::reference::ImageReference;

/// Signatures on image digests, and the policies that accept them. Cheap to clone.
///
/// Reads a directory, such as a mounted ConfigMap, without subdirectories:
///
/// | file | content |
/// |---|---|
/// | `signatures.yaml` | the policies |
/// | `trusted_root.json` | Sigstore trusted root, for identities |
/// | `config.json` | credentials of registries, as in a Secret of type `kubernetes.io/dockerconfigjson` |
/// | `sha256-HEX.json`, `sha256-HEX.NAME.json` | bundle about the image with that digest; up to 8 of 128 KiB |
///
/// The first policy that matches an image applies to it. Images without a policy need the Verifier.
///
/// ```yaml
/// policies:
///   - images: [ghcr.io/acme/auditors]
///     require: any                 # any or all of Verifier and signatures, or one: verifier, signatures
///     keys:                        # public keys in PEM
///       - |
///         -----BEGIN PUBLIC KEY-----
///         …
///     identities:                  # signers of keyless signatures; `*` at the end of a subject matches any rest
///       - issuer: https://token.actions.githubusercontent.com
///         subject: https://github.com/acme/auditors/.github/workflows/release.yml@refs/tags/v*
///     predicateType: https://example.com/review/v1   # of statements; by default that of `cosign sign`
///     referrers: true              # fetches bundles from the image's registry as well; by default false
/// ```
///
/// One bundle by one of the signers suffices. Keyless signatures need a certificate of the trusted root with its SCT, an
/// entry in the transparency log, and a trusted time; those by a key need neither. A digest without a bundle that
/// verifies is not notarized.
///
/// Only `referrers` needs a network: up to 8 bundles of 128 KiB are fetched by the OCI referrers API or its fallback tag,
/// unless a file suffices. If that fails, the digest is unknown.
#[derive(Clone, Debug)]
pub struct Signatures {
    policies: Arc<ReloadingFiles<Policies, BTreeMap<String, Vec<u8>>>>,
    pub(super) metrics: ClientMetrics,
}

impl Signatures {
    /// Reads the directory, and again whenever a file changes. If a later read fails, the last valid content stays in
    /// use.
    ///
    /// # Errors
    ///
    /// Returns [`FileError`] if a file cannot be read, or a policy or the trusted root is not valid. A bundle that is not
    /// valid is not an error: it does not verify.
    pub fn open(directory: impl Into<PathBuf>, metrics: ClientMetrics) -> Result<Self, FileError> {
        let policies =
            ReloadingFiles::open_with(vec![directory.into()], read_directory, Box::new(Policies::parse))?;
        Ok(Self { policies: Arc::new(policies.on_change(metrics.on_change("signatures"))), metrics })
    }

    /// Verifies the signatures on `images` by files alone, such as those of an archive: by `bundles`, named as in the
    /// directory, and by the policies and the trusted root in `directory`. Returns the reason for each image that is not
    /// signed as its policy demands. Images without such a policy are left out.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open), and if one of `bundles` is not named as a bundle.
    pub fn verify_bundles(
        directory: &Path,
        bundles: BTreeMap<String, Vec<u8>>,
        images: impl IntoIterator<Item = ImageReference>,
    ) -> Result<BTreeMap<ImageReference, Result<(), String>>, FileError> {
        let invalid = |source: BoxError| {
            FileSnafu { action: "use", files: directory.display().to_string() }.into_error(source)
        };
        if let Some(name) = bundles.keys().find(|name| !name.starts_with("sha256-")) {
            // It could replace the policies.
            return Err(invalid(format!("{}: expected a bundle as sha256-HEX.json", Line(name)).into()));
        }
        let mut files = read_directory(&[directory.to_owned()])?;
        files.extend(bundles);
        let policies = Policies::parse(&files).map_err(invalid)?;
        let verify = |image: ImageReference| Some((policies.verify(&image)?, image));
        Ok(images.into_iter().filter_map(verify).map(|(verified, image)| (image, verified)).collect())
    }

    pub(super) async fn policies(&self) -> Arc<Policies> {
        self.policies.get().await
    }
}

/// Maximum number of files of a directory, and of their bytes.
const MAX_FILES: usize = 4_096;
const MAX_BYTES: u64 = 16 * 1024 * 1024;

/// Reads the files by name, except those that begin with a dot, as the links of a mounted ConfigMap do.
fn read_directory(directories: &[PathBuf]) -> Result<BTreeMap<String, Vec<u8>>, FileError> {
    let read = |directory: &PathBuf| {
        let (mut files, mut room) = (BTreeMap::new(), MAX_BYTES);
        for entry in std::fs::read_dir(directory)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.starts_with('.') {
                continue;
            }
            let mut content = Vec::new();
            File::open(entry.path())?.take(room + 1).read_to_end(&mut content)?;
            room = room.checked_sub(content.len() as u64).ok_or("its files are longer than 16 MiB")?;
            files.insert(name, content);
            if files.len() > MAX_FILES {
                return Err(format!("it has more than {MAX_FILES} files").into());
            }
        }
        Ok(files)
    };
    let mut all = BTreeMap::new();
    for directory in directories {
        let action = "read";
        all.extend(read(directory).context(FileSnafu { action, files: directory.display().to_string() })?);
    }
    Ok(all)
}
