//! The mode of an embedded switch over devlink.

use std::{
    fmt,
    time::{Duration, Instant},
};

use penstock_host::{NetlinkError, eswitch};
use penstock_model::{Bdf, inventory::EswitchMode, text::counted};
use penstock_plan::ExecuteError;

use super::{HostExecutor, from_netlink, from_pci};

/// Who tells and changes the modes of embedded switches.
pub trait Eswitches: fmt::Debug + Send {
    /// The mode of a PF's; `Ok(None)` where its driver has no modes.
    ///
    /// # Errors
    ///
    /// When the driver does not tell it `within` this time, or refuses to.
    fn mode(&mut self, pf: Bdf, within: Duration) -> Result<Option<EswitchMode>, NetlinkError>;

    /// Changes it.
    ///
    /// # Errors
    ///
    /// When the driver has not changed it `within` this time, when an earlier setting of that PF is still at work, or when it refuses.
    fn set_mode(&mut self, pf: Bdf, mode: EswitchMode, within: Duration) -> Result<(), NetlinkError>;
}

/// devlink of the kernel that Penstock runs on.
#[derive(Debug)]
pub struct OverDevlink;

impl Eswitches for OverDevlink {
    fn mode(&mut self, pf: Bdf, within: Duration) -> Result<Option<EswitchMode>, NetlinkError> {
        Ok(eswitch::eswitch(pf, within)?.map(|eswitch| eswitch.mode))
    }

    fn set_mode(&mut self, pf: Bdf, mode: EswitchMode, within: Duration) -> Result<(), NetlinkError> {
        eswitch::set_mode(pf, mode, within)
    }
}

/// The mode that a PF's is in.
///
/// # Errors
///
/// As [`Eswitches::mode`], after [`eswitch::ANSWER`].
pub fn mode(executor: &mut HostExecutor, pf: Bdf) -> Result<Option<EswitchMode>, ExecuteError> {
    mode_within(executor, pf, eswitch::ANSWER)
}

fn mode_within(
    executor: &mut HostExecutor,
    pf: Bdf,
    within: Duration,
) -> Result<Option<EswitchMode>, ExecuteError> {
    let at = format!("could not read the mode of the embedded switch of {pf}");
    executor.eswitches.mode(pf, within).map_err(|error| told(&at, error))
}

/// Puts a PF's into a mode, while it has no VFs: somebody may have made some since the plan, and would lose what they are set to.
///
/// # Errors
///
/// `Refused` when there are VFs, and what the driver says: `Unsupported` where it has no such mode.
pub fn set(
    executor: &mut HostExecutor,
    pf: Bdf,
    wanted: EswitchMode,
    within: Duration,
) -> Result<(), ExecuteError> {
    let began = Instant::now();
    // `bnxt_en` calls it an error to be told what is so. What an earlier setting is at may take as long as a setting.
    if mode_within(executor, pf, within)? == Some(wanted) {
        return Ok(());
    }
    let at = format!("the embedded switch of {pf} was not put into {wanted} mode");
    let vfs = executor.function(pf).vf_count().map_err(|error| from_pci(&at, error))?;
    if vfs > 0 {
        return Err(ExecuteError::Refused {
            what: format!(
                "{at}: it has {} that this plan does not know, and they would lose their links and settings",
                counted(usize::from(vfs), "VF")
            ),
            hint: format!(
                "have who made them remove them (echo 0 >/sys/bus/pci/devices/{pf}/sriov_numvfs), and plan again"
            ),
        });
    }
    let left = within.saturating_sub(began.elapsed());
    executor.eswitches.set_mode(pf, wanted, left).map_err(|error| told(&at, error))
}

