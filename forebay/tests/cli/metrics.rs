//! Goal: the page of metrics says what `status` and `stats` say, tools read it, and board and alerts ask for what is
//! there. Method: the real daemon, a plain HTTP client, `promtool`.

use crate::scene::{Place, Scene};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;

/// Sends a request and returns the answer's head and body.
fn ask(mut stream: impl Read + Write, request: &str) -> (String, String) {
    stream.write_all(request.as_bytes()).expect("it takes the request");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it answers in text");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
    (head.to_owned(), body.to_owned())
}

fn get(address: &str, path: &str) -> (String, String) {
    let stream = TcpStream::connect(address).expect("it listens");
    ask(stream, &format!("GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n"))
}

/// The address in the `ready` line.
fn address(ready: &str) -> String {
    let word = ready.split_whitespace().find_map(|word| word.strip_prefix("metrics="));
    word.expect("the ready line says where metrics are").to_owned()
}

/// The value of a sample.
fn sample(page: &str, name: &str) -> f64 {
    let line = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("{name} is missing in:\n{page}")).parse().expect("a number")
}

/// Names of the samples on a page.
fn names(page: &str) -> BTreeSet<String> {
    let lines = page.lines().filter(|line| !line.starts_with('#'));
    lines.map(|line| line.split(['{', ' ']).next().expect("a name").to_owned()).collect()
}

/// A page after some work, and the reports of the same daemon.
fn worked() -> (Scene, String, Value, Value) {
    let scene = Scene::new(32 * MIB, &["--mode", "writeback"]);
    let options = ["--metrics", "127.0.0.1:0", "--endurance", "1T"];
    let daemon = scene.place.serve(&scene.cache, &options);
    daemon.write("disk", &scene.change);
    daemon.read("disk");
    daemon.read("disk");
    scene.place.done(&["flush", &scene.cache]);
    let address = address(&daemon.ready);
    let (head, page) = get(&address, "/metrics");
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    assert!(head.contains("application/openmetrics-text; version=1.0.0"), "{head}");
    let (status, stats) = (scene.status(), scene.report("stats"));
    assert_eq!(status["metrics"], address);
    let text = scene.place.done(&["status", &scene.cache]);
    assert!(text.contains("written of 1 TiB that it is rated for"), "{text}");
    daemon.stop();
    (scene, page, status, stats)
}

#[test]
fn the_page_says_what_the_reports_say() {
    let (scene, page, status, stats) = worked();
    assert!(page.ends_with("# EOF\n"));
    let (volume, total) = (&stats["volumes"][0], &stats["total"]);
    let steps = |list: &Value| list.as_array().map(Vec::len);
    let bounds = steps(&stats["duration_bounds_seconds"]).expect("a list");
    assert_eq!(
        steps(&volume["durations"][0]["counts"]),
        Some(bounds + 1),
        "the last step has no bound: {stats}"
    );
    for (name, value) in [
        ("forebay_requests_total{volume=\"disk\",operation=\"read\"}", &volume["reads"]),
        ("forebay_requests_total{volume=\"disk\",operation=\"write\"}", &volume["writes"]),
        ("forebay_request_bytes_total{volume=\"disk\",operation=\"write\"}", &total["written_bytes"]),
        ("forebay_read_hits_total{volume=\"disk\"}", &volume["hits"]),
        ("forebay_read_misses_total{volume=\"disk\"}", &volume["misses"]),
        ("forebay_volume_cached_bytes{volume=\"disk\"}", &status["volumes"][0]["cached_bytes"]),
        ("forebay_cache_size_bytes", &status["cache"]["size_bytes"]),
        ("forebay_request_duration_seconds_count{volume=\"disk\",operation=\"read\"}", &volume["reads"]),
    ] {
        assert_eq!(Some(sample(&page, name)), value.as_f64(), "{name}");
    }
    assert_eq!(sample(&page, "forebay_volume_dirty_bytes{volume=\"disk\"}"), 0.0);
    assert_eq!(sample(&page, "forebay_oldest_dirty_seconds"), 0.0);
    assert_eq!(sample(&page, "forebay_volume_state{volume=\"disk\",state=\"active\"}"), 1.0);
    assert_eq!(sample(&page, "forebay_volume_state{volume=\"disk\",state=\"failed\"}"), 0.0);
    assert_eq!(sample(&page, "forebay_cache_written_bytes_total{reason=\"user\"}"), 4.0 * MIB as f64);
    let reasons = ["user", "fill", "relocation", "headers"];
    let by_reason = reasons.map(|reason| format!("forebay_cache_written_bytes_total{{reason=\"{reason}\"}}"));
    let written: f64 = by_reason.iter().map(|name| sample(&page, name)).sum();
    assert!(written <= stats["cache"]["written_bytes"].as_f64().expect("a number"));
    assert!(written > 4.0 * MIB as f64);
    let left = sample(&page, "forebay_cache_lifetime_left_ratio");
    assert!(left < 1.0 && left > 0.999, "{left}");
    // Notes outlive the daemon.
    let noted = scene.status()["cache"]["lifetime_written_bytes"].as_f64().expect("a number");
    assert!(noted >= written, "{noted} of {written}");
    let daemon = scene.place.serve(&scene.cache, &["--metrics", "127.0.0.1:0"]);
    let (_, page) = get(&address(&daemon.ready), "/metrics");
    assert!(sample(&page, "forebay_cache_lifetime_written_bytes_total") >= noted);
    assert!(!page.contains("forebay_cache_lifetime_left_ratio"), "nothing was said of its endurance");
    daemon.stop();
}

