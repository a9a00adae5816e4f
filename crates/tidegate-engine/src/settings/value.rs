//! Types of values: from text, and back to what is shown.

use std::{net::SocketAddr, path::PathBuf};

use secrecy::{ExposeSecret, SecretString};
use tidegate_model::Capability;
use tidegate_policy::egress::IpRange;

use super::{rule::Rule, setting::Takes};

/// A type that a setting may have.
pub(super) trait Value: Sized {
    /// Its shape in the file.
    const TAKES: Takes;

    /// Reads it. `None`: this text is no such value.
    fn parse(text: &str, rule: Rule) -> Option<Self>;

    /// As it is shown; `None` where it is not set.
    fn show(&self, rule: Rule) -> Option<String>;
}

impl Value for u32 {
    const TAKES: Takes = Takes::Integer;

    fn parse(text: &str, rule: Rule) -> Option<Self> {
        let value: Self = text.trim().parse().ok()?;
        let fits = match rule {
            Rule::Range(low, high) => (low..=high).contains(&value),
            Rule::ZeroOr(low, high) => value == 0 || (low..=high).contains(&value),
            _ => true,
        };
        fits.then_some(value)
    }

    fn show(&self, _: Rule) -> Option<String> {
        Some(self.to_string())
    }
}

impl Value for bool {
    const TAKES: Takes = Takes::Switch;

    fn parse(text: &str, _: Rule) -> Option<Self> {
        match text.trim() {
            "on" | "true" => Some(true),
            "off" | "false" => Some(false),
            _ => None,
        }
    }

    fn show(&self, _: Rule) -> Option<String> {
        Some(if *self { "on" } else { "off" }.to_owned())
    }
}

impl Value for String {
    const TAKES: Takes = Takes::Text;

    fn parse(text: &str, _: Rule) -> Option<Self> {
        Some(text.to_owned())
    }

    fn show(&self, _: Rule) -> Option<String> {
        Some(self.clone())
    }
}

impl Value for PathBuf {
    const TAKES: Takes = Takes::Text;

    fn parse(text: &str, _: Rule) -> Option<Self> {
        Some(Self::from(text))
    }

    fn show(&self, _: Rule) -> Option<String> {
        Some(self.display().to_string())
    }
}

impl Value for SocketAddr {
    const TAKES: Takes = Takes::Text;

    fn parse(text: &str, _: Rule) -> Option<Self> {
        let text = text.trim();
        text.strip_prefix("localhost:").map_or_else(
            || text.parse().ok(),
            |port| format!("127.0.0.1:{port}").parse().ok(),
        )
    }

    fn show(&self, _: Rule) -> Option<String> {
        Some(self.to_string())
    }
}

impl Value for SecretString {
    const TAKES: Takes = Takes::Text;

    fn parse(text: &str, _: Rule) -> Option<Self> {
        Some(Self::from(text.trim()))
    }

    fn show(&self, rule: Rule) -> Option<String> {
        Some(rule.redact(self.expose_secret()))
    }
}

impl<T: Value> Value for Option<T> {
    const TAKES: Takes = T::TAKES;

    fn parse(text: &str, rule: Rule) -> Option<Self> {
        T::parse(text, rule).map(Some)
    }

    fn show(&self, rule: Rule) -> Option<String> {
        self.as_ref().and_then(|value| value.show(rule))
    }
}

/// A list; an item is read by its `FromStr`.
macro_rules! list_values {
    ($($item:ty),+) => {$(
        impl Value for Vec<$item> {
            const TAKES: Takes = Takes::List;

            fn parse(text: &str, _: Rule) -> Option<Self> {
                text.split(',')
                    .map(str::trim)
                    .filter(|item| !item.is_empty())
                    .map(|item| item.parse().ok())
                    .collect()
            }

            fn show(&self, _: Rule) -> Option<String> {
                let items: Vec<String> = self.iter().map(ToString::to_string).collect();
                (!items.is_empty()).then(|| items.join(","))
            }
        }
    )+};
}

list_values!(Capability, IpRange);

/// Enums that are one of a few words.
macro_rules! word_values {
    ($($(#[$meta:meta])* $name:ident { $($(#[$vmeta:meta])* $variant:ident = $text:literal),+ })+) => {$(
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum $name { $($(#[$vmeta])* $variant),+ }

        impl $name {
            /// The word.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text),+ }
            }
        }

        impl Value for $name {
            const TAKES: Takes = Takes::OneOf(&[$($text),+]);

            fn parse(text: &str, _: Rule) -> Option<Self> {
                match text.trim() {
                    $($text => Some(Self::$variant),)+
                    _ => None,
                }
            }

            fn show(&self, _: Rule) -> Option<String> {
                Some(self.as_str().to_owned())
            }
        }
    )+};
}

word_values! {
    /// How log lines look.
    LogFormat {
        /// For people.
        Text = "text",
        /// One JSON object per line.
        Json = "json"
    }
    /// The language of texts for end users.
    Language {
        /// English.
        En = "en",
        /// Simplified Chinese.
        ZhCn = "zh-CN"
    }
}

/// What a server process does (R1.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Roles {
    /// Serves tenants' traffic and executes runs.
    pub chat: bool,
    /// Serves administration.
    pub admin: bool,
}

impl Roles {
    /// Both.
    pub const ALL: Self = Self {
        chat: true,
        admin: true,
    };

    /// Their names.
    pub fn names(self) -> Vec<String> {
        [(self.chat, "chat"), (self.admin, "admin")]
            .into_iter()
            .filter(|(on, _)| *on)
            .map(|(_, name)| name.to_owned())
            .collect()
    }
}

impl Value for Roles {
    const TAKES: Takes = Takes::List;

    fn parse(text: &str, _: Rule) -> Option<Self> {
        let mut roles = Self {
            chat: false,
            admin: false,
        };
        for word in text.split(',').map(str::trim) {
            match word {
                "chat" => roles.chat = true,
                "admin" => roles.admin = true,
                _ => return None,
            }
        }
        Some(roles)
    }

    fn show(&self, _: Rule) -> Option<String> {
        Some(self.names().join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_are_named_and_nothing_else_is_one() {
        assert_eq!(Roles::parse("admin, chat", Rule::None), Some(Roles::ALL));
        assert_eq!(Roles::parse("worker", Rule::None), None);
        assert_eq!(Roles::parse("", Rule::None), None);
    }
}
