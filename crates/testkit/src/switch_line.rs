//! An embedded switch of a PF, played by a test: a virtio serial port of a machine in a tree (`docs/switch.md`), at which somebody answers.

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    os::unix::fs::symlink,
    path::Path,
    thread,
};

use serde_json::{Value, json};

/// Serves the line to the embedded switch of the PF with the MAC address `pf`, on the machine whose `/sys` and `/dev` are below `root`: each
/// request has what `answer` says, `{"ok": …}` or `{"error": …}`. It goes on until the test ends.
///
/// # Panics
///
/// When there can be no pseudoterminal, or no file in the tree.
pub fn serve(root: &Path, pf: &str, mut answer: impl FnMut(&Value) -> Value + Send + 'static) {
    let mut raw = nix::sys::termios::tcgetattr(&nix::pty::openpty(None, None).unwrap().slave).unwrap();
    nix::sys::termios::cfmakeraw(&mut raw);
    let line = nix::pty::openpty(None, Some(&raw)).unwrap();
    let port = root.join("sys/class/virtio-ports/vport0p1");
    fs::create_dir_all(&port).unwrap();
    fs::write(port.join("name"), format!("org.penstock.switch.{pf}\n")).unwrap();
    fs::create_dir_all(root.join("dev")).unwrap();
    symlink(nix::unistd::ttyname(&line.slave).unwrap(), root.join("dev/vport0p1")).unwrap();
    thread::spawn(move || {
        // Without it the line ends with each process that was at it.
        let _held = line.slave;
        let mut answers = fs::File::from(line.master);
        let requests = BufReader::new(answers.try_clone().unwrap());
        for line in requests.lines().map_while(Result::ok) {
            let Ok(request) = serde_json::from_str::<Value>(&line) else { continue };
            let mut said = answer(&request);
            said["id"] = request["id"].clone();
            writeln!(answers, "{said}").unwrap();
        }
    });
}

/// What such a switch keeps of a VF with this MAC address of which nothing was set.
pub fn settings(mac: &str) -> Value {
    json!({
        "mac": mac, "vlan": 0, "qos": 0, "vlan_proto": "802.1Q", "spoofchk": true, "trust": false,
        "link_state": "auto", "max_tx_rate": 0,
    })
}

/// The answer of one that keeps these settings of its PF and of its VF 0.
pub fn state(settings: &Value) -> Value {
    json!({"ok": {"loopback": true, "ports": {"NET0": {"settings": settings}, "NET0#0": {"settings": settings}}}})
}
