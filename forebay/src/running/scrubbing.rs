//! Scrubs: all that is cached is compared with its checksums, when somebody asks for it and now and then.

use super::{Era, Running};
use crate::control::{Damage, DamagedRange, Phase, Progress, Scrubbed};
use crate::events::Event;
use crate::interrupt::{Interrupts, spawn};
use crate::log::event;
use crate::output::Size;
use crate::report::{ScrubReport, now_seconds};
use crate::state::ScrubNote;
use anyhow::{Result, anyhow, bail};
use engine::effect::Errno;
use engine::engine::{Bad, Cursor, Engine};
use engine::status::{ScrubCounts, Status};
use engine::units::{BLOCK_BYTES, SECTOR_BYTES, SECTORS_PER_BLOCK, SectorRange, VolumeIndex};
use live::server::{ControlError, ControlOp};
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Rows of the engine's tables that are looked at in one go, while its clients wait.
const STEPS: u32 = 256;
/// Sectors that one request compares at the most: 128 KiB.
const REQUEST_SECTORS_MAX: u64 = 256;
/// Bytes that a segment's head and summary count as, by the rate.
const ENDS_BYTES: u64 = 64 << 10;
/// Damaged ranges that a result names at the most.
const NAMED_MAX: usize = 1000;
/// Time in which the cache records what was just found lost.
const RECORDED_WITHIN: Duration = Duration::from_millis(300);
/// Bytes that a scrub by itself reads in a second at the least.
const OWN_RATE_MIN: u64 = 4 << 20;
/// A scrub by itself is to take this part of its period at the most.
const OWN_PART: u64 = 4;
/// After a scrub by itself that could not go on, the next one begins so much later.
const TRY_AGAIN_AFTER: Duration = Duration::from_secs(3600);
const DAY_SECONDS: u64 = 24 * 3600;

/// The scrubs of a running cache.
#[derive(Debug, Default)]
pub(super) struct Scrubbing {
    /// Held for as long as somebody takes what scrubs find.
    finds: Mutex<()>,
    /// A scrub by itself is under way.
    is_by_itself: AtomicBool,
    /// Bytes that are left of the scrub that told of itself last; 0 if none is under way.
    left_bytes: AtomicU64,
    /// When a scrub by itself could not go on.
    failed: Mutex<Option<Instant>>,
}

/// Damaged blocks by place, each once: what is lost stands above what is dropped.
type Damaged = BTreeMap<(VolumeIndex, u64), Damage>;

/// A scrub under way.
struct Pass<'a> {
    running: &'a Running,
    era: Arc<Era>,
    at: At,
    done_bytes: u64,
    skipped_blocks: u64,
    counts: ScrubCounts,
    /// Blocks of a mirrored cache that were written again before it began.
    mended_before: u64,
    damaged_segments: u64,
    damaged: Damaged,
    /// When the next read may begin, by the rate.
    next_at: Instant,
    rate_bytes: u64,
}

/// How far a pass is.
#[derive(Clone, Copy)]
enum At {
    /// The blocks from here on are compared next.
    Blocks(Cursor),
    /// The head and the summary of this segment.
    Segment(u32),
    /// All was compared.
    End,
}

/// Blocks of a mirrored cache that were written again so far.
fn mended_blocks(status: &Status) -> u64 {
    status.cache.pair.iter().flat_map(|pair| pair.halves).map(|half| half.mended_blocks).sum()
}

/// The counts of all volumes, and whether the cache works.
fn total(engine: &Engine) -> (ScrubCounts, bool) {
    let mut sum = ScrubCounts::default();
    let status = engine.status();
    for volume in status.volumes {
        add(&mut sum, volume.counters.scrub);
    }
    (sum, !status.cache.latched)
}

fn add(sum: &mut ScrubCounts, more: ScrubCounts) {
    sum.good_blocks += more.good_blocks;
    sum.unknown_blocks += more.unknown_blocks;
    sum.dropped_blocks += more.dropped_blocks;
    sum.lost_blocks += more.lost_blocks;
    sum.unreadable_blocks += more.unreadable_blocks;
}

/// The counts from one moment to a later one; a volume that was taken off meanwhile took its counts along.
fn between(before: ScrubCounts, after: ScrubCounts) -> ScrubCounts {
    ScrubCounts {
        good_blocks: after.good_blocks.saturating_sub(before.good_blocks),
        unknown_blocks: after.unknown_blocks.saturating_sub(before.unknown_blocks),
        dropped_blocks: after.dropped_blocks.saturating_sub(before.dropped_blocks),
        lost_blocks: after.lost_blocks.saturating_sub(before.lost_blocks),
        unreadable_blocks: after.unreadable_blocks.saturating_sub(before.unreadable_blocks),
    }
}

