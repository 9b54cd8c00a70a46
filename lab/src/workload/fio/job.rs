//! A job and its options.

use engine::units::{Nanos, SECTOR_BYTES};

/// The largest file: as large as a volume.
const FILE_BYTES_MAX: u64 = 128 << 40;

/// The distribution of random blocks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Distribution {
    /// All alike.
    Uniform,
    /// Some more than others.
    Zipf {
        /// The exponent: positive, and not 1.
        theta: f64,
    },
}

/// A job: one thread of fio. All sizes are in bytes.
#[derive(Clone, Debug, PartialEq)]
pub struct Job {
    /// Its section's name.
    pub name: String,
    /// Its number among all threads of the run; the first is 1. It is part of each seed.
    pub thread: u32,
    /// The file it works on.
    pub file: String,
    /// Whether it waits for all jobs before it to end.
    pub is_phase: bool,
    /// Whether blocks are chosen at random.
    pub is_random: bool,
    /// Whether it reads.
    pub reads: bool,
    /// Whether it writes.
    pub writes: bool,
    /// Share of reads in a job that reads and writes, in percent.
    pub read_percent: u32,
    /// The size of each request.
    pub block_bytes: u64,
    /// The beginning of its part of the file.
    pub offset_bytes: u64,
    /// Bytes of one pass, and, unless `file_bytes` says otherwise, of its part of the file.
    pub size_bytes: u64,
    /// The size of the file; `None`: offset and size.
    pub file_bytes: Option<u64>,
    /// Bytes in all; `None`: the size. Longer than the size: again from the beginning.
    pub io_bytes: Option<u64>,
    /// Passes.
    pub loops: u64,
    /// Requests under way.
    pub depth: u32,
    /// `fsync` and `fdatasync`: when so many writes are answered comes a flush, and nothing else before its answer.
    /// `None`: none.
    pub writes_per_flush: Option<u64>,
    /// The distribution of random blocks.
    pub distribution: Distribution,
    /// Whether a block may come again before all have come.
    pub may_repeat: bool,
    /// `randrepeat`: blocks are seeded by the thread's number alone, and each pass is the same. Without it, the
    /// seed below counts.
    pub is_repeatable: bool,
    /// `randseed`. If it is given, passes are not the same even with `randrepeat`, and the seed counts for all but
    /// uniform blocks.
    pub seed: Option<u64>,
    /// After this long it ends.
    pub runtime_ns: Option<u64>,
    /// It does not end before.
    pub is_time_based: bool,
}

/// The reason why a job cannot be run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum JobError {
    /// There is no size.
    #[error("job {0} has no size")]
    NoSize(String),
    /// A size is no multiple of sectors, or nothing.
    #[error("job {0}: blocks and offsets are whole sectors of 512 bytes, and a block is not empty")]
    Sectors(String),
    /// Not one block fits.
    #[error("job {0}: not one block fits into its part of the file")]
    TooSmall(String),
    /// Its file is larger than any.
    #[error("job {0}: its file would be larger than 128 TiB")]
    TooLarge(String),
    /// It would never end.
    #[error("job {0} is time-based and has no runtime")]
    NoEnd(String),
    /// Zipf's exponent.
    #[error("job {0}: theta is positive, and not 1")]
    Theta(String),
    /// It would be another one each time.
    #[error("job {0} has randrepeat=0 and no randseed: it would be another one each time")]
    NoSeed(String),
    /// Behaviour of fio's generator between the passes that is not known here.
    #[error(
        "job {0} has a randseed, a random map and several passes: fio's order in the later ones is not known"
    )]
    SeededPasses(String),
    /// There are more blocks than fio's 32-bit generator can tell apart.
    #[error("job {0} has more than 2^32 blocks, for which fio changes its generator")]
    TooManyBlocks(String),
}

impl Job {
    /// A job with fio's defaults.
    #[must_use]
    pub fn new(name: &str) -> Job {
        Job {
            name: name.to_owned(),
            thread: 1,
            file: format!("{name}.0.0"),
            is_phase: false,
            is_random: false,
            reads: true,
            writes: false,
            read_percent: 50,
            block_bytes: 4096,
            offset_bytes: 0,
            size_bytes: 0,
            file_bytes: None,
            io_bytes: None,
            loops: 1,
            depth: 1,
            writes_per_flush: None,
            distribution: Distribution::Uniform,
            may_repeat: false,
            is_repeatable: true,
            seed: None,
            runtime_ns: None,
            is_time_based: false,
        }
    }

    /// The part of the file it works on: `offset_bytes` and so many more.
    #[must_use]
    pub fn part_bytes(&self) -> u64 {
        self.file_bytes.map_or(self.size_bytes, |bytes| bytes.saturating_sub(self.offset_bytes))
    }

    /// The end of that part, the size of its file at the least.
    #[must_use]
    pub fn end_bytes(&self) -> u64 {
        self.offset_bytes.saturating_add(self.part_bytes())
    }

    /// The number of requests that it may come to; `None` if only its runtime ends it.
    #[must_use]
    pub fn requests_max(&self) -> Option<u64> {
        let all_bytes = self.io_bytes.unwrap_or(self.pass_bytes()).saturating_mul(self.loops);
        (!self.is_time_based).then(|| all_bytes / self.block_bytes.max(1))
    }

    /// Bytes of one pass.
    pub(super) fn pass_bytes(&self) -> u64 {
        match self.size_bytes {
            0 => self.part_bytes(),
            size_bytes => size_bytes.min(self.part_bytes()),
        }
    }

    /// Whether the job can be run.
    ///
    /// # Errors
    /// [`JobError`] says why not.
    pub fn check(&self) -> Result<(), JobError> {
        let name = || self.name.clone();
        let is_sectors = |bytes: u64| bytes.is_multiple_of(SECTOR_BYTES);
        if self.size_bytes == 0 && self.file_bytes.is_none() {
            return Err(JobError::NoSize(name()));
        }
        if self.block_bytes == 0 || !is_sectors(self.block_bytes) || !is_sectors(self.offset_bytes) {
            return Err(JobError::Sectors(name()));
        }
        if self.end_bytes() > FILE_BYTES_MAX || self.block_bytes > FILE_BYTES_MAX {
            return Err(JobError::TooLarge(name()));
        }
        if self.part_bytes() < self.block_bytes {
            return Err(JobError::TooSmall(name()));
        }
        if self.part_bytes() / self.block_bytes > u64::from(u32::MAX) {
            return Err(JobError::TooManyBlocks(name()));
        }
        if !self.is_repeatable && self.seed.is_none() {
            return Err(JobError::NoSeed(name()));
        }
        let has_map = self.is_random && !self.may_repeat && self.distribution == Distribution::Uniform;
        let has_passes = self.loops > 1 || self.io_bytes.is_some_and(|bytes| bytes > self.pass_bytes());
        if has_map && has_passes && self.seed.is_some() {
            return Err(JobError::SeededPasses(name()));
        }
        if self.is_time_based && self.runtime_ns.is_none() {
            return Err(JobError::NoEnd(name()));
        }
        match self.distribution {
            Distribution::Zipf { theta } if !(theta > 0.0 && theta != 1.0 && theta.is_finite()) => {
                Err(JobError::Theta(name()))
            }
            _ => Ok(()),
        }
    }

    /// The runtime in seconds.
    pub(super) fn set_runtime_s(&mut self, seconds: u64) {
        self.runtime_ns = (seconds > 0).then(|| seconds.saturating_mul(Nanos::SECOND));
    }
}
