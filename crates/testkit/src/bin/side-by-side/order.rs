//! In which order programs are run.

/// The programs that take longest, the longest first: whoever begins last is waited for by nobody. Others begin after them.
const LONGEST: [&str; 34] = [
    // Without a kernel of their own.
    "claims",
    "runs_in_netns",
    "network_in_netns",
    "penstock_switch",
    "storage_in_netns",
    "probe_in_netns",
    "yaml_language_server",
    "containers",
    "inside_in_netns",
    // Against an API server on this machine: they wait most of their time.
    "rollout_in_cluster",
    "agent_in_cluster",
    // On boards.
    "rehearse_in_board",
    "guests_in_board",
    "fresh_in_tree",
    "claims_in_board",
    "tenant_in_board",
    "uplinks_in_board",
    "boot_in_board",
    "crash_in_board",
    "measure_in_board",
    "persist_in_board",
    "watch_in_board",
    "container_nics_in_board",
    "runtimes_in_board",
    "confinement_in_board",
    "json_in_board",
    "plugin_in_board",
    "switch_in_board",
    "latency_in_board",
    "campaign_in_board",
    "realtime_in_board",
    "others_in_board",
    "identity_in_board",
    "ansible_in_board",
];

/// How the names of programs end that take minutes, by what they are run in.
pub const SLOW: [&str; 5] = ["_in_board", "_in_cluster", "_in_qemu", "_in_tree", "_in_browser"];

/// Whether a program of this name takes minutes.
pub fn is_slow(name: &str) -> bool {
    SLOW.iter().any(|end| name.ends_with(end))
}

/// What programs are sorted by: those that boot nothing come first, since most mistakes show there.
pub fn place(name: &str) -> (bool, usize) {
    let listed = LONGEST.iter().position(|longest| *longest == name);
    (is_slow(name), listed.unwrap_or(LONGEST.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn what_boots_no_kernel_comes_first_and_of_either_kind_the_longest() {
        let mut names =
            ["apt_in_board", "tenant_in_board", "golden", "guests_in_board", "network_in_netns", "claims"];
        names.sort_by_key(|name| place(name));
        assert_eq!(
            names,
            ["claims", "network_in_netns", "golden", "guests_in_board", "tenant_in_board", "apt_in_board"]
        );
    }
}
