//! Which block comes next.

use super::free_map::FreeMap;
use super::job::{Distribution, Job, JobError};
use super::tausworthe::Tausworthe;
use super::zipf::{Zipf, hash_of_name};

/// By which thread numbers are multiplied to seed the blocks of repeatable jobs.
const REPEATABLE_SEED: u64 = 0xb189_9bed;
/// The seed where none is given.
const SEED_DEFAULT: u64 = 0x89;
/// By which the seed is multiplied again and again, for one purpose after the other.
const SEED_STEP: u64 = 0x9e37_0001;
/// The purpose that tells reads from writes.
const MIX_PURPOSE: u64 = 4;
/// The purpose that chooses blocks.
const BLOCK_PURPOSE: u64 = 6;

/// One request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ask {
    /// Whether it writes.
    pub is_write: bool,
    /// The place in the file.
    pub offset_bytes: u64,
}

/// The requests of a job, in fio's order. Time does not come into it: a time-based job has no end here.
#[derive(Clone, Debug)]
pub struct Sequence {
    job: Job,
    /// Blocks of the part of the file it works on.
    blocks: u64,
    offsets: Tausworthe,
    mix: Tausworthe,
    zipf: Option<Zipf>,
    /// Blocks that were not asked for in this pass, if none may repeat.
    free: Option<FreeMap>,
    /// The next place of sequential reads and writes, in the part.
    next_bytes: [u64; 2],
    /// The direction of the last request, and the number of such requests before the next draw.
    is_write: bool,
    draw_at: u64,
    asked: [u64; 2],
    asked_bytes: u64,
    pass_asked_bytes: u64,
    loops_left: u64,
    is_over: bool,
}

impl Sequence {
    /// The sequence of a job from its beginning.
    ///
    /// # Errors
    /// [`JobError`]: what [`Job::check`] says.
    pub fn new(job: &Job) -> Result<Sequence, JobError> {
        job.check()?;
        let blocks = job.part_bytes() / job.block_bytes;
        let zipf = match job.distribution {
            Distribution::Zipf { theta } if job.is_random => {
                let seed = match is_each_pass_the_same(job) {
                    true => hash_of_name(&job.file).wrapping_mul(job.thread),
                    false => block_seed(job) as u32,
                };
                Some(Zipf::new(job.part_bytes().div_ceil(job.block_bytes), theta, seed))
            }
            _ => None,
        };
        let has_map = job.is_random && !job.may_repeat && zipf.is_none();
        let mut sequence = Sequence {
            blocks,
            offsets: Tausworthe::new(0),
            mix: Tausworthe::new(0),
            zipf,
            free: has_map.then(|| FreeMap::new(blocks)),
            next_bytes: [0; 2],
            is_write: false,
            draw_at: 0,
            asked: [0; 2],
            asked_bytes: 0,
            pass_asked_bytes: 0,
            loops_left: job.loops.saturating_sub(1),
            is_over: false,
            job: job.clone(),
        };
        sequence.seed();
        Ok(sequence)
    }

    /// The job.
    #[must_use]
    pub fn job(&self) -> &Job {
        &self.job
    }

    fn seed(&mut self) {
        self.offsets = Tausworthe::new(block_seed(&self.job));
        self.mix = Tausworthe::new(seed(&self.job, MIX_PURPOSE));
    }

    /// Bytes of one pass.
    fn pass_bytes(&self) -> u64 {
        let pass_bytes = self.job.pass_bytes();
        let writes_anywhere = self.job.writes && self.job.is_random && self.free.is_none();
        if writes_anywhere { pass_bytes.max(self.job.io_bytes.unwrap_or(0)) } else { pass_bytes }
    }

    /// Bytes of all passes.
    fn limit_bytes(&self) -> u64 {
        self.job.io_bytes.unwrap_or(self.job.pass_bytes())
    }

    /// Begins another pass, if there is one.
    fn next_pass(&mut self) -> bool {
        let goes_on = if self.job.is_time_based {
            true
        } else if self.loops_left > 0 {
            self.loops_left -= 1;
            true
        } else {
            let left_bytes = self.limit_bytes().saturating_sub(self.asked_bytes);
            left_bytes >= self.job.block_bytes && self.job.io_bytes.is_some()
        };
        if goes_on {
            self.pass_asked_bytes = 0;
            self.draw_at = 0;
            self.start_over();
            if is_each_pass_the_same(&self.job) {
                self.seed();
            }
        }
        goes_on
    }

