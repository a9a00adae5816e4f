//! Typed ids. Random ids show a prefix and a UUIDv7 (`run_0193…`); names chosen by an operator are slugs.

use std::{fmt, str::FromStr};

use uuid::Uuid;

use crate::text_form::text_form;

/// An id that does not have the form of its kind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a {kind}: expected {expected}")]
pub struct InvalidId {
    /// The kind of id, for example `run id`.
    pub kind: &'static str,
    /// What a valid one looks like.
    pub expected: &'static str,
}

macro_rules! uuid_ids {
    ($($(#[$meta:meta])* $name:ident, $prefix:literal, $kind:literal;)+) => {$(
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(Uuid);

        impl $name {
            /// The visible prefix.
            pub const PREFIX: &'static str = $prefix;

            /// A new, time-ordered id.
            #[expect(clippy::disallowed_methods, reason = "the one source of ids; no decision depends on their time")]
            pub fn new() -> Self { Self(Uuid::now_v7()) }
            /// Takes an id that was stored.
            pub const fn from_uuid(uuid: Uuid) -> Self { Self(uuid) }
            /// The form that is stored.
            pub const fn as_uuid(self) -> Uuid { self.0 }
        }

        impl Default for $name {
            fn default() -> Self { Self::new() }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&format!("{}{}", $prefix, self.0.simple()))
            }
        }

        impl FromStr for $name {
            type Err = InvalidId;

            fn from_str(text: &str) -> Result<Self, InvalidId> {
                text.strip_prefix($prefix)
                    .filter(|rest| rest.len() == 32 && rest.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')))
                    .and_then(|rest| Uuid::try_parse(rest).ok())
                    .map(Self)
                    .ok_or(InvalidId { kind: $kind, expected: concat!($prefix, " and 32 lower-case hexadecimal digits") })
            }
        }

        text_form!($name, concat!("^", $prefix, "[0-9a-f]{32}$"));
    )+};
}

uuid_ids! {
    /// One durable unit of agent work (R3.1).
    RunId, "run_", "run id";
    /// A conversation, whose turns run one at a time (R3.7).
    ConversationId, "conv_", "conversation id";
    /// An API key (R2.1); not the secret.
    KeyId, "key_", "key id";
    /// A reservation of resources (R7.1).
    AdmissionId, "adm_", "admission id";
    /// A running server process.
    InstanceId, "ins_", "instance id";
    /// One HTTP request.
    RequestId, "req_", "request id";
}

macro_rules! slug_ids {
    ($($(#[$meta:meta])* $name:ident, $kind:literal, $max:literal, $extra:pat, $expected:literal;)+) => {$(
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(String);

        impl $name {
            /// The most bytes it may have.
            pub const MAX_BYTES: usize = $max;

            /// The text form, stored and sent.
            pub fn as_str(&self) -> &str { &self.0 }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result { f.pad(&self.0) }
        }

        impl FromStr for $name {
            type Err = InvalidId;

            fn from_str(text: &str) -> Result<Self, InvalidId> {
                let mut bytes = text.bytes();
                let starts = matches!(bytes.next(), Some(b'a'..=b'z' | b'0'..=b'9'));
                if starts && text.len() <= $max && bytes.all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9') || matches!(b, $extra)) {
                    Ok(Self(text.to_owned()))
                } else {
                    Err(InvalidId { kind: $kind, expected: $expected })
                }
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str { &self.0 }
        }

        text_form!($name, "^[a-z0-9]");
    )+};
}

slug_ids! {
    /// A tenant: chosen by the operator, immutable, never reused.
    TenantId, "tenant id", 63, b'-',
        "1 to 63 of a-z, 0-9 and '-', starting with a letter or digit (for example acme)";
    /// An execution pool (R5).
    PoolId, "pool id", 63, b'-' | b'_',
        "1 to 63 of a-z, 0-9, '-' and '_', starting with a letter or digit (for example builtin)";
    /// What a run asks for and a pool offers, for example `chat` or `hr.employee_query`.
    Capability, "capability", 100, b'-' | b'.' | b'_',
        "1 to 100 of a-z, 0-9, '-', '_' and '.', starting with a letter or digit (for example hr.employee_query)";
    /// A schedule of a tenant (R3.14).
    ScheduleName, "name", 63, b'-' | b'.' | b'_',
        "1 to 63 of a-z, 0-9, '-', '_' and '.', starting with a letter or digit (for example nightly-report)";
    /// A name in the catalogue of providers, models or tool servers.
    CatalogName, "name", 63, b'-' | b'.' | b'_',
        "1 to 63 of a-z, 0-9, '-', '_' and '.', starting with a letter or digit";
}

impl PoolId {
    /// The pool of the executor that every chat instance carries.
    pub fn builtin() -> Self {
        Self("builtin".to_owned())
    }
}

impl Capability {
    /// The capability of a conversation turn that names none.
    pub fn chat() -> Self {
        Self("chat".to_owned())
    }
}

/// The name a worker process gives itself; never a proof of ownership (R4.2).
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WorkerId(String);

impl WorkerId {
    /// The text form.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for WorkerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl FromStr for WorkerId {
    type Err = InvalidId;

    fn from_str(text: &str) -> Result<Self, InvalidId> {
        let fits = (1..=100).contains(&text.len());
        if fits && text.bytes().all(|b| b.is_ascii_graphic()) {
            Ok(Self(text.to_owned()))
        } else {
            Err(InvalidId {
                kind: "worker id",
                expected: "1 to 100 printable ASCII characters without spaces",
            })
        }
    }
}

text_form!(WorkerId, "^[!-~]{1,100}$");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_show_their_prefix_and_refuse_any_other() {
        let id = RunId::new();
        assert_eq!(id.to_string().parse(), Ok(id));
        for bad in [
            "",
            "run_",
            "run_XYZ",
            &id.to_string()[4..],
            &id.to_string().to_uppercase(),
        ] {
            assert!(bad.parse::<RunId>().is_err(), "{bad}");
        }
        assert!(
            id.to_string()
                .replace("run_", "conv_")
                .parse::<RunId>()
                .is_err()
        );
    }

    #[test]
    fn slugs_refuse_what_could_be_mistaken_for_another() {
        for good in ["acme", "globex-2", "0a"] {
            assert!(good.parse::<TenantId>().is_ok(), "{good}");
        }
        for bad in ["", "Acme", "-acme", "ac me", "acmé", "a\0", &"a".repeat(64)] {
            assert!(bad.parse::<TenantId>().is_err(), "{bad:?}");
        }
        assert!("hr.employee_query".parse::<Capability>().is_ok());
    }
}
