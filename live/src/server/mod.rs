//! Server: its configuration, its start and its end. Other threads talk to it through a [`Handle`].

mod handle;
mod notice;
mod refusal;

pub use crate::doors::latency::{Histograms, Latencies, Latency, STEPS_NS, Steps};
pub use crate::doors::limits::{
    CLIENT_MEMORY_BYTES_MIN, CLIENT_REQUESTS_DEFAULT, CLIENTS_DEFAULT, ClientFigures, ClientLimits,
};
pub use crate::doors::nbd::listener::{AddressError, ListenAddress};
pub use crate::doors::pieces::Kind as RequestKind;
pub use crate::doors::traffic::{Recorded, RecordedRequest, Sampled, SampledAccess, Traffic, is_sampled};
pub use crate::nbd::acceptor::{Acceptor, TlsClients};
pub use crate::nbd::tls::TlsError;
pub(crate) use handle::{Answer, Message};
pub use handle::{ControlError, ControlOp, Handle, Pending};
pub use notice::ServerNotice;
pub use refusal::Refusal;

use crate::buffers::{DOOR_BYTES_MIN, LastingMemory, Pool};
use crate::devices::Device;
use crate::doors::nbd::listener::{Listener, SocketOwner};
use crate::doors::{Export, NAME_BYTES_MAX};
use crate::reactor;
use crate::reactor::control::Control;
use crate::reactor::driver::{Abandon, Core, Driver};
use crate::reactor::shared::{Shared, wake_events};
use engine::limits::ENGINE_POOL_BYTES;
use engine::units::{SECTOR_BYTES, VOLUMES_MAX, VolumeIndex};
use rustix::event::EventfdFlags;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use thiserror::Error;

/// Default of [`Config::pool_bytes`].
pub const POOL_BYTES_DEFAULT: u64 = ENGINE_POOL_BYTES + (64 << 20);
/// The least memory that a server works with.
pub const POOL_BYTES_MIN: u64 = ENGINE_POOL_BYTES + DOOR_BYTES_MIN;
/// Default of [`Config::socket_permissions`]: only the user who serves may connect.
pub const SOCKET_PERMISSIONS_DEFAULT: u32 = 0o600;
/// Default of [`Config::device_timeout`].
pub const DEVICE_TIMEOUT_DEFAULT: Duration = Duration::from_secs(30);

/// Descriptors that must be free when a server starts: a few clients, connections of verbs, notes.
const SPARE_DESCRIPTORS: usize = 16;

/// The most threads that serve clients.
pub const REACTORS_MAX: usize = 16;

/// Default of [`Config::reactors`]: two, if there are two processors.
#[must_use]
pub fn reactors_default() -> usize {
    std::thread::available_parallelism().map_or(1, |processors| processors.get().min(2))
}

/// Configuration of a server.
pub struct Config {
    /// Memory for client data and the engine's own; at least [`POOL_BYTES_MIN`].
    pub pool_bytes: u64,
    /// Of that, what the engine keeps dirty data in ([`engine::limits::Config::memory_bytes`]).
    pub kept_bytes: u64,
    /// Memory that outlives the process, if there is any: writes that come alone cost less then.
    pub lasting: Option<LastingMemory>,
    /// The cache device, or the first half of a mirrored cache, if there is one.
    pub cache: Option<Device>,
    /// The second half of a mirrored cache, if there is one.
    pub mirror: Option<Device>,
    /// The origins, by volume index; `None` where there is no such volume, or no origin.
    pub origins: Vec<Option<Device>>,
    /// Exports that clients can connect to.
    pub exports: Vec<ExportConfig>,
    /// Addresses to listen on for NBD clients.
    pub listen: Vec<ListenAddress>,
    /// Permissions of unix sockets among them.
    pub socket_permissions: u32,
    /// Group of unix sockets among them; `None` for the process's own.
    pub socket_group: Option<u32>,
    /// The certificates for clients over TCP, who then have to use TLS; `None` if they cannot.
    pub tls: Option<Arc<Acceptor>>,
    /// Limits of clients.
    pub limits: ClientLimits,
    /// Notes durably, outside the cache device, that the cached content of a volume must
    /// never be used again ([`engine::effect::IoOp::Abandon`]). Runs in a reactor, and the others wait.
    pub abandon: Abandon,
    /// Longest operation of a device; one that takes longer makes it count as gone.
    pub device_timeout: Duration,
    /// Told what the operator should know. Runs in a reactor, and the others wait: be quick.
    pub notice: Box<dyn FnMut(ServerNotice) + Send>,
    /// Number of threads that serve clients: 1 to [`REACTORS_MAX`].
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

/// Advice about an address at which nobody can listen.
fn advice(address: &ListenAddress, error: &io::Error) -> &'static str {
    match (address, error.kind()) {
        (ListenAddress::Unix(_), io::ErrorKind::NotFound) => " (make its directory first)",
        (ListenAddress::Unix(_), io::ErrorKind::PermissionDenied) => {
            " (its directory must let this user write)"
        }
        (ListenAddress::Tcp(_), io::ErrorKind::PermissionDenied) => " (ports below 1024 are for root)",
        (ListenAddress::Tcp(_), io::ErrorKind::AddrNotAvailable) => " (this machine has no such address)",
        _ => "",
    }
}

