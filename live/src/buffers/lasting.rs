//! Memory that outlives the process: a file, best one in memory itself, mapped.
//!
//! What is stored there is in the file's pages, which the kernel keeps when the process ends in whatever way, and loses with the
//! power. The file says during which boot of the machine it was written: pages of another boot count for nothing, wherever
//! the file is.
//!
//! It is as old as the daemon, and nothing of it shows on the file's times: who cleans old files up must leave it. The sticky bit
//! says so (XDG Base Directory Specification; `systemd-tmpfiles`, which empties `/tmp` of what is ten days old, heeds it).

use engine::format::LASTING_BYTES;
use rustix::mm::{MapFlags, ProtFlags};
use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::ptr::NonNull;

/// Names a boot of a machine.
pub type BootId = [u8; 16];

/// Bytes in front of what the engine stores: the boot.
const HEAD_BYTES: usize = 4096;
const FILE_BYTES: usize = HEAD_BYTES + LASTING_BYTES;
/// Only who serves may read it, and it is not cleaned up.
const PERMISSIONS: u32 = 0o1600;

/// This boot of the machine; `None` if the system does not tell.
#[must_use]
pub fn boot_id() -> Option<BootId> {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    let number = u128::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?;
    (number != 0).then(|| number.to_be_bytes())
}

/// Reads what a process left in the file, if it ended since the machine was booted.
///
/// # Errors
/// If the file is there and cannot be read.
pub fn left_in(path: &Path, boot: BootId) -> io::Result<Option<Vec<u8>>> {
    let mut file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut bytes = Vec::with_capacity(FILE_BYTES);
    (&mut file).take(FILE_BYTES as u64).read_to_end(&mut bytes)?;
    let is_whole = bytes.len() == FILE_BYTES && bytes[..boot.len()] == boot;
    Ok(is_whole.then(|| bytes.split_off(HEAD_BYTES)))
}

/// The memory, mapped.
pub struct LastingMemory {
    base: NonNull<u8>,
}

// SAFETY: the mapping belongs to this value alone in the process, and is written through `&mut` only.
unsafe impl Send for LastingMemory {}

impl LastingMemory {
    /// Maps the file, which is made if it is not there or is of another boot. What is in it stays.
    ///
    /// # Errors
    /// If it cannot be made, or has no room.
    pub fn open(path: &Path, boot: BootId) -> io::Result<LastingMemory> {
        let is_left = left_in(path, boot)?.is_some();
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(PERMISSIONS);
        let file = options.open(path)?;
        file.set_permissions(Permissions::from_mode(PERMISSIONS))?;
        if !is_left {
            // Of another boot: first of all it must not pass for one of this.
            file.set_len(0)?;
            // All pages are there from now on: one that could not be had when it is written to would end the process.
            file.write_all_at(&[0; FILE_BYTES], 0)?;
            file.write_all_at(&boot, 0)?;
        }
        // SAFETY: a fresh mapping at an address of the kernel's choice touches nothing. The file is as long as the mapping, and is
        // cut by nobody but this function, before it is mapped.
        let base = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                FILE_BYTES,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                &file,
                0,
            )?
        };
        Ok(LastingMemory { base: NonNull::new(base.cast()).expect("a mapping is never at address 0") })
    }

    /// Stores bytes.
    ///
    /// # Panics
    /// If they reach behind the end.
    pub fn store(&mut self, at_bytes: usize, bytes: &[u8]) {
        let end = at_bytes.checked_add(bytes.len());
        assert!(end.is_some_and(|end| end <= LASTING_BYTES), "what is stored is inside the memory");
        // SAFETY: the range is inside the mapping, which lives as long as `self`; `bytes` are elsewhere, since nothing borrows
        // from the mapping.
        unsafe {
            let target = self.base.as_ptr().add(HEAD_BYTES + at_bytes);
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), target, bytes.len());
        }
    }
}

impl Drop for LastingMemory {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `open`, and nothing refers to it any more.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), FILE_BYTES) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOOT: BootId = [7; 16];

    #[test]
    fn what_is_stored_is_found_until_the_next_boot() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("lasting");
        assert_eq!(left_in(&path, BOOT).unwrap(), None);
        let mut memory = LastingMemory::open(&path, BOOT).unwrap();
        memory.store(100, b"header");
        // As a process that is killed leaves it: nothing is unmapped, nothing is written back.
        let left = left_in(&path, BOOT).unwrap().unwrap();
        assert_eq!((left.len(), &left[100..106]), (LASTING_BYTES, &b"header"[..]));
        drop(memory);
        let _again = LastingMemory::open(&path, BOOT).unwrap();
        assert_eq!(left_in(&path, BOOT).unwrap(), Some(left), "who opens it changes nothing");
        assert_eq!(left_in(&path, [8; 16]).unwrap(), None);
        let _after_boot = LastingMemory::open(&path, [8; 16]).unwrap();
        assert_eq!(left_in(&path, [8; 16]).unwrap(), Some(vec![0; LASTING_BYTES]));
        std::fs::write(&path, BOOT).unwrap();
        assert_eq!(left_in(&path, BOOT).unwrap(), None, "half a file says nothing");
    }

    #[test]
    fn it_is_not_cleaned_up_as_old() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("lasting");
        for mode in [0o600, 0o644] {
            // One of a daemon that did not say so.
            File::create(&path).unwrap().set_permissions(Permissions::from_mode(mode)).unwrap();
            let _memory = LastingMemory::open(&path, BOOT).unwrap();
            assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o1600);
            std::fs::remove_file(&path).unwrap();
            let _memory = LastingMemory::open(&path, BOOT).unwrap();
            assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o1600);
        }
    }

    #[test]
    fn this_machine_says_which_boot_it_is() {
        assert!(boot_id().is_some() && boot_id() == boot_id());
    }
}
