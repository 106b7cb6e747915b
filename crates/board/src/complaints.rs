//! What a board's kernel has said on its console when something is wrong with it.

/// Parts of such lines: hung tasks (kernel/hung_task.c), RCU stalls (kernel/rcu/tree_stall.h), lockups (kernel/watchdog.c), oopses and
/// panics (arch/x86/kernel/dumpstack.c, kernel/panic.c), memory (mm/oom_kill.c).
const SIGNS: [&str; 9] = [
    "blocked for more than",
    "rcu: INFO:",
    "soft lockup",
    "hard LOCKUP",
    "Kernel panic",
    "BUG:",
    "Oops:",
    "Out of memory:",
    "general protection fault",
];

/// So many are told, the first ones: what follows is mostly their consequence.
const MOST: usize = 4;

/// The first oops, when it is one of a breakpoint that nobody set (`exc_int3`, arch/x86/kernel/traps.c).
const STALE_TRAP: &str = "int3: 0000 [#1]";

/// The line of a kernel that met a breakpoint of its own where none is any more.
///
/// A kernel that replaces code while other CPUs run it puts a breakpoint of one byte there first, and takes it away when all of them have seen it
/// (`text_poke_bp_batch`, arch/x86/kernel/alternative.c). No processor meets it later. QEMU's emulation can: it forgets its translation of the code
/// just before the write, and another CPU may translate the old bytes once more in between, which it then goes on running.
pub fn stale_trap(console: &str) -> Option<&str> {
    let line = console.lines().find(|line| line.contains(STALE_TRAP))?;
    Some(without_time(line))
}

/// The first lines of a console that say that something is wrong, each text once, without their times.
pub fn complaints(console: &str) -> Vec<&str> {
    let mut found: Vec<&str> = Vec::new();
    for line in console.lines().filter(|line| SIGNS.iter().any(|sign| line.contains(sign))) {
        let text = without_time(line);
        if !found.contains(&text) {
            found.push(text);
        }
        if found.len() == MOST {
            break;
        }
    }
    found
}

fn without_time(line: &str) -> &str {
    line.split_once("] ").map_or(line, |(_, text)| text).trim()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hung_tasks_are_found_among_what_a_kernel_says() {
        let console = "[   22.423379] igb 0000:02:00.0 eth0: igb: eth0 NIC Link is Up 1000 Mbps Full Duplex, Flow Control: RX/TX\n\
            [  242.954619] INFO: task kworker/u12:2:38 blocked for more than 120 seconds.\n\
            [  242.955095]       Not tainted 6.12.107+deb13-amd64 #1 Debian 6.12.107-1\n\
            [  242.955429] \"echo 0 > /proc/sys/kernel/hung_task_timeout_secs\" disables this message.\n\
            [  242.964472] INFO: task penstock:284 blocked for more than 120 seconds.\n\
            [  363.815379] INFO: task penstock:284 blocked for more than 120 seconds.\n";
        assert_eq!(
            complaints(console),
            [
                "INFO: task kworker/u12:2:38 blocked for more than 120 seconds.",
                "INFO: task penstock:284 blocked for more than 120 seconds."
            ]
        );
        assert_eq!(complaints("[    0.190340] rcu: Preemptible hierarchical RCU implementation.\n"), [""; 0]);
    }

    #[test]
    fn a_breakpoint_that_nobody_set_is_told_from_other_oopses() {
        let console = "[    1.869200] Oops: int3: 0000 [#1] PREEMPT_RT SMP NOPTI\n\
            [    1.869653] RIP: 0010:sched_clock_cpu+0x9/0x1d0\n\
            [    1.869900] Kernel panic - not syncing: Fatal exception in interrupt\n";
        assert_eq!(stale_trap(console), Some("Oops: int3: 0000 [#1] PREEMPT_RT SMP NOPTI"));
        // One that followed another fault, and a fault of another kind.
        assert_eq!(stale_trap("[    1.869200] Oops: int3: 0000 [#2] PREEMPT_RT SMP NOPTI\n"), None);
        assert_eq!(stale_trap("[    1.869200] Oops: Oops: 0002 [#1] SMP NOPTI\n"), None);
    }

    #[test]
    fn no_more_are_told_than_can_be_read() {
        let console: String = (0..50).map(|n| format!("[ 1.0] BUG: number {n}\n")).collect();
        assert_eq!(complaints(&console).len(), MOST);
    }
}
