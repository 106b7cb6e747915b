//! What drivers of PFs answer when they are asked by a call, and no file says: the version of their firmware, and devlink.
//!
//! The answers of a machine lie beside what was read of it in a tree that is recorded, and are read from there again.

use std::collections::BTreeMap;

use penstock_model::{
    Bdf,
    inventory::{Devlink, HealthReporter, tuning::Reading},
};
use serde::{Deserialize, Serialize};

use super::reader::Reader;
use crate::{Root, chain, driver, netlink::DevlinkSocket};

/// In a recorded tree: the answers.
pub(super) const ANSWERS: &str = "/.drivers.json";
/// A machine of a hundred PFs has some 200 KiB.
const LIMIT: usize = 4 << 20;

/// What one PF's driver answers.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct DriverAnswer {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub firmware: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub devlink: Option<Devlink>,
}

/// The answers of a machine, as a recorded tree has them.
#[derive(Debug, Default, Serialize, Deserialize)]
struct RecordedAnswers {
    #[serde(default)]
    pfs: BTreeMap<Bdf, DriverAnswer>,
    /// Why something is not known.
    #[serde(default)]
    unknown: Vec<String>,
}

/// Who answers.
enum Answering {
    /// Nobody was asked yet.
    Nobody,
    /// The kernel; `None`: it has no devlink, or cannot be asked.
    Kernel(Option<(DevlinkSocket, BTreeMap<Bdf, Vec<HealthReporter>>)>),
    /// A recorded tree.
    Tree,
}

/// The answers of the drivers of the machine that is scanned.
pub(super) struct DriverAnswers<'a> {
    root: &'a Root,
    answering: Answering,
    answers: RecordedAnswers,
}

impl<'a> DriverAnswers<'a> {
    /// Nobody is asked before the first PF is.
    pub fn new(root: &'a Root) -> DriverAnswers<'a> {
        DriverAnswers { root, answering: Answering::Nobody, answers: RecordedAnswers::default() }
    }

    /// What the driver of the PF at `pf` answers, whose interface in this namespace is `interface`.
    pub fn of(&mut self, pf: Bdf, interface: Option<&str>, reader: &mut Reader<'_>) -> DriverAnswer {
        if matches!(self.answering, Answering::Nobody) {
            self.answering =
                if self.root.is_system() { self.ask_kernel(reader) } else { self.read_tree(reader) };
        }
        let Answering::Kernel(devlink) = &mut self.answering else {
            return self.answers.pfs.get(&pf).cloned().unwrap_or_default();
        };
        let mut answer =
            DriverAnswer { firmware: interface.and_then(driver::firmware), ..DriverAnswer::default() };
        let mut errors = Vec::new();
        if let Some((socket, health)) = devlink.as_mut().filter(|(socket, _)| socket.has(pf)) {
            let (found, unknown) = socket.read(pf);
            answer.devlink = Some(Devlink { health: health.remove(&pf).unwrap_or_default(), ..found });
            errors = unknown;
        }
        for error in errors {
            let hint = if error.is_not_permitted() { " (run as root: CAP_NET_ADMIN)" } else { "" };
            self.note(format!("{}{hint}", chain(&error)), reader);
        }
        self.answers.pfs.insert(pf, answer.clone());
        answer
    }

    fn ask_kernel(&mut self, reader: &mut Reader<'_>) -> Answering {
        let mut socket = match DevlinkSocket::open() {
            Ok(Some(socket)) => socket,
            Ok(None) => {
                self.note(
                    "this kernel has no devlink: modes of embedded switches in its words, versions and health of NICs \
                     cannot be seen"
                        .to_owned(),
                    reader,
                );
                return Answering::Kernel(None);
            }
            Err(error) => {
                self.note(chain(&error), reader);
                return Answering::Kernel(None);
            }
        };
        let health = socket.health().unwrap_or_else(|error| {
            self.note(chain(&error), reader);
            BTreeMap::new()
        });
        Answering::Kernel(Some((socket, health)))
    }

    fn read_tree(&mut self, reader: &mut Reader<'_>) -> Answering {
        match reader.lines_up_to(ANSWERS, LIMIT) {
            Reading::Is(text) => match serde_json::from_str(&text) {
                Ok(answers) => self.answers = answers,
                Err(error) => reader.note(format!("{ANSWERS} makes no sense: {error}")),
            },
            Reading::Absent => {
                reader.note(
                    "netlink was not asked for devlink: firmware, versions and health of NICs are not known",
                );
            }
            Reading::Denied => reader.note(format!("{ANSWERS} may not be read")),
            Reading::Unreadable(why) => reader.note(why),
        }
        self.answers.unknown.iter().for_each(|why| reader.note(why));
        Answering::Tree
    }

    fn note(&mut self, why: String, reader: &mut Reader<'_>) {
        reader.note(&why);
        self.answers.unknown.push(why);
    }

    /// Gives a recorder what the kernel answered.
    pub fn record(&self) {
        if matches!(self.answering, Answering::Kernel(_))
            && let Ok(bytes) = serde_json::to_vec_pretty(&self.answers)
        {
            self.root.note(ANSWERS, Ok(&bytes));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

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
            RecordedAnswers { pfs: [(pf, answer)].into(), unknown: vec!["of something else".to_owned()] };
        DriverAnswers { root: &root, answering: Answering::Kernel(None), answers }.record();
        recorder.write(to.path()).unwrap();

        let root = Root::recorded(to.path());
        let mut reader = Reader::new(&root);
        let mut drivers = DriverAnswers::new(&root);
        let again = drivers.of(pf, Some("eth0"), &mut reader);
        assert_eq!((again.firmware.as_deref(), again.devlink), (Some("1.2"), Some(devlink)));
        let other = drivers.of("0000:08:00.1".parse().unwrap(), Some("eth1"), &mut reader);
        assert!(other.firmware.is_none() && other.devlink.is_none());
        assert_eq!(reader.into_notes(), ["of something else"]);
    }
}
