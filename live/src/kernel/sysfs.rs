//! The sysfs entries of kernel devices: what the kernel shows of them, and what can be set there.

use super::disk::{Disk, Maker};
use std::io;
use std::path::{Path, PathBuf};

/// Where the kernel shows block devices.
const ROOT: &str = "/sys/block";
/// Where it shows the ends of ublk devices that their servers use.
const UBLK_ROOT: &str = "/sys/class/ublk-char";
/// The largest request in KiB. The driver's own value of 128 cuts long reads and writes to pieces.
const MAX_SECTORS_KB: u32 = 512;
/// The kernel's own time for a request, in milliseconds.
const IO_TIMEOUT_MS: u32 = 30_000;

/// An nbd device with an identifier: one that a server has made over netlink.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attached {
    /// Its index.
    pub index: u32,
    /// The text that its server gave it.
    pub identifier: String,
}

/// All nbd devices that have an identifier, whether or not somebody serves them.
#[must_use]
pub fn attached() -> Vec<Attached> {
    attached_below(Path::new(ROOT))
}

fn attached_below(root: &Path) -> Vec<Attached> {
    let Ok(devices) = std::fs::read_dir(root) else { return Vec::new() };
    let mut found: Vec<Attached> = devices
        .flatten()
        .filter_map(|device| {
            let name = device.file_name();
            let disk = Disk::of_name(name.to_str()?).filter(|disk| disk.maker == Maker::Nbd)?;
            let identifier = std::fs::read_to_string(device.path().join("backend")).ok()?;
            Some(Attached { index: disk.index, identifier: identifier.trim_end_matches('\n').to_owned() })
        })
        .collect();
    found.sort_by_key(|device| device.index);
    found
}

/// Whether the nbd device of this index has this identifier.
#[must_use]
pub fn is_attached(index: u32, identifier: &str) -> bool {
    let found = std::fs::read_to_string(place(Disk::nbd(index)).join("backend"));
    found.is_ok_and(|found| found.trim_end_matches('\n') == identifier)
}

/// The names of the device and of its partitions, each with its device number.
#[must_use]
pub fn parts(disk: Disk) -> Vec<(String, String)> {
    let (whole, place) = (disk.name(), place(disk));
    let within = std::fs::read_dir(&place).into_iter().flatten().flatten();
    let names = within.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let partitions = names.filter(|name| name.starts_with(&format!("{whole}p")));
    let part = |name: String| {
        let place = if name == whole { place.clone() } else { place.join(&name) };
        Some((name, std::fs::read_to_string(place.join("dev")).ok()?.trim().to_owned()))
    };
    std::iter::once(whole.clone()).chain(partitions).filter_map(part).collect()
}

/// The block devices that stand on this one or on its partitions, such as those of the device mapper.
#[must_use]
pub fn holders(disk: Disk) -> Vec<String> {
    let mut found = Vec::new();
    for (name, _) in parts(disk) {
        let place = if name == disk.name() { place(disk) } else { place(disk).join(name) };
        let holders = std::fs::read_dir(place.join("holders")).into_iter().flatten().flatten();
        found.extend(holders.map(|holder| holder.file_name().to_string_lossy().into_owned()));
    }
    found.sort();
    found.dedup();
    found
}

/// Sets the limits that a cached volume wants of an nbd device. `poll_ms`: the kernel looks so often whether a request that was given
/// to a dead connection can be given to a new one; `None` leaves that as it is.
///
/// # Errors
/// If the kernel takes one of them not; the device works without.
pub fn set_limits(index: u32, poll_ms: Option<u32>) -> io::Result<()> {
    let queue = place(Disk::nbd(index)).join("queue");
    let most: u32 = read_number(&queue.join("max_hw_sectors_kb")).unwrap_or(MAX_SECTORS_KB);
    std::fs::write(queue.join("max_sectors_kb"), MAX_SECTORS_KB.min(most).to_string())?;
    // The driver says so by itself, but not every version of it.
    std::fs::write(queue.join("rotational"), "0")?;
    if let Some(poll_ms) = poll_ms {
        std::fs::write(queue.join("io_timeout"), poll_ms.to_string())?;
    }
    Ok(())
}

/// Tells programs that follow the kernel's events to look at a device again: the driver gives it its identifier after
/// its own event.
///
/// # Errors
/// If the kernel sends none.
pub fn announce(disk: Disk) -> io::Result<()> {
    std::fs::write(place(disk).join("uevent"), "change")
}

/// Sets the limits that a cached volume wants of a ublk device: at most so many requests at a time, and none is kept
/// back to be sorted, as behind it is no disk with a head to move.
///
/// # Errors
/// If the kernel takes one of them not; the device works without.
pub fn set_ublk_limits(index: u32, requests: u32) -> io::Result<()> {
    let queue = place(Disk::ublk(index)).join("queue");
    std::fs::write(queue.join("scheduler"), "none")?;
    std::fs::write(queue.join("nr_requests"), requests.to_string())
}

/// The indexes of all ublk devices, with a disk or without.
#[must_use]
pub fn ublk_indexes() -> Vec<u32> {
    let found = std::fs::read_dir(UBLK_ROOT).into_iter().flatten().flatten();
    let index = |name: &str| name.strip_prefix("ublkc")?.parse().ok();
    let mut indexes: Vec<u32> = found.filter_map(|entry| index(entry.file_name().to_str()?)).collect();
    indexes.sort_unstable();
    indexes
}

/// The sequence number of a disk, which no other one has had since the boot; `None` if there is no such disk.
#[must_use]
pub fn sequence(disk: Disk) -> Option<u64> {
    std::fs::read_to_string(place(disk).join("diskseq")).ok()?.trim().parse().ok()
}

/// Gives an nbd device that was let go of the kernel's own times back: the next one to use it may be another program.
pub fn restore_limits(index: u32) {
    // A device that has vanished needs nothing.
    let _ = std::fs::write(place(Disk::nbd(index)).join("queue/io_timeout"), IO_TIMEOUT_MS.to_string());
}

fn read_number(path: &Path) -> Option<u32> {
    std::fs::read_to_string(path).ok()?.trim().parse().ok()
}

fn place(disk: Disk) -> PathBuf {
    Path::new(ROOT).join(disk.name())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_found_by_their_identifier() {
        let root = tempfile::tempdir().unwrap();
        for (name, backend) in
            [("nbd0", None), ("nbd12", Some("one\n")), ("nbd3", Some("two")), ("sda", Some("three"))]
        {
            let place = root.path().join(name);
            std::fs::create_dir(&place).unwrap();
            if let Some(backend) = backend {
                std::fs::write(place.join("backend"), backend).unwrap();
            }
        }
        let found = attached_below(root.path());
        let device = |index, identifier: &str| Attached { index, identifier: identifier.to_owned() };
        assert_eq!(found, [device(3, "two"), device(12, "one")]);
        assert_eq!(attached_below(&root.path().join("nothing")), []);
    }
}