impl Running {
    /// Compares all that is cached with its checksums. What is clean and rotten leaves the cache; what is dirty and rotten is
    /// lost, and named.
    ///
    /// # Errors
    /// If it was interrupted, or the cache fails.
    pub fn scrub(
        &self,
        rate_bytes: u64,
        on_progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
    ) -> Result<Scrubbed> {
        // A scrub by itself waits meanwhile.
        let _finds = self.finds();
        let mut pass = Pass::new(self, rate_bytes)?;
        while pass.step()? {
            if on_progress(pass.progress()?).is_break() {
                let left = Size(pass.progress()?.left_bytes);
                bail!("scrubbing was interrupted with {left} left; run it again");
            }
        }
        pass.end()
    }

    fn finds(&self) -> std::sync::MutexGuard<'_, ()> {
        self.scrubbing.finds.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Days from one scrub by itself to the next.
    fn scrub_days(&self) -> Option<u16> {
        self.record.scrubs().1.unwrap_or(self.watching.scrub_days)
    }

    /// Its scrubs, for a status report.
    pub(super) fn scrub_report(&self, status: &Status) -> ScrubReport {
        let mut counts = ScrubCounts::default();
        status.volumes.iter().for_each(|volume| add(&mut counts, volume.counters.scrub));
        let last = self.record.scrubs().0;
        let left_bytes = self.scrubbing.left_bytes.load(Ordering::SeqCst);
        ScrubReport {
            days: self.scrub_days(),
            left_bytes: (left_bytes > 0).then_some(left_bytes),
            last_ended_seconds: last.map(|note| note.ended_seconds),
            last_read_bytes: last.map(|note| note.read_blocks * BLOCK_BYTES),
            last_damaged_blocks: last.map(|note| note.damaged_blocks),
            good_blocks: counts.good_blocks,
            dropped_blocks: counts.dropped_blocks,
            lost_blocks: counts.lost_blocks,
            unreadable_blocks: counts.unreadable_blocks,
        }
    }

    /// Whether a scrub by itself is to begin now.
    fn is_scrub_due(&self) -> bool {
        let Some(days) = self.scrub_days() else { return false };
        let failed = *self.scrubbing.failed.lock().unwrap_or_else(PoisonError::into_inner);
        if failed.is_some_and(|at| at.elapsed() < TRY_AGAIN_AFTER) {
            return false;
        }
        let last = self.record.scrubs().0.map_or(0, |note| note.ended_seconds);
        now_seconds().saturating_sub(last) >= u64::from(days) * DAY_SECONDS
    }

    /// A scrub by itself, slow; `None` if it is not wanted any more.
    fn scrub_by_itself(&self, is_interrupted: impl Fn() -> bool) -> Result<Option<Scrubbed>> {
        let mut pass = Pass::new(self, OWN_RATE_MIN)?;
        loop {
            let Some(days) = self.scrub_days() else { return Ok(None) };
            // Another one, that somebody asked for, may have come to its end meanwhile.
            if is_interrupted() || !self.is_scrub_due() {
                return Ok(None);
            }
            let all_bytes = pass.done_bytes + pass.progress()?.left_bytes;
            pass.rate_bytes = own_rate(all_bytes, days);
            let is_more = {
                let _finds = self.finds();
                pass.step()?
            };
            if !is_more {
                return pass.end().map(Some);
            }
        }
    }
}

/// Bytes a second at which a scrub by itself reads so many in good time.
fn own_rate(all_bytes: u64, days: u16) -> u64 {
    (all_bytes * OWN_PART / (u64::from(days) * DAY_SECONDS)).max(OWN_RATE_MIN)
}

