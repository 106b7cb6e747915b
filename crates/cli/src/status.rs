//! The exit statuses: what a command's end means to the script that called it.
//!
//! This is the one list. `penstock --help`, `docs/exit-status.md` and the JSON documents are made from it.

use std::fmt;

/// How a command ended. The number is its exit status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Status {
    /// What was asked for holds, or is done.
    Holds = 0,
    /// The answer is no: a verdict, an expectation or a comparison does not hold, or a guest failed alone.
    DoesNotHold = 1,
    /// The command line, the model or another file that the user named is wrong.
    BadInput = 2,
    /// It is possible, would be unsafe, and was not allowed.
    Refused = 3,
    /// Penstock lacks a program, a permission or a kernel feature for the work.
    Missing = 4,
    /// It failed, and what it had done was taken back.
    RolledBack = 5,
    /// The model is good, and not for this machine: no such PF, no IOMMU, too few VFs, a driver that cannot.
    DoesNotFit = 6,
    /// It failed, and not all could be taken back, or nobody knows whether it was: the machine is between two states.
    HalfWay = 7,
    /// A program, the kernel, a board, a guest or the network failed, and nothing was left changed.
    Failed = 8,
    /// Another run is at work, or waits to be confirmed.
    Busy = 9,
    /// `plan --detailed-exitcode`: all is well, and an apply would change something.
    WouldChange = 10,
    /// Penstock itself failed: a defect, or its own files or output could not be read or written.
    Internal = 70,
    /// Ctrl-C, SIGTERM or SIGHUP ended it in order; the number that shells give after SIGINT.
    Interrupted = 130,
}

impl Status {
    /// All of them, in the order of their numbers.
    pub const ALL: [Status; 13] = [
        Status::Holds,
        Status::DoesNotHold,
        Status::BadInput,
        Status::Refused,
        Status::Missing,
        Status::RolledBack,
        Status::DoesNotFit,
        Status::HalfWay,
        Status::Failed,
        Status::Busy,
        Status::WouldChange,
        Status::Internal,
        Status::Interrupted,
    ];

    /// The status of this number; `None` for a number that no command of this version ends with.
    pub fn of(code: u8) -> Option<Status> {
        Status::ALL.into_iter().find(|status| *status as u8 == code)
    }

    /// The exit status as a number.
    pub fn code(self) -> u8 {
        self as u8
    }

