//! Studies: every published figure comes through unchanged, procedures do what they say, and files that are wrong say where.

use engine::composition::Composition;
use forebay_lab::study::{self, Measured, Outcome, Runner, Study, Subject};
use std::collections::BTreeMap;

/// A small study in the form of the large ones: two repetitions of a test on files that are laid out, one on them after
/// the cache was cleared, one after a copy; and a mix.
const SMALL: &str = r#"
id = "small"
title = "small"
year = 2026
source = "here"
summary = "none"
assumptions = []
fidelity = ["bandwidth"]
ranking = ["bandwidth"]

[[device]]
name = "hdd"
model = "hdd"
size_bytes = 1_073_741_824

[[device]]
name = "ssd"
model = "ssd"
size_bytes = 134_217_728

[[run]]
system = "forebay"
profile = "forebay"
is_safe = true
mode = "writeback"
cache = "ssd"
origin = "hdd"
procedure = "cached"

[[run]]
system = "hdd"
native = "hdd"
procedure = "native"

[[base]]
hdd = "first"

[[procedure]]
name = "cached"
pause_s = 1
files = [
    { name = "set/job.0.0", size_bytes = 33_554_432 },
    { name = "copy/job.0.0", size_bytes = 33_554_432 },
]
common = """
ioengine=libaio
rw=randread
bs=4k
size=32m
runtime=2
"""

[[procedure.step]]
test = "laid-out"
lays_out = true
fio = """
[job]
directory=set
"""

[[procedure.step]]
clears_cache = true

[[procedure.step]]
test = "cleared"
iterations = [1, 2]
fio = """
[job]
directory=set
"""

[[procedure.step]]
writes = "copy"

[[procedure.step]]
copy = { from = "set", to = "copy" }

[[procedure.step]]
test = "copied"
fio = """
[job]
directory=copy
"""

[[procedure.step]]
test = "mixed"
fio = """
[job]
directory=set
rw=randrw
rwmixread=70
iodepth=4
numjobs=1
"""

[[procedure]]
name = "native"
common = """
ioengine=libaio
rw=randread
bs=4k
size=32m
runtime=2
filename=volume
"""

[[procedure.step]]
test = "first"
fio = """
[job]
"""
"#;

const FIGURES: &str = "study,test,iteration,numjobs,system,metric,unit,value\n\
small,cleared,1,1,other,bandwidth,KB/s,353.06\n\
small,cleared,2,1,other,bandwidth,KB/s,700\n\
small,laid-out,,1,other,bandwidth,KB/s,1000\n\
small,laid-out,,1,other,authors_vs_fastest,%,12\n\
small,first,,1,hdd,bandwidth,KB/s,400\n";

fn small() -> Study {
    Study::read("small/study.toml", SMALL, "small/results.csv", FIGURES).expect("it is a study")
}

fn carry_out(study: &Study, system: &str, is_wanted: &dyn Fn(&str) -> bool) -> Vec<Measured> {
    let run = study.runs.iter().find(|run| run.system == system).expect("it is a system");
    let composition = run.compose(Composition::plain_log()).expect("nothing is changed");
    let runner = Runner::new(study, run, Some(&composition)).expect("it can be run");
    runner.carry_out(is_wanted, &mut |_, _| ()).expect("nothing goes wrong")
}

/// KiB read in a second.
fn read_rate(measured: &[Measured], test: &str, iteration: &str) -> f64 {
    let is_it = |one: &&Measured| one.test == test && one.iteration == iteration;
    let one = measured.iter().find(is_it).expect("it was measured");
    one.reads.bytes as f64 / 1024.0 * 1e9 / one.elapsed_ns as f64
}

