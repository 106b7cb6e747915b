//! Why nothing came of a machine.

use penstock_model::text::{clip, printable};

/// The causes and hints of one failure are no more than this, and none longer.
const MOST: usize = 50;
const LONGEST: usize = 4000;

/// Why it failed there, in words that are safe to show.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trouble {
    /// What went wrong, outermost first.
    pub causes: Vec<String>,
    /// What to do about it.
    pub hints: Vec<String>,
}

impl Trouble {
    /// A trouble of our own finding.
    pub fn new(what: impl Into<String>) -> Trouble {
        Trouble { causes: vec![what.into()], hints: Vec::new() }
    }

    /// What another machine told of its trouble.
    pub fn reported(causes: &[String], hints: &[String]) -> Trouble {
        let safe = |texts: &[String]| {
            let mut safe: Vec<String> =
                texts.iter().take(MOST).map(|text| clip(&printable(text), LONGEST)).collect();
            if texts.len() > MOST {
                safe.push(format!("and {} more, which are not shown", texts.len() - MOST));
            }
            safe
        };
        Trouble { causes: safe(causes), hints: safe(hints) }
    }

    /// With what is behind it, if that says anything.
    pub fn because(mut self, why: impl Into<String>) -> Trouble {
        let why = why.into();
        if !why.is_empty() {
            self.causes.push(why);
        }
        self
    }

    /// With something to do about it.
    pub fn hint(mut self, hint: impl Into<String>) -> Trouble {
        self.hints.push(hint.into());
        self
    }
}
