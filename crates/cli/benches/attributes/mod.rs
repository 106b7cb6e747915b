//! Attributes of 196 VFs in one go, against the same with `ip link set`: on a board with 28 igbs, whose VFs are there and have
//! no driver.

use penstock_testkit::board::{KeptBoard, own_name};
use serde_json::Value;

const NICS: u32 = 28;
const ROUNDS: usize = 5;

/// One round: the same change three times, from the same state to the same state.
pub struct Round {
    /// Seconds of `penstock apply`.
    pub penstock: f64,
    /// Seconds with one call of `ip` for each attribute.
    pub each: f64,
    /// Seconds with one call of `ip` for each VF, all of its attributes in it.
    pub each_vf: f64,
}

/// Runs on the board. The VFs are put back before each try with `ip -batch`, which is not timed; what `ip` then reports of
/// all VFs has to be the same after each.
const SCRIPT: &str = r#"
import json, subprocess, sys, time

def run(*words):
    return subprocess.run(words, check=True, capture_output=True, text=True)

def seen():
    links = json.loads(run("ip", "-d", "-j", "link").stdout)
    return {link["ifname"]: link["vfinfo_list"] for link in links if link.get("vfinfo_list")}

model, rounds = sys.argv[1], int(sys.argv[2])
run("penstock", "apply", "--quiet", model)
wanted = seen()
vfs = [(name, vf) for name, list in wanted.items() for vf in list]
assert len(vfs) == 196, len(vfs)
on = lambda set: "on" if set else "off"
each, each_vf, back = [], [], []
for name, vf in vfs:
    at = f"link set dev {name} vf {vf['vf']}"
    settings = [f"mac {vf['address']}", f"vlan {vf['vlan_list'][0]['vlan']}", f"spoofchk {on(vf['spoofchk'])}",
                f"trust {on(vf['trust'])}"]
    each += [f"ip {at} {setting}" for setting in settings]
    each_vf.append(f"ip {at} {' '.join(settings)}")
    back.append(f"{at} mac 02:aa:00:00:00:01 vlan 0 spoofchk {on(not vf['spoofchk'])} trust {on(not vf['trust'])}")
for name, lines in [("each", each), ("each_vf", each_vf)]:
    open(f"/root/{name}", "w").write("set -e\n" + "\n".join(lines) + "\n")
open("/root/back", "w").write("\n".join(back) + "\n")

ways = {"penstock": ["penstock", "apply", "--quiet", model], "each": ["sh", "/root/each"], "each_vf": ["sh", "/root/each_vf"]}
results = []
for round in range(rounds):
    result = {}
    # Each way is first as often as the others.
    names = list(ways)
    for name in names[round % 3:] + names[:round % 3]:
        run("ip", "-batch", "/root/back")
        assert all("vlan" not in vf["vlan_list"][0] for list in seen().values() for vf in list)
        started = time.monotonic()
        run(*ways[name])
        result[name] = time.monotonic() - started
        assert seen() == wanted, name
    results.append(result)
print(json.dumps(results))
"#;

/// The rounds, in the order in which they were run.
pub fn compare() -> Vec<Round> {
    let name = own_name("attributes");
    let mut model = format!("machine: {name}\nnics:\n");
    for nic in 0..NICS {
        model +=
            &format!("  NET{nic}: {{vfs: 7, defaults: {{vlan: {}, spoofchk: off, trust: on}}}}\n", 100 + nic);
    }
    // No function goes to a VM.
    model += "board: {iommu: off}\n";
    let board = KeptBoard::up(&name, &model).expect("a board with 28 igbs");
    assert_eq!(board.write("/root/compare.py", SCRIPT).status, 0);
    let told = board.inside(["python3", "/root/compare.py", board.model(), &ROUNDS.to_string()]);
    assert_eq!(told.status, 0, "{}", told.stderr);
    let rounds: Vec<Value> = serde_json::from_str(&told.stdout).expect("the script prints JSON");
    let seconds = |round: &Value, way: &str| round[way].as_f64().expect("seconds");
    rounds
        .iter()
        .map(|round| Round {
            penstock: seconds(round, "penstock"),
            each: seconds(round, "each"),
            each_vf: seconds(round, "each_vf"),
        })
        .collect()
}
