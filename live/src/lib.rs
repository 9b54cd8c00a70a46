//! The live side: the only room with system calls and `unsafe`.
//!
//! One thread runs everything: the reactor turns with one ring for sockets and devices, hands
//! client requests to a [`driver::Core`] (the engine, or [`passthrough::Passthrough`]) and carries
//! out its effects. Other threads talk to it through a [`server::Handle`].
//!
//! What the command line stands on, in the order of a daemon's life:
//!
//! ```ignore
//! // signals.rs: call first, before any thread is started.
//! pub struct Signals;                       // SIGTERM, SIGINT, SIGUSR1 blocked, read by wait()
//! impl Signals {
//!     pub fn install() -> io::Result<Signals>;
//!     pub fn wait(&self) -> Signal;         // blocks; any thread
//! }
//! pub enum Signal { Terminate, Interrupt, LoseUnflushed }
//! pub fn exit_now(status: i32) -> !;        // _exit: no destructors, nothing flushed
//!
//! // devices/
//! pub fn parse(spec: &str) -> Result<DeviceSpec, DeviceSpecError>;
//! pub fn parse_size(text: &str) -> Result<u64, SizeError>;           // "8G", "64KiB", "512"
//! pub enum DeviceSpec { File{path}, Memory{size_bytes}, Model{..} }  // Clone, Display: canonical text
//! impl DeviceSpec {
//!     pub fn canonical(&self) -> String;    // stable name of the device: absolute path, or the URI
//!     pub fn path(&self) -> Option<&Path>;  // the file or block device under it, if there is one
//! }
//! pub enum Access {
//!     ReadOnly,            // reading, no lock: to look at something that may be in use
//!     ReadOnlyExclusive,   // reading, locked: nobody else may use it meanwhile
//!     ReadWrite,           // reading and writing, no lock
//!     Exclusive,           // reading and writing, locked (flock; O_EXCL on block devices)
//! }
//! pub fn open(spec: &DeviceSpec, access: Access) -> Result<Device, DeviceError>;
//! #[non_exhaustive]
//! pub enum DeviceError { Missing{path}, Locked{path}, Busy{path} /* mounted or claimed */,
//!     NotADevice{path}, Os{path, step, errno}, TooSmall{..}, Unsupported{scheme}, .. }
//! #[derive(Clone)] pub struct Device;       // clones share the open file
//! impl Device {
//!     pub fn size_bytes(&self) -> u64;
//!     pub fn sector_bytes(&self) -> u32;    // the smallest aligned transfer: 512..4096
//!     pub fn identity(&self) -> &str;       // "" if it has none (memory)
//!     pub fn is_modelled(&self) -> bool;
//!     pub fn is_block_device(&self) -> bool;
//!     pub fn is_direct(&self) -> bool;      // false: the page cache is in between (say so once)
//!     pub fn supports_discard(&self) -> bool;
//!     pub fn spec(&self) -> &DeviceSpec;
//!     pub fn lose_unflushed(&self);         // modelled only: a power cut; the device is dead afterwards
//!     pub fn same_as(&self, other: &Device) -> bool;  // one file under both
//! }
//!
//! // blocking.rs: before the reactor runs, and beside it.
//! pub struct BlockingDevice;                // implements engine::image::Image
//! impl BlockingDevice {
//!     pub fn new(device: &Device) -> BlockingDevice;
//!     pub fn read_at(&mut self, offset_bytes: u64, bytes: &mut [u8]) -> Result<(), Errno>;  // any alignment
//!     pub fn write_at(&mut self, offset_bytes: u64, bytes: &[u8]) -> Result<(), Errno>;     // sector aligned
//!     pub fn flush(&mut self) -> Result<(), Errno>;
//! }
//!
//! // server.rs
//! pub struct Config {
//!     pub pool_bytes: u64,                         // server::POOL_BYTES_DEFAULT; at least POOL_BYTES_MIN
//!     pub cache: Option<Device>,
//!     pub origins: Vec<Option<Device>>,            // by VolumeIndex
//!     pub exports: Vec<ExportConfig>,              // may be empty: no doors
//!     pub listen: Vec<ListenAddress>,              // may be empty
//!     pub abandon: Box<dyn FnMut(VolumeIndex) -> io::Result<()> + Send>,   // IoOp::Abandon, durable
//!     pub device_timeout: Duration,                // server::DEVICE_TIMEOUT_DEFAULT
//!     pub notice: Box<dyn FnMut(ServerNotice) + Send>,
//! }
//! pub struct ExportConfig { pub volume: VolumeIndex, pub name: String, pub size_bytes: u64,
//!                           pub min_block_bytes: u32, pub read_only: bool }
//! pub enum ListenAddress { Unix(PathBuf), Tcp(SocketAddr) }    // FromStr: "unix:PATH" | "HOST:PORT"
//! pub enum ServerNotice { Engine(engine::effect::Notice), DeviceGone{target, errno}, NoIoUring{errno},
//!                         .. }                     // Display: one line
//! impl<C: Core + 'static> Server<C> {
//!     pub fn new(config: Config, core: C) -> Result<(Server<C>, Handle<C>), ServeError>;  // doors listen
//!     pub fn addresses(&self) -> &[ListenAddress]; // as bound (port 0 resolved)
//!     pub fn run(self) -> Result<C, ServeError>;   // until Handle::stop
//! }
//! impl<C: Core + 'static> Handle<C> {              // Clone + Send + Sync; every call blocks for its answer
//!     pub fn request(&self, volume: VolumeIndex, op: ControlOp) -> Result<(), ControlError>;
//!     pub fn start(&self, volume: VolumeIndex, op: ControlOp) -> Result<Pending, ControlError>;
//!     pub fn with_core<T: Send + 'static>(&self, f: impl FnOnce(&mut C) -> T + Send + 'static)
//!         -> Result<T, ControlError>;              // runs in the loop: be quick
//!     pub fn read(&self, volume: VolumeIndex, offset_bytes: u64, len_bytes: u32)
//!         -> Result<Vec<u8>, ControlError>;        // through the core, like a client; sector aligned
//!     pub fn latencies(&self, volume: VolumeIndex) -> Result<Latencies, ControlError>;
//!     pub fn resize_export(&self, volume: VolumeIndex, size_bytes: u64) -> Result<(), ControlError>;
//!     pub fn close_export(&self, volume: VolumeIndex) -> Result<(), ControlError>;
//!     pub fn close_doors(&self) -> Result<(), ControlError>;   // no new connections, old ones closed
//!     pub fn stop(&self) -> Result<(), ControlError>;  // doors, then RequestOp::Stop; returns when done
//! }
//! pub enum ControlOp { SetMode(WriteMode), SetSize{sectors: u64}, Flush, Drain, CancelDrain, Detach, GiveUpLost }
//! impl Pending { pub fn wait(self) -> Result<(), ControlError>;
//!                pub fn wait_for(&self, Duration) -> Option<Result<(), ControlError>>; }
//! pub enum ControlError { Engine(Errno), Stopped }
//! pub struct Latencies { pub read: Latency, pub write: Latency, pub flush: Latency }
//! pub struct Latency { pub count: u64, pub p50_ns: u64, pub p99_ns: u64, pub p999_ns: u64, pub max_ns: u64 }
//!
//! // passthrough.rs: every volume is its origin, nothing is cached.
//! impl Passthrough { pub fn new() -> Passthrough; }   // implements Core
//! ```
//!
//! `ControlOp::Detach` and `Handle::close_export` close the connections of that export; a changed size
//! ([`server::Handle::resize_export`], and `ControlOp::SetSize` does it by itself) closes them too, so
//! that clients ask again.

pub mod blocking;
pub mod buffers;
pub mod clock;
pub mod devices;
mod doors;
pub mod driver;
mod flights;
mod latency;
mod operation;
pub mod passthrough;
mod reactor;
mod ring;
pub mod server;
pub mod signals;
mod threads;
pub mod wire;
