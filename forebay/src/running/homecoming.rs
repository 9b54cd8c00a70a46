//! Long jobs: flush dirty data to the origin, compare a volume with its origin, take it off the cache.

use super::{Running, export};
use crate::configuration::Configuration;
use crate::control::{Detached, Flushed, Phase, Progress};
use crate::output::{Count, Size};
use crate::startup::Served;
use crate::superblock::system;
use anyhow::{Context, Result, anyhow, bail};
use engine::effect::{Errno, WriteMode};
use engine::status::{VolumeState, VolumeStatus};
use engine::units::{BLOCK_BYTES, SECTOR_BYTES, VOLUMES_MAX, VolumeIndex};
use live::devices::{self, Access, BlockingDevice, Device, DeviceError};
use live::server::{ControlError, ControlOp, ExportConfig, Pending};
use std::ops::ControlFlow;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// Interval at which a long job reports its progress and checks whether to go on.
pub(super) const PROGRESS_EVERY: Duration = Duration::from_millis(200);
/// Bytes compared at once; less than [`live::server::Handle::read`] takes.
const COMPARE_BYTES_MAX: u64 = 128 << 10;
/// Most attempts of a read that finds no memory free, with [`PROGRESS_EVERY`] between.
const READ_TRIES_MAX: u32 = 50;

/// End of a drain that did not fail.
enum Drained {
    Wholly,
    Interrupted { left_bytes: u64 },
}

/// The reason why a volume's dirty data does not go home now, if there is one.
fn waits_for(served: &Served, volume: &VolumeStatus) -> Option<String> {
    let name = &served.name;
    if let Some(away) = served.origin.as_ref().and_then(Device::away) {
        let seconds = away.lasts.as_secs();
        return Some(format!("the origin of volume {name} is away for {seconds} s: {}", away.reason));
    }
    let fails = matches!(volume.state, VolumeState::OriginFailing | VolumeState::OriginAbsent);
    fails.then(|| {
        let errors = Count(volume.origin_errors, "operation", "operations");
        format!("the origin of volume {name} fails, {errors} so far; it is tried again")
    })
}

impl Running {
    /// Brings dirty data home: of one volume, or of all.
    ///
    /// # Errors
    /// If it was interrupted, or the origin fails.
    pub fn flush(
        &self,
        volume: Option<&str>,
        on_progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
    ) -> Result<Flushed> {
        let status = self.picture()?;
        let chosen = volume.map(|name| self.choose(&status, Some(name))).transpose()?;
        let mut flushed = Flushed::default();
        for volume in status.volumes.iter().filter(|volume| chosen.is_none_or(|index| index == volume.index))
        {
            let served = &*self.served(volume.index)?;
            self.drain(served, on_progress)?;
            if volume.dirty_bytes > 0 {
                self.origin_by_name(served)?;
            }
            flushed.volumes.push(served.name.clone());
            flushed.dirty_bytes += volume.dirty_bytes;
        }
        Ok(flushed)
    }

    pub(super) fn drain(
        &self,
        served: &Served,
        on_progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
    ) -> Result<()> {
        let name = &served.name;
        if served.origin.is_none() && self.volume(served)?.dirty_bytes > 0 {
            bail!("the origin of volume {name} is missing; connect it and restart the daemon");
        }
        let drain = {
            let mut drains = self.drains();
            drains[served.index.at()] += 1;
            self.handle.start(served.index, ControlOp::Drain)
        };
        let drained = drain
            .with_context(|| format!("cannot flush volume {name}"))
            .and_then(|drain| self.await_drain(served, &drain, on_progress));
        let mut drains = self.drains();
        let others = &mut drains[served.index.at()];
        *others -= 1;
        if let Ok(Drained::Interrupted { left_bytes }) = drained {
            // The engine knows no job from another. The lock is held, so that none begins meanwhile.
            if *others == 0 {
                self.request(served, ControlOp::CancelDrain, "cannot cancel the flush")?;
            }
            bail!(
                "flushing volume {name} was interrupted with {} left; run it again to go on",
                Size(left_bytes)
            );
        }
        drained.map(drop)
    }

    fn drains(&self) -> MutexGuard<'_, [u32; VOLUMES_MAX]> {
        self.drains.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn await_drain(
        &self,
        served: &Served,
        drain: &Pending,
        on_progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
    ) -> Result<Drained> {
        let name = &served.name;
        loop {
            match drain.wait_for(PROGRESS_EVERY) {
                Some(Ok(())) => return Ok(Drained::Wholly),
                Some(Err(ControlError::Engine(Errno::SHUTDOWN))) => {
                    bail!("flushing volume {name} was cancelled; run it again to go on")
                }
                Some(Err(error)) => return Err(self.not_flushed(served, error)),
                None => {
                    let volume = self.volume(served)?;
                    let (left_bytes, waits_for) = (volume.dirty_bytes, waits_for(served, &volume));
                    let phase = Phase::Flushing;
                    let progress = Progress { volume: name.clone(), phase, left_bytes, waits_for };
                    if on_progress(progress).is_break() {
                        return Ok(Drained::Interrupted { left_bytes });
                    }
                }
            }
        }
    }

