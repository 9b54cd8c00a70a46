//! Goal: `advise` sees the load as it is: what is read again and again fits, or does not; modes and wear follow. Method:
//! the real daemon, and loads whose curve is known.

use crate::scene::Scene;
use serde_json::Value;
use std::process::Command;

const MIB: u64 = 1 << 20;

/// Sends random requests to a volume, and waits for their end.
fn fio(uri: &str, kind: &str, region: &str, ios: &str) {
    let output = Command::new("fio")
        .args(["--name=load", "--ioengine=nbd", "--iodepth=16", "--bs=4k", "--randrepeat=1", "--norandommap"])
        .args([
            format!("--uri={uri}"),
            format!("--rw={kind}"),
            format!("--size={region}"),
            format!("--number_ios={ios}"),
            format!("--io_size={}k", 4 * ios.parse::<u64>().expect("a number")),
        ])
        .output()
        .expect("fio is installed");
    let said =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
}

fn ratio(point: &Value) -> f64 {
    point["read_hit_ratio"].as_f64().unwrap_or_else(|| panic!("{point} has no reads"))
}

#[test]
fn advice_follows_the_load() {
    // 12 MiB are read at random: all that is less of a cache has its part of the hits, and no more is needed.
    let scene = Scene::new(32 * MIB, &["--mode", "writethrough"]);
    let daemon = scene.serve();
    let young = scene.report("advise");
    assert!(
        young["size"].as_str().is_some_and(|said| said.starts_with("Too little has happened")),
        "{young}"
    );
    assert!(young["size_advised_bytes"].is_null() && young["curve"].as_array().is_some_and(Vec::is_empty));
    fio(&daemon.uri("disk"), "randread", "12m", "60000");
    let advice = scene.report("advise");
    assert_eq!(advice["read_blocks"].as_u64(), Some(60_000), "{advice}");
    assert_eq!(advice["cache_bytes"], scene.status()["cache"]["size_bytes"]);
    assert!(ratio(&advice["present"]) > 0.85, "{advice}");
    for point in advice["curve"].as_array().expect("a curve") {
        let part = point["cache_bytes"].as_f64().expect("a number") / (12.0 * MIB as f64);
        // One block in 32 of 3072: the sample is small, and a size may be wrong by a third.
        let (low, high) = ((part * 0.7).min(0.95) - 0.1, (part * 1.4).min(1.0) + 0.1);
        assert!((low..high).contains(&ratio(point)), "{point} should be {low} to {high}");
    }
    assert!(
        advice["size"].as_str().is_some_and(|said| said.starts_with("A smaller one would do")),
        "{advice}"
    );
    let volume = |advice: &Value| advice["volumes"][0].clone();
    assert!(volume(&advice)["mode_advised"].is_null(), "reads alone need no other mode: {advice}");
    fio(&daemon.uri("disk"), "randwrite", "12m", "40000");
    let advice = scene.report("advise");
    assert_eq!(volume(&advice)["mode_advised"], "writeback", "{advice}");
    let written = volume(&advice)["written_ratio"].as_f64().expect("a part");
    assert!((0.3..0.5).contains(&written), "{written}");
    assert!(advice["wear"]["written_bytes_per_day"].as_u64() > Some(1 << 30), "{advice}");
    let text = scene.place.done(&["advise", &scene.cache, "--live"]);
    for word in ["as it is", "size       ", "volume     disk, writethrough: ", "wear       "] {
        assert!(text.contains(word), "`{word}` is missing in:\n{text}");
    }
    daemon.stop();
}

#[test]
fn a_cache_that_is_not_running_has_no_load() {
    let scene = Scene::new(32 * MIB, &[]);
    scene.place.refused(&["advise", &scene.cache, "--live"], 1, &["is not running", "forebay serve"]);
}
