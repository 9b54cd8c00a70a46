//! Write modes, changed while clients are connected.

use crate::daemon::{Daemon, Site, tool};
use crate::verifier::{Crash, Load, Verifier};
use engine::effect::Errno;
use live::nbd::client::{Address, Client};

const MIB: u64 = 1 << 20;
const BLOCK: usize = 4096;

fn connect(daemon: &Daemon) -> Client {
    Client::connect(&Address::from(daemon.socket()), "disk").expect("the daemon is ready")
}

/// What the door tells a new client.
fn is_announced_read_only(daemon: &Daemon) -> bool {
    let told = tool("nbdinfo", &["--json", &daemon.uri("disk")]);
    let told: serde_json::Value = serde_json::from_str(&told).expect("nbdinfo speaks JSON");
    told["exports"][0]["is_read_only"].as_bool().expect("nbdinfo says whether")
}

/// In every mode but writeback the origin has what was acknowledged; in readonly nothing is.
#[test]
fn each_mode_does_what_it_says() {
    let site = Site::new("modes");
    let origin = site.file("origin", 32 * MIB);
    let cache = site.file("cache", 32 * MIB);
    site.run(&["create", "--origin", &origin, "--cache", &cache, "--name", "disk"]);
    let daemon = Daemon::start(&site, &cache, &[]);
    let mut client = connect(&daemon);
    let cached = vec![99; BLOCK];
    client.write(0, &cached).expect("the daemon answers").expect("it is writeback");
    for (fill, mode) in [(1, "writethrough"), (2, "writearound"), (3, "passthrough")] {
        site.run(&["set", &cache, "disk", &format!("mode={mode}")]);
        site.wait_for_status(&cache, "it is drained", |status| {
            let volume = &status["volumes"][0];
            volume["mode_target"] == mode && volume["mode"] == mode && volume["dirty_bytes"] == 0
        });
        // The first block is cached, the other one is not.
        for offset_bytes in [0, 8 * MIB] {
            let data = vec![fill; BLOCK];
            client.write(offset_bytes, &data).expect("the daemon answers").expect("it may write");
            let at = offset_bytes as usize;
            let home = std::fs::read(&origin).expect("the origin");
            assert!(home[at..at + BLOCK] == data, "{mode}: the origin has what was acknowledged");
            assert_eq!(
                client.read(offset_bytes, BLOCK as u32).expect("the daemon answers"),
                Ok(data),
                "{mode}"
            );
        }
    }
    site.run(&["set", &cache, "disk", "mode=readonly"]);
    assert_eq!(client.write(0, &cached).expect("the daemon answers"), Err(Errno::PERM));
    assert_eq!(client.read(0, BLOCK as u32).expect("the daemon answers"), Ok(vec![3; BLOCK]));
    assert!(is_announced_read_only(&daemon), "whoever connects now is told");
    site.run(&["set", &cache, "disk", "mode=writeback"]);
    client.write(0, &cached).expect("the daemon answers").expect("it may write again");
    assert!(!is_announced_read_only(&daemon));
    drop(client);
    daemon.kill();
    let daemon = Daemon::start(&site, &cache, &[]);
    let read = connect(&daemon).read(0, BLOCK as u32).expect("the daemon answers");
    assert_eq!(read, Ok(cached), "a killed daemon loses nothing that it acknowledged");
    daemon.stop();
}

/// A volume that leaves writeback drains in the background, and goes on after a stop in between.
#[test]
fn leaving_writeback_survives_a_stop() {
    let site = Site::new("draining");
    // A slow origin, and blocks far apart on it, so that draining takes seconds.
    let store = site.file("origin", 1024 * MIB);
    let origin = format!("model:hdd?store={store}");
    let cache = site.file("cache", 64 * MIB);
    site.run(&["create", "--origin", &origin, "--cache", &cache, "--name", "disk"]);
    let daemon = Daemon::start(&site, &cache, &[]);
    let mut client = connect(&daemon);
    let block = |number: u64| vec![number as u8; BLOCK];
    let place = |number: u64| number * 7919 % 2048 * (MIB / 2);
    for number in 0..2000 {
        client.write(place(number), &block(number)).expect("the daemon answers").expect("it may write");
    }
    site.run(&["set", &cache, "disk", "mode=writethrough"]);
    let both = |status: &serde_json::Value| {
        let volume = &status["volumes"][0];
        (volume["mode"].as_str().map(str::to_owned), volume["mode_target"].as_str().map(str::to_owned))
    };
    let expected = (Some("writeback".to_owned()), Some("writethrough".to_owned()));
    let status = site.report(&["status", &cache]);
    assert_eq!(both(&status), expected, "the old risk lasts until it is drained: {status}");
    drop(client);
    daemon.stop();
    let status = site.report(&["status", &cache]);
    assert_eq!(both(&status), expected, "and over a stop: {status}");

    let daemon = Daemon::start(&site, &cache, &[]);
    site.wait_for_status(&cache, "it is drained", |status| {
        status["volumes"][0]["mode"] == "writethrough" && status["volumes"][0]["dirty_bytes"] == 0
    });
    daemon.stop();
    let home = std::fs::read(&store).expect("the origin");
    for number in 0..2000 {
        let at = place(number) as usize;
        assert!(home[at..at + BLOCK] == block(number), "block {number} is home");
    }
}

