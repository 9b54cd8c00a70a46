//! Devices: opening by name, operations under way, and the queues behind them.
//!
//! A device is a file or block device, memory, a modelled disk over one of the two, or an export of an NBD server.
//! Memory is a file without a name, so that all data goes one way.

mod blocking;
mod file;
#[expect(unsafe_code, reason = "the kernel reads and writes the pool's memory for the flights")]
pub(crate) mod flights;
mod identity;
mod modelled;
pub(crate) mod nbd;
mod size;
mod spec;
mod volatile;

pub use blocking::BlockingDevice;
pub(crate) use file::{OpenFile, ZERO_BYTES, is_refusal};
pub(crate) use modelled::{Job, Modelled, Submitter, Transfer};
pub use nbd::Away;
pub use size::{SizeError, parse_size};
pub use spec::{DeviceSpec, DeviceSpecError, ModelSpec, SPEED_UNIT, WriteCache, parse};

use engine::effect::Errno;
use engine::units::BLOCK_BYTES;
use file::OpenMode;
use nbd::NbdDevice;
use std::ops::{Deref, DerefMut};
use std::os::fd::RawFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use thiserror::Error;

/// Access to a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Read it, without a lock: look at something that may be in use.
    ReadOnly,
    /// Read it; fails while others use it.
    ReadOnlyExclusive,
    /// Read and write it, without a lock.
    ReadWrite,
    /// Read and write it; fails while others use it.
    Exclusive,
}

/// Reason why a device could not be opened.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// There is nothing of that name.
    #[error("{} does not exist", path.display())]
    Missing {
        /// The name.
        path: PathBuf,
    },
    /// Another process holds its lock, most likely another daemon.
    #[error("{} is in use by another forebay (its lock is taken)", path.display())]
    Locked {
        /// The device.
        path: PathBuf,
    },
    /// Another process shares its lock with whoever looks at it only, as udev does with a disk that has just come.
    #[error("{} is being looked at by another program, which has locked it", path.display())]
    LookedAt {
        /// The device.
        path: PathBuf,
    },
    /// It is mounted, or part of a volume group or array, or claimed by another program.
    #[error("{} is mounted or claimed by the system; release it first", path.display())]
    Busy {
        /// The device.
        path: PathBuf,
    },
    /// It may not be opened.
    #[error(
        "{} may not be opened: permission denied; run it as root, or as a user who may read and write it",
        path.display()
    )]
    Denied {
        /// The device.
        path: PathBuf,
    },
    /// A directory, a socket, a terminal.
    #[error("{} is neither a file nor a block device", path.display())]
    NotADevice {
        /// The name.
        path: PathBuf,
    },
    /// It holds not even one sector.
    #[error("{} is empty", path.display())]
    Empty {
        /// The device.
        path: PathBuf,
    },
    /// Its smallest transfer is longer than a block.
    #[error("{} has sectors of {sector_bytes} bytes; at most {BLOCK_BYTES} can be used", path.display())]
    SectorSize {
        /// The device.
        path: PathBuf,
        /// Bytes of a sector.
        sector_bytes: u32,
    },
    /// Any other failure of the system.
    #[error("could not {step} {}: {}", path.display(), std::io::Error::from_raw_os_error(*errno))]
    Os {
        /// The device.
        path: PathBuf,
        /// The step that failed.
        step: &'static str,
        /// The system's error number.
        errno: i32,
    },
    /// Nobody answers at the address of a server.
    #[error("{name}: {reason}")]
    Unreachable {
        /// The export.
        name: String,
        /// The system's error.
        reason: String,
    },
    /// A server answers, and its export cannot be used.
    #[error("{name}: {reason}")]
    Refused {
        /// The export.
        name: String,
        /// Why.
        reason: String,
    },
    /// No memory for a device in memory.
    #[error("could not get {size_bytes} bytes for a device in memory: {}", std::io::Error::from_raw_os_error(*errno))]
    Memory {
        /// The size asked for.
        size_bytes: u64,
        /// The system's error number.
        errno: i32,
    },
    /// The file under a modelled disk is shorter than the disk.
    #[error("{} has {store_bytes} bytes, less than the {size_bytes} of the modelled disk", path.display())]
    StoreTooSmall {
        /// The file.
        path: PathBuf,
        /// Its size.
        store_bytes: u64,
        /// The size asked for.
        size_bytes: u64,
    },
    /// A write cache that the model cannot have.
    #[error("write_cache= of model:{name}: {reason}")]
    WriteCache {
        /// The model.
        name: String,
        /// The error in the parameter.
        reason: models::ParameterError,
    },
    /// A model that does not exist.
    #[error("unknown model `{name}`")]
    UnknownModel {
        /// The name.
        name: String,
    },
}

impl DeviceError {
    fn from_open(path: &Path, step: &'static str, errno: i32) -> DeviceError {
        let path = path.to_owned();
        match errno {
            libc::ENOENT | libc::ENOTDIR | libc::ENXIO | libc::ENODEV => DeviceError::Missing { path },
            libc::EACCES | libc::EPERM => DeviceError::Denied { path },
            libc::EBUSY => DeviceError::Busy { path },
            _ => DeviceError::Os { path, step, errno },
        }
    }
}

