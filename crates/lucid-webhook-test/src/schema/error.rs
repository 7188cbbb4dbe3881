//! Errors of schemas.

use snafu::Snafu;

/// No objects can be generated from the schema.
#[derive(Debug, Snafu)]
#[snafu(visibility(pub(super)))]
#[non_exhaustive]
pub enum SchemaError {
    /// The definition has no schema of the version.
    #[snafu(display(
        "the CustomResourceDefinition has no version {version:?} with a schema, it has {found}"
    ))]
    NoSchema {
        /// The requested version.
        version: String,
        /// Versions with a schema.
        found: String,
    },
    /// No texts can be generated from a pattern.
    #[snafu(display("{path}: failed to make texts for the pattern {pattern:?}: {reason}"))]
    Pattern {
        /// Path in the object.
        path: String,
        /// The pattern.
        pattern: String,
        /// The cause.
        reason: String,
    },
    /// The schema contradicts itself.
    #[snafu(display("{path}: the least allowed is above the most allowed"))]
    Contradiction {
        /// Path in the object.
        path: String,
    },
    /// The type does not exist in CustomResourceDefinitions.
    #[snafu(display(
        "{path}: the type {found:?} is not one of object, array, string, integer, number, boolean"
    ))]
    Type {
        /// Path in the object.
        path: String,
        /// The type found.
        found: String,
    },
}
