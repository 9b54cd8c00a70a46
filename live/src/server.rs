//! The server: what a daemon is made of, and how other threads talk to it.

use crate::buffers::{DOOR_BYTES_MIN, Pool};
use crate::devices::Device;
pub use crate::doors::latency::{Latencies, Latency};
use crate::doors::nbd::listener::Listener;
pub use crate::doors::nbd::listener::{AddressError, ListenAddress};
use crate::doors::{Export, NAME_BYTES_MAX};
use crate::reactor;
use crate::reactor::control::Control;
use crate::reactor::driver::{Abandon, Core, Driver};
use crate::reactor::shared::Shared;
use engine::effect::{Errno, Notice, RequestOp, Target, WriteMode};
use engine::limits::{ENGINE_POOL_BYTES, REQUEST_BYTES_MAX};
use engine::units::{SECTOR_BYTES, VOLUMES_MAX, VolumeIndex};
use rustix::event::EventfdFlags;
use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;
use thiserror::Error;

/// Memory for client data and the engine's own, unless somebody says otherwise.
pub const POOL_BYTES_DEFAULT: u64 = ENGINE_POOL_BYTES + (64 << 20);
/// The least memory that a server works with.
pub const POOL_BYTES_MIN: u64 = ENGINE_POOL_BYTES + DOOR_BYTES_MIN;
/// How long a device may take for one operation, unless somebody says otherwise.
pub const DEVICE_TIMEOUT_DEFAULT: Duration = Duration::from_secs(30);

/// The most threads that serve clients.
pub const REACTORS_MAX: usize = 16;

/// How many threads serve clients, unless somebody says otherwise: two, if there are two processors.
#[must_use]
pub fn reactors_default() -> usize {
    std::thread::available_parallelism().map_or(1, |processors| processors.get().min(2))
}

/// What a server is made of.
pub struct Config {
    /// Memory for client data and the engine's own; at least [`POOL_BYTES_MIN`].
    pub pool_bytes: u64,
    /// Of that, what the engine keeps dirty data in ([`engine::limits::Config::memory_bytes`]).
    pub kept_bytes: u64,
    /// The cache device, if there is one.
    pub cache: Option<Device>,
    /// The origins, by volume index; `None` where there is no such volume, or no origin.
    pub origins: Vec<Option<Device>>,
    /// What clients can connect to.
    pub exports: Vec<ExportConfig>,
    /// Where they can.
    pub listen: Vec<ListenAddress>,
    /// Notes durably, outside the cache device, that the cached content of a volume must
    /// never be used again ([`engine::effect::IoOp::Abandon`]). Runs in a reactor, and the others wait.
    pub abandon: Abandon,
    /// How long a device may take for one operation before it counts as gone.
    pub device_timeout: Duration,
    /// Told what the operator should know. Runs in a reactor, and the others wait: be quick.
    pub notice: Box<dyn FnMut(ServerNotice) + Send>,
    /// How many threads serve clients: 1 to [`REACTORS_MAX`].
    pub reactors: usize,
}

/// A volume as offered to clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportConfig {
    /// The volume.
    pub volume: VolumeIndex,
    /// The name clients ask for.
    pub name: String,
    /// Its size.
    pub size_bytes: u64,
    /// The smallest aligned request: the larger of 512 and the origin's sector, a power of two.
    pub min_block_bytes: u32,
    /// Whether clients may only read.
    pub read_only: bool,
}

/// What the operator should know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ServerNotice {
    /// Something the engine noticed.
    Engine(Notice),
    /// A device did not answer in time. It is not used any more until the next start.
    DeviceGone {
        /// Which.
        target: Target,
    },
    /// The kernel refuses io_uring: threads do the work, and more slowly.
    NoIoUring {
        /// What it said.
        errno: i32,
    },
}

impl fmt::Display for ServerNotice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let said = |errno: i32| io::Error::from_raw_os_error(errno);
        match self {
            ServerNotice::Engine(Notice::OriginError { volume, errno }) => {
                write!(f, "the origin of volume {} failed and is tried again: {}", volume.0, said(errno.0))
            }
            ServerNotice::Engine(Notice::CacheLatched { errno }) => {
                write!(f, "the cache failed and is not written any more: {}", said(errno.0))
            }
            ServerNotice::Engine(Notice::CorruptClean { volume, block }) => write!(
                f,
                "cached block {block} of volume {} was corrupt but clean; the origin serves it",
                volume.0
            ),
            ServerNotice::Engine(Notice::Lost { volume, block }) => write!(
                f,
                "block {block} of volume {} is lost: it was not at the origin yet and its cached copy is corrupt",
                volume.0
            ),
            ServerNotice::Engine(Notice::Uncached { volume }) => {
                write!(f, "volume {} goes on without its cache", volume.0)
            }
            ServerNotice::Engine(Notice::Drained { volume }) => {
                write!(f, "volume {} has no dirty data any more", volume.0)
            }
            ServerNotice::DeviceGone { target: Target::Origin(volume) } => {
                write!(f, "the origin of volume {} did not answer in time and counts as gone", volume.0)
            }
            ServerNotice::DeviceGone { .. } => {
                f.write_str("the cache did not answer in time and counts as gone")
            }
            ServerNotice::NoIoUring { errno } => {
                write!(f, "io_uring is not available ({}); threads are used, which is slower", said(*errno))
            }
        }
    }
}

