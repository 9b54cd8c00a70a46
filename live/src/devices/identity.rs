//! Identity of a device: stable marks that tell it from others over restarts (hazard 9), and what the kernel shows of it.

use rustix::fs::Stat;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// Files in a block device's sysfs directory that may hold a name of the device itself.
const NAMES: [&str; 7] = ["wwid", "device/wwid", "uuid", "dm/uuid", "md/uuid", "serial", "device/serial"];

/// The identity of a block device: its world-wide name or serial number, and where on it the
/// partition begins. Empty if it has none.
pub(super) fn of_block_device(number: u64) -> String {
    let Some((directory, disk)) = directories(number) else { return String::new() };
    let read = |path: PathBuf| std::fs::read_to_string(path).ok().map(|text| text.trim().to_owned());
    let start = if disk == directory { None } else { read(directory.join("start")) };
    let Some(name) = NAMES.iter().find_map(|name| read(disk.join(name)).filter(|text| !text.is_empty()))
    else {
        return String::new();
    };
    let name: String = name.chars().filter(|character| !character.is_control()).collect();
    match start {
        Some(start) => format!("{name}+{start}"),
        None => name,
    }
}

/// The sysfs directories of a block device and of the disk that it is, or is a partition of.
fn directories(number: u64) -> Option<(PathBuf, PathBuf)> {
    let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
    let directory = PathBuf::from(format!("/sys/dev/block/{major}:{minor}")).canonicalize().ok()?;
    let whole = directory.parent().filter(|_| directory.join("partition").exists());
    let disk = whole.map_or_else(|| directory.clone(), Path::to_owned);
    Some((directory, disk))
}

/// Whether the kernel knows of a write cache of the disk that a power cut empties; nothing if it does not say.
pub(super) fn has_volatile_cache(number: u64) -> Option<bool> {
    let (_, disk) = directories(number)?;
    match std::fs::read_to_string(disk.join("queue/write_cache")).ok()?.trim() {
        "write back" => Some(true),
        "write through" => Some(false),
        _ => None,
    }
}

/// The smallest transfer of the disk that holds a file system; nothing if there is none, or more than one.
pub(super) fn sector_bytes_below(file_system: u64) -> Option<u32> {
    let (_, disk) = directories(file_system)?;
    std::fs::read_to_string(disk.join("queue/logical_block_size")).ok()?.trim().parse().ok()
}

/// Whether the kernel lets nobody write to a block device. An open for writing succeeds all the same.
pub(super) fn is_read_only(number: u64) -> bool {
    let flag =
        directories(number).and_then(|(directory, _)| std::fs::read_to_string(directory.join("ro")).ok());
    flag.is_some_and(|flag| flag.trim() == "1")
}

/// The identity of a file: its file system's id and its inode number.
pub(super) fn of_file(fd: &OwnedFd, stat: &Stat) -> String {
    let file_system = rustix::fs::fstatvfs(fd).map_or(0, |stat| stat.f_fsid);
    format!("file:{file_system:x}:{}", stat.st_ino)
}

/// Whether a loop device stands on the file, which may be mounted.
pub(super) fn backs_a_loop_device(path: &Path) -> bool {
    let Ok(path) = path.canonicalize() else { return false };
    let Ok(devices) = std::fs::read_dir("/sys/block") else { return false };
    devices.flatten().filter(|device| device.file_name().to_string_lossy().starts_with("loop")).any(
        |device| {
            std::fs::read_to_string(device.path().join("loop/backing_file"))
                .is_ok_and(|backing| Path::new(backing.trim_end_matches('\n')) == path)
        },
    )
}