/// Goal: what was published comes through unchanged, once. Method: the tables of all studies against their files, with
/// and without simulated values.
#[test]
fn every_published_figure_has_one_row() {
    let mut figures = 0;
    for study in study::all() {
        for outcome in [None, Some(Err("a reason".to_owned()))] {
            let outcomes: Vec<Outcome> = study.runs.iter().map(|_| outcome.clone()).collect();
            let rows = study::rows(&study, &outcomes, &|_, _| true);
            let mut published = BTreeMap::new();
            for row in rows.iter().filter(|row| row.published.is_some()) {
                let key = (&row.test, &row.iteration, &row.numjobs, &row.system, &row.metric, &row.unit);
                assert!(published.insert(key, row.published).is_none(), "{key:?} comes twice");
                assert!(row.simulated.is_none() && row.reason.is_some(), "{key:?}");
                assert_eq!(row.study, study.id);
            }
            assert_eq!(published.len(), study.figures.len(), "{}", study.id);
            for one in &study.figures {
                let key = (&one.test, &one.iteration, &one.numjobs, &one.system, &one.metric, &one.unit);
                assert_eq!(published.get(&key), Some(&Some(one.value)), "{key:?}");
            }
            let ours = rows.iter().filter(|row| row.system == "forebay").count();
            assert!(ours > 0 && rows.len() > study.figures.len(), "{}", study.id);
        }
        figures += study.figures.len();
        for run in study.runs.iter().filter(|run| matches!(run.subject, Subject::Cache { .. })) {
            assert!(study.steps(run) > 0, "{}: {} does nothing", study.id, run.system);
        }
    }
    assert_eq!(figures, 1879);
}

/// Goal: a table's every figure is a result of some procedure, or says why not. Method: names of tests and metrics.
#[test]
fn every_result_has_a_procedure() {
    for study in study::all() {
        let outcomes: Vec<Outcome> = study.runs.iter().map(|_| None).collect();
        for row in study::rows(&study, &outcomes, &|_, _| true) {
            let reason = row.reason.expect("nothing was run");
            assert!(!reason.starts_with("no procedure"), "{}: {reason}", study.id);
        }
        for metric in study.fidelity.iter().chain(&study.ranking) {
            assert!(study.figures.iter().any(|figure| figure.metric == *metric), "{} {metric}", study.id);
        }
        for study::Deviation { system, tests, metrics, .. } in &study.deviations {
            let has = |of: &dyn Fn(&study::Figure) -> bool| {
                study.figures.iter().any(|figure| figure.system == *system && of(figure))
            };
            assert!(has(&|_| true), "{} {system}", study.id);
            assert!(tests.iter().all(|test| has(&|figure| figure.test == *test)), "{} {tests:?}", study.id);
            let is_compared = |metric: &String| study.fidelity.contains(metric);
            assert!(metrics.iter().all(is_compared), "{} {metrics:?}", study.id);
        }
        for plot in &study.plots {
            let is_shown = |test: &String| study.figures.iter().any(|figure| figure.test == *test);
            assert!(plot.tests.iter().all(is_shown), "{} {}", study.id, plot.title);
        }
    }
}

#[test]
fn state_is_carried_from_step_to_step() {
    let study = small();
    let measured = carry_out(&study, "forebay", &|_| true);
    let of = |test: &str, iteration: &str| read_rate(&measured, test, iteration);
    let names: Vec<(&str, &str)> = measured.iter().map(|one| (&*one.test, &*one.iteration)).collect();
    assert_eq!(names, [("laid-out", ""), ("cleared", "1"), ("cleared", "2"), ("copied", ""), ("mixed", "")]);
    // What was laid out is in the cache; a cleared one has nothing; the second run asks for the same blocks.
    assert!(of("laid-out", "") > 10.0 * of("cleared", "1"), "{} {}", of("laid-out", ""), of("cleared", "1"));
    assert!(of("cleared", "2") > 1.5 * of("cleared", "1"), "{} {}", of("cleared", "2"), of("cleared", "1"));
    assert!(of("copied", "") > 10.0 * of("cleared", "1"), "what was copied was written through the cache");
    let again = carry_out(&study, "forebay", &|_| true);
    assert_eq!(format!("{measured:?}"), format!("{again:?}"), "the same each time");
}

