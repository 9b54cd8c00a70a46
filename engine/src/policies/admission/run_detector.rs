//! dm-cache's detector of sequential phases: one for all clients.
//!
//! Source: mq of Linux 3.9 to 4.1 (its `io_tracker`, read in mq 1.0 and in a 3.18 tree), in our
//! own words. 512 requests in a row that begin where the last one ended begin a sequential
//! phase, 4 that do not end it; one that does not ends a row.
//!
//! Here a row also ends between two volumes; the published one has a detector for each volume.

use crate::units::{SectorRange, VolumeIndex};

/// Two thresholds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunDetectorChoice {
    /// Requests in a row that begin a sequential phase; default 512, 0 to 4 294 967 295.
    ///
    /// 0 switches the detector off, as from Linux 4.1 on at the latest (unverified which version
    /// began it). In 3.9 to 3.18, as read, a 0 meant the opposite: sequential almost always.
    pub sequential_threshold: u32,
    /// Other requests that end it; default 4, 1 to 4 294 967 295.
    pub random_threshold: u32,
}

impl RunDetectorChoice {
    /// The published defaults.
    pub const PUBLISHED: RunDetectorChoice =
        RunDetectorChoice { sequential_threshold: 512, random_threshold: 4 };
}

/// The pattern of the last requests.
#[derive(Clone, Copy, Debug)]
pub struct RunDetector {
    choice: RunDetectorChoice,
    is_sequential: bool,
    sequential_requests: u32,
    random_requests: u32,
    /// Where the last request ended.
    end: Option<(VolumeIndex, u64)>,
}

impl RunDetector {
    /// A detector that has seen nothing: random.
    #[must_use]
    pub fn new(choice: RunDetectorChoice) -> RunDetector {
        RunDetector { choice, is_sequential: false, sequential_requests: 0, random_requests: 0, end: None }
    }

    /// Notes a request, cached or not.
    pub fn saw(&mut self, volume: VolumeIndex, range: SectorRange) {
        if self.end == Some((volume, range.start)) {
            self.sequential_requests = self.sequential_requests.saturating_add(1);
        } else {
            if self.sequential_requests > 0 {
                self.sequential_requests = 0;
                self.random_requests = 0;
            }
            self.random_requests = self.random_requests.saturating_add(1);
        }
        self.end = Some((volume, range.end()));
        let is_over = if self.is_sequential {
            self.random_requests >= self.choice.random_threshold
        } else {
            self.choice.sequential_threshold > 0
                && self.sequential_requests >= self.choice.sequential_threshold
        };
        if is_over {
            self.is_sequential = !self.is_sequential;
            self.sequential_requests = 0;
            self.random_requests = 0;
        }
    }

    /// Whether the last request belongs to a sequential phase.
    #[must_use]
    pub fn is_sequential(&self) -> bool {
        self.is_sequential
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    const VOLUME: VolumeIndex = VolumeIndex(0);

    fn saw(detector: &mut RunDetector, start: u64) -> bool {
        detector.saw(VOLUME, SectorRange { start, sectors: 8 });
        detector.is_sequential()
    }

    /// 600 requests of 4 KiB in a row: the first is random, the 2nd to 513th make 512 in a row.
    #[test]
    fn the_513th_request_in_a_row_is_the_first_sequential_one() {
        let mut detector = RunDetector::new(RunDetectorChoice::PUBLISHED);
        let first = (1..=600u64).find(|&request| saw(&mut detector, 8000 + request * 8));
        assert_eq!(first, Some(513));
        assert!((514..=600).all(|request| saw(&mut detector, 8000 + request * 8)));
        // A jump of four random requests ends the phase at the fourth.
        let phases: Vec<bool> = [50_000, 10, 90_000, 400].map(|start| saw(&mut detector, start)).into();
        assert_eq!(phases, [true, true, true, false]);
    }

    /// Three random requests, one in a row, and the count of random ones begins again.
    #[test]
    fn a_row_takes_back_random_requests() {
        let mut detector =
            RunDetector::new(RunDetectorChoice { sequential_threshold: 2, random_threshold: 4 });
        assert!(!saw(&mut detector, 0) && !saw(&mut detector, 8) && saw(&mut detector, 16));
        assert!(saw(&mut detector, 800) && saw(&mut detector, 1600) && saw(&mut detector, 2400));
        assert!(saw(&mut detector, 2408));
        assert!(saw(&mut detector, 0) && saw(&mut detector, 80) && saw(&mut detector, 160));
        assert!(!saw(&mut detector, 240));
    }

    #[test]
    fn a_threshold_of_zero_switches_it_off() {
        let mut detector =
            RunDetector::new(RunDetectorChoice { sequential_threshold: 0, random_threshold: 4 });
        assert!((0..10_000).all(|request| !saw(&mut detector, request * 8)));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        /// Goal: the phases. Method: rows and jumps beside a count over the whole history so far.
        #[test]
        fn phases_follow_from_the_history(rows in prop::collection::vec(any::<bool>(), 1..200)) {
            let mut detector = RunDetector::new(RunDetectorChoice { sequential_threshold: 3, random_threshold: 2 });
            let (mut next, mut is_sequential) = (0, false);
            // Since the last change of phase: true for a request that continued the one before it.
            let mut history: Vec<bool> = Vec::new();
            for (step, continues) in rows.into_iter().enumerate() {
                let start = if continues && step > 0 { next } else { 1_000_000 + 1000 * step as u64 };
                next = start + 8;
                history.push(continues && step > 0);
                let row = history.iter().rev().take_while(|&&continued| continued).count();
                // Random requests count from the last end of a row on.
                let randoms = {
                    let before = &history[..history.len() - row];
                    before.iter().rev().take_while(|&&continued| !continued).count()
                };
                if (is_sequential && randoms >= 2) || (!is_sequential && row >= 3) {
                    is_sequential = !is_sequential;
                    history.clear();
                }
                prop_assert_eq!(saw(&mut detector, start), is_sequential);
            }
        }
    }
}