/// Way in which a device does its I/O.
#[derive(Debug)]
pub(crate) enum Kind {
    /// By system calls on a file.
    File(OpenFile),
    /// At the times of a model, over a file.
    Modelled(Box<Modelled>),
    /// By requests to a server.
    Nbd(Box<NbdDevice>),
}

#[derive(Debug)]
struct Opened {
    spec: DeviceSpec,
    kind: Kind,
}

/// An opened device. Clones share the open file and its lock, which ends with the last clone.
#[derive(Clone, Debug)]
pub struct Device {
    opened: Arc<Opened>,
}

/// Opens a device.
///
/// # Errors
/// [`DeviceError`], with the path and, where it is not one of the common reasons, the errno.
pub fn open(spec: &DeviceSpec, access: Access) -> Result<Device, DeviceError> {
    let mode = OpenMode {
        write: matches!(access, Access::ReadWrite | Access::Exclusive),
        exclusive: matches!(access, Access::ReadOnlyExclusive | Access::Exclusive),
        direct: true,
    };
    let kind = match spec {
        DeviceSpec::File { path } => Kind::File(OpenFile::open(path, mode)?),
        DeviceSpec::Memory { size_bytes } => Kind::File(OpenFile::in_memory(*size_bytes)?),
        DeviceSpec::Model(model) => Kind::Modelled(Box::new(open_model(model, mode)?)),
        DeviceSpec::Nbd(uri) => Kind::Nbd(Box::new(NbdDevice::open(uri, mode.exclusive, mode.write)?)),
    };
    Ok(Device { opened: Arc::new(Opened { spec: spec.clone(), kind }) })
}

fn open_model(model: &ModelSpec, mode: OpenMode) -> Result<Modelled, DeviceError> {
    let store = match (&model.store, model.size_bytes) {
        // The times are the model's, so the store itself should be as fast as it can be.
        (Some(path), _) => OpenFile::open(path, OpenMode { direct: false, ..mode })?,
        (None, size_bytes) => OpenFile::in_memory(size_bytes.unwrap_or(0))?,
    };
    let size_bytes = model.size_bytes.unwrap_or(store.size_bytes());
    if let Some(path) = model.store.as_ref().filter(|_| store.size_bytes() < size_bytes) {
        let store_bytes = store.size_bytes();
        return Err(DeviceError::StoreTooSmall { path: path.clone(), store_bytes, size_bytes });
    }
    let mut parameters =
        models::find(&model.name).ok_or_else(|| DeviceError::UnknownModel { name: model.name.clone() })?;
    let write_cache_bytes = match model.write_cache {
        None => None,
        Some(WriteCache::Off) => Some(0),
        Some(WriteCache::Bytes(bytes)) => Some(bytes),
    };
    if let Some(bytes) = write_cache_bytes {
        let set = parameters.set("write_cache_bytes", models::Value::Number(bytes));
        set.map_err(|reason| DeviceError::WriteCache { name: model.name.clone(), reason })?;
    }
    Ok(Modelled::new(&parameters, model.speed, store, size_bytes))
}

impl Device {
    pub(crate) fn kind(&self) -> &Kind {
        &self.opened.kind
    }

    /// The descriptor that operations under way go to; none where a model does them.
    pub(crate) fn raw_fd(&self) -> Option<RawFd> {
        match &self.opened.kind {
            Kind::File(file) => Some(file.raw_fd()),
            Kind::Modelled(_) | Kind::Nbd(_) => None,
        }
    }

    /// The file that holds its content, if that is on this machine.
    fn file(&self) -> Option<&OpenFile> {
        match &self.opened.kind {
            Kind::File(file) => Some(file),
            Kind::Modelled(modelled) => Some(modelled.store()),
            Kind::Nbd(_) => None,
        }
    }

    fn nbd(&self) -> Option<&NbdDevice> {
        match &self.opened.kind {
            Kind::Nbd(nbd) => Some(nbd),
            Kind::File(_) | Kind::Modelled(_) => None,
        }
    }

