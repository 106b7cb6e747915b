//! Times as numbers of seconds in JSON, and as text for people.

use std::time::Duration;

use serde::{Deserialize, Deserializer, Serializer, de::Error};

/// Writes a time as a number of seconds.
pub(crate) fn serialize<S: Serializer>(took: &Duration, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_f64(took.as_secs_f64())
}

/// Reads a number of seconds; refuses negative ones.
pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    Duration::try_from_secs_f64(f64::deserialize(from)?).map_err(D::Error::custom)
}

/// The same, where there may be no time.
pub(crate) mod optional {
    use super::{Deserialize, Deserializer, Duration, Error, Serializer};

    /// Writes a number of seconds or `null`.
    pub(crate) fn serialize<S: Serializer>(took: &Option<Duration>, to: S) -> Result<S::Ok, S::Error> {
        match took {
            Some(took) => to.serialize_some(&took.as_secs_f64()),
            None => to.serialize_none(),
        }
    }

    /// Reads a number of seconds or `null`.
    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
        Option::<f64>::deserialize(from)?
            .map(|seconds| Duration::try_from_secs_f64(seconds).map_err(D::Error::custom))
            .transpose()
    }
}

/// A time for people: three digits that matter, never finer than a millisecond.
pub(crate) fn text(took: Duration) -> String {
    let millis = took.as_millis();
    match millis {
        0..1_000 => format!("{millis} ms"),
        1_000..10_000 => format!("{:.2} s", took.as_secs_f64()),
        10_000..60_000 => format!("{:.1} s", took.as_secs_f64()),
        60_000..3_600_000 => format!("{} min {:02} s", millis / 60_000, millis / 1_000 % 60),
        _ => format!("{} h {:02} min", millis / 3_600_000, millis / 60_000 % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_has_three_digits_that_matter() {
        let of = |millis| text(Duration::from_millis(millis));
        assert_eq!(of(0), "0 ms");
        assert_eq!(of(412), "412 ms");
        assert_eq!(of(1_234), "1.23 s");
        assert_eq!(of(12_345), "12.3 s");
        assert_eq!(of(125_000), "2 min 05 s");
        assert_eq!(of(3_725_000), "1 h 02 min");
    }
}
