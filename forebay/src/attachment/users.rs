//! Users of a kernel device: what is mounted from it, swaps to it, stands on it, or has it open.

use live::kernel::{Disk, sysfs};
use std::path::{Path, PathBuf};
use std::{fs, io};

/// The users of a device in words, such as `mounted at /mnt`; `None` if none is found.
pub(super) fn describe(disk: Disk) -> Option<String> {
    let parts = sysfs::parts(disk);
    let mut users = Vec::new();
    // A mount may be seen in other mount namespaces alone; a daemon of the system often has one of its own.
    for process in processes() {
        let Ok(table) = fs::read_to_string(process.join("mountinfo")) else { continue };
        let places = mounts(&table, &parts).into_iter().map(|place| format!("mounted at {place}"));
        users.extend(places);
    }
    if let Ok(table) = fs::read_to_string("/proc/swaps") {
        users.extend(swaps(&table, &parts).into_iter().map(|path| format!("{path} is swapped to")));
    }
    users.extend(sysfs::holders(disk).into_iter().map(|holder| format!("used by /dev/{holder}")));
    if users.is_empty() {
        let mut is_all_seen = sees_others();
        for process in processes() {
            match has_open(&process, disk) {
                Ok(user) => users.extend(user),
                // It may have it open.
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => is_all_seen = false,
                // It has ended.
                Err(_) => (),
            }
        }
        if users.is_empty() && !is_all_seen {
            users.push(
                "perhaps open in a process that may not be looked into without CAP_SYS_PTRACE".to_owned(),
            );
        }
    }
    users.sort();
    users.dedup();
    (!users.is_empty()).then(|| users.join(", "))
}

/// Whether /proc lists the processes of others: mounted with `hidepid`, it hides those that may not be looked into.
fn sees_others() -> bool {
    Path::new("/proc/1/fd").exists()
}

fn processes() -> impl Iterator<Item = PathBuf> {
    let found = fs::read_dir("/proc").into_iter().flatten().flatten();
    found
        .filter(|entry| entry.file_name().to_string_lossy().bytes().all(|byte| byte.is_ascii_digit()))
        .map(|entry| entry.path())
}

/// Where a mount table has one of these devices: by number, or by name, as Btrfs has numbers of its own.
fn mounts(table: &str, parts: &[(String, String)]) -> Vec<String> {
    let of_line = |line: &str| {
        let (fields, source) = line.split_once(" - ")?;
        let mut fields = fields.split(' ');
        let (number, place) = (fields.nth(2)?, fields.nth(1)?);
        let source = source.split(' ').nth(1)?;
        let is_one = |(name, of_part): &(String, String)| {
            of_part == number || source.strip_prefix("/dev/") == Some(name.as_str())
        };
        parts.iter().any(is_one).then(|| unescape(place))
    };
    table.lines().filter_map(of_line).collect()
}

fn swaps(table: &str, parts: &[(String, String)]) -> Vec<String> {
    let paths = table.lines().skip(1).filter_map(|line| line.split_ascii_whitespace().next());
    let is_one =
        |path: &&str| parts.iter().any(|(name, _)| path.strip_prefix("/dev/") == Some(name.as_str()));
    paths.filter(is_one).map(str::to_owned).collect()
}

/// Tables of the kernel write a blank as `\040`.
fn unescape(text: &str) -> String {
    text.replace("\\040", " ").replace("\\011", "\t").replace("\\012", "\n").replace("\\134", "\\")
}

/// The process in words, if it has the device open.
///
/// # Errors
/// If it may not be looked into, or has ended.
fn has_open(process: &Path, disk: Disk) -> io::Result<Option<String>> {
    let number = process.file_name().unwrap_or_default().to_string_lossy();
    if number == std::process::id().to_string() {
        // Whoever looks may have opened it to look.
        return Ok(None);
    }
    let (disk, partitions) = (disk.path(), format!("{}p", disk.path()));
    let mut open = false;
    for file in fs::read_dir(process.join("fd"))?.flatten() {
        let target = match fs::read_link(file.path()) {
            // Names of files may be seen where it may not be seen what they are.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Err(error),
            // It was closed just now.
            Err(_) => continue,
            Ok(target) => target,
        };
        let target = target.to_string_lossy();
        open |= target == disk || target.starts_with(&partitions);
    }
    let name = fs::read_to_string(process.join("comm")).unwrap_or_default();
    Ok(open.then(|| format!("open in {} (process {number})", name.trim())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts() -> Vec<(String, String)> {
        vec![("nbd0".to_owned(), "43:0".to_owned()), ("nbd0p1".to_owned(), "43:1".to_owned())]
    }

    #[test]
    fn mounts_of_the_device_and_its_partitions_are_found() {
        let table = "\
            22 1 8:1 / / rw shared:1 - ext4 /dev/sda1 rw\n\
            40 22 43:0 / /mnt/my\\040disk rw - ext4 /dev/nbd0 rw\n\
            41 22 43:1 / /part rw shared:3 master:1 - xfs /dev/nbd0p1 rw\n\
            42 22 0:44 / /btrfs rw - btrfs /dev/nbd0 rw\n\
            43 22 43:32 / /other rw - ext4 /dev/nbd1 rw\n\
            not a line\n";
        assert_eq!(mounts(table, &parts()), ["/mnt/my disk", "/part", "/btrfs"]);
    }

    #[test]
    fn swap_on_the_device_is_found() {
        let table =
            "Filename Type Size Used Priority\n/dev/nbd0p1 partition 9 0 -2\n/dev/sda2 partition 9 0 -3\n";
        assert_eq!(swaps(table, &parts()), ["/dev/nbd0p1"]);
    }
}
