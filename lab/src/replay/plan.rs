//! A replay as it is asked for, and why it may have no outcome.

use crate::long::Trouble;
use crate::trace::{LayoutError, TraceError};
use crate::workload::fio::JobError;
use engine::composition::Composition;
use engine::effect::WriteMode;
use models::Parameters;

/// The size of the smallest cache that can be formatted.
pub const CACHE_BYTES_MIN: u64 = 32 << 20;

/// A cache of so many percent of what a trace touches, in whole MiB, but no smaller than a cache can be.
#[must_use]
pub fn share_of_footprint(footprint_bytes: u64, percent: u64) -> u64 {
    (footprint_bytes / 100 * percent).next_multiple_of(1 << 20).max(CACHE_BYTES_MIN)
}

/// Times at which requests come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// By the times of the trace. One that is earlier than one before it comes with that one.
    Timed,
    /// A new one as soon as fewer than so many are under way.
    Depth(u32),
}

/// Cache and origin of a replay.
#[derive(Clone, Copy, Debug)]
pub struct Plan<'a> {
    /// Kind of cache.
    pub composition: &'a Composition,
    /// The cache device.
    pub cache: &'a Parameters,
    /// Its size.
    pub cache_bytes: u64,
    /// The origin; it is as large as the trace needs.
    pub origin: &'a Parameters,
    /// How writes are treated.
    pub mode: WriteMode,
}

/// Why there is no outcome.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReplayError {
    /// The trace is malformed.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// The trace is no load for one origin.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// The world cannot be made, or the engine has a defect.
    #[error(transparent)]
    Run(#[from] Trouble),
    /// A job cannot be carried out.
    #[error(transparent)]
    Job(#[from] JobError),
    /// The files of jobs are too large together.
    #[error("the jobs' files need an origin of more than 128 TiB")]
    LargeFiles,
    /// There is nothing to go by.
    #[error("the trace has no times; replay it with a depth")]
    NoTimes,
    /// Some time in it is wrong.
    #[error("the trace's times are more than a hundred years apart; replay it with a depth")]
    TooLong,
    /// The trace was another one when it was surveyed.
    #[error("the trace changed while it was read")]
    Changed,
}
