//! Goal: limits hold what they should hold and nothing else. Method: real clients of a server whose limits let next to
//! nothing through, so that whatever is answered was not held back.

#[allow(dead_code, reason = "other tests need more of it")]
mod support;

use engine::units::VolumeIndex;
use forebay_live::devices::{Access, open, parse};
use forebay_live::limits::{Limits, Rate};
use forebay_live::nbd::client::Client;
use forebay_live::passthrough::Passthrough;
use forebay_live::server::{Config, ExportConfig};
use std::time::{Duration, Instant};
use support::{Odd, VOLUME, hanging, pattern, serve, serve_with};

/// Nobody who is not held back waits as long as this.
const PATIENCE: Duration = Duration::from_secs(15);

/// A byte a second, after the first request.
fn next_to_nothing() -> Limits {
    Limits { iops: None, bandwidth: Some(Rate { per_second: 1, burst: 1 }) }
}

#[test]
fn neither_a_flush_nor_the_end_waits_for_what_is_held_back() {
    let mut server = serve("mem:1M", Passthrough::new());
    server.handle.set_limits(VOLUME, next_to_nothing()).unwrap();
    let mut client = server.connect();
    let block = pattern(1, 4096);
    client.sender().send_write(1, 0, &block, false).unwrap();
    client.sender().send_write(2, 4096, &block, false).unwrap();
    client.sender().send_flush(3).unwrap();
    let mut answered = [client.receive().unwrap().cookie, client.receive().unwrap().cookie];
    answered.sort_unstable();
    assert_eq!(answered, [1, 3], "the second write waits for an hour, the flush does not");
    assert_eq!(server.handle.held_back(VOLUME).unwrap().requests, 1);
    let began_at = Instant::now();
    server.handle.stop().unwrap();
    server.join();
    assert!(began_at.elapsed() < PATIENCE, "{:?}", began_at.elapsed());
    assert!(client.receive().is_err(), "what was held back was never acknowledged");
}

#[test]
fn limits_that_are_taken_away_let_go() {
    let server = serve("mem:1M", Passthrough::new());
    server.handle.set_limits(VOLUME, next_to_nothing()).unwrap();
    let mut client = server.connect();
    let blocks: Vec<Vec<u8>> = (0..5).map(|seed| pattern(seed, 4096)).collect();
    for (at, block) in blocks.iter().enumerate() {
        client.sender().send_write(at as u64, at as u64 * 4096, block, false).unwrap();
    }
    assert_eq!(client.receive().unwrap().cookie, 0);
    server.handle.set_limits(VOLUME, Limits::default()).unwrap();
    for _ in 1..5 {
        assert_eq!(client.receive().unwrap().result, Ok(()));
    }
    assert!(client.read(0, 5 * 4096).unwrap().unwrap() == blocks.concat());
}

#[test]
fn the_requests_of_a_client_that_left_hold_up_nobody() {
    let server = serve("mem:1M", Passthrough::new());
    let iops = Some(Rate { per_second: 4, burst: 1 });
    server.handle.set_limits(VOLUME, Limits { iops, bandwidth: None }).unwrap();
    let mut gone = server.connect();
    let block = pattern(1, 512);
    for at in 0..240 {
        gone.sender().send_write(at, at * 512, &block, false).unwrap();
    }
    assert_eq!(gone.receive().unwrap().cookie, 0);
    drop(gone);
    let began_at = Instant::now();
    server.connect().write(0, &block).unwrap().unwrap();
    assert!(began_at.elapsed() < PATIENCE, "what is left of it would take a minute");
}

/// A second volume, called `other`.
fn add_other(config: &mut Config) {
    let device = open(&parse("mem:4M").unwrap(), Access::Exclusive).unwrap();
    config.exports.push(ExportConfig {
        volume: VolumeIndex(1),
        name: "other".to_owned(),
        size_bytes: device.size_bytes(),
        min_block_bytes: 512,
        read_only: false,
    });
    config.origins.push(Some(device));
}

/// Goal: an origin that hangs keeps neither the other volumes nor the end waiting. Method: more flushes than the core takes, and
/// discards of all of a large volume, of which nothing is ever answered.
#[test]
fn a_volume_that_hangs_holds_up_no_other() {
    let mut server = serve_with("mem:4M", Odd::new(hanging()), |config| {
        config.exports[0].size_bytes = 1 << 40;
        add_other(config);
    });
    let mut clients: Vec<Client> = (0..20).map(|_| server.connect()).collect();
    for (at, client) in clients.iter_mut().enumerate() {
        for cookie in 0..500 {
            let sender = client.sender();
            match at % 2 {
                0 => sender.send_flush(cookie).unwrap(),
                _ => sender.send_trim(cookie, 0, 1 << 31, false).unwrap(),
            }
        }
    }
    let began_at = Instant::now();
    let mut client = Client::connect(&server.address(), "other").unwrap();
    for at in 0..100 {
        let block = pattern(at, 4096);
        client.write(at * 4096, &block).unwrap().unwrap();
        assert!(client.read(at * 4096, 4096).unwrap().unwrap() == block);
    }
    server.handle.stop().unwrap();
    server.join();
    assert!(began_at.elapsed() < PATIENCE, "{:?}", began_at.elapsed());
}

#[test]
fn a_volume_that_is_held_back_holds_up_no_other() {
    let mut server = serve_with("mem:4M", Passthrough::new(), add_other);
    server.handle.set_limits(VOLUME, next_to_nothing()).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..6 {
            let mut client = server.connect();
            scope.spawn(move || {
                let piece = pattern(2, 256 << 10);
                // Until the server has no more memory for it, and then until it ends.
                for at in 0..400 {
                    if client.sender().send_write(at, at % 16 * (256 << 10), &piece, false).is_err() {
                        break;
                    }
                }
            });
        }
        let start = Instant::now();
        while server.handle.held_back(VOLUME).unwrap().requests < 6 {
            assert!(start.elapsed() < PATIENCE, "each of them is held back");
            std::thread::sleep(Duration::from_millis(5));
        }
        let mut free = Client::connect(&server.address(), "other").unwrap();
        let content = pattern(3, 1 << 20);
        let began_at = Instant::now();
        for round in 0..20 {
            free.write((round % 4) << 20, &content).unwrap().unwrap();
            assert!(free.read((round % 4) << 20, 1 << 20).unwrap().unwrap() == content);
        }
        assert!(began_at.elapsed() < PATIENCE, "{:?}", began_at.elapsed());
        assert_eq!(server.handle.held_back(VolumeIndex(1)).unwrap().requests, 0);
        server.handle.stop().unwrap();
    });
    server.join();
}
