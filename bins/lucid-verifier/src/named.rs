use std::str::FromStr;

use lucid_notary::reference::ReferenceError;
use lucid_notary::{Digest, ImageReference};

/// A command-line argument that names a digest, or an image with a digest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Named {
    pub(crate) digest: Digest,
    pub(crate) image: Option<ImageReference>,
}

impl FromStr for Named {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const EXPECTED: &str = "expected sha256:HEX, sha512:HEX, or an image with one of them after '@'";
        let is_digest = ["sha256:", "sha512:"].iter().any(|algorithm| text.starts_with(algorithm));
        if !text.contains(['@', '/']) && (is_digest || !text.contains(':')) {
            let digest = text.parse::<Digest>().map_err(|error| error.to_string())?;
            return Ok(Self { digest, image: None });
        }
        let image: ImageReference = text.parse().map_err(|error: ReferenceError| error.to_string())?;
        let digest = image.digest().cloned();
        let digest =
            digest.ok_or_else(|| format!("the image has no digest, and a tag can be moved; {EXPECTED}"))?;
        Ok(Self { digest, image: Some(image) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_list_expected_values_once() {
        for text in
            ["nginx", "nginx:1.25", "library/nginx:1", "sha256:0", "sha384:00", "a/B@sha256:00", "", "a@b"]
        {
            let error = text.parse::<Named>().unwrap_err();
            assert_eq!(error.matches("expected").count(), 1, "{error}");
        }
    }
}
