//! Metrics of tables, computed from measurements.

use super::measured::Measured;
use super::watch::{JobCount, WINDOW_NS};
use crate::workload::iozone;
use engine::units::Nanos;

const KIB: f64 = 1024.0;
const MIB: f64 = KIB * KIB;

/// The better direction of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Better {
    /// More of it.
    Higher,
    /// Less of it.
    Lower,
    /// It is no merit.
    Neither,
}

/// The better direction of a metric.
#[must_use]
pub fn better(metric: &str) -> Better {
    let is = |starts: &[&str]| starts.iter().any(|start| metric.starts_with(start));
    if is(&["latency_", "clat_", "lat_", "runtime"]) {
        Better::Lower
    } else if is(&["bandwidth", "iops", "summary_", "children_", "parent_", "min_", "max_", "avg_"]) {
        Better::Higher
    } else {
        Better::Neither
    }
}

/// The reason why a figure is no result of the system; `None` if it is one.
pub(super) fn no_result(test: &str, metric: &str) -> Option<&'static str> {
    let is = |starts: &[&str]| starts.iter().any(|start| metric.starts_with(start));
    if is(&["authors_"]) {
        Some("a ratio that the authors made of other figures")
    } else if test.starts_with("state-") {
        Some("a value of the set-up, at a moment that is not known")
    } else if is(&["cpu_", "ctx", "majf", "minf"]) {
        Some("a counter of the host's processor and memory")
    } else if is(&["iodepth_share", "submit_share", "complete_share", "latency_target", "latency_window"]) {
        Some("a setting of the tool")
    } else if is(&["issued_", "short_", "dropped_", "io_total", "iops_samples", "bandwidth_samples"]) {
        Some("the procedure sets it: how much was asked for, how often was looked")
    } else {
        None
    }
}

/// A metric's value; `None` if the test does not have it.
pub(super) fn value(metric: &str, unit: &str, measured: &Measured) -> Option<f64> {
    let seconds = measured.elapsed_ns as f64 / Nanos::SECOND as f64;
    let (reads, writes) = (&measured.reads, &measured.writes);
    let per_second = |amount: u64| (seconds > 0.0).then(|| amount as f64 / seconds);
    let rate = |bytes: u64| {
        let divisor = match (metric, unit) {
            ("bandwidth_decimal", "MB/s") => 1e6,
            (_, "KB/s" | "KiB/s") => KIB,
            (_, "MB/s" | "MiB/s") => MIB,
            _ => return None,
        };
        Some(per_second(bytes)? / divisor)
    };
    let time = |ns: f64| match unit {
        "us" => Some(ns / 1e3),
        "ms" => Some(ns / 1e6),
        _ => None,
    };
    let bytes = |bytes: u64| match unit {
        "KB" => Some(bytes as f64 / KIB),
        "MB" => Some(bytes as f64 / MIB),
        _ => None,
    };
    let one_kind = || if reads.count == 0 { writes } else { reads };
    match metric {
        "bandwidth" | "bandwidth_decimal" => rate(reads.bytes + writes.bytes),
        "bandwidth_read" => rate(reads.bytes),
        "bandwidth_write" => rate(writes.bytes),
        "iops" => per_second(reads.count + writes.count),
        "iops_read" => per_second(reads.count),
        "iops_write" => per_second(writes.count),
        "latency_read" => (reads.count > 0).then(|| time(reads.mean_ns)).flatten(),
        "latency_write" => (writes.count > 0).then(|| time(writes.mean_ns)).flatten(),
        "cache_read" => bytes(measured.cache.read_bytes),
        "cache_write" => bytes(measured.cache.written_bytes),
        "data_read" => bytes(measured.origin.read_bytes),
        "data_write" => bytes(measured.origin.written_bytes),
        "dirty" => bytes(measured.dirty_bytes),
        "runtime" => time(measured.elapsed_ns as f64),
        _ => {
            if let Some(of) = metric.strip_prefix("lat_bucket_") {
                one_kind().share(of)
            } else if let Some(of) = metric.strip_prefix("clat_").or_else(|| metric.strip_prefix("lat_")) {
                time(one_kind().value(of)?)
            } else if let Some(of) = metric.strip_prefix("iops_thread_") {
                of_windows(of, &measured.jobs, |_| 1.0)
            } else if let Some(of) = metric.strip_prefix("bandwidth_thread_") {
                let kib = |job: &JobCount| job.bytes as f64 / job.count.max(1) as f64 / KIB;
                of_windows(of, &measured.jobs, kib)
            } else {
                of_processes(metric, measured.processes.as_ref()?)
            }
        }
    }
}

/// fio's statistics of its threads' rates, each in one window; a share is that of a mean thread.
fn of_windows(of: &str, jobs: &[JobCount], scale: impl Fn(&JobCount) -> f64) -> Option<f64> {
    let windows_per_second = Nanos::SECOND as f64 / WINDOW_NS as f64;
    let rates: Vec<f64> = jobs
        .iter()
        .flat_map(|job| {
            let scale = scale(job) * windows_per_second;
            job.windows.iter().map(move |count| f64::from(*count) * scale)
        })
        .collect();
    if rates.is_empty() {
        return None;
    }
    let mean = rates.iter().sum::<f64>() / rates.len() as f64;
    match of {
        "min" => rates.iter().copied().reduce(f64::min),
        "max" => rates.iter().copied().reduce(f64::max),
        "avg" => Some(mean),
        "stdev" => {
            let squares = rates.iter().map(|rate| (rate - mean).powi(2)).sum::<f64>();
            Some((squares / (rates.len().max(2) - 1) as f64).sqrt())
        }
        "share" => Some(100.0 / jobs.len() as f64),
        _ => None,
    }
}

/// iozone's figures of its processes, in records.
fn of_processes(metric: &str, outcome: &iozone::Outcome) -> Option<f64> {
    Some(match metric {
        "children_throughput" => outcome.children_throughput(),
        "parent_throughput" => outcome.parent_throughput(),
        "min_per_process" => outcome.min_per_process(),
        "max_per_process" => outcome.max_per_process(),
        "avg_per_process" | "summary_avg_per_process" => outcome.avg_per_process(),
        "min_xfer" => outcome.min_records() as f64,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(count: u64, elapsed_s: u64, windows: &[u32]) -> JobCount {
        let elapsed_ns = elapsed_s * Nanos::SECOND;
        JobCount { count, bytes: count * 4096, elapsed_ns, windows: windows.to_vec(), in_window: 0 }
    }

    #[test]
    fn rates_of_threads_are_those_of_half_seconds() {
        let jobs = [job(30, 1, &[10, 20]), job(20, 1, &[5, 15])];
        let rate = |of| of_windows(of, &jobs, |_| 1.0);
        assert_eq!((rate("min"), rate("max"), rate("avg")), (Some(10.0), Some(40.0), Some(25.0)));
        assert_eq!(rate("share"), Some(50.0));
        assert!(rate("stdev").is_some_and(|stdev| (stdev - 12.909).abs() < 0.001));
        assert_eq!(of_windows("avg", &[], |_| 1.0), None);
    }

    #[test]
    fn what_is_no_result_has_a_reason_and_all_else_has_none() {
        for (test, metric) in
            [("job1-3", "authors_vs_fastest"), ("state-status-line", "read_hits"), ("clat-64k", "cpu_usr")]
        {
            assert!(no_result(test, metric).is_some(), "{metric}");
        }
        for metric in ["bandwidth", "clat_p99.9", "lat_bucket_10ms", "dirty", "min_xfer", "iops_thread_avg"] {
            assert_eq!(no_result("job1", metric), None, "{metric}");
        }
    }
}
