//! What a profile does of what an audit advises.

use penstock_model::{
    audit::{Audit, Change, Remedy, Row},
    yaml::shown,
};
use serde::Serialize;

use super::{
    profile::is_wrong,
    read::TunedProfile,
    setting::{TunedSetting, TunedTarget, settings},
};

/// What a profile does of one row's advice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TunedVerdict {
    /// All of one way to put it right.
    Sets,
    /// TuneD computes a value when it loads the profile: it may be the right one.
    Computes,
    /// Something else than what is advised.
    Differs,
    /// A part of it.
    SetsPart,
    /// Nothing of it.
    SetsNothing,
    /// No profile can do it.
    Cannot,
}

/// One row that is wrong, and the profile.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub struct TunedRow {
    /// The row's rule.
    pub rule: String,
    /// What the row is about.
    pub subject: String,
    /// What the profile does of what is advised.
    pub verdict: TunedVerdict,
    /// Change by change, where the profile does not set it all: a sentence each.
    pub why: Vec<String>,
}

/// A profile beside an audit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub struct TunedCoverage {
    /// The rows that failed or contradict.
    pub rows: Vec<TunedRow>,
    /// What was not read of the profile: a sentence each.
    pub unread: Vec<String>,
}

/// Looks up in a profile what an audit advises for the rows that failed or contradict. Of several ways it is the one of which the profile
/// does most.
pub fn compare_with_tuned(audit: &Audit, profile: &TunedProfile) -> TunedCoverage {
    let rows = audit.rows.iter().filter(|row| is_wrong(row)).map(|row| of_row(row, profile)).collect();
    TunedCoverage { rows, unread: profile.unread.clone() }
}

fn of_row(row: &Row, profile: &TunedProfile) -> TunedRow {
    let (rule, subject) = (row.rule.clone(), row.subject.clone());
    let best = row.ways.iter().map(|way| of_way(way, profile)).min_by_key(|(verdict, _)| *verdict);
    let (verdict, why) =
        best.unwrap_or_else(|| (TunedVerdict::Cannot, vec!["the audit advises no change".to_owned()]));
    TunedRow { rule, subject, verdict, why }
}

fn of_way(way: &Remedy, profile: &TunedProfile) -> (TunedVerdict, Vec<String>) {
    let found: Vec<(TunedVerdict, Option<String>)> =
        way.changes.iter().flat_map(|change| of_change(change, profile)).collect();
    let any = |wanted| found.iter().any(|(verdict, _)| *verdict == wanted);
    let all = |wanted| found.iter().all(|(verdict, _)| *verdict == wanted);
    let verdict = if found.is_empty() || all(TunedVerdict::Cannot) {
        TunedVerdict::Cannot
    } else if all(TunedVerdict::Sets) {
        TunedVerdict::Sets
    } else if any(TunedVerdict::Differs) {
        TunedVerdict::Differs
    } else if any(TunedVerdict::SetsNothing) || any(TunedVerdict::Cannot) {
        match any(TunedVerdict::Sets) || any(TunedVerdict::Computes) {
            true => TunedVerdict::SetsPart,
            false => TunedVerdict::SetsNothing,
        }
    } else {
        TunedVerdict::Computes
    };
    (verdict, found.into_iter().filter_map(|(_, why)| why).collect())
}

fn of_change(change: &Change, profile: &TunedProfile) -> Vec<(TunedVerdict, Option<String>)> {
    match settings(change) {
        Err(why) => vec![(TunedVerdict::Cannot, Some(why))],
        Ok(wanted) => wanted.iter().map(|setting| of_setting(setting, profile)).collect(),
    }
}

fn of_setting(
    TunedSetting { target, value }: &TunedSetting,
    profile: &TunedProfile,
) -> (TunedVerdict, Option<String>) {
    let set = profile.settings.iter().rfind(|(known, _)| is_of(known, target)).map(|(_, set)| set);
    match set {
        None => (
            TunedVerdict::SetsNothing,
            Some(format!("{target}: advised {}, not in the profile", shown(value))),
        ),
        Some(None) => (
            TunedVerdict::Computes,
            Some(format!(
                "{target}: advised {}, and TuneD computes a value when it loads the profile",
                shown(value)
            )),
        ),
        // A governor may be one of several: `schedutil|performance`.
        Some(Some(set)) if set == value || set.split('|').any(|set| set == value) => {
            (TunedVerdict::Sets, None)
        }
        Some(Some(set)) => (
            TunedVerdict::Differs,
            Some(format!("{target}: advised {}, the profile sets {}", shown(value), shown(set))),
        ),
    }
}

/// Whether a setting of a profile is one of this target: paths in profiles may be patterns.
fn is_of(known: &TunedTarget, target: &TunedTarget) -> bool {
    match (known, target) {
        (TunedTarget::File(pattern), TunedTarget::File(path)) => fits(pattern.as_bytes(), path.as_bytes()),
        _ => known == target,
    }
}

/// Whether a path fits a pattern in which `*` and `?` stand for what is no slash, as of glob(7). Sets (`[0-3]`) stand for themselves.
fn fits(pattern: &[u8], path: &[u8]) -> bool {
    // The last star, and the path where it began to stand for something.
    let (mut at, mut star) = ((0, 0), None);
    while at.1 < path.len() {
        match pattern.get(at.0) {
            Some(b'*') => {
                star = Some(at);
                at.0 += 1;
            }
            Some(b'?') if path[at.1] != b'/' => at = (at.0 + 1, at.1 + 1),
            Some(byte) if *byte == path[at.1] => at = (at.0 + 1, at.1 + 1),
            _ => match star {
                Some((in_pattern, in_path)) if path[in_path] != b'/' => {
                    star = Some((in_pattern, in_path + 1));
                    at = (in_pattern + 1, in_path + 1);
                }
                _ => return false,
            },
        }
    }
    pattern[at.0..].iter().all(|byte| *byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_what_is_no_slash() {
        for (pattern, path, expected) in [
            ("/sys/a*/b", "/sys/a12/b", true),
            ("/sys/a*/b", "/sys/a/b", true),
            ("/sys/a*/b", "/sys/a/c/b", false),
            ("/sys/*/x*y", "/sys/ab/xxyy", true),
            ("/sys/?", "/sys/a", true),
            ("/sys/?", "/sys//", false),
            ("*", "a/b", false),
            ("a", "a", true),
            ("a", "ab", false),
            ("a**", "a", true),
            ("", "", true),
        ] {
            assert_eq!(fits(pattern.as_bytes(), path.as_bytes()), expected, "{pattern} {path}");
        }
    }
}