impl<'a> Pass<'a> {
    fn new(running: &'a Running, rate_bytes: u64) -> Result<Pass<'a>> {
        Ok(Pass {
            running,
            era: running.era(),
            at: At::Blocks(Cursor::default()),
            done_bytes: 0,
            skipped_blocks: 0,
            counts: ScrubCounts::default(),
            mended_before: mended_blocks(&running.picture()?),
            damaged_segments: 0,
            damaged: Damaged::new(),
            next_at: Instant::now(),
            rate_bytes,
        })
    }

    /// Compares some more; false at the end.
    fn step(&mut self) -> Result<bool> {
        if self.era.identity.set_id != self.running.era().identity.set_id {
            bail!("another cache took the place of the one that was scrubbed; run it again");
        }
        match self.at {
            At::Blocks(from) => self.step_of_blocks(from),
            At::Segment(segment) => self.step_of_segments(segment),
            At::End => Ok(false),
        }
    }

    /// Compares the head and the summary of a segment: what they lead to is there, and they may be damaged.
    fn step_of_segments(&mut self, segment: u32) -> Result<bool> {
        let segments = self.running.handle.with_core(|engine| engine.superblock().geometry().segments)?;
        if segment >= segments {
            self.at = At::End;
            return Ok(false);
        }
        let volume = self.running.any_volume()?;
        match self.running.handle.request(volume, ControlOp::ScrubSegment(segment)) {
            Ok(()) => (),
            Err(ControlError::Engine(Errno::IO)) => {
                let (_, works) = self.running.handle.with_core(|engine| total(engine))?;
                if !works {
                    bail!("the cache device failed while it was scrubbed; see forebay status");
                }
                self.damaged_segments += 1;
            }
            Err(error) => return Err(anyhow!(error)),
        }
        self.rest(ENDS_BYTES);
        self.at = At::Segment(segment + 1);
        Ok(true)
    }

    fn step_of_blocks(&mut self, from: Cursor) -> Result<bool> {
        let ((before, _), runs, next) = self.running.handle.with_core(move |engine| {
            let sizes = engine
                .superblock()
                .volumes
                .each_ref()
                .map(|volume| volume.as_ref().map_or(0, |record| record.size_sectors));
            let mut runs: Vec<(VolumeIndex, SectorRange)> = Vec::new();
            let next = engine.visit_cached(from, STEPS, &mut |run| {
                let start = run.first_block * SECTORS_PER_BLOCK;
                let end = (start + u64::from(run.blocks) * SECTORS_PER_BLOCK).min(sizes[run.volume.at()]);
                if start < end {
                    runs.push((run.volume, SectorRange { start, sectors: end - start }));
                }
            });
            // What others left is not ours.
            engine.take_scrubbed();
            (total(engine), runs, next)
        })?;
        let sectors: u64 = runs.iter().map(|(_, range)| range.sectors).sum();
        for (volume, range) in runs {
            self.compare(volume, range)?;
        }
        let ((after, works), found) =
            self.running.handle.with_core(|engine| (total(engine), engine.take_scrubbed()))?;
        if !works {
            bail!("the cache device failed while it was scrubbed; see forebay status");
        }
        add(&mut self.counts, between(before, after));
        for found in found {
            let damage = match found.bad {
                Bad::Dropped(_) => Damage::Dropped,
                Bad::Lost => Damage::Lost,
                Bad::Unreadable(_) => Damage::Unreadable,
            };
            self.damaged.insert((found.volume, found.block), damage);
        }
        self.done_bytes += sectors * SECTOR_BYTES;
        self.at = next.map_or(At::Segment(0), At::Blocks);
        Ok(true)
    }

    fn compare(&mut self, volume: VolumeIndex, range: SectorRange) -> Result<()> {
        let mut start = range.start;
        while start < range.end() {
            let sectors = (range.end() - start).min(REQUEST_SECTORS_MAX);
            let part = SectorRange { start, sectors };
            match self.running.handle.request(volume, ControlOp::Scrub(part)) {
                Ok(()) => (),
                // The volume is leaving, or goes on without its cache.
                Err(ControlError::Engine(
                    Errno::OPNOTSUPP | Errno::NODEV | Errno::SHUTDOWN | Errno::INVAL,
                )) => self.skipped_blocks += sectors.div_ceil(SECTORS_PER_BLOCK),
                // The device fails: the next look tells.
                Err(ControlError::Engine(_)) => return Ok(()),
                Err(error) => return Err(anyhow!(error)),
            }
            self.rest(sectors * SECTOR_BYTES);
            start += sectors;
        }
        Ok(())
    }

    /// Rests as the rate has it.
    fn rest(&mut self, bytes: u64) {
        let micros = bytes.saturating_mul(1_000_000) / self.rate_bytes.max(1);
        self.next_at += Duration::from_micros(micros.min(60_000_000));
        thread::sleep(self.next_at.saturating_duration_since(Instant::now()));
        // Time that the device took beyond what the rate allows is not made up for.
        self.next_at = self.next_at.max(Instant::now());
    }

    fn progress(&self) -> Result<Progress> {
        let cached_bytes: u64 =
            self.running.picture()?.volumes.iter().map(|volume| volume.cached_bytes).sum();
        let left_bytes = cached_bytes.saturating_sub(self.done_bytes);
        self.running.scrubbing.left_bytes.store(left_bytes.max(1), Ordering::SeqCst);
        Ok(Progress {
            volume: self.era.identity.device.clone(),
            phase: Phase::Scrubbing,
            left_bytes,
            waits_for: None,
        })
    }

    /// All was compared: says how it went, and notes it.
    fn end(mut self) -> Result<Scrubbed> {
        if self.counts.lost_blocks > 0 {
            thread::sleep(RECORDED_WITHIN);
        }
        let status = self.running.picture()?;
        let indices: Vec<VolumeIndex> = status.volumes.iter().map(|volume| volume.index).collect();
        let lost = self.running.handle.with_core(move |engine| {
            indices.iter().map(|index| (*index, engine.lost_blocks(*index))).collect::<Vec<_>>()
        })?;
        let mut ranges: Vec<(VolumeIndex, u64, u64, Damage)> = Vec::new();
        for (volume, runs) in lost {
            for (first, blocks) in runs {
                self.damaged
                    .retain(|(of, block), _| *of != volume || !(first..first + blocks).contains(block));
                ranges.push((volume, first, blocks, Damage::Lost));
            }
        }
        for (&(volume, block), &damage) in &self.damaged {
            match ranges.last_mut() {
                Some((of, first, blocks, what))
                    if (*of, *first + *blocks, *what) == (volume, block, damage) =>
                {
                    *blocks += 1;
                }
                _ => ranges.push((volume, block, 1, damage)),
            }
        }
        ranges.sort_by_key(|(volume, first, ..)| (volume.0, *first));
        let lost_blocks = ranges.iter().filter(|range| range.3 == Damage::Lost).map(|range| range.2).sum();
        let named = ranges.into_iter().take(NAMED_MAX).map(|(volume, first, blocks, damage)| DamagedRange {
            volume: self.running.volumes.name(volume),
            offset_bytes: first * BLOCK_BYTES,
            len_bytes: blocks * BLOCK_BYTES,
            damage,
        });
        let scrubbed = Scrubbed {
            good_blocks: self.counts.good_blocks,
            unknown_blocks: self.counts.unknown_blocks + self.skipped_blocks,
            dropped_blocks: self.counts.dropped_blocks,
            lost_blocks,
            unreadable_blocks: self.counts.unreadable_blocks,
            mended_blocks: mended_blocks(&status).saturating_sub(self.mended_before),
            damaged_segments: self.damaged_segments,
            damaged: named.collect(),
        };
        let note = ScrubNote {
            ended_seconds: now_seconds(),
            read_blocks: scrubbed.good_blocks + scrubbed.dropped_blocks + self.counts.lost_blocks,
            // Of a damaged head or summary one block at the least.
            damaged_blocks: scrubbed.dropped_blocks
                + scrubbed.lost_blocks
                + scrubbed.unreadable_blocks
                + scrubbed.damaged_segments,
        };
        self.running.record.change(|record| record.scrubbed = Some(note))?;
        Ok(scrubbed)
    }
}

impl Drop for Pass<'_> {
    fn drop(&mut self) {
        self.running.scrubbing.left_bytes.store(0, Ordering::SeqCst);
    }
}

