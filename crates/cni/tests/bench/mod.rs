//! A board with an igb NIC and a composed one, two VFs each, for tests of the plugin.
#![allow(dead_code, reason = "each test program uses a part of it")]

use penstock_testkit::{
    board::{KeptBoard, own_name},
    trials::Failed,
};
use serde_json::{Value, json};

/// An IPAM plugin that gives the address in the configuration, and kills who asks where that says so.
const ADDRESSES: &str = r#"#!/bin/sh
address=$(sed -n 's/.*"gives":"\([^"]*\)".*/\1/p')
[ "$CNI_COMMAND" = ADD ] || exit 0
[ "$address" != nothing ] || kill -9 $PPID
echo "{\"cniVersion\": \"1.0.0\", \"ips\": [{\"address\": \"$address\"}]}"
"#;

/// `cni VERB CONTAINER`, with the configuration on standard input.
pub const CALL: &str = r#"#!/bin/sh
export CNI_COMMAND=$1 CNI_CONTAINERID=$2 CNI_IFNAME=net1 CNI_PATH=/root/cni CNI_NETNS=/run/netns/$2
exec /root/cni/penstock-cni
"#;

/// Two VFs of each PF, both PFs up.
const MAKE: &str = r#"set -e
mkdir -p /root/cni && ln -sf $(command -v penstock) /root/cni/penstock-cni
for pf in /sys/bus/pci/devices/*/sriov_numvfs; do
  pf=$(dirname $pf)
  ip link set $(ls -d $pf/net/* $pf/virtio*/net/* 2>/dev/null | head -1 | xargs basename) up
  echo 2 > $pf/sriov_numvfs
done
for try in $(seq 100); do
  n=0
  for vf in /sys/bus/pci/devices/*/physfn; do
    ls $(dirname $vf)/net $(dirname $vf)/virtio*/net 2>/dev/null | grep -q eth && n=$((n+1))
  done
  [ $n -eq 4 ] && break
  sleep 0.1
done
[ $n -eq 4 ]"#;

/// All that a VF is: its PF's word on it, its driver, its interface.
pub const STATE: &str = r#"for pf in /sys/bus/pci/devices/*/sriov_numvfs; do
  pf=$(dirname $pf)
  ip link show $(ls -d $pf/net/* $pf/virtio*/net/* 2>/dev/null | head -1 | xargs basename) | grep ' vf '
done
for vf in /sys/bus/pci/devices/*/physfn; do
  vf=$(dirname $vf); d=$(ls -d $vf/net/* $vf/virtio*/net/* 2>/dev/null | head -1)
  echo ${vf##*/} $(basename $(readlink $vf/driver)) $(basename $d) $(cat $d/address $d/mtu $d/flags)
done
ls /run/penstock/cni 2>/dev/null | grep json; true"#;

pub struct Bench {
    pub board: KeptBoard,
    /// The PCI address of the PF that igb drives.
    pub igb: String,
    /// The PCI address of the composed PF.
    pub virtio: String,
}

impl Bench {
    pub fn up(test: &str) -> Result<Bench, Failed> {
        let name = own_name(test);
        let model = format!(
            "machine: {name}\nnics:\n  NET0: {{vfs: 2}}\n  NET1: {{vfs: 2}}\nguests:\n  \
             a: {{functions: [NET0#0, NET1#0]}}\nboard: {{emulation: {{NET0: igb, NET1: virtio}}}}\n"
        );
        let board = KeptBoard::up(&name, &model)?;
        let mut bench = Bench { board, igb: String::new(), virtio: String::new() };
        bench.say(MAKE)?;
        for (path, text) in [("/root/cni/addresses", ADDRESSES), ("/root/cni/call", CALL)] {
            bench.board.write(path, text).ended_with(0)?;
        }
        bench.say("chmod +x /root/cni/*")?;
        let pf = |driver: &str| {
            format!(
                "for pf in /sys/bus/pci/drivers/{driver}/*/sriov_numvfs; do basename $(dirname $pf); done | head -1"
            )
        };
        bench.igb = bench.say(&pf("igb"))?.trim().to_owned();
        bench.virtio = bench.say(&pf("virtio-pci"))?.trim().to_owned();
        Ok(bench)
    }

    pub fn say(&self, line: &str) -> Result<String, Failed> {
        let run = self.board.shell(line);
        if run.status != 0 {
            return Err(format!("{line}: status {}: {}{}", run.status, run.stdout, run.stderr).into());
        }
        Ok(run.stdout)
    }

    /// A call of the plugin: whether it held, and what it answered.
    pub fn call(&self, verb: &str, container: &str, configuration: &Value) -> Result<(bool, Value), Failed> {
        let run =
            self.board.shell(&format!("/root/cni/call {verb} {container} <<'END'\n{configuration}\nEND\n"));
        let answer = match run.stdout.trim() {
            "" => Value::Null,
            text => serde_json::from_str(text)
                .map_err(|error| format!("{verb}: {error}: {text}{}", run.stderr))?,
        };
        if run.status > 1 {
            return Err(format!("{verb}: status {}: {}", run.status, run.stderr).into());
        }
        Ok((run.status == 0, answer))
    }

    pub fn holds(&self, verb: &str, container: &str, configuration: &Value) -> Result<Value, Failed> {
        match self.call(verb, container, configuration)? {
            (true, answer) => Ok(answer),
            (false, answer) => Err(format!("{verb} of {container}: {answer}").into()),
        }
    }
}

/// A configuration of the plugin with these keys beside the required ones.
pub fn configuration(more: Value) -> Value {
    let mut all = json!({"cniVersion": "1.1.0", "name": "data", "type": "penstock-cni"});
    for (key, value) in more.as_object().expect("an object") {
        all[key] = value.clone();
    }
    all
}
