//! Goal: a job that waits for an origin says so, and does not seem to hang. Method: the origin is a volume of another daemon, which
//! is killed while there is dirty data.

use crate::scene::{Place, pattern};
use std::fs;
use std::io::{BufRead, BufReader};
use std::process::Stdio;

const MIB: u64 = 1 << 20;

#[test]
fn a_flush_says_that_the_origin_is_away() {
    let place = Place::new();
    let (far, far_cache) = (place.file("far.img", 16 * MIB), place.file("far-cache.img", 64 * MIB));
    place.done(&["create", "--origin", &far, "--cache", &far_cache, "--name", "far"]);
    let server = place.serve(&far_cache, &[]);
    let cache = place.file("near-cache.img", 64 * MIB);
    place.done(&["create", "--origin", &server.uri("far"), "--cache", &cache, "--name", "near"]);
    let change = place.file("change.img", 0);
    fs::write(&change, pattern(2, 4 * MIB)).expect("a file for the test");
    let daemon = place.serve(&cache, &[]);
    server.kill();
    daemon.write("near", &change);
    for verb in ["flush", "detach"] {
        let mut command = place.command(&[verb, &cache]);
        let mut child = command.stderr(Stdio::piped()).spawn().expect("it starts");
        let mut line = String::new();
        let stderr = child.stderr.take().expect("it is a pipe");
        BufReader::new(stderr).read_line(&mut line).expect("it speaks or ends");
        assert!(line.starts_with("waiting: the origin of volume near is away for "), "{verb}: {line}");
        child.kill().expect("it waits");
        child.wait().expect("it was started");
    }
    daemon.kill();
}
