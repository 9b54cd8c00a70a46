//! The simulator: the engine in virtual time, on devices that lie and die as real ones do, judged
//! by an oracle, from one seed.
//!
//! | module | subject |
//! | --- | --- |
//! | [`random`], [`clock`] | the one generator; virtual time, the order of events, their hash |
//! | [`content`] | what a sector holds: a version tag or bytes |
//! | [`memory`] | the driver's buffers |
//! | [`disk`] | a device: volatile cache, power cuts, faults |
//! | [`world`] | the engine with its devices and clients; what a scenario is written with |
//! | [`oracle`] | what may be read, and what else must hold |
//! | [`exhaustive`] | small worlds: a cut after every event, every subset of what was unflushed |
//! | [`swarm`] | runs drawn from seeds, their report, their shrinking |
//! | [`long`] | long runs: terabytes, tags only, devices from `models`, no cuts |
//! | [`trace`], [`replay`] | readers of block traces; a trace through the engine on modelled disks |
//! | [`duel`] | all profiles over traces, and whether one of them is the best |
//! | [`curve`] | how much cache, and which policy, a trace is worth |
//! | [`study`], [`league`], [`report`] | published measurements run again; who is best; pages about it |
//! | [`workload`] | what published measurements asked for: fio's jobs, iozone's tests |
//! | [`native`] | modelled disks without a cache, beside the native figures of the studies |
//! | [`versus`] | our daemon beside the caches of the kernel: a page about what was measured |
#![forbid(unsafe_code)]

pub mod clock;
pub mod content;
pub mod curve;
pub mod disk;
mod drawing;
pub mod duel;
pub mod exhaustive;
pub mod league;
pub mod long;
pub mod memory;
pub mod native;
pub mod oracle;
pub mod random;
pub mod replay;
pub mod report;
pub mod study;
pub mod swarm;
pub mod trace;
pub mod versus;
pub mod violation;
pub mod workload;
pub mod world;

pub use drawing::DrawError;
