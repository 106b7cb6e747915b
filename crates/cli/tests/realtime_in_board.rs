//! Real time on a board: each run-time step carried out, read back by a shell that knows nothing of Penstock, told by `verify`
//! when somebody breaks it, and taken back to what was there before, whenever the apply was killed.
//!
//! What QEMU's processor does not have (idle states, frequencies, resctrl) is tried on trees of files instead.
#![allow(clippy::disallowed_methods)]

use std::process::ExitCode;

use penstock_testkit::{
    binary::Run,
    board::{KeptBoard, own_name},
    crash, json, needs,
    trials::{Outcome, Test, Trials},
};
use serde_json::Value;

/// Where LXC keeps the container.
const GROUP: &str = "/sys/fs/cgroup/lxc.payload.penstock-rt";

fn main() -> ExitCode {
    let mut trials = Trials::from_arguments();
    trials.one_at_a_time();
    let missing = trials.lacking("boards", needs::board);
    let tests: [(&str, Test); 1] =
        [("a_container_in_real_time_comes_and_goes_without_a_trace_in_board", comes_and_goes)];
    trials.add(&missing, tests);
    trials.run()
}

fn model(machine: &str) -> String {
    format!(
        "machine: {machine}\nnics: {{NET0: {{vfs: 2}}}}\n\
         realtime: {{isolated: 2-3, wake_latency: 0, throttling: off}}\n\
         guests: {{rt: {{pin: 2, realtime: {{policy: fifo, priority: 5, interrupts: 1}}, functions: [NET0#0]}}}}\n\
         board: {{cpus: 4}}\n"
    )
}

fn state(board: &KeptBoard) -> Value {
    crash::state(board, &[]).expect("the state is read")
}

/// What a line of shell in the board prints.
fn said(board: &KeptBoard, line: &str) -> String {
    board.shell(line).stdout.trim().to_owned()
}

/// What `verify` says is wrong. Also on an emulated CPU with PREEMPT_RT, where igbvf misses answers of its PF, each VF has its address and
/// its link: `apply` has seen to that.
fn wrong(verified: &Run) -> Vec<String> {
    let lines = verified.stdout.lines().chain(verified.stderr.lines());
    let wrong = lines.filter(|line| line.starts_with("fail")).map(str::to_owned);
    let wrong: Vec<String> = wrong.collect();
    assert!(verified.status <= 1 && verified.stdout.contains(" pass, "), "{}", verified.stderr);
    wrong
}

fn comes_and_goes() -> Outcome {
    let name = own_name("realtime");
    let board = KeptBoard::up(&name, &model(&name))?;
    crash::furnish(&board)?;
    let apply = ["penstock", "apply", "--quiet", board.model()];
    let undo = ["penstock", "undo", "--quiet"];
    let verify = ["penstock", "verify", board.model()];

    let before = state(&board);

    board.inside(apply).ended_with(0)?;
    let fields = |line: &str| said(&board, line);
    assert_eq!(fields(&format!("cat {GROUP}/cpuset.cpus.partition")), "isolated");
    assert_eq!(fields(&format!("cat {GROUP}/cpuset.cpus.effective")), "2");
    assert_eq!(fields("cat /sys/fs/cgroup/cpuset.cpus.isolated"), "2-3");
    assert_eq!(fields("cat /sys/fs/cgroup/penstock-isolated/cpuset.cpus.effective"), "3");
    assert_eq!(fields("grep Cpus_allowed_list /proc/1/status"), "Cpus_allowed_list:\t0-1");
    assert_eq!(fields("cat /proc/irq/default_smp_affinity /sys/devices/virtual/workqueue/cpumask"), "3\n3");
    let strict = fields("cat /sys/devices/system/cpu/cpu[0-3]/power/pm_qos_resume_latency_us");
    assert_eq!(strict, "0\n0\nn/a\nn/a");
    let throttling =
        "cat /proc/sys/kernel/sched_rt_runtime_us /sys/kernel/debug/sched/fair_server/cpu[23]/runtime";
    assert_eq!(fields(throttling), "-1\n0\n0");
    // Every process of the container, also one that comes later.
    let policies = format!(
        "lxc-attach -P /run/penstock/guests -n penstock-rt -- true; for process in $(cat {GROUP}/cgroup.procs); do chrt -p $process; done \
         | sed 's/.*: //' | sort -u"
    );
    assert_eq!(fields(&policies), "5\nSCHED_FIFO");
    // Where interrupts go in fact: none but the kernel's own queues to the CPUs that are isolated, and the IOMMU's, which moves
    // when it comes the next time; the VF's where they were asked for.
    let interrupts = "grep -v -e 'virtio[0-9]*-req' -e timer -e dmar /proc/interrupts | grep -o '^ *[0-9]*:' | tr -d ' :' | \
                      while read n; do cat /proc/irq/$n/effective_affinity_list; done | sort -u";
    assert_eq!(fields(interrupts), "0\n1");
    let of_vf = "for n in $(ls /sys/bus/pci/devices/0000:01:10.0/msi_irqs); do cat /proc/irq/$n/smp_affinity_list; done | sort -u";
    assert_eq!(fields(of_vf), "1");
    assert_eq!(wrong(&board.inside(verify)), [""; 0]);
    let again = board.inside(["penstock", "plan", board.model()]).stdout;
    assert!(again.contains("Nothing to do") || again.contains("nothing to do"), "{again}");

    // Whatever somebody breaks by hand is told.
    board.shell(&format!("echo member > {GROUP}/cpuset.cpus.partition")).ended_with(0)?;
    board.shell("echo f > /sys/devices/virtual/workqueue/cpumask").ended_with(0)?;
    board.shell("echo 0 > /sys/devices/system/cpu/cpu2/power/pm_qos_resume_latency_us").ended_with(0)?;
    board.shell(&format!("chrt -o -p 0 $(head -n1 {GROUP}/cgroup.procs)")).ended_with(0)?;
    let broken = board.inside(verify);
    assert_eq!(broken.status, 1, "{}", broken.stderr);
    for line in ["rt partition", "machine workqueues", "rt wake_latency of CPU 2", "rt policy"] {
        assert!(broken.stdout.contains(line), "{line}: {}", broken.stdout);
    }
    // Another apply puts it right, and both are taken back.
    board.inside(apply).ended_with(0)?;
    assert_eq!(wrong(&board.inside(verify)), [""; 0]);
    board.inside(undo).ended_with(0)?;
    board.inside(undo).ended_with(0)?;
    let differs = crash::differences(&before, &state(&board));
    assert!(differs.is_empty(), "after undo: {differs:#?}");

    // Killed when the CPU that is nobody's has its partition, and when the guest has its own; all steps are a benchmark's.
    let plan = board.shell(&format!("penstock plan --json {}", board.model())).stdout;
    let steps = json::read(&plan)?["steps"].as_array().cloned().unwrap_or_default();
    let of = |kind: &str| {
        let step = steps.iter().find(|step| !step["action"][kind].is_null());
        step.and_then(|step| step["id"].as_u64())
            .unwrap_or_else(|| panic!("the plan has a step {kind}: {plan}"))
    };
    let moments = [format!("done:{}", of("make_partition")), format!("done:{}", of("isolate_guest"))];
    let moments: Vec<&str> = moments.iter().map(String::as_str).collect();
    crash::kill(&board, &moments, &mut |moment| {
        assert!(moment.wrong.is_empty(), "{}: {:#?}", moment.name, moment.wrong);
    })?;
    Ok(())
}
