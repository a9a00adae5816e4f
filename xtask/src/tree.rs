//! The repository's own files, as git sees them (tracked, or new and not ignored), read once.

use std::{collections::BTreeSet, fs, path::Path};

use crate::{command, error::Error};

/// One file of the repository.
#[derive(Debug, Clone)]
pub struct SourceFile {
    /// Relative to the root, with `/`.
    pub path: String,
    /// Empty for files that are not UTF-8 text.
    pub text: String,
    /// Where it is a symbolic link, what it points to.
    pub link: Option<String>,
}

impl SourceFile {
    pub fn extension(&self) -> &str {
        let name = self.path.rsplit('/').next().unwrap_or_default();
        name.rsplit_once('.').map_or("", |(_, extension)| extension)
    }

    pub fn is_rust(&self) -> bool {
        self.extension() == "rs"
    }

    pub fn is_markdown(&self) -> bool {
        self.extension() == "md"
    }
}

/// All files, sorted by path.
#[derive(Debug, Clone, Default)]
pub struct Tree {
    pub files: Vec<SourceFile>,
    /// Every file and every folder that holds one.
    paths: BTreeSet<String>,
}

impl Tree {
    /// Reads the checkout around `root`.
    pub fn read(root: &Path) -> Result<Self, Error> {
        let listed = command::output(
            "git",
            &["ls-files", "-z", "-co", "--exclude-standard"],
            root,
        )?;
        let names: BTreeSet<&str> = listed.split('\0').filter(|name| !name.is_empty()).collect();
        let mut files = Vec::with_capacity(names.len());
        for name in names {
            let full = root.join(name);
            // A file deleted from the working tree is still listed until the deletion is committed.
            let Ok(metadata) = fs::symlink_metadata(&full) else {
                continue;
            };
            if metadata.is_symlink() {
                let target = fs::read_link(&full).map_err(Error::io(&full))?;
                files.push(SourceFile {
                    path: name.to_owned(),
                    text: String::new(),
                    link: Some(target.to_string_lossy().into_owned()),
                });
            } else if metadata.is_file() {
                let bytes = fs::read(&full).map_err(Error::io(&full))?;
                files.push(SourceFile {
                    path: name.to_owned(),
                    text: String::from_utf8(bytes).unwrap_or_default(),
                    link: None,
                });
            }
        }
        Ok(Self::new(files))
    }

    pub fn new(files: Vec<SourceFile>) -> Self {
        let mut paths = BTreeSet::new();
        for file in &files {
            let mut path = file.path.as_str();
            paths.insert(path.to_owned());
            while let Some((parent, _)) = path.rsplit_once('/') {
                paths.insert(parent.to_owned());
                path = parent;
            }
        }
        Self { files, paths }
    }

    pub fn get(&self, path: &str) -> Option<&SourceFile> {
        self.files
            .binary_search_by(|file| file.path.as_str().cmp(path))
            .ok()
            .map(|index| &self.files[index])
    }

    /// Whether a file or folder of this path belongs to the repository.
    pub fn contains(&self, path: &str) -> bool {
        self.paths.contains(path.trim_end_matches('/'))
    }

    pub fn rust(&self) -> impl Iterator<Item = &SourceFile> {
        self.files.iter().filter(|file| file.is_rust())
    }

    pub fn markdown(&self) -> impl Iterator<Item = &SourceFile> {
        self.files.iter().filter(|file| file.is_markdown())
    }

    #[cfg(test)]
    pub fn of(files: &[(&str, &str)]) -> Self {
        let mut files: Vec<_> = files
            .iter()
            .map(|(path, text)| SourceFile {
                path: (*path).to_owned(),
                text: (*text).to_owned(),
                link: None,
            })
            .collect();
        files.sort_by(|a, b| a.path.cmp(&b.path));
        Self::new(files)
    }
}

/// `dir/../x` as seen from the file `from`; `None` where it leaves the repository.
pub fn resolve(from: &str, target: &str) -> Option<String> {
    let mut parts: Vec<&str> = match from.rsplit_once('/') {
        Some((dir, _)) => dir.split('/').collect(),
        None => Vec::new(),
    };
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            name => parts.push(name),
        }
    }
    Some(parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_of_listed_files_exist_and_others_do_not() {
        let tree = Tree::of(&[("docs/adr/0001.md", ""), ("README.md", "")]);
        assert!(tree.contains("docs/adr"));
        assert!(tree.contains("docs/"));
        assert!(tree.contains("README.md"));
        assert!(!tree.contains("docs/ad"));
        assert!(!tree.contains("doc"));
    }

    #[test]
    fn relative_targets_resolve_until_they_leave_the_repository() {
        for (from, target, want) in [
            ("README.md", "docs/a.md", Some("docs/a.md")),
            ("docs/how-to/x.md", "../a.md", Some("docs/a.md")),
            ("docs/x.md", "./a.md", Some("docs/a.md")),
            ("docs/x.md", "../../outside", None),
            ("README.md", "../outside", None),
        ] {
            assert_eq!(
                resolve(from, target).as_deref(),
                want,
                "{target} from {from}"
            );
        }
    }

    #[test]
    fn the_extension_is_that_of_the_file_name() {
        let file = |path: &str| SourceFile {
            path: path.to_owned(),
            text: String::new(),
            link: None,
        };
        assert_eq!(file("a.b/Makefile").extension(), "");
        assert!(file("a.b/c.rs").is_rust());
        assert!(file("a.md").is_markdown());
    }

    #[test]
    fn the_tree_is_what_git_would_commit() {
        let repository = crate::scratch::Repository::new("tree");
        repository.write("kept.rs", "fn f() {}");
        repository.write("gone.rs", "");
        repository.write(".gitignore", "ignored/\n");
        repository.commit();
        repository.write("ignored/x.rs", "");
        repository.write("new/y.md", "# Y");
        fs::write(repository.root.join("binary"), [0xff, 0xfe]).unwrap();
        fs::remove_file(repository.root.join("gone.rs")).unwrap();
        std::os::unix::fs::symlink("kept.rs", repository.root.join("link")).unwrap();
        let tree = Tree::read(&repository.root).unwrap();
        let paths: Vec<_> = tree.files.iter().map(|file| file.path.as_str()).collect();
        assert_eq!(
            paths,
            [".gitignore", "binary", "kept.rs", "link", "new/y.md"]
        );
        assert_eq!(tree.get("binary").unwrap().text, "");
        assert_eq!(tree.get("link").unwrap().link.as_deref(), Some("kept.rs"));
        assert_eq!(tree.rust().count(), 1);
    }
}
