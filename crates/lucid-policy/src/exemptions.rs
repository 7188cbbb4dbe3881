//! Exemptions from the policy.

use std::fmt;

use lucid_notary::{Digest, ImagePattern, ImageReference};
use lucid_text::names::is_dns_label;
use serde::Deserialize;
use snafu::Snafu;

use crate::bypass::host_path;
use crate::finding::{Check, Problem};

/// One exemption from the policy. It applies if all of its conditions hold.
///
/// - `namespaces` alone: covers everything but invalid break-glass tickets.
/// - `images` or `digests`: covers findings about containers with these images, but not missing or altered containers
///   of the chain.
/// - `hostPaths`: covers only mounts of these node paths and of paths below them.
///
/// ```
/// let exemption: lucid_policy::Exemption = serde_json::from_str(
///     r#"{"name": "mesh", "namespaces": ["shop"], "images": ["docker.io/istio/proxyv2", "*.example.com/tools"]}"#,
/// )?;
/// assert_eq!(exemption.name(), "mesh");
/// assert!(serde_json::from_str::<lucid_policy::Exemption>(r#"{"name": "everything"}"#).is_err());
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Written")]
pub struct Exemption(Written);

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    name: String,
    #[serde(default)]
    namespaces: Vec<String>,
    #[serde(default)]
    images: Vec<ImagePattern>,
    #[serde(default)]
    digests: Vec<Digest>,
    #[serde(default, rename = "hostPaths")]
    host_paths: Vec<String>,
}

/// An exemption is invalid.
#[derive(Debug, Snafu)]
#[snafu(display("exemption {name:?} {fault}"))]
pub struct ExemptionError {
    name: String,
    fault: String,
}

impl TryFrom<Written> for Exemption {
    type Error = ExemptionError;

    fn try_from(mut written: Written) -> Result<Self, ExemptionError> {
        let Written { name, namespaces, images, digests, host_paths } = &written;
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
        let is_named = (1..=63).contains(&name.len()) && name.bytes().all(plain);
        let is_bounded =
            !(namespaces.is_empty() && images.is_empty() && digests.is_empty() && host_paths.is_empty());
        let invalid = |fault| Err(ExemptionError { name: name.clone(), fault });
        if !(is_named && is_bounded) {
            return invalid(
                "needs a name of letters, digits, '-', '_' and '.', and at least one of namespaces, images, digests and \
                 hostPaths"
                    .to_owned(),
            );
        }
        if let Some(found) = namespaces.iter().find(|namespace| !is_dns_label(namespace)) {
            return invalid(format!(
                "has namespace {found:?}, expected the name of a namespace, without patterns: 1 to 63 of a-z, 0-9 and '-', \
                 with a letter or digit at both ends"
            ));
        }
        let is_path = |path: &str| {
            path.starts_with('/')
                && path.len() <= host_path::MAX_LENGTH
                && !path.split('/').any(|part| part == "..")
        };
        if let Some(found) = host_paths.iter().find(|path| !is_path(path)) {
            return invalid(format!(
                "has hostPath {found:?}, expected an absolute path without '..', of at most {} bytes",
                host_path::MAX_LENGTH
            ));
        }
        written.host_paths = host_paths.iter().map(|path| host_path::normalized(path)).collect();
        Ok(Self(written))
    }
}

impl Exemption {
    /// Returns the name by which the audit record lists the exemption.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// An image that is covered needs no verification of its digest.
    #[must_use]
    pub(crate) fn covers_image(&self, namespace: &str, image: Option<&ImageReference>) -> bool {
        self.0.host_paths.is_empty() && self.applies(namespace, image)
    }

    pub(crate) fn applies(&self, namespace: &str, image: Option<&ImageReference>) -> bool {
        let Written { namespaces, images, digests, .. } = &self.0;
        let of_image = images.is_empty() && digests.is_empty()
            || image.is_some_and(|image| {
                let by_digest = || image.digest().is_some_and(|digest| digests.contains(digest));
                (images.is_empty() || images.iter().any(|pattern| pattern.matches(image)))
                    && (digests.is_empty() || by_digest())
            });
        of_image && (namespaces.is_empty() || namespaces.iter().any(|name| name == namespace))
    }

    /// Returns `true` if the exemption covers a problem of a container or pod to which it [applies](Self::applies).
    pub(crate) fn covers(&self, problem: &Problem) -> bool {
        let Written { images, digests, host_paths, .. } = &self.0;
        if !host_paths.is_empty() {
            let Some(path) = &problem.host_path else { return false };
            return host_paths.iter().any(|folder| host_path::is_within(path, folder));
        }
        match problem.check {
            Check::BreakGlass => false,
            Check::Chain | Check::Labels => images.is_empty() && digests.is_empty(),
            Check::Images | Check::Bypass => true,
        }
    }
}

/// A problem covered by an exemption, for the audit record.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Exempted {
    /// Name of the exemption, or a description of a built-in one.
    pub by: String,
    /// The covered problem.
    pub what: String,
}

impl fmt::Display for Exempted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.by, self.what)
    }
}
