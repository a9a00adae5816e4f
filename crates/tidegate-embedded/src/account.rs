//! Which account runs PostgreSQL.
//!
//! PostgreSQL refuses root in every distribution, so root has to drop. The account needs a passwd
//! entry: a bare number fails with "could not look up effective user ID". An ordinary user runs
//! it as itself.

use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use nix::unistd::{Uid, User};

use crate::error::{AtPath, EmbeddedError};

/// Accounts that root drops to, in this order. `nobody` comes last since other services share it.
const CANDIDATES: [&str; 3] = ["tidegate", "postgres", "nobody"];

/// The account under which `initdb` and `postgres` run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    /// Name, for messages.
    pub name: String,
    /// User id.
    pub uid: u32,
    /// Primary group id.
    pub gid: u32,
    /// Whether this differs from the caller's own.
    pub dropped: bool,
}

impl Account {
    /// Chooses the account. Existing data decides, since only its owner can start it again; then
    /// `run_as`; then the first candidate that exists.
    pub fn choose(data: Option<&Path>, run_as: Option<&str>) -> Result<Self, EmbeddedError> {
        let me = Uid::effective();
        let owner = match data {
            Some(path) => Some(std::fs::metadata(path).at("look at", path)?.uid()),
            None => None,
        };
        if !me.is_root() {
            return Self::ordinary(me, owner, data);
        }
        if let (Some(uid), Some(path)) = (owner, data) {
            return Self::by_uid(uid)?.ok_or_else(|| EmbeddedError::Access {
                path: path.to_owned(),
                reason: format!(
                    "belongs to uid {uid}, which is root or has no account here; \
                     change its owner with chown, or start over with --fresh"
                ),
            });
        }
        if let Some(name) = run_as {
            return Self::by_name(name)?.ok_or_else(|| EmbeddedError::NoAccount {
                reason: format!("there is no unprivileged account `{name}`"),
            });
        }
        for name in CANDIDATES {
            if let Some(account) = Self::by_name(name)? {
                return Ok(account);
            }
        }
        Err(EmbeddedError::NoAccount {
            reason: format!("none of the accounts {} exists", CANDIDATES.join(", ")),
        })
    }

    fn ordinary(me: Uid, owner: Option<u32>, data: Option<&Path>) -> Result<Self, EmbeddedError> {
        if let (Some(uid), Some(path)) = (owner, data)
            && uid != me.as_raw()
        {
            return Err(EmbeddedError::Access {
                path: path.to_owned(),
                reason: format!(
                    "belongs to uid {uid} and this process runs as uid {me}; \
                     start it as that user, or give another directory with --data-dir"
                ),
            });
        }
        let user = User::from_uid(me).map_err(lookup)?;
        let user = user.ok_or_else(|| EmbeddedError::NoAccount {
            reason: format!("uid {me} has no passwd entry, which it needs"),
        })?;
        Ok(Self {
            name: user.name,
            uid: me.as_raw(),
            gid: user.gid.as_raw(),
            dropped: false,
        })
    }

    fn by_uid(uid: u32) -> Result<Option<Self>, EmbeddedError> {
        Ok(User::from_uid(Uid::from_raw(uid))
            .map_err(lookup)?
            .and_then(Self::unprivileged))
    }

    fn by_name(name: &str) -> Result<Option<Self>, EmbeddedError> {
        Ok(User::from_name(name)
            .map_err(lookup)?
            .and_then(Self::unprivileged))
    }

    fn unprivileged(user: User) -> Option<Self> {
        (!user.uid.is_root()).then(|| Self {
            name: user.name,
            uid: user.uid.as_raw(),
            gid: user.gid.as_raw(),
            dropped: true,
        })
    }

    /// Lets `command` run under this account. Supplementary groups go with the drop.
    pub(crate) fn apply(&self, command: &mut Command) {
        if self.dropped {
            command.uid(self.uid).gid(self.gid);
        }
    }

    /// Gives `path` to this account, where that is another one than the caller.
    pub(crate) fn own(&self, path: &Path) -> Result<(), EmbeddedError> {
        if self.dropped {
            std::os::unix::fs::chown(path, Some(self.uid), Some(self.gid))
                .at("change the owner of", path)?;
        }
        Ok(())
    }

    /// The first directory on the way to `path`, itself included, that this account cannot enter.
    pub(crate) fn blocked_at<'p>(&self, path: &'p Path) -> Option<&'p Path> {
        if !self.dropped {
            return None;
        }
        let blocks = |dir: &&Path| {
            std::fs::metadata(dir).is_ok_and(|meta| {
                let bit = match (meta.uid() == self.uid, meta.gid() == self.gid) {
                    (true, _) => 0o100,
                    (false, true) => 0o010,
                    (false, false) => 0o001,
                };
                meta.is_dir() && meta.mode() & bit == 0
            })
        };
        path.ancestors().filter(blocks).last()
    }
}

fn lookup(errno: nix::errno::Errno) -> EmbeddedError {
    EmbeddedError::System {
        what: "look up an account in passwd",
        source: errno.into(),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn root_drops_and_an_ordinary_user_stays_itself() {
        let account = Account::choose(None, None).unwrap();
        assert_eq!(account.dropped, Uid::effective().is_root());
        assert_ne!(account.uid, 0);
    }

    #[test]
    fn an_unknown_account_is_refused_by_name() {
        if Uid::effective().is_root() {
            let error = Account::choose(None, Some("no-such-account")).unwrap_err();
            assert!(error.to_string().contains("`no-such-account`"), "{error}");
        }
    }

    #[test]
    fn the_closed_directory_on_the_way_is_named() {
        let top = tempfile::tempdir().unwrap();
        let closed = top.path().join("closed");
        let below = closed.join("below");
        std::fs::create_dir_all(&below).unwrap();
        std::fs::set_permissions(top.path(), PermissionsExt::from_mode(0o755)).unwrap();
        std::fs::set_permissions(&closed, PermissionsExt::from_mode(0o700)).unwrap();
        let stranger = Account {
            name: "stranger".into(),
            uid: 4_000_000,
            gid: 4_000_000,
            dropped: true,
        };
        assert_eq!(stranger.blocked_at(&below), Some(closed.as_path()));
        std::fs::set_permissions(&closed, PermissionsExt::from_mode(0o711)).unwrap();
        assert_eq!(stranger.blocked_at(&below), None);
    }
}
