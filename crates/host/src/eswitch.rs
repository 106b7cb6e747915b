//! The mode of a PF's embedded switch over devlink, asked and set with a deadline.
//!
//! devlink keeps whoever asks waiting while firmware is flashed, a device is reloaded, or its driver recovers it, and no signal ends that.
//! So a thread of its own asks. One that has not come back by the deadline is left behind: it ends once the kernel has answered, and a
//! process that ends meanwhile is only gone then.

use std::{
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use penstock_model::{
    Bdf, Inventory,
    inventory::{Eswitch, EswitchMode, SwitchMode},
};

use crate::{NetlinkError, Root, chain, netlink::DevlinkSocket};

/// How long the mode of one PF is waited for. A driver answers at once unless it is busy with the whole device.
pub const ANSWER: Duration = Duration::from_secs(5);

/// The embedded switch of one PF; `Ok(None)` where its driver has no modes of it.
///
/// # Errors
///
/// [`NetlinkError`] when devlink does not tell; [`NetlinkError::TimedOut`] when it has not `within` that time.
pub fn eswitch(pf: Bdf, within: Duration) -> Result<Option<Eswitch>, NetlinkError> {
    let attempt = format!("read the mode of the embedded switch of {pf} with devlink");
    in_time(attempt, within, move || match DevlinkSocket::open()? {
        Some(mut socket) => socket.eswitch(pf),
        None => Ok(None),
    })
}

/// Puts the embedded switch of one PF into a mode.
///
/// # Errors
///
/// [`NetlinkError`] when the kernel or the driver refuses; [`NetlinkError::TimedOut`] when it has not been done `within` that time: it may
/// still be done later.
pub fn set_mode(pf: Bdf, mode: EswitchMode, within: Duration) -> Result<(), NetlinkError> {
    let attempt = format!("put the embedded switch of {pf} into {mode} mode with devlink");
    in_time(attempt.clone(), within, move || match DevlinkSocket::open()? {
        Some(mut socket) => socket.set_eswitch_mode(pf, mode),
        None => {
            Err(NetlinkError::Unsupported { attempt, detail: Some("this kernel has no devlink".to_owned()) })
        }
    })
}

/// Asks devlink for the modes of these PFs of the machine that Penstock runs on, and writes beside each that is not known why. An inventory
/// of another machine keeps what it has.
pub fn ask_modes(root: &Root, inventory: &mut Inventory, pfs: impl IntoIterator<Item = Bdf>) {
    if !root.is_system() {
        return;
    }
    for bdf in pfs {
        let Some(pf) = inventory.pfs.iter_mut().find(|pf| pf.bdf == bdf) else { continue };
        let devlink = pf.devlink.get_or_insert_default();
        match eswitch(bdf, ANSWER) {
            Ok(eswitch) => devlink.eswitch = eswitch,
            Err(error) => devlink.unread = Some(in_words(&error)),
        }
        // Without VFs there are no representors to know it by.
        if devlink.eswitch.is_some_and(|eswitch| eswitch.mode != EswitchMode::Legacy) {
            pf.switch_mode = SwitchMode::Switchdev;
        }
    }
}

/// Why a mode is not known, and what to do.
pub fn in_words(error: &NetlinkError) -> String {
    let what = chain(error);
    match error {
        NetlinkError::TimedOut { .. } => {
            format!(
                "{what}: the NIC's firmware is being flashed, or its driver reloads or recovers it; try again then"
            )
        }
        _ => match error.hint() {
            Some(hint) => format!("{what}; {hint}"),
            None => what,
        },
    }
}

/// What `ask` comes to, in a thread of its own, which is in the network namespace of the calling one.
fn in_time<T: Send + 'static>(
    attempt: String,
    within: Duration,
    ask: impl FnOnce() -> Result<T, NetlinkError> + Send + 'static,
) -> Result<T, NetlinkError> {
    let began = Instant::now();
    let (to, from) = mpsc::channel();
    // Nobody may be there any more to hear the answer.
    let asking = move || drop(to.send(ask()));
    if let Err(source) = thread::Builder::new().name("devlink".to_owned()).spawn(asking) {
        return Err(NetlinkError::Socket { attempt, source });
    }
    from.recv_timeout(within)
        .unwrap_or_else(|_| Err(NetlinkError::TimedOut { attempt, after: began.elapsed() }))
}

#[cfg(test)]
mod tests {
    use nix::errno::Errno;

    use super::*;

    #[test]
    fn who_does_not_answer_is_not_waited_for_without_end() {
        let (release, held) = mpsc::channel::<()>();
        let stuck = in_time("read the mode".to_owned(), Duration::from_millis(50), move || {
            let _ = held.recv();
            Ok(())
        });
        let words = in_words(&stuck.unwrap_err());
        assert!(words.starts_with("could not read the mode within "), "{words}");
        assert!(words.contains("firmware") && words.contains("try again"), "{words}");
        drop(release);
        assert_eq!(in_time(String::new(), Duration::from_secs(60), || Ok(7)).unwrap(), 7);
    }

    #[test]
    fn what_the_driver_says_to_a_refusal_is_told() {
        let refused = in_time(String::new(), Duration::from_secs(60), || {
            let detail = Some("there are VFs".to_owned());
            Err::<(), _>(NetlinkError::answered("set it", Errno::EOPNOTSUPP, detail))
        });
        assert_eq!(
            in_words(&refused.unwrap_err()),
            "could not set it: the driver does not support it (kernel: there are VFs)"
        );
        let not_root = NetlinkError::answered("read it", Errno::EPERM, None);
        assert!(in_words(&not_root).contains("not permitted; run as root"), "{}", in_words(&not_root));
    }

    #[test]
    fn an_inventory_of_another_machine_is_left_as_it_is() {
        let tree = tempfile::tempdir().unwrap();
        let root = Root::recorded(tree.path());
        let mut inventory = crate::scan(&root, None);
        let before = inventory.clone();
        ask_modes(&root, &mut inventory, ["0000:08:00.0".parse().unwrap()]);
        assert_eq!(inventory, before);
    }
}
