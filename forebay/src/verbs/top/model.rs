//! The model: rates from one look at a daemon to the next, and their past.

use crate::report::{DurationStats, StatsReport, StatusReport, VolumeStats};
use engine::units::BLOCK_BYTES;
use live::server::STEPS_NS;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Looks that are kept for plots.
const PAST_MAX: usize = 512;

/// The figures that are shown, and their past.
pub(super) struct Model {
    pub cache: String,
    /// Why there are no figures now, if there are none.
    pub trouble: Option<String>,
    pub status: Option<StatusReport>,
    pub rates: Vec<VolumeRates>,
    /// Bytes written to the SSD each second, by reason: user, fill, relocation, headers.
    pub written: [f64; 4],
    pub past: VecDeque<Moment>,
    last: Option<(Instant, StatusReport, StatsReport)>,
}

/// Figures of all volumes together at one look.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Moment {
    /// The part of the bytes read that the cache had; `None` if nothing was read.
    pub hit_ratio: Option<f64>,
    pub requests: f64,
    pub bytes: f64,
    pub dirty_bytes: u64,
}

/// Rates of one volume.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct VolumeRates {
    pub name: String,
    pub mode: String,
    pub state: String,
    pub reads: f64,
    pub writes: f64,
    pub read_bytes: f64,
    pub written_bytes: f64,
    pub hit_ratio: Option<f64>,
    /// Bounds of the steps that hold the slowest of 100 reads, and of 100 writes, since the look before.
    pub read_p99: Option<Duration>,
    pub write_p99: Option<Duration>,
    pub dirty_bytes: u64,
    pub cached_bytes: u64,
    pub destage_bytes: u64,
}

impl Model {
    pub(super) fn new(cache: &str) -> Model {
        Model {
            cache: cache.to_owned(),
            trouble: None,
            status: None,
            rates: Vec::new(),
            written: [0.0; 4],
            past: VecDeque::new(),
            last: None,
        }
    }

    /// There are no figures now.
    pub(super) fn gone(&mut self, why: &str) {
        self.trouble = Some(why.to_owned());
        self.last = None;
        self.rates.clear();
    }

    /// Takes a look.
    pub(super) fn look(&mut self, at: Instant, (status, stats): (StatusReport, StatsReport)) {
        self.trouble = None;
        let last = self.last.take();
        // A daemon that was started since began to count from 0.
        let last = last.filter(|(_, before, _)| before.session == status.session);
        let seconds =
            last.as_ref().map_or(0.0, |(then, ..)| at.saturating_duration_since(*then).as_secs_f64());
        let before = |name: &str| -> Option<&VolumeStats> {
            last.as_ref()?.2.volumes.iter().find(|volume| volume.name == name)
        };
        self.rates = stats
            .volumes
            .iter()
            .map(|volume| rates_of(volume, before(&volume.name), seconds, &status))
            .collect();
        if let (Some((_, before, _)), Some(now)) = (&last, &status.cache)
            && let Some(before) = &before.cache
        {
            let (now, before) = (&now.written, &before.written);
            self.written = [
                per_second(now.user_bytes, before.user_bytes, seconds),
                per_second(now.fill_bytes, before.fill_bytes, seconds),
                per_second(now.relocation_bytes, before.relocation_bytes, seconds),
                per_second(now.header_bytes, before.header_bytes, seconds),
            ];
        }
        if let Some((_, _, earlier)) = &last {
            self.past.push_back(moment(&stats, earlier, seconds, &status));
            if self.past.len() > PAST_MAX {
                self.past.pop_front();
            }
        }
        self.status = Some(status.clone());
        self.last = Some((at, status, stats));
    }
}

fn per_second(now: u64, before: u64, seconds: f64) -> f64 {
    if seconds > 0.0 { now.saturating_sub(before) as f64 / seconds } else { 0.0 }
}

fn ratio(hits: u64, misses: u64) -> Option<f64> {
    (hits + misses > 0).then(|| hits as f64 / (hits + misses) as f64)
}

fn moment(now: &StatsReport, before: &StatsReport, seconds: f64, status: &StatusReport) -> Moment {
    let (now, before) = (&now.total, &before.total);
    let requests = per_second(now.reads + now.writes, before.reads + before.writes, seconds);
    let bytes =
        per_second(now.read_bytes + now.written_bytes, before.read_bytes + before.written_bytes, seconds);
    Moment {
        hit_ratio: ratio(
            now.hit_blocks.saturating_sub(before.hit_blocks),
            now.miss_blocks.saturating_sub(before.miss_blocks),
        ),
        requests,
        bytes,
        dirty_bytes: status.volumes.iter().map(|volume| volume.dirty_bytes).sum(),
    }
}

fn rates_of(
    now: &VolumeStats,
    before: Option<&VolumeStats>,
    seconds: f64,
    status: &StatusReport,
) -> VolumeRates {
    let report = status.volumes.iter().find(|report| report.name == now.name);
    let mut rates = VolumeRates {
        name: now.name.clone(),
        mode: report.map_or_else(String::new, |report| report.mode.clone()),
        state: report.map_or_else(String::new, |report| report.state.clone()),
        dirty_bytes: report.map_or(0, |report| report.dirty_bytes),
        cached_bytes: report.map_or(0, |report| report.cached_bytes),
        ..VolumeRates::default()
    };
    let Some(before) = before else { return rates };
    let (new, old) = (&now.requests, &before.requests);
    rates.reads = per_second(new.reads, old.reads, seconds);
    rates.writes = per_second(new.writes, old.writes, seconds);
    rates.read_bytes = per_second(new.read_bytes, old.read_bytes, seconds);
    rates.written_bytes = per_second(new.written_bytes, old.written_bytes, seconds);
    rates.hit_ratio =
        ratio(new.hit_blocks.saturating_sub(old.hit_blocks), new.miss_blocks.saturating_sub(old.miss_blocks));
    let destaged_bytes = per_second(new.destaged_blocks, old.destaged_blocks, seconds) * BLOCK_BYTES as f64;
    rates.destage_bytes = destaged_bytes as u64;
    rates.read_p99 = slowest_in_hundred(&now.durations, &before.durations, "read");
    rates.write_p99 = slowest_in_hundred(&now.durations, &before.durations, "write");
    rates
}

