//! A modelled disk in real time: a model sets the times, a file holds the data.
//!
//! An operation is handed to the model when it comes; its data is moved when the model says
//! that it is done. What was written is held in a [`VolatileCache`] until a flush, so that a power
//! cut can be played.
//!
//! Two may use one disk at the same time, the reactor and a [`crate::devices::BlockingDevice`]:
//! each finds only its own operations finished.

use super::volatile::VolatileCache;
use super::{OpenFile, SPEED_UNIT};
use crate::clock;
use engine::effect::Errno;
use engine::units::Nanos;
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Submitter of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Submitter {
    /// The reactor.
    Reactor,
    /// A thread that waits for it.
    Thread,
}

/// Operation of a modelled disk.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Job {
    /// Read a range; the data is fetched when it is finished.
    Read { offset_bytes: u64, len_bytes: u64 },
    /// Write a range; the data is taken when it is finished.
    Write { offset_bytes: u64, len_bytes: u64 },
    /// Make finished writes durable.
    Flush,
    /// Drop a range.
    Discard { offset_bytes: u64, len_bytes: u64 },
    /// Zero a range.
    Zero { offset_bytes: u64, len_bytes: u64 },
}

/// The transfer that is left to do when the model ends an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transfer {
    /// Fetch the data with [`Modelled::read_at`].
    Read { offset_bytes: u64 },
    /// Hand over the data with [`Modelled::write_at`].
    Write { offset_bytes: u64 },
    /// Nothing.
    None(Result<(), Errno>),
}

struct Pending {
    submitter: Submitter,
    token: u64,
    job: Job,
    /// Newest write that a flush covers.
    covered: u64,
}

struct State {
    disk: models::Disk,
    started: Nanos,
    /// The latest time that anybody brought: two threads may come in another order than they looked.
    newest: Nanos,
    speed: u64,
    next: u64,
    pending: HashMap<u64, Pending>,
    finished: [VecDeque<(u64, Transfer)>; 2],
    cache: VolatileCache,
    dead: bool,
    random: u64,
}

/// A modelled disk.
pub(crate) struct Modelled {
    store: OpenFile,
    size_bytes: u64,
    state: Mutex<State>,
}

impl fmt::Debug for Modelled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Modelled").field("store", &self.store).field("size_bytes", &self.size_bytes).finish()
    }
}

impl Modelled {
    pub(super) fn new(
        parameters: &models::Parameters,
        speed: u64,
        store: OpenFile,
        size_bytes: u64,
    ) -> Modelled {
        let started = clock::now();
        let volatile_bytes = match &parameters.media {
            models::Media::Hdd(hdd) => hdd.write_cache_bytes,
            models::Media::Ssd(ssd) if ssd.power_loss_protection => 0,
            models::Media::Ssd(ssd) => ssd.write_cache_bytes,
        };
        let state = State {
            cache: VolatileCache::new(volatile_bytes),
            disk: models::Disk::new(parameters, size_bytes, started.0),
            started,
            newest: started,
            speed,
            next: 0,
            pending: HashMap::new(),
            finished: [VecDeque::new(), VecDeque::new()],
            dead: false,
            random: started.0 | 1,
        };
        Modelled { store, size_bytes, state: Mutex::new(state) }
    }

