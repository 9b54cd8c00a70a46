//! The run directory: where a daemon's control socket and its default NBD socket are.

use crate::access::Group;
use anyhow::{Context, Result, bail};
use live::devices::DeviceSpec;
use rustix::fs::{Gid, Mode, Uid, chmod, chown};
use std::env;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::PathBuf;

/// Longest name of a socket that the system takes, without its final zero.
const SOCKET_PATH_BYTES_MAX: usize = 107;

/// The run directory of root's daemons.
const SYSTEM: &str = "/run/forebay";

/// Permissions of the directory: nobody else comes in.
const PRIVATE: u32 = 0o700;
/// Permissions of a directory that members of its group may look into; each socket has its own.
const SHARED: u32 = 0o750;

/// A run directory.
pub struct RunDirectory {
    path: PathBuf,
}

impl RunDirectory {
    /// `FOREBAY_RUN_DIR`, or `$XDG_RUNTIME_DIR/forebay`, or `/run/forebay` as root, or
    /// `/tmp/forebay-UID`. A daemon and the verbs that talk to it must agree on it.
    #[must_use]
    pub fn find() -> RunDirectory {
        let uid = rustix::process::geteuid();
        let path = if let Some(path) = non_empty("FOREBAY_RUN_DIR") {
            path
        } else if uid.is_root() {
            PathBuf::from(SYSTEM)
        } else if let Some(path) = non_empty("XDG_RUNTIME_DIR") {
            path.join("forebay")
        } else {
            PathBuf::from(format!("/tmp/forebay-{}", uid.as_raw()))
        };
        RunDirectory { path }
    }

    /// The run directory of root's daemons, unless it is one's own or another one is named.
    #[must_use]
    pub fn of_system() -> Option<RunDirectory> {
        let has_another = non_empty("FOREBAY_RUN_DIR").is_none() && !rustix::process::geteuid().is_root();
        has_another.then(|| RunDirectory { path: PathBuf::from(SYSTEM) })
    }

    /// Makes the directory if it does not exist: closed to other users, or open to a group.
    ///
    /// # Errors
    /// If it cannot be made or given to the group, or others could use it: see [`RunDirectory::check_as_client`].
    pub fn make(&self, group: Option<Group>) -> Result<()> {
        let path = self.path.display();
        DirBuilder::new()
            .recursive(true)
            .mode(PRIVATE)
            .create(&self.path)
            .with_context(|| format!("cannot make the run directory {path}"))?;
        self.check(|owner| owner == rustix::process::geteuid())?;
        let Some(Group(group)) = group else { return Ok(()) };
        chown(&self.path, None, Some(Gid::from_raw(group)))
            .and_then(|()| chmod(&self.path, Mode::from_raw_mode(SHARED)))
            .map_err(io::Error::from)
            .with_context(|| format!("cannot give the run directory {path} to group {group}"))
    }

    /// Refuses a directory that others could use to pretend to be the daemon: one that is a link, belongs to another user
    /// than oneself or root, or lets others write or come in. Its group may look into it.
    ///
    /// # Errors
    /// If it is so, or cannot be looked at.
    pub fn check_as_client(&self) -> Result<()> {
        self.check(|owner| owner == rustix::process::geteuid() || owner.is_root())
    }

    fn check(&self, is_right_owner: impl FnOnce(Uid) -> bool) -> Result<()> {
        let path = self.path.display();
        let found = fs::symlink_metadata(&self.path)
            .with_context(|| format!("cannot look at the run directory {path}"))?;
        if found.is_symlink() {
            bail!(
                "the run directory {path} is a symbolic link; name the directory itself with FOREBAY_RUN_DIR"
            );
        }
        if !found.is_dir() {
            bail!("the run directory {path} is not a directory; name another one with FOREBAY_RUN_DIR");
        }
        if !is_right_owner(Uid::from_raw(found.uid())) {
            bail!("the run directory {path} belongs to another user; name your own with FOREBAY_RUN_DIR");
        }
        let permissions = found.mode() & 0o777;
        if permissions & 0o002 != 0 {
            bail!(
                "the run directory {path} is one that everybody may write to; name one of its own with FOREBAY_RUN_DIR"
            );
        }
        if permissions & !SHARED != 0 || permissions & PRIVATE != PRIVATE {
            bail!(
                "the run directory {path} has mode {permissions:04o} instead of {PRIVATE:04o} (or {SHARED:04o}, for a \
                 group); chmod 700 {path}"
            );
        }
        Ok(())
    }

    /// Whether one may come in.
    #[must_use]
    pub fn is_open(&self) -> bool {
        rustix::fs::access(&self.path, rustix::fs::Access::EXEC_OK).is_ok()
    }