/// Why a server could not start or go on.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ServeError {
    /// Somebody else listens there already, or a file of another kind is in the way.
    #[error("{address} is in use; stop whoever listens there, or choose another address")]
    AddressInUse {
        /// The address.
        address: ListenAddress,
    },
    /// Listening failed for another reason.
    #[error("could not listen on {address}: {source}")]
    Listen {
        /// The address.
        address: ListenAddress,
        /// What the system said.
        source: io::Error,
    },
    /// The memory is less than [`POOL_BYTES_MIN`].
    #[error("{pool_bytes} bytes of memory are too few; at least {POOL_BYTES_MIN} are needed")]
    PoolTooSmall {
        /// What was asked for.
        pool_bytes: u64,
    },
    /// The system did not give the memory.
    #[error("could not get {pool_bytes} bytes of memory: {source}")]
    Pool {
        /// What was asked for.
        pool_bytes: u64,
        /// What the system said.
        source: io::Error,
    },
    /// An export's smallest block is not a power of two from 512 to 65536, or its name too long.
    #[error("volume {name} cannot be offered with blocks of {min_block_bytes} bytes")]
    Export {
        /// The export's name.
        name: String,
        /// Its smallest block.
        min_block_bytes: u32,
    },
    /// A system call that never fails did.
    #[error("could not {step}: {source}")]
    System {
        /// What was tried.
        step: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// Another thread of the server failed, and says why.
    #[error("another thread of the server failed")]
    Broken,
}

/// What the operator can ask of a volume; see [`RequestOp`] for what each does and when it is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ControlOp {
    /// [`RequestOp::SetMode`]
    SetMode(WriteMode),
    /// [`RequestOp::SetSize`]; then the export has the new size, and its clients are sent away to look again.
    SetSize {
        /// The new size.
        sectors: u64,
    },
    /// [`RequestOp::Flush`]
    Flush,
    /// [`RequestOp::Drain`]
    Drain,
    /// [`RequestOp::CancelDrain`]
    CancelDrain,
    /// [`RequestOp::Detach`]; its clients are sent away when it is done.
    Detach,
    /// [`RequestOp::GiveUpLost`]
    GiveUpLost,
}

impl ControlOp {
    pub(crate) fn request(self) -> RequestOp {
        match self {
            ControlOp::SetMode(mode) => RequestOp::SetMode(mode),
            ControlOp::SetSize { sectors } => RequestOp::SetSize(sectors),
            ControlOp::Flush => RequestOp::Flush,
            ControlOp::Drain => RequestOp::Drain,
            ControlOp::CancelDrain => RequestOp::CancelDrain,
            ControlOp::Detach => RequestOp::Detach,
            ControlOp::GiveUpLost => RequestOp::GiveUpLost,
        }
    }
}

/// Why a call of another thread brought nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ControlError {
    /// The core refused.
    #[error("{}", io::Error::from_raw_os_error(.0.0))]
    Engine(Errno),
    /// The server has stopped or is stopping.
    #[error("the daemon is stopping")]
    Stopped,
}

/// The answer of a call: sent once.
pub(crate) type Answer<T> = Sender<Result<T, ControlError>>;

/// What other threads want of the reactors.
pub(crate) enum Message<C> {
    Request { volume: VolumeIndex, op: ControlOp, answer: Answer<()> },
    WithCore(Box<dyn FnOnce(&mut C) + Send>),
    Read { volume: VolumeIndex, offset_bytes: u64, len_bytes: u32, answer: Answer<Vec<u8>> },
    Latencies { volume: VolumeIndex, answer: Answer<Latencies> },
    ResizeExport { volume: VolumeIndex, size_bytes: u64, answer: Answer<()> },
    SetReadOnly { volume: VolumeIndex, read_only: bool, answer: Answer<()> },
    CloseExport { volume: VolumeIndex, answer: Answer<()> },
    CloseDoors { answer: Answer<()> },
    Stop { answer: Answer<()> },
}

/// A server that listens but does not serve yet.
pub struct Server<C> {
    pub(crate) config: Config,
    pub(crate) core: C,
    pub(crate) listeners: Vec<Listener>,
    addresses: Vec<ListenAddress>,
    pub(crate) messages: Receiver<Message<C>>,
    pub(crate) wake: Arc<OwnedFd>,
    pub(crate) pool: Pool,
}

