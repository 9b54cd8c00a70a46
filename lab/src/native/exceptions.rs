//! The rows that a model does not meet within 15 %, and why.

/// Rows that a model does not meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exception {
    study: &'static str,
    system: &'static str,
    test: &'static str,
    metrics: &'static [&'static str],
    /// Why.
    pub reason: &'static str,
}

const FREE: &str = "This disk was not as full as its name says: in the study's log it takes 64 GiB in order at 360 MB/s just before \
                    these jobs, and the one on Linux, in the same state, 81 MB/s. Why is not said; the model has one \
                    state for all of its jobs.";
const SSD: &str = "The model's two writers have the whole rate of the flash while two others hardly read; those of the study \
                   had four fifths of it. What the disk did with the rest is not known.";
const SHARE: &str = "How the host's scheduler shared the disk among the processes is in this row, and it is not in the model, \
                     which serves them alike.";
const STEP: &str = "Four streams fall in step with the platter or do not, by where the files lie: in the model the same reading takes a \
                    third less time when it is done again. The mean of both is within 2 % of the study's; how the processes shared \
                    the disk is the host's scheduler's.";
const LAST: &str = "How far the slowest process was when the first one had finished: chance and the host's scheduler decide it.";

/// All of them.
const EXCEPTIONS: [Exception; 7] = [
    Exception {
        study: "geomflash-2015",
        system: "ssd-freebsd-full",
        test: "job20",
        metrics: &["bandwidth", "iops"],
        reason: FREE,
    },
    Exception {
        study: "iozone-2014",
        system: "hdd",
        test: "reader",
        metrics: &[
            "summary_avg_per_process",
            "children_throughput",
            "parent_throughput",
            "max_per_process",
            "avg_per_process",
            "min_xfer",
        ],
        reason: STEP,
    },
    Exception {
        study: "iozone-2014",
        system: "hdd",
        test: "re-reader",
        metrics: &[
            "summary_avg_per_process",
            "children_throughput",
            "parent_throughput",
            "min_per_process",
            "max_per_process",
            "avg_per_process",
            "min_xfer",
        ],
        reason: STEP,
    },
    Exception {
        study: "iozone-2014",
        system: "hdd",
        test: "random-reader",
        metrics: &["min_per_process", "max_per_process", "min_xfer"],
        reason: SHARE,
    },
    Exception {
        study: "iozone-2014",
        system: "hdd",
        test: "mixed-workload",
        metrics: &["min_per_process", "max_per_process", "min_xfer"],
        reason: SHARE,
    },
    Exception {
        study: "iozone-2014",
        system: "ssd",
        test: "mixed-workload",
        metrics: &[
            "summary_avg_per_process",
            "children_throughput",
            "parent_throughput",
            "min_per_process",
            "max_per_process",
            "avg_per_process",
            "min_xfer",
        ],
        reason: SSD,
    },
    Exception {
        study: "iozone-2014",
        system: "ssd",
        test: "initial-writer",
        metrics: &["min_xfer"],
        reason: LAST,
    },
];

/// The exception that a row of a study falls under.
pub(super) fn exception(study: &str, system: &str, test: &str, metric: &str) -> Option<&'static Exception> {
    EXCEPTIONS.iter().find(|exception| {
        exception.study == study
            && exception.system == system
            && exception.test == test
            && exception.metrics.contains(&metric)
    })
}
