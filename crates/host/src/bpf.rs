//! Programs that stand at an interface and that netlink does not tell of: those of `tcx`, since Linux 6.6 (`kernel/bpf/tcx.c`). bpf(2) tells them
//! (`BPF_PROG_QUERY`; `include/uapi/linux/bpf.h`).
//!
//! `netkit` devices have programs of their own sort: they are interfaces of pods, and no function of the PCI bus has one.

use nix::{errno::Errno, libc};
use penstock_model::text::counted;
use thiserror::Error;

use crate::{Root, files};

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

/// There on every kernel that has bpf(2), since Linux 4.4 (`kernel/bpf/syscall.c`).
const SETTING: &str = "/proc/sys/kernel/unprivileged_bpf_disabled";

/// The kernel did not tell which programs stand at an interface.
#[derive(Debug, Error)]
#[error("could not ask for the tcx programs at interface {index}{}", more(*.others))]
pub struct BpfError {
    /// The interface's number: the first of those that it did not tell of.
    pub index: u32,
    /// At how many others it did not, either.
    pub others: usize,
    /// What the kernel said of the first.
    #[source]
    pub source: Errno,
}

fn more(others: usize) -> String {
    if others == 0 { String::new() } else { format!(" and at {}", counted(others, "other")) }
}

/// The `tcx` programs at these interfaces of the namespace of the calling thread, in words, with the interface's index. A kernel before 6.6, or
/// without them, has none.
///
/// With them goes what the kernel refused to tell: it takes `CAP_NET_ADMIN` on the host itself, and nobody may keep the question from it, as a
/// container's filter of system calls does. What it has told of other interfaces is there all the same.
pub fn tcx_programs(root: &Root, interfaces: &[u32]) -> (Vec<(u32, String)>, Option<BpfError>) {
    listed(interfaces, ask, || files::exists(root.path(SETTING)))
}

fn listed(
    interfaces: &[u32],
    mut ask: impl FnMut(u32, u32) -> Result<Vec<u32>, Errno>,
    has_bpf: impl Fn() -> bool,
) -> (Vec<(u32, String)>, Option<BpfError>) {
    let (mut found, mut refused) = (Vec::new(), None::<BpfError>);
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
                // The kernel does not know such a place.
                Err(Errno::EINVAL) => return (found, refused),
                // It knows no programs at all. Where it does, somebody keeps the question from it.
                Err(Errno::ENOSYS) if !has_bpf() => return (found, refused),
                Err(source) => {
                    match &mut refused {
                        Some(first) => first.others += 1,
                        none => *none = Some(BpfError { index, others: 0, source }),
                    }
                    break;
                }
            }
        }
    }
    (found, refused)
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

    /// What is listed of two interfaces where the kernel answers so, what is said of the rest, and how many questions that took.
    fn of_two(
        has_bpf: bool,
        answer: impl Fn(u32, u32) -> Result<Vec<u32>, Errno>,
    ) -> (Vec<(u32, String)>, Option<String>, usize) {
        let mut asked = 0;
        let ask = |index, place| {
            asked += 1;
            answer(index, place)
        };
        let (found, refused) = listed(&[2, 3], ask, || has_bpf);
        (found, refused.map(|error| crate::chain(&error)), asked)
    }

    fn program(index: u32, packets: &str, number: u32) -> (u32, String) {
        (index, format!("a tcx program for packets that {packets} (`bpftool prog show id {number}`)"))
    }

    #[test]
    fn programs_are_told_with_their_interfaces_and_directions() {
        let found = of_two(true, |index, place| match (index, place) {
            (2, 46) => Ok(vec![7, 8]),
            (3, 47) => Ok(vec![9]),
            // As Linux 6.6 said at first where there never was one.
            (2, _) => Err(Errno::ENOENT),
            _ => Ok(Vec::new()),
        });
        let wanted = vec![program(2, "come in", 7), program(2, "come in", 8), program(3, "go out", 9)];
        assert_eq!(found, (wanted, None, 4));
    }

    #[test]
    fn what_is_not_there_is_nothing_and_what_is_refused_is_told() {
        for (errno, has_bpf) in [(Errno::EINVAL, true), (Errno::EINVAL, false), (Errno::ENOSYS, false)] {
            assert_eq!(of_two(has_bpf, |_, _| Err(errno)), (Vec::new(), None, 1), "{errno}");
        }
        // An interface that has gone hides no other one's.
        let (found, refused, _) =
            of_two(true, |index, _| if index == 2 { Err(Errno::ENODEV) } else { Ok(vec![9]) });
        assert_eq!((found.len(), refused), (2, None));
        // A filter of system calls may say that there is no such call.
        for errno in [Errno::EPERM, Errno::EACCES, Errno::ENOSYS] {
            let (found, refused, asked) = of_two(true, |_, _| Err(errno));
            let text = refused.unwrap();
            let start = "could not ask for the tcx programs at interface 2 and at 1 other: E";
            assert!(text.starts_with(start), "{text}");
            assert_eq!((found.len(), asked), (0, 2));
        }
    }

    #[test]
    fn what_is_refused_at_one_interface_hides_nothing_at_another() {
        for bad in [2, 3] {
            let (found, refused, _) =
                of_two(true, |index, _| if index == bad { Err(Errno::ENOMEM) } else { Ok(vec![7]) });
            let good = 5 - bad;
            assert_eq!(found, [program(good, "come in", 7), program(good, "go out", 7)]);
            let start = format!("could not ask for the tcx programs at interface {bad}: ENOMEM");
            assert!(refused.as_ref().is_some_and(|text| text.starts_with(&start)), "{refused:?}");
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
