//! Room for a socket at each of thousands of interfaces, and for a lock of each of thousands of VFs: a process may have 1024 files open, unless
//! it asks for more.

use std::sync::{Mutex, PoisonError};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Files that this process has open besides.
const OTHERS: u64 = 256;

/// What the limit was before anybody asked for more, and how many files all that ask have open at most.
static ASKED: Mutex<Option<(Rlimit, u64)>> = Mutex::new(None);

/// Has this process be able to have so many more files open, as far as it may, until this is dropped: programs that are started later have the
/// limit that they are used to (select(2) takes no descriptor beyond 1024).
#[derive(Debug)]
pub struct Descriptors(u64);

impl Descriptors {
    /// For so many files. Where the limit cannot be raised, opening the file that is one too many says so.
    pub fn for_files(count: usize) -> Descriptors {
        let mut asked = ASKED.lock().unwrap_or_else(PoisonError::into_inner);
        let (before, others) = asked.unwrap_or_else(|| (getrlimit(Resource::Nofile), 0));
        let all = others + count as u64;
        limit_for(before, all);
        *asked = Some((before, all));
        Descriptors(count as u64)
    }
}

impl Drop for Descriptors {
    fn drop(&mut self) {
        let mut asked = ASKED.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((before, all)) = asked.take() else { return };
        let left = all - self.0;
        limit_for(before, left);
        *asked = (left > 0).then_some((before, left));
    }
}

/// Sets the limit to what it was before, or to what so many files need.
fn limit_for(before: Rlimit, files: u64) {
    let current = before.current.map(|current| {
        let wanted = if files > 0 { current.max(files + OTHERS) } else { current };
        before.maximum.map_or(wanted, |maximum| wanted.min(maximum))
    });
    if current != getrlimit(Resource::Nofile).current {
        let _ = setrlimit(Resource::Nofile, Rlimit { current, ..before });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_raised_as_far_as_it_may_be_and_is_as_it_was_afterwards() {
        let limit = || getrlimit(Resource::Nofile);
        let before = limit();
        let Some(current) = before.current else {
            return penstock_testkit::skip::whole("this process may have any number of files open");
        };
        let most = before.maximum.unwrap_or(u64::MAX);
        let is_raised = || limit().current.is_some_and(|now| now >= most.min(current + OTHERS));
        {
            let few = Descriptors::for_files(1);
            let many = Descriptors::for_files(current as usize);
            assert!(is_raised());
            // Whoever asked later still needs it.
            drop(few);
            assert!(is_raised());
            drop(many);
        }
        assert_eq!(limit(), before);
    }
}
