//! What shows that a file is the one that its user means: programs of an image run as whoever uses it.

use std::{ffi::OsString, fmt, path::Path};

use minisign_verify::{PublicKey, Signature, StreamVerifier};
use penstock_host::files::{self, FileError};
use penstock_model::digest::{hexadecimal, is_sha256};
use sha2::{Digest, Sha256};
use thiserror::Error;

/// A public key or a signature of minisign has some 300 bytes.
const LONGEST: usize = 64 << 10;

/// What a file is held against.
pub struct Proof(Expected);

enum Expected {
    /// In lower-case hexadecimal.
    Sha256(String),
    /// By this key, with this signature.
    Signed(Box<(PublicKey, Signature)>),
}

/// Why a file cannot be shown to be the one that is meant.
#[derive(Debug, Error)]
pub enum ProofError {
    /// No SHA-256.
    #[error("{0:?} is no SHA-256, which has 64 hexadecimal digits")]
    NoDigest(String),
    /// No key.
    #[error("{key} is no public key of minisign, nor a file with one: {why}")]
    NoKey {
        /// What was given.
        key: String,
        /// What is wrong with it.
        why: String,
    },
    /// No signature beside the file.
    #[error("the signature of the file cannot be had")]
    Unsigned(#[source] FileError),
    /// No signature of minisign.
    #[error("{file} is no signature that minisign makes today: {why}")]
    NoSignature {
        /// The file of the signature.
        file: String,
        /// What is wrong with it.
        why: String,
    },
    /// The file is another one.
    #[error("its SHA-256 is {found}, not {wanted}")]
    OtherDigest {
        /// What it is.
        found: String,
        /// What it should be.
        wanted: String,
    },
    /// The file is not what was signed, or another key has signed it.
    #[error("its signature is none of this key over these bytes: {why}")]
    Forged {
        /// What minisign says.
        why: String,
    },
}

impl fmt::Debug for Proof {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Expected::Sha256(_) => "a SHA-256",
            Expected::Signed(_) => "a signature",
        })
    }
}

impl Proof {
    /// The file has this SHA-256.
    ///
    /// # Errors
    ///
    /// [`ProofError::NoDigest`] for what has not 64 hexadecimal digits.
    pub fn of_sha256(text: &str) -> Result<Proof, ProofError> {
        let lower = text.to_ascii_lowercase();
        match is_sha256(&lower) {
            true => Ok(Proof(Expected::Sha256(lower))),
            false => Err(ProofError::NoDigest(text.to_owned())),
        }
    }

    /// Who has this key has signed the file; the signature is beside it, in `FILE.minisig`. `key` is what the second line of a public key's
    /// file says, or the path of one.
    ///
    /// # Errors
    ///
    /// [`ProofError`] when either is none.
    pub fn of_signature(key: &str, file: &Path) -> Result<Proof, ProofError> {
        let no_key = |why: String| ProofError::NoKey { key: key.to_owned(), why };
        let key = match PublicKey::from_base64(key) {
            Ok(key) => key,
            Err(none) if !files::exists(key) => return Err(no_key(none.to_string())),
            Err(_) => {
                let text = text(Path::new(key)).map_err(|error| no_key(error.source.to_string()))?;
                PublicKey::decode(&text).map_err(|error| no_key(error.to_string()))?
            }
        };
        let mut beside: OsString = file.as_os_str().to_owned();
        beside.push(".minisig");
        let text = text(Path::new(&beside)).map_err(ProofError::Unsigned)?;
        let no_signature =
            |why: String| ProofError::NoSignature { file: beside.to_string_lossy().into_owned(), why };
        let signature = Signature::decode(&text).map_err(|error| no_signature(error.to_string()))?;
        // What was signed as a whole, as minisign did before 0.10, would have to be in memory as a whole.
        key.verify_stream(&signature).map_err(|error| no_signature(error.to_string()))?;
        Ok(Proof(Expected::Signed(Box::new((key, signature)))))
    }

    /// Begins to look at the file's bytes.
    pub(super) fn begin(&self) -> Result<Witness<'_>, ProofError> {
        let verifier = match &self.0 {
            Expected::Sha256(_) => None,
            Expected::Signed(signed) => {
                let verifier = signed.0.verify_stream(&signed.1);
                Some(verifier.map_err(|error| ProofError::Forged { why: error.to_string() })?)
            }
        };
        Ok(Witness { proof: self, digest: Sha256::new(), verifier })
    }
}

fn text(path: &Path) -> Result<String, FileError> {
    Ok(String::from_utf8_lossy(&files::read_whole(path, LONGEST)?).into_owned())
}

