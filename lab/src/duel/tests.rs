//! Rows to which figures were put by hand.

use super::*;
use crate::replay::{Backlog, Latency, Moved, share_of_footprint};
use engine::status::Bypasses;

const MIB: u64 = 1 << 20;

/// A replay of 1000 block reads with this time, hits in thousandths, and bytes written to the cache device.
fn outcome(elapsed_ns: u64, hit_blocks: u64, written_bytes: u64) -> Outcome {
    Outcome {
        cache_bytes: 32 * MIB,
        origin_bytes: 1 << 30,
        elapsed_ns,
        requests: 1000,
        errors: 0,
        client_written_bytes: 0,
        hit_blocks,
        miss_blocks: 1000 - hit_blocks,
        hits: hit_blocks,
        misses: 1000 - hit_blocks,
        reads: None,
        writes: None,
        flushes: None,
        cache: Moved { read_bytes: 0, written_bytes },
        origin: Moved { read_bytes: 0, written_bytes: 0 },
        entered_bytes: 0,
        read_bypasses: Bypasses::default(),
        write_bypasses: Bypasses::default(),
        cached_end_bytes: 0,
        backlog: Backlog {
            mean_bytes: 0,
            max_bytes: 0,
            at_end_bytes: 0,
            drain_ns: Some(0),
            drain_origin_written_bytes: 0,
        },
    }
}

fn cell(profile: &str, result: Result<Outcome, String>) -> Cell {
    Cell { profile: profile.to_owned(), mode: WriteMode::Writeback, result }
}

fn row(cells: Vec<Cell>, pace: Pace) -> Row {
    let size = Size { bytes: 32 * MIB, footprint_percents: vec![1] };
    Row::new("some.spc".to_owned(), size, pace, cells, "ours")
}

/// A row of `ours` and others, each with time, hits and bytes.
fn closed(figures: &[(&str, (u64, u64, u64))]) -> Row {
    let cells = figures.iter().map(|(name, (ns, hits, bytes))| cell(name, Ok(outcome(*ns, *hits, *bytes))));
    row(cells.collect(), Pace::Depth(32))
}

#[test]
fn sizes_are_shares_of_the_footprint_and_coincide_at_the_smallest() {
    let percents = [1, 5, 10, 20, 50].map(SizeWanted::Percent);
    let of = |bytes: u64, footprint_percents: &[u64]| Size {
        bytes,
        footprint_percents: footprint_percents.to_vec(),
    };
    assert_eq!(
        sizes(&percents, 400 * MIB),
        [of(32 * MIB, &[1, 5]), of(40 * MIB, &[10]), of(80 * MIB, &[20]), of(200 * MIB, &[50])]
    );
    assert_eq!(sizes(&percents, 4096), [of(32 * MIB, &[1, 5, 10, 20, 50])], "a small trace has one size");
    assert_eq!(share_of_footprint(401 * MIB, 10), 41 * MIB, "whole MiB");
    let mixed = [SizeWanted::Bytes(80 * MIB), SizeWanted::Percent(20), SizeWanted::Bytes(64 * MIB)];
    assert_eq!(sizes(&mixed, 400 * MIB), [of(64 * MIB, &[]), of(80 * MIB, &[20])], "the smallest first");
}

#[test]
fn the_fastest_wins_and_so_does_who_is_within_two_percent() {
    for (ours, theirs, outcome) in [
        (900, 1000, TimeOutcome::Fastest),
        (1000, 1000, TimeOutcome::Fastest),
        (1001, 1000, TimeOutcome::Near),
        (1020, 1000, TimeOutcome::Near),
        (1021, 1000, TimeOutcome::Slower),
    ] {
        let row = closed(&[("slow", (5000, 0, 0)), ("ours", (ours, 0, 0)), ("fast", (theirs, 0, 0))]).time;
        assert_eq!((row.outcome, row.rival.as_deref()), (outcome, Some("fast")), "{ours} to {theirs}");
        assert_eq!(row.ratio, Some(ours as f64 / theirs as f64));
    }
    let alone = closed(&[("ours", (1, 0, 0))]).time;
    assert_eq!((alone.outcome, alone.rival), (TimeOutcome::Fastest, None));
    let tied = closed(&[("ours", (9, 0, 0)), ("one", (7, 0, 0)), ("two", (7, 0, 0))]).time;
    assert_eq!(tied.rival.as_deref(), Some("one"), "of two equals the first is named");
}