/// A way to talk to a running server from any thread. Calls wait for their answer.
pub struct Handle<C> {
    messages: Sender<Message<C>>,
    wake: Arc<OwnedFd>,
}

impl<C> Clone for Handle<C> {
    fn clone(&self) -> Handle<C> {
        Handle { messages: self.messages.clone(), wake: Arc::clone(&self.wake) }
    }
}

/// A request whose answer is still to come.
#[derive(Debug)]
pub struct Pending {
    answer: Receiver<Result<(), ControlError>>,
}

impl Pending {
    /// Waits for the answer.
    ///
    /// # Errors
    /// What the core said, or that the server stopped meanwhile.
    pub fn wait(self) -> Result<(), ControlError> {
        self.answer.recv().unwrap_or(Err(ControlError::Stopped))
    }

    /// Waits for the answer, but not longer than `time`. `None` if it is still to come.
    #[must_use]
    pub fn wait_for(&self, time: Duration) -> Option<Result<(), ControlError>> {
        match self.answer.recv_timeout(time) {
            Ok(result) => Some(result),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => Some(Err(ControlError::Stopped)),
        }
    }
}

impl<C: Core + 'static> Server<C> {
    /// Takes memory, and listens. Clients that connect wait until [`Server::run`].
    ///
    /// # Errors
    /// [`ServeError`]: memory or addresses that are not to be had.
    pub fn new(config: Config, core: C) -> Result<(Server<C>, Handle<C>), ServeError> {
        let pool_bytes = config.pool_bytes;
        assert!(config.origins.len() <= VOLUMES_MAX, "a cache has at most {VOLUMES_MAX} volumes");
        assert!((1..=REACTORS_MAX).contains(&config.reactors), "there are 1 to {REACTORS_MAX} reactors");
        if pool_bytes < POOL_BYTES_MIN + config.kept_bytes {
            return Err(ServeError::PoolTooSmall { pool_bytes });
        }
        for export in &config.exports {
            let blocks_fit = export.min_block_bytes.is_power_of_two()
                && (SECTOR_BYTES..=65536).contains(&u64::from(export.min_block_bytes));
            if !blocks_fit || export.name.len() > NAME_BYTES_MAX {
                let (name, min_block_bytes) = (export.name.clone(), export.min_block_bytes);
                return Err(ServeError::Export { name, min_block_bytes });
            }
        }
        let pool = Pool::with_kept(pool_bytes - ENGINE_POOL_BYTES - config.kept_bytes, config.kept_bytes)
            .map_err(|source| ServeError::Pool { pool_bytes, source })?;
        let listeners = config.listen.iter().map(listen).collect::<Result<Vec<_>, _>>()?;
        let addresses = listeners.iter().map(|listener| listener.address().clone()).collect();
        let wake = rustix::event::eventfd(0, EventfdFlags::CLOEXEC)
            .map_err(|errno| ServeError::System { step: "make an eventfd", source: errno.into() })?;
        let wake = Arc::new(wake);
        let (sender, messages) = channel();
        let handle = Handle { messages: sender, wake: Arc::clone(&wake) };
        Ok((Server { config, core, listeners, addresses, messages, wake, pool }, handle))
    }

    /// Where it listens; port 0 has become a real one.
    #[must_use]
    pub fn addresses(&self) -> &[ListenAddress] {
        &self.addresses
    }

    /// Serves until [`Handle::stop`]; gives back the core as it then is.
    ///
    /// # Errors
    /// [`ServeError::System`], if the kernel fails what the reactors stand on.
    pub fn run(self) -> Result<C, ServeError> {
        let Server { config, core, listeners, messages, wake, pool, .. } = self;
        let reactors = config.reactors;
        let shared = Shared::new(Driver::new(core, pool, config), wake, reactors)
            .map_err(|source| ServeError::System { step: "make an eventfd", source })?;
        let has_let_go = reactor::run_all(&shared, reactors, listeners, Control::new(messages))?;
        let driver = shared.into_driver()?;
        if has_let_go {
            return Ok(driver.core);
        }
        // A device hangs. What the kernel may still write to must not be given to anybody else.
        let Driver { core, pool, flights, .. } = driver;
        std::mem::forget((pool, flights));
        Ok(core)
    }
}

fn listen(address: &ListenAddress) -> Result<Listener, ServeError> {
    Listener::bind_patiently(address).map_err(|source| {
        let address = address.clone();
        match source.raw_os_error() {
            Some(libc::EADDRINUSE) => ServeError::AddressInUse { address },
            _ => ServeError::Listen { address, source },
        }
    })
}

impl ExportConfig {
    pub(crate) fn offered(self) -> (VolumeIndex, Export) {
        let ExportConfig { volume, name, size_bytes, min_block_bytes, read_only } = self;
        let description = String::new();
        (volume, Export { name, description, size_bytes, min_block_bytes, read_only })
    }
}

