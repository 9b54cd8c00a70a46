//! An opened file or block device, and the plain system calls on it.
//!
//! Invariant: the lock is taken on the very descriptor that does the I/O (hazard 13), so that it
//! outlives a killed daemon for as long as writes of it are still landing.

use super::DeviceError;
use super::identity;
use engine::effect::Errno;
use engine::units::BLOCK_BYTES;
use rustix::fs::{FallocateFlags, FileType, FlockOperation, FsWord, Mode, OFlags, SeekFrom};
use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Zeroes that are written where a device has no operation for it, in bytes at a time.
pub const ZERO_BYTES: usize = 1 << 20;

/// Mode of an open.
#[derive(Clone, Copy, Debug)]
pub(super) struct OpenMode {
    /// Also for writing.
    pub write: bool,
    /// No other process may use it meanwhile.
    pub exclusive: bool,
    /// Past the page cache if possible.
    pub direct: bool,
}

/// An opened file or block device.
#[derive(Debug)]
pub struct OpenFile {
    fd: OwnedFd,
    block: bool,
    direct: bool,
    /// Memory of this process alone (`mem:`), without a name: nothing to flush.
    memory: bool,
    /// As last measured; see [`OpenFile::measure`].
    size_bytes: AtomicU64,
    sector_bytes: u32,
    /// Bytes behind the last whole sector, which are not used.
    unused_bytes: u64,
    identity: String,
    device_inode: (u64, u64),
    /// See [`OpenFile::is_local`].
    local: bool,
    /// Whether a transfer can be refused instead of making its caller wait. Cleared when the file cannot do that.
    nowait: AtomicBool,
    /// Cleared when the device has refused the operation once.
    zeroes: AtomicBool,
    punches: AtomicBool,
}