/// Begins a scrub if one is due, in a thread of its own: to be called once a second.
pub fn scrub_when_due(running: &Arc<Running>, interrupts: &Interrupts) {
    let is_by_itself = &running.scrubbing.is_by_itself;
    if !running.is_scrub_due() || is_by_itself.swap(true, Ordering::SeqCst) {
        return;
    }
    let (scrubbed, watch) = (Arc::clone(running), interrupts.clone());
    let begun = spawn("scrub", move || {
        let running = scrubbed;
        match running.scrub_by_itself(|| watch.is_interrupted()) {
            Ok(Some(scrubbed)) => tell(&scrubbed),
            Ok(None) => (),
            // The end of the daemon is no news.
            Err(_) if watch.is_interrupted() => (),
            Err(error) => {
                *running.scrubbing.failed.lock().unwrap_or_else(PoisonError::into_inner) =
                    Some(Instant::now());
                event(Event::NotScrubbed, format_args!("the scrub ended early: {error:#}"));
            }
        }
        running.scrubbing.is_by_itself.store(false, Ordering::SeqCst);
    });
    if let Err(error) = begun {
        is_by_itself.store(false, Ordering::SeqCst);
        event(Event::NotScrubbed, format_args!("the scrub did not begin: {error:#}"));
    }
}

fn tell(scrubbed: &Scrubbed) {
    let what = if scrubbed.has_damage() { Event::ScrubFound } else { Event::Scrubbed };
    event(what, format_args!("the cache was scrubbed: {scrubbed}"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scrub_by_itself_is_done_in_a_quarter_of_its_period() {
        assert_eq!(own_rate(1 << 30, 30), OWN_RATE_MIN);
        let (bytes, days) = (16 << 40, 2);
        let seconds = bytes / own_rate(bytes, days);
        assert!((DAY_SECONDS * 2 / 4).abs_diff(seconds) < 60, "{seconds}");
    }

    #[test]
    fn counts_of_a_volume_that_left_are_none() {
        let before = ScrubCounts { good_blocks: 7, lost_blocks: 1, ..ScrubCounts::default() };
        let after = ScrubCounts { good_blocks: 9, ..ScrubCounts::default() };
        assert_eq!(between(before, after), ScrubCounts { good_blocks: 2, ..ScrubCounts::default() });
    }
}
