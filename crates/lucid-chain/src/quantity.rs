//! Resource quantities with the semantics of the API server.

use std::{fmt, ops::Add, str::FromStr};

use lucid_text::Excerpt;
use serde_json::Value;

use crate::error::Error;

/// A [Kubernetes quantity](https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/) such as
/// `100m`, `0.5`, `256Mi` or `1e3`, in thousandths.
///
/// Spellings of the same quantity compare equal, because the API server stores a normalized one (`1000m` becomes
/// `1`). Finer values are rounded up to thousandths, as in the API server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Quantity(u128);

impl Quantity {
    pub(crate) const ZERO: Self = Self(0);
    pub(crate) const ONE: Self = Self(1000);

    /// Returns half of this quantity, rounded down to thousandths.
    pub(crate) fn half(self) -> Self {
        Self(self.0 / 2)
    }

    pub(crate) fn is_multiple_of(self, unit: Self) -> bool {
        self.0.is_multiple_of(unit.0)
    }

    pub(crate) fn from_json(value: &Value) -> Option<Self> {
        match value {
            Value::String(text) => Self::parse(text),
            Value::Number(number) => Self::parse(&number.to_string()),
            _ => None,
        }
    }

    /// Parses a quantity; `None` if the text is malformed, negative or out of range.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let unsigned = text.strip_prefix('+').unwrap_or(text);
        let end = unsigned.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(unsigned.len());
        let (number, suffix) = unsigned.split_at(end);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
            return None;
        }
        let digits = format!("{whole}{fraction}").parse::<u128>().ok()?;
        let fraction_digits = i32::try_from(fraction.len()).ok()?;
        let (factor, exponent) = scale(suffix)?;
        // Three more decimal places, for thousandths.
        let exponent = exponent + 3 - fraction_digits;
        let scaled = digits.checked_mul(factor)?;
        let power = 10_u128.checked_pow(exponent.unsigned_abs());
        match (exponent.is_negative(), power) {
            _ if scaled == 0 => Some(Self(0)),
            (false, Some(power)) => scaled.checked_mul(power).map(Self),
            (true, Some(power)) => Some(Self(scaled.div_ceil(power))),
            (true, None) => Some(Self(1)),
            (false, None) => None,
        }
    }
}

/// Parses a quantity that is neither negative nor out of range.
impl FromStr for Quantity {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        Self::parse(text).ok_or_else(|| Error::new(format!("expected a quantity, found {}", Excerpt(text))))
    }
}

/// Saturates at the largest quantity.
impl Add for Quantity {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

/// Returns the number of thousandths.
impl From<Quantity> for u128 {
    fn from(quantity: Quantity) -> Self {
        quantity.0
    }
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Only quantities of bytes are that large.
        let units = [(30, "Gi"), (20, "Mi")].map(|(power, unit)| (1000_u128 << power, unit));
        match units.into_iter().find(|(size, _)| self.0 > 0 && self.0.is_multiple_of(*size)) {
            Some((size, unit)) => write!(f, "{}{unit}", self.0 / size),
            None if self.is_multiple_of(Self::ONE) => write!(f, "{}", self.0 / 1000),
            None => write!(f, "{}m", self.0),
        }
    }
}

/// Returns the factor and the power of ten that a suffix denotes.
fn scale(suffix: &str) -> Option<(u128, i32)> {
    let binary = |power: u32| Some((1024_u128.pow(power), 0));
    match suffix {
        "" => Some((1, 0)),
        "n" => Some((1, -9)),
        "u" => Some((1, -6)),
        "m" => Some((1, -3)),
        "k" => Some((1, 3)),
        "M" => Some((1, 6)),
        "G" => Some((1, 9)),
        "T" => Some((1, 12)),
        "P" => Some((1, 15)),
        "E" => Some((1, 18)),
        "Ki" => binary(1),
        "Mi" => binary(2),
        "Gi" => binary(3),
        "Ti" => binary(4),
        "Pi" => binary(5),
        "Ei" => binary(6),
        _ => {
            let exponent: i32 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
            (-18..=18).contains(&exponent).then_some((1, exponent))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings_of_one_quantity_are_equal() {
        let cases = [
            ("1", "1000m"),
            ("0.5", "500m"),
            (".5", "500m"),
            ("1.", "1"),
            ("+2", "2"),
            ("1Gi", "1024Mi"),
            ("1.5Gi", "1536Mi"),
            ("1e3", "1k"),
            ("12E2", "1200"),
            ("1E", "1000P"),
            ("1n", "1m"),
            ("1500u", "2m"),
            ("0Ei", "0"),
        ];
        for (left, right) in cases {
            assert_eq!(Quantity::parse(left), Quantity::parse(right), "{left} {right}");
            assert!(Quantity::parse(left).is_some(), "{left}");
        }
    }

    #[test]
    fn display_round_trips() {
        for (text, shown) in [
            ("0", "0"),
            ("1.5", "1500m"),
            ("2", "2"),
            ("1Ki", "1024"),
            ("1n", "1m"),
            ("1536Mi", "1536Mi"),
            ("2048Mi", "2Gi"),
        ] {
            let quantity = Quantity::parse(text).unwrap();
            assert_eq!(quantity.to_string(), shown);
            assert_eq!(Quantity::parse(shown), Some(quantity));
        }
    }

    #[test]
    fn quantities_are_ordered_by_size() {
        let sizes = ["0", "1n", "2m", "100m", "1", "128Mi", "256Mi", "1G", "1Gi"];
        assert!(sizes.windows(2).all(|pair| Quantity::parse(pair[0]) < Quantity::parse(pair[1])));
    }

    #[test]
    fn malformed_quantities_are_rejected() {
        let huge = format!("0.{}", "0".repeat(400));
        for text in ["", ".", "-1", "1.2.3", "1 Gi", "12mb", "1KI", "1e", "1e99", "Mi", "½", "９", "1e+-3"]
        {
            assert_eq!(Quantity::parse(text), None, "{text}");
        }
        assert_eq!(Quantity::parse(&huge), Some(Quantity(0)));
        assert_eq!(Quantity::parse(&"9".repeat(40)), None);
        assert_eq!(Quantity::parse("99999999999999999999999999999999999E"), None);
    }
}
