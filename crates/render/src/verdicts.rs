//! Whether the files that were made are what would be made now.

use penstock_model::{
    Guest, GuestName, Model, Outcome, Verdict,
    digest::sha256,
    verdict::{Subject, Vantage},
};

use super::{FoundMachine, GenerateError, paths_of, render};

/// What was found where a file should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FoundFile {
    /// The file is there; this is its whole text.
    Text(String),
    /// There is no file at this path.
    Missing,
    /// Something is there that no rendering makes: a directory, a file that is too large, or no UTF-8 text; what it is.
    Other(String),
    /// What is there could not be read; why.
    Unreadable(String),
}

/// One verdict for each file that the model asks for: `seen` is compared with a fresh rendering for this machine. When
/// some MAC address is not known, what should be there is not known either.
///
/// # Errors
///
/// [`GenerateError::Template`] and [`GenerateError::Model`].
pub fn verdicts(
    model: &Model,
    found: FoundMachine<'_>,
    seen: impl Fn(&str) -> FoundFile,
) -> Result<Vec<Verdict>, GenerateError> {
    let files = match render(model, Some(found)) {
        Ok(files) => files,
        Err(GenerateError::Unknown(why)) => return Ok(unknown(model, &why.to_string())),
        Err(error) => return Err(error),
    };
    let judge = |file: super::GeneratedFile| {
        let place = |what: &str| format!("{}: {what}", file.path);
        let (said, outcome) = match seen(&file.path) {
            FoundFile::Text(text) if text == file.text => {
                (format!("sha256 {}", file.digest()), Outcome::Pass)
            }
            FoundFile::Text(text) => (format!("stale, sha256 {}", sha256(&text)), Outcome::Fail),
            FoundFile::Missing => ("missing".to_owned(), Outcome::Fail),
            FoundFile::Other(why) => (why, Outcome::Fail),
            FoundFile::Unreadable(why) => (format!("cannot be read: {why}"), Outcome::Unknown),
        };
        let wanted = place(&format!("sha256 {}", file.digest()));
        verdict(&file.guest, file.path.clone(), wanted, place(&said), outcome)
    };
    Ok(files.into_iter().map(judge).collect())
}

fn unknown(model: &Model, why: &str) -> Vec<Verdict> {
    let of = |(name, guest): (&GuestName, &Guest)| {
        let paths = guest.generate.iter().flat_map(|wanted| paths_of(guest, wanted));
        paths
            .map(|path| verdict(name, path.clone(), path, why.to_owned(), Outcome::Unknown))
            .collect::<Vec<_>>()
    };
    model.guests.iter().flat_map(of).collect()
}

fn verdict(guest: &GuestName, path: String, wanted: String, seen: String, outcome: Outcome) -> Verdict {
    Verdict {
        subject: Subject::Guest(guest.clone()),
        attribute: "generate".to_owned(),
        item: Some(path),
        vantage: Vantage::Host,
        wanted,
        seen,
        outcome,
        best_effort: false,
        out_of_sight: false,
        emulated: false,
    }
}
