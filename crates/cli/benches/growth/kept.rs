//! All samples, with the date, the commit, the machine and the command that they belong to.

use std::time::SystemTime;

use penstock_testkit::samples::{self, SampleRow};
use serde_json::{Value, json};

use super::{choice::Axis, curve::Curve};

/// The file's name in `bench/samples/`.
const NAME: &str = "growth";

/// Keeps the curves of the kinds of size that were measured; those of the others stay.
pub fn keep(curves: &[Curve], words: &[String]) {
    let row = |curve: &Curve| SampleRow {
        group: curve.axis.name().to_owned(),
        row: json!({
            "what": curve.subject, "quantity": curve.quantity, "unit": curve.quantity.unit(), "points": curve.points,
        }),
    };
    let what = if words.is_empty() { String::new() } else { format!(" what=\"{}\"", words.join(" ")) };
    let date = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
    let measured = samples::provenance(&date, &format!("make bench-growth{what}"));
    let path =
        samples::keep(NAME, &measured, curves.iter().map(row).collect()).expect("the samples are kept");
    println!("\nraw samples: {}", path.display());
}

/// The curves that are kept, by kinds of size as [`Axis`] has them.
pub fn read() -> Vec<Curve> {
    let rows = samples::read(NAME).expect("the samples can be read");
    let curve = |curve: &Value| Curve {
        axis: curve["group"].as_str().and_then(Axis::of).expect("a kind of size"),
        subject: curve["what"].as_str().expect("a name").to_owned(),
        quantity: serde_json::from_value(curve["quantity"].clone()).expect("a quantity"),
        points: serde_json::from_value(curve["points"].clone()).expect("samples"),
    };
    let mut curves: Vec<Curve> = rows.iter().map(curve).collect();
    assert!(!curves.is_empty(), "nothing is kept yet: `make bench-growth` measures it");
    curves.sort_by_key(|curve| curve.axis);
    curves
}
