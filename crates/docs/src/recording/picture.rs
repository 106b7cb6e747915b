//! Draws a recording as an SVG that moves by its style sheet alone.
//!
//! It is played once and stays at its end. That is also what is seen where nothing moves: on paper, in programs that know no animations, and by
//! readers who ask for less motion (`prefers-reduced-motion`). A text that is there for good is hidden until it appears; one that goes again is
//! shown from when to when.

use std::fmt::Write as _;

use super::{
    Recording, RecordingError,
    timeline::{self, Piece, TICKS, Timeline},
};

/// Of a letter, in pixels: most fonts of one width have letters of 0.6 times their size.
const SIZE: usize = 14;
const COLUMN: f64 = 8.4;
const LINE: usize = 19;
/// From the top of a line to the foot of its letters.
const FOOT: usize = 14;
const MARGIN: usize = 14;

/// From how many letters on a text is told how wide it is, so that a font with other widths moves nothing out of its column.
const LONG: usize = 10;

const BACKGROUND: &str = "#161b22";
const TEXT: &str = "#e6edf3";

/// How much of its colour a faint text has.
const FAINT: f64 = 0.8;

/// The 16 colours of the terminal on its background; each is readable there (WCAG 2.2, 4.5 : 1), also when it is faint.
const COLORS: [&str; 16] = [
    "#a9b1bb", "#ff8f85", "#56d364", "#e3b341", "#79c0ff", "#d2a8ff", "#56d4dd", "#e6edf3", "#a9b1bb",
    "#ffa198", "#6fdd8b", "#f2cc60", "#a5d6ff", "#e2c5ff", "#76e3ea", "#ffffff",
];

/// Its width and height in pixels.
pub fn size(recording: &Recording) -> (usize, usize) {
    let width = f64::ceil(recording.columns as f64 * COLUMN) as usize;
    (width + 2 * MARGIN, recording.rows * LINE + 2 * MARGIN)
}

/// The SVG, as a file of its own. `title` says what it is, to those who do not see it; they are told the whole text too.
///
/// # Errors
///
/// As [`timeline::of`].
pub fn draw(recording: &Recording, title: &str) -> Result<String, RecordingError> {
    let timeline = timeline::of(recording)?;
    let (all_width, all_height) = size(recording);
    let (width, height) = (all_width - 2 * MARGIN, all_height - 2 * MARGIN);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"terminal\" viewBox=\"0 0 {all_width} {all_height}\" width=\"{all_width}\" \
         height=\"{all_height}\" role=\"img\" aria-labelledby=\"terminal-title terminal-text\">\n<title id=\"terminal-title\">{}</title>\n\
         <desc id=\"terminal-text\">{}</desc>\n<style>\n{}</style>\n",
        escaped(title),
        escaped(&recording.transcript()),
        style(&timeline)
    );
    let _ = writeln!(
        svg,
        "<rect width=\"{all_width}\" height=\"{all_height}\" rx=\"8\" fill=\"{BACKGROUND}\"/>\n<svg x=\"{MARGIN}\" y=\"{MARGIN}\" \
         width=\"{width}\" height=\"{height}\" aria-hidden=\"true\">\n<g class=\"s\">"
    );
    for piece in &timeline.pieces {
        text(&mut svg, piece);
    }
    svg += "</g>\n</svg>\n</svg>\n";
    Ok(svg)
}

/// For how long it moves, in seconds.
fn seconds(ticks: u32) -> String {
    let text = format!("{:.2}", f64::from(ticks) / f64::from(TICKS));
    format!("{}s", text.trim_end_matches('0').trim_end_matches('.'))
}

fn style(timeline: &Timeline) -> String {
    let fonts = "ui-monospace, SFMono-Regular, Menlo, 'DejaVu Sans Mono', 'Cascadia Mono', Consolas, 'Liberation Mono', monospace";
    let mut css = format!(
        ".terminal text {{ font: {SIZE}px {fonts}; white-space: pre; fill: {TEXT} }}\n\
         .terminal .b {{ font-weight: 700 }}\n\
         .terminal .f {{ fill-opacity: {FAINT} }}\n"
    );
    let used =
        |color: usize| timeline.pieces.iter().any(|piece| piece.style.color.map(usize::from) == Some(color));
    for (at, color) in COLORS.iter().enumerate().filter(|(at, _)| used(*at)) {
        let _ = writeln!(css, ".terminal .c{at} {{ fill: {color} }}");
    }
    // Shown from `--a` on, for `--d`; hidden until `--a`.
    css += ".terminal .m { visibility: hidden; animation: m var(--d) var(--a) }\n\
            .terminal .e { animation: e var(--a) }\n\
            @keyframes m { from, to { visibility: visible } }\n\
            @keyframes e { from, to { visibility: hidden } }\n";
    let last = timeline.scrolled.last().map_or(0, |(_, first)| *first);
    if last > 0 {
        let end = timeline.end.max(1);
        let _ = writeln!(
            css,
            ".terminal .s {{ transform: translateY(-{}px); animation: s {} step-end }}\n@keyframes s {{",
            last * LINE,
            seconds(end)
        );
        for (tick, first) in &timeline.scrolled {
            let share = f64::from(*tick) * 100.0 / f64::from(end);
            let _ = writeln!(css, "  {share:.3}% {{ transform: translateY(-{}px) }}", first * LINE);
        }
        css += "}\n";
    }
    css + "@media (prefers-reduced-motion: reduce), print { .terminal :is(.m, .e, .s) { animation: none } }\n"
}