#[test]
fn only_what_a_wanted_test_needs_is_run() {
    let study = small();
    let first = carry_out(&study, "forebay", &|test| test == "laid-out");
    assert_eq!(first.len(), 1);
    let all = carry_out(&study, "forebay", &|_| true);
    assert_eq!(format!("{:?}", first[0]), format!("{:?}", all[0]));
}

#[test]
fn a_bare_disk_gives_the_base() {
    let study = small();
    let native = carry_out(&study, "hdd", &|_| true);
    let outcomes: Vec<Outcome> =
        study.runs.iter().map(|run| (run.system == "hdd").then(|| Ok(native.clone()))).collect();
    let rows = study::rows(&study, &outcomes, &|_, _| true);
    let bare = rows.iter().find(|row| row.system == "hdd").expect("it has a row");
    assert!(bare.is_native && bare.published == Some(400.0));
    let simulated = bare.simulated.expect("it was run");
    assert!((100.0..2000.0).contains(&simulated), "a seek for each 4 KiB: {simulated} KB/s");
    let other =
        rows.iter().find(|row| row.system == "other" && row.test == "laid-out").expect("it has a row");
    assert_eq!((other.native_hdd, other.native_hdd_simulated), (Some(400.0), Some(simulated)));
    assert_eq!((other.native_ssd, other.simulated), (None, None));
}

/// The small study, in which one system is given some time for each request, by a cell of its own.
fn with_overhead(kind: &str, us: u32) -> Study {
    let overhead = format!(
        "[run.overhead.{kind}]\nus = {us}\ntest = \"laid-out\"\nnumjobs = \"1\"\nmetrics = [\"bandwidth\"]\n\n[[run]]\n\
         system = \"hdd\""
    );
    let text = SMALL.replacen("[[run]]\nsystem = \"hdd\"", &overhead, 1);
    let text = text.replacen("system = \"forebay\"", "system = \"other\"", 1);
    Study::read("small/study.toml", &text, "small/results.csv", FIGURES).expect("it is a study")
}

#[test]
fn an_overhead_is_added_to_each_answer() {
    let time_us = |study: &Study| {
        let measured = carry_out(study, "other", &|test| test == "laid-out");
        measured[0].elapsed_ns / 1000 / measured[0].reads.count
    };
    let without = time_us(&with_overhead("read", 0));
    let with = time_us(&with_overhead("read", 500));
    assert!((498..=502).contains(&(with - without)), "{without} {with}");
    let of_writes = time_us(&with_overhead("write", 500));
    assert!(of_writes.abs_diff(without) <= 2, "reads do not wait for writes: {without} {of_writes}");
}

#[test]
fn what_was_fitted_to_is_marked_and_left_out_of_the_fidelity() {
    let study = with_overhead("read", 500);
    let outcomes: Vec<Outcome> = study.runs.iter().map(|_| None).collect();
    let mut rows = study::rows(&study, &outcomes, &|_, _| true);
    for row in &mut rows {
        row.simulated = row.published;
    }
    let told: Vec<(&str, bool, Option<u32>)> = rows
        .iter()
        .filter(|row| row.metric == "bandwidth")
        .map(|row| (&*row.test, row.is_fitted, row.overhead_read_us))
        .collect();
    let other = Some(500);
    assert_eq!(
        told,
        [
            ("cleared", false, other),
            ("cleared", false, other),
            ("laid-out", true, other),
            ("first", false, None)
        ]
    );
    let fidelity = study::fidelity(&study, &rows);
    assert_eq!(fidelity[0].cells, 2, "{fidelity:?}");
    assert_eq!(
        study.runs[0].overhead.read.as_ref().map(study::Fitted::cell).as_deref(),
        Some("bandwidth of laid-out, jobs 1")
    );
}