/// Looks at all bytes of a file, one after the other.
pub(super) struct Witness<'a> {
    proof: &'a Proof,
    digest: Sha256,
    verifier: Option<StreamVerifier<'a>>,
}

impl Witness<'_> {
    pub(super) fn look(&mut self, bytes: &[u8]) {
        match &mut self.verifier {
            Some(verifier) => verifier.update(bytes),
            None => self.digest.update(bytes),
        }
    }

    /// Whether all that was looked at is what it should be.
    pub(super) fn judge(self) -> Result<(), ProofError> {
        match (&self.proof.0, self.verifier) {
            (_, Some(mut verifier)) => {
                verifier.finalize().map_err(|error| ProofError::Forged { why: error.to_string() })
            }
            (Expected::Sha256(wanted), None) => match hexadecimal(self.digest.finalize()) {
                found if found == *wanted => Ok(()),
                found => Err(ProofError::OtherDigest { found, wanted: wanted.clone() }),
            },
            (Expected::Signed(_), None) => Err(ProofError::Forged { why: "it was not looked at".to_owned() }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A published example of minisign's, over the bytes `test`.
    const KEY: &str = "RWQf6LRCGA9i53mlYecO4IzT51TGPpvWucNSCh1CBM0QTaLn73Y7GFO3";
    const SIGNATURE: &str = "untrusted comment: signature from minisign secret key
RUQf6LRCGA9i559r3g7V1qNyJDApGip8MfqcadIgT9CuhV3EMhHoN1mGTkUidF/z7SrlQgXdy8ofjb7bNJJylDOocrCo8KLzZwo=
trusted comment: timestamp:1556193335\tfile:test
y/rUw2y8/hOUYjZU71eHp/Wo1KZ40fGy2VJEDl34XMJM+TX48Ss/17u3IvIfbVR1FkZZSNCisQbuQY+bHwhEBg==
";
    /// As minisign signed before it hashed first.
    const OLD_SIGNATURE: &str = "untrusted comment: signature from minisign secret key
RWQf6LRCGA9i59SLOFxz6NxvASXDJeRtuZykwQepbDEGt87ig1BNpWaVWuNrm73YiIiJbq71Wi+dP9eKL8OC351vwIasSSbXxwA=
trusted comment: timestamp:1555779966\tfile:test
QtKMXWyYcwdpZAlPF7tE2ENJkRd1ujvKjlj1m9RtHTBnZPa5WKU5uWRs5GoP5M/VqE81QFuMKI5k/SfNQUaOAA==
";

    fn judged(proof: &Proof, pieces: &[&str]) -> Result<(), ProofError> {
        let mut witness = proof.begin().unwrap();
        pieces.iter().for_each(|piece| witness.look(piece.as_bytes()));
        witness.judge()
    }

    #[test]
    fn a_digest_is_that_of_all_bytes() {
        let digest = "9F86D081884C7D659A2FEAA0C55AD015A3BF4F1B2B0B822CD15D6C15B0F00A08";
        let proof = Proof::of_sha256(digest).unwrap();
        judged(&proof, &["te", "", "st"]).unwrap();
        let other = judged(&proof, &["test", "\n"]).unwrap_err().to_string();
        assert!(other.contains(&digest.to_lowercase()), "{other}");
        for none in ["", "9f86", &format!("{}g", &digest[1..])] {
            assert!(matches!(Proof::of_sha256(none), Err(ProofError::NoDigest(_))));
        }
    }

    #[test]
    fn a_signature_is_that_of_the_key_over_all_bytes() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("image.tar.gz");
        let beside = directory.path().join("image.tar.gz.minisig");
        assert!(matches!(Proof::of_signature(KEY, &file), Err(ProofError::Unsigned(_))));
        files::write_atomic(&beside, SIGNATURE).unwrap();
        let key = directory.path().join("key.pub");
        files::write_atomic(&key, format!("untrusted comment: minisign public key\n{KEY}\n")).unwrap();
        for key in [KEY, key.to_str().unwrap()] {
            let proof = Proof::of_signature(key, &file).unwrap();
            judged(&proof, &["t", "est"]).unwrap();
            assert!(matches!(judged(&proof, &["Test"]), Err(ProofError::Forged { .. })));
        }
        for none in ["", "key", "/etc/passwd"] {
            assert!(matches!(Proof::of_signature(none, &file), Err(ProofError::NoKey { .. })), "{none}");
        }
        for none in ["", "untrusted comment: x\nAAAA\n", OLD_SIGNATURE] {
            files::write_atomic(&beside, none).unwrap();
            let said = Proof::of_signature(KEY, &file).unwrap_err().to_string();
            assert!(said.contains("image.tar.gz.minisig is no signature"), "{said}");
        }
    }
}
