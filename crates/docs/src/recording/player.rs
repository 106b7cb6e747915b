//! The page of the site that plays a recording: with a way to stop it and to see it again, and its text to read or copy. It needs no script.

use super::{Recording, RecordingError, picture};

/// What stops the picture while the box is ticked. A page is loaded anew, and played from its beginning, by a link to itself.
const STYLE: &str =
    "body { margin: 0; font: 14px system-ui, sans-serif; color: #e6edf3; background: #0d1117 }
svg.terminal { display: block; width: 100%; height: auto }
body:has(#pause:checked) .terminal :is(.m, .e, .s) { animation-play-state: paused }
nav { display: flex; gap: 1.5em; align-items: center; padding: .5em 1em }
nav a { color: #79c0ff }
details { padding: 0 1em .5em }
pre { overflow-x: auto }
@media (prefers-reduced-motion: reduce) { nav { display: none } }
";

/// The page, whose file is called `name`.
///
/// # Errors
///
/// As [`picture::draw`].
pub fn page(recording: &Recording, title: &str, name: &str) -> Result<String, RecordingError> {
    let svg = picture::draw(recording, title)?;
    let [title, name] = [title, name].map(picture::escaped);
    let text = picture::escaped(&recording.transcript());
    Ok(format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" content=\"width=device-width\">\n\
         <title>{title}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n{svg}<nav>\n\
         <label><input type=\"checkbox\" id=\"pause\" autocomplete=\"off\"> Pause</label>\n<a href=\"{name}\">From the start</a>\n</nav>\n\
         <details>\n<summary>As text</summary>\n<pre>{text}</pre>\n</details>\n</body>\n</html>\n"
    ))
}
