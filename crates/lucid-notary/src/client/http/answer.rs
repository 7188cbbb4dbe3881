use std::fmt;

use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, MapAccess, Visitor};

use crate::verdict::Verdict;

/// The Verifier's answer about a digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Answer {
    /// The digest is registered.
    Notarized,
    /// The digest is not registered.
    NotNotarized,
}

impl From<Answer> for Verdict {
    fn from(answer: Answer) -> Self {
        match answer {
            Answer::Notarized => Self::Notarized,
            Answer::NotNotarized => Self::NotNotarized,
        }
    }
}

/// Response body: `{"digest":"sha256:…","notarized":true}`.
#[derive(Debug, Deserialize)]
#[serde(remote = "Self")]
pub(super) struct AnswerBody {
    pub(super) digest: String,
    pub(super) notarized: bool,
}

/// Accepts objects only. The derived implementation would accept the array `["sha256:…", true]` as well.
impl<'de> Deserialize<'de> for AnswerBody {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Object;

        impl<'de> Visitor<'de> for Object {
            type Value = AnswerBody;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, object: A) -> Result<AnswerBody, A::Error> {
                AnswerBody::deserialize(MapAccessDeserializer::new(object))
            }
        }

        deserializer.deserialize_map(Object)
    }
}
