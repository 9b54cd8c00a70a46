//! The live side: the only room with system calls and `unsafe`.
//!
//! A few threads do the work, each a reactor: it turns with a ring of its own for sockets and devices, hands
//! its clients' requests to the one [`reactor::Core`] (the engine, or [`passthrough::Passthrough`]) and
//! carries out the effects. They take turns with the core; what takes long they do beside each other. Other
//! threads talk to them through a [`server::Handle`].
//!
//! A daemon's life, in the order of the modules it needs:
//!
//! 1. [`signals`]: block SIGTERM, SIGINT and SIGUSR1 before any thread is started.
//! 2. [`devices`]: read a name ([`devices::parse`]), open it ([`devices::open`]) and with that lock it.
//! 3. [`devices::BlockingDevice`]: recovery, `create` and `check` use a device by waiting for it, before the
//!    reactors run or beside them.
//! 4. [`server`]: [`server::Server::new`] takes memory and listens, [`server::Server::run`] starts the reactors, has
//!    the core made (which begins the session of a cache), and serves until [`server::Handle::stop`].
//!
//! Rooms, from the client to the disk: [`doors`] (what clients connect to, each with its protocol in a folder of
//! its own), [`reactor`] (the loop, the state that all loops share, wake-ups, io_uring or threads), and
//! [`devices`] (what a name opens, operations under way, models). [`kernel`] has the kernel make a block device that a
//! door serves, [`limits`] hold back what a volume's clients ask for beyond their share. All payload lives in one [`buffers::Pool`].
//!
//! [`trial`] finds out what a device is good for before it is made a cache.
//!
//! `unsafe` is denied but where memory is shared with the kernel: the backends of a reactor, operations at devices,
//! connections of doors, the pool; and for signals. Each use states why it is sound.

#![deny(unsafe_code)]

#[expect(unsafe_code, reason = "one mapping, shared with the kernel")]
pub mod buffers;
pub mod clock;
pub mod devices;
pub mod doors;
pub mod kernel;
pub mod limits;
pub mod nbd;
pub mod passthrough;
pub mod patience;
pub mod reactor;
pub mod server;
#[expect(unsafe_code, reason = "signal masks, the allocator's settings, and an end without destructors")]
pub mod signals;
pub mod trial;