/// Zeroes in a part of a dirty block go to the origin at once in writethrough; the rest of the block is not
/// home by that.
#[test]
fn zeroes_in_a_part_of_a_dirty_block_keep_the_rest() {
    const BLOCKS: u64 = 256;
    const SECTOR: usize = 512;
    let site = Site::new("part-zeroes");
    let store = site.file("origin", 512 * MIB);
    let origin = format!("model:hdd?store={store}");
    let cache = site.file("cache", 32 * MIB);
    site.run(&["create", "--origin", &origin, "--cache", &cache, "--name", "disk"]);
    let daemon = Daemon::start(&site, &cache, &[]);
    let mut client = connect(&daemon);
    let place = |number: u64| number * 101 % BLOCKS * 2 * MIB;
    for number in 0..BLOCKS {
        let data = vec![number as u8 | 1; BLOCK];
        client.write(place(number), &data).expect("the daemon answers").expect("it may write");
    }
    site.run(&["set", &cache, "disk", "mode=writethrough"]);
    for number in 0..BLOCKS {
        let sent =
            client.sender().send_write_zeroes(number, place(number) + SECTOR as u64, SECTOR as u32, false);
        sent.expect("the daemon lives");
        assert_eq!(client.receive().expect("the daemon answers").result, Ok(()));
    }
    drop(client);
    site.run(&["detach", &cache, "--verify"]);
    daemon.stop();
    let home = std::fs::read(&store).expect("the origin");
    for number in 0..BLOCKS {
        let mut expected = vec![number as u8 | 1; BLOCK];
        expected[SECTOR..2 * SECTOR].fill(0);
        let at = place(number) as usize;
        assert!(home[at..at + BLOCK] == expected, "block {number}");
    }
}

/// Modes change under load, and no request notices.
#[test]
fn modes_change_under_load() {
    let site = Site::new("modes-load");
    let origin = site.file("origin", 48 * MIB);
    let cache = site.file("cache", 32 * MIB);
    site.run(&["create", "--origin", &origin, "--cache", &cache, "--name", "disk"]);
    let daemon = Daemon::start(&site, &cache, &[]);
    let mut verifier = Verifier::new(5, 48 * MIB);
    let mut clients = [connect(&daemon), connect(&daemon)];
    for mode in ["writethrough", "writeback", "writearound", "writeback", "passthrough", "writearound"] {
        let progress = std::thread::scope(|scope| {
            let load = scope.spawn(|| verifier.run(&mut clients, &Load::mixed(4000, 8)));
            site.run(&["set", &cache, "disk", &format!("mode={mode}")]);
            load.join().expect("the load does not panic").unwrap_or_else(|wrong| panic!("{mode}: {wrong}"))
        });
        assert_eq!((progress.answered, progress.errors), (4000, 0), "{mode}");
    }
    let [mut client, _] = clients;
    verifier.verify_all(&mut client).unwrap_or_else(|wrong| panic!("{wrong}"));
    drop(client);
    daemon.kill();
    verifier.after_crash(Crash::Process);
    let daemon = Daemon::start(&site, &cache, &[]);
    verifier.verify_all(&mut connect(&daemon)).unwrap_or_else(|wrong| panic!("{wrong}"));
    daemon.stop();
}

/// A volume that is readonly from the first start on is announced so.
#[test]
fn a_readonly_volume_is_announced_as_such() {
    let site = Site::new("readonly");
    let origin = site.noise("origin", 16 * MIB, 5);
    let cache = site.file("cache", 32 * MIB);
    site.run(&["create", "--origin", &origin, "--cache", &cache, "--name", "disk", "--mode", "readonly"]);
    let daemon = Daemon::start(&site, &cache, &[]);
    assert!(is_announced_read_only(&daemon));
    site.run(&["set", &cache, "disk", "mode=writethrough"]);
    assert!(!is_announced_read_only(&daemon));
    daemon.stop();
}
