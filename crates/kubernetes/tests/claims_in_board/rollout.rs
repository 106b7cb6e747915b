//! A node whose way to the API server goes over a VF of its own NIC: a model that gives this VF another VLAN is refused; allowed by name, it cuts
//! the node off, and the node's own guard takes it back.

use std::{
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use penstock_testkit::{
    cluster::until,
    trials::{Failed, Outcome},
};
use serde_json::{Value, json};

use super::{Bed, install, list, text};

/// The VF's address on the management network, where the address is that leads to the API server.
const ADDRESS: &str = "10.0.2.17";
/// The interface of the VF that carries it, in a shell's words. Its NIC's embedded switch can be told another VLAN while the VF is used: the driver of
/// an igb VF would be bound anew.
const VF: &str = "$(basename /sys/bus/pci/devices/0000:02:00.0/virtfn0/virtio*/net/*)";
/// Long enough for kubelet's Lease to be so old that the node counts as not ready (50 s, looked at every 5 s) before the guard decides.
const CONFIRM_WITHIN: Duration = Duration::from_secs(75);

/// The uplink of NET1 is cabled to NET2, and NET2 joins the management network by a bridge: what leaves through NET1 comes to the address of the
/// API server. Each interface answers for its own addresses alone.
const CARRY: &str = r#"set -e
echo 1 > /proc/sys/net/ipv4/conf/all/arp_ignore
echo 2 > /proc/sys/net/ipv4/conf/all/arp_announce
vf=VF
far=$(basename /sys/bus/pci/devices/0000:03:00.0/net/*)
management=$(ip -o -4 address show to 10.0.2.15 | awk '{print $2}')
ip link add uplink address $(cat /sys/class/net/$management/address) type bridge
ip link set uplink up
ip link set $far up master uplink
route=$(ip route show default | head -n 1 | sed "s/dev $management.*/dev uplink/")
ip link set $management master uplink
ip address flush dev $management
ip address add 10.0.2.15/24 dev uplink
[ -z "$route" ] || ip route replace $route
ip link set $vf up
ip address add ADDRESS/32 dev $vf
ip route add 10.0.2.100/32 dev $vf src ADDRESS
for try in $(seq 300); do [ "$(cat /sys/class/net/$vf/carrier)" = 1 ] && break; sleep 0.1; done
/opt/kubernetes/kubelet restart"#;

/// A model with which both nodes are what they are now, or one that sets a VLAN.
fn model(vlan: bool) -> String {
    let defaults = if vlan { ", defaults: {vlan: 100}" } else { "" };
    format!("nics: {{NET1: {{match: {{bdf: \"0000:02:00.0\"}}, vfs: 1{defaults}}}}}\n")
}

/// The controller, on this machine, to its end.
struct Controller(Child);

impl Drop for Controller {
    fn drop(&mut self) {
        // It is ended already, or cannot be: there is nothing else to be done.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn controller(bed: &Bed) -> Result<Controller, Failed> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_penstock-kubernetes"));
    command.arg("controller").arg("--kubeconfig").arg(&bed.kubeconfig);
    let log = std::fs::File::create(bed.cluster.at().join("controller.log"))?;
    Ok(Controller(command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).spawn()?))
}

fn tell(bed: &Bed, more: Value) -> Outcome {
    let mut spec = json!({
        "nodeSelector": {"kubernetes.io/os": "linux"},
        "rollout": {"confirmWithin": format!("{}s", CONFIRM_WITHIN.as_secs())},
    });
    for (key, value) in more.as_object().expect("a mapping") {
        spec[key] = value.clone();
    }
    let object = json!({
        "apiVersion": "penstock.dev/v1alpha1", "kind": "SriovMachine", "metadata": {"name": "fleet"}, "spec": spec,
    });
    bed.cluster.apply(&object.to_string())
}

/// The reason and the words of a condition of the machine.
fn condition(bed: &Bed, kind: &str) -> Result<(String, String), Failed> {
    let machine = bed.cluster.get(&["sriovmachine", "fleet"])?;
    let conditions = list(&machine["status"]["conditions"]);
    let found = conditions.iter().find(|condition| condition["type"] == kind).cloned().unwrap_or_default();
    Ok((text(&found["reason"]), text(&found["message"])))
}

fn await_condition(bed: &Bed, kind: &str, reason: &str) -> Result<String, Failed> {
    let mut last = (String::new(), String::new());
    let waited = until(&format!("{kind} says {reason}"), || {
        last = condition(bed, kind)?;
        Ok(last.0 == reason)
    });
    waited.map_err(|why| format!("{}; it says {last:?}", penstock_host::chain(&*why)))?;
    Ok(last.1)
}

/// Whether a node is ready, and since when it is, or is not.
fn readiness(bed: &Bed, node: &str) -> Result<(bool, String), Failed> {
    let node = bed.cluster.get(&["node", node])?;
    let ready = |condition: &&Value| condition["type"] == "Ready";
    let ready = list(&node["status"]["conditions"]).iter().find(ready).cloned().unwrap_or_default();
    Ok((ready["status"] == "True", text(&ready["lastTransitionTime"])))
}

fn is_ready(bed: &Bed, node: &str) -> Result<bool, Failed> {
    Ok(readiness(bed, node)?.0)
}

/// The runs of a node, what was done to it; and whether the last one waits to be confirmed.
fn runs(bed: &Bed, node: &str) -> Result<(usize, bool), Failed> {
    let told: Value = serde_json::from_str(&bed.cluster.on(node, "penstock undo --list --json")?)?;
    let runs = list(&told["runs"]);
    Ok((runs.len(), runs.last().is_some_and(|run| run["waits_for_confirmation"] == true)))
}

pub fn cut_off(bed: &Bed) -> Outcome {
    let (first, second) = (&bed.node, bed.cluster.node(2));
    install(&bed.cluster, &second)?;
    bed.begin(&second, "supervisor")?;
    bed.cluster.write_on(first, "/root/carry", &CARRY.replace("ADDRESS", ADDRESS).replace("VF", VF))?;
    // It goes on by itself: the connection by which it is begun breaks for a moment.
    bed.begin(first, "carry")?;
    let over = format!("ip route get 10.0.2.100 | grep -q 'src {ADDRESS}' && /opt/kubernetes/kubelet status");
    until("the way to the API server goes over the VF", || {
        Ok(bed.cluster.on(first, &over).is_ok_and(|said| said.contains("runs")))
    })?;
    let lease = || {
        let lease = bed.cluster.get(&["lease", "--namespace", "kube-node-lease", first])?;
        Ok::<String, Failed>(text(&lease["spec"]["renewTime"]))
    };
    let before = lease()?;
    until("kubelet renews its Lease over the VF", || Ok(lease()? != before && is_ready(bed, first)?))?;
    let interface = bed.cluster.on(first, &format!("echo {VF}"))?.trim().to_owned();
    let _controller = controller(bed)?;

    // What both are already.
    tell(bed, json!({"model": model(false)}))?;
    await_condition(bed, "Progressing", "Complete")?;
    let done = (runs(bed, first)?, runs(bed, &second)?);

    tell(bed, json!({"model": model(true)}))?;
    await_condition(bed, "Progressing", "Refused")?;
    let (reason, said) = condition(bed, "Degraded")?;
    let danger = format!("peer:{interface}");
    assert!(
        reason == "NodeRefused" && said.starts_with(&format!("{first}: ")) && said.contains(&danger),
        "{said}"
    );
    assert_eq!((runs(bed, first)?, runs(bed, &second)?), done, "nobody is touched");

    // Forced. SSH goes another way: what is done on the node can be watched.
    tell(bed, json!({"model": model(true), "allow": [danger]}))?;
    let cut = || Ok::<bool, Failed>(runs(bed, first)?.1);
    until("the first node is changed", cut)?;
    let changed = Instant::now();
    let ready_since = readiness(bed, first)?.1;
    while cut()? {
        thread::sleep(Duration::from_millis(300));
    }
    let back = changed.elapsed();
    until("the first node is ready again", || is_ready(bed, first))?;
    let ready = changed.elapsed();
    let seconds = |time: Duration| format!("{:.0} s", time.as_secs_f64());
    eprintln!(
        "cut off by its VF's VLAN: taken back by the guard after {} (confirmWithin: {}), ready again after {}",
        seconds(back),
        seconds(CONFIRM_WITHIN),
        seconds(ready)
    );
    // A look at the right moment may be missed; that it has been ready without a break since may not be told.
    assert_ne!(readiness(bed, first)?.1, ready_since, "it was really cut off");
    let said = await_condition(bed, "Progressing", "Stopped")?;
    let (_, why) = condition(bed, "Degraded")?;
    assert!(why.contains("taken back by the node itself"), "{said}: {why}");
    let record = bed.cluster.get(&["sriovnode", first])?;
    assert_eq!(record["status"]["result"]["outcome"], "RolledBack", "{record}");
    assert_eq!(runs(bed, &second)?, done.1, "the second node is not touched");
    Ok(())
}
