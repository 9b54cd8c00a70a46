//! Families of metrics about limits: what they are, and what they held back.

use super::{Body, OwnLabels, Samples, of};
use crate::report::{CacheReport, LimitsReport, OrderReport, VolumeReport, VolumeStats};

impl Body {
    pub(super) fn limits(&mut self, volumes: &[VolumeReport]) {
        type Limit = fn(&LimitsReport) -> Option<u64>;
        let gauges: [(&str, &str, Limit); 2] = [
            (
                "forebay_volume_iops_limit",
                "Requests a second that a volume's clients are held to; absent without such a limit.",
                |limits| limits.iops,
            ),
            (
                "forebay_volume_bandwidth_limit_bytes",
                "Bytes a second that a volume's clients are held to; absent without such a limit.",
                |limits| limits.bandwidth_bytes,
            ),
        ];
        for (name, help, limit) in gauges {
            let samples =
                volumes.iter().filter_map(|volume| Some((of(&volume.name), limit(&volume.limits)? as f64)));
            self.add(name, help, Samples::Gauges(samples.collect()));
        }
        type State = fn(&VolumeReport) -> bool;
        let states: [(&str, &str, State); 2] = [
            (
                "forebay_volume_destage_held_back",
                "1 while destage that nobody waits for is held back for its hours.",
                |volume| volume.destage_held_back,
            ),
            (
                "forebay_volume_flooded",
                "1 while long writes go around the cache because it has no room until more is home.",
                |volume| volume.flooded,
            ),
        ];
        for (name, help, is_so) in states {
            let samples = volumes.iter().map(|volume| (of(&volume.name), f64::from(u8::from(is_so(volume)))));
            self.add(name, help, Samples::Gauges(samples.collect()));
        }
    }

    pub(super) fn order(&mut self, volumes: &[VolumeReport]) {
        type Lag = fn(&OrderReport) -> f64;
        let gauges: [(&str, &str, Lag); 2] = [
            (
                "forebay_volume_lag_bytes",
                "Bytes that the origin is behind in strict order; absent where blocks go home in any order.",
                |order| order.lag_bytes as f64,
            ),
            (
                "forebay_volume_lag_seconds",
                "Age of the oldest write that the origin lacks in strict order; absent where blocks go home in any order.",
                |order| order.lag_seconds,
            ),
        ];
        for (name, help, lag) in gauges {
            let samples = volumes.iter().filter_map(|volume| Some((of(&volume.name), lag(&volume.order?))));
            self.add(name, help, Samples::Gauges(samples.collect()));
        }
    }

    pub(super) fn wear(&mut self, cache: &CacheReport) {
        let Some(wear) = cache.wear else { return };
        self.gauge(
            "forebay_cache_wear_budget_bytes",
            "Bytes that the cache device may be written in a day.",
            Vec::new(),
            wear.day_bytes as f64,
        );
        self.gauge(
            "forebay_cache_wear_left_bytes",
            "Bytes of the wear budget that may be written at once now.",
            Vec::new(),
            wear.left_bytes as f64,
        );
    }

    pub(super) fn held_back(&mut self, volumes: &[VolumeStats]) {
        let requests = volumes.iter().map(|volume| (of(&volume.name), volume.held_back.requests));
        self.add(
            "forebay_held_back_requests",
            "Requests that had to wait because of a limit.",
            Samples::Counters(requests.collect()),
        );
        let seconds = volumes.iter().map(|volume| (of(&volume.name), volume.held_back.seconds));
        let seconds: Vec<(OwnLabels, f64)> = seconds.collect();
        self.add(
            "forebay_held_back_seconds",
            "The time that requests waited because of a limit, added up.",
            Samples::Times(seconds),
        );
    }
}