/// The bound of the step in which the slowest of 100 requests since the look before is; `None` without requests.
fn slowest_in_hundred(now: &[DurationStats], before: &[DurationStats], operation: &str) -> Option<Duration> {
    let of = |all: &[DurationStats]| -> Option<Vec<u64>> {
        all.iter()
            .find(|durations| durations.operation == operation)
            .map(|durations| durations.counts.clone())
    };
    let (now, before) = (of(now)?, of(before)?);
    let counts: Vec<u64> = now.iter().zip(before).map(|(now, before)| now.saturating_sub(before)).collect();
    let count: u64 = counts.iter().sum();
    let rank = count - count / 100;
    let mut seen = 0;
    let step = counts.iter().position(|count| {
        seen += count;
        seen >= rank
    });
    let bound_ns = STEPS_NS.get(step.filter(|_| count > 0)?).or(STEPS_NS.last())?;
    Some(Duration::from_nanos(*bound_ns))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use serde_json::json;

    /// A look after so many seconds of the same load: 100 reads of 4 KiB a second, three in four of them hits.
    pub fn look_after(seconds: u64, session: u64) -> (StatusReport, StatsReport) {
        let status = json!({
            "running": true, "session": session, "recovery": null, "nbd": ["unix:/run/x"],
            "oldest_dirty_seconds": 12.5,
            "volumes": [{
                "name": "data", "origin": "/dev/sdb", "mode": "writeback", "mode_target": "writeback",
                "state": "active", "size_bytes": 1 << 30, "dirty_bytes": 5 << 20, "dirty_limit_bytes": null,
                "lost_bytes": 0, "cached_bytes": 64 << 20, "origin_errors": 0, "uncached": false,
                "destage_bytes_per_second": 1 << 20
            }],
            "cache": null
        });
        let mut counts = [0; 17];
        counts[3] = 100 * seconds;
        let requests = json!({
            "reads": 100 * seconds, "writes": 10 * seconds, "flushes": 0, "discards": 0, "write_zeroes": 0,
            "read_bytes": 409_600 * seconds, "written_bytes": 40_960 * seconds, "hits": 75 * seconds,
            "misses": 25 * seconds, "hit_blocks": 75 * seconds, "miss_blocks": 25 * seconds,
            "beside_blocks": 0, "beside_hit_blocks": 0, "warm_up_blocks": 0, "fill_blocks": 25 * seconds,
            "fill_dropped_blocks": 0, "destaged_blocks": 256 * seconds, "relocated_blocks": 0,
            "corrupt_clean_blocks": 0, "bypasses": crate::report::BypassStats::default()
        });
        let mut volume = requests.clone();
        volume["name"] = "data".into();
        volume["origin"] = json!({"read_bytes": 0, "written_bytes": 0, "flushes": 0});
        volume["latency"] =
            serde_json::to_value(crate::report::Measured::default().latency).expect("numbers");
        volume["durations"] = json!([{"operation": "read", "counts": counts, "sum_seconds": 0.01}]);
        let stats = json!({
            "running": true, "volumes": [volume], "total": requests, "cache_wraps": 0,
            "cache": {"read_bytes": 0, "written_bytes": 0, "flushes": 0}
        });
        let status = serde_json::from_value(status).expect("a status");
        (status, serde_json::from_value(stats).expect("statistics"))
    }

    #[test]
    fn rates_are_from_one_look_to_the_next() {
        let start = Instant::now();
        let mut model = Model::new("/dev/x");
        model.look(start, look_after(10, 1));
        assert!(model.past.is_empty() && model.rates[0].reads == 0.0, "one look has no rate");
        model.look(start + Duration::from_secs(2), look_after(12, 1));
        let rates = &model.rates[0];
        assert_eq!((rates.reads, rates.writes, rates.read_bytes), (100.0, 10.0, 409_600.0));
        assert_eq!((rates.hit_ratio, rates.destage_bytes), (Some(0.75), 1 << 20));
        assert_eq!((rates.read_p99, rates.write_p99), (Some(Duration::from_micros(100)), None));
        assert_eq!(model.past.len(), 1);
        assert_eq!(model.past[0].hit_ratio, Some(0.75));
    }

    #[test]
    fn a_new_session_begins_anew() {
        let start = Instant::now();
        let mut model = Model::new("/dev/x");
        model.look(start, look_after(100, 1));
        model.look(start + Duration::from_secs(1), look_after(1, 2));
        assert_eq!(model.rates[0].reads, 0.0);
        model.gone("not running");
        assert!(model.rates.is_empty() && model.trouble.is_some());
        model.look(start + Duration::from_secs(3), look_after(3, 2));
        assert!(model.trouble.is_none() && model.rates[0].reads == 0.0);
    }
}