#[test]
fn promtool_reads_the_page() {
    let (_scene, page, ..) = worked();
    let mut promtool = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("promtool of prometheus is installed");
    // It knows the older text, in which a counter is declared with its suffix.
    let counters: Vec<&str> =
        page.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.strip_suffix(" counter")).collect();
    let older: Vec<String> = page
        .lines()
        .filter(|line| *line != "# EOF")
        .map(|line| {
            let mut words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            if words[0] == "#" && counters.contains(&words[2].as_str()) {
                words[2].push_str("_total");
            }
            words.join(" ")
        })
        .collect();
    let mut to = promtool.stdin.take().expect("it is a pipe");
    to.write_all((older.join("\n") + "\n").as_bytes()).expect("it reads");
    drop(to);
    let output = promtool.wait_with_output().expect("it was started");
    let said =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.trim().is_empty(), "{said}");
}

/// The folder with board and rules; `None` if this crate stands alone.
fn monitoring() -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).parent()?.join("docs/monitoring");
    folder.is_dir().then_some(folder)
}

/// All words of a text that are names of ours.
fn named(text: &str) -> BTreeSet<String> {
    let words = text.split(|character: char| !character.is_ascii_alphanumeric() && character != '_');
    words.filter(|word| word.starts_with("forebay_")).map(str::to_owned).collect()
}

#[test]
fn the_page_says_which_half_of_a_mirrored_cache_counts() {
    let place = Place::new();
    let (origin, cache) = (place.file("slow.img", 16 * MIB), place.file("fast.img", 32 * MIB));
    let mirror = place.file("second.img", 32 * MIB);
    place.done(&["create", "--origin", &origin, "--cache", &cache, "--mirror", &mirror]);
    fs::remove_file(&mirror).unwrap();
    let daemon = place.serve(&cache, &["--metrics", "127.0.0.1:0"]);
    let (_, page) = get(&address(&daemon.ready), "/metrics");
    assert_eq!(sample(&page, &format!("forebay_cache_half_counts{{device=\"{cache}\"}}")), 1.0);
    assert_eq!(sample(&page, &format!("forebay_cache_half_counts{{device=\"{mirror}\"}}")), 0.0);
    let explained = fs::read_to_string(monitoring().expect("the folder").join("README.md")).unwrap();
    let halves: Vec<String> = names(&page).into_iter().filter(|name| name.contains("_half_")).collect();
    assert_eq!(halves.len(), 4, "{halves:?}");
    halves.iter().for_each(|name| assert!(explained.contains(name), "{name}"));
    daemon.stop();
}

#[test]
fn board_and_alerts_ask_for_what_is_there() {
    let Some(folder) = monitoring() else { return };
    let (_scene, page, ..) = worked();
    let mut there = names(&page);
    // It is there after some load.
    there.insert("forebay_lru_read_hit_ratio".to_owned());
    // It is there when an origin fails.
    there.insert("forebay_volume_dirty_limit_bytes".to_owned());
    // It is there of a mirrored cache.
    there.insert("forebay_cache_half_counts".to_owned());
    let board: Value =
        serde_json::from_str(&fs::read_to_string(folder.join("board.json")).expect("the board"))
            .expect("JSON");
    let panels = board["panels"].as_array().expect("panels");
    let mut ids = BTreeSet::new();
    for panel in panels {
        assert!(ids.insert(panel["id"].as_u64().expect("a number")), "panels have numbers of their own");
        assert!(panel["title"].is_string() && panel["gridPos"]["w"].is_u64(), "{panel}");
        for target in panel["targets"].as_array().expect("queries") {
            let query = target["expr"].as_str().expect("a query");
            let asked = named(query);
            assert!(!asked.is_empty() && asked.is_subset(&there), "{query} asks for what is not there");
        }
    }
    let rules = fs::read_to_string(folder.join("alerts.yml")).expect("the rules");
    for line in rules.lines().filter_map(|line| line.trim().strip_prefix("expr: ")) {
        assert!(named(line).is_subset(&there), "{line} asks for what is not there");
    }
    let page = fs::read_to_string(folder.join("README.md")).expect("the page");
    for alert in rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")) {
        assert!(page.contains(&format!("| `{alert}` |")), "the page says nothing of {alert}");
    }
    let checked = Command::new("promtool").arg("check").arg("rules").arg(folder.join("alerts.yml")).output();
    let checked = checked.expect("promtool of prometheus is installed");
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
}

