//! `lab trace` and `lab advise` with traces of a few lines.

use crate::scene::Place;
use serde_json::Value;

/// Reads of 1000 blocks ten times over, and a write to each, one request a millisecond, as SPC has them.
fn trace() -> String {
    let line = |at: u64| {
        let op = if at % 11 == 10 { 'w' } else { 'r' };
        format!("0,{},4096,{op},{}.{:03}\n", at % 1000 * 8, at / 1000, at % 1000)
    };
    (0..11_000).map(line).collect()
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).expect("JSON")
}

#[test]
fn a_trace_is_replayed_on_each_size() {
    let place = Place::new();
    let path = place.path("some.spc");
    std::fs::write(&path, trace()).expect("a file for the test");
    let file = path.to_str().expect("a plain path");
    let sizes = ["--cache-size", "32M", "--cache-size", "64M"];
    let report = json(&place.done(&[&["lab", "trace", file, "--json", "--timed"], &sizes[..]].concat()));
    assert_eq!((report["trace"]["requests"].as_u64(), report["depth"].as_u64()), (Some(11_000), None));
    let runs = report["runs"].as_array().expect("runs");
    assert_eq!(runs.len(), 2);
    for run in runs {
        assert_eq!((run["profile"].as_str(), run["errors"].as_u64()), (Some("forebay"), Some(0)));
        assert!(run["hit_ratio"].as_f64().is_some_and(|ratio| ratio > 0.8), "{run}");
        assert!((10.9..20.0).contains(&run["virtual_seconds"].as_f64().expect("seconds")), "{run}");
        assert!(run["read_latency"]["max_ns"].as_u64() > run["read_latency"]["p50_ns"].as_u64());
        assert!(run["cache_written_bytes"].as_u64() > Some(4_000_000) && run["drain_seconds"].is_f64());
    }
    // However many at a time, they come in their order and with the same results.
    let one = [&["lab", "trace", file, "--json", "--timed", "--threads", "1"], &sizes[..]].concat();
    assert_eq!(json(&place.done(&one)), report);
    let closed = json(&place.done(&["lab", "trace", file, "--json", "--depth", "4", "--cache-size", "32M"]));
    assert_eq!(closed["depth"].as_u64(), Some(4));
    let text = place.done(&["lab", "trace", file, "--depth", "4", "--mode", "writethrough"]);
    assert!(text.contains("forebay (writethrough), cache of 32 MiB") && text.contains("backlog"), "{text}");
}

#[test]
fn a_profile_of_ones_own_is_replayed_beside_others() {
    let place = Place::new();
    let path = place.path("some.spc");
    std::fs::write(&path, trace()).expect("a file for the test");
    let own = place.path("mine.toml");
    let text = "name = \"mine\"\ndescription = \"nothing is appended again\"\nextends = \"forebay\"\n[tunables]\nlaps_max = 0\n";
    std::fs::write(&own, text).expect("a file for the test");
    let [file, own] = [&path, &own].map(|path| path.to_str().expect("a plain path"));
    let profiles = ["--profile", "forebay", "--profile", own];
    let report = json(
        &place.done(&[&["lab", "trace", file, "--json", "--cache-size", "32M"], &profiles[..]].concat()),
    );
    let names: Vec<&str> =
        report["runs"].as_array().expect("runs").iter().filter_map(|run| run["profile"].as_str()).collect();
    assert_eq!(names, ["forebay", "mine"]);
}

