//! Boot parameters that concern real time.
