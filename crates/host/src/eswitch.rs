//! The mode of a PF's embedded switch over devlink, asked and set with a deadline.
//!
//! devlink keeps whoever asks waiting while firmware is flashed, a device is reloaded, or its driver recovers it, and no signal ends that.
//! So a thread of its own asks. One that has not come back by the deadline is left behind: it ends once the kernel has answered, and a
//! process that ends meanwhile is only gone then. While one is left behind, nothing else is asked of its PF: what it set may still come.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
        mpsc::{self, Receiver, RecvTimeoutError},
    },
    thread,
    time::{Duration, Instant},
};

use penstock_model::{
    Bdf, Inventory,
    inventory::{Eswitch, EswitchMode, SwitchMode},
};

use crate::{
    NetlinkError, Root, chain,
    netlink::{eswitch_of, set_eswitch_mode},
    process,
};

/// How long the mode of one PF is waited for. A driver answers at once unless it is busy with the whole device.
pub const ANSWER: Duration = Duration::from_secs(5);

/// The embedded switch of one PF; `Ok(None)` where its driver has no modes of it.
///
/// # Errors
///
/// [`NetlinkError`] when devlink does not tell; [`NetlinkError::TimedOut`] when it has not `within` that time.
pub fn eswitch(pf: Bdf, within: Duration) -> Result<Option<Eswitch>, NetlinkError> {
    let attempt = format!("read the mode of the embedded switch of {pf} with devlink");
    in_time(pf, attempt, within, move |_| eswitch_of(pf))
}

