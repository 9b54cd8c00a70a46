//! `lab duel` with traces of a few lines.

use crate::scene::Place;
use serde_json::Value;

/// Reads of 1000 blocks four times over, one request a millisecond, as SPC has them; every eleventh writes.
fn timed() -> String {
    let line = |at: u64| {
        let op = if at % 11 == 10 { 'w' } else { 'r' };
        format!("0,{},4096,{op},{}.{:03}\n", at % 1000 * 8, at / 1000, at % 1000)
    };
    (0..4000).map(line).collect()
}

/// Reads of 20 000 blocks, one after the other, twice.
fn untimed() -> String {
    (0..40_000).map(|at| format!("{}\n", at % 20_000)).collect()
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).expect("JSON")
}

fn written(place: &Place, name: &str, text: &str) -> String {
    let path = place.path(name);
    std::fs::write(&path, text).expect("a file for the test");
    path.to_str().expect("a plain path").to_owned()
}

fn array(value: &Value) -> &[Value] {
    value.as_array().expect("a list")
}

#[test]
fn every_trace_size_and_loop_has_a_row_with_two_verdicts() {
    let place = Place::new();
    let (one, two) = (written(&place, "one.spc", &timed()), written(&place, "two.trace", &untimed()));
    let page = place.path("page.html");
    let html = page.to_str().expect("a plain path");
    let what =
        ["lab", "duel", &one, &two, "--profiles", "flashcache,forebay", "--sizes", "1,50,100,64M", "--json"];
    let report = json(&place.done(&[&what[..], &["--depth", "8", "--html", html]].concat()));
    assert_eq!(
        (&report["contender"], &report["profiles"]),
        (&"forebay".into(), &["flashcache", "forebay"][..].into())
    );
    assert_eq!(array(&report["traces"])[1]["footprint_bytes"].as_u64(), Some(20_000 * 4096));
    let rows = array(&report["rows"]);
    let keys: Vec<_> = rows
        .iter()
        .map(|row| {
            let name = row["file"].as_str().and_then(|file| file.rsplit('/').next()).expect("a name");
            let mib = row["cache_bytes"].as_u64().expect("bytes") >> 20;
            (name, row["loop"].as_str().expect("a loop"), mib, row["footprint_percents"].to_string())
        })
        .collect();
    let key = |name, pace, mib, percents: &str| (name, pace, mib, percents.to_owned());
    assert_eq!(
        keys,
        [
            key("one.spc", "open", 32, "[1,50,100]"),
            key("one.spc", "open", 64, "[]"),
            key("one.spc", "closed", 32, "[1,50,100]"),
            key("one.spc", "closed", 64, "[]"),
            key("two.trace", "closed", 32, "[1]"),
            key("two.trace", "closed", 40, "[50]"),
            key("two.trace", "closed", 64, "[]"),
            key("two.trace", "closed", 79, "[100]"),
        ],
        "sizes that coincide are one row, and a trace without times has no open loop"
    );
    for row in rows {
        let is_open = row["loop"] == "open";
        assert_eq!((row["depth"].as_u64(), array(&row["runs"]).len()), ((!is_open).then_some(8), 2));
        let measure = if is_open { "mean_latency_ns" } else { "virtual_seconds" };
        assert_eq!((&row["time"]["measure"], &row["time"]["rival"]), (&measure.into(), &"flashcache".into()));
        let [theirs, ours] = [0, 1].map(|at| row["runs"][at][measure].as_f64().expect("a figure"));
        assert!((row["time"]["ratio"].as_f64().expect("a ratio") - ours / theirs).abs() < 1e-9, "{row}");
        let is_won = row["time"]["outcome"] != "slower";
        assert_eq!(is_won, ours <= theirs * 1.02, "{row}");
        for run in array(&row["runs"]) {
            assert_eq!((run["errors"].as_u64(), run["reason"].is_null()), (Some(0), true), "{run}");
            assert!(run["read_latency"]["p99_ns"].as_u64() > Some(0) && run["cache_written_bytes"].is_u64());
        }
    }
    let tally = |of: &str| ["won", "lost"].map(|what| report["summary"][of][what].as_u64().expect("rows"));
    let won = rows.iter().filter(|row| row["time"]["outcome"] != "slower").count() as u64;
    assert_eq!((report["summary"]["rows"].as_u64(), tally("time")), (Some(8), [won, 8 - won]));
    assert_eq!(tally("wear").iter().sum::<u64>(), 8);
    let page = std::fs::read_to_string(&page).expect("it was written");
    assert!(page.starts_with("<!doctype html>") && page.contains("two.trace, closed loop, 8 under way"));
    assert_eq!(page.matches("<svg").count(), 3 * 5, "five pictures for each trace and loop");
    // However many at a time, they come in their order and with the same figures.
    assert_eq!(json(&place.done(&[&what[..], &["--depth", "8", "--threads", "1"]].concat())), report);
}

