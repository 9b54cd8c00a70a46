//! Warming: the cache is filled with what will be read, and what is hot is written down now and then.

use super::Running;
use crate::control::{Phase, Progress, Warmed};
use crate::events::Event;
use crate::log::event;
use crate::output::Size;
use crate::startup::Served;
use crate::warm_list::{self, KEPT_BYTES_MAX, RUNS_MAX};
use anyhow::{Context, Result, anyhow, bail};
use engine::effect::{Errno, WriteMode};
use engine::engine::{CachedRun, Cursor};
use engine::format::{ListedExtent, ListedVolume, WarmList};
use engine::units::{BLOCK_BYTES, VolumeIndex};
use engine::warmth::Warmth;
use live::server::{ControlError, ControlOp};
use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Rows of the engine's tables that are looked at in one go, while its clients wait.
const STEPS: u32 = 256;
/// Blocks that one request brings at the most: 128 KiB.
const REQUEST_BLOCKS_MAX: u64 = 32;
/// Blocks that are looked at, and then read, in one go: 1 MiB.
const BATCH_BLOCKS: u64 = 256;
/// Requests under way at the same time.
const READERS: usize = 4;
/// The longest rest that clients' reads of the origin are good for.
const REST_MAX: Duration = Duration::from_millis(500);
/// Time in which what was read is in the index, as a rule.
const ENTERS_WITHIN: Duration = Duration::from_millis(300);
/// Longest wait for what a cache device takes long to write.
const ENTERS_WITHIN_MAX: Duration = Duration::from_secs(60);
/// Pause of a request that finds too much on its way, and how often it is tried.
const PAUSE: Duration = Duration::from_millis(5);
const TRIES_MAX: u32 = 400;

/// Where a running cache has its warm list, and how fast it is filled at the start.
#[derive(Clone, Debug, Default)]
pub struct ListKeeping {
    /// The file; none if there is no list.
    pub file: Option<PathBuf>,
    /// Bytes a second for a cache that was blank; none if it is not filled.
    pub rate_bytes: Option<u64>,
}

/// A listed extent with the volume that it is of now.
type Wanted = (VolumeIndex, u64, u64);

/// A warm-up under way.
struct WarmUp<'a> {
    running: &'a Running,
    rate_bytes: u64,
    warmed: Warmed,
    /// When the next read may begin, by the rate.
    next_at: Instant,
    /// Blocks that were read and may not be in the index yet.
    recent: VecDeque<(Instant, Wanted)>,
}

impl Running {
    /// Fills the cache with what a list names: of one volume, or of all that it names. An absent `list` is the one that is
    /// kept of this cache.
    ///
    /// # Errors
    /// If the list is not of these volumes, or it was interrupted.
    pub fn warm(
        &self,
        volume: Option<&str>,
        list: Option<PathBuf>,
        rate_bytes: u64,
        on_progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
    ) -> Result<Warmed> {
        let path = match list {
            Some(path) => path,
            None => self.kept_list().with_context(|| {
                format!(
                    "no warm list is kept of {}; name one with --list, or give --trace or --range",
                    self.era().identity.device
                )
            })?,
        };
        let list = warm_list::read(&path)?;
        let only = volume.map(|name| self.choose(&self.picture()?, Some(name))).transpose()?;
        let targets =
            self.targets(&list, only).with_context(|| format!("the warm list {}", path.display()))?;
        for served in targets.iter().flatten() {
            // RULE 2: nothing enters before the origin was flushed once.
            self.request(served, ControlOp::Flush, "cannot flush the origin")?;
        }
        let mut up = WarmUp {
            running: self,
            rate_bytes,
            warmed: Warmed::default(),
            next_at: Instant::now(),
            recent: VecDeque::new(),
        };
        up.run(&list, &targets, on_progress)?;
        Ok(up.warmed)
    }

    /// The list that is kept of this cache, or was.
    fn kept_list(&self) -> Option<PathBuf> {
        let of_others = Some(self.kept_list.clone()).filter(|path| path.exists());
        self.list_keeping.file.clone().or(of_others)
    }

