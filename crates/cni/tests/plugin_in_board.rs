//! `penstock cni` on a real kernel: VFs of an igb NIC, whose driver keeps their attributes, and of a virtio NIC, whose embedded switch
//! does, are given to network namespaces and come back. What is so before and after is read by `ip` and from sysfs.
#![allow(clippy::disallowed_methods)]

mod bench;

use std::process::ExitCode;

use bench::{Bench, CALL, STATE, configuration};
use penstock_testkit::{
    board::{KeptBoard, own_name},
    trials::{self, Outcome},
};
use serde_json::json;

fn main() -> ExitCode {
    trials::on_boards(&[
        ("containers_get_vfs_of_igb_and_virtio_in_board", containers_get_vfs),
        ("a_plugin_killed_at_any_moment_loses_nothing_in_board", killed_at_any_moment),
        ("vfs_that_no_guest_owns_are_for_plugins_in_board", vfs_that_no_guest_owns),
    ])
}

fn containers_get_vfs() -> Outcome {
    let bench = Bench::up("cni")?;
    let before = bench.say(STATE)?;
    for pf in [&bench.igb, &bench.virtio] {
        let of = |mac: &str, address: &str| {
            configuration(json!({
                "pf": pf, "mac": mac, "vlan": 100, "spoofchk": "on",
                "ipam": {"type": "addresses", "gives": address},
            }))
        };
        let (a, b) = (of("02:00:00:00:aa:01", "10.7.0.1/24"), of("02:00:00:00:aa:02", "10.7.0.2/24"));
        bench.say("ip netns add a; ip netns add b; ip netns add c")?;
        bench.holds("STATUS", "a", &a)?;
        let given = bench.holds("ADD", "a", &a)?;
        let interface = &given["interfaces"][0];
        assert_eq!(
            (&interface["mac"], &interface["mtu"]),
            (&json!("02:00:00:00:aa:01"), &json!(1500)),
            "{given}"
        );
        bench.holds("ADD", "b", &b)?;
        // Through the NIC, in their VLAN. The plugin does not wait for links, which igbvf looks for every two seconds.
        bench.say(
            "for n in a b; do for try in $(seq 200); do \
             [ \"$(ip netns exec $n cat /sys/class/net/net1/carrier)\" = 1 ] && continue 2; sleep 0.1; done; \
             ip netns exec $n ip -s link; exit 1; done",
        )?;
        bench.say("ip netns exec a ping -q -c 3 -i 0.3 -W 5 10.7.0.2")?;
        let (added, answer) = bench.call("ADD", "c", &a)?;
        assert!(!added && answer["code"] == 101, "no VF is left: {answer}");
        assert_eq!(bench.call("STATUS", "a", &a)?.1["code"], 50);

        // CHECK sees what somebody changes at the PF.
        let mut checked = a.clone();
        checked["prevResult"] = given.clone();
        bench.holds("CHECK", "a", &checked)?;
        if *pf == bench.igb {
            bench.say(&format!("ip link set $(basename /sys/bus/pci/devices/{pf}/net/*) vf 0 vlan 7"))?;
            let (held, answer) = bench.call("CHECK", "a", &checked)?;
            assert!(!held && answer["code"] == 103, "{answer}");
            assert!(answer["msg"].as_str().is_some_and(|text| text.contains("vlan 7")), "{answer}");
        }

        // The one's namespace ends first, the other is collected: all is as it was.
        bench.say("ip netns delete a")?;
        bench.holds("DEL", "a", &a)?;
        let mut collect = b.clone();
        collect["cni.dev/valid-attachments"] = json!([]);
        bench.holds("GC", "x", &collect)?;
        assert_eq!(bench.say(STATE)?, before, "{pf}");

        // One VF, two at once.
        let device = interface["pciID"].as_str().expect("a function").to_owned();
        let one = configuration(json!({"deviceID": device}));
        bench.say(&format!("cat > /root/one <<'END'\n{one}\nEND\n"))?;
        bench.say(
            "ip netns add a; for n in b c; do /root/cni/call ADD $n < /root/one > /root/$n.out & done; wait",
        )?;
        let both = bench.say("cat /root/b.out /root/c.out")?;
        assert_eq!((both.matches("pciID").count(), both.matches("\"code\":101").count()), (1, 1), "{both}");
        bench.say("for n in b c; do /root/cni/call DEL $n < /root/one; done; ip -all netns delete")?;
        assert_eq!(bench.say(STATE)?, before, "{pf}");
    }
    // `/run` is emptied while a container has one: its DEL knows it by what ADD gave, and brings it home.
    let one = configuration(json!({"pf": bench.igb, "vlan": 5}));
    bench.say("ip netns add a")?;
    let mut given_before = one.clone();
    given_before["prevResult"] = bench.holds("ADD", "a", &one)?;
    let vf = given_before["prevResult"]["interfaces"][0]["pciID"].as_str().expect("a function").to_owned();
    let at_home = format!("ls /sys/bus/pci/devices/{vf}/net | wc -l");
    assert_eq!(bench.say(&at_home)?.trim(), "0");
    bench.say("rm -r /run/penstock/cni")?;
    bench.holds("DEL", "a", &given_before)?;
    assert_eq!(bench.say(&at_home)?.trim(), "1");
    // VFs end while a container has one.
    bench.holds("ADD", "a", &one)?;
    bench.say(&format!("echo 0 > /sys/bus/pci/devices/{}/sriov_numvfs", bench.igb))?;
    bench.holds("DEL", "a", &one)?;
    assert_eq!(bench.say("ls /run/penstock/cni | grep -c json; true")?.trim(), "0");
    Ok(())
}

