//! In which order programs are run.

use crate::room::Kind;

/// The programs that take longest, the longest first: whoever begins last is waited for by nobody. Others begin after them.
const LONGEST: &[&str] = &[
    // Against an API server on this machine: they wait most of their time.
    "rollout_in_cluster",
    "agent_in_cluster",
    // Without a kernel of their own.
    "runs_in_netns",
    "network_faults_in_netns",
    "penstock_switch",
    "network_in_netns",
    "storage_in_netns",
    "hostile_templates",
    "properties",
    "penstock_report",
    "yaml_language_server",
    "containers",
    "probe_in_netns",
    "hostile",
    "inside_in_netns",
    "remote_over_ssh",
    "penstock_apply",
    "penstock_kubernetes",
    "kept_runs",
    "exit_status",
    "elsewhere",
    // On boards.
    "fresh_in_tree",
    "claims_in_board",
    "tenant_in_board",
    "uplinks_in_board",
    "guests_in_board",
    "rehearse_in_board",
    "boot_in_board",
    "crash_in_board",
    "watch_in_board",
    "confinement_in_board",
    "incus_in_board",
    "json_in_board",
    "container_nics_in_board",
    "measure_in_board",
    "latency_in_board",
    "export_in_board",
    "persist_in_board",
    "realtime_in_board",
    "plugin_in_board",
    "switch_in_board",
    "ansible_in_board",
    "campaign_in_board",
    "cluster_in_board",
    "drives_in_board",
    "identity_in_board",
    "runtimes_in_board",
    "others_in_board",
    "vduse_in_board",
    "page_in_browser",
    "remote_in_board",
    "attach_in_board",
    "nvme_in_board",
    "composition_in_qemu",
    "capabilities_in_board",
    "packages_in_tree",
];

/// How the names of programs end that take minutes, by what they are run in.
pub const SLOW: [&str; 5] = ["_in_board", WAITING, "_in_qemu", "_in_tree", "_in_browser"];

/// How the names of those end that talk to a cluster on this machine.
const WAITING: &str = "_in_cluster";

/// Whether a program of this name takes minutes.
pub fn is_slow(name: &str) -> bool {
    SLOW.iter().any(|end| name.ends_with(end))
}

/// Whether a program of this name takes minutes and waits most of them: it boots nothing, and takes nobody's place.
pub fn waits(name: &str) -> bool {
    name.ends_with(WAITING)
}

/// Whether a program of this name may have a board.
pub fn boots(name: &str) -> bool {
    is_slow(name) && !waits(name)
}

/// What a program of this name takes.
pub fn kind(name: &str) -> Kind {
    if boots(name) { Kind::Boots } else { Kind::BootsNothing }
}

/// What programs are sorted by: those that boot nothing come first, since most mistakes show there.
pub fn place(name: &str) -> (bool, usize) {
    let listed = LONGEST.iter().position(|longest| *longest == name);
    (boots(name), listed.unwrap_or(LONGEST.len()))
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use super::*;

    /// The names of all test programs of this tree, as cargo has them: of the files and folders of `tests`, and of unit tests the package's.
    fn all_programs() -> Vec<String> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let folders = fs::read_dir(root.join("crates")).unwrap().map(|entry| entry.unwrap().path());
        let mut names = Vec::new();
        for folder in folders.chain([root.join("switch")]) {
            let name = folder.file_name().unwrap().to_str().unwrap();
            names.push(format!("penstock_{}", name.replace('-', "_")));
            let Ok(tests) = fs::read_dir(folder.join("tests")) else { continue };
            let files = tests.map(|entry| entry.unwrap().path());
            let programs = files.filter(|file| {
                file.extension().is_some_and(|end| end == "rs") || file.join("main.rs").is_file()
            });
            names.extend(programs.map(|file| file.file_stem().unwrap().to_str().unwrap().to_owned()));
        }
        names
    }

    #[test]
    fn the_longest_are_programs_of_this_tree_and_all_slow_ones_are_among_them() {
        let all = all_programs();
        for name in LONGEST {
            assert!(all.iter().any(|program| program == name), "{name} is no test program: take it out");
            assert_eq!(LONGEST.iter().filter(|other| *other == name).count(), 1, "{name} stands twice");
        }
        for slow in all.iter().filter(|name| is_slow(name)) {
            assert!(
                LONGEST.contains(&slow.as_str()),
                "{slow} takes minutes: say in LONGEST how long beside others"
            );
        }
    }

    #[test]
    fn quick_leaves_out_what_boots_a_kernel_or_a_cluster_and_nothing_else() {
        for slow in [
            "rehearse_in_board",
            "rollout_in_cluster",
            "composition_in_qemu",
            "fresh_in_tree",
            "page_in_browser",
        ] {
            assert!(is_slow(slow), "{slow}");
        }
        for quick in ["network_in_netns", "golden", "penstock_model", "board"] {
            assert!(!is_slow(quick), "{quick}");
        }
    }

    #[test]
    fn a_cluster_on_this_machine_takes_no_boards_place() {
        assert!(waits("rollout_in_cluster") && !boots("rollout_in_cluster"));
        for slow in ["rehearse_in_board", "cluster_in_board", "fresh_in_tree"] {
            assert!(boots(slow) && !waits(slow), "{slow}");
        }
    }

    #[test]
    fn what_boots_no_kernel_comes_first_and_of_either_kind_the_longest() {
        let mut names = [
            "apt_in_board",
            "guests_in_board",
            "golden",
            "tenant_in_board",
            "network_in_netns",
            "agent_in_cluster",
        ];
        names.sort_by_key(|name| place(name));
        assert_eq!(
            names,
            [
                "agent_in_cluster",
                "network_in_netns",
                "golden",
                "tenant_in_board",
                "guests_in_board",
                "apt_in_board"
            ]
        );
    }
}
