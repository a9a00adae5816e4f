//! What a value must be besides its type, and how a secret is shown without giving it away.

use base64::Engine as _;

/// A condition on the text of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// The type says it all.
    None,
    /// An integer within these bounds.
    Range(u32, u32),
    /// An integer within these bounds, or 0 for "off".
    ZeroOr(u32, u32),
    /// `postgres://` or `postgresql://`.
    PostgresUrl,
    /// `redis://` or `rediss://`.
    RedisUrl,
    /// 32 bytes in base64.
    EncryptionKey,
    /// A name of 1 to 63 of a-z, 0-9, `-`, `_`.
    Slug,
    /// Capabilities, comma separated.
    Capabilities,
    /// `chat`, `admin`.
    Roles,
    /// `address:port`.
    Address,
    /// Addresses or networks, comma separated.
    Networks,
    /// Not empty, and at most this many bytes.
    Length(usize),
}

/// How to make an encryption key.
pub const MAKE_KEY: &str = "openssl rand -base64 32";

impl Rule {
    /// What is allowed, in words; `None` where the type's own words do.
    pub fn allowed(self) -> Option<String> {
        Some(match self {
            Self::None => return None,
            Self::Range(low, high) => format!("an integer from {low} to {high}"),
            Self::ZeroOr(low, high) => format!("0 (off) or an integer from {low} to {high}"),
            Self::PostgresUrl => {
                "postgres://user:password@host:5432/database (PostgreSQL 15 or newer)".to_owned()
            }
            Self::RedisUrl => "redis://host:6379 or rediss://host:6379 (TLS)".to_owned(),
            Self::EncryptionKey => {
                format!("32 random bytes in base64; make one with `{MAKE_KEY}`")
            }
            Self::Slug => "1 to 63 of a-z, 0-9, '-' and '_'".to_owned(),
            Self::Capabilities => "capabilities such as chat, comma separated".to_owned(),
            Self::Roles => "chat, admin, or both, comma separated".to_owned(),
            Self::Address => "address:port, for example 127.0.0.1:8480".to_owned(),
            Self::Networks => {
                "addresses or networks, comma separated, for example 10.0.0.0/8".to_owned()
            }
            Self::Length(most) => format!("1 to {most} bytes of text"),
        })
    }

    /// Checks what types do not check. The error says what was wrong without repeating the value, so that it may be
    /// shown for secrets too.
    pub fn check(self, text: &str) -> Result<(), String> {
        if text.contains('\0') {
            return Err("a NUL byte".to_owned());
        }
        match self {
            Self::PostgresUrl => {
                has_host(text, &["postgres", "postgresql"]).map_err(ToOwned::to_owned)
            }
            Self::RedisUrl => has_host(text, &["redis", "rediss"]).map_err(ToOwned::to_owned),
            Self::EncryptionKey => is_key(text),
            Self::Slug if !is_slug(text) => Err("another form".to_owned()),
            Self::Length(most) if text.is_empty() || text.len() > most => {
                Err(format!("{} bytes", text.len()))
            }
            _ => Ok(()),
        }
    }

    /// A secret as it may be shown: for a URL where it points, for a key nothing at all.
    pub fn redact(self, secret: &str) -> String {
        match self {
            Self::PostgresUrl | Self::RedisUrl => redact_url(secret),
            _ => "(redacted)".to_owned(),
        }
    }
}

fn is_slug(text: &str) -> bool {
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'-' | b'_');
    (1..=63).contains(&text.len()) && text.bytes().all(plain)
}

fn is_key(text: &str) -> Result<(), String> {
    let bytes = base64::engine::general_purpose::STANDARD
        .decode(text.trim())
        .map_err(|_| "a text that is not base64".to_owned())?;
    match bytes.len() {
        32 if bytes.iter().all(|byte| *byte == bytes[0]) => {
            Err("32 equal bytes, which is no random key".to_owned())
        }
        32 => Ok(()),
        other => Err(format!("{other} bytes")),
    }
}

fn has_host(text: &str, schemes: &[&str]) -> Result<(), &'static str> {
    let (scheme, rest) = text
        .split_once("://")
        .ok_or("a text without scheme and ://")?;
    if !schemes.contains(&scheme) {
        return Err("another scheme");
    }
    if rest.is_empty() || text.chars().any(char::is_whitespace) {
        return Err("no host, or a space");
    }
    Ok(())
}

/// Scheme, host and path of a URL; user, password and parameters may be secret and are left out.
fn redact_url(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else {
        return "(redacted)".to_owned();
    };
    let rest = rest.split(['?', '#']).next().unwrap_or_default();
    // The last @ separates: a password may hold one that was not encoded.
    match rest.rsplit_once('@') {
        Some((_, place)) => format!("{scheme}://(redacted)@{place}"),
        None => format!("{scheme}://{rest}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_shown_without_anything_secret() {
        let shown = |url| Rule::PostgresUrl.redact(url);
        assert_eq!(
            shown("postgres://u:p@ss@db:5432/x?password=q"),
            "postgres://(redacted)@db:5432/x"
        );
        assert_eq!(shown("postgres://db/x"), "postgres://db/x");
        assert_eq!(shown("hunter2"), "(redacted)");
    }

    #[test]
    fn a_key_is_32_bytes_that_are_not_all_the_same() {
        let check = |text: &str| Rule::EncryptionKey.check(text);
        let encode = |bytes: &[u8]| base64::engine::general_purpose::STANDARD.encode(bytes);
        let good: Vec<u8> = (0..32).collect();
        assert_eq!(check(&encode(&good)), Ok(()));
        assert_eq!(check(&encode(&good[..16])), Err("16 bytes".to_owned()));
        assert_eq!(check("???"), Err("a text that is not base64".to_owned()));
        assert!(check(&encode(&[0; 32])).is_err());
    }
}