    /// Its name in JSON documents; it never changes.
    pub fn name(self) -> &'static str {
        match self {
            Status::Holds => "holds",
            Status::DoesNotHold => "does-not-hold",
            Status::BadInput => "bad-input",
            Status::Refused => "refused",
            Status::Missing => "missing",
            Status::RolledBack => "rolled-back",
            Status::DoesNotFit => "does-not-fit",
            Status::HalfWay => "half-way",
            Status::Failed => "failed",
            Status::Busy => "busy",
            Status::WouldChange => "would-change",
            Status::Internal => "internal",
            Status::Interrupted => "interrupted",
        }
    }

    /// The same in a few words, for tables.
    pub fn words(self) -> &'static str {
        match self {
            Status::Holds => "holds",
            Status::DoesNotHold => "does not hold",
            Status::BadInput => "bad usage or model",
            Status::Refused => "refused as unsafe",
            Status::Missing => "something is missing",
            Status::RolledBack => "failed, taken back",
            Status::DoesNotFit => "machine does not fit",
            Status::HalfWay => "left half-way",
            Status::Failed => "failed",
            Status::Busy => "busy",
            Status::WouldChange => "would change",
            Status::Internal => "internal fault",
            Status::Interrupted => "interrupted",
        }
    }

    /// What it means.
    #[cfg(test)]
    pub fn meaning(self) -> &'static str {
        match self {
            Status::Holds => "what was asked for holds, or is done",
            Status::DoesNotHold => {
                "the answer is no: a verdict, an expectation or a comparison does not hold; or a guest failed alone, and the \
                 rest went on"
            }
            Status::BadInput => "the command line, the model, or another file that it names is wrong",
            Status::Refused => "possible, but unsafe, and not allowed",
            Status::Missing => "Penstock lacks a program, a permission or a kernel feature for the work",
            Status::RolledBack => "it failed, and what it had done was taken back",
            Status::DoesNotFit => {
                "the model is good, and not for this machine: no such PF, no IOMMU, too few VFs, a driver that cannot"
            }
            Status::HalfWay => {
                "it failed, and not all was taken back, or nobody knows: the machine is between two states"
            }
            Status::Failed => {
                "a program, the kernel, a board, a guest or the network failed; nothing was left changed"
            }
            Status::Busy => "another run is at work here, or waits to be confirmed",
            Status::WouldChange => {
                "only `plan --detailed-exitcode`: all is well, and an apply would change something"
            }
            Status::Internal => {
                "a fault of Penstock's own: a defect, or its own files or output could not be read or written"
            }
            Status::Interrupted => "Ctrl-C, SIGTERM or SIGHUP ended it, in order",
        }
    }

    /// What a script does about it.
    #[cfg(test)]
    pub fn advice(self) -> &'static str {
        match self {
            Status::Holds => "go on",
            Status::DoesNotHold => "take it as the answer; standard output has the verdicts",
            Status::BadInput => "correct the command or the file; to try again is useless",
            Status::Refused => "have a person decide; `--allow` does it all the same",
            Status::Missing => "install it, become root, or load it; then try again",
            Status::RolledBack => "find the cause; the machine is as it was",
            Status::DoesNotFit => {
                "change the model, the firmware's settings or the kernel's arguments, or take another machine"
            }
            Status::HalfWay => "call a person: `penstock status`, then `penstock undo`",
            Status::Failed => "try again; if it stays, read the message",
            Status::Busy => "wait, then try again",
            Status::WouldChange => "`penstock apply`",
            Status::Internal => "see whether a disk is full; else report it as a defect",
            Status::Interrupted => "as the operator wants",
        }
    }

    /// Whether a machine with it is as it should be, so that a fleet goes on to the next one.
    pub fn is_good(self) -> bool {
        matches!(self, Status::Holds | Status::WouldChange)
    }

    /// How bad it is for somebody who looks after many machines: first what leaves it open how a machine is, then what was tried
    /// and failed, then what is half there, then what was not begun.
    pub fn badness(self) -> u8 {
        match self {
            Status::Holds => 0,
            Status::WouldChange => 1,
            Status::BadInput => 2,
            Status::Busy => 3,
            Status::Refused => 4,
            Status::DoesNotFit => 5,
            Status::Missing => 6,
            Status::DoesNotHold => 7,
            Status::RolledBack => 8,
            Status::Failed => 9,
            Status::Internal => 10,
            Status::HalfWay => 11,
            Status::Interrupted => 12,
        }
    }

    /// The worse of both.
    pub fn worse(self, other: Status) -> Status {
        if other.badness() > self.badness() { other } else { self }
    }

    /// All of them for `--help`.
    pub fn help() -> String {
        let lines: Vec<String> =
            Status::ALL.iter().map(|status| format!("  {:>3}  {}", status.code(), status.words())).collect();
        format!("Exit status (docs/exit-status.md):\n{}", lines.join("\n"))
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.words())
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, path::Path};

    use penstock_testkit::golden;

    use super::*;

    const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/exit-status.md");

    #[test]
    fn all_of_them_are_in_the_list_with_names_of_their_own() {
        let codes: Vec<u8> = Status::ALL.iter().map(|status| status.code()).collect();
        assert!(codes.is_sorted(), "{codes:?}");
        for status in Status::ALL {
            assert_eq!(Status::of(status.code()), Some(status));
        }
        assert_eq!((Status::of(42), Status::of(255)), (None, None));
        let names: BTreeSet<&str> = Status::ALL.iter().map(|status| status.name()).collect();
        let words: BTreeSet<&str> = Status::ALL.iter().map(|status| status.words()).collect();
        let badness: BTreeSet<u8> = Status::ALL.iter().map(|status| status.badness()).collect();
        assert_eq!((names.len(), words.len(), badness.len()), (13, 13, 13));
        // Shells keep 126 to 128 for themselves, and what died of a signal has more; 101 is a panic nobody caught.
        assert!(codes.iter().all(|code| *code < 100 || *code == 130), "{codes:?}");
    }

    #[test]
    fn the_page_of_exit_statuses_is_what_the_program_ends_with() {
        let mut page = "# Exit statuses\n\nFor scripts. This page is made from the program (`UPDATE_GOLDEN=1 cargo test \
                        exit_statuses`).\n\n| status | name | it means | a script |\n|---|---|---|---|\n"
            .to_owned();
        for status in Status::ALL {
            page += &format!(
                "| {} | `{}` | {} | {} |\n",
                status.code(),
                status.name(),
                status.meaning(),
                status.advice()
            );
        }
        page += "\nThe name is what JSON documents have as `status`, beside the number as `exit` ([json.md](json.md)).\n\n\
                 - A reader that closes the pipe early (`penstock scan | head`) changes nothing: what was begun comes to its \
                 end, and the status tells how that went.\n\
                 - `plan` ends with 0 whether or not it has steps. With `--detailed-exitcode` 10 says that an apply would \
                 change something, and 0 that it would not; all other statuses are as without it.\n\
                 - With several `--host` the status is the worst one, in this order: ";
        let mut order = Status::ALL.to_vec();
        order.sort_by_key(|status| std::cmp::Reverse(status.badness()));
        let codes: Vec<String> = order.iter().map(|status| status.code().to_string()).collect();
        page += &codes.join(", ");
        page += ". A machine that was lost while it was being changed is 7, for nobody knows how it is; one that was not \
                 reached is 8. A status that this penstock does not know is told, and counts as one of these two.\n\
                 - `penstock board ssh`, `board console` and `board cluster kubectl` end as what they ran has ended.\n\
                 - 101 and what is over 128, but for 130, are not Penstock's: a signal such as SIGKILL (137) has ended it. \
                 `penstock status` tells what it left.\n";
        golden::compare(Path::new(PAGE), &page);
    }
}
