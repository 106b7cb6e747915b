//! Which of the image's two kernels a board runs, and why.

use penstock_model::{BoardKernel, GuestKind, Model};

/// A kernel, and why it and not the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelChoice {
    /// The kernel.
    pub kernel: BoardKernel,
    /// Why.
    pub why: String,
}

/// Why a board with VMs does not run the kernel that suits them.
const NO_KVM: &str = "the realtime one refuses KVM under emulation: it needs a constant TSC";

impl KernelChoice {
    /// The kernel of the model's board: what the model says, else the standard one.
    pub fn of(model: &Model) -> KernelChoice {
        let vm = model.guests.iter().find(|(_, guest)| guest.kind == GuestKind::Vm);
        let (kernel, why) = match (model.board.kernel, vm) {
            (Some(kernel), _) => (kernel, "the model says so".to_owned()),
            (None, Some((name, _))) => (BoardKernel::Standard, format!("{name} is a VM, and {NO_KVM}")),
            (None, None) => (BoardKernel::Standard, "nothing in the model asks for real time".to_owned()),
        };
        KernelChoice { kernel, why }
    }
}
