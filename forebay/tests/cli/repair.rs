//! Goal: whoever repairs a damaged cache knows before and afterwards what that costs, and is told of the way that costs nothing.
//! Method: 4 MiB are written and dirty, and the log is damaged in its second segment, below what was flushed.

use crate::salvage::{damaged, heads};
use crate::scene::{Scene, overwrite};
use serde_json::Value;
use std::fs;

const MIB: u64 = 1 << 20;
const SEGMENT: u64 = 512 << 10;

/// The report of a check, what it said besides, and its status.
fn check(scene: &Scene, more: &[&str]) -> (Value, String, Option<i32>) {
    let output = scene.place.forebay(&[&["check", &scene.cache, "--json"], more].concat());
    let why = String::from_utf8(output.stderr).expect("text");
    let said = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("a report: {why}"));
    (said, why, output.status.code())
}

#[test]
fn a_repair_says_what_it_gives_up() {
    let scene = damaged(0);
    let (told, why, status) = check(&scene, &[]);
    let volume = &told["given_up"]["volumes"][0];
    let bytes = volume["dirty_bytes"].as_u64().expect("a number");
    assert!(bytes > MIB && bytes < 4 * MIB && volume["volume"] == "disk", "{told}");
    assert_eq!((status, &told["ok"], &told["repaired"]), (Some(1), &false.into(), &false.into()));
    let (salvage, repair) = (why.find("forebay salvage"), why.find("--repair"));
    assert!(salvage.is_some() && salvage < repair, "what costs nothing comes first: {why}");
    let text = String::from_utf8(scene.place.forebay(&["check", &scene.cache]).stdout).expect("text");
    assert!(text.contains("a repair gives up: ") && text.contains("of dirty data of volume disk"), "{text}");
    let status_says = ["cannot be recovered", "forebay salvage"];
    scene.place.refused(&["status", &scene.cache], 1, &status_says);

    let (done, why, status) = check(&scene, &["--repair"]);
    assert_eq!((status, &done["ok"], &done["repaired"]), (Some(3), &false.into(), &true.into()), "{why}");
    assert_eq!(done["given_up"], told["given_up"], "it gives up what it said");
    assert!(why.contains("not without a loss; given up: ") && why.contains("of volume disk"), "{why}");
    assert_eq!(scene.status()["volumes"][0]["dirty_bytes"], 4 * MIB - bytes, "and nothing else");
    let (again, why, status) = check(&scene, &["--repair"]);
    assert_eq!((status, &again["ok"], &again["given_up"]), (Some(0), &true.into(), &Value::Null), "{why}");
}

#[test]
fn what_cannot_be_known_is_said() {
    let scene = damaged(0);
    overwrite(&scene.cache, heads(&scene)[0] + SEGMENT, &vec![0; SEGMENT as usize]);
    let (told, _, _) = check(&scene, &[]);
    assert!(told["given_up"]["missing_batches"].as_u64() > Some(0), "{told}");
    let output = scene.place.forebay(&["check", &scene.cache, "--repair"]);
    let (text, status) = (String::from_utf8(output.stdout).expect("text"), output.status.code());
    assert!(text.ends_with("it can be served, without what was given up\n"), "{text}");
    let why = String::from_utf8(output.stderr).expect("text");
    assert!(status == Some(3) && why.contains("held, which is not known"), "{why}");
}

#[test]
fn a_repair_that_costs_nothing_is_a_good_one() {
    let scene = Scene::new(64 * MIB, &["--mode", "writeback"]);
    let daemon = scene.serve();
    daemon.write("disk", &scene.change);
    scene.place.done(&["flush", &scene.cache]);
    daemon.stop();
    overwrite(&scene.cache, heads(&scene)[1] + 40, &[0xff; 8]);
    assert_eq!(check(&scene, &[]).2, Some(1));
    let (done, why, status) = check(&scene, &["--repair"]);
    assert_eq!((status, &done["ok"], &done["repaired"]), (Some(0), &true.into(), &true.into()), "{why}");
    assert_eq!(done["given_up"]["volumes"], Value::Array(Vec::new()), "{done}");
}

#[test]
fn an_older_copy_is_told_and_not_repaired() {
    let scene = damaged(0);
    let older = scene.place.path("older.img");
    fs::copy(&scene.cache, &older).expect("a copy");
    assert_eq!(check(&scene, &["--repair"]).2, Some(3));
    scene.serve().stop();
    fs::copy(&older, &scene.cache).expect("rolled back");
    let (told, why, status) = check(&scene, &[]);
    assert!(status == Some(1) && told["fatal"].as_str().expect("text").contains("older copy"), "{told}");
    assert!(why.contains("older copy") && !why.contains("--repair"), "{why}");
    scene.place.refused(&["check", &scene.cache, "--repair"], 1, &["older copy"]);
    assert!(fs::read(&older).expect("a copy") == fs::read(&scene.cache).expect("it is there"));
    // Whoever has no notes of it knows nothing of that.
    let elsewhere = scene.place.path("elsewhere").display().to_string();
    let (told, _, _) = check(&scene, &["--state-dir", &elsewhere]);
    assert!(told["fatal"].as_str().expect("text").contains("log is damaged"), "{told}");
}
