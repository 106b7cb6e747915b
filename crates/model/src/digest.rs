//! Digests, by which content is known again.

use sha2::{Digest, Sha256};

/// The SHA-256 (FIPS 180-4) of `bytes` in lower-case hexadecimal.
pub fn sha256(bytes: impl AsRef<[u8]>) -> String {
    hexadecimal(Sha256::digest(bytes))
}

/// Bytes in lower-case hexadecimal.
pub fn hexadecimal(bytes: impl AsRef<[u8]>) -> String {
    bytes.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Whether a text is a SHA-256 as [`sha256`] gives it.
pub fn is_sha256(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

#[cfg(test)]
mod tests {
    #[test]
    fn it_is_what_the_standard_says() {
        let wanted = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(super::sha256("abc"), wanted);
        assert!(super::is_sha256(wanted));
        for none in ["", &wanted[1..], &wanted.to_uppercase(), &format!("{}g", &wanted[1..])] {
            assert!(!super::is_sha256(none), "{none}");
        }
    }
}
