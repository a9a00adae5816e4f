//! Keyed digests of bodies: they tell a repeat from a conflict and say nothing of the content to who reads the table.

use hmac::{Hmac, KeyInit as _, Mac as _};
use serde::Serialize;
use sha2::Sha256;
use tidegate_model::digest::canonical_json;

use crate::{Engine, Error};

impl Engine {
    /// The keyed digest of what was submitted; `route` keeps equal bodies of different routes apart.
    pub(crate) fn body_digest<T: Serialize>(
        &self,
        route: &str,
        body: &T,
    ) -> Result<[u8; 32], Error> {
        let canonical = canonical_json(body).map_err(|_| {
            Error::invalid(
                "$",
                "the body holds a number that JSON cannot carry exactly",
            )
        })?;
        let mut mac = <Hmac<Sha256>>::new_from_slice(self.digest_key())
            .map_err(|_| Error::Internal { what: "digest key" })?;
        mac.update(route.as_bytes());
        mac.update(&[0]);
        mac.update(&canonical);
        Ok(mac.finalize().into_bytes().into())
    }
}
