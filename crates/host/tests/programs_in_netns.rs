//! What somebody has put at interfaces in real network namespaces. `tc` and others' code set the scenes.
#![allow(clippy::disallowed_methods)]

use std::process::ExitCode;

use penstock_host::{Command, Netlink, Root, bpf, namespace::within};
use penstock_testkit::{namespace::Namespace, needs, trials::Trials, xdp};

type Check = fn();

fn main() -> ExitCode {
    let mut trials = Trials::from_arguments();
    let missing = trials.lacking("network namespaces", needs::network_namespace);
    let no_filters = missing.clone().or_else(|| {
        trials.lacking("filters of tc", || {
            let line = "ip link add v0 type veth peer v1 && tc qdisc add dev v0 clsact";
            let refused = || needs::refused(Command::new("unshare").args(["--net", "sh", "-c", line]));
            needs::programs(&["tc"]).or_else(refused)
        })
    });
    let no_programs = missing.clone().or_else(|| trials.lacking("XDP programs", xdp::lacking));
    let no_tcx = missing.or_else(|| trials.lacking("tcx programs", xdp::tcx_lacking));
    let filters: (&str, Check) =
        ("what_others_put_at_an_interface_is_seen_in_netns", what_others_put_at_an_interface_is_seen);
    let programs: (&str, Check) =
        ("xdp_programs_are_seen_and_taken_off_in_netns", xdp_programs_are_seen_and_taken_off);
    trials.add(&no_filters, [filters]);
    trials.add(&no_programs, [programs]);
    trials.add(&no_tcx, [("tcx_programs_are_seen_in_netns", tcx_programs_are_seen as Check)]);
    trials.run()
}

fn netlink(namespace: &Namespace) -> Netlink {
    Netlink::in_namespace_of(namespace.id).expect("a socket in the namespace")
}

fn index(netlink: &mut Netlink, name: &str) -> u32 {
    let found = netlink.interfaces().expect("a list");
    let found = found.into_iter().find(|report| report.interface.name.as_str() == name);
    found.unwrap_or_else(|| panic!("no interface {name}")).index
}

fn what_others_put_at_an_interface_is_seen() {
    let namespace = Namespace::new();
    namespace.batch("ip", "link add v0 type veth peer v1\nlink set v0 up\nlink set v1 up\n");
    let mut netlink = netlink(&namespace);
    // What the kernel makes by itself is nobody's.
    assert_eq!(netlink.xdp_programs().unwrap(), []);
    assert_eq!(netlink.queueing_disciplines().unwrap(), []);
    namespace.run("tc qdisc add dev v0 clsact");
    namespace.run("tc qdisc add dev v1 root handle 8001: pfifo");
    let (a, b) = (index(&mut netlink, "v0"), index(&mut netlink, "v1"));
    let mut seen = netlink.queueing_disciplines().unwrap();
    seen.sort();
    let mut wanted = [
        (a, "the place of tc's filters (clsact)".to_owned()),
        (b, "a queueing discipline of tc (pfifo)".to_owned()),
    ];
    wanted.sort();
    assert_eq!(seen, wanted);
    namespace.run("tc qdisc del dev v0 clsact");
    assert_eq!(netlink.queueing_disciplines().unwrap().len(), 1);
}

fn xdp_programs_are_seen_and_taken_off() {
    let namespace = Namespace::new();
    namespace.batch("ip", "link add v0 type veth peer v1\nlink set v0 up\nlink set v1 up\n");
    for name in ["v0", "v1"] {
        xdp::attach(namespace.id, name).unwrap();
    }
    let mut netlink = netlink(&namespace);
    let (a, b) = (index(&mut netlink, "v0"), index(&mut netlink, "v1"));
    let seen = netlink.xdp_programs().unwrap();
    let mut at: Vec<u32> = seen.iter().map(|(index, _)| *index).collect();
    at.sort_unstable();
    assert_eq!(at, [a.min(b), a.max(b)], "{seen:?}");
    let told =
        |what: &str| what.starts_with("an XDP program before the network stack (`bpftool prog show id ");
    assert!(seen.iter().all(|(_, what)| told(what)), "{seen:?}");
    let at_a = netlink.xdp_programs_at(a).unwrap();
    let [program] = &at_a[..] else { panic!("{at_a:?}") };
    assert!(seen.contains(&(a, program.to_string())) && program.number.is_some(), "{program:?}");
    assert_eq!(program.removal("v0"), "ip link set dev v0 xdpgeneric off");
    netlink.remove_xdp(a, program).unwrap();
    let left: Vec<u32> = netlink.xdp_programs().unwrap().iter().map(|(index, _)| *index).collect();
    assert_eq!(left, [b]);
    assert!(
        namespace.run("ip link show v1").contains("xdp") && !namespace.run("ip link show v0").contains("xdp")
    );
    // Where there is none, none is seen, and to take it off once more does no harm; an interface that is not there is said.
    assert_eq!(netlink.xdp_programs_at(a).unwrap(), []);
    netlink.remove_xdp(a, program).unwrap();
    assert!(netlink.xdp_programs_at(9_999).unwrap_err().to_string().contains("interface 9999"));
    assert!(netlink.remove_xdp(9_999, program).unwrap_err().to_string().contains("interface 9999"));
}

fn tcx_programs_are_seen() {
    let namespace = Namespace::new();
    namespace.batch("ip", "link add v0 type veth peer v1\nlink set v0 up\nlink set v1 up\n");
    let mut netlink = netlink(&namespace);
    let (a, b) = (index(&mut netlink, "v0"), index(&mut netlink, "v1"));
    let process = namespace.id;
    // bpf(2) asks in the namespace of the thread.
    let seen = move || {
        let asked = within(Some(process), || bpf::tcx_programs(&Root::system(), &[a, b, 9_999]));
        let (found, refused) = asked.unwrap();
        assert!(refused.is_none(), "{refused:?}");
        found
    };
    assert_eq!(seen(), []);
    for (name, packets) in [("v0", "in"), ("v0", "in"), ("v1", "out")] {
        xdp::attach_tcx(process, name, packets).unwrap();
    }
    let told = seen();
    assert_eq!(told.iter().map(|(index, _)| *index).collect::<Vec<_>>(), [a, a, b], "{told:?}");
    for ((_, what), packets) in told.iter().zip(["come in", "come in", "go out"]) {
        let start = format!("a tcx program for packets that {packets} (`bpftool prog show id ");
        assert!(what.starts_with(&start), "{what}");
    }
    // Netlink tells neither of them.
    assert_eq!(netlink.xdp_programs().unwrap(), []);
    assert_eq!(netlink.queueing_disciplines().unwrap(), []);
    namespace.run("ip link del v0");
    assert_eq!(seen(), [], "what has gone has taken them along");
}