#[test]
fn every_metric_is_explained() {
    let Some(folder) = monitoring() else { return };
    let (_scene, page, ..) = worked();
    let text = fs::read_to_string(folder.join("README.md")).expect("the page");
    // Names that differ in their ends stand in one row: `forebay_a_b_total`, `_c_total`.
    let ends: BTreeSet<&str> = text.split('`').filter(|word| word.starts_with('_')).collect();
    let explained = named(&text);
    for name in names(&page) {
        let family = ["_bucket", "_sum", "_count"]
            .iter()
            .find_map(|end| name.strip_suffix(end).filter(|family| family.ends_with("_seconds")));
        let name = family.unwrap_or(&name);
        let is_end = ends.iter().any(|end| name.ends_with(end));
        assert!(explained.contains(name) || is_end, "docs/monitoring/README.md says nothing of {name}");
    }
}

#[test]
fn a_wrong_request_gets_its_status_and_a_slow_one_holds_up_nobody() {
    let scene = Scene::new(32 * MIB, &[]);
    let socket = scene.place.path("metrics.sock");
    let at = format!("unix:{}", socket.display());
    let daemon = scene.place.serve(&scene.cache, &["--metrics", &at, "--metrics-mode", "0640"]);
    let mode = fs::metadata(&socket).expect("the socket is there").permissions().mode();
    assert_eq!(mode & 0o777, 0o640);
    let ask = |request: &str| ask(UnixStream::connect(&socket).expect("it listens"), request).0;
    let idle: Vec<UnixStream> = (0..2).map(|_| UnixStream::connect(&socket).expect("it listens")).collect();
    for (request, status) in [
        ("GET /metrics HTTP/1.0\r\n\r\n", "200"),
        ("HEAD /metrics HTTP/1.1\r\n\r\n", "200"),
        ("GET / HTTP/1.1\r\n\r\n", "200"),
        ("GET /secret HTTP/1.1\r\n\r\n", "404"),
        ("POST /metrics HTTP/1.1\r\n\r\n", "405"),
        ("\u{1}\u{2}\r\n\r\n", "400"),
        (&format!("GET /{} HTTP/1.1\r\n", "x".repeat(9000)), "431"),
    ] {
        assert!(ask(request).starts_with(&format!("HTTP/1.1 {status} ")), "{request:?}");
    }
    // Those who say nothing are sent away in a few seconds, however many there are.
    let crowd: Vec<UnixStream> = (0..40).filter_map(|_| UnixStream::connect(&socket).ok()).collect();
    let begun = Instant::now();
    drop((idle, crowd));
    let is_served = || {
        let mut stream = UnixStream::connect(&socket).expect("it listens");
        let mut answer = Vec::new();
        // A place may not be free yet.
        let _ = stream.write_all(b"GET / HTTP/1.1\r\n\r\n").and_then(|()| stream.read_to_end(&mut answer));
        answer.starts_with(b"HTTP/1.1 200")
    };
    while !is_served() {
        assert!(begun.elapsed() < Duration::from_secs(20), "places get free again");
        std::thread::sleep(Duration::from_millis(50));
    }
    daemon.stop();
    assert!(!socket.exists(), "the socket's file goes with the daemon");
}

#[test]
fn an_address_that_cannot_be_is_one_line_and_changes_nothing() {
    let scene = Scene::new(32 * MIB, &[]);
    let serve = |at: &str| scene.place.forebay(&["serve", &scene.cache, "--metrics", at]);
    let refused = |at: &str, status, words: &[&str]| {
        scene.place.refused(&["serve", &scene.cache, "--metrics", at], status, words);
    };
    refused("0.0.0.0:9419", 1, &["other machines", "--metrics-remote"]);
    refused("127.0.0.1", 2, &["no address for metrics"]);
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = taken.local_addr().expect("a port").to_string();
    refused(&port, 1, &["cannot serve metrics at", "somebody listens there already; choose another address"]);
    let file = scene.place.file("no-socket", 10);
    refused(&format!("unix:{file}"), 1, &["cannot serve metrics at"]);
    assert!(fs::metadata(&file).is_ok(), "a file that is no socket stays");
    refused("unix:/proc/none/metrics.sock", 1, &["cannot serve metrics at"]);
    assert!(!serve("127.0.0.1").status.success());
    assert_eq!(scene.status()["session"], 0, "no session was begun");
}

#[test]
fn a_volume_without_its_cache_has_metrics_too() {
    let place = Place::new();
    let origin = place.file("slow.img", 16 * MIB);
    let cache = place.file("fast.img", 32 * MIB);
    place.done(&[
        "create",
        "--origin",
        &origin,
        "--cache",
        &cache,
        "--name",
        "disk",
        "--mode",
        "writethrough",
    ]);
    place.serve(&cache, &[]).stop();
    fs::remove_file(&cache).expect("the cache is there");
    let daemon = place.serve(&cache, &["--uncached", "--metrics", "127.0.0.1:0"]);
    daemon.read("disk");
    let (_, page) = get(&address(&daemon.ready), "/metrics");
    assert!(sample(&page, "forebay_requests_total{volume=\"disk\",operation=\"read\"}") > 0.0);
    assert_eq!(sample(&page, "forebay_volume_state{volume=\"disk\",state=\"uncached\"}"), 1.0);
    daemon.stop();
}
