//! `lab study` and `studies` on the command line.

use crate::scene::Place;
use serde_json::Value;

fn json(text: &str) -> Value {
    serde_json::from_str(text).expect("JSON")
}

#[test]
fn studies_are_listed() {
    let place = Place::new();
    let listing = json(&place.done(&["studies", "--json"]));
    let studies = listing["studies"].as_array().expect("studies");
    assert_eq!(studies.len(), 5);
    assert!(studies.iter().all(|study| study["figures"].as_u64() > Some(30)));
    assert!(place.done(&["studies"]).contains("geomflash-2015"));
}

#[test]
fn a_test_of_a_study_is_run_and_reported() {
    let place = Place::new();
    let pages = place.path("pages");
    let pages_path = pages.to_str().expect("a plain path");
    let what = ["lab", "study", "mapperx-2021", "--system", "forebay", "--test", "clat-256k"];
    let report =
        json(&place.done(&[&what[..], &["--json", "--report", pages_path, "--threads", "2"]].concat()));
    let rows = report["rows"].as_array().expect("rows");
    assert!(!rows.is_empty());
    for row in rows {
        assert!(row["system"].as_str().is_some_and(|system| system.starts_with("forebay")), "{row}");
        assert_eq!((row["test"].as_str(), row["published"].is_null()), (Some("clat-256k"), true), "{row}");
        assert!(row["simulated"].as_f64().is_some_and(|value| value > 0.0), "{row}");
    }
    for file in ["index.html", "mapperx-2021.html"] {
        let page = std::fs::read_to_string(pages.join(file)).expect("a page");
        assert!(page.starts_with("<!doctype html>") && page.contains("--test clat-256k"), "{file}");
    }
    let text = place.done(&what);
    assert!(text.contains("clat_p99"), "{text}");
}

#[test]
fn unknown_names_are_one_line_that_lists_the_known_ones() {
    let place = Place::new();
    for (arguments, told) in [
        (&["lab", "study", "nothing-1999"][..], "there is no study nothing-1999; there are enhanceio-2013"),
        (
            &["lab", "study", "iozone-2014", "--system", "zfs"],
            "there is no system zfs; there are bcache-default",
        ),
        (&["lab", "study", "iozone-2014", "--test", "A"], "there is no test A; there are initial-writer"),
    ] {
        place.refused(arguments, 1, &[told]);
    }
    let directory = place.path("own");
    std::fs::create_dir(&directory).expect("a directory for the test");
    std::fs::write(directory.join("study.toml"), "id = 3\n").expect("a file for the test");
    std::fs::write(directory.join("results.csv"), "").expect("a file for the test");
    place.refused(&["lab", "study", directory.to_str().expect("a plain path")], 1, &["study.toml:1: "]);
}

#[test]
fn recovery_is_measured_by_profile_and_size() {
    let place = Place::new();
    let bench = ["lab", "bench", "--recovery", "--cache-size", "64M", "--profile"];
    for profile in ["forebay", "bcache", "flashcache"] {
        let rows = json(&place.done(&[&bench[..], &[profile, "--json"]].concat()));
        let of_state = |state: &str| {
            let mut rows = rows.as_array().expect("rows").iter();
            rows.find(|row| row["state"] == state).unwrap_or_else(|| panic!("{profile} has no row {state}"))
        };
        let [empty, written] = ["empty", "written"].map(of_state);
        assert!(empty["dirty_bytes"] == 0 && empty["device_seconds"].as_f64() > Some(0.0), "{empty}");
        assert!(written["dirty_bytes"].as_u64() > Some(1 << 20), "{written}");
        let seconds = |what: &str| written[what].as_f64().expect("seconds");
        let parts = seconds("device_seconds") + seconds("processor_seconds");
        assert!((seconds("served_seconds") - parts).abs() < 1e-6, "{written}");
    }
    place.refused(&["lab", "bench", "--profile", "forebay"], 2, &["--recovery"]);
    place.refused(&["lab", "bench", "--recovery", "--order"], 2, &["--order"]);
}
