//! Which tools of a server are mounted, and under which names models see them: reversible, and none that could be
//! mistaken for another (R20.1).

use std::{collections::BTreeMap, fmt};

use tidegate_model::{api::ToolMount, digest::canonical_digest, ids::CatalogName};

/// The longest name that models accept.
pub const OFFERED_NAME_MAX: usize = 64;

/// A tool as it is mounted.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ToolName {
    /// The domain that people and models see.
    pub domain: CatalogName,
    /// Its name at the server.
    pub tool: String,
    /// The server behind it.
    pub server: CatalogName,
}

impl ToolName {
    /// The name shown to people and written into events: `domain/name`.
    pub fn canonical(&self) -> String {
        format!("{}/{}", self.domain, self.tool)
    }
}

/// Why a tool gets no name for models.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NameRefusal {
    /// Letters that could look like others.
    NotPlain,
    /// Its server lists it twice.
    Twice,
    /// These look like it.
    LooksLike(Vec<String>),
}

impl fmt::Display for NameRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotPlain => f.write_str("its name is not printable ASCII"),
            Self::Twice => f.write_str("its server lists it twice"),
            Self::LooksLike(others) => {
                write!(f, "its name looks like that of {}", others.join(", "))
            }
        }
    }
}

/// Whether the operator's rules mount a tool. Without a list of what is allowed it is the marked ones, so that a tool
/// that a server adds one day is not offered by itself.
pub fn is_mounted(mount: &ToolMount, name: &str, is_marked: bool) -> bool {
    let allowed = mount.allow.as_ref().map_or(is_marked, |allow| {
        allow.iter().any(|pattern| matches(pattern, name))
    });
    allowed && !mount.deny.iter().any(|pattern| matches(pattern, name))
}

/// A name, or the beginning of names with a star behind it.
fn matches(pattern: &str, name: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(beginning) => name.starts_with(beginning),
        None => pattern == name,
    }
}

/// The name shown to a model: `domain__name`, in the letters that every provider accepts. Not injective by itself;
/// [`assign`] refuses what collides, and keeps the way back.
pub fn offered(key: &ToolName) -> String {
    let plain = |text: &str| -> String {
        let accepted = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        text.chars()
            .map(|c| if accepted(c) { c } else { '-' })
            .collect()
    };
    let name = format!("{}__{}", plain(key.domain.as_str()), plain(&key.tool));
    if name.len() <= OFFERED_NAME_MAX {
        return name;
    }
    let digest = canonical_digest(&key.tool).map(|digest| digest.to_string());
    let digest = digest.unwrap_or_default();
    let tail = digest.trim_start_matches("sha256:");
    let tail = tail.get(..8).unwrap_or(tail);
    format!("{}-{tail}", &name[..OFFERED_NAME_MAX - 1 - tail.len()])
}

/// What two names that a reader could mistake for each other have in common.
fn skeleton(name: &str) -> String {
    let letters = name.chars().filter(char::is_ascii_alphanumeric);
    letters
        .map(|c| match c.to_ascii_lowercase() {
            '0' => 'o',
            '1' | 'i' => 'l',
            '5' => 's',
            c => c,
        })
        .collect()
}

/// Whether a name may be mounted at all: printable ASCII, so that no letter looks like another.
pub fn is_mountable(name: &str) -> bool {
    (1..=128).contains(&name.len())
        && name.bytes().all(|b| b.is_ascii_graphic())
        && name.bytes().any(|b| b.is_ascii_alphanumeric())
}

/// Gives each tool its name for models. Tools whose names collide or look alike get none, all of them: which one was
/// meant cannot be told. The second value says why a tool got none.
pub fn assign(
    names: impl IntoIterator<Item = ToolName>,
) -> (BTreeMap<String, ToolName>, BTreeMap<ToolName, NameRefusal>) {
    let mut groups: BTreeMap<String, Vec<ToolName>> = BTreeMap::new();
    let mut refused = BTreeMap::new();
    for name in names {
        if is_mountable(&name.tool) {
            let group = groups.entry(skeleton(&offered(&name))).or_default();
            group.push(name);
        } else {
            refused.insert(name, NameRefusal::NotPlain);
        }
    }
    let mut assigned = BTreeMap::new();
    for group in groups.into_values() {
        if let [name] = group.as_slice() {
            assigned.insert(offered(name), name.clone());
            continue;
        }
        for name in &group {
            let others: Vec<_> = group
                .iter()
                .filter(|other| *other != name)
                .map(|other| shown(other, name))
                .collect();
            let refusal = if others.is_empty() {
                NameRefusal::Twice
            } else {
                NameRefusal::LooksLike(others)
            };
            refused.insert(name.clone(), refusal);
        }
    }
    (assigned, refused)
}