    /// The volume that each one of the list is now; none for those that are not wanted.
    fn targets(&self, list: &WarmList, only: Option<VolumeIndex>) -> Result<Vec<Option<Arc<Served>>>> {
        let (status, volumes) = (self.picture()?, self.volumes.all());
        let mut targets: Vec<Option<Arc<Served>>> = Vec::new();
        for listed in list.volumes() {
            let found = match (listed.name.as_str(), only) {
                ("", Some(index)) => Some(self.served(index)?),
                ("", None) => Some(self.served(self.choose(&status, None)?)?),
                (name, _) => volumes.iter().find(|volume| volume.name == name).cloned(),
            };
            targets.push(found.filter(|volume| only.is_none_or(|index| index == volume.index)));
        }
        if targets.iter().all(Option::is_none) {
            let names: Vec<&str> = list.volumes().iter().map(|volume| volume.name.as_str()).collect();
            bail!("is of other volumes: {}", names.join(", "));
        }
        let is_passed = |served: &Served| {
            let found = status.volumes.iter().find(|volume| volume.index == served.index);
            found.is_some_and(|volume| volume.mode_target == WriteMode::Passthrough)
        };
        let is_usable = |served: &Arc<Served>| served.origin.is_some() && !is_passed(served);
        // One that cannot be warmed keeps the others from nothing, unless it was asked for.
        if only.is_none() && targets.iter().flatten().any(&is_usable) {
            targets.iter_mut().for_each(|target| *target = target.take().filter(&is_usable));
        }
        for (listed, served) in list.volumes().iter().zip(&targets) {
            let Some(served) = served else { continue };
            let name = &served.name;
            let origin = served
                .origin
                .as_ref()
                .with_context(|| format!("cannot be used: the origin of volume {name} is missing"))?;
            if !listed.identity.is_empty()
                && !origin.identity().is_empty()
                && listed.identity != origin.identity()
            {
                bail!("is of another volume {name}: its origin was {}", listed.identity);
            }
            if is_passed(served) {
                bail!("cannot be used: volume {name} is in passthrough, and nothing of it is cached");
            }
        }
        let ends = list.extents().filter_map(|extent| {
            let served = targets.get(usize::from(extent.volume))?.as_ref()?;
            Some((served, extent.first_block + extent.blocks))
        });
        for (served, end) in ends {
            let size_bytes = self.size_of(&status, served);
            if end > size_bytes.div_ceil(BLOCK_BYTES) {
                bail!(
                    "is of a larger disk: it names byte {}, and volume {} has {size_bytes}",
                    (end - 1) * BLOCK_BYTES,
                    served.name
                );
            }
        }
        Ok(targets)
    }

    fn size_of(&self, status: &engine::status::Status, served: &Served) -> u64 {
        let found = status.volumes.iter().find(|volume| volume.index == served.index);
        found.map_or(served.size_bytes, |volume| volume.size_bytes)
    }

    /// Writes down what is hot, if that is wanted. Not while the cache is being filled from what was written down before.
    ///
    /// # Errors
    /// If it is stopping, or the list cannot be written.
    pub fn write_warm_list(&self) -> Result<()> {
        let Some(file) = &self.list_keeping.file else { return Ok(()) };
        if self.is_cold() {
            return Ok(());
        }
        let mut warmth = Warmth::new(RUNS_MAX);
        let mut from = Cursor::default();
        loop {
            let (runs, next) = self.handle.with_core(move |engine| {
                let mut runs: Vec<CachedRun> = Vec::new();
                let next = engine.visit_cached(from, STEPS, &mut |run| runs.push(run));
                (runs, next)
            })?;
            runs.into_iter().for_each(|run| warmth.add_cached(run));
            match next {
                Some(next) => from = next,
                None => break,
            }
        }
        self.write_list(file, &warmth.chosen())
    }

    /// Writes a list of extents whose volumes are numbered as the cache has them.
    fn write_list(&self, file: &std::path::Path, extents: &[ListedExtent]) -> Result<()> {
        let status = self.picture()?;
        let mut listed = Vec::new();
        for volume in &status.volumes {
            let served = self.served(volume.index)?;
            let origin = served.origin.as_ref();
            listed.push(ListedVolume {
                name: volume.name.clone(),
                identity: origin.map_or_else(String::new, |origin| origin.identity().to_owned()),
                blocks: volume.size_bytes.div_ceil(BLOCK_BYTES),
            });
        }
        let number = |index: u16| status.volumes.iter().position(|volume| volume.index.0 == index as u8);
        let cut = |extent: &ListedExtent| {
            let at = number(extent.volume)?;
            let left = listed[at].blocks.checked_sub(extent.first_block).filter(|left| *left > 0)?;
            // The last slot of a volume may end behind it.
            Some(ListedExtent { volume: at as u16, blocks: extent.blocks.min(left), ..*extent })
        };
        let extents: Vec<ListedExtent> = extents.iter().filter_map(cut).collect();
        warm_list::write(file, &listed, &extents, KEPT_BYTES_MAX)
    }

    /// Bytes of the list that are left of a warm-up that a daemon does by itself, if one is under way.
    pub(super) fn warming_left_bytes(&self) -> Option<u64> {
        Some(self.warming_left_bytes.load(Ordering::SeqCst)).filter(|left_bytes| *left_bytes > 0)
    }

    /// Ends such a warm-up soon; the next daemon goes on with it.
    pub fn end_warm_up(&self) {
        self.is_ending.store(true, Ordering::SeqCst);
    }

