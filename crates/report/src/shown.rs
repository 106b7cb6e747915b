//! Numbers for people: three digits that matter, a unit that fits, and a mark on every absolute value of an emulated board.

use penstock_model::measurement::{Estimate, Unit};

/// What stands after every absolute value that an emulated board gave.
const EMULATED: &str = "†";

/// How numbers are shown.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shown {
    mark: &'static str,
}

/// A unit of a size that suits a value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Scaled {
    /// What a value is divided by.
    pub factor: f64,
    /// What it is called then.
    pub unit: &'static str,
}

impl Shown {
    /// `emulated`: whether absolute values are marked.
    pub(crate) fn new(emulated: bool) -> Shown {
        Shown { mark: if emulated { EMULATED } else { "" } }
    }

    /// The mark, or nothing.
    pub(crate) fn mark(self) -> &'static str {
        self.mark
    }

    /// An absolute value with its unit: `2.87 Gbit/s`.
    pub(crate) fn value(self, value: f64, unit: Unit) -> String {
        let scaled = scaled(unit, value);
        self.marked(&with_unit(number(value / scaled.factor), scaled.unit))
    }

    /// An absolute value with its interval: `2.87 [2.80, 2.95] Gbit/s`.
    pub(crate) fn estimate(self, estimate: &Estimate, unit: Unit) -> String {
        let scaled = scaled(unit, estimate.value());
        self.marked(&with_unit(interval(estimate, scaled.factor), scaled.unit))
    }

    /// A number whose unit stands elsewhere.
    pub(crate) fn bare(self, value: f64, scaled: Scaled) -> String {
        self.marked(&number(value / scaled.factor))
    }

    fn marked(self, text: &str) -> String {
        format!("{text}{}", self.mark)
    }
}

fn with_unit(number: String, unit: &str) -> String {
    if unit.is_empty() { number } else { format!("{number} {unit}") }
}