/// A name as somebody must see it who knows the other one.
fn shown(name: &ToolName, beside: &ToolName) -> String {
    if name.domain == beside.domain && name.server != beside.server {
        format!("{} of the server {}", name.canonical(), name.server)
    } else {
        name.canonical()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(domain: &str, name: &str) -> ToolName {
        ToolName {
            domain: domain.parse().unwrap(),
            tool: name.to_owned(),
            server: domain.parse().unwrap(),
        }
    }

    /// R20.1: the map is reversible and holds only letters that providers accept.
    #[test]
    fn names_are_plain_and_lead_back() {
        let keys = [
            key("files", "read_file"),
            key("hr.data", "query/employees"),
            key("git", &"long_name_".repeat(12)),
        ];
        let (names, refused) = assign(keys.clone());
        assert!(refused.is_empty(), "{refused:?}");
        assert_eq!(names["files__read_file"], keys[0]);
        assert_eq!(names["hr-data__query-employees"], keys[1]);
        assert_eq!(names.len(), 3);
        for name in names.keys() {
            assert!(name.len() <= OFFERED_NAME_MAX, "{name}");
            assert!(
                name.bytes()
                    .all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-'),
                "{name}"
            );
        }
    }

    /// R20.1: collisions and look-alikes are refused, all that are concerned and nobody else.
    #[test]
    fn look_alikes_are_refused() {
        for (a, b) in [
            ("read_file", "read-file"),
            ("read_file", "readFile"),
            ("list1", "listl"),
            ("getO", "get0"),
            ("a/b", "a.b"),
            ("same", "same"),
        ] {
            let (names, refused) = assign([key("d", a), key("d", b), key("d", "other")]);
            assert_eq!(
                names.into_keys().collect::<Vec<_>>(),
                ["d__other"],
                "{a} {b}"
            );
            assert!(refused.contains_key(&key("d", a)) && refused.contains_key(&key("d", b)));
        }
        let (names, refused) = assign([
            key("d", "reаd"),
            key("d", ""),
            key("d", "a b"),
            key("d", "__"),
        ]);
        assert!(names.is_empty(), "{names:?}");
        assert_eq!(refused.len(), 4);
    }

    /// R20.1: what is mounted is what the operator allows minus what the operator denies; unmarked tools of a server
    /// without a list of allowed ones are not.
    #[test]
    fn mounting_follows_the_operators_rules() {
        let list = |names: &[&str]| {
            names
                .iter()
                .map(|name| (*name).to_owned())
                .collect::<Vec<_>>()
        };
        let rules = |allow: Option<&[&str]>, deny: &[&str]| ToolMount {
            allow: allow.map(list),
            deny: list(deny),
            prefix: None,
        };
        for (rules, mounted) in [
            (rules(None, &[]), &["read_a"][..]),
            (rules(None, &["read_*"]), &[]),
            (rules(Some(&["*"]), &[]), &["read_a", "read_b", "drop"]),
            (rules(Some(&["*"]), &["drop"]), &["read_a", "read_b"]),
            (
                rules(Some(&["read_*", "drop"]), &["read_b"]),
                &["read_a", "drop"],
            ),
            (rules(Some(&["read"]), &[]), &[]),
            (rules(Some(&[]), &[]), &[]),
        ] {
            let tools = [("read_a", true), ("read_b", false), ("drop", false)];
            let found = tools
                .iter()
                .filter(|(name, marked)| is_mounted(&rules, name, *marked));
            assert_eq!(
                found.map(|(name, _)| *name).collect::<Vec<_>>(),
                mounted,
                "{rules:?}"
            );
        }
    }

    /// R20.1: two servers may share a domain, but no tool; both names are told.
    #[test]
    fn servers_of_one_domain_do_not_hide_each_others_tools() {
        let other = ToolName {
            server: "beta".parse().unwrap(),
            ..key("alpha", "read")
        };
        let (names, refused) = assign([key("alpha", "read"), other.clone(), key("alpha", "list")]);
        assert_eq!(names.into_keys().collect::<Vec<_>>(), ["alpha__list"]);
        assert_eq!(
            refused[&key("alpha", "read")].to_string(),
            "its name looks like that of alpha/read of the server beta"
        );
        assert!(refused.contains_key(&other));
    }

    #[test]
    fn the_domain_is_part_of_the_name() {
        let (names, refused) = assign([key("acme", "read"), key("globex", "read")]);
        assert_eq!((names.len(), refused.len()), (2, 0));
    }
}