    /// Whether the cache was made anew and is not filled yet.
    fn is_cold(&self) -> bool {
        self.record.is_cold()
    }

    /// Fills a cache that was made anew, unless that is not wanted, and says how it went. Returns early when the daemon stops;
    /// then the next one goes on.
    pub fn warm_up(&self) {
        if !self.is_cold() {
            return;
        }
        let file = self.list_keeping.file.as_ref().filter(|file| file.exists());
        if let (Some(rate_bytes), Some(file)) = (self.list_keeping.rate_bytes, file) {
            let mut on_progress = |progress: Progress| {
                self.warming_left_bytes.store(progress.left_bytes.max(1), Ordering::SeqCst);
                if self.is_ending.load(Ordering::SeqCst) {
                    ControlFlow::Break(())
                } else {
                    ControlFlow::Continue(())
                }
            };
            let result = self.warm(None, Some(file.clone()), rate_bytes, &mut on_progress);
            self.warming_left_bytes.store(0, Ordering::SeqCst);
            if self.is_ending.load(Ordering::SeqCst) {
                return;
            }
            match result {
                Ok(warmed) => event(Event::WarmedUp, format_args!("the new cache is warm: {warmed}")),
                Err(error) => event(Event::NotWarmedUp, format_args!("the new cache stays cold: {error:#}")),
            }
        }
        if let Err(error) = self.record.note_warm() {
            event(Event::NotNoted, format_args!("{error:#}"));
        }
    }
}

