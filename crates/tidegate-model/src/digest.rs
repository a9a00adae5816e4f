//! Canonical digests: SHA-256 over canonical JSON (RFC 8785).

use serde::Serialize;
use sha2::{Digest as _, Sha256};

use crate::text_form::text_form;

/// A SHA-256 digest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digest(pub [u8; 32]);

impl Digest {
    /// The form that is stored.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl std::fmt::Display for Digest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("sha256:")?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// The canonical JSON of a value, as bytes.
pub fn canonical_json<T: Serialize>(value: &T) -> Result<Vec<u8>, serde_json::Error> {
    serde_json_canonicalizer::to_vec(value)
}

/// The digest of a value's canonical JSON: equal contents give equal digests, whatever the order of fields.
pub fn canonical_digest<T: Serialize>(value: &T) -> Result<Digest, serde_json::Error> {
    Ok(Digest(Sha256::digest(canonical_json(value)?).into()))
}

/// A text that is no digest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a digest: expected sha256: and 64 lower-case hexadecimal digits")]
pub struct InvalidDigest;

impl std::str::FromStr for Digest {
    type Err = InvalidDigest;

    fn from_str(text: &str) -> Result<Self, InvalidDigest> {
        let hex = text.strip_prefix("sha256:").ok_or(InvalidDigest)?;
        let plain = hex.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        if hex.len() != 64 || !plain {
            return Err(InvalidDigest);
        }
        let mut bytes = [0; 32];
        for (index, byte) in bytes.iter_mut().enumerate() {
            let pair = hex.get(index * 2..index * 2 + 2).ok_or(InvalidDigest)?;
            *byte = u8::from_str_radix(pair, 16).map_err(|_| InvalidDigest)?;
        }
        Ok(Self(bytes))
    }
}

text_form!(Digest, "^sha256:[0-9a-f]{64}$");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_read_as_it_is_written() {
        let digest = canonical_digest(&1).unwrap();
        assert_eq!(digest.to_string().parse(), Ok(digest));
        let upper = digest.to_string().to_ascii_uppercase();
        for bad in ["", "sha256:", "sha256:00", &upper, &format!("{digest}0")] {
            assert_eq!(bad.parse::<Digest>(), Err(InvalidDigest), "{bad}");
        }
    }

    /// R6.1: the order of fields does not change a digest, a value does.
    #[test]
    fn digests_follow_content_not_spelling() {
        let one: serde_json::Value = serde_json::from_str(r#"{"a": 1, "b": [true, "x"]}"#).unwrap();
        let two: serde_json::Value = serde_json::from_str(r#"{"b":[true,"x"],"a":1.0}"#).unwrap();
        let other: serde_json::Value =
            serde_json::from_str(r#"{"a": 2, "b": [true, "x"]}"#).unwrap();
        assert_eq!(
            canonical_digest(&one).unwrap(),
            canonical_digest(&two).unwrap()
        );
        assert_ne!(
            canonical_digest(&one).unwrap(),
            canonical_digest(&other).unwrap()
        );
    }
}
