//! Watch: figures that need to know the past, from a look at the status once a second.

use engine::status::Status;
use engine::units::{BLOCK_BYTES, VolumeIndex};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// The span of time over which rates are taken.
const RATE_SPAN: Duration = Duration::from_secs(10);
/// Marks that are kept; of more than that, every second one of the older half goes.
const MARKS_MAX: usize = 1024;

/// A look at a running cache.
struct Look {
    at: Instant,
    destaged_blocks: Vec<(VolumeIndex, u64)>,
}

/// How far the log was at some time.
#[derive(Clone, Copy)]
struct Mark {
    at: Instant,
    next_sequence: u64,
}

/// Memory of what was seen of late.
pub(super) struct Watch {
    looks: VecDeque<Look>,
    marks: VecDeque<Mark>,
    /// The oldest sequence with dirty data, at the last look; `None` of slots.
    oldest_dirty: Option<u64>,
    /// Since when there is dirty data without a pause.
    dirty_since: Option<Instant>,
}

impl Watch {
    /// One that has seen nothing. What is dirty now counts as dirty from now on.
    pub(super) fn new() -> Watch {
        Watch { looks: VecDeque::new(), marks: VecDeque::new(), oldest_dirty: None, dirty_since: None }
    }

    /// Takes a look.
    pub(super) fn look(&mut self, status: &Status, now: Instant) {
        let destaged_blocks =
            status.volumes.iter().map(|volume| (volume.index, volume.counters.destaged_blocks)).collect();
        self.looks.push_back(Look { at: now, destaged_blocks });
        while self.looks.len() > 2 && now.saturating_duration_since(self.looks[1].at) >= RATE_SPAN {
            self.looks.pop_front();
        }
        let is_dirty = status.volumes.iter().any(|volume| volume.dirty_bytes > 0);
        self.dirty_since = is_dirty.then(|| self.dirty_since.unwrap_or(now));
        let cache = &status.cache;
        self.oldest_dirty = (cache.next_sequence > 0).then_some(cache.oldest_dirty_sequence);
        self.mark(Mark { at: now, next_sequence: cache.next_sequence });
    }

    fn mark(&mut self, mark: Mark) {
        if self.marks.back().is_none_or(|last| last.next_sequence < mark.next_sequence) {
            self.marks.push_back(mark);
        }
        let oldest = self.oldest_dirty.unwrap_or(u64::MAX);
        // The first mark is the last one before the oldest dirty data.
        while self.marks.len() > 1 && self.marks[1].next_sequence <= oldest {
            self.marks.pop_front();
        }
        if self.marks.len() > MARKS_MAX {
            let mut at = 0;
            self.marks.retain(|_| {
                at += 1;
                at == 1 || at > MARKS_MAX / 2 || at % 2 == 1
            });
        }
    }

    /// The age of the oldest dirty data in seconds, 0 if there is none. It is not less than the real one, except for
    /// data that the log wrote again, and for data from before the start.
    pub(super) fn oldest_dirty_seconds(&self, now: Instant) -> f64 {
        let Some(dirty_since) = self.dirty_since else { return 0.0 };
        let written = self.oldest_dirty.and_then(|_| self.marks.front()).map(|mark| mark.at);
        let since = written.map_or(dirty_since, |at| at.max(dirty_since));
        now.saturating_duration_since(since).as_secs_f64()
    }

    /// Bytes of a volume that went home each second of late.
    pub(super) fn destage_bytes_per_second(&self, volume: VolumeIndex) -> u64 {
        let (Some(first), Some(last)) = (self.looks.front(), self.looks.back()) else { return 0 };
        let blocks = |look: &Look| {
            look.destaged_blocks.iter().find(|(index, _)| *index == volume).map_or(0, |(_, blocks)| *blocks)
        };
        let span_ms = last.at.saturating_duration_since(first.at).as_millis().max(1);
        let bytes = u128::from(blocks(last).saturating_sub(blocks(first)) * BLOCK_BYTES);
        u64::try_from(bytes * 1000 / span_ms).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine::status::CacheStatus;

    fn status(
        next_sequence: u64,
        oldest_dirty_sequence: u64,
        dirty_bytes: u64,
        destaged_blocks: u64,
    ) -> Status {
        let mut volume = volume();
        volume.dirty_bytes = dirty_bytes;
        volume.counters.destaged_blocks = destaged_blocks;
        let cache = CacheStatus { next_sequence, oldest_dirty_sequence, ..CacheStatus::default() };
        Status { volumes: vec![volume], cache, session: 1 }
    }

    fn volume() -> engine::status::VolumeStatus {
        engine::status::VolumeStatus {
            index: VolumeIndex(0),
            id: engine::units::VolumeId(1),
            name: "a".to_owned(),
            mode: engine::effect::WriteMode::Writeback,
            mode_target: engine::effect::WriteMode::Writeback,
            state: engine::status::VolumeState::Active,
            size_bytes: 1 << 30,
            dirty_bytes: 0,
            dirty_limit_bytes: None,
            lost_bytes: 0,
            cached_bytes: 0,
            origin_errors: 0,
            is_held_back: false,
            is_flooded: false,
            order: None,
            uncached: false,
            counters: engine::status::Counters::default(),
        }
    }

    #[test]
    fn the_age_is_that_of_the_oldest_batch_with_dirty_data() {
        let start = Instant::now();
        let mut watch = Watch::new();
        for second in 0..3600_u64 {
            // A batch each second; each goes home after a minute.
            let next = 100 + second;
            let oldest = 100 + second.saturating_sub(60);
            watch.look(&status(next, oldest, 4096, 0), start + Duration::from_secs(second));
        }
        let age = watch.oldest_dirty_seconds(start + Duration::from_secs(3599));
        assert!((60.0..=62.0).contains(&age), "{age}");
        watch.look(&status(4000, 4000, 0, 0), start + Duration::from_secs(3600));
        assert!(watch.oldest_dirty_seconds(start + Duration::from_secs(3700)) < 0.1);
    }

    #[test]
    fn a_day_of_dirty_data_needs_few_marks() {
        let start = Instant::now();
        let mut watch = Watch::new();
        for second in 0..86_400 {
            watch.look(&status(100 + second, 100, 4096, 0), start + Duration::from_secs(second));
        }
        assert!(watch.marks.len() <= MARKS_MAX);
        let age = watch.oldest_dirty_seconds(start + Duration::from_secs(86_400));
        assert!((86_399.0..=86_401.0).contains(&age), "{age}");
    }

    #[test]
    fn slots_are_as_old_as_the_time_without_a_pause() {
        let start = Instant::now();
        let mut watch = Watch::new();
        for second in 0..100 {
            let dirty_bytes = if second == 40 { 0 } else { 4096 };
            watch.look(&status(0, 0, dirty_bytes, 0), start + Duration::from_secs(second));
        }
        let age = watch.oldest_dirty_seconds(start + Duration::from_secs(99));
        assert!((57.0..=59.0).contains(&age), "{age}");
    }

    #[test]
    fn rates_are_of_the_last_ten_seconds() {
        let start = Instant::now();
        let mut watch = Watch::new();
        for second in 0..60 {
            let blocks = if second < 30 { second * 1000 } else { 30_000 + (second - 30) * 10 };
            watch.look(&status(1, 1, 4096, blocks), start + Duration::from_secs(second));
        }
        assert_eq!(watch.destage_bytes_per_second(VolumeIndex(0)), 10 * 4096);
    }
}