/// Reason why a server could not start or go on.
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
    #[error("could not listen on {address}{}", advice(address, source))]
    Listen {
        /// The address.
        address: ListenAddress,
        /// The system's error.
        source: io::Error,
    },
    /// The memory is less than [`POOL_BYTES_MIN`].
    #[error("{pool_bytes} bytes of memory are too few; at least {POOL_BYTES_MIN} are needed")]
    PoolTooSmall {
        /// The size asked for.
        pool_bytes: u64,
    },
    /// The system did not give the memory.
    #[error("could not get {pool_bytes} bytes of memory for buffers")]
    Pool {
        /// The size asked for.
        pool_bytes: u64,
        /// The system's error.
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
    /// The process may open too few files.
    #[error("too few files may be open at once ({open} are); raise the limit, as by: ulimit -n 1024")]
    Descriptors {
        /// The number of open files.
        open: usize,
    },
    /// A system call failed.
    #[error("could not {step}")]
    System {
        /// The step that failed.
        step: &'static str,
        /// The system's error.
        source: io::Error,
    },
    /// Another thread of the server failed, and says why.
    #[error("another thread of the server failed")]
    Broken,
}

/// A server that listens but does not serve yet.
pub struct Server<C> {
    config: Config,
    listeners: Vec<Listener>,
    addresses: Vec<ListenAddress>,
    messages: Receiver<Message<C>>,
    wake_events: Vec<Arc<OwnedFd>>,
    pool: Pool,
}

