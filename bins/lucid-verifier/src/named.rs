use std::str::FromStr;

use lucid_notary::{Digest, ImageReference};

/// What a user notarizes: a digest, or an image with one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// The digest.
    pub digest: Digest,
    /// The image, if it was named.
    pub image: Option<ImageReference>,
}

impl FromStr for Named {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const ACCEPTED: &str =
            "accepted are sha256:HEX, sha512:HEX, and an image with one of them behind '@'";
        if !text.contains(['@', '/']) {
            let digest = text.parse().map_err(|error| format!("{error}; {ACCEPTED}"))?;
            return Ok(Self { digest, image: None });
        }
        let image: ImageReference = text.parse().map_err(|error| format!("{error}; {ACCEPTED}"))?;
        let digest = image.digest().cloned();
        let digest =
            digest.ok_or_else(|| format!("the image has no digest, and a tag can be moved; {ACCEPTED}"))?;
        Ok(Self { digest, image: Some(image) })
    }
}