impl<C: Core + 'static> Handle<C> {
    fn send(&self, message: Message<C>) -> Result<(), ControlError> {
        self.messages.send(message).map_err(|_| ControlError::Stopped)?;
        let _ = rustix::io::write(&*self.wake, &1u64.to_ne_bytes());
        Ok(())
    }

    fn call<T>(&self, message: impl FnOnce(Answer<T>) -> Message<C>) -> Result<T, ControlError> {
        let (answer, receiver) = channel();
        self.send(message(answer))?;
        receiver.recv().unwrap_or(Err(ControlError::Stopped))
    }

    /// Asks the core for something, and waits until it is done.
    ///
    /// # Errors
    /// What the core said, or that the server has stopped.
    pub fn request(&self, volume: VolumeIndex, op: ControlOp) -> Result<(), ControlError> {
        self.start(volume, op)?.wait()
    }

    /// Asks the core for something that may take long.
    ///
    /// # Errors
    /// That the server has stopped.
    pub fn start(&self, volume: VolumeIndex, op: ControlOp) -> Result<Pending, ControlError> {
        let (answer, receiver) = channel();
        self.send(Message::Request { volume, op, answer })?;
        Ok(Pending { answer: receiver })
    }

    /// Runs `look` in a reactor, and all of them wait for it: be quick.
    ///
    /// # Errors
    /// That the server has stopped.
    pub fn with_core<T: Send + 'static>(
        &self,
        look: impl FnOnce(&mut C) -> T + Send + 'static,
    ) -> Result<T, ControlError> {
        self.call(|answer| {
            Message::WithCore(Box::new(move |core| {
                // Whoever asked may be gone.
                let _ = answer.send(Ok(look(core)));
            }))
        })
    }

    /// Reads of a volume through the core, as a client would. Offset and length are
    /// multiples of the volume's sector, and the length at most [`REQUEST_BYTES_MAX`] less a block.
    ///
    /// # Errors
    /// What the core said, [`Errno::INVAL`] for a range that is not allowed, [`Errno::NOSPC`] when
    /// clients hold all memory, or that the server has stopped.
    pub fn read(
        &self,
        volume: VolumeIndex,
        offset_bytes: u64,
        len_bytes: u32,
    ) -> Result<Vec<u8>, ControlError> {
        let sector = |bytes: u64| bytes.is_multiple_of(SECTOR_BYTES);
        if len_bytes == 0
            || u64::from(len_bytes) > u64::from(REQUEST_BYTES_MAX) - engine::units::BLOCK_BYTES
            || !sector(offset_bytes)
            || !sector(u64::from(len_bytes))
        {
            return Err(ControlError::Engine(Errno::INVAL));
        }
        self.call(|answer| Message::Read { volume, offset_bytes, len_bytes, answer })
    }

    /// What the clients of a volume waited for so far.
    ///
    /// # Errors
    /// That the server has stopped.
    pub fn latencies(&self, volume: VolumeIndex) -> Result<Latencies, ControlError> {
        self.call(|answer| Message::Latencies { volume, answer })
    }

    /// Offers a volume with another size; connections to it are closed, so that clients ask again.
    ///
    /// # Errors
    /// That the server has stopped.
    pub fn resize_export(&self, volume: VolumeIndex, size_bytes: u64) -> Result<(), ControlError> {
        self.call(|answer| Message::ResizeExport { volume, size_bytes, answer })
    }

    /// Announces a volume as read-only, or as writable, to whoever connects from now on. Connections there
    /// are keep what they were told; their writes are judged by the new rule.
    ///
    /// # Errors
    /// That the server has stopped.
    pub fn set_read_only(&self, volume: VolumeIndex, read_only: bool) -> Result<(), ControlError> {
        self.call(|answer| Message::SetReadOnly { volume, read_only, answer })
    }

    /// Offers a volume no longer; connections to it are closed.
    ///
    /// # Errors
    /// That the server has stopped.
    pub fn close_export(&self, volume: VolumeIndex) -> Result<(), ControlError> {
        self.call(|answer| Message::CloseExport { volume, answer })
    }

    /// Takes no new connections and closes those there are.
    ///
    /// # Errors
    /// That the server has stopped.
    pub fn close_doors(&self) -> Result<(), ControlError> {
        self.call(|answer| Message::CloseDoors { answer })
    }

    /// Closes the doors, lets what is under way end, and stops the core cleanly
    /// ([`RequestOp::Stop`]). Afterwards [`Server::run`] returns.
    ///
    /// # Errors
    /// What the core said, or that the server had stopped already.
    pub fn stop(&self) -> Result<(), ControlError> {
        self.call(|answer| Message::Stop { answer })
    }
}