impl<C: Core + 'static> Server<C> {
    /// Takes memory, and listens. Clients that connect wait until [`Server::run`].
    ///
    /// # Errors
    /// [`ServeError`]: memory or addresses that are not to be had.
    pub fn new(mut config: Config) -> Result<(Server<C>, Handle<C>), ServeError> {
        let pool_bytes = config.pool_bytes;
        assert!(config.origins.len() <= VOLUMES_MAX, "a cache has at most {VOLUMES_MAX} volumes");
        assert!((1..=REACTORS_MAX).contains(&config.reactors), "there are 1 to {REACTORS_MAX} reactors");
        if pool_bytes < POOL_BYTES_MIN + config.kept_bytes {
            return Err(ServeError::PoolTooSmall { pool_bytes });
        }
        if let Some(export) = config.exports.iter().find(|export| !export.is_allowed()) {
            let (name, min_block_bytes) = (export.name.clone(), export.min_block_bytes);
            return Err(ServeError::Export { name, min_block_bytes });
        }
        let pool = Pool::with_kept(pool_bytes - ENGINE_POOL_BYTES - config.kept_bytes, config.kept_bytes)
            .map_err(|source| ServeError::Pool { pool_bytes, source })?
            .with_lasting(config.lasting.take());
        let owner = SocketOwner { permissions: config.socket_permissions, group: config.socket_group };
        let listeners = config.listen.iter().map(|address| listen(address, owner));
        let listeners = listeners.collect::<Result<Vec<_>, _>>()?;
        let addresses = listeners.iter().map(|listener| listener.address().clone()).collect();
        let wake_events = wake_events(config.reactors)
            .map_err(|source| ServeError::System { step: "make an eventfd", source })?;
        let (sender, messages) = channel();
        let handle = Handle { messages: sender, wake: Arc::clone(&wake_events[0]) };
        Ok((Server { config, listeners, addresses, messages, wake_events, pool }, handle))
    }

    /// Addresses it listens on; port 0 has become a real one.
    #[must_use]
    pub fn addresses(&self) -> &[ListenAddress] {
        &self.addresses
    }

    /// Serves until [`Handle::stop`]; gives back the core as it then is. `begin` makes the core when all else that is
    /// needed is there: threads, rings, and some descriptors for clients. What it changes durably is thus not
    /// changed by a server that cannot start.
    ///
    /// # Errors
    /// Those of `begin`; [`ServeError`], if the system does not give what the reactors stand on, or fails it.
    pub fn run<E: From<ServeError>>(self, begin: impl FnOnce() -> Result<C, E>) -> Result<C, E> {
        let Server { config, listeners, messages, wake_events, pool, .. } = self;
        let mut shared = Kept(OnceLock::new());
        let control = Control::new(messages);
        let cache = config.cache.iter().chain(&config.mirror);
        let files = cache.chain(config.origins.iter().flatten()).filter_map(Device::raw_fd);
        let files: Vec<_> = files.collect();
        let has_let_go = reactor::run_all(&shared.0, config.reactors, &files, listeners, control, || {
            check_spare_descriptors()?;
            let driver = Driver::new(begin()?, pool, config, wake_events.clone());
            Ok::<_, E>(Shared::new(driver, wake_events))
        })?;
        let driver = shared.0.take().ok_or(ServeError::Broken)?.into_driver();
        driver.flights.let_go_of_exports();
        // Otherwise a device hangs.
        Ok(if has_let_go { driver.core } else { keep_memory(driver) })
    }
}

/// The shared state of reactors. If they fail, or panic, its memory is kept.
struct Kept<C>(OnceLock<Shared<C>>);

impl<C> Drop for Kept<C> {
    fn drop(&mut self) {
        if let Some(shared) = self.0.take() {
            keep_memory(shared.into_driver());
        }
    }
}

/// Ends a driver, but for what the kernel and threads may still write to: that must not be given to anybody else.
fn keep_memory<C>(driver: Driver<C>) -> C {
    let Driver { core, pool, flights, .. } = driver;
    #[expect(clippy::mem_forget, reason = "the kernel may still write into these buffers")]
    std::mem::forget((pool, flights));
    core
}

/// Makes sure that clients, and files that are opened for a moment, will find descriptors.
fn check_spare_descriptors() -> Result<(), ServeError> {
    let too_few =
        |_| ServeError::Descriptors { open: std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count) };
    let first = rustix::event::eventfd(0, EventfdFlags::CLOEXEC).map_err(too_few)?;
    let spare = (1..SPARE_DESCRIPTORS).map(|_| first.try_clone()).collect::<io::Result<Vec<_>>>();
    spare.map(drop).map_err(|_| too_few(rustix::io::Errno::MFILE))
}

fn listen(address: &ListenAddress, owner: SocketOwner) -> Result<Listener, ServeError> {
    Listener::bind_patiently(address, owner).map_err(|source| {
        let address = address.clone();
        match source.raw_os_error() {
            Some(libc::EADDRINUSE) => ServeError::AddressInUse { address },
            _ => ServeError::Listen { address, source },
        }
    })
}

impl ExportConfig {
    /// Whether clients understand it.
    pub(crate) fn is_allowed(&self) -> bool {
        let blocks_fit = self.min_block_bytes.is_power_of_two()
            && (SECTOR_BYTES..=65536).contains(&u64::from(self.min_block_bytes));
        blocks_fit && self.name.len() <= NAME_BYTES_MAX
    }

    pub(crate) fn offered(self) -> (VolumeIndex, Export) {
        let ExportConfig { volume, name, size_bytes, min_block_bytes, read_only } = self;
        let description = String::new();
        (volume, Export { name, description, size_bytes, min_block_bytes, read_only })
    }
}
