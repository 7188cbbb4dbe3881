//! Texts and numbers.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::JSONSchemaProps;
use proptest::prelude::*;
use serde_json::Value;
use snafu::ensure;

use super::{SchemaError, invalid, pattern};

const CONTRADICTION: &str = "the least allowed is above the most allowed";

/// Maximum excess of the length of a list, map or text over its minimum.
const MORE: usize = 4;

/// Formats validated by the API server, as patterns. Values are in canonical form, so that parsing and formatting keep
/// them.
const FORMATS: [(&str, &str); 14] = [
    ("date", "20[0-9]{2}-(0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8])"),
    ("date-time", "20[0-9]{2}-(0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8])T([01][0-9]|2[0-3])(:[0-5][0-9]){2}Z"),
    ("datetime", "20[0-9]{2}-(0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8])T([01][0-9]|2[0-3])(:[0-5][0-9]){2}Z"),
    ("duration", "[1-9][0-9]?(ms|s|m|h)"),
    ("byte", "([A-Za-z0-9+/]{4}){0,4}"),
    ("uuid", "[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"),
    ("uuid4", "[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"),
    ("ipv4", "10(\\.[1-9]?[0-9]){3}"),
    ("ipv6", "fd00(:[1-9a-f][0-9a-f]{0,3}){7}"),
    ("cidr", "10\\.[1-9]?[0-9]\\.0\\.0/16"),
    ("mac", "02(:[0-9a-f]{2}){5}"),
    ("email", "[a-z]{1,6}@[a-z]{1,6}\\.example"),
    ("hostname", "[a-z]([a-z0-9-]{0,6}[a-z0-9])?\\.example"),
    ("uri", "https://[a-z]{1,6}\\.example/[a-z0-9]{0,6}"),
];

pub(super) fn string(path: &str, schema: &JSONSchemaProps) -> Result<BoxedStrategy<Value>, SchemaError> {
    let (least, most) = bounds(path, schema.min_length, schema.max_length)?;
    let format = schema.format.as_deref().and_then(|format| FORMATS.iter().find(|(name, _)| *name == format));
    let texts = match (&schema.pattern, format) {
        (Some(pattern), _) => pattern::texts(path, pattern)?,
        (None, Some((_, pattern))) => pattern::texts(path, pattern)?,
        (None, None) => {
            let character = prop_oneof![8 => prop::char::range(' ', '~'), 1 => any::<char>()];
            let characters = prop::collection::vec(character, least..=most);
            return Ok(characters.prop_map(|text| Value::from(String::from_iter(text))).boxed());
        }
    };
    let lengths = (schema.min_length.unwrap_or(0), schema.max_length.unwrap_or(i64::MAX));
    let fits = move |text: &String| {
        let length = i64::try_from(text.chars().count()).unwrap_or(i64::MAX);
        (lengths.0..=lengths.1).contains(&length)
    };
    Ok(texts.prop_filter(format!("{path}: minLength, maxLength"), fits).prop_map(Value::from).boxed())
}

pub(super) fn integer(path: &str, schema: &JSONSchemaProps) -> Result<BoxedStrategy<Value>, SchemaError> {
    let (least, most) = match schema.format.as_deref() {
        Some("int32") => (i32::MIN.into(), i32::MAX.into()),
        _ => (i64::MIN, i64::MAX),
    };
    let step = schema.multiple_of.map_or(1, whole).max(1);
    let above = schema.minimum.map_or(least, |minimum| {
        let next = i64::from(schema.exclusive_minimum == Some(true) && minimum.fract() == 0.0);
        whole(minimum.ceil()).saturating_add(next).max(least)
    });
    let below = schema.maximum.map_or(most, |maximum| {
        let next = i64::from(schema.exclusive_maximum == Some(true) && maximum.fract() == 0.0);
        whole(maximum.floor()).saturating_sub(next).min(most)
    });
    let first = above.div_euclid(step) + i64::from(above.rem_euclid(step) != 0);
    let last = below.div_euclid(step);
    ensure!(first <= last, invalid(path, CONTRADICTION));
    // Small numbers are as likely as all others together.
    let small = (first.max(0.clamp(first, last)), last.min(0_i64.clamp(first, last).saturating_add(100)));
    let numbers = prop_oneof![small.0..=small.1, first..=last];
    Ok(numbers.prop_map(move |number| Value::from(number * step)).boxed())
}

/// Generates multiples of 1/64 if possible: they have a short decimal form that every parser reads exactly.
pub(super) fn number(path: &str, schema: &JSONSchemaProps) -> Result<BoxedStrategy<Value>, SchemaError> {
    let step = schema.multiple_of.unwrap_or(1.0 / 64.0);
    let (least, most) = match (schema.minimum, schema.maximum) {
        (Some(least), Some(most)) => (least, most),
        (Some(least), None) => (least, least + 1e6),
        (None, Some(most)) => (most - 1e6, most),
        (None, None) => (-1e6, 1e6),
    };
    ensure!(least <= most, invalid(path, CONTRADICTION));
    let exclusive = (schema.exclusive_minimum == Some(true), schema.exclusive_maximum == Some(true));
    let (first, last) = (whole((least / step).ceil()), whole((most / step).floor()));
    let numbers = match first <= last {
        true => (first..=last).prop_map(move |steps| steps as f64 * step).boxed(),
        false => (least..=most).boxed(),
    };
    let fits = move |number: &f64| !(exclusive.0 && *number <= least || exclusive.1 && *number >= most);
    let numbers = numbers.prop_filter(format!("{path}: exclusiveMinimum, exclusiveMaximum"), fits);
    // Go writes 5.0 as 5.
    let json = |number: f64| match number.fract() == 0.0 {
        true => Value::from(whole(number)),
        false => Value::from(number),
    };
    Ok(numbers.prop_map(json).boxed())
}

/// The cast saturates, as required for bounds beyond all integers.
fn whole(number: f64) -> i64 {
    number as i64
}

/// Minimum and maximum length of lists, maps and texts.
pub(super) fn bounds(
    path: &str,
    least: Option<i64>,
    most: Option<i64>,
) -> Result<(usize, usize), SchemaError> {
    let count = |number: i64| usize::try_from(number).unwrap_or(0);
    let least = least.map_or(0, count);
    let most = most.map_or(usize::MAX, count);
    ensure!(least <= most, invalid(path, CONTRADICTION));
    Ok((least, most.min(least.saturating_add(MORE))))
}
