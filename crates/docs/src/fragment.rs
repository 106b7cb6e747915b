//! What a heading is called in a link (`#what-is-it`).
//!
//! Who shows a document decides that. GitHub, Forgejo and mdBook agree; GitLab makes one hyphen of several. A link is right when it is right
//! everywhere.

use std::collections::BTreeSet;

/// Lower case, hyphens for spaces, no other punctuation: GitHub's, Forgejo's and mdBook's rule (`id_from_content` in mdBook's sources).
pub fn plain(heading: &str) -> String {
    let kept = heading.trim().chars().flat_map(char::to_lowercase).filter_map(|c| match c {
        _ if c.is_alphanumeric() || c == '_' || c == '-' => Some(c),
        _ if c.is_whitespace() => Some('-'),
        _ => None,
    });
    kept.collect()
}

/// GitLab's rule: the same with one hyphen for several (docs.gitlab.com/user/markdown, "Heading IDs and links").
pub fn gitlab(heading: &str) -> String {
    let mut name = String::new();
    for c in plain(heading).chars() {
        if c != '-' || !name.ends_with('-') {
            name.push(c);
        }
    }
    name
}

/// The names of a document's headings.
#[derive(Debug, Default)]
pub struct Names {
    plain: BTreeSet<String>,
    gitlab: BTreeSet<String>,
}

impl Names {
    /// Of headings in their order: the second `Ports` is `ports-1`.
    pub fn of<'a>(headings: impl Iterator<Item = &'a str> + Clone) -> Self {
        Self { plain: unique(headings.clone().map(plain)), gitlab: unique(headings.map(gitlab)) }
    }

    /// # Errors
    ///
    /// When no heading is called so, or not everywhere: what to write instead, as a part of a sentence.
    pub fn find(&self, fragment: &str) -> Result<(), String> {
        match (self.plain.contains(fragment), self.gitlab.contains(fragment)) {
            (true, true) => Ok(()),
            (true, false) => Err(format!(
                "GitLab calls the heading of `#{fragment}` otherwise: take the punctuation between two spaces out of the heading"
            )),
            (false, true) => Err(format!("`#{fragment}` is a heading on GitLab alone")),
            (false, false) => {
                let nearest = self.plain.iter().max_by(|a, b| {
                    strsim::jaro_winkler(a, fragment).total_cmp(&strsim::jaro_winkler(b, fragment))
                });
                let meant = nearest.map_or_else(
                    || "it has no headings".to_owned(),
                    |name| format!("the nearest is `#{name}`"),
                );
                Err(format!("no heading there is called `#{fragment}`; {meant}"))
            }
        }
    }
}

/// Names that are taken get a number.
fn unique(names: impl Iterator<Item = String>) -> BTreeSet<String> {
    let mut taken = BTreeSet::new();
    for name in names {
        if taken.contains(&name) {
            let numbered = (1..).map(|number| format!("{name}-{number}"));
            taken.extend(numbered.into_iter().find(|name| !taken.contains(name)));
        } else {
            taken.insert(name);
        }
    }
    taken
}

#[cfg(test)]
mod tests {
    use super::{Names, gitlab, plain};

    #[test]
    fn a_name_has_no_punctuation() {
        assert_eq!(
            plain("A NIC of a VM's own: guests.NAME.nics.NAME"),
            "a-nic-of-a-vms-own-guestsnamenicsname"
        );
        assert_eq!(plain("VFs & PFs"), "vfs--pfs");
        assert_eq!(gitlab("VFs & PFs"), "vfs-pfs");
    }

    #[test]
    fn the_second_of_two_has_a_number_and_a_wrong_one_a_proposal() {
        let names = Names::of(["Ports", "Ports", "VFs & PFs"].into_iter());
        assert_eq!(names.find("ports-1"), Ok(()));
        assert!(names.find("port").unwrap_err().contains("the nearest is `#ports`"));
        assert!(names.find("vfs--pfs").unwrap_err().contains("GitLab calls"));
        assert!(names.find("vfs-pfs").unwrap_err().contains("on GitLab alone"));
    }
}
