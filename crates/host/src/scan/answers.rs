//! What drivers of PFs answer when they are asked by a call, and no file says: the version of their firmware, and devlink.
//!
//! The answers of a machine lie beside what was read of it in a tree that is recorded, and are read from there again.

use std::{collections::BTreeMap, mem};

use penstock_model::{
    Bdf, Inventory,
    inventory::{Devlink, EswitchMode, Pf, SwitchMode, tuning::Reading},
    text::one_line,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::reader::Reader;
use crate::{NetlinkError, Root, chain, driver, netlink::DevlinkSocket, process};

/// In a recorded tree: the answers.
const ANSWERS: &str = "/.drivers.json";
/// A machine of a hundred PFs has some 200 KiB.
const LIMIT: usize = 4 << 20;
/// So many characters are taken of each text of a recorded tree: more than any driver gives.
const TEXT: usize = 500;

/// What one PF's driver answers.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct DriverAnswer {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    firmware: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    devlink: Option<Devlink>,
}

/// The answers of a machine, as a recorded tree has them.
#[derive(Debug, Default, Serialize, Deserialize)]
struct DriverAnswers {
    #[serde(default)]
    pfs: BTreeMap<Bdf, DriverAnswer>,
    /// Why something is not known.
    #[serde(default)]
    unknown: Vec<String>,
}

/// Asks the drivers of the NICs of the machine that Penstock runs on for the version of their firmware, and over devlink. An inventory of
/// another machine keeps what it has.
///
/// This waits without end while firmware is flashed, a device is reloaded, or its driver recovers it ([`DevlinkSocket`]). So it is only for
/// who shows the answers, and never for what takes a change back, watches or waits with a deadline. No lock may be held meanwhile.
pub fn ask_drivers(root: &Root, inventory: &mut Inventory) {
    if !root.is_system() || inventory.pfs.is_empty() {
        return;
    }
    let answers = DriverAnswers::of_kernel(&inventory.pfs);
    answers.record(root);
    let mut reader = Reader::new(root);
    answers.give(&mut inventory.pfs, &mut reader);
    inventory.unknown.extend(reader.into_notes());
}

/// Gives PFs the answers that a recorded tree has.
pub(super) fn recall(pfs: &mut [Pf], reader: &mut Reader<'_>) {
    if !pfs.is_empty() {
        DriverAnswers::of_tree(reader).give(pfs, reader);
    }
}

impl DriverAnswers {
    fn of_kernel(pfs: &[Pf]) -> DriverAnswers {
        let mut answers = DriverAnswers::default();
        let mut errors = Vec::new();
        let mut socket = DevlinkSocket::open().unwrap_or_else(|error| {
            errors.push(error);
            None
        });
        let health = socket.as_mut().map(DevlinkSocket::health).transpose();
        let mut health = health.unwrap_or_else(|error| {
            errors.push(error);
            None
        });
        for pf in pfs {
            let interface = pf.interface.as_ref().map(|interface| interface.name.as_str());
            let mut answer = DriverAnswer { firmware: interface.and_then(driver::firmware), devlink: None };
            if let Some(socket) = socket.as_mut().filter(|socket| socket.has(pf.bdf)) {
                let (found, unread) = socket.read(pf.bdf);
                let health = health.as_mut().and_then(|health| health.remove(&pf.bdf));
                answer.devlink = Some(Devlink { health: health.unwrap_or_default(), ..found });
                errors.extend(unread);
            }
            answers.pfs.insert(pf.bdf, answer);
        }
        answers.unknown = in_words(&errors, process::may_administer_networks());
        answers
    }

    fn of_tree(reader: &mut Reader<'_>) -> DriverAnswers {
        match reader.lines_up_to(ANSWERS, LIMIT) {
            Reading::Is(text) => match DriverAnswers::parse(&text) {
                Ok(answers) => return answers,
                Err(error) => reader.note(format!("{ANSWERS} makes no sense: {error}")),
            },
            Reading::Absent => reader.note(
                "this tree has no answers of drivers: firmware, versions and health of NICs are not known",
            ),
            Reading::Denied => reader.note(format!("{ANSWERS} may not be read")),
            Reading::Unreadable(why) => reader.note(why),
        }
        DriverAnswers::default()
    }

    /// Answers of a tree that may be anybody's.
    fn parse(text: &str) -> Result<DriverAnswers, serde_json::Error> {
        let mut value = serde_json::from_str(text)?;
        shorten(&mut value);
        serde_json::from_value(value)
    }