#[test]
fn advice_is_a_table_a_plot_and_a_sentence() {
    let place = Place::new();
    let path = place.path("some.spc");
    std::fs::write(&path, trace()).expect("a file for the test");
    let file = path.to_str().expect("a plain path");
    let plot = place.path("some.svg");
    let plot_path = plot.to_str().expect("a plain path");
    let report = json(&place.done(&["lab", "advise", file, "--json", "--plot", plot_path]));
    assert_eq!(report["sample_rate"].as_f64(), Some(1.0));
    let last = &report["sizes"].as_array().and_then(|sizes| sizes.last()).expect("sizes")["policies"];
    assert_eq!(last.as_array().map(Vec::len), Some(10));
    let ratio = last[0]["hit_ratio"].as_f64().expect("a ratio");
    assert!((ratio - 10.0 / 11.0).abs() < 1e-9, "LRU has all but the first time: {ratio}");
    // 1000 accesses to write, 10 000 to read, of which 910 are the first ones to their block.
    assert_eq!(last[0]["cache_written_bytes"].as_u64(), Some((1000 + 910) * 4096));
    assert!(
        report["recommendation"]["sentence"].as_str().is_some_and(|text| text.starts_with("Take a cache of"))
    );
    let svg = std::fs::read_to_string(&plot).expect("it was drawn");
    assert!(svg.starts_with("<svg") && svg.contains("s3-fifo"));
    let text = place.done(&["lab", "advise", file, "--sample", "300"]);
    assert!(text.contains("lru is exact") && text.contains("warm-hot-lru"), "{text}");
}

#[test]
fn advice_can_be_exact_at_sizes_of_ones_own() {
    let place = Place::new();
    let path = place.path("loop.trace");
    let text: String = (0..20_000).map(|at| format!("{}\n", at % 500)).collect();
    std::fs::write(&path, text).expect("a file for the test");
    let file = path.to_str().expect("a plain path");
    let report = json(&place.done(&["lab", "advise", file, "--exact", "--sizes", "500,400", "--json"]));
    let sizes = report["sizes"].as_array().expect("sizes");
    let bytes: Vec<_> = sizes.iter().map(|row| row["cache_bytes"].as_u64()).collect();
    assert_eq!(bytes, [Some(400 * 4096), Some(500 * 4096)], "in their order");
    let ratio = |row: usize, policy: &str| {
        let policies = sizes[row]["policies"].as_array().expect("policies");
        let cell = policies.iter().find(|cell| cell["policy"] == policy).expect("it is one of them");
        cell["hit_ratio"].as_f64().expect("a ratio")
    };
    assert_eq!((ratio(0, "lru"), ratio(0, "fifo")), (0.0, 0.0), "a loop that does not fit");
    assert!(ratio(0, "forebay") > 0.7, "{}", ratio(0, "forebay"));
    assert_eq!([0.975; 3], ["lru", "fifo", "forebay"].map(|policy| ratio(1, policy)), "a loop that fits");
    assert_ne!(sizes[0]["best"], "forebay", "what no profile runs is not advised");
    let small = json(&place.done(&["lab", "advise", file, "--exact", "--sizes", "10", "--json"]));
    let said = small["recommendation"]["sentence"].as_str().unwrap_or_default();
    assert!(said.starts_with("A larger cache than these would pay: 40 KiB"), "{small}");
    place.refused(&["lab", "advise", file, "--exact", "--sample", "10"], 2, &["--exact", "--sample"]);
    place.refused(&["lab", "advise", file, "--sizes", "0"], 2, &["--sizes"]);
}

