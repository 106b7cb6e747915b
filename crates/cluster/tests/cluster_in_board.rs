//! Clusters as a user has them: up, used, and gone. Skipped by name where no Go that builds Kubernetes is installed.
#![allow(clippy::disallowed_methods)]

use std::{
    env, fs,
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Child, ExitCode, Stdio},
    time::Duration,
};

use penstock_cluster::KeptCluster;
use penstock_host::running::Running;
use penstock_testkit::{
    binary::{self, Run, run},
    cluster::{self, TestCluster, until},
    json,
    needs::{self, Lack},
    trials::{Failed, Outcome, Test, Trials},
};
use serde_json::Value;

/// An igb NIC with VFs, and a guest that nobody starts here.
const MODEL: &str = "machine: MACHINE\nnics: {NET0: {vfs: 3}}\nguests: {a: {functions: [NET0#0]}}\n";

const SLEEPER: &str = r#"{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "NAME"}, "spec": {
    "nodeName": "NODE", "terminationGracePeriodSeconds": 5,
    "containers": [{"name": "main", "image": "localhost/penstock:1", "imagePullPolicy": "Never"}]}}"#;

/// Asks for what a cluster costs, beside what is wanted: figures for a machine that does nothing else, which no test run is (`make bars`).
const BARS: &str = "PENSTOCK_BARS";

const FAKE: &str = r#"{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "fake-1", "annotations": {"kwok.x-k8s.io/node": "fake"}}}"#;

fn main() -> ExitCode {
    let mut trials = Trials::from_arguments();
    trials.one_at_a_time();
    let missing = trials.lacking("clusters", || needs::board().or_else(cluster::lacking));
    let tests: [(&str, Test); 3] = [
        ("a_cluster_runs_pods_outlives_breaks_and_leaves_nothing_in_board", a_cluster_is_used),
        ("an_interrupted_cluster_leaves_nothing_in_board", an_interrupted_cluster_leaves_nothing),
        ("a_cluster_whose_up_was_killed_is_cleared_away_in_board", a_killed_up_is_cleared_away),
    ];
    trials.add(&missing, tests);
    let unasked =
        env::var_os(BARS).is_none().then(|| Lack::Machine(format!("{BARS} asks for figures: `make bars`")));
    let figures: [(&str, Test); 1] = [("what_a_cluster_of_two_nodes_costs_in_board", what_two_nodes_cost)];
    trials.add(&missing.or(unasked), figures);
    trials.run()
}

/// A cluster of this model, which is not up yet.
fn bed(test: &str) -> Result<TestCluster, Failed> {
    TestCluster::new(test, MODEL)
}

/// Brings it up.
fn up(bed: &TestCluster, more: &[&str]) -> Result<(KeptCluster, Run), Failed> {
    let (document, run) = bed.up(more)?;
    Ok((serde_json::from_value(document["cluster"].clone())?, run))
}

/// A pod on a node runs, and is deleted.
fn try_a_pod(bed: &TestCluster, node: &str, name: &str) -> Outcome {
    bed.apply(&SLEEPER.replace("NAME", name).replace("NODE", node))?;
    let pod = format!("pod/{name}");
    bed.said(&["wait", "--for=condition=Ready", "--timeout=300s", &pod])?;
    let inside = bed.on(node, "ctr -n k8s.io tasks list")?;
    assert!(inside.matches("RUNNING").count() >= 2, "sandbox and container: {inside}");
    bed.said(&["delete", "--timeout=300s", &pod]).map(drop)
}

/// Nothing is left of a cluster: neither its processes, nor its boards, nor its directory.
fn is_gone(bed: &TestCluster, cluster: &KeptCluster) -> Outcome {
    let boards = cluster.nodes.iter().filter_map(|node| node.qemu);
    for process in cluster.programs.iter().map(|program| program.process).chain(boards) {
        assert!(!process.is_alive(), "{process:?} of {cluster}");
    }
    let directory = cluster.kubeconfig.parent().unwrap();
    assert!(!directory.exists(), "{}", directory.display());
    for listed in [bed.cluster(&["list"]), run(bed.at(), ["board", "list"])] {
        listed.ended_with(0)?;
        assert!(!listed.stdout.contains(bed.name()), "{}", listed.stdout);
    }
    Ok(())
}