    /// A thread that panicked while it held the lock is no reason to fail here as well.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn store(&self) -> &OpenFile {
        &self.store
    }

    pub(super) fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// Hands an operation to the model.
    pub(crate) fn submit(&self, now: Nanos, submitter: Submitter, token: u64, job: Job) {
        let mut state = self.state();
        let covered = if matches!(job, Job::Flush) { state.cache.begin_flush() } else { 0 };
        let (op, offset_bytes, len_bytes) = match job {
            Job::Read { offset_bytes, len_bytes } => (models::Op::Read, offset_bytes, len_bytes),
            Job::Write { offset_bytes, len_bytes } | Job::Zero { offset_bytes, len_bytes } => {
                (models::Op::Write, offset_bytes, len_bytes)
            }
            Job::Flush => (models::Op::Flush, 0, 0),
            Job::Discard { offset_bytes, len_bytes } => (models::Op::Discard, offset_bytes, len_bytes),
        };
        let number = state.next;
        state.next += 1;
        state.pending.insert(number, Pending { submitter, token, job, covered });
        let model_now = state.model_ns(now);
        state.disk.submit(model_now, number, models::Submit { op, offset_bytes, len_bytes });
    }

    /// The next operation of this submitter that is done by now.
    pub(crate) fn poll(&self, now: Nanos, submitter: Submitter) -> Option<(u64, Transfer)> {
        let mut state = self.state();
        if state.dead && matches!(submitter, Submitter::Reactor) {
            // A disk without power answers nothing, not even an error on which the program could act before the
            // process ends.
            return None;
        }
        let model_now = state.model_ns(now);
        while let Some(completion) = state.disk.poll(model_now) {
            let pending = state.pending.remove(&completion.token).expect("the model answers each once");
            let transfer = state.settle(&self.store, &pending);
            state.finished[pending.submitter as usize].push_back((pending.token, transfer));
        }
        state.finished[submitter as usize].pop_front()
    }

    /// Deadline at which [`Modelled::poll`] may have something, if nothing is submitted before.
    pub(crate) fn next(&self, submitter: Submitter) -> Option<Nanos> {
        let state = self.state();
        if state.dead && matches!(submitter, Submitter::Reactor) {
            return None;
        }
        if !state.finished[submitter as usize].is_empty() {
            return Some(Nanos(0));
        }
        state.disk.next_ns().map(|model_ns| state.wall(model_ns))
    }

    /// Fetches the data of a finished read.
    pub(crate) fn read_at(&self, offset_bytes: u64, bytes: &mut [u8]) -> Result<(), Errno> {
        let state = self.state();
        if state.dead {
            return Err(Errno::IO);
        }
        self.store.read_at(offset_bytes, bytes)?;
        state.cache.overlay(offset_bytes, bytes);
        Ok(())
    }

    /// Hands over the data of a finished write. Offset and length are multiples of 512.
    pub(crate) fn write_at(&self, offset_bytes: u64, bytes: &[u8]) -> Result<(), Errno> {
        let mut state = self.state();
        if state.dead {
            return Err(Errno::IO);
        }
        state.cache.write(&self.store, offset_bytes, bytes)
    }

    /// Performs an operation and waits as long as the model says.
    pub(crate) fn perform(&self, token: u64, job: Job) -> Transfer {
        self.submit(clock::now(), Submitter::Thread, token, job);
        loop {
            let now = clock::now();
            if let Some(transfer) = self.take(now, token) {
                return transfer;
            }
            let next = self.next(Submitter::Thread).unwrap_or(now);
            // Another thread's poll may have taken the completion just looked for: look again soon.
            let pause = next.since(now).clamp(1_000, Nanos::MILLISECOND);
            std::thread::sleep(std::time::Duration::from_nanos(pause));
        }
    }

    /// Takes the result of `token`. Several threads may wait: each takes only its own, and puts back the others'.
    fn take(&self, now: Nanos, token: u64) -> Option<Transfer> {
        if let Some((found, transfer)) = self.poll(now, Submitter::Thread) {
            if found == token {
                return Some(transfer);
            }
            self.state().finished[Submitter::Thread as usize].push_back((found, transfer));
        }
        None
    }

    /// A power cut: see [`super::Device::lose_unflushed`].
    pub(super) fn lose_unflushed(&self) {
        let mut state = self.state();
        state.dead = true;
        let State { cache, random, .. } = &mut *state;
        cache.lose(&self.store, || {
            *random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            *random >> 16
        });
    }
}

impl Drop for Modelled {
    /// A disk that is let go, not cut off, writes its cache out, as any disk does while it has power.
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        if !state.dead {
            let _ = state.cache.end_flush(&self.store, u64::MAX);
        }
    }
}

impl State {
    /// The time on the model's clock, which runs `speed` times as fast as the wall clock.
    fn model_ns(&mut self, now: Nanos) -> u64 {
        self.newest = self.newest.max(now);
        let product =
            u128::from(self.newest.since(self.started)) * u128::from(self.speed) / u128::from(SPEED_UNIT);
        u64::try_from(product).unwrap_or(u64::MAX)
    }

