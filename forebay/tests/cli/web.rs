//! Goal: the web page shows in a real browser what `stats --json` says, degraded states in words, and nobody else gets at
//! it. Method: the real daemon, Debian's chromium without a screen, a plain HTTP client.

use crate::scene::{Place, Scene};
use serde_json::Value;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;

fn address(ready: &str) -> String {
    let word = ready.split_whitespace().find_map(|word| word.strip_prefix("web="));
    word.expect("the ready line says where the page is").to_owned()
}

/// Asks as a browser would that thinks the page is at `host`; head and body of the answer.
fn get(address: &str, path: &str, host: &str) -> (String, String) {
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream
        .write_all(format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n").as_bytes())
        .expect("it takes the request");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it answers in text");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
    (head.to_owned(), body.to_owned())
}

/// The page as a browser has it once it has shown figures, without the script, which has words of its own; and what
/// the browser complained about.
fn rendered(place: &Place, address: &str) -> (String, String) {
    let profile = place.path("browser");
    let begun = Instant::now();
    loop {
        let _ = fs::remove_dir_all(&profile);
        let output = Command::new("timeout")
            .args(["--kill-after=5", "100", "chromium", "--headless", "--no-sandbox", "--disable-gpu"])
            .args(["--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-sync"])
            .args(["--disable-component-update", "--disable-dev-shm-usage", "--virtual-time-budget=9000"])
            .args(["--enable-logging=stderr", "--window-size=1600,1200", "--dump-dom"])
            .arg(format!("--user-data-dir={}", profile.display()))
            .arg(format!("http://{address}/"))
            .stdin(Stdio::null())
            .output()
            .expect("timeout is installed");
        let dom = String::from_utf8_lossy(&output.stdout).into_owned();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        if dom.contains("data-shown=") {
            let (before, rest) = dom.split_once("<script").expect("the page has a script");
            let (_, after) = rest.split_once("</script>").expect("it ends");
            return (format!("{before}{after}"), said);
        }
        // A machine that is very busy may need more than the browser waited.
        assert!(
            begun.elapsed() < Duration::from_secs(240),
            "chromium shows nothing: {} {said}\n{dom}",
            output.status
        );
    }
}

/// The value of a figure: the first behind this mark.
fn figure(dom: &str, mark: &str, name: &str) -> f64 {
    let from = dom.find(mark).unwrap_or_else(|| panic!("{mark} is missing in:\n{dom}"));
    let tag = format!("data-figure=\"{name}\" data-value=\"");
    let value = dom[from..].split_once(&tag).and_then(|(_, rest)| rest.split('"').next());
    value.unwrap_or_else(|| panic!("{name} is missing in:\n{dom}")).parse().expect("a number")
}

#[test]
fn a_browser_shows_what_stats_say() {
    let scene = Scene::new(32 * MIB, &["--mode", "writeback"]);
    let daemon = scene.place.serve(&scene.cache, &["--web", ":0"]);
    let address = address(&daemon.ready);
    assert_eq!(scene.status()["web"], address);
    daemon.write("disk", &scene.change);
    for _ in 0..3 {
        daemon.read("disk");
        std::thread::sleep(Duration::from_millis(700));
    }
    scene.place.done(&["flush", &scene.cache]);
    std::thread::sleep(Duration::from_millis(1500));
    let (dom, said) = rendered(&scene.place, &address);
    assert!(!said.contains("Content Security Policy") && !said.contains("Uncaught"), "{said}");
    let (stats, status) = (scene.report("stats"), scene.status());
    let (volume, row) = (&stats["volumes"][0], "data-volume=\"disk\"");
    for (name, value) in [
        ("reads", &volume["reads"]),
        ("writes", &volume["writes"]),
        ("cached_bytes", &status["volumes"][0]["cached_bytes"]),
        ("dirty_bytes", &status["volumes"][0]["dirty_bytes"]),
    ] {
        assert_eq!(Some(figure(&dom, row, name)), value.as_f64(), "{name}");
    }
    let number = |name: &str| stats["total"][name].as_f64().expect("a number");
    let ratio = number("hit_blocks") / (number("hit_blocks") + number("miss_blocks"));
    assert!((figure(&dom, "id=\"tiles\"", "hit_ratio") - ratio).abs() < 1e-9);
    assert_eq!(figure(&dom, "id=\"tiles\"", "requests"), number("reads") + number("writes"));
    for words in ["serving", "writeback", "active", "all is home", "How much cache", "What wears the SSD"] {
        assert!(dom.contains(words), "`{words}` is missing in:\n{dom}");
    }
    // Six plots with lines in them.
    assert!(dom.matches("class=\"curve c-").count() >= 6, "{dom}");
    // The same figures as JSON.
    let json = |path: &str| -> Value {
        let (head, body) = get(&address, path, &address);
        assert!(head.starts_with("HTTP/1.1 200 ") && head.contains("application/json"), "{head}");
        serde_json::from_str(&body).expect("JSON")
    };
    assert_eq!(json("/stats.json")["total"]["reads"], stats["total"]["reads"]);
    assert_eq!(json("/status.json")["session"], status["session"]);
    assert_eq!(json("/advice.json")["cache_bytes"], status["cache"]["size_bytes"]);
    let hour = json("/hour.json");
    let steps = hour["at"].as_array().expect("steps").len();
    assert!(steps >= 3, "{hour}");
    for column in ["reads", "hit_ratio", "read_p99_us", "dirty_bytes"] {
        assert_eq!(hour["volumes"]["disk"][column].as_array().expect(column).len(), steps, "{column}");
    }
    daemon.stop();
}

#[test]
fn a_browser_tells_of_a_missing_cache_in_words() {
    let scene = Scene::new(32 * MIB, &["--mode", "writethrough"]);
    scene.serve().stop();
    fs::remove_file(&scene.cache).expect("the cache is there");
    let daemon = scene.place.serve(&scene.cache, &["--uncached", "--web", "127.0.0.1:0"]);
    daemon.read("disk");
    std::thread::sleep(Duration::from_secs(3));
    let (dom, _) = rendered(&scene.place, &address(&daemon.ready));
    for words in [
        "degraded",
        "The cache is missing; the volumes are served by their origins alone.",
        "There is no cache",
    ] {
        assert!(dom.contains(words), "`{words}` is missing in:\n{dom}");
    }
    daemon.stop();
}

#[test]
fn a_browser_tells_of_a_half_that_is_lost() {
    let (scene, mirror) = crate::mirrored::scene(&[]);
    fs::remove_file(&mirror).expect("the half is there");
    let daemon = scene.place.serve(&scene.cache, &["--web", "127.0.0.1:0"]);
    std::thread::sleep(Duration::from_secs(3));
    let (dom, _) = rendered(&scene.place, &address(&daemon.ready));
    let told =
        format!("Half {mirror} does not count; forebay replace {} --mirror DEV takes it back", scene.cache);
    assert!(dom.contains("degraded") && dom.contains(&told), "`{told}` is missing in:\n{dom}");
    daemon.stop();
}

#[test]
fn other_names_and_other_machines_get_nothing() {
    let scene = Scene::new(32 * MIB, &[]);
    let refused = |at: &str, status, words: &[&str]| {
        scene.place.refused(&["serve", &scene.cache, "--web", at], status, words);
    };
    refused("0.0.0.0:9420", 2, &["other machines", "ssh -L"]);
    refused("unix:/run/x", 2, &["no address for the web page"]);
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    refused(
        &taken.local_addr().expect("a port").to_string(),
        1,
        &["cannot serve web at", "somebody listens there already"],
    );
    assert_eq!(scene.status()["session"], 0, "no session was begun");
    let daemon = scene.place.serve(&scene.cache, &["--web", ":0"]);
    let address = address(&daemon.ready);
    for path in ["/", "/stats.json", "/hour.json"] {
        let (head, body) = get(&address, path, "rebound.example:80");
        assert!(head.starts_with("HTTP/1.1 421 ") && body.lines().count() == 1, "{path}: {head} {body}");
    }
    let (head, body) = get(&address, "/", "localhost:1234");
    assert!(head.starts_with("HTTP/1.1 200 ") && body.starts_with("<!DOCTYPE html>"), "{head}");
    for header in ["default-src 'none'", "frame-ancestors 'none'", "nosniff", "no-store", "same-origin"] {
        assert!(head.contains(header), "`{header}` is missing in {head}");
    }
    assert!(get(&address, "/metrics", &address).0.starts_with("HTTP/1.1 404 "));
    daemon.stop();
}