fn text(svg: &mut String, piece: &Piece) {
    let mut class = if piece.until.is_some() { "m".to_owned() } else { "e".to_owned() };
    if piece.style.bold {
        class += " b";
    }
    if piece.style.faint {
        class += " f";
    }
    if let Some(color) = piece.style.color {
        let _ = write!(class, " c{color}");
    }
    let mut times = format!("--a:{}", seconds(piece.from));
    if let Some(until) = piece.until {
        let _ = write!(times, ";--d:{}", seconds(until - piece.from));
    }
    let (x, y) = (pixels(piece.column), piece.line * LINE + FOOT);
    let letters = piece.text.chars().count();
    let wide = match letters >= LONG {
        true => format!(" textLength=\"{}\" lengthAdjust=\"spacingAndGlyphs\"", pixels(letters)),
        false => String::new(),
    };
    let _ = writeln!(
        svg,
        "<text class=\"{class}\" style=\"{times}\" x=\"{x}\" y=\"{y}\"{wide}>{}</text>",
        escaped(&piece.text)
    );
}

/// So many columns in pixels.
fn pixels(columns: usize) -> String {
    let text = format!("{:.1}", columns as f64 * COLUMN);
    text.strip_suffix(".0").unwrap_or(&text).to_owned()
}

/// For the inside of an element or of an attribute between double quotes.
pub fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::{BACKGROUND, COLORS, FAINT, TEXT, draw};
    use crate::recording::{Recording, TerminalOutput};

    fn drawn(rows: usize, outputs: &[(f64, &str)]) -> String {
        let outputs = outputs.iter().map(|(at, text)| TerminalOutput { at: *at, text: (*text).to_owned() });
        draw(&Recording { columns: 40, rows, outputs: outputs.collect() }, "A <session>").unwrap()
    }

    /// The three parts of `#rrggbb`, from 0 to 1.
    fn parts(color: &str) -> [f64; 3] {
        [1, 3, 5].map(|at| f64::from(u8::from_str_radix(&color[at..at + 2], 16).unwrap()) / 255.0)
    }

    /// The contrast of WCAG 2.2, of a colour on the background.
    fn contrast(color: [f64; 3]) -> f64 {
        let light = |color: [f64; 3]| {
            let linear = color
                .map(|part| if part <= 0.04045 { part / 12.92 } else { ((part + 0.055) / 1.055).powf(2.4) });
            0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2] + 0.05
        };
        light(color) / light(parts(BACKGROUND))
    }

    #[test]
    fn every_colour_can_be_read_also_when_it_is_faint() {
        for color in COLORS.into_iter().chain([TEXT]) {
            let faint = [0, 1, 2].map(|at| FAINT * parts(color)[at] + (1.0 - FAINT) * parts(BACKGROUND)[at]);
            assert!(contrast(parts(color)) >= 4.5 && contrast(faint) >= 4.5, "{color}: {}", contrast(faint));
        }
    }

    #[test]
    fn what_goes_again_is_hidden_where_nothing_moves_and_what_stays_is_seen() {
        let svg = drawn(3, &[(1.0, "\x1b[2mwait & see\x1b[0m"), (2.5, "\r\x1b[2K\x1b[33mdone\x1b[0m\r\n")]);
        assert!(svg.contains(
            "<text class=\"m f\" style=\"--a:1s;--d:1.5s\" x=\"0\" y=\"14\" textLength=\"84\" lengthAdjust=\"spacingAndGlyphs\">\
             wait &amp; see</text>\n<text class=\"e c3\" style=\"--a:2.5s\" x=\"0\" y=\"14\">done</text>\n"
        ), "{svg}");
        assert!(svg.contains(".terminal .m { visibility: hidden; animation: "), "{svg}");
        assert!(svg.contains(".terminal .c3 { fill: #e3b341 }\n") && !svg.contains(".c4"), "{svg}");
        assert!(!svg.contains("@keyframes s"), "nothing is scrolled: {svg}");
    }

    #[test]
    fn who_does_not_see_it_is_told_what_it_is_and_all_of_its_text() {
        let svg = drawn(2, &[(1.0, "a\r\n\r\nb\r\nc")]);
        assert!(svg.contains("role=\"img\" aria-labelledby=\"terminal-title terminal-text\""), "{svg}");
        assert!(svg.contains("<title id=\"terminal-title\">A &lt;session&gt;</title>"), "{svg}");
        assert!(svg.contains("<desc id=\"terminal-text\">a\n\nb\nc\n</desc>"), "{svg}");
    }

    #[test]
    fn what_is_scrolled_ends_where_the_session_does() {
        let svg = drawn(2, &[(1.0, "a\r\nb"), (2.0, "\r\nc"), (4.0, "\r\nd")]);
        assert!(svg.contains(
            ".terminal .s { transform: translateY(-38px); animation: s 4s step-end }\n@keyframes s {\n  0.000% { transform: translateY(-0px) }\n\
             \x20 50.000% { transform: translateY(-19px) }\n  100.000% { transform: translateY(-38px) }\n}\n"
        ), "{svg}");
    }
}