#[test]
fn what_is_wrong_with_a_trace_is_one_line() {
    let place = Place::new();
    let path = place.path("bad.spc");
    std::fs::write(&path, "0,1,512,r,0\nnonsense\n").expect("a file for the test");
    let file = path.to_str().expect("a plain path");
    place.refused(&["lab", "trace", file], 1, &["bad.spc, line 2", "1 fields"]);
    place.refused(&["lab", "advise", file], 1, &["bad.spc, line 2"]);
    place.refused(&["lab", "advise", "/no/such/trace.spc"], 1, &["trace.spc", "cannot be read"]);
    place.refused(&["lab", "trace", file, "--format", "elf"], 2, &["elf", "vscsi"]);
    place.refused(&["lab", "trace", file, "--origin", "drum"], 2, &["drum", "wd-re-4tb"]);
    place.refused(&["lab", "trace", file, "--timed", "--depth", "1"], 2, &["--depth"]);
    let mixed = place.path("mixed.spc");
    std::fs::write(&mixed, "0,1,512,r,5000\n0,2,512,r,0\n0,3,512,r,1\n").expect("a file for the test");
    let said = place.done(&["lab", "trace", mixed.to_str().expect("a plain path")]);
    assert!(said.contains("2 requests are of an earlier time") && said.contains("sort the trace"), "{said}");
    let pipe = place.path("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().is_ok_and(|status| status.success()));
    // Whoever opens it waits for the other end.
    let writer = std::fs::File::options().read(true).write(true).open(&pipe).expect("a pipe");
    let pipe = pipe.to_str().expect("a plain path");
    for verb in ["advise", "trace"] {
        place.refused(
            &["lab", verb, pipe, "--format", "block-list"],
            1,
            &["read twice", "write it to a file"],
        );
    }
    drop(writer);
    let list = place.path("list.trace");
    std::fs::write(&list, "1\n2\n").expect("a file for the test");
    let list = list.to_str().expect("a plain path");
    place.refused(&["lab", "trace", list, "--timed"], 1, &["no times", "--depth"]);
    place.refused(&["lab", "trace", list, "--cache-size", "1M"], 1, &["list.trace", "1 MiB"]);
}

#[test]
fn the_jobs_of_a_job_file_are_carried_out() {
    let place = Place::new();
    let path = place.path("some.fio");
    let file = path.to_str().expect("a plain path");
    let jobs = "[global]\nioengine=libaio\nbs=4k\nsize=4m\nfilename=one\n[first]\nrw=write\niodepth=4\n[second]\n\
                stonewall\nrw=randread\nnumjobs=2\n";
    std::fs::write(&path, jobs).expect("a file for the test");
    let report = json(&place.done(&["lab", "trace", file, "--json"]));
    let told = &report["jobs"];
    assert_eq!((told["jobs"].as_u64(), told["files_bytes"].as_u64()), (Some(3), Some(4 << 20)));
    assert!(report["trace"].is_null() && told["requests_max"].as_u64() == Some(3 * 1024));
    let run = &report["runs"][0];
    assert_eq!((run["requests"].as_u64(), run["hits"].as_u64()), (Some(3 * 1024), Some(2 * 1024)));
    let text = place.done(&["lab", "trace", file]);
    assert!(text.contains("3 job(s) on files of 4 MiB") && text.contains("as the jobs say"), "{text}");
    place.refused(&["lab", "trace", file, "--depth", "4"], 1, &["some.fio", "leave --depth"]);
    std::fs::write(&path, "[a]\nsize=1m\nrw=upwards\n").expect("a file for the test");
    place.refused(&["lab", "trace", file], 1, &["some.fio, line 3", "upwards"]);
    std::fs::write(&path, "; nothing\n").expect("a file for the test");
    place.refused(&["lab", "trace", file], 1, &["no job"]);
}

/// The requests are of 512 bytes, and bcache has blocks of 4 KiB: they never enter, whatever the size.
#[test]
fn a_replay_says_why_requests_bypassed_the_cache() {
    let place = Place::new();
    let path = place.path("small.lis");
    let lines: String = (0..500).map(|at| format!("{} 1 0 {at}\n", at % 100)).collect();
    std::fs::write(&path, lines).expect("a file for the test");
    let file = path.to_str().expect("a plain path");
    let replay = ["lab", "trace", file, "--profile", "bcache", "--cache-size", "46M", "--depth", "1"];
    let text = place.done(&replay);
    assert!(text.contains("bypassed     blocks read: 500 of requests that are not aligned"), "{text}");
    let run = &json(&place.done(&[&replay[..], &["--json"]].concat()))["runs"][0];
    assert_eq!(run["bypasses"]["reads"]["unaligned_blocks"].as_u64(), Some(500));
    assert_eq!((run["hit_ratio"].as_f64(), run["cache_written_bytes"].as_u64()), (Some(0.0), Some(0)));
    let aligned = place.done(&[&replay[..], &["--unit", "4096"]].concat());
    assert!(!aligned.contains("bypassed") && aligned.contains("80.0 % of the blocks read"), "{aligned}");
}
