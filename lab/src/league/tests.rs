//! The league of the published figures alone is the one that is known, and outcomes follow from values.

use super::*;
use crate::study;

/// The rows of a study to which nothing was simulated.
fn published(study: &Study) -> Vec<Row> {
    let outcomes: Vec<study::Outcome> = study.runs.iter().map(|_| None).collect();
    study::rows(study, &outcomes, &|_, _| true)
}

/// Ratios and winners of some rows of each study, as they can be computed from `results.csv` by hand.
#[test]
fn published_winners_are_the_known_ones() {
    let all: Vec<Standing> = study::all().iter().flat_map(|study| league(study, &published(study))).collect();
    assert_eq!(all.len(), 121);
    for (study, label, metric, system, value, hdd, ssd) in [
        ("dm-devel-2016", "A first, 1 job", "bandwidth", "dm-cache", 1154.7, Some(3.27), Some(0.056)),
        ("dm-devel-2016", "E peak, 3 jobs", "bandwidth", "bcache", 23945.0, Some(68.81), Some(0.427)),
        ("enhanceio-2013", "write-through", "latency_read", "dm-cache", 0.24, Some(0.039), Some(0.511)),
        ("enhanceio-2013", "write-back", "bandwidth_write", "dm-cache", 21.52, Some(14.44), Some(0.821)),
        (
            "iozone-2014",
            "mixed-workload",
            "summary_avg_per_process",
            "bcache-writeback",
            610.79,
            Some(11.95),
            Some(0.622),
        ),
        ("mapperx-2021", "random write 64k", "clat_p99.9", "dm-cache-writethrough", 84411.0, None, None),
        ("geomflash-2015", "job3", "bandwidth", "gflash", 390_458.0, Some(2.25), Some(0.784)),
        ("geomflash-2015", "job3, Linux only", "bandwidth", "bcache", 363_789.0, Some(2.10), Some(0.811)),
        ("geomflash-2015", "job12", "bandwidth", "dm-cache", 170_702.0, Some(1.00), Some(0.409)),
        ("geomflash-2015", "job19", "bandwidth_write", "gflash", 145_389.0, None, Some(2.61)),
        ("geomflash-2015", "job20", "bandwidth", "gflash", 196_916.0, None, Some(2.16)),
    ] {
        let is_it = |row: &&Standing| row.study == study && row.label == label && row.metric == metric;
        let row = all.iter().find(is_it).unwrap_or_else(|| panic!("{study} has no {label}"));
        let best = row.published.as_ref().expect("it is published");
        let near = |found: Option<f64>, known: Option<f64>| match (found, known) {
            (Some(found), Some(known)) => (found - known).abs() <= 0.006_f64.max(known * 0.005),
            (None, None) => true,
            _ => false,
        };
        assert_eq!((&*best.system, best.value), (system, value), "{study} {label}");
        assert!(near(best.ratio_hdd, hdd) && near(best.ratio_ssd, ssd), "{study} {label}: {best:?}");
        assert_eq!((row.outcome, row.forebay.is_none()), (None, true), "nothing was simulated");
    }
}

/// One study with values put in by hand.
#[test]
fn an_outcome_goes_by_the_better_of_the_other_two() {
    let study = study::named("enhanceio-2013").expect("it is built in");
    let mut rows = published(&study);
    let mut outcome = |forebay: f64, bcache: f64, native: f64, test: &str, metric: &str| {
        for row in rows.iter_mut().filter(|row| row.metric == metric && row.test == test) {
            row.simulated = match &*row.system {
                "forebay" => Some(forebay),
                "bcache" => Some(bcache),
                _ => None,
            };
            row.native_ssd_simulated = Some(native);
        }
        let standings = league(&study, &rows);
        standings.iter().find(|row| row.test == test && row.metric == metric).and_then(|row| row.outcome)
    };
    let mut of_reads = |forebay, bcache| outcome(forebay, bcache, 235.87, "write-back", "bandwidth_read");
    // dm-cache published 193.76.
    assert_eq!(of_reads(200.0, 100.0), Some(Outcome::Win));
    assert_eq!(of_reads(195.0, 100.0), Some(Outcome::Tie));
    assert_eq!(of_reads(200.0, 230.0), Some(Outcome::Loss));
    assert_eq!(of_reads(150.0, 100.0), Some(Outcome::Loss));
    // The model's SSD is half as fast: so is what counts as good.
    assert_eq!(outcome(100.0, 50.0, 117.9, "write-back", "bandwidth_read"), Some(Outcome::Win));
    // EnhanceIO published 0.34 ms.
    assert_eq!(outcome(0.3, 0.5, 0.47, "write-back", "latency_read"), Some(Outcome::Win));
    assert_eq!(outcome(0.4, 0.5, 0.47, "write-back", "latency_read"), Some(Outcome::Loss));
}

/// A published figure that a cache without costs does not reach either, on the modelled disks.
#[test]
fn what_the_modelled_disks_do_not_give_is_out_of_reach() {
    let study = study::named("enhanceio-2013").expect("it is built in");
    let mut rows = published(&study);
    // dm-cache published 193.76.
    let mut standing = |forebay: f64, bcache: f64, ideal: f64| {
        let is_it = |row: &&mut Row| row.metric == "bandwidth_read" && row.test == "write-back";
        for row in rows.iter_mut().filter(is_it) {
            row.native_ssd_simulated = Some(235.87);
            row.simulated = match &*row.system {
                "forebay" => Some(forebay),
                "bcache" => Some(bcache),
                _ => None,
            };
            let idle = Traffic::default();
            let ideal = study::Ideal { value: ideal, elapsed_ns: 1_500_000_000, cache: idle, origin: idle };
            row.ideal = (row.system == "forebay").then_some(ideal);
        }
        let standings = league(&study, &rows);
        let row =
            standings.into_iter().find(|row| row.test == "write-back" && row.metric == "bandwidth_read");
        row.map(|row| (row.outcome, row.note)).expect("the league has the row")
    };
    let (outcome, note) = standing(150.0, 152.0, 160.0);
    assert_eq!(outcome, Some(Outcome::OutOfReach));
    assert!(
        note.starts_with("a cache that costs nothing gets 0.678: in 1.5 s the disk is busy 0.0 s"),
        "{note}"
    );
    for (forebay, bcache, ideal, why) in [
        (150.0, 100.0, 200.0, "the ideal cache reaches it"),
        (150.0, 156.0, 160.0, "another simulated system is better"),
        (170.0, 100.0, 160.0, "ours is better than the ideal one, which is no bound then"),
    ] {
        assert_eq!(standing(forebay, bcache, ideal), (Some(Outcome::Loss), String::new()), "{why}");
    }
}
