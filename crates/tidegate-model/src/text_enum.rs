//! One macro for enums that are stored and sent as text, so that the database, the wire and the code cannot disagree
//! about a spelling.

/// A text that names no member of the enum.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown {kind} {text:?}; one of: {allowed}")]
pub struct UnknownText {
    /// What was expected, for example `run state`.
    pub kind: &'static str,
    /// What was found.
    pub text: String,
    /// The known texts, comma separated.
    pub allowed: String,
}

/// Defines an enum whose members have one text form for storage and wire.
///
/// The text is taken as a token: what a macro takes as a literal is passed on in an invisible group, in which the derive of
/// the OpenAPI schema does not see the name that serde writes, and the document would show the members' names in Rust.
#[macro_export]
macro_rules! text_enum {
    ($(#[$meta:meta])* $vis:vis enum $name:ident : $kind:literal { $($(#[$vmeta:meta])* $variant:ident = $text:tt),+ $(,)? }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
        #[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
        $vis enum $name { $($(#[$vmeta])* #[serde(rename = $text)] $variant),+ }

        impl $name {
            /// Every member, in the order of definition.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// The one text form, stored and sent.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text),+ }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.as_str())
            }
        }

        impl std::str::FromStr for $name {
            type Err = $crate::text_enum::UnknownText;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                match text {
                    $($text => Ok(Self::$variant),)+
                    other => Err($crate::text_enum::UnknownText {
                        kind: $kind,
                        text: other.chars().take(64).collect(),
                        allowed: [$($text),+].join(", "),
                    }),
                }
            }
        }
    };
}