fn a_cluster_is_used() -> Outcome {
    let bed = bed("bed")?;
    let (cluster, _) = up(&bed, &["--kwok"])?;
    let nodes: Vec<&str> = cluster.nodes.iter().map(|node| node.name.as_str()).collect();
    assert_eq!(nodes, [format!("{}-1", bed.name()), format!("{}-2", bed.name())]);
    let first = nodes[0];
    bed.cluster(&["up", "model.yaml"]).ended_with(2)?;
    resident(&cluster);

    nobody_else_is_let_in(&bed, &cluster)?;
    // The node's own identity, from the node.
    let own = bed
        .on(first, &format!("kubectl --kubeconfig /etc/kubernetes/kubelet.conf get node {first} -o name"))?;
    assert_eq!(own.trim(), format!("node/{first}"));
    // A service account's token that is bound to a node says so.
    bed.said(&["create", "serviceaccount", "agent"])?;
    let bound = ["create", "token", "agent", "--bound-object-kind", "Node", "--bound-object-name", first];
    let token = bed.said(&bound)?;
    let review = format!(
        r#"{{"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {{"token": "{}"}}}}"#,
        token.trim()
    );
    fs::write(bed.at().join("review.json"), review)?;
    let review = bed.at().join("review.json");
    let review = bed.said(&["create", "-o", "json", "-f", &review.to_string_lossy()])?;
    let review: Value = serde_json::from_str(&review)?;
    assert_eq!(
        review["status"]["user"]["extra"]["authentication.kubernetes.io/node-name"][0], first,
        "{review}"
    );
    let served = bed.said(&["api-resources", "--api-group", "resource.k8s.io", "-o", "name"])?;
    assert!(served.contains("resourceslices.resource.k8s.io"), "{served}");

    for node in &nodes {
        try_a_pod(&bed, node, "sleeper")?;
    }
    bed.apply(FAKE)?;
    bed.said(&["wait", "--for=condition=Ready", "--timeout=300s", "node/fake-1"])?;

    let renewed =
        || bed.said(&["get", "lease", "-n", "kube-node-lease", first, "-o", "jsonpath={.spec.renewTime}"]);
    // kubelet is started anew and goes on with its node.
    bed.on(first, "/opt/kubernetes/kubelet stop && ! /opt/kubernetes/kubelet status")?;
    let before = renewed()?;
    bed.on(first, "/opt/kubernetes/kubelet start")?;
    until("kubelet renews its lease", || Ok(renewed()? != before))?;
    // Every connection to the API server breaks.
    let broken = carriers(&cluster);
    assert!(!broken.is_empty(), "nobody carries a connection");
    broken.iter().for_each(|carrier| assert!(carrier.kill(Duration::from_secs(30))));
    let before = renewed()?;
    until("kubelet renews its lease", || Ok(renewed()? != before))?;
    try_a_pod(&bed, first, "again")?;

    bed.cluster(&["down", bed.name()]).ended_with(0)?;
    is_gone(&bed, &cluster)?;
    bed.cluster(&["down", bed.name()]).ended_with(2)?;

    // What the first one has made is there.
    let (cluster, again) = up(&bed, &["--nodes", "1"])?;
    assert!(again.stderr.contains("Resuming the saved board"), "{}", again.stderr);
    for once in ["Building", "Fetching", "Packing", "Booting"] {
        assert!(!again.stderr.contains(once), "{}", again.stderr);
    }
    bed.cluster(&["down", bed.name()]).ended_with(0)?;
    is_gone(&bed, &cluster)?;
    Ok(())
}

fn what_two_nodes_cost() -> Outcome {
    let bed = bed("bars")?;
    // What is made once is made by this one.
    bed.up(&[])?;
    bed.cluster(&["down", bed.name()]).ended_with(0)?;
    let (document, run) = bed.up(&[])?;
    let cluster: KeptCluster = serde_json::from_value(document["cluster"].clone())?;
    let whole = document["seconds"].as_f64().ok_or("`up` says no seconds")?;
    let took = |what: &str| {
        since_the_beginning(&run.stderr, what).ok_or_else(|| format!("no {what}: {}", run.stderr))
    };
    let ready = took("nodes Ready")? - took("board up")?;
    eprintln!("two nodes, everything made before: ready after {whole:.0} s (wanted: 90 s)");
    eprintln!("the second node: ready {ready:.0} s after its board was up (wanted: 30 s)");
    eprintln!("resident of all: {:.1} GB (wanted: 5 GB)", resident(&cluster) as f64 / 1e9);
    bed.cluster(&["down", bed.name()]).ended_with(0)?;
    is_gone(&bed, &cluster)
}

/// When a phase of `up` had ended the last time, in seconds since the beginning, as its line `Took:` has it.
fn since_the_beginning(said: &str, phase: &str) -> Option<f64> {
    let line = said.lines().find_map(|line| line.strip_prefix("Took: "))?;
    let last = line.trim_end_matches('.').split(", ").filter_map(|part| part.strip_prefix(phase)).last()?;
    last.trim().strip_suffix(" s")?.parse().ok()
}

