//! A kernel's release.

use std::{fmt, str::FromStr};

/// The version of a kernel, from its release: of `6.12.63+deb13-rt-amd64` 6.12.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Release {
    /// The first number of the release: 6 of `6.12.63`.
    pub major: u32,
    /// The second number of the release: 12 of `6.12.63`.
    pub minor: u32,
}

impl Release {
    /// The release `major.minor`.
    pub const fn new(major: u32, minor: u32) -> Release {
        Release { major, minor }
    }
}

/// Text that does not begin like a kernel's release.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseReleaseError;

impl FromStr for Release {
    type Err = ParseReleaseError;

    fn from_str(text: &str) -> Result<Release, ParseReleaseError> {
        let (major, rest) = text.split_once('.').ok_or(ParseReleaseError)?;
        let minor: String = rest.chars().take_while(char::is_ascii_digit).collect();
        let number = |digits: &str| digits.parse().map_err(|_| ParseReleaseError);
        Ok(Release { major: number(major)?, minor: number(&minor)? })
    }
}

impl fmt::Display for Release {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_is_read_as_distributions_write_it() {
        for (text, wanted) in [
            ("6.12.63+deb13-rt-amd64", Release::new(6, 12)),
            ("6.1.0-28-rt-amd64", Release::new(6, 1)),
            ("5.14.0-503.el9.x86_64+rt", Release::new(5, 14)),
            ("7.0-rc1", Release::new(7, 0)),
        ] {
            assert_eq!(text.parse(), Ok(wanted), "{text}");
        }
        for odd in ["", "6", "x.1", "6.x", "99999999999.1"] {
            assert!(odd.parse::<Release>().is_err(), "{odd}");
        }
        assert!(Release::new(6, 2) < Release::new(6, 12));
    }
}
