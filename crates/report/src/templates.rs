//! The templates, which are part of the binary: a page is the same wherever it is made.

use std::sync::LazyLock;

use minijinja::{AutoEscape, Environment, UndefinedBehavior, Value, value::Serde};
use serde::Serialize;

/// Pages, their sections, and what they stand in.
const TEMPLATES: [(&str, &str); 29] = [
    ("head.html", include_str!("../templates/head.html")),
    ("page.html", include_str!("../templates/page.html")),
    ("style.css", include_str!("../templates/style.css")),
    ("verdict.html", include_str!("../templates/verdict.html")),
    ("machine.html", include_str!("../templates/machine.html")),
    ("picture.html", include_str!("../templates/picture.html")),
    ("attributes.html", include_str!("../templates/attributes.html")),
    ("reachability.html", include_str!("../templates/reachability.html")),
    ("measurements.html", include_str!("../templates/measurements.html")),
    ("measurements.css", include_str!("../templates/measurements.css")),
    ("lines.css", include_str!("../templates/lines.css")),
    ("drawing.css", include_str!("../templates/drawing.css")),
    ("drawing.svg", include_str!("../templates/drawing.svg")),
    ("rulings.html", include_str!("../templates/rulings.html")),
    ("ruling_list.html", include_str!("../templates/ruling_list.html")),
    ("real_time.html", include_str!("../templates/real_time.html")),
    ("real_time.css", include_str!("../templates/real_time.css")),
    ("audit.html", include_str!("../templates/audit.html")),
    ("heat.html", include_str!("../templates/heat.html")),
    ("charts.html", include_str!("../templates/charts.html")),
    ("latency.html", include_str!("../templates/latency.html")),
    ("penalties.html", include_str!("../templates/penalties.html")),
    ("published.html", include_str!("../templates/published.html")),
    ("cells.html", include_str!("../templates/cells.html")),
    ("measured_when.html", include_str!("../templates/measured_when.html")),
    ("course.html", include_str!("../templates/course.html")),
    ("origin.html", include_str!("../templates/origin.html")),
    ("compare.html", include_str!("../templates/compare.html")),
    ("rteval.xml", include_str!("../templates/rteval.xml")),
];

static ENVIRONMENT: LazyLock<Environment<'static>> = LazyLock::new(|| {
    let mut environment = Environment::new();
    environment.set_auto_escape_callback(|_| AutoEscape::Html);
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    for (name, source) in TEMPLATES {
        environment
            .add_template(name, source)
            .expect("the templates are part of the binary, and every test parses them");
    }
    environment
});

/// Renders the template of this name. Everything is escaped.
///
/// # Panics
/// When the template names a field that `fields` has not: tests render every template.
pub(crate) fn render(name: &str, fields: &impl Serialize) -> String {
    ENVIRONMENT
        .get_template(name)
        .and_then(|template| template.render(Value::from(Serde(fields))))
        .expect("the fields are those that the templates name; a property test renders arbitrary evidence")
}
