//! What was done to the devices, and which errors of clients that explains.
//!
//! * A read may fail while the volume's origin fails a read, or the cache any operation, or when one of them is gone.
//! * A change may fail while a device of the volume fails anything, and from the moment on when the cache failed a write
//!   or a flush, as it is given up then.
//! * A FLUSH, and whatever is to be durable, may also fail because an origin failed a flush since the last FLUSH, also in an
//!   earlier life. A daemon that is killed may not have noted yet that it told clients.
//! * Blocks that a failed write of the cache tore may give errors until they are written again; which ones they are is
//!   seen when everything is read after a start.
//! * Gone is gone until the next start. Once a clean stop was asked for, changes may be refused with ESHUTDOWN.
//!
//! Any other error breaks the promise.

use crate::verifier::{Failure, Kind};
use engine::effect::Errno;
use std::time::{Duration, Instant};

/// Time between an operation that failed and the error that a client sees of it, on a busy machine.
const GRACE: Duration = Duration::from_millis(1500);
/// Longest time until a daemon has noted that it told clients of a loss, on a busy machine.
pub const NOTED_WITHIN: Duration = Duration::from_secs(5);

/// A device of a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The cache, which all volumes share.
    Cache,
    /// The origin of a volume.
    Origin(usize),
}

/// What a device was asked to do when it failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deed {
    /// A read.
    Read,
    /// A write, a discard or zeroes.
    Change,
    /// A flush.
    Flush,
}

/// A flush that an origin failed.
#[derive(Debug)]
struct Owed {
    volume: usize,
    at: Instant,
    /// When a FLUSH was answered that was sent later.
    told: Option<Instant>,
}

/// The faults of one life of the daemon.
#[derive(Debug, Default)]
pub struct Ledger {
    hits: Vec<(Place, Deed, Instant)>,
    /// Since when the cache may be given up.
    cache_failed: Option<Instant>,
    /// Devices that do not come back before the next start.
    gone: Vec<(Place, Instant)>,
    /// Failed flushes of origins.
    owed: Vec<Owed>,
    stopping: Option<Instant>,
    /// The cache failed a write, in this life or an earlier one, and what it overwrote may be lost.
    is_torn: bool,
    /// Faults of all lives.
    total: u64,
}

impl Ledger {
    /// Notes that a device failed an operation.
    pub fn hit(&mut self, place: Place, deed: Deed, at: Instant) {
        self.total += 1;
        self.hits.push((place, deed, at));
        match (place, deed) {
            (Place::Cache, Deed::Change | Deed::Flush) => self.fail_cache(at),
            (Place::Origin(volume), Deed::Flush) => self.owed.push(Owed { volume, at, told: None }),
            _ => {}
        }
    }

    /// Notes that the cache may fail writes from now on.
    pub fn fail_cache(&mut self, at: Instant) {
        self.cache_failed.get_or_insert(at);
        self.is_torn = true;
    }

    /// Notes that a device answers nothing until the next start, or nothing but errors.
    pub fn gone(&mut self, place: Place, at: Instant) {
        self.total += 1;
        self.gone.push((place, at));
        match place {
            Place::Cache => self.fail_cache(at),
            // It fails flushes, too.
            Place::Origin(volume) => self.owed.push(Owed { volume, at, told: None }),
        }
    }

    /// Notes that a clean stop was asked for.
    pub fn stopping(&mut self, at: Instant) {
        self.stopping = Some(at);
    }

    /// Notes that a FLUSH of the volume that was sent at `asked` was answered.
    pub fn flush_answered(&mut self, volume: usize, asked: Instant) {
        let of_volume = self.owed.iter_mut().filter(|owed| owed.volume == volume && owed.at < asked);
        of_volume.for_each(|owed| owed.told = owed.told.or_else(|| Some(Instant::now())));
    }

    /// Notes that a new life begins, with sound devices.
    pub fn restart(&mut self) {
        let mut owed = std::mem::take(&mut self.owed);
        owed.retain(|owed| owed.told.is_none_or(|told| told.elapsed() < NOTED_WITHIN));
        owed.iter_mut().for_each(|owed| owed.told = None);
        *self = Ledger { total: self.total, is_torn: self.is_torn, owed, ..Ledger::default() };
    }

    /// Whether a device failed anything in this life.
    pub fn is_faulty(&self) -> bool {
        !self.hits.is_empty() || self.cache_failed.is_some() || !self.gone.is_empty()
    }

    /// Whether the cache may have lost blocks: a write that it failed may have torn what was there, and then they give
    /// errors until they are written again.
    pub fn is_torn(&self) -> bool {
        self.is_torn
    }