    /// Whether there is something of its name.
    #[must_use]
    pub fn exists(&self) -> bool {
        fs::symlink_metadata(&self.path).is_ok()
    }

    /// The control socket of the daemon that runs this cache.
    ///
    /// # Errors
    /// If the path is longer than a socket's may be.
    pub fn control_socket(&self, cache: &DeviceSpec) -> Result<PathBuf> {
        self.socket(&format!("{}.sock", key(&cache.canonical())))
    }

    /// Where to look for the control socket of the daemon that runs this cache. First by its name as it is written, which most
    /// daemons were given, too: a cache that hangs may hold up who asks where that name leads.
    pub fn control_sockets(&self, cache: &DeviceSpec) -> impl Iterator<Item = Result<PathBuf>> {
        let as_written = match cache.path().map(std::path::absolute) {
            Some(Ok(path)) => Some(self.socket(&format!("{}.sock", key(&path.to_string_lossy())))),
            Some(Err(_)) | None => None,
        };
        as_written.into_iter().chain(std::iter::once_with(|| self.control_socket(cache)))
    }

    /// Socket for NBD clients if the operator names no address.
    ///
    /// # Errors
    /// If the path is longer than a socket's may be.
    pub fn nbd_socket(&self, volume: &str) -> Result<PathBuf> {
        self.socket(&format!("{volume}.nbd"))
    }

    /// The note for udev on a ublk device, by the sequence number of its disk.
    #[must_use]
    pub fn disk_note(&self, sequence: u64) -> PathBuf {
        self.path.join(format!("disk-{sequence}"))
    }

    /// A file of one's own in it.
    #[must_use]
    pub fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    fn socket(&self, name: &str) -> Result<PathBuf> {
        let path = self.path.join(name);
        if path.as_os_str().len() > SOCKET_PATH_BYTES_MAX {
            bail!(
                "{} is too long for a socket; name a shorter run directory with FOREBAY_RUN_DIR",
                path.display()
            );
        }
        Ok(path)
    }
}

/// Value of an environment variable, unless it is empty.
pub fn non_empty(variable: &str) -> Option<PathBuf> {
    env::var_os(variable).filter(|value| !value.is_empty()).map(PathBuf::from)
}

/// A short file name for a device: the end of its name for people, a hash of all of it against mix-ups.
fn key(canonical: &str) -> String {
    let tail = canonical.rsplit(['/', ':']).next().unwrap_or("");
    let stem: String = tail.chars().filter(|c| crate::arguments::is_volume_character(*c)).take(24).collect();
    format!("{stem}-{:016x}", fnv1a(canonical.as_bytes()))
}

/// FNV-1a, 64 bits. Source: Fowler, Noll, Vo; the offset basis and the prime are theirs.
pub fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_fnv1a() {
        assert_eq!(fnv1a(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv1a(b"a"), 0xaf63_dc4c_8601_ec8c);
    }

    /// The name as it is written comes without a look at the file system; what is behind a link is found, too.
    #[test]
    fn a_daemon_is_looked_for_by_name_first() {
        let place = env::temp_dir().join(format!("forebay-run-dir-{}", std::process::id()));
        std::fs::create_dir_all(&place).expect("a directory for the test");
        let (file, link) = (place.join("cache"), place.join("link"));
        std::fs::write(&file, "").expect("a file for the test");
        let _left_from_before = std::fs::remove_file(&link);
        std::os::unix::fs::symlink(&file, &link).expect("a link for the test");
        let directory = RunDirectory { path: PathBuf::from("/run/x") };
        let spec =
            |path: &PathBuf| live::devices::parse(path.to_str().expect("a plain path")).expect("a path");
        let sockets = |path: &PathBuf| -> Vec<PathBuf> {
            directory.control_sockets(&spec(path)).map(|path| path.expect("it is short")).collect()
        };
        let own = directory.control_socket(&spec(&file)).expect("it is short");
        assert_eq!(sockets(&file)[0], own, "most daemons are found at once");
        let by_link = sockets(&link);
        assert_ne!(by_link[0], own);
        assert_eq!(by_link[1], own, "behind the link");
        std::fs::remove_dir_all(&place).expect("what the test made");
    }

    #[test]
    fn keys_differ_where_names_differ_and_hold_no_slash() {
        let (one, two) = (key("/dev/a/x.img"), key("/dev/b/x.img"));
        assert_ne!(one, two);
        assert!(one.starts_with("x.img-"));
        assert!(!key("model:ssd?size=1").contains(['/', '?', ':']));
    }
}