impl WarmUp<'_> {
    fn run(
        &mut self,
        list: &WarmList,
        targets: &[Option<Arc<Served>>],
        on_progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
    ) -> Result<()> {
        let pieces = list.extents().filter_map(|extent| {
            let served = targets.get(usize::from(extent.volume))?.as_ref()?;
            Some((served, extent.first_block, extent.blocks))
        });
        let total: u64 = pieces.clone().map(|(_, _, blocks)| blocks).sum();
        self.warmed.listed_blocks = total;
        let (mut left, mut batch_blocks) = (total, 0);
        let mut batch: Vec<Wanted> = Vec::new();
        for (served, first, blocks) in pieces {
            let mut at = first;
            while at < first + blocks {
                let now = (first + blocks - at).min(BATCH_BLOCKS - batch_blocks);
                batch.push((served.index, at, now));
                (at, batch_blocks) = (at + now, batch_blocks + now);
                if batch_blocks < BATCH_BLOCKS {
                    continue;
                }
                let goes_on = self.bring(&std::mem::take(&mut batch))?;
                left -= std::mem::take(&mut batch_blocks);
                if !goes_on {
                    self.warmed.without_room_blocks += left;
                    return self.end();
                }
                self.tell(&served.name, left, on_progress)?;
            }
        }
        if !batch.is_empty() {
            // What of it has no room is counted there.
            let _is_all = self.bring(&batch)?;
        }
        self.end()
    }

    fn tell(
        &self,
        volume: &str,
        left: u64,
        on_progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
    ) -> Result<()> {
        let progress = Progress {
            volume: volume.to_owned(),
            phase: Phase::Warming,
            left_bytes: left * BLOCK_BYTES,
            waits_for: None,
        };
        if on_progress(progress).is_break() {
            bail!("warming was interrupted with {} left; run it again to go on", Size(left * BLOCK_BYTES));
        }
        Ok(())
    }

    /// Brings what is not cached of some blocks into the cache; false if there is no more room.
    fn bring(&mut self, batch: &[Wanted]) -> Result<bool> {
        let wanted = batch.to_vec();
        let (absent, room_blocks, clients) = self.running.handle.with_core(move |engine| {
            let absent: Vec<Wanted> = wanted
                .iter()
                .flat_map(|&(volume, first, blocks)| {
                    let runs = engine.absent(volume, first, blocks).into_iter();
                    runs.map(move |(first, blocks)| (volume, first, blocks))
                })
                .collect();
            let volume = wanted.first().map(|(volume, ..)| *volume);
            let clients = volume.map_or(0, |volume| engine.client_reads_under_way(volume));
            (absent, engine.warm_room_blocks(), clients)
        })?;
        let of = |runs: &[Wanted]| runs.iter().map(|(.., blocks)| *blocks).sum::<u64>();
        let absent_blocks = of(&absent);
        self.warmed.skipped_blocks += of(batch) - absent_blocks;
        if absent_blocks == 0 {
            return Ok(true);
        }
        if room_blocks < absent_blocks {
            self.warmed.without_room_blocks += absent_blocks;
            return Ok(false);
        }
        let began_at = Instant::now();
        let failed_blocks = self.read(&absent)?;
        self.warmed.failed_blocks += failed_blocks;
        self.warmed.read_blocks += absent_blocks;
        self.recent.extend(absent.into_iter().map(|run| (Instant::now(), run)));
        self.rest(absent_blocks, began_at.elapsed(), clients);
        self.look_at_recent()?;
        Ok(true)
    }

    /// Reads runs through the engine, a few at the same time; returns the blocks of those that failed.
    fn read(&self, runs: &[Wanted]) -> Result<u64> {
        let requests: Vec<Wanted> = runs
            .iter()
            .flat_map(|&(volume, first, blocks)| {
                let steps = (0..blocks).step_by(REQUEST_BLOCKS_MAX as usize);
                steps.map(move |at| (volume, first + at, (blocks - at).min(REQUEST_BLOCKS_MAX)))
            })
            .collect();
        let (left, failed, stopped) = (Mutex::new(requests), AtomicU64::new(0), AtomicU64::new(0));
        let work = || {
            loop {
                let next = left.lock().unwrap_or_else(PoisonError::into_inner).pop();
                let Some((volume, first, blocks)) = next else { break };
                match self.request(volume, first, blocks as u32) {
                    Ok(()) => (),
                    Err(ControlError::Stopped) => {
                        stopped.fetch_add(1, Ordering::Relaxed);
                        break;
                    }
                    Err(_) => drop(failed.fetch_add(blocks, Ordering::Relaxed)),
                }
            }
        };
        thread::scope(|scope| {
            for _ in 1..READERS {
                // With fewer threads it is only slower.
                let _ = thread::Builder::new().name("warm".to_owned()).spawn_scoped(scope, work);
            }
            work();
        });
        if stopped.into_inner() > 0 {
            return Err(anyhow!(ControlError::Stopped));
        }
        Ok(failed.into_inner())
    }

    fn request(&self, volume: VolumeIndex, first: u64, blocks: u32) -> Result<(), ControlError> {
        for _ in 0..TRIES_MAX {
            match self.running.handle.warm(volume, first, blocks) {
                // Too much is on its way into the cache, or clients hold all memory.
                Err(ControlError::Engine(Errno::NOSPC)) => thread::sleep(PAUSE),
                result => return result,
            }
        }
        Err(ControlError::Engine(Errno::NOSPC))
    }

    /// Rests as the rate has it, and the longer the more clients waited for the origin meanwhile.
    fn rest(&mut self, blocks: u64, took: Duration, clients: u32) {
        let micros = blocks.saturating_mul(BLOCK_BYTES * 1_000_000) / self.rate_bytes.max(1);
        self.next_at += Duration::from_micros(micros.min(60_000_000));
        let by_rate = self.next_at.saturating_duration_since(Instant::now());
        let by_clients = took.saturating_mul(clients).min(REST_MAX);
        thread::sleep(by_rate.max(by_clients));
        // Time that the origin took beyond what the rate allows is not made up for.
        self.next_at = self.next_at.max(Instant::now());
    }

    /// Counts what was read long enough ago and is in the cache now; what is not may be on its way.
    fn look_at_recent(&mut self) -> Result<()> {
        while let Some(&(at, run)) = self.recent.front().filter(|(at, _)| at.elapsed() >= ENTERS_WITHIN) {
            let present = self.present(vec![run])?;
            if present < run.2 && at.elapsed() < ENTERS_WITHIN_MAX {
                break;
            }
            self.recent.pop_front();
            self.warmed.cached_blocks += present;
        }
        Ok(())
    }

    fn present(&self, runs: Vec<Wanted>) -> Result<u64> {
        let count = move |engine: &mut engine::engine::Engine| {
            runs.iter()
                .map(|&(volume, first, blocks)| {
                    let absent = engine.absent(volume, first, blocks);
                    blocks - absent.iter().map(|(_, blocks)| *blocks).sum::<u64>()
                })
                .sum()
        };
        Ok(self.running.handle.with_core(count)?)
    }

    /// Waits until what was read last is in the cache, or nothing is on its way there.
    fn end(&mut self) -> Result<()> {
        let began_at = Instant::now();
        let rest: Vec<Wanted> = self.recent.drain(..).map(|(_, run)| run).collect();
        let all = rest.iter().map(|(.., blocks)| *blocks).sum::<u64>();
        loop {
            // Asked first: what arrives in between is counted.
            let is_filling = self.running.handle.with_core(|engine| engine.is_filling())?;
            let present = self.present(rest.clone())?;
            let waited_for = began_at.elapsed();
            let is_settled = waited_for >= ENTERS_WITHIN && !is_filling;
            if present == all || is_settled || waited_for >= ENTERS_WITHIN_MAX {
                self.warmed.cached_blocks += present;
                return Ok(());
            }
            thread::sleep(ENTERS_WITHIN / 6);
        }
    }
}
