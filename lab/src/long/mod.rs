//! Long runs: terabyte devices and days of I/O in virtual time, without power cuts.
//!
//! A [`LongRun`] drives the same engine as the crash runs, through the same five calls, but for speed and
//! size: what can be left out where nothing is cut and nothing fails is left out.
//!
//! * A payload block is one tag of eight bytes, or nothing at all ([`Contents`]). A disk keeps tags only
//!   of blocks that were written; what an origin holds elsewhere is a function of the block's number.
//! * The engine's metadata are real bytes in its buffers, but of what it writes only the summaries of
//!   segments are kept, packed: reclaim reads them back. Headers, heads and superblocks are dropped, for
//!   nothing reads them but recovery.
//! * Disks say when an operation is done: by constant latencies, or by a model ([`Disk`]).
//! * A [`Workload`] says which request comes when. [`Load`] is a simple one.
//! * A disk of a volume has whole blocks: the engine's care for half a last block is for crash runs.
//!
//! With [`Contents::Tags`] every read of whole blocks that no change overlapped in time is compared with what
//! was written last.
//!
//! A [`LongRun`] does not recover, but for the measurement of recovery ([`recovery_cost`]): there a disk keeps
//! all metadata, packed, and its payload reads as zeroes.

mod bare;
pub mod bench;
mod buffers;
mod clients;
mod disk;
mod drive;
mod ideal;
mod kept_metadata;
mod ledger;
mod load;
pub mod order_cost;
mod overhead;
mod packed;
mod plug;
mod recipe;
pub mod recovery_cost;
mod run;
mod scheduler;
mod sparse;
mod statistics;
mod tag;
mod workload;
mod zipf;

pub use bare::Bare;
pub use disk::{Disk, Latencies};
pub use drive::{Trouble, Until};
pub use ideal::Ideal;
pub use ledger::Mismatch;
pub use load::{Load, LoadOptions, Pattern};
pub use overhead::{Overhead, OwnTime};
pub use run::{Contents, LongRun, Setup, VolumeSetup};
pub use statistics::{Answers, Statistics, Traffic};
pub use workload::{Action, Answer, Demand, Next, Workload};
pub use zipf::Zipf;