#[test]
fn an_open_loop_is_judged_by_what_clients_waited() {
    let with = |elapsed_ns, read_ns, write_ns| {
        let latency =
            |count, ns| Some(Latency { count, mean_ns: ns, p50_ns: ns, p99_ns: ns, p999_ns: ns, max_ns: ns });
        Outcome { reads: latency(3, read_ns), writes: latency(1, write_ns), ..outcome(elapsed_ns, 0, 0) }
    };
    let cells = vec![cell("ours", Ok(with(1000, 100, 500))), cell("other", Ok(with(1001, 100, 100)))];
    let open = row(cells.clone(), Pace::Timed).time;
    assert_eq!((open.outcome, open.ratio), (TimeOutcome::Slower, Some(2.0)), "200 to 100 ns");
    assert_eq!(open.measure, Measure::MeanLatencyNs);
    let closed = row(cells, Pace::Depth(4)).time;
    assert_eq!((closed.outcome, closed.measure), (TimeOutcome::Fastest, Measure::VirtualSeconds));
    assert_eq!(outcome(1, 0, 0).mean_latency_ns(), None);
}

#[test]
fn wear_is_compared_with_who_hits_as_much() {
    let of = |ours: (u64, u64), others: &[(&'static str, (u64, u64))]| {
        let mut figures = vec![("ours", (1, ours.0, ours.1))];
        figures.extend(others.iter().map(|&(name, (hits, bytes))| (name, (1, hits, bytes))));
        let wear = closed(&figures).wear;
        (wear.outcome, wear.rival, wear.rival_written_bytes)
    };
    let rival = |name: &str, bytes| (Some(name.to_owned()), Some(bytes));
    let (name, bytes) = rival("same", 90);
    assert_eq!(of((500, 100), &[("less", (449, 10)), ("same", (450, 90))]), (WearOutcome::More, name, bytes));
    let (name, bytes) = rival("same", 100);
    assert_eq!(of((500, 100), &[("same", (500, 100))]), (WearOutcome::NoMore, name, bytes), "a tie is won");
    let (name, bytes) = rival("better", 99);
    assert_eq!(
        of((500, 100), &[("better", (999, 99)), ("same", (500, 101))]),
        (WearOutcome::More, name, bytes),
        "who hits far more and writes less wears less"
    );
    assert_eq!(
        of((500, 100), &[("less", (449, 0))]),
        (WearOutcome::NoMore, None, None),
        "5 points and more below"
    );
    let idle = closed(&[("ours", (1, 20, 1)), ("idle", (1, 0, 0))]).wear;
    assert_eq!((idle.outcome, idle.ratio), (WearOutcome::More, None), "nothing is less than anything");
}

#[test]
fn who_only_writes_is_compared_with_all_others() {
    let no_reads = |bytes| Outcome { miss_blocks: 0, ..outcome(1, 0, bytes) };
    let cells = vec![cell("ours", Ok(no_reads(7))), cell("other", Ok(no_reads(5)))];
    assert_eq!(row(cells, Pace::Depth(1)).wear.rival_written_bytes, Some(5));
}

#[test]
fn who_has_no_figures_loses_and_is_no_rival() {
    let lack = || Err("it does not fit".to_owned());
    let failing = || Ok(Outcome { errors: 1, ..outcome(1, 1000, 0) });
    let sound = || Ok(outcome(50, 0, 50));
    let lost = row(vec![cell("ours", lack()), cell("other", sound())], Pace::Depth(1));
    assert_eq!((lost.time.outcome, lost.wear.outcome), (TimeOutcome::NotRun, WearOutcome::NotRun));
    let failed = row(vec![cell("ours", failing()), cell("other", sound())], Pace::Depth(1));
    assert_eq!(failed.time.outcome, TimeOutcome::NotRun, "requests that fail fast win nothing");
    let cells = vec![cell("ours", sound()), cell("lack", lack()), cell("failing", failing())];
    let won = row(cells, Pace::Depth(1));
    assert_eq!((won.time.rival.as_deref(), won.wear.rival.as_deref()), (None, None));
    let rows = [lost, failed, won, closed(&[("ours", (51, 0, 2)), ("other", (50, 0, 1))])];
    let expected = Summary {
        rows: 4,
        time: TimeTally { tally: Tally { won: 2, lost: 2 }, fastest: 1 },
        wear: Tally { won: 1, lost: 3 },
    };
    assert_eq!(summary(&rows), expected);
    assert_eq!(
        expected.to_string(),
        "4 rows; time: 2 won (1 fastest, 1 within 2 %), 2 lost; wear: 1 won, 3 lost"
    );
}

#[test]
fn verdicts_are_sentences() {
    let of = |ours, theirs| closed(&[("ours", (ours, 0, ours)), ("other", (theirs, 0, theirs))]);
    let said = |row: Row| [row.time.to_string(), row.wear.to_string()];
    assert_eq!(
        said(of(100, 125)),
        ["fastest, 20.0 % less than other", "no more, 0.80 times what other writes"]
    );
    assert_eq!(said(of(1010, 1000))[0], "within 2 %, 1.0 % more than other");
    assert_eq!(said(of(150, 100)), ["slower, 50.0 % more than other", "more, 1.50 times what other writes"]);
}
