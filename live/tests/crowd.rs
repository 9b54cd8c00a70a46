//! Goal: neither many clients nor long requests keep anybody from being served. Method: real sockets to a server with as
//! little memory as one takes: 200 clients at once, all places taken by clients that want nothing, requests of 64 MiB.

#[allow(dead_code, reason = "other tests need more of it")]
mod support;

use engine::effect::Errno;
use forebay_live::nbd::client::Client;
use forebay_live::passthrough::Passthrough;
use forebay_live::server::ServerNotice;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};
use support::{Running, pattern, serve};

const MIB: usize = 1 << 20;
/// Most clients of a server.
const PLACES: usize = 256;
/// A client that wants to be served does not wait longer than this for its place.
const PATIENCE: Duration = Duration::from_secs(8);

fn works(mut client: Client, at: u64) {
    let content = pattern(at, 4096);
    client.write(at * 4096, &content).unwrap().unwrap();
    assert!(client.read(at * 4096, 4096).unwrap().unwrap() == content);
}

#[test]
fn two_hundred_clients_at_once_are_all_served() {
    let server = serve("mem:1M", Passthrough::new());
    let start = std::sync::Barrier::new(200);
    std::thread::scope(|scope| {
        for at in 0..200 {
            let (server, start) = (&server, &start);
            scope.spawn(move || {
                start.wait();
                works(server.connect(), at);
            });
        }
    });
}

/// Connects and is served, while all places are taken.
fn finds_a_place(server: &Running<Passthrough>) {
    let began_at = Instant::now();
    works(server.connect(), 1);
    assert!(began_at.elapsed() < PATIENCE, "{:?}", began_at.elapsed());
}

#[test]
fn clients_that_want_nothing_lock_out_nobody() {
    // No word, not even a handshake.
    let server = serve("mem:1M", Passthrough::new());
    let mute: Vec<UnixStream> = (0..PLACES).map(|_| UnixStream::connect(&server.socket).unwrap()).collect();
    (0..3).for_each(|_| finds_a_place(&server));
    drop((mute, server));

    // A handshake, and no request.
    let server = serve("mem:1M", Passthrough::new());
    let idle: Vec<Client> = (0..PLACES).map(|_| server.connect()).collect();
    (0..3).for_each(|_| finds_a_place(&server));
    drop((idle, server));
}

#[test]
fn clients_at_work_keep_their_places() {
    let server = serve("mem:1M", Passthrough::new());
    let mut busy: Vec<Client> = (0..PLACES).map(|_| server.connect()).collect();
    for client in &mut busy {
        assert_eq!(client.read(0, 512).unwrap().unwrap().len(), 512);
    }
    let mut late = UnixStream::connect(&server.socket).unwrap();
    late.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut seen = Vec::new();
    late.read_to_end(&mut seen).unwrap();
    assert_eq!(seen.len(), 0, "one client too many is sent away before the greeting");
    // It is told once the client is gone.
    let is_told =
        || server.notices.lock().unwrap().contains(&ServerNotice::TooManyClients { clients: PLACES });
    let end = Instant::now() + PATIENCE;
    while !is_told() && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(is_told(), "the operator learns that a client was sent away");
    for client in &mut busy {
        assert_eq!(client.read(512, 512).unwrap().unwrap().len(), 512, "it had its place before");
    }
    drop(busy.pop());
    finds_a_place(&server);
}

#[test]
fn requests_of_sixty_four_mebibytes_are_taken() {
    let server = serve("mem:80M", Passthrough::new());
    for mut client in [server.connect(), server.connect_simple()] {
        for (turn, len) in [48 * MIB, 64 * MIB].into_iter().enumerate() {
            // Neither the beginning nor the end is that of a block.
            let (at, content) = (512 + turn as u64 * 4608, pattern(turn as u64, len));
            client.write(at, &content).unwrap().unwrap();
            assert!(client.read(at, len as u32).unwrap().unwrap() == content, "{len} bytes at {at}");
        }
        // The rest of the volume is untouched, and longer ones are refused.
        assert!(client.read(79 << 20, 1 << 20).unwrap().unwrap() == vec![0; MIB]);
        let sent = client.sender().send(&too_long(), &[]);
        assert!(sent.is_ok() && client.receive().unwrap().result == Err(Errno::INVAL));
    }
}

/// A handshake that goes on and on, a word now and then.
#[test]
fn a_handshake_without_end_is_ended() {
    let server = serve("mem:1M", Passthrough::new());
    let mut slow = UnixStream::connect(&server.socket).unwrap();
    let began_at = Instant::now();
    slow.read_exact(&mut [0; 18]).unwrap();
    slow.write_all(&3u32.to_be_bytes()).unwrap();
    // NBD_OPT_LIST, for as long as somebody listens.
    let list = [&b"IHAVEOPT"[..], &3u32.to_be_bytes(), &0u32.to_be_bytes()].concat();
    while slow.write_all(&list).is_ok() && began_at.elapsed() < Duration::from_secs(30) {
        std::thread::sleep(Duration::from_millis(300));
    }
    let lasted = began_at.elapsed();
    assert!((9..20).contains(&lasted.as_secs()), "a handshake has ten seconds in all, not {lasted:?}");
}

fn too_long() -> forebay_live::nbd::wire::RawRequest {
    let len_bytes = (64 << 20) + 512;
    forebay_live::nbd::wire::RawRequest { flags: 0, command: 0, cookie: 7, offset_bytes: 0, len_bytes }
}
