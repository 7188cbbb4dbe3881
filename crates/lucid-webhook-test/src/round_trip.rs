//! Property tests of conversions: round trips through another version have to preserve objects.
//!
//! The API server stores one version and serves all of them. Data lost in a round trip is lost permanently when a
//! client of the other version updates the object.
//!
//! ```no_run
//! # fn converter() -> lucid_webhook::Converter { unimplemented!() }
//! # fn definition() -> k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition { unimplemented!() }
//! use lucid_webhook_test::round_trip::{self, RoundTripError};
//!
//! // #[test]
//! fn conversions_lose_nothing() -> Result<(), RoundTripError> {
//!     round_trip::crd(&converter(), &definition())
//! }
//!
//! // #[test]
//! fn a_server_side_apply_may_convert_partial_objects() -> Result<(), RoundTripError> {
//!     round_trip::partial(&converter(), &definition())
//! }
//! ```
//!
//! Each test uses 256 objects, or the number in the environment variable `PROPTEST_CASES`, and reports the smallest
//! failing one. Null, an empty list and an absent value are equal; so are integers and decimals of the same value, and
//! empty and absent labels or annotations. An empty object differs from an absent one: it often enables something.

use std::cell::RefCell;
use std::fmt;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use lucid_webhook::{ConversionError, Converter};
use proptest::strategy::Strategy;
use proptest::test_runner::{Config, TestCaseError, TestError, TestRunner};
use serde::Serialize;
use serde_json::Value;
use snafu::{IntoError, ResultExt, Snafu, ensure};

pub use super::difference::Difference;
use crate::difference::differences;
use crate::schema::{self, SchemaError};

/// Failure of a round trip. `Debug` formats like `Display`, so that tests can return or unwrap it.
#[derive(Snafu)]
#[non_exhaustive]
pub enum RoundTripError {
    /// The round trip changed the object.
    #[snafu(display(
        "{way} changes the object:\n{}smallest object found: {object}\nin between: {between}",
        lines(differences)
    ))]
    Differs {
        /// Path of the round trip, such as `v2 -> v1 -> v2`.
        way: String,
        /// The changed fields.
        differences: Vec<Difference>,
        /// The original object.
        object: Value,
        /// The object in the other version.
        between: Value,
    },
    /// A conversion failed.
    #[snafu(display("{way} fails: {source}\nsmallest object found: {object}"))]
    Fails {
        /// Path of the round trip, such as `v2 -> v1 -> v2`.
        way: String,
        /// The original object.
        object: Value,
        /// The error of the converter.
        #[snafu(source(from(ConversionError, Box::new)))]
        source: Box<ConversionError>,
    },
    /// No or too few objects could be generated.
    #[snafu(display("{problem}"))]
    Untested {
        /// The version or path of the round trip, and the cause.
        problem: String,
    },
}

impl fmt::Debug for RoundTripError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

fn lines(differences: &[Difference]) -> String {
    differences.iter().map(|difference| format!("  {difference}\n")).collect()
}

fn no_objects(version: &str, error: &SchemaError) -> RoundTripError {
    UntestedSnafu { problem: format!("no objects of {version} to try: {error}") }.build()
}

/// Tests every served or stored version of the definition in both directions, with objects generated from its schemas.
///
/// # Errors
///
/// A [`RoundTripError`] for the first round trip that fails.
pub fn crd(converter: &Converter, definition: &CustomResourceDefinition) -> Result<(), RoundTripError> {
    let hub = converter.hub_version();
    let objects =
        |version: &str| schema::objects(definition, version).map_err(|error| no_objects(version, &error));
    let versions = &definition.spec.versions;
    let live = versions.iter().filter(|version| version.served || version.storage);
    for spoke in live.map(|version| &*version.name).filter(|version| *version != hub) {
        spoke_hub_spoke(converter, spoke, objects(spoke)?)?;
        // The hub need not be a version of the definition.
        if versions.iter().any(|version| version.name == hub) {
            hub_spoke_hub(converter, spoke, objects(hub)?)?;
        }
    }
    Ok(())
}

