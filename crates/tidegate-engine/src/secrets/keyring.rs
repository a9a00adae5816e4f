//! The keys that seal secrets at rest (R1.8).
//!
//! An envelope is one version byte, a random nonce of 24 bytes, and the text under XChaCha20-Poly1305 with the place it
//! stands in as associated data: an envelope that was copied to another row, column or table does not open.

use std::sync::Arc;

use base64::Engine as _;
use chacha20poly1305::{
    KeyInit as _, XChaCha20Poly1305, XNonce,
    aead::{Aead as _, Payload},
};
use secrecy::{ExposeSecret as _, SecretSlice, SecretString};
use sha2::{Digest as _, Sha256};
use tidegate_store::catalog::Sealed;

use super::SecretError;

/// The length of a key.
const KEY_BYTES: usize = 32;
/// The length of a nonce.
const NONCE_BYTES: usize = 24;
/// The form of an envelope.
const VERSION: u8 = 1;

/// The place a secret stands in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place<'a> {
    /// The table.
    pub table: &'a str,
    /// The row's key.
    pub row: &'a str,
    /// The column.
    pub column: &'a str,
}

impl Place<'_> {
    /// The associated data: each part with its length, so that no two places have the same.
    fn associated(&self) -> Vec<u8> {
        let mut bytes = b"tidegate sealed v1".to_vec();
        for part in [self.table, self.row, self.column] {
            bytes.extend_from_slice(&(part.len() as u64).to_be_bytes());
            bytes.extend_from_slice(part.as_bytes());
        }
        bytes
    }
}

struct Key {
    id: String,
    cipher: XChaCha20Poly1305,
}

/// The current key and, during a rotation, the one before.
#[derive(Clone)]
pub struct Keyring(Arc<Keys>);

struct Keys {
    current: Key,
    previous: Option<Key>,
}

impl std::fmt::Debug for Keyring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Keyring")
            .field("current", &self.0.current.id)
            .field("previous", &self.0.previous.as_ref().map(|key| &key.id))
            .finish()
    }
}

impl Keyring {
    /// Takes the values of `CONFIG_ENC_KEY` and `CONFIG_ENC_KEY_PREVIOUS`. One key as both is refused: who means to rotate
    /// gave the new key for the old one, and would lose the old one.
    pub fn new(
        current: &SecretString,
        previous: Option<&SecretString>,
    ) -> Result<Self, SecretError> {
        let keys = Keys {
            current: parse("CONFIG_ENC_KEY", current)?,
            previous: previous
                .map(|text| parse("CONFIG_ENC_KEY_PREVIOUS", text))
                .transpose()?,
        };
        match &keys.previous {
            Some(previous) if previous.id == keys.current.id => Err(SecretError::SameKey {
                key: previous.id.clone(),
            }),
            _ => Ok(Self(Arc::new(keys))),
        }
    }

    /// A keyring with one random key, for tests and for `tidegate dev` before it has one; the text is what
    /// `CONFIG_ENC_KEY` would hold.
    pub fn generate() -> Result<(Self, SecretString), SecretError> {
        let mut bytes = [0; KEY_BYTES];
        getrandom::fill(&mut bytes).map_err(|_| SecretError::NoRandomness)?;
        let text = SecretString::from(base64::engine::general_purpose::STANDARD.encode(bytes));
        Ok((Self::new(&text, None)?, text))
    }

    /// The id of the key that seals.
    pub fn current_id(&self) -> &str {
        &self.0.current.id
    }

    /// The id of the key before, where one was given.
    pub fn previous_id(&self) -> Option<&str> {
        self.0.previous.as_ref().map(|key| key.id.as_str())
    }

    /// The ids of all its keys; they tell nothing of the keys.
    pub fn ids(&self) -> Vec<String> {
        let ids = [Some(self.current_id()), self.previous_id()];
        ids.into_iter().flatten().map(str::to_owned).collect()
    }

    /// Whether one of the keys has this id.
    pub fn has(&self, key_id: &str) -> bool {
        self.key(key_id).is_some()
    }

    fn key(&self, id: &str) -> Option<&Key> {
        [Some(&self.0.current), self.0.previous.as_ref()]
            .into_iter()
            .flatten()
            .find(|key| key.id == id)
    }

    /// Seals a secret for its place under the current key.
    pub fn seal(&self, place: Place<'_>, secret: &[u8]) -> Result<Sealed, SecretError> {
        Self::seal_under(&self.0.current, place, secret)
    }

    /// Seals a secret for its place under the key that the database is sealed with, whichever of the two it is: every
    /// server reads that one, while the current key may be known to this server alone until it is rotated to.
    pub fn seal_in_force(
        &self,
        in_force: &str,
        place: Place<'_>,
        secret: &[u8],
    ) -> Result<Sealed, SecretError> {
        let key = self.key(in_force).ok_or_else(|| SecretError::KeyReplaced {
            in_force: in_force.to_owned(),
        })?;
        Self::seal_under(key, place, secret)
    }

    fn seal_under(key: &Key, place: Place<'_>, secret: &[u8]) -> Result<Sealed, SecretError> {
        let mut nonce = [0; NONCE_BYTES];
        getrandom::fill(&mut nonce).map_err(|_| SecretError::NoRandomness)?;
        let payload = Payload {
            msg: secret,
            aad: &place.associated(),
        };
        let closed = key
            .cipher
            .encrypt(&XNonce::from(nonce), payload)
            .map_err(|_| SecretError::unreadable(place))?;
        let mut envelope = Vec::with_capacity(1 + NONCE_BYTES + closed.len());
        envelope.push(VERSION);
        envelope.extend_from_slice(&nonce);
        envelope.extend_from_slice(&closed);
        Ok(Sealed {
            envelope,
            key_id: key.id.clone(),
        })
    }

