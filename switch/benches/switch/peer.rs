//! The peer: Open vSwitch with DPDK, one polling thread, forwarding as a learning bridge does (`NORMAL`), without VLANs or filters.
//! It runs with a database and a directory of its own, beside any that this machine may have.

use std::{fs, path::Path, process::Command};

use super::{
    processes::{self, Program, SWITCH, silent},
    supervisor::Workshop,
    switches::{Kind, Switch},
    testpmd::Sockets,
};

const DAEMON: &str = "/usr/lib/openvswitch-switch-dpdk/ovs-vswitchd-dpdk";
const SCHEMA: &str = "/usr/share/openvswitch/vswitch.ovsschema";

/// Its version.
pub fn version() -> String {
    let text = processes::output(Command::new(DAEMON).arg("--version")).unwrap_or_else(|failed| failed);
    text.lines().collect::<Vec<_>>().join(", ")
}

/// What those that were started complained of last, to stand behind why something failed.
pub fn complaints(workshop: &Workshop) -> String {
    let homes = [false, true].map(|segments| workshop.path(&Kind::Peer { segments }.name()));
    let last = homes.iter().filter_map(|home| {
        let text = fs::read_to_string(home.join("ovs-vswitchd-dpdk.log")).ok()?;
        let line = text.lines().rev().find(|line| line.contains("|ERR|") || line.contains("|EMER|"))?;
        Some(format!("; Open vSwitch said: {line}"))
    });
    last.collect()
}

/// Starts it with two ports that come to their front ends.
pub fn start(workshop: &Workshop, home: &Path, segments: bool) -> Result<Switch, String> {
    let (database, socket) = (home.join("conf.db"), home.join("db.sock"));
    for left in [&database, &socket] {
        let _ = fs::remove_file(left);
    }
    let at_home = |program: &str| {
        let mut command = Command::new(program);
        for variable in ["OVS_RUNDIR", "OVS_LOGDIR", "OVS_DBDIR", "OVS_SYSCONFDIR"] {
            command.env(variable, home);
        }
        command
    };
    let mut create = at_home("ovsdb-tool");
    processes::output(create.arg("create").arg(&database).arg(SCHEMA))?;
    let mut serve = at_home("ovsdb-server");
    serve.arg(&database).arg(format!("--remote=punix:{}", socket.display()));
    let server = Program::start(silent(&mut serve))?;
    let set = |arguments: &[String]| {
        let mut command = at_home("ovs-vsctl");
        command.arg(format!("--db=unix:{}", socket.display())).args(["--retry", "--timeout=10"]);
        processes::output(command.args(arguments)).map(drop)
    };
    let huge = workshop.huge_pages();
    set(&[
        "--no-wait".to_owned(),
        "init".to_owned(),
        "--".to_owned(),
        "set".to_owned(),
        "Open_vSwitch".to_owned(),
        ".".to_owned(),
        "other_config:dpdk-init=true".to_owned(),
        format!("other_config:userspace-tso-enable={segments}"),
        "other_config:dpdk-lcore-mask=0x1".to_owned(),
        format!("other_config:pmd-cpu-mask={:#x}", 1 << SWITCH),
        // It would take all that there is.
        "other_config:dpdk-socket-mem=256".to_owned(),
        "other_config:dpdk-socket-limit=256".to_owned(),
        format!(
            "other_config:dpdk-extra=\"--huge-dir={} --in-memory --no-pci --no-telemetry --file-prefix=ovs\"",
            huge.display()
        ),
    ])?;
    // Its bridge is a network interface too, which is not to be this machine's.
    let mut daemon = at_home("unshare");
    daemon.arg("--net").arg(DAEMON);
    daemon.arg(format!("unix:{}", socket.display())).arg("--pidfile").arg("--log-file");
    let program = Program::start(silent(&mut daemon))?;
    let paths = vec![home.join("guest-0"), home.join("guest-1")];
    let mut add: Vec<String> = ["add-br", "bridge", "--", "set", "bridge", "bridge", "datapath_type=netdev"]
        .map(str::to_owned)
        .to_vec();
    for (number, path) in paths.iter().enumerate() {
        let port = format!("guest-{number}");
        let words = ["--", "add-port", "bridge", &port, "--", "set", "Interface", &port];
        add.extend(words.map(str::to_owned));
        add.push("type=dpdkvhostuserclient".to_owned());
        add.push(format!("options:vhost-server-path={}", path.display()));
    }
    set(&add)?;
    let polls = program.thread(&["pmd-"])?;
    Ok(Switch { program, polls, database: Some(server), sockets: Sockets { paths, front_end_listens: true } })
}
