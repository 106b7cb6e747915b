//! Programs that stand at an interface and that netlink does not tell of: those of `tcx`, since Linux 6.6 (`kernel/bpf/tcx.c`). bpf(2) tells them
//! (`BPF_PROG_QUERY`; `include/uapi/linux/bpf.h`).
//!
//! `netkit` devices have programs of their own sort: they are interfaces of pods, and no function of the PCI bus has one.

use nix::{errno::Errno, libc};
use thiserror::Error;

const PROG_QUERY: libc::c_int = 16;

/// No place takes more (`BPF_MPROG_MAX`; `include/linux/bpf_mprog.h`).
const MOST: usize = 64;

/// Where programs of an interface stand: `BPF_TCX_INGRESS` and `BPF_TCX_EGRESS`, and whose packets these are.
const PLACES: [(u32, &str); 2] = [(46, "for packets that come in"), (47, "for packets that go out")];

/// The part of `union bpf_attr` that asks what stands somewhere.
#[repr(C)]
#[derive(Debug, Default)]
struct Query {
    target_ifindex: u32,
    attach_type: u32,
    query_flags: u32,
    attach_flags: u32,
    prog_ids: u64,
    /// The room at `prog_ids`; then how many there are.
    count: u32,
    padding: u32,
    prog_attach_flags: u64,
    link_ids: u64,
    link_attach_flags: u64,
    revision: u64,
}

const _: () = assert!(size_of::<Query>() == 64);

/// The kernel did not tell which programs stand at an interface.
#[derive(Debug, Error)]
#[error("could not ask for the tcx programs at interface {index}")]
pub struct BpfError {
    /// The interface's number.
    pub index: u32,
    /// What the kernel said.
    #[source]
    pub source: Errno,
}

/// The `tcx` programs at these interfaces of the namespace of the calling thread, in words, with the interface's index. A kernel before 6.6, or
/// without them, has none.
///
/// # Errors
///
/// [`BpfError`] when the kernel refuses the question: it takes `CAP_NET_ADMIN` on the host itself.
pub fn tcx_programs(interfaces: &[u32]) -> Result<Vec<(u32, String)>, BpfError> {
    listed(interfaces, ask)
}

fn listed(
    interfaces: &[u32],
    mut ask: impl FnMut(u32, u32) -> Result<Vec<u32>, Errno>,
) -> Result<Vec<(u32, String)>, BpfError> {
    let mut found = Vec::new();
    for index in interfaces.iter().copied() {
        for (place, packets) in PLACES {
            match ask(index, place) {
                Ok(numbers) => found.extend(numbers.into_iter().map(|number| {
                    (index, format!("a tcx program {packets} (`bpftool prog show id {number}`)"))
                })),
                // It has gone meanwhile.
                Err(Errno::ENODEV) => break,
                // Nothing has ever stood there.
                Err(Errno::ENOENT) => {}
                // The kernel does not know such a place, or no programs at all.
                Err(Errno::EINVAL | Errno::ENOSYS) => return Ok(found),
                Err(source) => return Err(BpfError { index, source }),
            }
        }
    }
    Ok(found)
}

/// The numbers of the programs at a place of an interface.
#[allow(unsafe_code)]
fn ask(interface: u32, place: u32) -> Result<Vec<u32>, Errno> {
    let mut numbers = [0_u32; MOST];
    let mut query = Query {
        target_ifindex: interface,
        attach_type: place,
        prog_ids: numbers.as_mut_ptr().expose_provenance() as u64,
        count: MOST as u32,
        ..Query::default()
    };
    // SAFETY: `query` is a whole `union bpf_attr` of the length that is told, zero behind what is asked, and `numbers`, to which it points, has
    // the room that it tells; both outlive the call, which alone writes to them.
    let outcome = unsafe { libc::syscall(libc::SYS_bpf, PROG_QUERY, &raw mut query, size_of::<Query>()) };
    Errno::result(outcome)?;
    Ok(told(&numbers, query.count))
}

/// The numbers that were written, of so many programs.
fn told(numbers: &[u32; MOST], count: u32) -> Vec<u32> {
    numbers.iter().copied().take(count as usize).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is listed of two interfaces where the kernel answers so.
    fn of_two(
        answer: impl Fn(u32, u32) -> Result<Vec<u32>, Errno>,
    ) -> (Result<Vec<(u32, String)>, String>, usize) {
        let mut asked = 0;
        let listed = listed(&[2, 3], |index, place| {
            asked += 1;
            answer(index, place)
        });
        (listed.map_err(|error| crate::chain(&error)), asked)
    }

    #[test]
    fn programs_are_told_with_their_interfaces_and_directions() {
        let program = |index, packets: &str, number: u32| {
            (index, format!("a tcx program for packets that {packets} (`bpftool prog show id {number}`)"))
        };
        let (found, asked) = of_two(|index, place| match (index, place) {
            (2, 46) => Ok(vec![7, 8]),
            (3, 47) => Ok(vec![9]),
            // As Linux 6.6 said at first where there never was one.
            (2, _) => Err(Errno::ENOENT),
            _ => Ok(Vec::new()),
        });
        assert_eq!(
            found,
            Ok(vec![program(2, "come in", 7), program(2, "come in", 8), program(3, "go out", 9)])
        );
        assert_eq!(asked, 4);
    }

    #[test]
    fn what_is_not_there_is_nothing_and_what_is_refused_is_told() {
        for errno in [Errno::EINVAL, Errno::ENOSYS] {
            assert_eq!(of_two(|_, _| Err(errno)), (Ok(Vec::new()), 1), "{errno}");
        }
        // An interface that has gone hides no other one's.
        let (found, _) = of_two(|index, _| if index == 2 { Err(Errno::ENODEV) } else { Ok(vec![9]) });
        assert_eq!(found.unwrap().len(), 2);
        for errno in [Errno::EPERM, Errno::EACCES] {
            let (refused, _) = of_two(|_, _| Err(errno));
            let text = refused.unwrap_err();
            assert!(text.starts_with("could not ask for the tcx programs at interface 2: E"), "{text}");
        }
    }

    #[test]
    fn no_more_is_read_than_there_was_room_for() {
        let mut numbers = [0; MOST];
        (numbers[0], numbers[1]) = (5, 6);
        assert_eq!(told(&numbers, 0), [0; 0]);
        assert_eq!(told(&numbers, 2), [5, 6]);
        assert_eq!(told(&numbers, 70).len(), MOST);
    }
}