    /// Its size in bytes, a whole number of sectors.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        match &self.opened.kind {
            Kind::File(file) => file.size_bytes(),
            Kind::Modelled(modelled) => modelled.size_bytes(),
            Kind::Nbd(nbd) => nbd.size_bytes(),
        }
    }

    /// Asks the device for its size again: it may have grown since it was opened. A modelled disk has
    /// the size it was made with.
    ///
    /// # Errors
    /// What the system says.
    pub fn measure(&self) -> Result<u64, Errno> {
        match &self.opened.kind {
            Kind::File(file) => file.measure(),
            Kind::Modelled(modelled) => Ok(modelled.size_bytes()),
            Kind::Nbd(nbd) => nbd.measure(),
        }
    }

    /// The smallest aligned transfer in bytes, at least 512.
    #[must_use]
    pub fn sector_bytes(&self) -> u32 {
        match &self.opened.kind {
            Kind::File(file) => file.sector_bytes(),
            Kind::Modelled(modelled) => modelled.store().sector_bytes(),
            Kind::Nbd(nbd) => nbd.sector_bytes(),
        }
    }

    /// Bytes at its end that are not used, because they are no whole sector.
    #[must_use]
    pub fn unused_bytes(&self) -> u64 {
        match &self.opened.kind {
            Kind::File(file) => file.unused_bytes(),
            Kind::Modelled(modelled) => modelled.store().unused_bytes(),
            Kind::Nbd(nbd) => nbd.unused_bytes(),
        }
    }

    /// Gives a file all of its space, so that no write will find its file system full. `false` if the file system cannot
    /// do that. The store of a modelled disk stays as it is.
    ///
    /// # Errors
    /// What the system says: [`Errno::NOSPC`] if there is not so much space.
    pub fn reserve_space(&self) -> Result<bool, Errno> {
        match &self.opened.kind {
            Kind::File(file) => file.reserve_space(),
            Kind::Modelled(_) | Kind::Nbd(_) => Ok(true),
        }
    }

    /// A text that stays the same as long as it is the same device; empty if it has none. An export has none: the name
    /// says only where it is now, and another server may serve the same disk.
    #[must_use]
    pub fn identity(&self) -> &str {
        self.file().map_or("", OpenFile::identity)
    }

    /// Whether it is an export that its server does not let anybody write to, or a block device that the kernel does not.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.nbd().is_some_and(NbdDevice::is_read_only) || self.file().is_some_and(OpenFile::is_read_only)
    }

    /// Whether it can say when writes are durable. Not an export whose server knows neither FLUSH nor FUA.
    #[must_use]
    pub fn can_make_durable(&self) -> bool {
        self.nbd().is_none_or(NbdDevice::can_make_durable)
    }

    /// The state of an export whose server is away.
    #[must_use]
    pub fn away(&self) -> Option<Away> {
        self.nbd().and_then(NbdDevice::away)
    }

    /// Whether its next flush fails, for what the server of an export may have lost since the last one.
    #[must_use]
    pub fn owes_failure(&self) -> bool {
        self.nbd().is_some_and(NbdDevice::owes_failure)
    }

    /// Whether a model sets the times of its operations.
    #[must_use]
    pub fn is_modelled(&self) -> bool {
        matches!(self.opened.kind, Kind::Modelled(_))
    }

    /// Whether it is a block device, not a file.
    #[must_use]
    pub fn is_block_device(&self) -> bool {
        self.file().is_some_and(OpenFile::is_block_device)
    }

    /// Whether the kernel knows of a write cache of it that a power cut empties; nothing if it does not say.
    #[must_use]
    pub fn has_volatile_cache(&self) -> Option<bool> {
        match &self.opened.kind {
            Kind::File(file) => file.has_volatile_cache(),
            Kind::Modelled(_) | Kind::Nbd(_) => None,
        }
    }

    /// Whether its I/O goes past the page cache, or there is nothing behind the page cache. False
    /// deserves a warning: data is then cached twice.
    #[must_use]
    pub fn is_direct(&self) -> bool {
        self.is_modelled() || self.file().is_none_or(OpenFile::is_direct)
    }

    /// Whether it can drop ranges, as far as is known: a device may refuse the first time.
    #[must_use]
    pub fn supports_discard(&self) -> bool {
        match &self.opened.kind {
            Kind::File(file) => file.discard_mode().is_some(),
            Kind::Modelled(modelled) => modelled.store().discard_mode().is_some(),
            Kind::Nbd(nbd) => nbd.can_discard(),
        }
    }

    /// The name it was opened by.
    #[must_use]
    pub fn spec(&self) -> &DeviceSpec {
        &self.opened.spec
    }

    /// Whether both are one file, block device or export underneath.
    #[must_use]
    pub fn same_as(&self, other: &Device) -> bool {
        match (self.file(), other.file()) {
            (Some(one), Some(other)) => one.same_as(other),
            _ => self
                .nbd()
                .zip(other.nbd())
                .is_some_and(|(one, other)| one.uri().canonical() == other.uri().canonical()),
        }
    }

    /// Plays a power cut of a modelled disk: unflushed data is lost, wholly or in part, and the disk does nothing any
    /// more. Other devices do not notice.
    pub fn lose_unflushed(&self) {
        if let Kind::Modelled(modelled) = &self.opened.kind {
            modelled.lose_unflushed();
        }
    }
}

/// Bytes whose address is a multiple of 4096, as direct I/O wants them.
#[derive(Debug)]
pub(crate) struct AlignedBytes {
    bytes: Vec<u8>,
    start: usize,
    len: usize,
}

impl AlignedBytes {
    const ALIGNMENT: usize = 4096;

    /// `len` zeroes.
    pub(crate) fn new(len: usize) -> AlignedBytes {
        let bytes = vec![0; len + Self::ALIGNMENT];
        let start = bytes.as_ptr().align_offset(Self::ALIGNMENT);
        AlignedBytes { bytes, start, len }
    }
}

impl Deref for AlignedBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[self.start..self.start + self.len]
    }
}

impl DerefMut for AlignedBytes {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + self.len]
    }
}