#[test]
fn all_systems_at_their_newest_era_meet_the_contender() {
    let place = Place::new();
    let trace = written(&place, "one.spc", &timed());
    let own = "name = \"mine\"\ndescription = \"nothing is appended again\"\nextends = \"forebay\"\n[tunables]\nlaps_max = 0\n";
    let own = written(&place, "mine.toml", own);
    let what = ["lab", "duel", &trace, "--contender", &own, "--requests", "300", "--loop", "closed"];
    let report = json(&place.done(&[&what[..], &["--json"]].concat()));
    let expected = ["forebay", "dm-cache", "bcache", "enhanceio", "flashcache", "gflash", "mapperx", "mine"];
    assert_eq!(report["profiles"], Value::from(&expected[..]));
    assert_eq!((report["contender"].as_str(), array(&report["rows"]).len()), (Some("mine"), 1));
    let runs = array(&report["rows"][0]["runs"]);
    assert!(runs.iter().all(|run| run["requests"].as_u64() == Some(300)), "{runs:?}");
    let text = place.done(&what);
    for words in [
        "cache of 32 MiB (1, 5, 10, 20, 50 %), closed loop, 32",
        "dm-cache (writeback)",
        "\n  time: ",
        "\n  wear: ",
        "1 rows; ",
    ] {
        assert!(text.contains(words), "{words} is missing in {text}");
    }
}

#[test]
fn a_profile_that_does_not_fit_has_the_reason_and_ends_nothing() {
    let place = Place::new();
    let trace = written(&place, "one.trace", "1\n2\n");
    let wide = "name = \"wide\"\ndescription = \"a set is larger than the cache\"\nextends = \"flashcache\"\n[tunables]\nways = 8192\n";
    let wide = written(&place, "wide.toml", wide);
    let of = |contender: &str| {
        let what = ["lab", "duel", &trace, "--profiles", &wide, "--contender", contender, "--json"];
        json(&place.done(&what))
    };
    let report = of("forebay");
    let row = &report["rows"][0];
    let lacking = &row["runs"][0];
    assert_eq!((&lacking["profile"], &lacking["virtual_seconds"]), (&"wide".into(), &Value::Null));
    assert!(lacking["reason"].as_str().is_some_and(|reason| reason.contains("33554432")), "{lacking}");
    assert!(row["runs"][1]["reason"].is_null() && row["runs"][1]["virtual_seconds"].is_f64(), "{row}");
    assert_eq!((&row["time"]["outcome"], &row["time"]["rival"]), (&"fastest".into(), &Value::Null));
    let report = of(&wide);
    let row = &report["rows"][0];
    assert_eq!((&row["time"]["outcome"], &row["wear"]["outcome"]), (&"not_run".into(), &"not_run".into()));
    assert_eq!(report["summary"]["time"]["lost"].as_u64(), Some(1), "who has no figures wins nothing");
}

#[test]
fn what_is_wrong_with_a_duel_is_one_line() {
    let place = Place::new();
    let (good, bad) =
        (written(&place, "good.trace", "1\n2\n"), written(&place, "bad.spc", "0,1,512,r,0\nx\n"));
    let empty = written(&place, "empty.spc", "");
    place.refused(&["lab", "duel"], 2, &["TRACE"]);
    place.refused(&["lab", "duel", &good, "/no/such.spc"], 1, &["such.spc", "cannot be read"]);
    place.refused(&["lab", "duel", &good, &bad], 1, &["bad.spc, line 2"]);
    place.refused(&["lab", "duel", &empty], 1, &["empty.spc", "no requests"]);
    place.refused(&["lab", "duel", "some.fio"], 1, &["some.fio", "lab trace"]);
    place.refused(&["lab", "duel", &good, "--profiles", "forebay,nobody"], 2, &["nobody", "mapperx"]);
    place.refused(&["lab", "duel", &good, "--contender", "nobody"], 2, &["nobody", "mapperx"]);
    place.refused(&["lab", "duel", &good, "--contender", "/no/such.toml"], 1, &["such.toml"]);
    place.refused(&["lab", "duel", &good, "--sizes", "5,0"], 2, &["--sizes", "1 to 100"]);
    place.refused(&["lab", "duel", &good, "--sizes", "101"], 2, &["--sizes", "1 to 100", "64M"]);
    place.refused(&["lab", "duel", &good, "--sizes", "16M"], 2, &["--sizes", "32 MiB"]);
    place.refused(&["lab", "duel", &good, "--loop", "round"], 2, &["--loop", "open, closed, both"]);
    place.refused(&["lab", "duel", &good, "--loop", "open"], 1, &["good.trace", "no times"]);
    place.refused(&["lab", "duel", &good, "--loop", "open", "--depth", "4"], 1, &["--depth"]);
    place.refused(
        &["lab", "duel", &good, "--html", "/no/such/page.html"],
        1,
        &["page.html", "cannot be written"],
    );
    let twin = written(
        &place,
        "twin.toml",
        "name = \"forebay\"\ndescription = \"x\"\nextends = \"forebay\"\n[tunables]\nlaps_max = 0\n",
    );
    place.refused(
        &["lab", "duel", &good, "--profiles", &format!("forebay,{twin}")],
        1,
        &["two profiles", "forebay"],
    );
}
