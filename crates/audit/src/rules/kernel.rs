//! Which kernel runs.

use penstock_model::audit::{Currency, Layer};

use crate::{
    advice::by_hand,
    machine::Machine,
    rule::{Finding, Need, Rule, RuleResult},
};

pub(super) const RULES: &[Rule] = &[Rule {
    id: "rt-kernel",
    layer: Layer::Kernel,
    what: "whether the kernel is a real-time kernel (/sys/kernel/realtime)",
    why: "only PREEMPT_RT lets a thread of higher priority run while the kernel holds locks or handles interrupts",
    price: Some((
        Currency::Throughput,
        "interrupt threads and sleeping locks cost some per cent of throughput",
    )),
    source: "Documentation/core-api/real-time; in mainline since Linux 6.12",
    needs_root: false,
    need: Need::Isolation,
    judge: rt_kernel,
}];

fn rt_kernel(machine: &Machine<'_>) -> RuleResult {
    let kernel = &machine.inventory.kernel;
    let wanted = "1";
    // The file is not there in some patched kernels before it was merged; the build says it of all.
    if kernel.realtime || machine.built_with("PREEMPT_RT") == Some(true) {
        return Finding::pass(format!("1, Linux {}", kernel.release), wanted).into();
    }
    let read = match machine.built_with("PREEMPT_RT") {
        Some(_) => format!("not there, Linux {}, built without PREEMPT_RT", kernel.release),
        None => format!("not there, Linux {}", kernel.release),
    };
    let how = by_hand(
        "install the distribution's real-time kernel (Debian: apt install linux-image-rt-amd64; Red Hat: kernel-rt; Ubuntu: pro enable realtime-kernel), and start it",
    );
    Finding::fail(read, wanted, how).into()
}
