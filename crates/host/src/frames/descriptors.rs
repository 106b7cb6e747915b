//! Room for a socket at each of thousands of interfaces: a process may have 1024 files open, unless it asks for more.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Files that this process has open besides.
const OTHERS: u64 = 256;

/// Has this process be able to have so many sockets open, as far as it may, until this is dropped: programs that are started later have the
/// limit that they are used to (select(2) takes no descriptor beyond 1024).
#[derive(Debug)]
pub(super) struct Descriptors(Option<Rlimit>);

impl Descriptors {
    pub fn for_sockets(count: usize) -> Descriptors {
        let before = getrlimit(Resource::Nofile);
        let wanted = count as u64 + OTHERS;
        if before.current.is_none_or(|current| current >= wanted) {
            return Descriptors(None);
        }
        let current = before.maximum.map_or(wanted, |maximum| wanted.min(maximum));
        // Where it is refused, the socket that is one too many says so.
        let raised = setrlimit(Resource::Nofile, Rlimit { current: Some(current), ..before });
        Descriptors(raised.ok().map(|()| before))
    }
}

impl Drop for Descriptors {
    fn drop(&mut self) {
        if let Some(before) = self.0.take() {
            let _ = setrlimit(Resource::Nofile, before);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_raised_as_far_as_it_may_be_and_is_as_it_was_afterwards() {
        let limit = || getrlimit(Resource::Nofile);
        let before = limit();
        let Some(current) = before.current else { return };
        {
            let _few = Descriptors::for_sockets(1);
            assert_eq!(limit(), before);
            let _many = Descriptors::for_sockets(current as usize);
            let most = before.maximum.map_or(current + OTHERS, |most| most.min(current + OTHERS));
            assert_eq!(limit().current, Some(most));
        }
        assert_eq!(limit(), before);
    }
}
