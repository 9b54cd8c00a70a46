//! Families of metrics about scrubs.

use super::{Body, Samples, own};
use crate::report::ScrubReport;
use engine::units::BLOCK_BYTES;

impl Body {
    pub(super) fn scrub(&mut self, scrub: &ScrubReport) {
        let outcomes = [
            ("good", scrub.good_blocks),
            ("dropped", scrub.dropped_blocks),
            ("lost", scrub.lost_blocks),
            ("unreadable", scrub.unreadable_blocks),
        ];
        let samples =
            outcomes.map(|(outcome, blocks)| (own(vec![("outcome", outcome)]), blocks * BLOCK_BYTES));
        self.add(
            "forebay_scrubbed_bytes",
            "Cached bytes that scrubs read, by outcome.",
            Samples::Counters(samples.into()),
        );
        self.gauge(
            "forebay_scrub_left_bytes",
            "Bytes that are left of the scrub under way; 0 if there is none.",
            Vec::new(),
            scrub.left_bytes.unwrap_or(0) as f64,
        );
        if let (Some(ended), Some(damaged)) = (scrub.last_ended_seconds, scrub.last_damaged_blocks) {
            self.gauge(
                "forebay_scrub_last_end_seconds",
                "When the last whole scrub ended, in seconds since 1970; absent if there was none.",
                Vec::new(),
                ended as f64,
            );
            self.gauge(
                "forebay_scrub_last_damaged_bytes",
                "Cached bytes that the last whole scrub found damaged; absent if there was none.",
                Vec::new(),
                (damaged * BLOCK_BYTES) as f64,
            );
        }
    }
}
