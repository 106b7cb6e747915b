//! Which of the image's two kernels a board runs, and why.

use penstock_model::{BoardKernel, GuestKind, Model};

/// A kernel, and why it and not the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelChoice {
    /// Which of the image's two kernels the board runs.
    pub kernel: BoardKernel,
    /// Why it is this one, in words.
    pub why: String,
}

/// Why a board with VMs does not run the kernel that suits them.
const NO_KVM: &str = "the realtime one refuses KVM under emulation: it needs a constant TSC";

impl KernelChoice {
    /// The kernel of the model's board: what the model says, else the realtime one for a model that asks for real time and has no
    /// VM, else the standard one.
    pub fn of(model: &Model) -> KernelChoice {
        use BoardKernel::{Realtime, Standard};
        let vm = model.guests.iter().find(|(_, guest)| guest.kind == GuestKind::Vm);
        let asks = asks_for_real_time(model);
        let (kernel, why) = match (model.board.kernel, vm) {
            (Some(kernel), _) => (kernel, "the model says so".to_owned()),
            (None, Some((name, _))) if asks => (Standard, format!("{name} is a VM, and {NO_KVM}")),
            (None, None) if asks => (Realtime, "the model asks for real time and has no VM".to_owned()),
            (None, _) => (Standard, "nothing in the model asks for real time".to_owned()),
        };
        KernelChoice { kernel, why }
    }
}

/// Whether the model says anything of real time, for the machine or for a guest.
pub fn asks_for_real_time(model: &Model) -> bool {
    model.realtime.is_some() || model.guests.values().any(|guest| guest.realtime.is_some())
}