impl OpenFile {
    /// Opens the file or block device at `path`.
    pub(super) fn open(path: &Path, mode: OpenMode) -> Result<OpenFile, DeviceError> {
        let os = |step: &'static str| {
            move |errno: rustix::io::Errno| DeviceError::from_open(path, step, errno.raw_os_error())
        };
        let stat = rustix::fs::stat(path).map_err(os("look at"))?;
        let block = match FileType::from_raw_mode(stat.st_mode) {
            FileType::BlockDevice => true,
            FileType::RegularFile => false,
            _ => return Err(DeviceError::NotADevice { path: path.to_owned() }),
        };
        if !block && mode.exclusive && identity::backs_a_loop_device(path) {
            return Err(DeviceError::Busy { path: path.to_owned() });
        }
        let mut flags = OFlags::CLOEXEC | if mode.write { OFlags::RDWR } else { OFlags::RDONLY };
        if block && mode.exclusive {
            // Refuses a mounted device, and one that a volume manager or another program claims.
            flags |= OFlags::EXCL;
        }
        let (fd, direct) = open_direct(path, flags, mode.direct).map_err(os("open"))?;
        let opened = rustix::fs::fstat(&fd).map_err(os("look at"))?;
        if (opened.st_dev, opened.st_ino) != (stat.st_dev, stat.st_ino) {
            // Replaced between the two looks; the caller tries again if it wants to.
            return Err(DeviceError::Os { path: path.to_owned(), step: "open", errno: libc::ESTALE });
        }
        if mode.exclusive {
            match rustix::fs::flock(&fd, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {}
                Err(rustix::io::Errno::WOULDBLOCK) => {
                    let path = path.to_owned();
                    let is_shared = rustix::fs::flock(&fd, FlockOperation::NonBlockingLockShared).is_ok();
                    return Err(if is_shared {
                        DeviceError::LookedAt { path }
                    } else {
                        DeviceError::Locked { path }
                    });
                }
                Err(errno) => return Err(os("lock")(errno)),
            }
        }
        let end = rustix::fs::seek(&fd, SeekFrom::End(0)).map_err(os("measure"))?;
        let sector_bytes = if block {
            rustix::fs::ioctl_blksszget(&fd).map_err(os("measure"))?
        } else if direct {
            let of_disk = identity::sector_bytes_below(opened.st_dev).unwrap_or(512);
            probe_sector_bytes(fd.as_fd()).max(of_disk)
        } else {
            512
        };
        let sector_bytes = sector_bytes.max(512);
        if u64::from(sector_bytes) > BLOCK_BYTES {
            return Err(DeviceError::SectorSize { path: path.to_owned(), sector_bytes });
        }
        let size_bytes = end - end % u64::from(sector_bytes);
        if size_bytes == 0 {
            return Err(DeviceError::Empty { path: path.to_owned() });
        }
        let identity =
            if block { identity::of_block_device(opened.st_rdev) } else { identity::of_file(&fd, &opened) };
        let device_inode = if block { (0, opened.st_rdev) } else { (opened.st_dev, opened.st_ino) };
        let local = block || is_on_local_system(fd.as_fd());
        Ok(OpenFile {
            fd,
            block,
            direct,
            memory: false,
            size_bytes: AtomicU64::new(size_bytes),
            sector_bytes,
            unused_bytes: end - size_bytes,
            identity,
            device_inode,
            local,
            nowait: AtomicBool::new(local),
            zeroes: AtomicBool::new(true),
            punches: AtomicBool::new(true),
        })
    }

    /// Memory of the process that looks like a file.
    pub(super) fn in_memory(size_bytes: u64) -> Result<OpenFile, DeviceError> {
        let os = |errno: rustix::io::Errno| DeviceError::Memory { size_bytes, errno: errno.raw_os_error() };
        let size_bytes = size_bytes - size_bytes % 512;
        if size_bytes == 0 {
            return Err(DeviceError::Memory { size_bytes, errno: libc::EINVAL });
        }
        let fd = rustix::fs::memfd_create("forebay", rustix::fs::MemfdFlags::CLOEXEC).map_err(os)?;
        rustix::fs::ftruncate(&fd, size_bytes).map_err(os)?;
        set_nonblocking(&fd).map_err(os)?;
        let stat = rustix::fs::fstat(&fd).map_err(os)?;
        Ok(OpenFile {
            fd,
            block: false,
            direct: false,
            memory: true,
            size_bytes: AtomicU64::new(size_bytes),
            sector_bytes: 512,
            unused_bytes: 0,
            identity: String::new(),
            device_inode: (stat.st_dev, stat.st_ino),
            local: true,
            nowait: AtomicBool::new(false),
            zeroes: AtomicBool::new(true),
            punches: AtomicBool::new(true),
        })
    }

    /// The descriptor's number, for the backends.
    pub(crate) fn raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    /// Its size, a whole number of sectors.
    pub(crate) fn size_bytes(&self) -> u64 {
        self.size_bytes.load(Ordering::Relaxed)
    }

    /// Asks for the size again. One that has grown is taken over; one that has shrunk is only returned:
    /// operations on the lost end shall get the device's own errors.
    pub(crate) fn measure(&self) -> Result<u64, Errno> {
        // Transfers name their offset: the file position that this moves is not used.
        let end =
            rustix::fs::seek(&self.fd, SeekFrom::End(0)).map_err(|errno| Errno(errno.raw_os_error()))?;
        let size_bytes = end - end % u64::from(self.sector_bytes);
        self.size_bytes.fetch_max(size_bytes, Ordering::Relaxed);
        Ok(size_bytes)
    }

    /// Bytes behind the last whole sector.
    pub(crate) fn unused_bytes(&self) -> u64 {
        self.unused_bytes
    }

    /// Gives a file all of its space, where its file system can. `false` if it cannot.
    pub(crate) fn reserve_space(&self) -> Result<bool, Errno> {
        let system = |errno: rustix::io::Errno| Errno(errno.raw_os_error());
        if self.block || self.memory {
            return Ok(true);
        }
        let (stat, room) =
            (rustix::fs::fstat(&self.fd).map_err(system)?, rustix::fs::fstatvfs(&self.fd).map_err(system)?);
        let has_bytes = u64::try_from(stat.st_blocks).unwrap_or(0).saturating_mul(512);
        let needs_bytes = self.size_bytes().saturating_sub(has_bytes);
        // Asked first: an attempt that fails may have taken all there was. Some file systems do not know their size.
        if room.f_blocks > 0 && needs_bytes > room.f_bavail.saturating_mul(room.f_frsize) {
            return Err(Errno::NOSPC);
        }
        loop {
            match rustix::fs::fallocate(&self.fd, FallocateFlags::KEEP_SIZE, 0, self.size_bytes()) {
                Ok(()) => return Ok(true),
                Err(errno) if is_refusal(errno.raw_os_error()) => return Ok(false),
                Err(rustix::io::Errno::INTR) => {}
                Err(errno) => return Err(system(errno)),
            }
        }
    }

    /// The smallest aligned transfer.
    pub(crate) fn sector_bytes(&self) -> u32 {
        self.sector_bytes
    }

    /// A text that stays the same over restarts; empty if there is none.
    pub(crate) fn identity(&self) -> &str {
        &self.identity
    }

    /// Whether it is a block device.
    pub(crate) fn is_block_device(&self) -> bool {
        self.block
    }

    /// Whether the kernel knows of a write cache that a power cut empties; nothing if it does not say.
    pub(crate) fn has_volatile_cache(&self) -> Option<bool> {
        if self.block { identity::has_volatile_cache(self.device_inode.1) } else { None }
    }

    /// Whether it is a block device that the kernel lets nobody write to, as things are now.
    pub(crate) fn is_read_only(&self) -> bool {
        self.block && identity::is_read_only(self.device_inode.1)
    }

    /// Whether it goes past the page cache, or has none in between that matters.
    pub(crate) fn is_direct(&self) -> bool {
        self.direct || self.memory
    }

    /// Whether a transfer is a copy by the CPU, which a second one can do.
    pub(crate) fn is_copied(&self) -> bool {
        !self.direct
    }

    /// Whether it is memory of this process, at which nothing waits.
    pub(crate) fn is_memory(&self) -> bool {
        self.memory
    }

    /// Whether operations that are handed to io_uring leave their caller alone, whatever state the device is in: a block
    /// device, or a file of a local file system.
    pub(crate) fn is_local(&self) -> bool {
        self.local
    }

    /// Whether a transfer can be refused instead of making its caller wait.
    pub(crate) fn has_nowait(&self) -> bool {
        self.nowait.load(Ordering::Relaxed)
    }

    /// Remembers that no transfer can be refused instead of making its caller wait.
    pub(crate) fn lacks_nowait(&self) {
        self.nowait.store(false, Ordering::Relaxed);
    }

    /// Whether a flush has anything to do. Memory has nowhere to flush to.
    pub(crate) fn needs_flush(&self) -> bool {
        !self.memory
    }

    /// Whether both are one file.
    pub(crate) fn same_as(&self, other: &OpenFile) -> bool {
        self.device_inode == other.device_inode
    }

    /// The mode of `fallocate` that makes a range read as zeroes; `None` if the device has none.
    pub(crate) fn zero_mode(&self) -> Option<FallocateFlags> {
        if self.zeroes.load(Ordering::Relaxed) {
            Some(FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE)
        } else if self.punches.load(Ordering::Relaxed) && !self.block {
            // On a block device a hole is a discard or zeroes, as the device likes.
            Some(FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE)
        } else {
            None
        }
    }

    /// The mode of `fallocate` that drops a range; `None` if the device has none.
    pub(crate) fn discard_mode(&self) -> Option<FallocateFlags> {
        let punches = self.punches.load(Ordering::Relaxed);
        punches.then_some(FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE)
    }

    /// Remembers that the device refused this mode.
    pub(crate) fn refused(&self, mode: FallocateFlags) {
        let what = if mode.contains(FallocateFlags::ZERO_RANGE) { &self.zeroes } else { &self.punches };
        what.store(false, Ordering::Relaxed);
    }

    /// Reads exactly `bytes` from the offset.
    pub(crate) fn read_at(&self, offset_bytes: u64, bytes: &mut [u8]) -> Result<(), Errno> {
        self.read_vectored_at(offset_bytes, &mut [IoSliceMut::new(bytes)])
    }

    /// Writes exactly `bytes` at the offset.
    pub(crate) fn write_at(&self, offset_bytes: u64, bytes: &[u8]) -> Result<(), Errno> {
        self.write_vectored_at(offset_bytes, &mut [IoSlice::new(bytes)])
    }

    /// Fills all slices, one after the other, from the offset on. None may be empty.
    pub(crate) fn read_vectored_at(
        &self,
        mut offset_bytes: u64,
        mut slices: &mut [IoSliceMut<'_>],
    ) -> Result<(), Errno> {
        while !slices.is_empty() {
            let read = rustix::io::preadv(&self.fd, slices, offset_bytes);
            let moved = moved_bytes(read)?;
            IoSliceMut::advance_slices(&mut slices, moved);
            offset_bytes += moved as u64;
        }
        Ok(())
    }

    /// Writes all slices, one after the other, from the offset on. None may be empty.
    pub(crate) fn write_vectored_at(
        &self,
        mut offset_bytes: u64,
        mut slices: &mut [IoSlice<'_>],
    ) -> Result<(), Errno> {
        while !slices.is_empty() {
            let written = rustix::io::pwritev(&self.fd, slices, offset_bytes);
            let moved = moved_bytes(written)?;
            IoSlice::advance_slices(&mut slices, moved);
            offset_bytes += moved as u64;
        }
        Ok(())
    }

    /// Makes earlier writes durable.
    pub(crate) fn flush(&self) -> Result<(), Errno> {
        if !self.needs_flush() {
            return Ok(());
        }
        rustix::fs::fdatasync(&self.fd).map_err(|errno| Errno(errno.raw_os_error()))
    }

    /// Makes the range read as zeroes, by whatever the device can do.
    pub(crate) fn zero(&self, offset_bytes: u64, len_bytes: u64) -> Result<(), Errno> {
        while let Some(mode) = self.zero_mode() {
            match rustix::fs::fallocate(&self.fd, mode, offset_bytes, len_bytes) {
                Ok(()) => return Ok(()),
                Err(errno) if is_refusal(errno.raw_os_error()) => self.refused(mode),
                Err(rustix::io::Errno::INTR) => {}
                Err(errno) => return Err(Errno(errno.raw_os_error())),
            }
        }
        let zeroes =
            super::AlignedBytes::new(ZERO_BYTES.min(usize::try_from(len_bytes).unwrap_or(ZERO_BYTES)));
        let mut done = 0;
        while done < len_bytes {
            let step = (len_bytes - done).min(zeroes.len() as u64);
            self.write_at(offset_bytes + done, &zeroes[..usize::try_from(step).expect("at most a step")])?;
            done += step;
        }
        Ok(())
    }

    /// Drops the range if the device can.
    pub(crate) fn discard(&self, offset_bytes: u64, len_bytes: u64) -> Result<(), Errno> {
        while let Some(mode) = self.discard_mode() {
            match rustix::fs::fallocate(&self.fd, mode, offset_bytes, len_bytes) {
                Ok(()) => return Ok(()),
                Err(errno) if is_refusal(errno.raw_os_error()) => self.refused(mode),
                Err(rustix::io::Errno::INTR) => {}
                Err(errno) => return Err(Errno(errno.raw_os_error())),
            }
        }
        Err(Errno::OPNOTSUPP)
    }
}

/// Whether an errno of `fallocate` says that the device does not have the operation.
pub(crate) fn is_refusal(errno: i32) -> bool {
    matches!(errno, libc::EOPNOTSUPP | libc::EINVAL | libc::ENOSYS | libc::ENODEV)
}

/// Opens past the page cache if asked for and the file system can.
fn open_direct(path: &Path, flags: OFlags, direct: bool) -> rustix::io::Result<(OwnedFd, bool)> {
    if direct {
        match rustix::fs::open(path, flags | OFlags::DIRECT, Mode::empty()) {
            Err(rustix::io::Errno::INVAL | rustix::io::Errno::OPNOTSUPP) => {}
            other => return other.map(|fd| (fd, true)),
        }
    }
    rustix::fs::open(path, flags, Mode::empty()).map(|fd| (fd, false))
}

/// Whether the file system of a file is one that leaves the caller of io_uring alone. Of the others some make it wait:
/// FUSE does when its server has enough to do, and that is for ever if the server hangs.
fn is_on_local_system(fd: BorrowedFd<'_>) -> bool {
    const EXT4: FsWord = 0xef53;
    const XFS: FsWord = 0x5846_5342;
    const BTRFS: FsWord = 0x9123_683e;
    const F2FS: FsWord = 0xf2f5_2010;
    const TMPFS: FsWord = 0x0102_1994;
    rustix::fs::fstatfs(fd).is_ok_and(|system| [EXT4, XFS, BTRFS, F2FS, TMPFS].contains(&system.f_type))
}

/// Tells io_uring that a file in memory never waits for a disk: without this flag, every small transfer would go to
/// a worker thread.
fn set_nonblocking(fd: &OwnedFd) -> rustix::io::Result<()> {
    let flags = rustix::fs::fcntl_getfl(fd)?;
    rustix::fs::fcntl_setfl(fd, flags | OFlags::NONBLOCK)
}

/// The smallest direct transfer that the file system takes. What lies in a hole it may give in any piece.
fn probe_sector_bytes(fd: BorrowedFd<'_>) -> u32 {
    let mut bytes = super::AlignedBytes::new(8192);
    for sector_bytes in [512u32, 1024, 2048] {
        let size = sector_bytes as usize;
        // Memory and file offset are both only as aligned as the size under test.
        if rustix::io::pread(fd, &mut bytes[size..2 * size], u64::from(sector_bytes)).is_ok() {
            return sector_bytes;
        }
    }
    4096
}

/// Bytes that a system call has moved; it may stop short.
fn moved_bytes(result: rustix::io::Result<usize>) -> Result<usize, Errno> {
    match result {
        // The file became shorter than it was at the start.
        Ok(0) => Err(Errno::IO),
        Ok(moved) => Ok(moved),
        Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => Ok(0),
        Err(errno) => Err(Errno(errno.raw_os_error())),
    }
}
