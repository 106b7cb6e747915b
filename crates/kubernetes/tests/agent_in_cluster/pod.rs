//! The agent of a pod, on the pod's node.

use super::*;

pub fn pod_becomes_agent() {
    let mut node = Node::new("pod", &igb());
    // As kubelet keeps a pod's projected volume; its token is one of the pod's account that is bound to the node.
    let volume = node.path("kubelet/pods/u-1/volumes/kubernetes.io~projected/token");
    for directory in [
        &volume,
        &node.path("kubelet/plugins"),
        &node.path("kubelet/plugins_registry"),
        &node.path("image"),
        &node.path("cdi"),
    ] {
        fs::create_dir_all(directory).unwrap();
    }
    fs::write(volume.join("token"), node.plane.token_of_agent(&node.name)).unwrap();
    fs::copy(node.plane.path("ca.crt"), volume.join("ca.crt")).unwrap();
    let config = fs::read_to_string(node.path("kubeconfig")).unwrap();
    let server = config.split_once("server: ").unwrap().1.lines().next().unwrap().to_owned();
    // The image is mounted in the pod's namespaces alone, and its network has no way to the API server.
    let script = "mount -t tmpfs none \"$2/image\" && cp \"$1\" \"$2/image/penstock-kubernetes\" && cp \"$2/penstock\" \"$2/image/penstock\" && \
                  exec \"$2/image/penstock-kubernetes\" host --pod u-1 --server \"$3\" --penstock \"$2/image/penstock\" \
                  --directory \"$2/opt\" --kubelet-directory \"$2/kubelet\" -- --node pod --rescan 1 --state \"$2/state\" --cdi-directory \"$2/cdi\"";
    let log = OpenOptions::new().create(true).append(true).open(node.path("log")).unwrap();
    let errors = log.try_clone().unwrap();
    // The machine: a first process, and the mounts that go with its processes. In it the pod, which has namespaces of its own but for processes.
    let machine = "unshare --mount --uts --ipc --net sh -c \"$4\" pod \"$1\" \"$2\" \"$3\" & wait";
    let mut command = Command::new("unshare");
    command.args(["--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", machine, "machine"]);
    command
        .args([env!("CARGO_BIN_EXE_penstock-kubernetes")])
        .arg(node.directory.path())
        .arg(server)
        .arg(script);
    node.agent = Some(command.stdin(Stdio::null()).stdout(log).stderr(errors).spawn().unwrap());
    node.until("seven VFs", |devices| devices.len() == 7);
    let copied = node.path("opt/bin/penstock-kubernetes");
    let runs =
        |entry: fs::DirEntry| fs::read_link(entry.path().join("exe")).is_ok_and(|program| program == copied);
    assert!(fs::read_dir("/proc").unwrap().flatten().any(runs), "the agent is the copy on the node");
    for (name, mode) in [("bin/penstock-kubernetes", 0o755), ("bin/penstock", 0o755), ("kubeconfig", 0o600)] {
        let file = fs::metadata(node.path("opt").join(name)).unwrap();
        assert_eq!(file.permissions().mode() & 0o777, mode, "{name}");
    }
    assert!(!node.path("image/penstock").exists(), "the pod's mounts are the pod's");
    // Without `hostPID` the first process is the pod's own.
    let output = Command::new("unshare")
        .args([
            "--mount",
            "--pid",
            "--fork",
            "--mount-proc",
            env!("CARGO_BIN_EXE_penstock-kubernetes"),
            "host",
            "--pod",
            "u-1",
        ])
        .args(["--server", "https://127.0.0.1:1", "--penstock", "/bin/sh", "--", "--node", "pod"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("hostPID"), "{said}");
}
