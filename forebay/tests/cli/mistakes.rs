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
        &["create", "--origin", &scene.origin, "--cache", cache, "--name", ".."],
        2,
        &["name", "letters"],
    );
}
