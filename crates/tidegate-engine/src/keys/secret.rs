//! The secret of a key: `tg_` and 32 random bytes in base64url.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use secrecy::SecretString;
use sha2::{Digest as _, Sha256};

use crate::Error;

const PREFIX: &str = "tg_";
const RANDOM_BYTES: usize = 32;
/// The length of those bytes in base64url without padding.
const TEXT_BYTES: usize = 43;

/// A new secret with the hash that is stored.
pub(crate) fn generate() -> Result<(SecretString, [u8; 32]), Error> {
    let mut bytes = [0; RANDOM_BYTES];
    getrandom::fill(&mut bytes).map_err(|_| Error::Internal {
        what: "no randomness",
    })?;
    let text = format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(bytes));
    let hash = Sha256::digest(text.as_bytes()).into();
    Ok((SecretString::from(text), hash))
}

/// Whether a text has the form of a secret; what has not is refused without asking the database.
pub(crate) fn has_form(text: &str) -> bool {
    text.strip_prefix(PREFIX).is_some_and(|rest| {
        rest.len() == TEXT_BYTES
            && rest
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'))
    })
}

#[cfg(test)]
mod tests {
    use secrecy::ExposeSecret as _;

    use super::*;

    /// R2.1: the form is 256 random bits behind a visible prefix.
    #[test]
    fn secrets_have_their_form_and_differ() {
        let (one, hash) = generate().unwrap();
        let (two, _) = generate().unwrap();
        assert!(has_form(one.expose_secret()) && has_form(two.expose_secret()));
        assert_ne!(one.expose_secret(), two.expose_secret());
        assert_eq!(
            hash,
            <[u8; 32]>::from(Sha256::digest(one.expose_secret().as_bytes()))
        );
        for bad in ["", "tg_", "xx_", &one.expose_secret()[1..], "tg_\0"] {
            assert!(!has_form(bad), "{bad:?}");
        }
    }
}
