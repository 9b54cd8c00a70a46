//! The page of metrics: every family with its type, its help and its labels.

mod halves;
mod limits;
mod scrub;

use crate::report::{
    AdviceReport, BypassStats, CacheReport, ClientsReport, DurationStats, RecoveryReport, StatusReport,
    VolumeReport, VolumeStats,
};
use crate::watchers::Figures;
use engine::status::{Bypasses, VolumeState};
use engine::units::BLOCK_BYTES;
use live::server::STEPS_NS;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;
use std::fmt;

/// The type of the page's content.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The states that a volume may be in: those that the engine knows.
const STATES: [VolumeState; 7] = [
    VolumeState::Active,
    VolumeState::Draining,
    VolumeState::OriginFailing,
    VolumeState::OriginAbsent,
    VolumeState::Uncached,
    VolumeState::Failed,
    VolumeState::Detaching,
];
/// And those beside them.
const OTHER_STATES: [&str; 2] = ["origin-missing", "abandoned"];

/// Labels of a sample.
type Labels<'a> = Vec<(&'static str, &'a str)>;

/// The page for these figures.
///
/// # Errors
/// None but those of the encoder.
pub fn encode(figures: &Figures, advice: Option<&AdviceReport>) -> Result<String, fmt::Error> {
    let mut body = Body::default();
    body.daemon(&figures.status);
    if let Some(clients) = &figures.status.clients {
        body.clients(clients);
    }
    if let Some(cache) = &figures.status.cache {
        body.cache(cache);
        body.halves(&cache.mirror);
    }
    if let Some(scrub) = &figures.status.scrub {
        body.scrub(scrub);
    }
    if let Some(advice) = advice {
        body.advice(advice);
    }
    if let Some(recovery) = &figures.status.recovery {
        body.recovery(recovery);
    }
    body.volumes(&figures.status.volumes);
    body.limits(&figures.status.volumes);
    body.order(&figures.status.volumes);
    body.requests(&figures.stats.volumes);
    body.held_back(&figures.stats.volumes);
    body.latencies(&figures.stats.volumes);
    let mut registry = Registry::default();
    registry.register_collector(Box::new(body));
    let mut page = String::new();
    text::encode(&mut page, &registry)?;
    Ok(page)
}

/// A family of samples that are ready to be written.
#[derive(Debug)]
struct Family {
    name: &'static str,
    help: &'static str,
    samples: Samples,
}

#[derive(Debug)]
enum Samples {
    Counters(Vec<(OwnLabels, u64)>),
    /// Counters of seconds.
    Times(Vec<(OwnLabels, f64)>),
    Gauges(Vec<(OwnLabels, f64)>),
    Histograms(Vec<(OwnLabels, DurationStats)>),
}

type OwnLabels = Vec<(&'static str, String)>;

fn own(labels: Labels<'_>) -> OwnLabels {
    labels.into_iter().map(|(name, value)| (name, value.to_owned())).collect()
}

/// All families of one page.
#[derive(Debug, Default)]
struct Body {
    families: Vec<Family>,
}

impl Collector for Body {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        self.families.iter().try_for_each(|family| family.encode(&mut encoder))
    }
}

impl Family {
    fn encode(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let kind = match &self.samples {
            Samples::Counters(_) | Samples::Times(_) => MetricType::Counter,
            Samples::Gauges(_) => MetricType::Gauge,
            Samples::Histograms(_) => MetricType::Histogram,
        };
        let mut metric = encoder.encode_descriptor(self.name, self.help, None, kind)?;
        if let Samples::Gauges(samples) = &self.samples
            && let [(labels, value)] = samples.as_slice()
            && labels.is_empty()
        {
            return metric.encode_gauge(value);
        }
        if let Samples::Counters(samples) = &self.samples
            && let [(labels, value)] = samples.as_slice()
            && labels.is_empty()
        {
            return metric.encode_counter::<NoLabelSet, u64, f64>(value, None);
        }
        let buckets = |durations: &DurationStats| -> Vec<(f64, u64)> {
            let bounds = STEPS_NS.iter().map(|bound_ns| *bound_ns as f64 / 1e9).chain([f64::INFINITY]);
            bounds.zip(durations.counts.iter().copied()).collect()
        };
        match &self.samples {
            Samples::Counters(samples) => samples.iter().try_for_each(|(labels, value)| {
                let mut metric = metric.encode_family(labels)?;
                metric.encode_counter::<NoLabelSet, u64, f64>(value, None)
            }),
            Samples::Times(samples) => samples.iter().try_for_each(|(labels, value)| {
                let mut metric = metric.encode_family(labels)?;
                metric.encode_counter::<NoLabelSet, f64, f64>(value, None)
            }),
            Samples::Gauges(samples) => samples
                .iter()
                .try_for_each(|(labels, value)| metric.encode_family(labels)?.encode_gauge(value)),
            Samples::Histograms(samples) => samples.iter().try_for_each(|(labels, durations)| {
                let (sum_seconds, count) = (durations.sum_seconds, durations.counts.iter().sum());
                let mut metric = metric.encode_family(labels)?;
                metric.encode_histogram::<NoLabelSet>(sum_seconds, count, &buckets(durations), None)
            }),
        }
    }
}

