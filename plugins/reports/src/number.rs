//! One foreign number, whatever it was written as.

use crate::ReportError;
use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// Above this a JSON number need not be what was meant: the largest whole number up to which a
/// double counts without gaps.
pub(crate) const MAX_COUNT: u64 = 1 << 53;

/// A value as it was found. Never fails to be read, so that one bad field spoils nothing else.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) enum Scalar {
    #[default]
    Missing,
    Null,
    Unsigned(u64),
    Float(f64),
    Other,
}

/// Why a value is no count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flaw {
    Missing,
    Null,
    Negative,
    Fractional,
    TooLarge,
    NotANumber,
}

impl Flaw {
    /// The error, when the count was needed.
    pub(crate) fn at(self, rank: u32, field: &'static str) -> ReportError {
        match self {
            Self::Missing => ReportError::Missing { rank, field },
            Self::Null => ReportError::Null { rank, field },
            Self::Negative => ReportError::Negative { rank, field },
            Self::Fractional => ReportError::Fractional { rank, field },
            Self::TooLarge => ReportError::TooLarge { rank, field },
            Self::NotANumber => ReportError::NotANumber { rank, field },
        }
    }
}

impl Scalar {
    /// Reads a number in a JSON string or a Prometheus sample.
    pub(crate) fn from_text(text: &str) -> Self {
        if let Ok(number) = text.parse() {
            return Self::Unsigned(number);
        }
        text.parse().map_or(Self::Other, Self::Float)
    }

    /// A whole number from 0 to 2^53.
    pub(crate) fn count(self) -> Result<u64, Flaw> {
        match self {
            Self::Missing => Err(Flaw::Missing),
            Self::Null => Err(Flaw::Null),
            Self::Other => Err(Flaw::NotANumber),
            Self::Unsigned(number) if number <= MAX_COUNT => Ok(number),
            Self::Unsigned(_) => Err(Flaw::TooLarge),
            Self::Float(number) => whole(number),
        }
    }

    /// A count that must not be 0 to mean anything.
    pub(crate) fn capacity(self) -> Option<u64> {
        self.count().ok().filter(|&count| count != 0)
    }

    /// A number from 0 to 1.
    pub(crate) fn ratio(self) -> Option<f64> {
        let number = match self {
            Self::Unsigned(number) if number <= 1 => number as f64,
            Self::Float(number) => number,
            Self::Unsigned(_) | Self::Missing | Self::Null | Self::Other => return None,
        };
        (0.0..=1.0).contains(&number).then_some(number)
    }

    /// Was it written at all, if only as something useless?
    pub(crate) fn is_present(self) -> bool {
        self != Self::Missing
    }
}

fn whole(number: f64) -> Result<u64, Flaw> {
    if number.is_nan() {
        return Err(Flaw::NotANumber);
    }
    if number < 0.0 {
        return Err(Flaw::Negative);
    }
    if (MAX_COUNT as f64) < number {
        return Err(Flaw::TooLarge);
    }
    if number.fract() != 0.0 {
        return Err(Flaw::Fractional);
    }
    Ok(number as u64)
}

struct AnyValue;

impl<'de> Visitor<'de> for AnyValue {
    type Value = Scalar;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("any value")
    }

    fn visit_unit<E>(self) -> Result<Scalar, E> {
        Ok(Scalar::Null)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Scalar, E> {
        Ok(Scalar::Other)
    }

    fn visit_u64<E>(self, number: u64) -> Result<Scalar, E> {
        Ok(Scalar::Unsigned(number))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Scalar, E> {
        Ok(u64::try_from(number).map_or(Scalar::Float(number as f64), Scalar::Unsigned))
    }

    fn visit_f64<E>(self, number: f64) -> Result<Scalar, E> {
        Ok(Scalar::Float(number))
    }

    fn visit_str<E>(self, text: &str) -> Result<Scalar, E> {
        Ok(Scalar::from_text(text))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Scalar, A::Error> {
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Scalar::Other)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Scalar, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Scalar::Other)
    }
}

impl<'de> Deserialize<'de> for Scalar {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AnyValue)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn count(json: &str) -> Result<u64, Flaw> {
        serde_json::from_str::<Scalar>(json).unwrap().count()
    }

    #[test]
    fn whole_numbers_are_counts_however_they_are_written() {
        for json in ["3", "3.0", "3e0", "\"3\"", "\"3.0\"", "30E-1"] {
            assert_eq!(count(json), Ok(3), "{json}");
        }
        assert_eq!(count("-0.0"), Ok(0));
        assert_eq!(count("9007199254740992"), Ok(MAX_COUNT));
        assert_eq!(count("\"9007199254740992.0\""), Ok(MAX_COUNT));
    }

    #[test]
    fn every_other_value_has_its_own_flaw() {
        for (json, flaw) in [
            ("null", Flaw::Null),
            ("-1", Flaw::Negative),
            ("\"-1\"", Flaw::Negative),
            ("-9007199254740993", Flaw::Negative),
            ("2.5", Flaw::Fractional),
            ("9007199254740993", Flaw::TooLarge),
            ("\"9007199254740993\"", Flaw::TooLarge),
            ("1e300", Flaw::TooLarge),
            ("184467440737095516160", Flaw::TooLarge),
            ("\"inf\"", Flaw::TooLarge),
            ("\"-inf\"", Flaw::Negative),
            ("\"NaN\"", Flaw::NotANumber),
            ("\"\"", Flaw::NotANumber),
            ("\" 3\"", Flaw::NotANumber),
            ("\"three\"", Flaw::NotANumber),
            ("true", Flaw::NotANumber),
            ("[3]", Flaw::NotANumber),
            ("{\"a\":3}", Flaw::NotANumber),
        ] {
            assert_eq!(count(json), Err(flaw), "{json}");
        }
    }

    #[test]
    fn a_ratio_is_between_zero_and_one() {
        let ratio = |json: &str| serde_json::from_str::<Scalar>(json).unwrap().ratio();
        assert_eq!(ratio("0"), Some(0.0));
        assert_eq!(ratio("1"), Some(1.0));
        assert_eq!(ratio("\"0.25\""), Some(0.25));
        for json in ["2", "1.01", "-0.1", "null", "\"NaN\"", "true"] {
            assert_eq!(ratio(json), None, "{json}");
        }
    }
}