    /// The first moment at which the model's clock shows at least `model_ns`.
    fn wall(&self, model_ns: u64) -> Nanos {
        let product = (u128::from(model_ns) * u128::from(SPEED_UNIT)).div_ceil(u128::from(self.speed));
        self.started.plus(u64::try_from(product).unwrap_or(u64::MAX))
    }

    fn settle(&mut self, store: &OpenFile, pending: &Pending) -> Transfer {
        if self.dead {
            return Transfer::None(Err(Errno::IO));
        }
        match pending.job {
            Job::Read { offset_bytes, .. } => Transfer::Read { offset_bytes },
            Job::Write { offset_bytes, .. } => Transfer::Write { offset_bytes },
            Job::Flush => Transfer::None(self.cache.end_flush(store, pending.covered)),
            Job::Discard { .. } if !self.disk.supports_discard() => Transfer::None(Err(Errno::OPNOTSUPP)),
            Job::Discard { offset_bytes, len_bytes } => {
                self.cache.forget(offset_bytes, len_bytes);
                Transfer::None(store.discard(offset_bytes, len_bytes))
            }
            Job::Zero { offset_bytes, len_bytes } => {
                self.cache.forget(offset_bytes, len_bytes);
                Transfer::None(store.zero(offset_bytes, len_bytes))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::clock;
    use crate::devices::BlockingDevice;
    use crate::devices::{Access, Device, open, parse};
    use engine::units::Nanos;

    fn device(spec: &str) -> Device {
        open(&parse(spec).unwrap(), Access::Exclusive).unwrap()
    }

    #[test]
    fn a_modelled_disk_takes_its_time() {
        let device = device("model:hdd?size=64M");
        let mut disk = BlockingDevice::new(&device);
        let before = clock::now();
        let mut bytes = [0; 4096];
        for turn in 0..5u64 {
            disk.read_at(turn * 7 * 1_000_448 % (60 << 20), &mut bytes).unwrap();
        }
        assert!(clock::now().since(before) > 2 * Nanos::MILLISECOND);
    }

    #[test]
    fn flushed_writes_survive_a_power_cut_and_others_may_not() {
        let store = tempfile::NamedTempFile::new().unwrap();
        store.as_file().set_len(1 << 20).unwrap();
        let spec = format!("model:ssd?store={}&speed=1000", store.path().display());
        let device = device(&spec);
        let mut disk = BlockingDevice::new(&device);
        for block in 0..128u64 {
            disk.write_at(block * 4096, &[1; 4096]).unwrap();
        }
        disk.flush().unwrap();
        for block in 64..256u64 {
            disk.write_at(block * 4096, &[2; 4096]).unwrap();
        }
        let mut bytes = vec![0; 1 << 20];
        disk.read_at(0, &mut bytes).unwrap();
        assert!(bytes[64 * 4096..].iter().all(|byte| *byte == 2));
        device.lose_unflushed();
        assert!(disk.read_at(0, &mut bytes).is_err());
        drop((disk, device));
        let after = std::fs::read(store.path()).unwrap();
        assert!(after[..64 * 4096].iter().all(|byte| *byte == 1));
        assert!(after[64 * 4096..128 * 4096].iter().all(|byte| matches!(byte, 1 | 2)));
        assert!(after[128 * 4096..].iter().all(|byte| matches!(byte, 0 | 2)));
        assert!(after[128 * 4096..].contains(&0), "something was lost");
        assert!(after[64 * 4096..].contains(&2), "something was kept");
    }

    #[test]
    fn a_disk_that_is_let_go_keeps_everything() {
        let store = tempfile::NamedTempFile::new().unwrap();
        store.as_file().set_len(1 << 20).unwrap();
        let spec = format!("model:ssd?store={}&speed=1000", store.path().display());
        BlockingDevice::new(&device(&spec)).write_at(8192, &[3; 512]).unwrap();
        assert_eq!(std::fs::read(store.path()).unwrap()[8192..8704], [3; 512]);
    }
}