/// The unit that leaves a value of this size between 1 and 1000 where there is one.
pub(crate) fn scaled(unit: Unit, value: f64) -> Scaled {
    let sizes: &[(f64, &'static str)] = match unit {
        Unit::BitPerSecond => {
            &[(1e12, "Tbit/s"), (1e9, "Gbit/s"), (1e6, "Mbit/s"), (1e3, "kbit/s"), (1.0, "bit/s")]
        }
        Unit::BytePerSecond => &[(1e9, "GB/s"), (1e6, "MB/s"), (1e3, "kB/s"), (1.0, "B/s")],
        Unit::PerSecond => &[(1e6, "M/s"), (1e3, "k/s"), (1.0, "/s")],
        Unit::Microseconds => &[(1e6, "s"), (1e3, "ms"), (1.0, "µs"), (1e-3, "ns")],
        Unit::Percent => &[(1.0, "%")],
        Unit::Fraction => &[(0.01, "%")],
        Unit::SecondsPerGigabit => &[(1.0, "s/Gbit"), (1e-3, "ms/Gbit")],
        Unit::InstructionsPerFrame => &[(1e3, "kinsn/frame"), (1.0, "insn/frame")],
    };
    let size = value.abs();
    let fits = sizes.iter().find(|(factor, _)| size >= *factor * 0.9995);
    // 0 is shown in the plain unit, and what is too small in the smallest.
    let plain = sizes.iter().rev().find(|(factor, _)| *factor >= 1.0).or(sizes.last());
    let (factor, unit) = fits.or(if size > 0.0 { sizes.last() } else { plain }).copied().unwrap_or((1.0, ""));
    Scaled { factor, unit }
}

/// A ratio with its interval: `1.21 [1.10, 1.34]`.
pub(crate) fn ratio(estimate: &Estimate) -> String {
    let digits = digits(estimate.value()).clamp(0, if estimate.value().abs() >= 0.1 { 2 } else { 4 });
    format!(
        "{} [{}, {}]",
        fixed(estimate.value(), digits),
        fixed(estimate.low(), digits),
        fixed(estimate.high(), digits)
    )
}

/// A penalty in percent with its sign, and its interval: `+12.3 %` and `[8.1, 16.0]`.
pub(crate) fn penalty(estimate: &Estimate) -> (String, String) {
    let digits = if estimate.value().abs() < 100.0 { 1 } else { 0 };
    let signed = |value: f64| sign(value, digits);
    let plain = |value: f64| signed(value).trim_start_matches('+').to_owned();
    (
        format!("{} %", signed(estimate.value())),
        format!("[{}, {}]", plain(estimate.low()), plain(estimate.high())),
    )
}

fn sign(value: f64, digits: usize) -> String {
    if value.abs() >= 1e7 {
        return format!("{value:+.1e}").replace('-', "−");
    }
    let text = format!("{value:+.digits$}");
    // Neither +0.0 nor -0.0: that is no difference.
    if text.chars().all(|c| matches!(c, '+' | '-' | '0' | '.')) {
        return text[1..].to_owned();
    }
    text.replace('-', "−")
}

fn interval(estimate: &Estimate, factor: f64) -> String {
    let digits = digits(estimate.value() / factor);
    let number = |value: f64| fixed(value / factor, digits);
    format!("{} [{}, {}]", number(estimate.value()), number(estimate.low()), number(estimate.high()))
}

/// Three digits that matter, and never less than a whole one: `0.042`, `3.14`, `271`, `31,416`.
pub(crate) fn number(value: f64) -> String {
    fixed(value, digits(value))
}

/// The same without zeros at its end: what people wrote, not what was measured.
pub(crate) fn trimmed(value: f64) -> String {
    let text = number(value);
    match text.contains('.') && !text.contains('e') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

fn digits(value: f64) -> usize {
    match value.abs() {
        v if v >= 99.95 => 0,
        v if v >= 9.995 => 1,
        v if v >= 0.9995 || v == 0.0 => 2,
        v if v >= 0.1 => 3,
        _ => 4,
    }
}

fn fixed(value: f64, digits: usize) -> String {
    if value.is_nan() {
        return "no number".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "∞".to_owned() } else { "−∞".to_owned() };
    }
    if value.abs() >= 1e9 {
        return format!("{value:.2e}");
    }
    if value == 0.0 {
        return "0".to_owned();
    }
    let text = format!("{value:.digits$}").replace('-', "−");
    let (whole, rest) =
        text.split_once('.').map_or((text.as_str(), None), |(whole, rest)| (whole, Some(rest)));
    let whole = grouped(whole);
    rest.map_or(whole.clone(), |rest| format!("{whole}.{rest}"))
}

/// Digits in groups of three.
fn grouped(digits: &str) -> String {
    let (sign, digits) = digits.strip_prefix('−').map_or(("", digits), |rest| ("−", rest));
    let mut grouped = String::from(sign);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place) % 3 == 0 {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// A count: `10,000`.
pub(crate) fn count(count: impl TryInto<u64>) -> String {
    count.try_into().map_or_else(|_| "many".to_owned(), |count| grouped(&count.to_string()))
}

/// A count of things: `1 cell`, `2,000 cells`.
pub(crate) fn many(number: usize, one: &str) -> String {
    format!("{} {one}{}", count(number as u64), if number == 1 { "" } else { "s" })
}

/// A size in bytes: `128 B`, `16 KiB`.
pub(crate) fn bytes(size: u32) -> String {
    match size {
        s if s >= 1 << 20 && s.is_multiple_of(1 << 20) => format!("{} MiB", s >> 20),
        s if s >= 1 << 10 && s.is_multiple_of(1 << 10) => format!("{} KiB", s >> 10),
        s => format!("{s} B"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits_that_matter() {
        for (value, text) in [
            (0.0, "0"),
            (0.00421, "0.0042"),
            (0.421, "0.421"),
            (3.15159, "3.15"),
            (27.18, "27.2"),
            (99.96, "100"),
            (412.3, "412"),
            (31_415.9, "31,416"),
            (-12.34, "−12.3"),
            (f64::NAN, "no number"),
            (f64::INFINITY, "∞"),
            (1e300, "1.00e300"),
        ] {
            assert_eq!(number(value), text);
        }
    }

    #[test]
    fn values_have_a_unit_that_fits_and_a_mark_where_they_are_emulated() {
        let (real, emulated) = (Shown::new(false), Shown::new(true));
        assert_eq!(real.value(2.874e9, Unit::BitPerSecond), "2.87 Gbit/s");
        assert_eq!(emulated.value(236.0, Unit::Microseconds), "236 µs†");
        assert_eq!(real.value(0.012, Unit::Fraction), "1.20 %");
        assert_eq!(real.value(0.0, Unit::Microseconds), "0 µs");
        assert_eq!(real.value(0.0, Unit::Fraction), "0 %");
        let estimate = Estimate::new(2.87e9, 2.8e9, 2.95e9, 0.95).unwrap();
        assert_eq!(emulated.estimate(&estimate, Unit::BitPerSecond), "2.87 [2.80, 2.95] Gbit/s†");
    }

    #[test]
    fn penalties_have_a_sign() {
        let estimate = |value, low, high| Estimate::new(value, low, high, 0.95).unwrap();
        assert_eq!(penalty(&estimate(12.34, 8.12, 16.0)), ("+12.3 %".into(), "[8.1, 16.0]".into()));
        assert_eq!(penalty(&estimate(-0.01, -3.0, 2.0)), ("0.0 %".into(), "[−3.0, 2.0]".into()));
        assert_eq!(ratio(&estimate(1.21, 1.1, 1.34)), "1.21 [1.10, 1.34]");
    }

    #[test]
    fn sizes_and_counts() {
        assert_eq!(
            (bytes(128), bytes(16384), bytes(1500)),
            ("128 B".into(), "16 KiB".into(), "1500 B".into())
        );
        assert_eq!(
            (count(1_234_567u64), many(1, "cell"), many(2000, "cell")),
            ("1,234,567".into(), "1 cell".into(), "2,000 cells".into())
        );
    }
}
