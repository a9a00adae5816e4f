//! The words of the contracts. Each is compared exactly: nothing that merely looks alike is the same (R6.2).

use std::{collections::BTreeSet, fmt, str::FromStr};

use crate::{TenantId, ids::InvalidId, text_form::text_form};

macro_rules! words {
    ($($(#[$meta:meta])* $name:ident, $kind:literal, $max:literal, $extra:pat, $pattern:literal, $expected:literal;)+) => {$(
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(String);

        impl $name {
            /// The text form, stored and sent.
            pub fn as_str(&self) -> &str { &self.0 }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result { f.pad(&self.0) }
        }

        impl FromStr for $name {
            type Err = InvalidId;

            fn from_str(text: &str) -> Result<Self, InvalidId> {
                let starts = text.bytes().next().is_some_and(|b| b.is_ascii_alphanumeric());
                if starts && text.len() <= $max && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, $extra)) {
                    Ok(Self(text.to_owned()))
                } else {
                    Err(InvalidId { kind: $kind, expected: $expected })
                }
            }
        }

        text_form!($name, $pattern);
    )+};
}

words! {
    /// A data-classification label, for example `pii`.
    Label, "label", 100, b'-' | b'.' | b'_' | b':' | b'/', "^[A-Za-z0-9][A-Za-z0-9._:/-]{0,99}$",
        "1 to 100 of letters, digits, '-', '.', '_', ':' and '/', starting with a letter or digit (for example pii)";
    /// Where a pool runs, for example `eu-central-1`.
    Region, "region", 63, b'-' | b'.' | b'_', "^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$",
        "1 to 63 of letters, digits, '-', '.' and '_', starting with a letter or digit (for example eu-central-1)";
    /// Something that a pool may read, for example `repo:acme/web` or `data:invoices`.
    ResourceScope, "resource scope", 300, b'-' | b'.' | b'_' | b':' | b'/' | b'@' | b'+', "^[A-Za-z0-9][A-Za-z0-9._:/@+-]{0,299}$",
        "1 to 300 of letters, digits and -._:/@+, starting with a letter or digit (for example repo:acme/web)";
    /// A runtime, for example `chromium` or `python`.
    RuntimeName, "runtime", 63, b'-' | b'.' | b'_' | b'+', "^[A-Za-z0-9][A-Za-z0-9._+-]{0,62}$",
        "1 to 63 of letters, digits and -._+, starting with a letter or digit (for example chromium)";
}

/// A tool as `domain/name`, for example `web/search`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ToolName(String);

impl ToolName {
    /// The text form, stored and sent.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ToolName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl FromStr for ToolName {
    type Err = InvalidId;

    fn from_str(text: &str) -> Result<Self, InvalidId> {
        let part = |part: &str| {
            (1..=100).contains(&part.len())
                && part
                    .bytes()
                    .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_'))
        };
        match text.split_once('/') {
            Some((domain, name)) if part(domain) && part(name) => Ok(Self(text.to_owned())),
            _ => Err(InvalidId {
                kind: "tool",
                expected: "domain/name, each 1 to 100 of letters, digits, '-', '.' and '_' (for example web/search)",
            }),
        }
    }
}

text_form!(ToolName, "^[A-Za-z0-9._-]{1,100}/[A-Za-z0-9._-]{1,100}$");

/// A text that is no version or no range of versions.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a {kind}: {why}; expected {expected}")]
pub struct InvalidVersion {
    kind: &'static str,
    expected: &'static str,
    why: String,
}

/// A semantic version, for example `2.1.0`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Version(semver::Version);

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for Version {
    type Err = InvalidVersion;

    fn from_str(text: &str) -> Result<Self, InvalidVersion> {
        text.parse()
            .map(Self)
            .map_err(|error: semver::Error| InvalidVersion {
                kind: "version",
                expected: "a semantic version such as 2.1.0",
                why: error.to_string(),
            })
    }
}

text_form!(Version, "^[0-9]+\\.[0-9]+\\.[0-9]+");

/// A range of semantic versions, for example `^2.1` or `>=1.4, <3`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Versions(semver::VersionReq);

impl Versions {
    /// Whether a version is in the range. A pre-release is only where the range names one of the same release.
    pub fn contain(&self, version: &Version) -> bool {
        self.0.matches(&version.0)
    }
}

impl fmt::Display for Versions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for Versions {
    type Err = InvalidVersion;

    fn from_str(text: &str) -> Result<Self, InvalidVersion> {
        text.parse()
            .map(Self)
            .map_err(|error: semver::Error| InvalidVersion {
                kind: "range of versions",
                expected: "for example ^2.1, or >=1.4, <3, or *",
                why: error.to_string(),
            })
    }
}

text_form!(Versions, "^.+$");

crate::text_enum! {
    /// How strictly work is kept apart from the machine; each is stronger than the one before it.
    #[derive(Default)]
    pub enum Sandbox: "sandbox" {
        /// Not at all.
        #[default]
        None = "none",
        /// A process of its own.
        Process = "process",
        /// A container.
        Container = "container",
        /// A virtual machine.
        Vm = "vm",
    }
}