#[test]
fn a_profile_that_cannot_run_says_what_is_lacking() {
    let study = small();
    let mut composition = Composition::plain_log();
    composition.set("readahead_bytes", "4096").expect("it is in range");
    let error = Runner::new(&study, &study.runs[0], Some(&composition)).err().expect("nothing reads ahead");
    assert_eq!(error.to_string(), "this version cannot run readahead_bytes = 4096 yet");
}

#[test]
fn what_is_wrong_has_a_line() {
    let read = |text: &str, figures: &str| {
        Study::read("s.toml", text, "r.csv", figures).expect_err("something is wrong").to_string()
    };
    for (from, to, told) in [
        ("model = \"hdd\"", "model = \"tape\"", "s.toml:13: there is no modelled disk tape"),
        ("cache = \"ssd\"", "cache = \"nvme\"", "s.toml:26: there is no device nvme"),
        ("mode = \"writeback\"", "mode = \"fast\"", "s.toml:25: there is no mode fast"),
        ("year = 2026", "year = \"now\"", "s.toml:4: invalid type: string \"now\", expected u32"),
        ("rw=randrw", "rw=upwards", "s.toml:90: rw: the value \"upwards\" is not known"),
        ("procedure = \"native\"", "procedure = \"none\"", "s.toml:33: there is no procedure none"),
        ("clears_cache = true", "clears_cache = false", "a step has one of"),
        ("directory=copy", "directory=elsewhere", "there is no file elsewhere/job.0.0"),
        ("writes = \"copy\"", "writes = \"nowhere\"", "there is no file in nowhere"),
        ("to = \"copy\"", "to = \"nowhere\"", "there are as many copies as files"),
        ("iterations = [1, 2]", "iterations = [2, 1]", "repetitions are counted from 1 upwards"),
    ] {
        assert!(SMALL.contains(from), "{from}");
        let found = read(&SMALL.replacen(from, to, 1), FIGURES);
        assert!(found.contains(told) && found.starts_with("s.toml:"), "{found}, not {told}");
        assert!(!found.contains('\n'), "{found}");
    }
    let overhead = "overhead = { read = { us = 5, test = \"none\", metrics = [\"bandwidth\"] } }\nprocedure = \"cached\"";
    let found = read(&SMALL.replacen("procedure = \"cached\"", overhead, 1), FIGURES);
    assert_eq!(found, "s.toml:28: there is no published bandwidth of forebay in none");
    for (figures, told) in [
        ("", "r.csv:1: the first line must be study,test,"),
        (&FIGURES.replace("353.06", "much"), "r.csv:2: the value is no number"),
        (&FIGURES.replace("small,first,", "large,first,"), "r.csv:6: the study is large, not small"),
        (&FIGURES.replace(",%,12", ",12"), "r.csv:5: there are 7 fields, not 8"),
    ] {
        let found = read(SMALL, figures);
        assert!(found.starts_with(told), "{found}, not {told}");
    }
}

/// The shortest of the published procedures, on our own cache.
#[test]
fn a_published_procedure_runs() {
    let study = study::named("mapperx-2021").expect("it is built in");
    let run =
        study.runs.iter().find(|run| run.system == "forebay" && run.procedure == "256k").expect("it is run");
    let composition = run.compose(Composition::forebay()).expect("nothing is changed");
    let runner = Runner::new(&study, run, Some(&composition)).expect("it can be run");
    let measured = runner.carry_out(&|_| true, &mut |_, _| ()).expect("nothing goes wrong");
    // 50 threads of 100 MiB, 256 KiB each time.
    assert_eq!(measured.len(), 2);
    for one in &measured {
        assert_eq!((one.writes.count, one.writes.bytes), (20_000, 20_000 << 18));
        assert_eq!((&*one.numjobs, one.reads.count), ("50", 0));
    }
}
