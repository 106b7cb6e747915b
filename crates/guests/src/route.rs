//! Routes as `ip`(8) is told to make them.

use std::fmt::Write;

use penstock_model::InterfaceRoute;

/// The words for a route over the interface of this name, which stands there as it is given. All else is letters, digits, dots and colons.
pub fn arguments(route: &InterfaceRoute, interface: &str) -> String {
    let family = if route.is_ipv4() { "-4" } else { "-6" };
    let mut text = format!("{family} route add {route} dev {interface}");
    if let Some(metric) = route.priority {
        // Writing to a `String` cannot fail.
        let _ = write!(text, " metric {metric}");
    }
    text
}