/// Puts the embedded switch of one PF into a mode.
///
/// # Errors
///
/// [`NetlinkError`] when the kernel or the driver refuses; [`NetlinkError::TimedOut`] when it has not been done `within` that time. Where
/// the kernel has not been asked by then it never is; else it may still be done later, and until then nothing is told of the PF's mode.
pub fn set_mode(pf: Bdf, mode: EswitchMode, within: Duration) -> Result<(), NetlinkError> {
    let attempt = format!("put the embedded switch of {pf} into {mode} mode with devlink");
    // Whoever gave it up hears nothing of it.
    in_time(pf, attempt, within, move |taken| {
        set_eswitch_mode(pf, mode, || taken.swap(true, Ordering::SeqCst))
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
            Ok(Some(eswitch)) => devlink.eswitch = Some(eswitch),
            Ok(None) => devlink.no_modes = process::may_administer_networks(),
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

/// What is heard from when the thread that asked about a PF is gone, of those that were left behind. Of each PF there is one at most.
static LEFT_BEHIND: Mutex<BTreeMap<Bdf, Receiver<()>>> = Mutex::new(BTreeMap::new());

/// What `ask` comes to, in a thread of its own, which is in the network namespace of the calling one. `ask` gets what is true once it has been
/// given up, and which it takes to itself, by making it true, before it changes anything.
fn in_time<T: Send + 'static>(
    pf: Bdf,
    attempt: String,
    within: Duration,
    ask: impl FnOnce(&AtomicBool) -> Result<T, NetlinkError> + Send + 'static,
) -> Result<T, NetlinkError> {
    let began = Instant::now();
    let late = |attempt| NetlinkError::TimedOut { attempt, after: began.elapsed() };
    let earlier = LEFT_BEHIND.lock().unwrap_or_else(PoisonError::into_inner).remove(&pf);
    if let Some(earlier) = earlier
        && earlier.recv_timeout(within) == Err(RecvTimeoutError::Timeout)
    {
        LEFT_BEHIND.lock().unwrap_or_else(PoisonError::into_inner).insert(pf, earlier);
        return Err(late(attempt));
    }
    let (to, from) = mpsc::channel();
    let (ends, ended) = mpsc::channel();
    let taken = Arc::new(AtomicBool::new(false));
    let by_thread = Arc::clone(&taken);
    let asking = move || {
        // Gone with the thread, however it ends.
        let _ends = ends;
        // Nobody may be there any more to hear the answer.
        drop(to.send(ask(&by_thread)));
    };
    if let Err(source) = thread::Builder::new().name("devlink".to_owned()).spawn(asking) {
        return Err(NetlinkError::Socket { attempt, source });
    }
    match from.recv_timeout(within.saturating_sub(began.elapsed())) {
        Ok(answer) => answer,
        Err(RecvTimeoutError::Timeout) => {
            taken.store(true, Ordering::SeqCst);
            LEFT_BEHIND.lock().unwrap_or_else(PoisonError::into_inner).insert(pf, ended);
            Err(late(attempt))
        }
        Err(RecvTimeoutError::Disconnected) => Err(NetlinkError::Malformed {
            attempt,
            what: "the thread that asked ended without a word: a mistake of Penstock's".to_owned(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use nix::errno::Errno;

    use super::*;

    #[test]
    fn who_does_not_answer_is_not_waited_for_without_end() {
        let (release, held) = mpsc::channel::<()>();
        let stuck = in_time(pf(1), "read the mode".to_owned(), Duration::from_millis(50), move |_| {
            let _ = held.recv();
            Ok(())
        });
        let words = in_words(&stuck.unwrap_err());
        assert!(words.starts_with("could not read the mode within "), "{words}");
        assert!(words.contains("firmware") && words.contains("try again"), "{words}");
        drop(release);
        assert_eq!(in_time(pf(1), String::new(), Duration::from_secs(60), |_| Ok(7)).unwrap(), 7);
    }

    fn pf(n: u16) -> Bdf {
        format!("ffff:ff:1f.{n}").parse().unwrap()
    }

    #[test]
    fn a_setting_that_was_given_up_before_the_kernel_was_asked_is_never_made() {
        let (release, held) = mpsc::channel::<()>();
        let (made, seen) = mpsc::channel::<bool>();
        let given_up = in_time(pf(2), "set it".to_owned(), Duration::from_millis(50), move |taken| {
            let _ = held.recv();
            let _ = made.send(!taken.swap(true, Ordering::SeqCst));
            Ok(())
        });
        assert!(matches!(given_up, Err(NetlinkError::TimedOut { .. })));
        drop(release);
        assert!(!seen.recv().unwrap(), "it was set after all");
    }

    #[test]
    fn while_a_setting_may_still_come_nothing_is_told_of_that_pf_and_no_other_thread_is_stuck() {
        let (release, held) = mpsc::channel::<()>();
        let setting = in_time(pf(3), "set it".to_owned(), Duration::from_millis(50), move |taken| {
            // Where this thread comes late, it was given up already; it is stuck in either case.
            taken.swap(true, Ordering::SeqCst);
            let _ = held.recv();
            Ok(())
        });
        assert!(matches!(setting, Err(NetlinkError::TimedOut { .. })));
        for _ in 0..2 {
            let read =
                in_time(pf(3), "read it".to_owned(), Duration::from_millis(50), |_| -> Result<u8, _> {
                    panic!("the driver would answer what may not stay so")
                });
            assert!(matches!(read, Err(NetlinkError::TimedOut { .. })));
        }
        assert_eq!(in_time(pf(4), String::new(), Duration::from_secs(60), |_| Ok(7)).unwrap(), 7);
        drop(release);
        assert_eq!(in_time(pf(3), String::new(), Duration::from_secs(60), |_| Ok(8)).unwrap(), 8);
    }

    #[test]
    fn a_thread_that_ended_without_an_answer_is_no_firmware() {
        let ended = in_time(pf(5), "read it".to_owned(), Duration::from_secs(60), |_| -> Result<u8, _> {
            panic!("on purpose")
        });
        let words = in_words(&ended.unwrap_err());
        assert!(words.contains("a mistake of Penstock's") && !words.contains("firmware"), "{words}");
    }

    #[test]
    fn what_the_driver_says_to_a_refusal_is_told() {
        let refused = in_time(pf(6), String::new(), Duration::from_secs(60), |_| {
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
