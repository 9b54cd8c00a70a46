//! Links: the names of attached volumes, which stay the same whatever device a volume gets.

use super::{Found, Identifier};
use anyhow::{Context, Result, bail};
use live::kernel::Disk;
use std::fs::{self, Permissions};
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Where the links are.
const DIRECTORY: &str = "/dev/forebay";

/// The link of a volume.
pub struct Link {
    directory: PathBuf,
    path: PathBuf,
}

impl Link {
    /// The link of the volume of this name.
    #[must_use]
    pub fn of(volume: &str) -> Link {
        Link::below(Path::new(DIRECTORY), volume)
    }

    fn below(directory: &Path, volume: &str) -> Link {
        // `.` and `..` are names that volumes can have; what is made here is never one of those.
        let name = if volume.starts_with('.') { format!("_{volume}") } else { volume.to_owned() };
        Link { directory: directory.to_owned(), path: directory.join(name) }
    }

    /// Its path.
    #[must_use]
    pub fn path(&self) -> String {
        self.path.display().to_string()
    }

    /// Makes sure that the link is free for a device with this identifier: a volume of another cache may have the same name.
    ///
    /// # Errors
    /// If it is not.
    pub fn check(&self, identifier: &Identifier) -> Result<()> {
        let path = self.path.display();
        let target = match fs::read_link(&self.path) {
            Ok(target) => target,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            Err(_) => bail!("{path} is in the way of the link to the device; move it away"),
        };
        let Some(disk) = disk_of(&target) else {
            bail!("{path} leads to {}, no device of ours; remove it", target.display());
        };
        match Found::at(disk) {
            Some(other) if !other.is_of(identifier) => bail!(
                "{path} leads to {disk}, a volume of the same name on another cache; unattach that first"
            ),
            // Left by a daemon that was killed, or by a device that somebody else took away.
            _ => Ok(()),
        }
    }

    /// Its name in the directory of links.
    #[must_use]
    pub fn name(&self) -> &str {
        self.path.file_name().and_then(|name| name.to_str()).unwrap_or_default()
    }

    /// Makes the link, or leads it to this device instead.
    ///
    /// # Errors
    /// If it cannot be made.
    pub fn lead_to(&self, disk: Disk) -> Result<()> {
        let make = || {
            match fs::create_dir(&self.directory) {
                // As udev makes it, whatever our umask: names of devices are no secret.
                Ok(()) => fs::set_permissions(&self.directory, Permissions::from_mode(0o755))?,
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
            let new = self.directory.join(format!(".new-{}", disk.name()));
            match fs::remove_file(&new) {
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            std::os::unix::fs::symlink(target(disk), &new)?;
            fs::rename(&new, &self.path)
        };
        make().with_context(|| format!("cannot make the link {}", self.path.display()))
    }

    /// Removes the link, if it leads to this device.
    pub fn remove(&self, disk: Disk) {
        if fs::read_link(&self.path).is_ok_and(|found| found == target(disk)) {
            // What cannot be removed leads nowhere, and is replaced by the next attach.
            let _ = fs::remove_file(&self.path);
            let _ = fs::remove_dir(&self.directory);
        }
    }
}

fn target(disk: Disk) -> PathBuf {
    PathBuf::from(format!("../{}", disk.name()))
}

fn disk_of(target: &Path) -> Option<Disk> {
    Disk::of_name(target.to_str()?.strip_prefix("../")?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identifier() -> Identifier {
        Identifier { set_id: "00".to_owned(), volume_id: 1, connections: 1, name: "data".to_owned() }
    }

    #[test]
    fn a_link_is_made_led_elsewhere_and_removed_only_if_it_is_that_devices() {
        let place = std::env::temp_dir().join(format!("forebay-links-{}", std::process::id()));
        let link = Link::below(&place, "data");
        assert!(link.check(&identifier()).is_ok());
        link.lead_to(Disk::nbd(60_001)).unwrap();
        assert_eq!(fs::read_link(place.join("data")).unwrap(), Path::new("../nbd60001"));
        assert!(link.check(&identifier()).is_ok(), "no device of that index has an identifier");
        link.lead_to(Disk::ublk(60_002)).unwrap();
        link.remove(Disk::nbd(60_001));
        assert!(place.join("data").is_symlink(), "it leads to another device");
        link.remove(Disk::ublk(60_002));
        assert!(!place.exists(), "the last link takes the directory along");
    }

    #[test]
    fn what_is_not_a_link_of_ours_is_left_alone() {
        let place = std::env::temp_dir().join(format!("forebay-no-links-{}", std::process::id()));
        fs::create_dir_all(&place).unwrap();
        fs::write(place.join("file"), "mine").unwrap();
        std::os::unix::fs::symlink("/dev/null", place.join("null")).unwrap();
        for name in ["file", "null"] {
            let refused = Link::below(&place, name).check(&identifier()).unwrap_err().to_string();
            assert!(refused.contains(name), "{refused}");
        }
        fs::remove_dir_all(&place).unwrap();
    }

    #[test]
    fn a_volume_called_like_a_directory_has_a_link_all_the_same() {
        assert_eq!(Link::of("..").path(), "/dev/forebay/_..");
        assert_eq!(Link::of("data").path(), "/dev/forebay/data");
    }
}
