//! From values to places on an axis, and the ticks of it.

/// How values are spread over an axis.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Spread {
    /// Evenly: equal differences are equally long.
    Linear,
    /// By powers of ten.
    Decades,
    /// By powers of two.
    Doublings,
}

/// From values to places on an axis, in pixels.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scale {
    spread: Spread,
    from: f64,
    to: f64,
    start: f64,
    end: f64,
}

/// A line across the chart with a number at its end.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Tick {
    /// The value that it marks, in the axis's unit.
    pub value: f64,
    /// Its place in pixels.
    pub at: f64,
}

/// No axis has more ticks than about this.
const TICKS: f64 = 6.0;

impl Scale {
    /// From 0 to a round number that `most` does not pass, so that a bar twice as long is twice as much.
    pub(crate) fn from_zero(most: f64, start: f64, end: f64) -> Scale {
        let step = step(most);
        let to = (most / step).ceil().max(1.0) * step;
        Scale { spread: Spread::Linear, from: 0.0, to: sound(to), start, end }
    }

    /// From `from` to `to`, which is made greater where it is not.
    pub(crate) fn new(spread: Spread, from: f64, to: f64, start: f64, end: f64) -> Scale {
        // Within these no power overflows, and no unit of time or rate comes near them.
        let within = |value: f64, otherwise: f64| {
            if value.is_finite() { value.clamp(-1e100, 1e100) } else { otherwise }
        };
        let least = if spread == Spread::Linear { f64::NEG_INFINITY } else { 1e-100 };
        let from = within(from, 0.0).max(least);
        let to = within(to, from);
        let to = if to > from { to } else { from + (from.abs() * 0.5).max(1e-9) };
        Scale { spread, from, to, start, end }
    }

    /// The place of a value; what lies outside is moved to the nearer end.
    pub(crate) fn at(&self, value: f64) -> f64 {
        let (value, from, to) = (self.spread(value), self.spread(self.from), self.spread(self.to));
        let part = ((value - from) / (to - from)).clamp(0.0, 1.0);
        let part = if part.is_nan() { 0.0 } else { part };
        self.start + part * (self.end - self.start)
    }

    fn spread(&self, value: f64) -> f64 {
        match self.spread {
            Spread::Linear => value,
            Spread::Decades => value.max(f64::MIN_POSITIVE).log10(),
            Spread::Doublings => value.max(f64::MIN_POSITIVE).log2(),
        }
    }

    /// Round values inside, from the least.
    pub(crate) fn ticks(&self) -> Vec<Tick> {
        let values: Vec<f64> = match self.spread {
            Spread::Linear => {
                let step = step(self.to - self.from);
                let first = (self.from / step).ceil() as i64;
                (0..=TICKS as i64 * 2).map(|n| (first.saturating_add(n)) as f64 * step).collect()
            }
            Spread::Decades => {
                let (low, high) = (self.from.log10().floor() as i32, self.to.log10().ceil() as i32);
                let every = ((high - low) as f64 / TICKS).ceil().max(1.0) as usize;
                let between: &[f64] = if high - low <= 3 { &[1.0, 2.0, 5.0] } else { &[1.0] };
                (low..=high)
                    .step_by(every)
                    .flat_map(|power| between.iter().map(move |digit| digit * 10f64.powi(power)))
                    .collect()
            }
            Spread::Doublings => {
                let (low, high) = (self.from.log2().round() as i32, self.to.log2().round() as i32);
                let every = ((high - low) as f64 / (TICKS + 2.0)).ceil().max(1.0) as usize;
                (low..=high).step_by(every).map(|power| f64::from(power).exp2()).collect()
            }
        };
        // A little over the end is a rounding error of the end itself.
        let slack = 1.0 + 1e-9;
        let inside = |value: &f64| *value * slack >= self.from && *value <= self.to * slack;
        values.into_iter().filter(inside).map(|value| Tick { value, at: self.at(value) }).collect()
    }
}

/// A count in few characters: `1`, `20`, `5k`, `1M`.
pub(crate) fn counted(count: f64) -> String {
    let (factor, letter) = match count {
        c if c >= 1e12 => (1e12, "T"),
        c if c >= 1e9 => (1e9, "G"),
        c if c >= 1e6 => (1e6, "M"),
        c if c >= 1e3 => (1e3, "k"),
        _ => (1.0, ""),
    };
    format!("{:.0}{letter}", count / factor)
}

/// A round step of which a handful make up `span`.
fn step(span: f64) -> f64 {
    let rough = sound(span) / TICKS;
    let power = 10f64.powf(rough.log10().floor());
    let round = [1.0, 2.0, 2.5, 5.0, 10.0].into_iter().find(|digit| digit * power >= rough * 0.999);
    round.unwrap_or(10.0) * power
}

/// A length that something can be divided by.
fn sound(length: f64) -> f64 {
    if length.is_finite() && length > 1e-100 { length.min(1e100) } else { 1.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(scale: &Scale) -> Vec<f64> {
        scale.ticks().into_iter().map(|tick| tick.value).collect()
    }

    #[test]
    fn an_axis_from_zero_ends_at_a_round_number() {
        let scale = Scale::from_zero(9_412.0, 300.0, 0.0);
        assert_eq!(values(&scale), [0.0, 2_000.0, 4_000.0, 6_000.0, 8_000.0, 10_000.0]);
        assert_eq!((scale.at(0.0), scale.at(10_000.0), scale.at(5_000.0)), (300.0, 0.0, 150.0));
        assert_eq!(scale.at(f64::NAN), 300.0);
        assert_eq!(values(&Scale::from_zero(1.21, 0.0, 1.0)).len(), 6);
    }

    #[test]
    fn powers_have_their_own_ticks() {
        let sizes = Scale::new(Spread::Doublings, 128.0, 16384.0, 0.0, 70.0);
        assert_eq!(values(&sizes), [128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0, 8192.0, 16384.0]);
        assert!((sizes.at(256.0) - 10.0).abs() < 1e-9);
        let decades = Scale::new(Spread::Decades, 1.0, 1e6, 0.0, 6.0);
        assert_eq!(values(&decades).len(), 7);
        assert_eq!(values(&Scale::new(Spread::Decades, 10.0, 100.0, 0.0, 1.0)), [10.0, 20.0, 50.0, 100.0]);
    }

    #[test]
    fn no_number_breaks_an_axis() {
        for from in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e-320, 1e308] {
            for to in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e-320, 1e308] {
                for spread in [Spread::Linear, Spread::Decades, Spread::Doublings] {
                    let scale = Scale::new(spread, from, to, 0.0, 100.0);
                    assert!(scale.ticks().len() < 30, "{from} {to} {spread:?}");
                    assert!((0.0..=100.0).contains(&scale.at(5.0)), "{from} {to} {spread:?}");
                }
                let scale = Scale::from_zero(to, 100.0, 0.0);
                assert!((0.0..=100.0).contains(&scale.at(from)) && scale.ticks().len() < 30);
            }
        }
    }
}