    /// Operations that failed, in all lives.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Whether something explains that a client of the volume saw this error.
    pub fn explains(&self, volume: usize, failure: &Failure) -> bool {
        let (asked, answered) = (failure.asked_at, failure.answered_at);
        let origin = Place::Origin(volume);
        let is_read = failure.kind == Kind::Read;
        let is_durable = failure.kind == Kind::Flush || failure.fua;
        let is_now = |at: Instant| at <= answered && at + GRACE >= asked;
        let is_hit = self.hits.iter().any(|(place, deed, at)| {
            let is_its_own =
                *place == Place::Cache || (*place == origin && (*deed == Deed::Read || !is_read));
            is_its_own && is_now(*at)
        });
        let is_gone = |place: Place| self.gone.iter().any(|(gone, at)| *gone == place && *at <= answered);
        let is_owed = |owed: &Owed| {
            let is_over = owed.told.is_some_and(|told| told <= asked);
            owed.volume == volume && owed.at <= answered && !is_over
        };
        let is_stopping = failure.errno == Errno::SHUTDOWN && self.stopping.is_some_and(|at| at <= answered);
        is_hit
            || is_gone(origin)
            || self.cache_failed.is_some_and(|at| at <= answered)
            || (is_durable && self.owed.iter().any(is_owed))
            || (!is_read && is_stopping)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An error of an operation that was sent and answered so many milliseconds after the start.
    fn failure(start: Instant, kind: Kind, asked_ms: u64, answered_ms: u64) -> Failure {
        let at = |ms| start + Duration::from_millis(ms);
        Failure {
            kind,
            fua: false,
            start: 0,
            sectors: 8,
            errno: Errno::IO,
            asked_at: at(asked_ms),
            answered_at: at(answered_ms),
        }
    }

    #[test]
    fn an_error_on_sound_devices_has_no_excuse() {
        let (ledger, start) = (Ledger::default(), Instant::now());
        for kind in [Kind::Read, Kind::Write, Kind::Flush, Kind::Discard, Kind::Zeroes] {
            assert!(!ledger.explains(0, &failure(start, kind, 1, 2)), "{kind:?}");
        }
    }

    #[test]
    fn a_fault_explains_what_was_under_way_on_its_own_volume() {
        let (mut ledger, start) = (Ledger::default(), Instant::now());
        ledger.hit(Place::Origin(0), Deed::Read, start + Duration::from_millis(10_000));
        assert!(ledger.explains(0, &failure(start, Kind::Read, 9_999, 10_001)));
        assert!(!ledger.explains(1, &failure(start, Kind::Read, 9_999, 10_001)), "another volume");
        assert!(!ledger.explains(0, &failure(start, Kind::Read, 1, 9_999)), "before it came");
        assert!(!ledger.explains(0, &failure(start, Kind::Read, 12_000, 12_001)), "long after");
    }

    #[test]
    fn a_read_does_not_fail_because_a_write_did() {
        let (mut ledger, start) = (Ledger::default(), Instant::now());
        ledger.hit(Place::Origin(0), Deed::Change, start);
        assert!(!ledger.explains(0, &failure(start, Kind::Read, 0, 1)));
        assert!(ledger.explains(0, &failure(start, Kind::Write, 0, 1)));
    }

    #[test]
    fn a_cache_that_failed_a_write_explains_errors_until_the_next_start() {
        let (mut ledger, start) = (Ledger::default(), Instant::now());
        ledger.hit(Place::Cache, Deed::Change, start);
        assert!(ledger.explains(1, &failure(start, Kind::Write, 60_000, 60_001)));
        ledger.restart();
        assert!(!ledger.explains(1, &failure(start, Kind::Write, 61_000, 61_001)));
        assert_eq!(ledger.total(), 1);
    }

    #[test]
    fn a_failed_flush_of_an_origin_is_told_once() {
        let (mut ledger, start) = (Ledger::default(), Instant::now());
        ledger.hit(Place::Origin(0), Deed::Flush, start);
        assert!(ledger.explains(0, &failure(start, Kind::Flush, 60_000, 60_001)));
        assert!(!ledger.explains(0, &failure(start, Kind::Write, 60_000, 60_001)));
        ledger.flush_answered(0, start + Duration::from_millis(60_000));
        assert!(!ledger.explains(0, &failure(start, Kind::Flush, 61_000, 61_001)));
        ledger.restart();
        assert!(ledger.explains(0, &failure(start, Kind::Flush, 62_000, 62_001)), "that was a moment ago");
    }

    #[test]
    fn a_failed_flush_of_an_origin_is_told_in_the_next_life() {
        let (mut ledger, start) = (Ledger::default(), Instant::now());
        ledger.hit(Place::Origin(0), Deed::Flush, start);
        ledger.restart();
        assert!(ledger.explains(0, &failure(start, Kind::Flush, 60_000, 60_001)));
        assert!(!ledger.explains(1, &failure(start, Kind::Flush, 60_000, 60_001)), "another volume");
    }

    #[test]
    fn a_stop_refuses_changes_and_no_reads() {
        let (mut ledger, start) = (Ledger::default(), Instant::now());
        ledger.stopping(start);
        let refused = |kind| Failure { errno: Errno::SHUTDOWN, ..failure(start, kind, 1, 2) };
        assert!(ledger.explains(0, &refused(Kind::Write)));
        assert!(!ledger.explains(0, &refused(Kind::Read)));
        assert!(!ledger.explains(0, &failure(start, Kind::Write, 1, 2)));
    }
}