/// The bytes that are resident of the control plane and the boards; what each has is told to whoever reads the test's output.
fn resident(cluster: &KeptCluster) -> u64 {
    let of = |process: Running| {
        let status = fs::read_to_string(format!("/proc/{}/status", process.id)).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or("0");
        line.trim().trim_end_matches("kB").trim().parse::<u64>().unwrap_or(0) / 1024
    };
    let programs = cluster.programs.iter().map(|program| (program.name.as_str(), of(program.process)));
    let nodes = cluster.nodes.iter().filter_map(|node| Some((node.name.as_str(), of(node.qemu?))));
    let all: Vec<(&str, u64)> = programs.chain(nodes).collect();
    let lines: Vec<String> = all.iter().map(|(name, mib)| format!("{name} {mib}")).collect();
    let sum: u64 = all.iter().map(|(_, mib)| mib).sum();
    eprintln!("resident, MiB: {}; {sum} in all", lines.join(", "));
    sum << 20
}

/// The processes that carry connections of the cluster's nodes: they work in the directories of the boards, as their QEMUs do.
fn carriers(cluster: &KeptCluster) -> Vec<Running> {
    let places: Vec<_> = cluster.nodes.iter().filter_map(|node| cwd(node.qemu?.id)).collect();
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let ids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let carries = |id: &u32| {
        let line = fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0).nth(1) == Some(b"forward-connection")
            && cwd(*id).is_some_and(|cwd| places.contains(&cwd))
    };
    ids.filter(carries).filter_map(Running::of).collect()
}

fn cwd(process: u32) -> Option<std::path::PathBuf> {
    fs::read_link(format!("/proc/{process}/cwd")).ok()
}

/// Neither who has no token, nor who reads what others leave open.
fn nobody_else_is_let_in(bed: &TestCluster, cluster: &KeptCluster) -> Outcome {
    let directory = cluster.kubeconfig.parent().unwrap();
    let mode = |path: &Path| fs::metadata(path).map(|data| data.permissions().mode() & 0o777);
    assert_eq!(mode(directory)?, 0o700);
    for name in ["kubeconfig", "tokens.csv", "server.key", "etcd.key", "accounts.key", "cluster.json"] {
        assert_eq!(mode(&directory.join(name))?, 0o600, "{name}");
    }
    let config: Value = serde_json::from_str(&fs::read_to_string(&cluster.kubeconfig)?)?;
    let token = config["users"][0]["user"]["token"].as_str().unwrap();
    for process in cluster.programs.iter().map(|program| program.process.id) {
        let line = fs::read(format!("/proc/{process}/cmdline"))?;
        assert!(!String::from_utf8_lossy(&line).contains(token));
    }
    let mut stranger = config.clone();
    stranger["users"][0]["user"] = serde_json::json!({"token": "guessed"});
    let file = bed.at().join("stranger");
    fs::write(&file, stranger.to_string())?;
    let refused = bed.kubectl(&["--kubeconfig", &file.to_string_lossy(), "get", "--raw", "/version"]);
    assert!(refused.status != 0 && refused.stderr.contains("Unauthorized"), "{refused:?}");
    Ok(())
}

/// `up` in the background, until the programs of the control plane are written down.
fn begun(bed: &TestCluster) -> Result<(Child, KeptCluster), Failed> {
    let mut command = binary::command(bed.at());
    command.args(["board", "cluster", "up", "model.yaml"]).stdout(Stdio::null()).stderr(Stdio::null());
    let child = command.spawn()?;
    let mut found = None;
    until("a node's board runs", || {
        let listed: Value = json::read(&bed.cluster(&["list", "--json"]).stdout)?;
        let clusters: Vec<KeptCluster> = serde_json::from_value(listed["clusters"].clone())?;
        let begun = |cluster: &KeptCluster| {
            cluster.name == bed.name() && cluster.nodes.iter().any(|node| node.qemu.is_some())
        };
        found = clusters.into_iter().find(begun);
        Ok(found.is_some())
    })?;
    Ok((child, found.expect("it was found")))
}

fn an_interrupted_cluster_leaves_nothing() -> Outcome {
    let bed = bed("stopped")?;
    let (mut child, cluster) = begun(&bed)?;
    assert!(cluster.owner.is_some() && cluster.programs.len() >= 2, "{cluster}");
    binary::interrupt(&child);
    assert_eq!(child.wait()?.code(), Some(130));
    is_gone(&bed, &cluster)?;
    Ok(())
}

fn a_killed_up_is_cleared_away() -> Outcome {
    let bed = bed("killed")?;
    let (mut child, cluster) = begun(&bed)?;
    child.kill()?;
    child.wait()?;
    // The next who looks ends what is left.
    bed.cluster(&["list"]).ended_with(0)?;
    is_gone(&bed, &cluster)?;
    Ok(())
}
