//! Tokens of the access file: 256 random bits. The file holds their hashes only. The bits are random, so a plain hash
//! keeps them: nobody can try them out.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::rand::{SecureRandom, SystemRandom};
use sha2::{Digest as _, Sha256};

/// The beginning of every token: scanners for secrets find it by that.
pub const PREFIX: &str = "rl_";

/// Random bytes of a token.
const RANDOM_BYTES: usize = 32;

/// Bytes of the longest credential that is looked at.
pub const CREDENTIAL_BYTES_MAX: usize = 8 * 1024;

/// A new token. Its text is a secret: it is shown once, and kept nowhere.
pub struct NewToken(String);

impl NewToken {
    /// Draws a token; none where the system has no randomness.
    #[must_use]
    pub fn draw() -> Option<Self> {
        let mut random = [0; RANDOM_BYTES];
        SystemRandom::new().fill(&mut random).ok()?;
        Some(Self(format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(random))))
    }

    /// The token's text, to be handed over.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// The token's hash.
    #[must_use]
    pub fn hash(&self) -> TokenHash {
        TokenHash::new(self.0.as_bytes())
    }
}

impl fmt::Debug for NewToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NewToken(***)")
    }
}

/// The SHA-256 of a token. It is no secret.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TokenHash([u8; 32]);

impl TokenHash {
    /// The hash of a token's text.
    #[must_use]
    pub fn new(token: &[u8]) -> Self {
        Self(Sha256::digest(token).into())
    }

    /// The hash that 64 hexadecimal digits stand for.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let digits = text.as_bytes();
        if digits.len() != 64 {
            return None;
        }
        let mut hash = [0; 32];
        for (byte, pair) in hash.iter_mut().zip(digits.chunks_exact(2)) {
            let high = char::from(pair[0]).to_digit(16)?;
            let low = char::from(pair[1]).to_digit(16)?;
            *byte = u8::try_from(high * 16 + low).ok()?;
        }
        Some(Self(hash))
    }
}

impl fmt::Display for TokenHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for TokenHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TokenHash({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_known_by_its_hash_and_no_two_are_alike() {
        let (one, other) = (NewToken::draw().unwrap(), NewToken::draw().unwrap());
        assert_ne!(one.reveal(), other.reveal());
        assert_eq!(one.reveal().len(), PREFIX.len() + 43);
        assert_eq!(TokenHash::new(one.reveal().as_bytes()), one.hash());
        assert_eq!(TokenHash::parse(&one.hash().to_string()), Some(one.hash()));
    }

    #[test]
    fn a_token_is_not_shown_by_accident() {
        let token = NewToken::draw().unwrap();
        assert!(!format!("{token:?}").contains(token.reveal()));
    }

    #[test]
    fn what_is_no_hash_is_none() {
        for text in ["", "00", &"g".repeat(64), &"0".repeat(63), &"é".repeat(32)] {
            assert_eq!(TokenHash::parse(text), None, "{text:?}");
        }
    }

    #[test]
    fn the_hash_is_the_one_that_other_tools_make() {
        let of_abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(TokenHash::new(b"abc").to_string(), of_abc);
    }
}