/// Tests that objects with missing fields, including required fields and the metadata, are converted between the hub
/// and every served or stored version of the definition. The round trip need not preserve them.
///
/// The API server sends such objects to conversion webhooks: a server-side apply converts the rest of an object after
/// the fields of a manager are removed (kubernetes/kubernetes#117356). Atomic maps and lists (`x-kubernetes-map-type`,
/// `x-kubernetes-list-type`; the default for lists) are either complete or absent.
///
/// If this fails, so does a server-side apply to an object previously applied in another version. Types whose fields
/// are all `Option`s or have defaults pass.
///
/// # Errors
///
/// A [`RoundTripError`] for the first object that is not converted.
pub fn partial(converter: &Converter, definition: &CustomResourceDefinition) -> Result<(), RoundTripError> {
    let hub = converter.hub_version();
    let versions = definition.spec.versions.iter().filter(|version| version.served || version.storage);
    let versions: Vec<&str> = versions.map(|version| &*version.name).collect();
    for version in &versions {
        // From the hub to the others, and from the others to the hub.
        let targets =
            versions.iter().copied().filter(|other| other != version && (*version == hub || *other == hub));
        for target in targets {
            let objects =
                schema::partial_objects(definition, version).map_err(|error| no_objects(version, &error))?;
            let way = format!("{version} -> {target}");
            run(&way, objects, |object| {
                let converted = converter.convert_object(&object, target);
                converted.map(drop).context(FailsSnafu { way: &way, object })
            })?;
        }
    }
    Ok(())
}

/// Converts objects of the hub to `spoke` (a version without the group) and back. Fields that the spoke cannot
/// represent have to be preserved.
///
/// `objects` may be typed or JSON; `apiVersion` and `kind` are filled in.
///
/// # Errors
///
/// A [`RoundTripError`] if an object is changed or not converted.
pub fn hub_spoke_hub<S>(converter: &Converter, spoke: &str, objects: S) -> Result<(), RoundTripError>
where
    S: Strategy,
    S::Value: Serialize,
{
    round_trip(converter, converter.hub_version(), spoke, objects)
}

/// Converts objects of `spoke` (a version without the group) to the hub and back.
///
/// `objects` may be typed or JSON; `apiVersion` and `kind` are filled in.
///
/// # Errors
///
/// A [`RoundTripError`] if an object is changed or not converted.
pub fn spoke_hub_spoke<S>(converter: &Converter, spoke: &str, objects: S) -> Result<(), RoundTripError>
where
    S: Strategy,
    S::Value: Serialize,
{
    round_trip(converter, spoke, converter.hub_version(), objects)
}

fn round_trip<S>(converter: &Converter, home: &str, away: &str, objects: S) -> Result<(), RoundTripError>
where
    S: Strategy,
    S::Value: Serialize,
{
    let way = format!("{home} -> {away} -> {home}");
    run(&way, objects, |mut object| {
        if let Value::Object(object) = &mut object {
            object.insert("apiVersion".to_owned(), format!("{}/{home}", converter.group()).into());
            object.insert("kind".to_owned(), converter.kind().into());
        }
        let fails = |error| FailsSnafu { way: &way, object: object.clone() }.into_error(error);
        let between = converter.convert_object(&object, away).map_err(fails)?;
        let back = converter.convert_object(&between, home).map_err(fails)?;
        let differences = differences(&object, &back);
        ensure!(differences.is_empty(), DiffersSnafu { way: &way, differences, object, between });
        Ok(())
    })
}

/// Runs a trial on generated objects and returns the error for the smallest object that fails.
fn run<S>(
    way: &str,
    objects: S,
    trial: impl Fn(Value) -> Result<(), RoundTripError>,
) -> Result<(), RoundTripError>
where
    S: Strategy,
    S::Value: Serialize,
{
    // The last failing object is the smallest.
    let last = RefCell::new(None);
    // No failure persistence: the message has the whole object.
    let config = Config { failure_persistence: None, ..Config::default() };
    let outcome = TestRunner::new(config).run(&objects, |object| {
        let object =
            serde_json::to_value(object).map_err(|error| TestCaseError::reject(error.to_string()))?;
        trial(object).map_err(|error| {
            last.replace(Some(error));
            TestCaseError::fail("the round trip failed")
        })
    });
    match (outcome, last.into_inner()) {
        (Ok(()), _) => Ok(()),
        (Err(TestError::Fail(..)), Some(error)) => Err(error),
        (Err(TestError::Fail(reason, _) | TestError::Abort(reason)), _) => {
            UntestedSnafu { problem: format!("{way} was not tried with enough objects: {reason}") }.fail()
        }
    }
}
