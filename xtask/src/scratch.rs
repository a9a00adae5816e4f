//! A throw-away git repository for tests.

use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::command;

pub struct Repository {
    pub root: PathBuf,
}

impl Repository {
    pub fn new(name: &str) -> Self {
        let root = std::env::temp_dir().join(format!("xtask-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&root);
        fs::create_dir_all(&root).unwrap();
        let repository = Self { root };
        repository.git(&["init", "--quiet"]);
        repository
    }

    pub fn write(&self, path: &str, text: &str) {
        let full = self.root.join(path);
        fs::create_dir_all(full.parent().unwrap_or(Path::new("/"))).unwrap();
        fs::write(full, text).unwrap();
    }

    pub fn commit(&self) {
        self.git(&["add", "--all"]);
        self.git(&[
            "-c",
            "user.name=test",
            "-c",
            "user.email=test@example.org",
            "commit",
            "--quiet",
            "--message=step",
        ]);
    }

    fn git(&self, args: &[&str]) {
        command::output("git", args, &self.root).unwrap();
    }
}

impl Drop for Repository {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.root);
    }
}
