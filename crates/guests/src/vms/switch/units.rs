//! Which units systemd keeps running, as it tells.

use std::time::Duration;

use penstock_host::{Command, Root, chain, files, process};

/// How long systemd may take to answer.
const MOMENT: Duration = Duration::from_secs(30);

/// What `systemctl is-active` says of a unit that nobody keeps running, whether or not systemd knows it (systemctl(1)). One that has died
/// and is to be started again is "activating".
const AT_REST: [&str; 3] = ["inactive", "failed", "unknown"];

/// Those of `units` that run or that systemd is about to start; none where there is no systemd.
///
/// # Errors
///
/// In words: systemd could not be asked, or does not tell of each of them.
pub fn kept<'a>(root: &Root, units: &'a [String]) -> Result<Vec<&'a String>, String> {
    if !files::exists(root.path("/run/systemd/system")) || process::find("systemctl").is_none() {
        return Ok(Vec::new());
    }
    let asked = Command::new("systemctl").arg("is-active").args(units).deadline(MOMENT).run();
    let answer = asked.map_err(|error| chain(&error))?;
    running_of(units, &answer.text()).ok_or_else(|| {
        format!("systemd does not tell whether {} runs: {}", units.join(" or "), answer.errors().trim())
    })
}

/// Those of `units` that run by this answer, which has a line for each.
fn running_of<'a>(units: &'a [String], answer: &str) -> Option<Vec<&'a String>> {
    let states: Vec<&str> = answer.lines().map(str::trim).collect();
    let kept = units.iter().zip(&states).filter(|(_, state)| !AT_REST.contains(*state));
    (states.len() == units.len()).then(|| kept.map(|(unit, _)| unit).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unit_that_is_to_be_started_again_is_kept_and_an_answer_about_fewer_is_none() {
        let units = ["a", "b"].map(str::to_owned);
        let kept =
            |answer| running_of(&units, answer).map(|kept| kept.into_iter().cloned().collect::<Vec<_>>());
        assert_eq!(kept("active\ninactive\n"), Some(vec!["a".to_owned()]));
        assert_eq!(kept("unknown\nactivating\n"), Some(vec!["b".to_owned()]));
        assert_eq!(kept("failed\ninactive\n"), Some(Vec::new()));
        assert_eq!(kept("deactivating\nreloading\n"), Some(units.to_vec()));
        assert_eq!(kept("inactive\n"), None);
        assert_eq!(kept(""), None);
    }

    #[test]
    fn where_there_is_no_systemd_there_are_no_units() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(kept(&Root::at(directory.path()), &["a.service".to_owned()]), Ok(Vec::new()));
    }
}