fn killed_at_any_moment() -> Outcome {
    let bench = Bench::up("cni-kill")?;
    let before = bench.say(STATE)?;
    for pf in [&bench.igb, &bench.virtio] {
        let all = configuration(json!({
            "pf": pf, "mac": "02:00:00:00:aa:01", "vlan": 100, "trust": "on",
            "ipam": {"type": "addresses", "gives": "nothing"},
        }));
        bench.say(&format!("cat > /root/all <<'END'\n{all}\nEND\n"))?;
        // At every 15 ms of an ADD, which dies in its IPAM plugin at the latest. As a runtime does, DEL waits until it has ended.
        for moment in (1..=16).map(|n| f64::from(n) * 0.015) {
            bench.say(&format!(
                "ip netns add a; /root/cni/call ADD a < /root/all & sleep {moment}; kill -9 $!; wait $!; \
                 /root/cni/call DEL a < /root/all && ip netns delete a"
            ))?;
            assert_eq!(bench.say(STATE)?, before, "{pf}, after {moment} s");
        }
    }
    Ok(())
}

/// `apply` leaves the VFs that no guest owns bound, and `apply`, `verify` and `--watch` leave those alone that a plugin has given away.
fn vfs_that_no_guest_owns() -> Outcome {
    let name = own_name("cni-free");
    let text = format!(
        "machine: {name}\nnics:\n  NET0: {{vfs: 4}}\n  NET1: {{vfs: 3, free: {{driver: host}}}}\nguests:\n  \
         a: {{functions: [NET0#0, NET1#0]}}\nboard: {{emulation: {{NET0: igb, NET1: virtio}}}}\n"
    );
    let board = KeptBoard::up(&name, &text)?;
    let model = board.model().to_owned();
    let bench = Bench { board, igb: String::new(), virtio: String::new() };
    let verified = || bench.board.shell(&format!("penstock verify --json {model}"));
    let before = bench.say("ls /sys/bus/pci/devices")?;
    bench.say(&format!("penstock apply --quiet {model}"))?;
    let bound = "for vf in /sys/bus/pci/devices/*/physfn; do d=$(dirname $vf)/driver; basename $(readlink $d || echo none); done | sort | uniq -c | tr -s ' \\n' ' '";
    assert_eq!(bench.say(bound)?.trim(), "4 igbvf 3 virtio-pci");
    verified().ended_with(0)?;
    bench.say(&format!("penstock plan --detailed-exitcode {model}"))?;

    let igb = bench.say(
        "for pf in /sys/bus/pci/drivers/igb/*/sriov_numvfs; do basename $(dirname $pf); done | head -1",
    )?;
    bench.say(
        "mkdir -p /root/cni && ln -sf $(command -v penstock) /root/cni/penstock-cni; ip netns add b; ip netns add c",
    )?;
    bench.board.write("/root/cni/call", CALL).ended_with(0)?;
    bench.say("chmod +x /root/cni/call")?;
    let taken = configuration(
        json!({"pf": igb.trim(), "vfs": [1, 2], "mac": "02:00:00:00:bb:01", "vlan": 300, "trust": "on"}),
    );
    bench.say(&format!(
        "penstock verify --watch --for 60s --json {model} > /root/watch 2>&1 & for try in $(seq 100); do grep -q '\"state\"' /root/watch && exit; sleep 0.3; done; exit 1"
    ))?;
    let given = bench.holds("ADD", "b", &taken)?;
    assert_eq!(given["interfaces"][0]["mac"], "02:00:00:00:bb:01");
    // As a plugin does that writes nothing down.
    let other =
        "$(basename $(ls -d /sys/bus/pci/drivers/virtio-pci/*/physfn/virtfn1/virtio*/net/* | head -1))";
    bench.say(&format!("ip link set {other} netns c name taken"))?;
    let run = verified();
    run.ended_with(0)?;
    for words in ["container b (network data, penstock cni)", "the network namespace c"] {
        assert!(run.stdout.contains(words), "{words}: {}", run.stdout);
    }
    // Nothing is done with them, and what would destroy them is refused.
    bench.say(&format!("penstock plan --detailed-exitcode {model}"))?;
    bench.say(&format!("sed 's/vfs: 4/vfs: 2/' {model} > /root/fewer.yaml"))?;
    let fewer =
        bench.board.shell("penstock stop --quiet /root/fewer.yaml a && penstock apply /root/fewer.yaml");
    assert!(
        fewer.status == 3 && fewer.stderr.contains("container b (network data, penstock cni)"),
        "{}: {}",
        fewer.status,
        fewer.stderr
    );
    bench.say(&format!("penstock start --quiet {model}"))?;
    bench.say("ip -n c link set taken netns 1 name back0")?;
    bench.holds("DEL", "b", &taken)?;
    verified().ended_with(0)?;
    // Of all this only the stop of the guest was a change.
    let watch = bench.say(
        "sleep 3; pkill -INT -f '^penstock verify --watch'; while pgrep -f '^penstock verify --watch' > /dev/null; do sleep 0.2; done; cat /root/watch",
    )?;
    let of_free = |line: &&str| ["#1", "#2", "#3"].iter().any(|vf| line.contains(vf));
    let drifted: Vec<&str> =
        watch.lines().filter(|line| line.contains("\"drift\"")).filter(of_free).collect();
    assert_eq!(drifted, Vec::<&str>::new(), "{watch}");

    // Drift is told all the same, and mended.
    bench.say(&format!(
        "ip link set $(basename /sys/bus/pci/devices/{}/net/*) vf 3 mac 02:00:00:00:cc:01",
        igb.trim()
    ))?;
    verified().ended_with(1)?;
    bench.say(&format!("penstock apply --quiet {model}"))?;
    verified().ended_with(0)?;
    bench.say("for run in 1 2 3 4 5; do penstock undo --quiet || break; done")?;
    assert_eq!(bench.say("ls /sys/bus/pci/devices")?, before);
    Ok(())
}
