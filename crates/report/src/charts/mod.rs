//! Charts as data: where each line, mark and label goes. The templates (`charts.html`, `heat.html`) only draw.
//!
//! They know nothing of measurements, so that the report of one run and the comparison of two draw with the same ones.

pub(crate) mod ccdf;
pub(crate) mod heat_map;
pub(crate) mod histogram;
pub(crate) mod line_chart;
pub(crate) mod log_chart;
pub(crate) mod plot;
pub(crate) mod scale;
pub(crate) mod wake_ups;

pub(crate) use heat_map::{HeatCell, HeatColumn, HeatMap, HeatRow, Warmth};
pub(crate) use plot::{COLOURS, Key, Plot, Style};