    /// Why a volume could not be flushed, and what to do about it.
    fn not_flushed(&self, served: &Served, error: ControlError) -> anyhow::Error {
        let (name, cache) = (&served.name, &self.era().identity.device);
        if self.latch.get().is_some() {
            return anyhow!(
                "volume {name} could not be flushed: the cache device failed; restart the daemon, and if it does not start: \
                 forebay salvage {cache}"
            );
        }
        let lost_bytes = self.volume(served).map_or(0, |volume| volume.lost_bytes);
        if lost_bytes > 0 {
            return anyhow!(
                "volume {name} could not be flushed: {} of its dirty data rotted in the cache, all else is home; forebay \
                 scrub {cache} names what is lost, forebay set {cache} {name} lost=give-up gives it up",
                Size(lost_bytes)
            );
        }
        anyhow!("volume {name} could not be flushed: {error}; see forebay status")
    }

    /// Brings a volume's dirty data home and takes it off the cache.
    ///
    /// # Errors
    /// If it was interrupted, the origin fails, or differs where it was to be verified. Then it is served as before.
    pub fn detach(
        &self,
        volume: Option<&str>,
        verify: bool,
        on_progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
    ) -> Result<Detached> {
        let _changing = self.change_volumes()?;
        let index = self.choose(&self.picture()?, volume)?;
        let of_list = self.served(index)?;
        let served = &*of_list;
        let name = &served.name;
        self.refuse_attached(served)?;
        self.origin_by_name(served)?;
        // Most of the work is done while clients go on; then they are sent away, and the rest is done.
        self.drain(served, on_progress)?;
        self.origin_by_name(served)?;
        self.handle.close_export(index)?;
        let taken_off = self.take_off(served, verify, on_progress);
        if taken_off.is_err() {
            // What fails here is that the daemon is stopping.
            let _ = self.offer_again(served);
        }
        let verified_bytes = taken_off?;
        let noted = self.record.follow(|record| {
            record.volumes.retain(|note| note.id != served.id.0);
            // Another volume may get its name.
            record.settings.remove(name);
        });
        let line_of = |file: Arc<Configuration>| {
            let wish = file.volumes.iter().find(|wish| wish.name == *name)?;
            Some(format!("{}:{}", file.path.display(), wish.line))
        };
        let configured_at = self.configuration().and_then(line_of);
        let (volume, origin) = (name.clone(), served.origin_name.clone());
        let detached = Detached { volume, origin, verified_bytes, configured_at };
        self.let_go_of_volume(of_list)?;
        noted.with_context(|| {
            let Detached { volume, origin, .. } = &detached;
            format!("volume {volume} is off its cache, and {origin} holds all of it, but a clean stop has to note that")
        })?;
        Ok(detached)
    }

    /// Takes a volume without clients off the cache; the bytes that were compared.
    fn take_off(
        &self,
        served: &Served,
        verify: bool,
        on_progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
    ) -> Result<Option<u64>> {
        self.drain(served, on_progress)?;
        let verified_bytes = if verify { Some(self.compare(served, on_progress)?) } else { None };
        self.tell_time()?;
        // The last word: what this name leads to is what the operator will use.
        self.origin_by_name(served)?;
        self.request(served, ControlOp::Detach, "cannot detach")?;
        Ok(verified_bytes)
    }

    /// Offers a volume that stays on its cache to clients again.
    fn offer_again(&self, served: &Served) -> Result<()> {
        let index = served.index;
        let record = self.handle.with_core(move |engine| engine.superblock().volumes[index.at()].clone())?;
        let record = record.context("the volume is gone")?;
        let (size_bytes, read_only) =
            (record.size_sectors * SECTOR_BYTES, record.mode == WriteMode::Readonly);
        Ok(self.handle.open_export(ExportConfig { size_bytes, read_only, ..export(served) })?)
    }

