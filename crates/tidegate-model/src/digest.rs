//! Canonical digests: SHA-256 over canonical JSON (RFC 8785).

use serde::Serialize;
use sha2::{Digest as _, Sha256};

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

#[cfg(test)]
mod tests {
    use super::*;

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