    /// Opens what was sealed for this place.
    pub fn open(&self, place: Place<'_>, sealed: &Sealed) -> Result<SecretSlice<u8>, SecretError> {
        let unreadable = || SecretError::unreadable(place);
        let key = self
            .key(&sealed.key_id)
            .ok_or_else(|| SecretError::without_key(place, &sealed.key_id))?;
        let (version, rest) = sealed.envelope.split_first().ok_or_else(unreadable)?;
        if *version != VERSION {
            return Err(unreadable());
        }
        let (nonce, closed) = rest
            .split_first_chunk::<NONCE_BYTES>()
            .ok_or_else(unreadable)?;
        let payload = Payload {
            msg: closed,
            aad: &place.associated(),
        };
        let open = key
            .cipher
            .decrypt(&XNonce::from(*nonce), payload)
            .map_err(|_| unreadable())?;
        Ok(SecretSlice::from(open))
    }

    /// Opens a text.
    pub fn open_text(
        &self,
        place: Place<'_>,
        sealed: &Sealed,
    ) -> Result<SecretString, SecretError> {
        let open = self.open(place, sealed)?;
        let text = std::str::from_utf8(open.expose_secret())
            .map_err(|_| SecretError::unreadable(place))?;
        Ok(SecretString::from(text.to_owned()))
    }
}

fn parse(variable: &'static str, text: &SecretString) -> Result<Key, SecretError> {
    let malformed = |found: String| SecretError::Malformed { variable, found };
    let bytes = base64::engine::general_purpose::STANDARD
        .decode(text.expose_secret().trim())
        .map_err(|_| malformed("a text that is not base64".to_owned()))?;
    let key: [u8; KEY_BYTES] = bytes
        .as_slice()
        .try_into()
        .map_err(|_| malformed(format!("{} bytes", bytes.len())))?;
    let mut hash = Sha256::new();
    hash.update(b"tidegate key id");
    hash.update(key);
    let id = hash.finalize()[..8]
        .iter()
        .fold(String::with_capacity(16), |mut id, byte| {
            use std::fmt::Write as _;
            // Writing to a string cannot fail.
            let _ = write!(id, "{byte:02x}");
            id
        });
    Ok(Key {
        id,
        cipher: XChaCha20Poly1305::new(&key.into()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: Place<'_> = Place {
        table: "providers",
        row: "openai",
        column: "api_key",
    };

    /// R1.8: what is sealed opens in its place only, with its key only.
    #[test]
    fn an_envelope_opens_in_its_place_only() {
        let (keyring, text) = Keyring::generate().unwrap();
        let sealed = keyring.seal(HERE, b"sk-canary").unwrap();
        assert_eq!(
            keyring.open_text(HERE, &sealed).unwrap().expose_secret(),
            "sk-canary"
        );
        let elsewhere = [
            Place {
                table: "tool_servers",
                ..HERE
            },
            Place {
                row: "other",
                ..HERE
            },
            Place {
                column: "env",
                ..HERE
            },
        ];
        for place in elsewhere {
            assert!(keyring.open(place, &sealed).is_err(), "{place:?}");
        }
        let (stranger, _) = Keyring::generate().unwrap();
        assert!(stranger.open(HERE, &sealed).is_err());
        let mut torn = sealed.clone();
        *torn.envelope.last_mut().unwrap() ^= 1;
        assert!(keyring.open(HERE, &torn).is_err());
        torn.envelope.truncate(10);
        assert!(keyring.open(HERE, &torn).is_err());
        // The next key opens it as long as this one is the previous.
        let (_, next) = Keyring::generate().unwrap();
        let rotated = Keyring::new(&next, Some(&text)).unwrap();
        assert!(rotated.open(HERE, &sealed).is_ok());
        assert_ne!(rotated.current_id(), keyring.current_id());
    }

    /// R1.1: the message names the variable and how to get a value, and never the value.
    #[test]
    fn a_malformed_key_is_named() {
        let short = base64::engine::general_purpose::STANDARD.encode([7; 31]);
        for (text, found) in [
            ("", "0 bytes"),
            ("not base64!", "not base64"),
            (&short, "31 bytes"),
        ] {
            let error = Keyring::new(&SecretString::from(text.to_owned()), None).unwrap_err();
            let told = error.to_string();
            assert!(
                told.contains("CONFIG_ENC_KEY") && told.contains(found),
                "{told}"
            );
            assert!(told.contains("openssl rand -base64 32"), "{told}");
            assert!(text.is_empty() || !told.contains(text), "{told}");
        }
        let (_, good) = Keyring::generate().unwrap();
        let previous = SecretString::from("x".to_owned());
        let told = Keyring::new(&good, Some(&previous))
            .unwrap_err()
            .to_string();
        assert!(told.contains("CONFIG_ENC_KEY_PREVIOUS"), "{told}");
        // R1.8: one key as both rotates nothing.
        let told = Keyring::new(&good, Some(&good)).unwrap_err().to_string();
        assert!(
            told.contains("CONFIG_ENC_KEY_PREVIOUS holds the same key"),
            "{told}"
        );
        assert!(!told.contains(good.expose_secret()), "{told}");
    }

    #[test]
    fn keys_do_not_show_in_debug_output() {
        let (keyring, text) = Keyring::generate().unwrap();
        assert!(!format!("{keyring:?}").contains(text.expose_secret()));
    }
}
