//! Families of metrics about the halves of a mirrored cache.

use super::{Body, OwnLabels, Samples, own};
use crate::report::HalfReport;

impl Body {
    pub(super) fn halves(&mut self, halves: &[HalfReport]) {
        if halves.is_empty() {
            return;
        }
        let gauges = |value: fn(&HalfReport) -> f64| {
            Samples::Gauges(halves.iter().map(|half| (device(half), value(half))).collect())
        };
        let counters = |value: fn(&HalfReport) -> u64| {
            Samples::Counters(halves.iter().map(|half| (device(half), value(half))).collect())
        };
        self.add(
            "forebay_cache_half_counts",
            "1 if a half of a mirrored cache has everything, 0 if it is out or being brought up to date.",
            gauges(|half| f64::from(u8::from(half.counts()))),
        );
        self.add(
            "forebay_cache_half_copy_left_bytes",
            "Bytes that are left to copy to a half of a mirrored cache; 0 if none are copied.",
            gauges(|half| half.copy_left_bytes as f64),
        );
        self.add(
            "forebay_cache_half_read_errors",
            "Reads that a half of a mirrored cache failed and the other one answered.",
            counters(|half| half.read_errors),
        );
        self.add(
            "forebay_cache_half_mended_bytes",
            "Bytes that were wrong on a half of a mirrored cache and were written again from the other one.",
            counters(|half| half.mended_bytes),
        );
    }
}

fn device(half: &HalfReport) -> OwnLabels {
    own(vec![("device", &half.device)])
}