fn told(at: &str, error: NetlinkError) -> ExecuteError {
    match error {
        NetlinkError::TimedOut { after, .. } => ExecuteError::TimedOut {
            attempt: format!(
                "{at}: devlink has not answered; the NIC's firmware is being flashed, or its driver reloads or recovers it"
            ),
            after,
        },
        error => from_netlink(at, error),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::disallowed_methods)]

    use std::fs;

    use nix::errno::Errno;
    use penstock_host::Root;
    use penstock_plan::{Execute, Fact, FunctionAction, Observe};
    use tempfile::TempDir;

    use super::*;

    const PF: &str = "0000:08:00.0";

    /// A driver that is in a mode, and what it answers to a change.
    #[derive(Debug)]
    struct Driver {
        mode: Result<Option<EswitchMode>, Errno>,
        refuses: Option<(Errno, &'static str)>,
        silent: bool,
        /// So long it is at something else.
        busy: Duration,
    }

    impl Eswitches for Driver {
        fn mode(&mut self, _: Bdf, within: Duration) -> Result<Option<EswitchMode>, NetlinkError> {
            if within < self.busy {
                return Err(NetlinkError::TimedOut { attempt: "read it".to_owned(), after: within });
            }
            self.mode.map_err(|errno| answered("read it", errno, None))
        }

        fn set_mode(&mut self, _: Bdf, mode: EswitchMode, after: Duration) -> Result<(), NetlinkError> {
            if self.silent {
                return Err(NetlinkError::TimedOut { attempt: "set it".to_owned(), after });
            }
            // As `bnxt_dl_eswitch_mode_set` does.
            assert_ne!(self.mode, Ok(Some(mode)), "told what is so");
            match self.refuses {
                Some((errno, words)) => Err(answered("set it", errno, Some(words))),
                None => {
                    self.mode = Ok(Some(mode));
                    Ok(())
                }
            }
        }
    }

    fn answered(attempt: &str, errno: Errno, words: Option<&str>) -> NetlinkError {
        let (attempt, detail) = (attempt.to_owned(), words.map(str::to_owned));
        match errno {
            Errno::EOPNOTSUPP => NetlinkError::Unsupported { attempt, detail },
            errno => NetlinkError::Refused { attempt, errno, detail },
        }
    }

    /// A PF with so many VFs and this driver.
    fn machine(vfs: u16, driver: Driver) -> (TempDir, HostExecutor) {
        let tree = tempfile::tempdir().unwrap();
        let device = tree.path().join("sys/bus/pci/devices").join(PF);
        fs::create_dir_all(&device).unwrap();
        fs::write(device.join("sriov_numvfs"), format!("{vfs}\n")).unwrap();
        let mut executor = HostExecutor::new(Root::at(tree.path())).unwrap();
        executor.eswitches = Box::new(driver);
        (tree, executor)
    }

    fn in_mode(mode: EswitchMode) -> Driver {
        Driver { mode: Ok(Some(mode)), refuses: None, silent: false, busy: Duration::ZERO }
    }

    fn to(mode: EswitchMode) -> FunctionAction {
        FunctionAction::SetEswitchMode { pf: PF.parse().unwrap(), mode }
    }

    const LIMIT: Duration = Duration::from_secs(60);

    #[test]
    fn a_mode_is_set_proven_and_taken_back() {
        let (_tree, mut executor) = machine(0, in_mode(EswitchMode::Legacy));
        let pf = PF.parse().unwrap();
        let is = |mode| Fact::EswitchMode { pf, mode };
        let seen = executor.holds(&is(EswitchMode::Switchdev)).unwrap();
        assert_eq!(seen, Err("it is in legacy mode".to_owned()));
        executor.execute(&to(EswitchMode::Switchdev), LIMIT).unwrap();
        assert_eq!(executor.holds(&is(EswitchMode::Switchdev)).unwrap(), Ok(()));
        // Again: a driver that is told what is so refuses that.
        executor.execute(&to(EswitchMode::Switchdev), LIMIT).unwrap();
        executor.take_back(&to(EswitchMode::Legacy), LIMIT).unwrap();
        assert_eq!(executor.holds(&is(EswitchMode::Legacy)).unwrap(), Ok(()));
    }

    #[test]
    fn vfs_that_somebody_made_since_are_left_as_they_are() {
        let (_tree, mut executor) = machine(3, in_mode(EswitchMode::Legacy));
        let refused = executor.execute(&to(EswitchMode::Switchdev), LIMIT).unwrap_err();
        let ExecuteError::Refused { what, hint } = &refused else { panic!("{refused}") };
        assert!(what.contains("0000:08:00.0 was not put into switchdev mode: it has 3 VFs"), "{what}");
        assert!(hint.contains("sriov_numvfs"), "{hint}");
        assert_eq!(mode(&mut executor, PF.parse().unwrap()).unwrap(), Some(EswitchMode::Legacy));
    }

    #[test]
    fn what_a_driver_answers_is_told() {
        let refuses = Some((Errno::EINVAL, "Can't set offloads mode, SRIOV legacy not enabled"));
        let (_tree, mut executor) = machine(0, Driver { refuses, ..in_mode(EswitchMode::Legacy) });
        let failed = executor.execute(&to(EswitchMode::Switchdev), LIMIT).unwrap_err();
        let ExecuteError::Failed { source, .. } = &failed else { panic!("{failed}") };
        assert!(source.to_string().contains("SRIOV legacy not enabled"), "{source}");

        let refuses = Some((Errno::EOPNOTSUPP, "ADQ is active"));
        let (_tree, mut executor) = machine(0, Driver { refuses, ..in_mode(EswitchMode::Legacy) });
        let failed = executor.execute(&to(EswitchMode::Switchdev), LIMIT).unwrap_err();
        let ExecuteError::Unsupported(why) = &failed else { panic!("{failed}") };
        assert!(why.contains("ADQ is active"), "{why}");

        let (_tree, mut executor) = machine(0, Driver { silent: true, ..in_mode(EswitchMode::Legacy) });
        let failed = executor.execute(&to(EswitchMode::Switchdev), LIMIT).unwrap_err();
        let ExecuteError::TimedOut { attempt, after } = &failed else { panic!("{failed}") };
        assert!(attempt.contains("devlink has not answered") && *after <= LIMIT, "{attempt}");
    }

    #[test]
    fn a_driver_that_is_at_an_earlier_setting_is_waited_for_as_long_as_for_a_setting() {
        let busy = Driver { busy: eswitch::ANSWER * 2, ..in_mode(EswitchMode::Switchdev) };
        let (_tree, mut executor) = machine(0, busy);
        executor.take_back(&to(EswitchMode::Legacy), LIMIT).unwrap();
        let (_tree, mut executor) = machine(0, Driver { busy: LIMIT * 2, ..in_mode(EswitchMode::Legacy) });
        let failed = executor.take_back(&to(EswitchMode::Legacy), LIMIT).unwrap_err();
        assert!(matches!(failed, ExecuteError::TimedOut { .. }), "{failed}");
        let fact = Fact::EswitchMode { pf: PF.parse().unwrap(), mode: EswitchMode::Legacy };
        assert!(executor.holds(&fact).is_err(), "nobody knows it");
    }

    #[test]
    fn a_mode_that_nobody_tells_is_not_taken_for_the_wanted_one() {
        let pf = PF.parse().unwrap();
        let fact = Fact::EswitchMode { pf, mode: EswitchMode::Legacy };
        let (_tree, mut executor) = machine(0, Driver { mode: Ok(None), ..in_mode(EswitchMode::Legacy) });
        assert_eq!(executor.holds(&fact).unwrap(), Err("devlink reports no mode".to_owned()));
        let (_tree, mut executor) =
            machine(0, Driver { mode: Err(Errno::EIO), ..in_mode(EswitchMode::Legacy) });
        assert!(executor.holds(&fact).is_err());
        assert!(executor.execute(&to(EswitchMode::Legacy), LIMIT).is_err());
    }
}