    /// All blocks may be asked for again, from the first one.
    fn start_over(&mut self) {
        self.next_bytes = [0; 2];
        if let Some(free) = &mut self.free {
            free.clear();
        }
    }

    /// Draws the direction of the next request.
    fn draw_direction(&mut self) {
        if !(self.job.reads && self.job.writes) {
            self.is_write = self.job.writes;
            return;
        }
        let asked = self.asked[usize::from(self.is_write)];
        if asked >= self.draw_at {
            let is_write = self.mix.below(100) + 1 > u64::from(self.job.read_percent);
            if is_write != self.is_write {
                let read_percent = u64::from(self.job.read_percent);
                let other_percent = if self.is_write { read_percent } else { 100 - read_percent };
                self.draw_at = asked * other_percent / 100;
            }
            self.is_write = is_write;
        }
    }

    /// The next block's place in the part; `None` if there is none.
    fn draw_offset(&mut self) -> Option<u64> {
        if !self.job.is_random {
            let next_bytes = self.next_bytes[usize::from(self.is_write)];
            if self.job.is_time_based && next_bytes >= self.job.part_bytes() {
                return Some(0);
            }
            return Some(next_bytes);
        }
        self.draw_block().or_else(|| {
            self.job.is_time_based.then(|| self.start_over())?;
            self.draw_block()
        })
    }

    fn draw_block(&mut self) -> Option<u64> {
        let block = match &mut self.zipf {
            Some(zipf) => zipf.next(),
            None => self.offsets.below(self.blocks),
        };
        let block = match &self.free {
            Some(free) if !free.is_free(block) => free.next_free(block)?,
            _ => block,
        };
        Some(block * self.job.block_bytes)
    }

    /// The next request of this pass.
    fn ask(&mut self) -> Option<Ask> {
        let is_asked_for = |bytes: u64, limit_bytes: u64| bytes >= limit_bytes && !self.job.is_time_based;
        let total_bytes = self.limit_bytes().saturating_mul(self.job.loops.max(1));
        if is_asked_for(self.pass_asked_bytes, self.pass_bytes())
            || is_asked_for(self.asked_bytes, total_bytes)
        {
            return None;
        }
        self.draw_direction();
        let Job { block_bytes, offset_bytes, .. } = self.job;
        let at_bytes = self.draw_offset()?;
        if at_bytes + block_bytes > self.job.part_bytes() {
            return None;
        }
        if let Some(free) = &mut self.free {
            free.take(at_bytes / block_bytes);
        }
        let direction = usize::from(self.is_write);
        self.next_bytes[direction] = at_bytes + block_bytes;
        self.asked[direction] += 1;
        self.asked_bytes += block_bytes;
        self.pass_asked_bytes += block_bytes;
        Some(Ask { is_write: self.is_write, offset_bytes: offset_bytes + at_bytes })
    }
}

impl Iterator for Sequence {
    type Item = Ask;

    fn next(&mut self) -> Option<Ask> {
        while !self.is_over {
            if let Some(ask) = self.ask() {
                return Some(ask);
            }
            let was_idle = self.pass_asked_bytes == 0;
            self.is_over = was_idle || !self.next_pass();
        }
        None
    }
}

/// Whether generators begin anew with each pass.
fn is_each_pass_the_same(job: &Job) -> bool {
    job.is_repeatable && job.seed.is_none()
}

/// The seed of a job's blocks. With `randrepeat`, a seed that is given does not count here, but for zipf it
/// takes the place of the file's name by this one.
fn block_seed(job: &Job) -> u64 {
    match job.is_repeatable {
        true => REPEATABLE_SEED * u64::from(job.thread),
        false => seed(job, BLOCK_PURPOSE),
    }
}

/// The seed of a job for a purpose.
fn seed(job: &Job, purpose: u64) -> u64 {
    let first = job.seed.unwrap_or(SEED_DEFAULT);
    let steps = (0..4 + purpose).fold(first, |seed, _| seed.wrapping_mul(SEED_STEP));
    steps.wrapping_mul(u64::from(job.thread)).wrapping_add(purpose)
}