    /// The origin of a volume, opened anew by its name, which must still lead to the file or device that is served,
    /// with all of its bytes: one that was renamed, removed or cut short meanwhile takes all that is written home, and
    /// nobody finds it.
    fn origin_by_name(&self, served: &Served) -> Result<Device> {
        let name = &served.name;
        let origin = served.origin.as_ref().with_context(|| {
            format!("the origin of volume {name} is missing; connect it and restart the daemon")
        })?;
        let spec = origin.spec();
        if spec.path().is_none() {
            return Ok(origin.clone());
        }
        let refuse = |what: &str| {
            let home = &served.origin_name;
            anyhow!(
                "the origin {home} of volume {name} {what} while it was served; put it back, then try again"
            )
        };
        let found = match devices::open(spec, Access::ReadOnly) {
            Ok(found) => found,
            Err(DeviceError::Missing { .. }) => {
                return Err(refuse("was renamed or removed"));
            }
            Err(DeviceError::Empty { .. } | DeviceError::StoreTooSmall { .. }) => {
                return Err(refuse("was cut short"));
            }
            Err(error) => {
                bail!("the origin of volume {name} cannot be used any more: {error}")
            }
        };
        if !found.same_as(origin) {
            return Err(refuse("was replaced by another one"));
        }
        let size_bytes = self.volume(served)?.size_bytes;
        if found.size_bytes() < size_bytes {
            return Err(refuse(&format!("has shrunk from {size_bytes} to {} bytes", found.size_bytes())));
        }
        Ok(found)
    }

    /// Compares all cached blocks of a volume, as a client would read them, with the origin as its name finds it.
    /// Clients read other blocks from the origin anyway.
    fn compare(
        &self,
        served: &Served,
        on_progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
    ) -> Result<u64> {
        let name = &served.name;
        let mut origin = BlockingDevice::new(&self.origin_by_name(served)?);
        let index = served.index;
        let blocks = self.handle.with_core(move |engine| engine.cached_blocks(index))?;
        let total_bytes = blocks.len() as u64 * BLOCK_BYTES;
        let size_bytes = self.volume(served)?.size_bytes;
        let mut done_bytes = 0;
        let mut from_origin = vec![0; COMPARE_BYTES_MAX as usize];
        for run in runs(&blocks) {
            let offset_bytes = run.start * BLOCK_BYTES;
            let end_bytes = (run.end * BLOCK_BYTES).min(size_bytes);
            assert!(end_bytes > offset_bytes, "a cached block begins inside its volume");
            let len_bytes = (end_bytes - offset_bytes) as usize;
            let view = self
                .read(index, offset_bytes, len_bytes as u32)
                .with_context(|| format!("cannot read volume {name} at byte {offset_bytes}"))?;
            let from_origin = &mut from_origin[..len_bytes];
            origin
                .read_at(offset_bytes, from_origin)
                .map_err(system)
                .with_context(|| format!("cannot read the origin at byte {offset_bytes}"))?;
            if let Some(at) = view.iter().zip(from_origin.iter()).position(|(a, b)| a != b) {
                bail!(
                    "volume {name} and its origin differ at byte {}; it was not detached, and is served as before",
                    offset_bytes + at as u64
                );
            }
            done_bytes += (run.end - run.start) * BLOCK_BYTES;
            let left_bytes = total_bytes - done_bytes;
            let progress =
                Progress { volume: name.clone(), phase: Phase::Comparing, left_bytes, waits_for: None };
            if on_progress(progress).is_break() {
                bail!(
                    "comparing volume {name} was interrupted; it was not detached, and is served as before"
                );
            }
        }
        Ok(total_bytes)
    }

    fn read(&self, index: VolumeIndex, offset_bytes: u64, len_bytes: u32) -> Result<Vec<u8>, ControlError> {
        let mut tries = 1;
        loop {
            match self.handle.read(index, offset_bytes, len_bytes) {
                // Clients hold all memory, and will give some of it back.
                Err(ControlError::Engine(Errno::NOSPC)) if tries < READ_TRIES_MAX => tries += 1,
                result => return result,
            }
            thread::sleep(PROGRESS_EVERY);
        }
    }
}

/// Blocks in rising order as runs, each short enough to be compared at once.
fn runs(blocks: &[u64]) -> Vec<std::ops::Range<u64>> {
    let mut runs: Vec<std::ops::Range<u64>> = Vec::new();
    for &block in blocks {
        match runs.last_mut() {
            Some(run) if run.end == block && (run.end - run.start) * BLOCK_BYTES < COMPARE_BYTES_MAX => {
                run.end += 1;
            }
            _ => runs.push(block..block + 1),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_consecutive_and_bounded() {
        let most = COMPARE_BYTES_MAX / BLOCK_BYTES;
        let blocks: Vec<u64> = [3, 4, 9].into_iter().chain(100..100 + most + 1).collect();
        assert_eq!(runs(&blocks), vec![3..5, 9..10, 100..100 + most, 100 + most..100 + most + 1]);
    }
}