/// Writers of the families, in the order of the page.
impl Body {
    fn add(&mut self, name: &'static str, help: &'static str, samples: Samples) {
        self.families.push(Family { name, help, samples });
    }

    fn gauge(&mut self, name: &'static str, help: &'static str, labels: Labels<'_>, value: f64) {
        self.add(name, help, Samples::Gauges(vec![(own(labels), value)]));
    }

    fn counter(&mut self, name: &'static str, help: &'static str, value: u64) {
        self.add(name, help, Samples::Counters(vec![(Vec::new(), value)]));
    }

    fn daemon(&mut self, status: &StatusReport) {
        self.gauge(
            "forebay_build_info",
            "The version of the daemon.",
            vec![("version", env!("CARGO_PKG_VERSION"))],
            1.0,
        );
        self.gauge(
            "forebay_session",
            "The number of this session of the cache; each start is one.",
            Vec::new(),
            status.session as f64,
        );
        if let Some(seconds) = status.oldest_dirty_seconds {
            self.gauge(
                "forebay_oldest_dirty_seconds",
                "The age of the oldest data that its origin does not have yet; 0 if all is home.",
                Vec::new(),
                seconds,
            );
        }
    }

    fn clients(&mut self, clients: &ClientsReport) {
        let gauges = [
            ("forebay_clients", "Clients that are connected, by NBD.", clients.connected),
            ("forebay_clients_max", "The most clients that may be connected.", clients.limit),
        ];
        for (name, help, count) in gauges {
            self.gauge(name, help, Vec::new(), count as f64);
        }
        self.counter(
            "forebay_clients_sent_away",
            "Clients that found no place, as all were taken.",
            clients.sent_away,
        );
        self.counter(
            "forebay_clients_refused",
            "Clients that were refused for what they are: without TLS, or without the right certificate.",
            clients.refused,
        );
    }

    fn cache(&mut self, cache: &CacheReport) {
        let identity =
            vec![("device", &*cache.device), ("profile", &*cache.profile), ("set_id", &*cache.set_id)];
        self.gauge("forebay_cache_info", "The cache and what it is made of.", identity, 1.0);
        let gauges: [(&str, &str, u64); 5] = [
            ("forebay_cache_size_bytes", "The size of the cache device.", cache.size_bytes),
            ("forebay_cache_used_bytes", "Bytes in segments or slots that are not free.", cache.used_bytes),
            (
                "forebay_cache_failed",
                "1 if the cache device failed and is not written any more.",
                cache.latched.into(),
            ),
            (
                "forebay_cache_slow",
                "1 while the cache device is so slow that it is passed by.",
                cache.pace.passed_for_ms.is_some().into(),
            ),
            ("forebay_cache_index_bytes", "Memory of the index of cached blocks.", cache.index_bytes),
        ];
        for (name, help, value) in gauges {
            self.gauge(name, help, Vec::new(), value as f64);
        }
        let written = &cache.written;
        let reasons = [
            ("user", written.user_bytes),
            ("fill", written.fill_bytes),
            ("relocation", written.relocation_bytes),
            ("headers", written.header_bytes),
        ];
        self.add(
            "forebay_cache_written_bytes",
            "Bytes written to the cache device, by reason.",
            Samples::Counters(
                reasons.iter().map(|(reason, bytes)| (own(vec![("reason", reason)]), *bytes)).collect(),
            ),
        );
        self.counter(
            "forebay_cache_wraps",
            "Times that the log went past the end of the cache device.",
            cache.wraps,
        );
        self.counter(
            "forebay_cache_lifetime_written_bytes",
            "Bytes written to the cache device in all sessions that were noted.",
            cache.lifetime_written_bytes,
        );
        self.wear(cache);
        if let Some(endurance_bytes) = cache.endurance_bytes {
            self.gauge(
                "forebay_cache_endurance_bytes",
                "Bytes that the cache device is rated for, as set with --endurance.",
                Vec::new(),
                endurance_bytes as f64,
            );
            let left = 1.0 - cache.lifetime_written_bytes as f64 / endurance_bytes as f64;
            self.gauge(
                "forebay_cache_lifetime_left_ratio",
                "The part of the rated endurance that is left; below 0 the rating is exceeded.",
                Vec::new(),
                left,
            );
        }
    }

