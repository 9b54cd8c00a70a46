//! The live side: the only room with system calls and `unsafe`.
//!
//! A few threads do the work, each a reactor: it turns with a ring of its own for sockets and devices, hands
//! its clients' requests to the one [`driver::Core`] (the engine, or [`passthrough::Passthrough`]) and
//! carries out the effects. They take turns with the core; what takes long they do beside each other. Other
//! threads talk to them through a [`server::Handle`].
//!
//! A daemon's life, in the order of the modules it needs:
//!
//! 1. [`signals`]: block SIGTERM, SIGINT and SIGUSR1 before any thread is started.
//! 2. [`devices`]: read a name ([`devices::parse`]), open it ([`devices::open`]) and with that lock it.
//! 3. [`blocking`]: recovery, `create` and `check` use a device by waiting for it, before the
//!    reactor runs or beside it.
//! 4. [`server`]: [`server::Server::new`] takes memory and listens, [`server::Server::run`] serves until
//!    [`server::Handle::stop`].
//!
//! Inside, from the client to the disk: [`doors`] (sockets, requests cut into pieces, replies; each with its
//! protocol beside it), `table` and `seats` (what reactors share, and leave for each other), [`driver`]
//! (effects and completions), `flights` (operations at the
//! devices), and below them `operation` with its two backends, `ring` and `threads`. All payload
//! lives in one [`buffers::Pool`].

pub mod blocking;
pub mod buffers;
pub mod clock;
mod desk;
pub mod devices;
pub mod doors;
pub mod driver;
mod flights;
mod latency;
mod operation;
pub mod passthrough;
mod reactor;
mod ring;
mod seats;
pub mod server;
pub mod signals;
mod table;
mod threads;
