//! Points in time and lengths of time as they stand in objects.

use std::{
    fmt,
    str::FromStr,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

/// A point in time in whole seconds since 1970, UTC; in JSON as RFC 3339 has it (`2026-11-25T22:15:00Z`), as in all objects of Kubernetes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct UtcTime(pub u64);

impl UtcTime {
    /// Now, by this machine's clock.
    pub fn now() -> UtcTime {
        UtcTime(SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()))
    }

    /// How long after `earlier` this is; nothing when it is before.
    pub fn since(self, earlier: UtcTime) -> Duration {
        Duration::from_secs(self.0.saturating_sub(earlier.0))
    }

    /// This much later.
    pub fn after(self, duration: Duration) -> UtcTime {
        UtcTime(self.0.saturating_add(duration.as_secs()))
    }
}

impl fmt::Display for UtcTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The last second of the year 9999 is the last that RFC 3339 can write.
        let seconds = self.0.min(253_402_300_799);
        humantime::format_rfc3339_seconds(UNIX_EPOCH + Duration::from_secs(seconds)).fmt(f)
    }
}

impl FromStr for UtcTime {
    type Err = humantime::TimestampError;

    fn from_str(text: &str) -> Result<UtcTime, humantime::TimestampError> {
        let time = humantime::parse_rfc3339(text)?;
        Ok(UtcTime(time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())))
    }
}

impl Serialize for UtcTime {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for UtcTime {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<UtcTime, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse()
            .map_err(|error| D::Error::custom(format!("{text:?} is no time as RFC 3339 has it: {error}")))
    }
}

impl JsonSchema for UtcTime {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "UtcTime".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string", "format": "date-time"})
    }
}

/// A length of time; in JSON as people write it: `90s`, `5m`, `1h 30m`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span(pub Duration);

impl Span {
    /// This many seconds.
    pub const fn seconds(seconds: u64) -> Span {
        Span(Duration::from_secs(seconds))
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        humantime::format_duration(self.0).fmt(f)
    }
}

impl Serialize for Span {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Span, D::Error> {
        let text = String::deserialize(deserializer)?;
        let parsed = humantime::parse_duration(&text);
        parsed
            .map(Span)
            .map_err(|error| D::Error::custom(format!("{text:?} is no time like 90s or 5m: {error}")))
    }
}

impl JsonSchema for Span {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Span".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string", "pattern": "^[0-9]+(s|m|h)( [0-9]+(s|m|h))*$", "maxLength": 32})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_as_they_are_read() {
        let moment: UtcTime = "2026-11-25T22:15:00Z".parse().unwrap();
        assert_eq!(moment.to_string(), "2026-11-25T22:15:00Z");
        assert_eq!(moment.after(Duration::from_secs(5)).since(moment), Duration::from_secs(5));
        assert_eq!(moment.since(moment.after(Duration::from_secs(5))), Duration::ZERO);
        let span: Span = serde_json::from_str("\"2m\"").unwrap();
        assert_eq!(span, Span::seconds(120));
        assert_eq!(serde_json::to_string(&span).unwrap(), "\"2m\"");
        assert!(
            serde_json::from_str::<Span>("\"soon\"").unwrap_err().to_string().contains("no time like 90s")
        );
        assert_eq!(UtcTime(u64::MAX).to_string(), "9999-12-31T23:59:59Z");
    }
}