    fn recovery(&mut self, recovery: &RecoveryReport) {
        let gauges = [
            ("forebay_recovery_seconds", "How long the last recovery took.", recovery.seconds),
            (
                "forebay_recovery_dirty_bytes",
                "Bytes that counted as dirty after the last recovery.",
                recovery.redestage_bytes as f64,
            ),
            (
                "forebay_recovery_cut_batches",
                "Batches at the end of the log that were not complete at the last recovery.",
                recovery.batches_cut as f64,
            ),
        ];
        for (name, help, value) in gauges {
            self.gauge(name, help, Vec::new(), value);
        }
    }

    fn volumes(&mut self, volumes: &[VolumeReport]) {
        let info = |volume: &VolumeReport| {
            let labels = vec![
                ("volume", &*volume.name),
                ("origin", &*volume.origin),
                ("mode", &*volume.mode),
                ("mode_target", &*volume.mode_target),
            ];
            (own(labels), 1.0)
        };
        self.add(
            "forebay_volume_info",
            "The volumes and their modes.",
            Samples::Gauges(volumes.iter().map(info).collect()),
        );
        let states = STATES.map(VolumeState::name).into_iter().chain(OTHER_STATES);
        let state = volumes.iter().flat_map(|volume| {
            states.clone().map(|state| {
                let labels = vec![("volume", &*volume.name), ("state", state)];
                (own(labels), f64::from(u8::from(volume.state == state)))
            })
        });
        self.add(
            "forebay_volume_state",
            "1 for the state that a volume is in, 0 for the others.",
            Samples::Gauges(state.collect()),
        );
        type Gauge = fn(&VolumeReport) -> Option<f64>;
        let gauges: [(&str, &str, Gauge); 8] = [
            ("forebay_volume_size_bytes", "The size of a volume.", |volume| Some(volume.size_bytes as f64)),
            ("forebay_volume_dirty_bytes", "Bytes that the origin does not have yet.", |volume| {
                Some(volume.dirty_bytes as f64)
            }),
            (
                "forebay_volume_dirty_limit_bytes",
                "The most that a volume may hold dirty now; absent if only the cache's room limits it.",
                |volume| volume.dirty_limit_bytes.map(|bytes| bytes as f64),
            ),
            ("forebay_volume_cached_bytes", "Bytes that the cache holds of a volume.", |volume| {
                Some(volume.cached_bytes as f64)
            }),
            ("forebay_volume_lost_bytes", "Dirty data that rotted in the cache.", |volume| {
                Some(volume.lost_bytes as f64)
            }),
            (
                "forebay_destage_bytes_per_second",
                "Bytes that went home each second, over the last ten seconds.",
                |volume| Some(volume.destage_bytes_per_second as f64),
            ),
            (
                "forebay_origin_away_seconds",
                "How long the server of an origin is away; 0 while it is there.",
                |volume| Some(volume.origin_away_seconds.unwrap_or(0.0)),
            ),
            (
                "forebay_destage_lag_seconds",
                "How long what is dirty takes to go home at the present rate; infinite if nothing goes home.",
                |volume| {
                    Some(match (volume.dirty_bytes, volume.destage_bytes_per_second) {
                        (0, _) => 0.0,
                        (_, 0) => f64::INFINITY,
                        (dirty_bytes, rate) => dirty_bytes as f64 / rate as f64,
                    })
                },
            ),
        ];
        for (name, help, value) in gauges {
            let samples = volumes.iter().filter_map(|volume| Some((of(&volume.name), value(volume)?)));
            self.add(name, help, Samples::Gauges(samples.collect()));
        }
        let errors = volumes.iter().map(|volume| (of(&volume.name), volume.origin_errors));
        self.add("forebay_origin_errors", "Errors of an origin.", Samples::Counters(errors.collect()));
    }