impl Sandbox {
    /// Whether it is the weakest one.
    pub fn is_none(&self) -> bool {
        *self == Self::None
    }
}

crate::text_enum! {
    /// What a model takes besides text.
    pub enum Modality: "modality" {
        /// Text.
        Text = "text",
        /// Images.
        Image = "image",
        /// Sound.
        Audio = "audio",
        /// Moving images.
        Video = "video",
        /// Documents, such as PDF.
        File = "file",
    }
}

/// Whose work a pool takes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Isolation {
    /// `shared`: any tenant's.
    #[default]
    Shared,
    /// `dedicated:acme`: one tenant's.
    Dedicated(TenantId),
    /// `allow:[acme,globex]`: these tenants'.
    Allow(BTreeSet<TenantId>),
}

/// A text that is no isolation profile.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not an isolation profile: expected shared, dedicated:acme or allow:[acme,globex]")]
pub struct InvalidIsolation;

impl Isolation {
    /// Whether work of a tenant may come here.
    pub fn admits(&self, tenant: &TenantId) -> bool {
        match self {
            Self::Shared => true,
            Self::Dedicated(owner) => owner == tenant,
            Self::Allow(tenants) => tenants.contains(tenant),
        }
    }

    /// Whether it is the profile of a descriptor that names none.
    pub fn is_shared(&self) -> bool {
        *self == Self::Shared
    }
}

impl fmt::Display for Isolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Shared => f.write_str("shared"),
            Self::Dedicated(tenant) => write!(f, "dedicated:{tenant}"),
            Self::Allow(tenants) => {
                let names: Vec<&str> = tenants.iter().map(TenantId::as_str).collect();
                write!(f, "allow:[{}]", names.join(","))
            }
        }
    }
}

impl FromStr for Isolation {
    type Err = InvalidIsolation;

    fn from_str(text: &str) -> Result<Self, InvalidIsolation> {
        if text == "shared" {
            return Ok(Self::Shared);
        }
        if let Some(tenant) = text.strip_prefix("dedicated:") {
            return tenant
                .parse()
                .map(Self::Dedicated)
                .map_err(|_| InvalidIsolation);
        }
        let list = text
            .strip_prefix("allow:[")
            .and_then(|rest| rest.strip_suffix(']'))
            .ok_or(InvalidIsolation)?;
        let tenants: Result<BTreeSet<TenantId>, _> =
            list.split(',').map(|name| name.trim().parse()).collect();
        tenants.map(Self::Allow).map_err(|_| InvalidIsolation)
    }
}

text_form!(Isolation, "^(shared|dedicated:.+|allow:\\[.+\\])$");

#[cfg(test)]
mod tests {
    use super::*;

    /// R6.2: words are compared as they are, versions as semantic versions.
    #[test]
    fn words_have_one_form() {
        for good in ["pii", "eu:gdpr/art9", "PII"] {
            assert!(good.parse::<Label>().is_ok(), "{good}");
        }
        for bad in ["", " pii", "pii ", "-pii", "pi\0i", "п", &"a".repeat(101)] {
            assert!(bad.parse::<Label>().is_err(), "{bad:?}");
        }
        for bad in ["search", "/search", "web/", "web/a/b", "web/ä"] {
            assert!(bad.parse::<ToolName>().is_err(), "{bad}");
        }
        assert!("web/search".parse::<ToolName>().is_ok());
        let range: Versions = ">=1.4, <3".parse().unwrap();
        let inside = |version: &str| range.contain(&version.parse().unwrap());
        assert!(inside("1.4.0") && inside("2.9.9") && !inside("1.3.9") && !inside("3.0.0"));
        assert!(!inside("2.0.0-rc.1"), "a pre-release is asked for by name");
        assert!("2.x.y".parse::<Versions>().is_err() && "2".parse::<Version>().is_err());
    }

    #[test]
    fn isolation_profiles_admit_whom_they_name() {
        let acme: TenantId = "acme".parse().unwrap();
        let profile = |text: &str| text.parse::<Isolation>();
        assert!(profile("shared").unwrap().admits(&acme));
        assert!(profile("dedicated:acme").unwrap().admits(&acme));
        assert!(!profile("dedicated:globex").unwrap().admits(&acme));
        let two = profile("allow:[globex, acme]").unwrap();
        assert!(two.admits(&acme));
        assert_eq!(two.to_string(), "allow:[acme,globex]");
        for bad in [
            "",
            "Shared",
            "dedicated:",
            "allow:[]",
            "allow:acme",
            "allow:[acme",
        ] {
            assert_eq!(profile(bad), Err(InvalidIsolation), "{bad}");
        }
    }

    #[test]
    fn sandboxes_are_ordered_by_strength() {
        assert!(Sandbox::ALL.is_sorted());
    }
}
