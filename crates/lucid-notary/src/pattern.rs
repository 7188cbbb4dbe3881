//! Patterns of image repositories.

use std::str::FromStr;

use serde::{Deserialize, Deserializer};
use snafu::Snafu;

use crate::reference::ImageReference;
use crate::registry::Registry;

/// A pattern of image repositories: `registry/path` matches that path and all paths below it.
///
/// The registry is a host, or `*.` followed by a host, which matches hosts with exactly one more label. Paths are
/// compared by segment: `ghcr.io/acme` matches `ghcr.io/acme/web` but not `ghcr.io/acme-evil/web`. `registry/*`
/// matches the whole registry.
///
/// ```
/// use lucid_notary::ImagePattern;
///
/// let pattern: ImagePattern = "*.example.com/team".parse()?;
/// for (image, matches) in [
///     ("eu.example.com/team/web:1", true),
///     ("EU.example.com:443/team/web", true),
///     ("eu.example.com/team-2/web", false),
///     ("example.com/team/web", false),
///     ("a.eu.example.com/team/web", false),
///     ("evil.test/eu.example.com/team/web", false),
/// ] {
///     assert_eq!(pattern.matches(&image.parse()?), matches, "{image}");
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImagePattern {
    /// `true` if the host must have one more label.
    any_label: bool,
    registry: Registry,
    path: Vec<String>,
}

/// A string is not a valid [`ImagePattern`].
#[derive(Debug, Snafu)]
#[snafu(display("image pattern {text:?}{fault}"))]
pub struct ImagePatternError {
    text: String,
    fault: String,
}

impl ImagePattern {
    /// Returns `true` if the image belongs to one of the repositories.
    #[must_use]
    pub fn matches(&self, image: &ImageReference) -> bool {
        let registry = Registry::from_image(image);
        let host = match (self.any_label, registry.host.split_once('.')) {
            (false, _) => registry.host == self.registry.host,
            (true, Some((label, rest))) => !label.is_empty() && rest == self.registry.host,
            (true, None) => false,
        };
        let mut segments = image.repository().split('/');
        host && registry.same_port(&self.registry)
            && self.path.iter().all(|segment| segments.next() == Some(segment.as_str()))
    }
}

impl FromStr for ImagePattern {
    type Err = ImagePatternError;

    fn from_str(text: &str) -> Result<Self, ImagePatternError> {
        let (any_label, written) = match text.strip_prefix('*') {
            // Placeholders make the pattern parse as a reference: a label for `*.` and a path segment for `/*`. Both
            // are removed below.
            Some(rest) if rest.starts_with('.') => (true, format!("any{rest}")),
            _ => (false, text.to_owned()),
        };
        let (written, is_open) = match written.strip_suffix("/*") {
            Some(parent) => (format!("{parent}/all"), true),
            None => (written, false),
        };
        let invalid = |fault: String| ImagePatternError { text: text.to_owned(), fault };
        let image = written.parse::<ImageReference>().map_err(|error| {
            invalid(format!(": {error}; a pattern is registry/path, with `*.` in front or `/*` at the end"))
        })?;
        let (host, path) = written.split_once('/').unwrap_or_default();
        if let Some(fault) = fault_of(&image, host) {
            return Err(invalid(format!(" {fault}")));
        }
        let mut registry = Registry::from_image(&image);
        if any_label {
            registry.host =
                registry.host.split_once('.').map_or(registry.host.clone(), |(_, rest)| rest.to_owned());
        }
        let mut path: Vec<_> = path.split('/').map(str::to_owned).collect();
        if is_open {
            path.pop();
        }
        Ok(Self { any_label, registry, path })
    }
}

fn fault_of(image: &ImageReference, host: &str) -> Option<&'static str> {
    if image.tag().is_some() || image.digest().is_some() {
        Some("has a tag or a digest; expected a repository: write digests to `digests`")
    } else if host.eq_ignore_ascii_case("index.docker.io") {
        // `ImageReference` normalizes this alias, so the pattern would never match.
        Some("names index.docker.io, which is docker.io: write docker.io")
    } else if !image.registry().eq_ignore_ascii_case(host) {
        // References without a registry imply docker.io. Patterns must be explicit.
        Some("does not name a registry; expected registry/path, such as docker.io/library/nginx")
    } else {
        None
    }
}

impl<'de> Deserialize<'de> for ImagePattern {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}