    fn requests(&mut self, volumes: &[VolumeStats]) {
        let by_operation = volumes.iter().flat_map(|volume| {
            let requests = &volume.requests;
            let counts = [
                ("read", requests.reads),
                ("write", requests.writes),
                ("flush", requests.flushes),
                ("discard", requests.discards),
                ("write_zeroes", requests.write_zeroes),
            ];
            counts.map(|(operation, count)| (operation_of(&volume.name, operation), count))
        });
        self.add(
            "forebay_requests",
            "Requests of clients, by operation.",
            Samples::Counters(by_operation.collect()),
        );
        let bytes = volumes.iter().flat_map(|volume| {
            let bytes = [("read", volume.requests.read_bytes), ("write", volume.requests.written_bytes)];
            bytes.map(|(operation, bytes)| (operation_of(&volume.name, operation), bytes))
        });
        self.add(
            "forebay_request_bytes",
            "Bytes read and written by clients.",
            Samples::Counters(bytes.collect()),
        );
        type Counter = fn(&VolumeStats) -> u64;
        let counters: [(&str, &str, Counter); 12] = [
            ("forebay_read_hits", "Reads all of whose blocks the cache had.", |volume| volume.requests.hits),
            ("forebay_read_misses", "Reads that needed the origin.", |volume| volume.requests.misses),
            ("forebay_read_hit_bytes", "Bytes of blocks read that the cache had.", |volume| {
                volume.requests.hit_blocks * BLOCK_BYTES
            }),
            ("forebay_read_miss_bytes", "Bytes of blocks read that the cache had not.", |volume| {
                volume.requests.miss_blocks * BLOCK_BYTES
            }),
            ("forebay_fill_bytes", "Bytes that entered the cache after a miss.", |volume| {
                volume.requests.fill_blocks * BLOCK_BYTES
            }),
            ("forebay_fill_dropped_bytes", "Bytes read that changed before they could enter.", |volume| {
                volume.requests.fill_dropped_blocks * BLOCK_BYTES
            }),
            ("forebay_destaged_bytes", "Bytes that went home.", |volume| {
                volume.requests.destaged_blocks * BLOCK_BYTES
            }),
            ("forebay_relocated_bytes", "Bytes that the log wrote again to keep them.", |volume| {
                volume.requests.relocated_blocks * BLOCK_BYTES
            }),
            ("forebay_corrupt_clean_blocks", "Clean blocks that did not match their checksum.", |volume| {
                volume.requests.corrupt_clean_blocks
            }),
            ("forebay_origin_read_bytes", "Bytes read from an origin.", |volume| volume.origin.read_bytes),
            ("forebay_origin_written_bytes", "Bytes written to an origin.", |volume| {
                volume.origin.written_bytes
            }),
            ("forebay_origin_flushes", "Flushes of an origin.", |volume| volume.origin.flushes),
        ];
        for (name, help, value) in counters {
            let samples = volumes.iter().map(|volume| (of(&volume.name), value(volume)));
            self.add(name, help, Samples::Counters(samples.collect()));
        }
        let bypassed = volumes.iter().flat_map(|volume| {
            let BypassStats { reads, writes } = &volume.requests.bypasses;
            [("read", reads), ("write", writes)].into_iter().flat_map(|(operation, bypasses)| {
                reasons(bypasses).map(|(reason, blocks)| {
                    let labels =
                        vec![("volume", &*volume.name), ("operation", operation), ("reason", reason)];
                    (own(labels), blocks * BLOCK_BYTES)
                })
            })
        });
        self.add(
            "forebay_bypassed_bytes",
            "Bytes that went around the cache, by operation and reason.",
            Samples::Counters(bypassed.collect()),
        );
    }

    fn advice(&mut self, advice: &AdviceReport) {
        let sizes = [("half", advice.half), ("same", advice.present), ("twice", advice.twice)];
        let samples: Vec<(OwnLabels, f64)> = sizes
            .into_iter()
            .filter_map(|(size, point)| Some((own(vec![("size", size)]), point?.read_hit_ratio?)))
            .collect();
        if samples.is_empty() {
            return;
        }
        self.add(
            "forebay_lru_read_hit_ratio",
            "The part of the blocks read that a cache of LRU of half the size, the same or twice would have.",
            Samples::Gauges(samples),
        );
    }

    fn latencies(&mut self, volumes: &[VolumeStats]) {
        let samples = volumes.iter().flat_map(|volume| {
            let durations = volume.durations.iter();
            durations.map(|durations| (operation_of(&volume.name, &durations.operation), durations.clone()))
        });
        self.add(
            "forebay_request_duration_seconds",
            "Times from the arrival of a client's request to its reply.",
            Samples::Histograms(samples.collect()),
        );
    }
}

fn of(volume: &str) -> OwnLabels {
    own(vec![("volume", volume)])
}

fn operation_of(volume: &str, operation: &str) -> OwnLabels {
    own(vec![("volume", volume), ("operation", operation)])
}

/// Short names of the reasons to go around the cache, with their blocks.
fn reasons(bypasses: &Bypasses) -> [(&'static str, u64); 13] {
    [
        ("mode", bypasses.mode_blocks),
        ("failed", bypasses.failed_blocks),
        ("pressure", bypasses.pressure_blocks),
        ("above_max", bypasses.above_max_blocks),
        ("budget", bypasses.budget_blocks),
        ("slow_cache", bypasses.slow_cache_blocks),
        ("sequential", bypasses.sequential_blocks),
        ("congested", bypasses.congested_blocks),
        ("seldom", bypasses.seldom_blocks),
        ("copies", bypasses.copies_blocks),
        ("in_use", bypasses.in_use_blocks),
        ("unaligned", bypasses.unaligned_blocks),
        ("later_gap", bypasses.later_gap_blocks),
    ]
}
