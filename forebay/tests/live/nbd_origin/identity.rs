//! A server that comes back with something else: nothing is written to it (hazard 9).

use super::server::Server;
use super::{Known, MIB, connect, create, volume};
use crate::daemon::{Daemon, Site};
use std::time::Duration;

/// A volume with dirty data whose server dies; `change` makes another origin of its image, or another image.
fn come_back(name: &str, expected: &str, change: impl FnOnce(&Site, &str) -> String) {
    let site = Site::new(name);
    let image = site.noise("image", 32 * MIB, 5);
    let mut server = Server::file(&site, "origin", &image);
    let cache = create(&site, &server.uri(), 32 * MIB, &[]);
    let daemon = Daemon::start(&site, &cache, &[]);
    let mut known = Known::of_file(&image);
    let mut client = connect(&daemon);
    known.write(&mut client, 20);
    site.run(&["flush", &cache]);
    server.kill();
    known.write(&mut client, 20);
    let dirty_bytes = volume(&site, &cache)["dirty_bytes"].as_u64().expect("a number");
    assert!(dirty_bytes > 0);
    let right = site.path("right");
    std::fs::copy(&image, &right).expect("room for a copy");
    let wrong = change(&site, &image);
    let before = std::fs::read(&wrong).expect("the wrong image");
    server.again_with(&wrong);
    let status = site.wait_for_status(&cache, "the difference is seen", |status| {
        let because = &status["volumes"][0]["origin_away_because"];
        because.as_str().is_some_and(|because| because.contains("serves another disk"))
    });
    let because = status["volumes"][0]["origin_away_because"].as_str().expect("a reason");
    assert!(because.contains(expected), "{because}");
    std::thread::sleep(Duration::from_millis(1500));
    assert!(std::fs::read(&wrong).expect("the wrong image") == before, "nothing was written to it");
    assert_eq!(volume(&site, &cache)["dirty_bytes"], dirty_bytes);
    let told = site.last_words();
    assert_eq!(told.matches("serves another disk").count(), 1, "it is said once: {told}");

    server.kill();
    server.again_with(&right);
    site.run(&["detach", &cache, "--verify"]);
    daemon.stop();
    drop(server);
    known.compare_file(&right);
}

#[test]
fn a_smaller_disk_is_not_written() {
    come_back("origin-shrinks", "it has shrunk", |_, image| {
        let file = std::fs::File::options().write(true).open(image).expect("the image");
        file.set_len(16 * MIB).expect("it can be cut");
        image.to_owned()
    });
}

#[test]
fn another_disk_is_not_written() {
    come_back("origin-another", "another content", |site, _| site.noise("another", 32 * MIB, 6));
}

#[test]
fn an_empty_disk_of_the_same_size_is_not_written() {
    come_back("origin-empty", "another content", |site, _| site.file("empty", 32 * MIB));
}

/// What was flushed there is gone: an older copy of the same disk, or a server that lies about flushes.
#[test]
fn an_older_copy_is_not_written() {
    let site = Site::new("origin-older");
    let image = site.file("image", 32 * MIB);
    let older = site.file("older", 32 * MIB);
    let mut server = Server::file(&site, "origin", &image);
    let cache = create(&site, &server.uri(), 32 * MIB, &[]);
    let daemon = Daemon::start(&site, &cache, &[]);
    let mut known = Known::new(32 * MIB);
    let mut client = connect(&daemon);
    known.write(&mut client, 4);
    site.run(&["flush", &cache]);
    server.kill();
    server.again_with(&older);
    known.write(&mut client, 4);
    site.wait_for_status(&cache, "the difference is seen", |status| {
        let because = &status["volumes"][0]["origin_away_because"];
        because.as_str().is_some_and(|because| because.contains("another content"))
    });
    assert!(std::fs::read(&older).expect("the older copy").iter().all(|&byte| byte == 0));
    server.kill();
    server.again_with(&image);
    site.run(&["detach", &cache, "--verify"]);
    daemon.stop();
    known.compare_file(&image);
}

/// The same comparison at a start: a cache is not served over another disk.
#[test]
fn a_start_refuses_another_disk() {
    let site = Site::new("origin-another-start");
    let image = site.noise("image", 32 * MIB, 5);
    let another = site.noise("another", 32 * MIB, 6);
    let mut server = Server::file(&site, "origin", &image);
    let cache = create(&site, &server.uri(), 32 * MIB, &[]);
    Daemon::start(&site, &cache, &[]).stop();
    server.kill();
    server.again_with(&another);
    let error = Daemon::try_start(&site, &cache, &[]).err().expect("it is refused");
    assert!(error.contains("was changed behind the cache"), "{error}");
    server.kill();
    let error = Daemon::try_start(&site, &cache, &[]).err().expect("it is refused");
    assert!(error.contains("cannot be reached") && error.contains("start its server"), "{error}");
    server.again_with(&image);
    Daemon::start(&site, &cache, &[]).stop();
}
