//! Which kernel runs.

use penstock_model::audit::{Currency, Layer};

use crate::{
    machine::Machine,
    release::Release,
    rule::{Finding, Need, Rule, Said},
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

fn rt_kernel(machine: &Machine<'_>) -> Said {
    let kernel = &machine.inventory.kernel;
    let wanted = "1";
    if kernel.realtime {
        return Finding::pass(format!("1, Linux {}", kernel.release), wanted).into();
    }
    let how = match machine.release {
        Some(release) if release < Release::new(6, 12) => {
            "install the distribution's real-time kernel (Debian: apt install linux-image-rt-amd64); before Linux 6.12 it is a patched one"
        }
        _ => {
            "install the distribution's real-time kernel (Debian: apt install linux-image-rt-amd64), or set CONFIG_PREEMPT_RT=y"
        }
    };
    Finding::fail(format!("not there, Linux {}", kernel.release), wanted, how).into()
}
