//! Goal: a slip of an operator costs no data and no time. Method: the real command, with files that hold something and numbers
//! that make no sense.

use crate::scene::Scene;

const MIB: u64 = 1 << 20;

/// What a user names to be written must not be what holds data.
#[test]
fn a_file_that_holds_something_else_is_not_replaced() {
    let scene = Scene::new(32 * MIB, &[]);
    let (place, cache) = (&scene.place, &scene.cache);
    let before = std::fs::read(&scene.origin).unwrap();
    for file in [&scene.origin, cache, &scene.change] {
        place.refused(&["serve", cache, "--warm-list", file], 1, &[file, "no warm list", "name another"]);
    }
    let daemon = scene.serve();
    for file in [&scene.origin, cache] {
        let link = format!("{file}.zst");
        std::os::unix::fs::symlink(file, &link).unwrap();
        let record = ["record", cache, &link, "--duration", "1", "--force"];
        place.refused(&record, 1, &[&link, "in use", "name another"]);
    }
    daemon.stop();
    assert!(std::fs::read(&scene.origin).unwrap() == before);
    place.done(&["check", cache]);
}

#[test]
fn numbers_of_which_nothing_would_come_are_refused() {
    let scene = Scene::new(32 * MIB, &[]);
    let (place, cache) = (&scene.place, &scene.cache);
    place.refused(&["scrub", cache, "--rate", "0"], 2, &["--rate", "64 KiB"]);
    place.refused(&["warm", cache, "--range", "0+1M", "--rate", "1"], 2, &["--rate", "64 KiB"]);
    place.refused(&["serve", cache, "--warm-rate", "1K"], 2, &["--warm-rate", "64 KiB"]);
    place.refused(&["lab", "verify", "--runs", "0"], 2, &["--runs"]);
    place.refused(&["lab", "trace", "x.spc", "--cache-size", "0"], 2, &["--cache-size", "2 TiB"]);
    place.refused(&["lab", "trace", "x.spc", "--cache-size", "9999T"], 2, &["--cache-size", "2 TiB"]);
    place.refused(&["lab", "duel", "x.spc", "--sizes", "9999T"], 2, &["--sizes", "2 TiB"]);
    place.refused(
        &["record", cache, "x.zst", "--limit", "1"],
        2,
        &["--limit BYTES cannot be `1`: give 64 KiB"],
    );
    place.refused(&["serve", cache, "--endurance", "0"], 2, &["--endurance", "600T"]);
    place.refused(&["serve", cache, "--memory", "100000T"], 1, &["--memory says", "this machine has"]);
    place.refused(&["serve", cache, "--client-memory", "100T"], 1, &["--client-memory says", "give less"]);
    place.refused(&["serve", cache, "--door", "ublk"], 1, &["--door", "add --attach"]);
    for key in ["cache-min", "cache-max"] {
        let wrong = format!("{key}=1");
        place.refused(&["set", cache, &wrong], 1, &[&wrong, "less than 1 MiB", &format!("{key}=20%")]);
    }
    place.refused(
        &["create", "--origin", &scene.origin, "--cache", cache, "--name", ".."],
        2,
        &["name", "letters"],
    );
}

/// One rule without a daemon and with one: what is so already cannot be set, and a daemon keeps its origins.
#[test]
fn what_nothing_comes_of_is_refused_with_a_daemon_and_without() {
    let scene = Scene::new(32 * MIB, &[]);
    let (place, cache) = (&scene.place, &scene.cache);
    let grown = || place.refused(&["set", cache, "size=origin"], 1, &["has the size of its origin already"]);
    let renamed =
        || place.refused(&["set", cache, "disk", "name=other"], 2, &["keeps its name", "forebay add"]);
    let range = || {
        let said = ["what --range names: is of a larger disk", "volume disk has 16777216"];
        place.refused(&["warm", cache, "--range", "15M+2M"], 1, &said);
    };
    grown();
    renamed();
    range();
    let daemon = scene.serve();
    grown();
    renamed();
    range();
    let other = format!("disk={}", scene.change);
    for verb in ["flush", "detach"] {
        place.refused(&[verb, cache, "--origin", &other], 1, &["a daemon serves", "leave --origin out"]);
    }
    daemon.stop();
}

#[test]
fn an_address_that_is_a_file_is_named() {
    let scene = Scene::new(32 * MIB, &[]);
    let (place, cache) = (&scene.place, &scene.cache);
    place.refused(&["serve", cache, "--metrics", "/run/m"], 2, &["write unix:/run/m for a socket there"]);
    let metrics = format!("unix:{}", scene.change);
    place.refused(&["serve", cache, "--metrics", &metrics], 1, &["is no socket", "choose another path"]);
}

/// A verb that needs a daemon, or a formatted device, says of a name that is mistyped that this is it.
#[test]
fn a_mistyped_name_of_a_cache_is_told_from_one_that_is_not_served() {
    let scene = Scene::new(32 * MIB, &[]);
    let (place, blank) = (&scene.place, scene.place.file("blank.img", 32 * MIB));
    let wrong = format!("{}x", scene.cache);
    let told = [wrong.as_str(), "does not exist", "as it was given to create"];
    for verb in ["stats", "advise", "attach"] {
        place.refused(&[verb, &wrong], 1, &told);
    }
    place.refused(&["record", &wrong, "x.zst"], 1, &told);
    place.refused(&["stats", &scene.cache], 1, &["is not running", "forebay serve"]);
    for verb in ["status", "check", "dump", "flush", "salvage"] {
        place.refused(&[verb, &blank], 1, &["not formatted as a cache", "forebay create"]);
    }
    assert!(std::fs::read(&blank).unwrap().iter().all(|byte| *byte == 0), "nothing was written");
}