    fn give(mut self, pfs: &mut [Pf], reader: &mut Reader<'_>) {
        for pf in pfs {
            let DriverAnswer { firmware, devlink } = self.pfs.remove(&pf.bdf).unwrap_or_default();
            (pf.firmware, pf.devlink) = (firmware, devlink);
            // Without VFs there are no representors to know it by.
            let eswitch = pf.devlink.as_ref().and_then(|devlink| devlink.eswitch);
            if let Some(EswitchMode::Switchdev | EswitchMode::SwitchdevInactive) =
                eswitch.map(|eswitch| eswitch.mode)
            {
                pf.switch_mode = SwitchMode::Switchdev;
            }
        }
        self.unknown.iter().for_each(|why| reader.note(why));
    }

    fn record(&self, root: &Root) {
        if let Ok(bytes) = serde_json::to_vec_pretty(self) {
            root.add(ANSWERS, &bytes);
        }
    }
}

/// Why something is not known. What takes more rights is the same for all PFs, and said once.
fn in_words(errors: &[NetlinkError], may_administer: bool) -> Vec<String> {
    let mut words = Vec::new();
    let mut lacks_rights = false;
    for error in errors {
        if error.is_not_permitted() && !may_administer {
            lacks_rights = true;
        } else {
            words.push(chain(error));
        }
    }
    if lacks_rights {
        words.push(
            "the modes of embedded switches could not be read with devlink: not permitted (run as root: CAP_NET_ADMIN)"
                .to_owned(),
        );
    }
    words
}

/// Makes each text of a document one short line.
fn shorten(value: &mut Value) {
    let short = |text: &str| one_line(text).chars().take(TEXT).collect::<String>();
    match value {
        Value::String(text) => *text = short(text),
        Value::Array(all) => all.iter_mut().for_each(shorten),
        Value::Object(all) => {
            all.values_mut().for_each(shorten);
            *all = mem::take(all).into_iter().map(|(name, value)| (short(&name), value)).collect();
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use std::{os::unix::fs::PermissionsExt, sync::Arc};

    use nix::errno::Errno;
    use penstock_model::inventory::HealthReporter;

    use super::*;
    use crate::record::Recorder;

    #[test]
    fn what_the_kernel_answered_is_read_again_from_a_record() {
        let (machine, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let recorder = Arc::new(Recorder::default());
        let root = Root::at(machine.path()).recording(recorder.clone());
        let pf: Bdf = "0000:08:00.0".parse().unwrap();
        let reporter =
            HealthReporter { port: None, name: "fw".to_owned(), healthy: true, errors: 1, recoveries: 1 };
        let devlink = Devlink { health: vec![reporter], ..Devlink::default() };
        let answer = DriverAnswer { firmware: Some("1.2".to_owned()), devlink: Some(devlink.clone()) };
        let answers =
            DriverAnswers { pfs: [(pf, answer)].into(), unknown: vec!["of something else".to_owned()] };
        answers.record(&root);
        let recorded = recorder.write(to.path()).unwrap();
        // No file of the machine says who may read it.
        assert_eq!((recorded.files, recorded.private), (1, 0));
        let mode = std::fs::metadata(to.path().join(".drivers.json")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o644);

        let root = Root::recorded(to.path());
        let mut reader = Reader::new(&root);
        let again = DriverAnswers::of_tree(&mut reader);
        assert_eq!(again.unknown, ["of something else"]);
        let [(bdf, answer)] = &Vec::from_iter(again.pfs)[..] else { panic!() };
        assert_eq!(
            (*bdf, answer.firmware.as_deref(), answer.devlink.as_ref()),
            (pf, Some("1.2"), Some(&devlink))
        );
        assert!(reader.into_notes().is_empty());
    }

    #[test]
    fn what_takes_more_rights_is_said_once_for_all_pfs() {
        let of = |pf: u8, errno| NetlinkError::answered(&format!("read of 0000:17:00.{pf}"), errno, None);
        let errors = [of(0, Errno::EPERM), of(1, Errno::EPERM), of(1, Errno::EIO), of(2, Errno::EPERM)];
        let words = in_words(&errors, false);
        let [other, rights] = &words[..] else { panic!("{words:?}") };
        assert!(other.contains("0000:17:00.1: ") && rights.contains("run as root"), "{words:?}");
        // Whoever has the rights is not told to get them.
        let words = in_words(&errors, true);
        assert!(words.len() == 4 && words.iter().all(|why| !why.contains("root")), "{words:?}");
    }
}
