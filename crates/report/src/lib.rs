//! Evidence of a run, and its rendering as HTML, Markdown and JSON. Pure.
