//! Words that nobody guesses.

use std::{
    fs::File,
    io::{self, Read},
};

/// A new secret: 32 bytes of the kernel's random numbers (random(4)), as 64 hexadecimal digits.
///
/// # Errors
///
/// The kernel's, when `/dev/urandom` cannot be read.
pub fn token() -> io::Result<String> {
    let mut bytes = [0; 32];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_are_the_same() {
        let (one, other) = (token().unwrap(), token().unwrap());
        assert_ne!(one, other);
        assert!(one.len() == 64 && one.bytes().all(|byte| byte.is_ascii_hexdigit()));
    }
}
