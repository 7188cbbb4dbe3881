//! Sets of image repositories.

use std::str::FromStr;

use serde::{Deserialize, Deserializer};
use snafu::{ResultExt, Snafu, ensure};

use crate::reference::{ImageReference, ReferenceError};
use crate::registry::Registry;

/// A set of image repositories: `registry/path`, which means that path and everything below it.
///
/// The registry is one host, or with `*.` in front every host with exactly one more label. The path is compared by its
/// segments: `ghcr.io/acme` has `ghcr.io/acme/web` in it and not `ghcr.io/acme-evil/web`. `registry/*` is the whole registry.
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
    /// The host has one more label.
    any_label: bool,
    registry: Registry,
    /// Segments of the path.
    path: Vec<String>,
}

/// A text is no [`ImagePattern`].
#[derive(Debug, Snafu)]
#[non_exhaustive]
pub enum ImagePatternError {
    /// What is left without the `*` is no repository.
    #[snafu(display(
        "image pattern {text:?}: {source}; accepted is registry/path, with `*.` in front or registry/*"
    ))]
    Repository {
        /// The pattern.
        text: String,
        /// What is wrong where.
        source: ReferenceError,
    },
    /// It has a tag or a digest.
    #[snafu(display(
        "image pattern {text:?} has a tag or a digest; accepted is a repository: write digests to `digests`"
    ))]
    Tagged {
        /// The pattern.
        text: String,
    },
    /// It names the registry in a way that references are not kept.
    #[snafu(display("image pattern {text:?} names {found}, which is docker.io: write docker.io"))]
    Alias {
        /// The pattern.
        text: String,
        /// The registry's other name.
        found: String,
    },
    /// It does not say which registry.
    #[snafu(display(
        "image pattern {text:?} names no registry; accepted is registry/path, such as docker.io/library/nginx"
    ))]
    Registry {
        /// The pattern.
        text: String,
    },
}

impl ImagePattern {
    /// Whether the image comes from one of these repositories.
    #[must_use]
    pub fn matches(&self, image: &ImageReference) -> bool {
        let registry = Registry::of(image);
        let host = match (self.any_label, registry.host.split_once('.')) {
            (false, _) => registry.host == self.registry.host,
            (true, Some((label, rest))) => !label.is_empty() && rest == self.registry.host,
            (true, None) => false,
        };
        let mut segments = image.repository().split('/');
        host && registry.has_port_of(&self.registry)
            && self.path.iter().all(|segment| segments.next() == Some(segment.as_str()))
    }
}

impl FromStr for ImagePattern {
    type Err = ImagePatternError;

    fn from_str(text: &str) -> Result<Self, ImagePatternError> {
        let (any_label, written) = match text.strip_prefix('*') {
            // A label has to be there for a host to be read, and a path for a repository; both are taken off again.
            Some(rest) if rest.starts_with('.') => (true, format!("any{rest}")),
            _ => (false, text.to_owned()),
        };
        let (written, is_open) = match written.strip_suffix("/*") {
            Some(parent) => (format!("{parent}/all"), true),
            None => (written, false),
        };
        let image: ImageReference = written.parse().context(RepositorySnafu { text })?;
        ensure!(image.tag().is_none() && image.digest().is_none(), TaggedSnafu { text });
        // Without a registry docker.io is meant, which nobody sees who reads the pattern.
        let (host, path) = written.split_once('/').unwrap_or_default();
        if host.eq_ignore_ascii_case("index.docker.io") {
            return AliasSnafu { text, found: host }.fail();
        }
        ensure!(image.registry().eq_ignore_ascii_case(host), RegistrySnafu { text });
        let mut registry = Registry::of(&image);
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

impl<'de> Deserialize<'de> for ImagePattern {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}
