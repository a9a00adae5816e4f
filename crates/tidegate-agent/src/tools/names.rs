//! The names under which models see tools: reversible, and none that could be mistaken for another (R20.1).

use std::collections::BTreeMap;

use tidegate_model::{digest::canonical_digest, ids::CatalogName};

use crate::limits::OFFERED_NAME_MAX;

/// A tool by its server and its name there.
pub(super) type ToolKey = (CatalogName, String);

/// The name shown to people and written into events: `domain/name`.
pub(super) fn canonical(key: &ToolKey) -> String {
    format!("{}/{}", key.0, key.1)
}

/// The name shown to a model: `domain__name`, in the letters that every provider accepts. Not injective by itself;
/// [`assign`] refuses what collides, and keeps the way back.
pub(super) fn offered(key: &ToolKey) -> String {
    let plain = |text: &str| -> String {
        let accepted = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        text.chars()
            .map(|c| if accepted(c) { c } else { '-' })
            .collect()
    };
    let name = format!("{}__{}", plain(key.0.as_str()), plain(&key.1));
    if name.len() <= OFFERED_NAME_MAX {
        return name;
    }
    let digest = canonical_digest(&key.1).map(|digest| digest.to_string());
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
pub(super) fn is_mountable(name: &str) -> bool {
    (1..=128).contains(&name.len())
        && name.bytes().all(|b| b.is_ascii_graphic())
        && name.bytes().any(|b| b.is_ascii_alphanumeric())
}

/// Gives each tool its name for models. Tools whose names collide or look alike get none, all of them: which one was
/// meant cannot be told. The second value says why a tool got none.
pub(super) fn assign(
    keys: impl IntoIterator<Item = ToolKey>,
) -> (BTreeMap<String, ToolKey>, BTreeMap<ToolKey, String>) {
    let mut groups: BTreeMap<String, Vec<ToolKey>> = BTreeMap::new();
    let mut refused = BTreeMap::new();
    for key in keys {
        if is_mountable(&key.1) {
            groups
                .entry(skeleton(&offered(&key)))
                .or_default()
                .push(key);
        } else {
            refused.insert(key, "its name is not printable ASCII".to_owned());
        }
    }
    let mut names = BTreeMap::new();
    for group in groups.into_values() {
        if let [key] = group.as_slice() {
            names.insert(offered(key), key.clone());
            continue;
        }
        for key in &group {
            let others = group.iter().filter(|other| *other != key).map(canonical);
            let others: Vec<_> = others.collect();
            let reason = if others.is_empty() {
                "its server lists it twice".to_owned()
            } else {
                format!("its name looks like that of {}", others.join(", "))
            };
            refused.insert(key.clone(), reason);
        }
    }
    (names, refused)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(domain: &str, name: &str) -> ToolKey {
        (domain.parse().unwrap(), name.to_owned())
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

    #[test]
    fn the_domain_is_part_of_the_name() {
        let (names, refused) = assign([key("acme", "read"), key("globex", "read")]);
        assert_eq!((names.len(), refused.len()), (2, 0));
    }
}
