//! The whole live side with a core that caches nothing: real clients, real sockets, real devices.
//!
//! Every test here runs three times: with io_uring and two reactors, with threads instead
//! ([`all_of_it_again_with_threads`]), and with one reactor ([`all_of_it_again_with_one_reactor`]).

mod support;

use engine::effect::Errno;
use forebay_live::devices::{Access, DeviceError, open, parse};
use forebay_live::nbd::client::Client;
use forebay_live::nbd::wire::RawRequest;
use forebay_live::passthrough::Passthrough;
use forebay_live::server::{ControlError, ControlOp, ServerNotice};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;
use support::{Odd, VOLUME, failing_at, pairing, panicking_at, pattern, run, serve, serve_with};

const MIB: usize = 1 << 20;

/// Runs all tests in another process with that variable set, unless this one is such a process.
fn all_of_it_again(variable: &str) {
    const VARIABLES: [&str; 2] = ["FOREBAY_NO_IO_URING", "FOREBAY_TEST_REACTORS"];
    if VARIABLES.iter().any(|variable| std::env::var_os(variable).is_some()) {
        return;
    }
    let output =
        std::process::Command::new(std::env::current_exe().unwrap()).env(variable, "1").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

#[test]
fn all_of_it_again_with_threads() {
    all_of_it_again("FOREBAY_NO_IO_URING");
}

#[test]
fn all_of_it_again_with_one_reactor() {
    all_of_it_again("FOREBAY_TEST_REACTORS");
}

#[test]
fn the_missing_ring_is_noticed() {
    let server = serve("mem:1M", Passthrough::new());
    server.handle.with_core(|_| ()).unwrap();
    let without = std::env::var_os("FOREBAY_NO_IO_URING").is_some();
    let is_noticed =
        || server.notices.lock().unwrap().iter().any(|n| matches!(n, ServerNotice::NoIoUring { .. }));
    // The reactor that was refused says so in its own turn.
    let end = std::time::Instant::now() + Duration::from_secs(10);
    while without && !is_noticed() && std::time::Instant::now() < end {
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(is_noticed(), without);
}

#[test]
fn nbdinfo_sees_what_is_offered() {
    let server = serve("mem:64M", Passthrough::new());
    let info = run("nbdinfo", &["--json", &server.uri()]);
    for fact in [
        "\"export-size\": 67108864",
        "\"structured\": true",
        "\"is_read_only\": false",
        "\"can_multi_conn\": true",
        "\"can_flush\": true",
        "\"can_fua\": true",
        "\"can_trim\": true",
        "\"can_zero\": true",
        "\"block_size_minimum\": 512",
        "\"block_size_maximum\": 67108864",
    ] {
        assert!(info.contains(fact), "{fact} in {info}");
    }
    assert!(run("nbdinfo", &["--list", &server.uri()]).contains("export=\"disk\""));
}

/// A file written and read back through the volume by nbdcopy, with small and with the largest requests.
fn copies_are_exact(spec: &str) {
    let server = serve(spec, Passthrough::new());
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).display().to_string();
    for (turn, options) in [&["--request-size=65536"][..], &["--request-size=33554432", "--connections=1"]]
        .into_iter()
        .enumerate()
    {
        let content = pattern(turn as u64 + 1, 48 * MIB);
        std::fs::write(path("in"), &content).unwrap();
        let (uri, input, output) = (server.uri(), path("in"), path("out"));
        run("nbdcopy", &[options, &["--flush", &input, &uri]].concat());
        run("nbdcopy", &[options, &[&uri, &output]].concat());
        assert!(std::fs::read(path("out")).unwrap() == content, "turn {turn}");
    }
    let latencies = server.handle.latencies(VOLUME).unwrap();
    assert!(latencies.read.count > 0 && latencies.write.count > 0 && latencies.flush.count > 0);
}

#[test]
fn nbdcopy_both_ways_in_memory() {
    copies_are_exact("mem:48M");
}

#[test]
fn nbdcopy_both_ways_on_a_file() {
    let file = tempfile::NamedTempFile::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    file.as_file().set_len(48 << 20).unwrap();
    copies_are_exact(&file.path().display().to_string());
}

#[test]
fn fio_verifies_at_several_depths() {
    let server = serve("mem:32M", Passthrough::new());
    let directory = tempfile::tempdir().unwrap();
    let uri = format!("--uri={}", server.uri());
    for depth in ["1", "16", "128"] {
        let arguments = [
            "--name=verify",
            "--ioengine=nbd",
            &uri,
            "--rw=randwrite",
            "--bsrange=512-256k",
            "--blockalign=512",
            "--size=32M",
            "--verify=crc32c",
            "--verify_fatal=1",
            &format!("--iodepth={depth}"),
            &format!("--aux-path={}", directory.path().display()),
        ];
        run("fio", &arguments);
    }
}

#[test]
fn unaligned_and_long_requests_arrive_whole() {
    let server = serve("mem:80M", Passthrough::new());
    for mut client in [server.connect(), server.connect_simple()] {
        for (offset, len) in [
            (512usize, 512usize),
            (3584, 1024),
            (4608, 300 * 1024),
            (MIB + 1536, 5 * MIB),
            (7 * 512, 32 * MIB),
        ] {
            let content = pattern((offset + len) as u64, len);
            client.write(offset as u64, &content).unwrap().unwrap();
            let seen = client.read(offset as u64, len as u32).unwrap().unwrap();
            assert!(seen == content, "{len} bytes at {offset}");
        }
        client.flush().unwrap().unwrap();
    }
}

#[test]
fn zeroes_and_discards_of_any_length() {
    let file = tempfile::NamedTempFile::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    file.as_file().set_len(8 << 20).unwrap();
    for spec in
        ["mem:200M".to_owned(), file.path().display().to_string(), "model:ssd?size=8M&speed=100".into()]
    {
        let server = serve(&spec, Passthrough::new());
        let mut client = server.connect();
        client.write(0, &pattern(1, 4 * MIB)).unwrap().unwrap();
        let len = u32::try_from(client.size_bytes() - 512).unwrap();
        client.sender().send_write_zeroes(1, 512, len, true).unwrap();
        client.receive().unwrap().result.unwrap();
        let seen = client.read(0, 4 * MIB as u32).unwrap().unwrap();
        assert!(seen[..512] == pattern(1, 512) && seen[512..].iter().all(|byte| *byte == 0), "{spec}");
        client.sender().send_trim(2, 0, len, false).unwrap();
        client.receive().unwrap().result.unwrap();
    }
}

#[test]
fn errors_keep_their_number_and_the_first_one_wins() {
    // A bad sector 10 MiB into the volume.
    let server = serve("mem:64M", Odd::new(failing_at(20480, 1)));
    for mut client in [server.connect(), server.connect_simple()] {
        assert_eq!(client.read(10 << 20, 4096).unwrap().unwrap_err(), Errno::NOSPC);
        assert_eq!(client.write((10 << 20) - 65536, &pattern(1, MIB)).unwrap().unwrap_err(), Errno::NOSPC);
        // Gathered or in chunks, the error is told.
        assert_eq!(client.read(10 << 20, MIB as u32).unwrap().unwrap_err(), Errno::NOSPC);
        // The connection is still in step.
        assert_eq!(client.read(0, 4096).unwrap().unwrap().len(), 4096);
    }
    assert_eq!(server.connect().read(0, 32 << 20).unwrap().unwrap_err(), Errno::NOSPC);
    // A simple reply that long has begun before the error: all that is left is to close.
    let mut simple = server.connect_simple();
    assert!(simple.read(0, 32 << 20).is_err());
    assert_eq!(server.connect().read(0, 512).unwrap().unwrap().len(), 512);
}

#[test]
fn liars_are_told_and_harm_nobody() {
    let server = serve("mem:8M", Passthrough::new());
    let mut honest = server.connect();
    honest.write(0, &pattern(5, 4096)).unwrap().unwrap();
    // Garbage instead of a handshake.
    let mut garbage = UnixStream::connect(&server.socket).unwrap();
    garbage.write_all(&pattern(9, 4096)).unwrap_or(());
    let mut rest = Vec::new();
    let _ = garbage.read_to_end(&mut rest);
    // Garbage after one.
    let mut client = server.connect();
    for (command, offset_bytes, len_bytes) in
        [(0, u64::MAX - 511, 512), (0, 0, u32::MAX), (77, 0, 512), (4, 1, 1)]
    {
        let request = RawRequest { flags: 0, command, cookie: 9, offset_bytes, len_bytes };
        client.sender().send(&request, &[]).unwrap();
        assert_eq!(client.receive().unwrap().result.unwrap_err(), Errno::INVAL, "{request:?}");
    }
    let mut raw = UnixStream::connect(&server.socket).unwrap();
    enter(&mut raw);
    // A write of nearly 4 GiB cannot even be skipped.
    raw.write_all(&request(1, 0, u32::MAX)).unwrap();
    assert_eq!(raw.read(&mut [0; 64]).unwrap(), 0);
    assert_eq!(honest.read(0, 4096).unwrap().unwrap(), pattern(5, 4096));
}

/// Enters the transmission by hand: greeting, flags, NBD_OPT_EXPORT_NAME.
fn enter(stream: &mut UnixStream) {
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream.read_exact(&mut [0; 18]).unwrap();
    let name = b"disk";
    let option =
        [&3u32.to_be_bytes()[..], b"IHAVEOPT", &1u32.to_be_bytes(), &(name.len() as u32).to_be_bytes(), name];
    stream.write_all(&option.concat()).unwrap();
    stream.read_exact(&mut [0; 10]).unwrap();
}

fn request(command: u16, offset: u64, len: u32) -> Vec<u8> {
    let parts = [
        &0x2560_9513u32.to_be_bytes()[..],
        &0u16.to_be_bytes(),
        &command.to_be_bytes(),
        &77u64.to_be_bytes(),
        &offset.to_be_bytes(),
        &len.to_be_bytes(),
    ];
    parts.concat()
}

#[test]
fn the_dead_and_the_stalled_harm_nobody() {
    let server = serve("mem:64M", Passthrough::new());
    let mut stalled = Vec::new();
    for turn in 0..6 {
        // Half a write, then nothing; every other one hangs up.
        let mut half = UnixStream::connect(&server.socket).unwrap();
        enter(&mut half);
        half.write_all(&request(1, 0, 32 << 20)).unwrap();
        half.write_all(&vec![7; 100_000]).unwrap();
        // Reads without end, whose replies nobody takes.
        let mut reader = UnixStream::connect(&server.socket).unwrap();
        enter(&mut reader);
        reader.set_nonblocking(true).unwrap();
        for _ in 0..600 {
            if reader.write_all(&request(0, 0, 1 << 20)).is_err() {
                break;
            }
        }
        // Wrong requests without end, whose answers nobody takes.
        let mut wrong = UnixStream::connect(&server.socket).unwrap();
        enter(&mut wrong);
        wrong.set_nonblocking(true).unwrap();
        let many: Vec<u8> = request(99, 0, 0).repeat(1000);
        while wrong.write(&many).is_ok_and(|written| written == many.len()) {}
        if turn % 2 == 0 {
            stalled.extend([half, reader, wrong]);
        }
    }
    let mut client = server.connect();
    for turn in 0..64u64 {
        let content = pattern(turn, 100 * 512);
        client.write(turn * 100 * 512, &content).unwrap().unwrap();
        assert!(client.read(turn * 100 * 512, 100 * 512).unwrap().unwrap() == content);
    }
    let long = pattern(1, 32 * MIB);
    client.write(0, &long).unwrap().unwrap();
    assert!(client.read(0, 32 << 20).unwrap().unwrap() == long);
    drop(stalled);
}

#[test]
fn memory_comes_back_from_those_who_only_hold_it() {
    let server = serve("mem:64M", Passthrough::new());
    let stalled: Vec<UnixStream> = (0..100)
        .map(|_| {
            let mut stream = UnixStream::connect(&server.socket).unwrap();
            enter(&mut stream);
            stream.write_all(&request(1, 0, 32 << 20)).unwrap();
            stream
        })
        .collect();
    let mut client = server.connect();
    let content = pattern(4, 1 << 20);
    client.write(0, &content).unwrap().unwrap();
    assert!(client.read(0, 1 << 20).unwrap().unwrap() == content);
    drop(stalled);
}

#[test]
fn who_does_not_finish_the_handshake_is_sent_away() {
    let server = serve("mem:1M", Passthrough::new());
    let mut idle = UnixStream::connect(&server.socket).unwrap();
    idle.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let mut seen = Vec::new();
    idle.read_to_end(&mut seen).unwrap();
    assert_eq!(seen.len(), 18, "the greeting, then the end");
}

#[test]
fn many_requests_on_many_connections() {
    let server = serve("mem:64M", Passthrough::new());
    std::thread::scope(|scope| {
        for number in 0..8u64 {
            let client = server.connect();
            scope.spawn(move || pipeline(client, number));
        }
    });
}

/// Writes its own eighth of the volume with far more requests under way than are taken at once, and reads it
/// back the same way.
fn pipeline(client: Client, number: u64) {
    let base = number * (8 << 20);
    let place = |cookie: u64| base + cookie * 4096;
    let (mut sender, mut receiver) = client.split();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for cookie in 0..1024 {
                let content = pattern(base + cookie, 4096);
                sender.send_write(cookie, place(cookie), &content, cookie % 100 == 0).unwrap();
            }
        });
        for _ in 0..1024 {
            receiver.receive().unwrap().result.unwrap();
        }
    });
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for cookie in 0..1024 {
                sender.send_read(cookie, place(cookie), 4096).unwrap();
            }
        });
        for _ in 0..1024 {
            let reply = receiver.receive().unwrap();
            let cookie = reply.cookie;
            reply.result.unwrap();
            assert!(reply.data == pattern(base + cookie, 4096), "{cookie}");
        }
    });
}

#[test]
fn other_threads_can_ask() {
    let server = serve("mem:1M", Passthrough::new());
    let mut client = server.connect();
    client.write(4096, &pattern(3, 8192)).unwrap().unwrap();
    assert_eq!(server.handle.read(VOLUME, 4608, 1024).unwrap(), pattern(3, 8192)[512..1536]);
    assert_eq!(server.handle.read(VOLUME, 100, 512), Err(ControlError::Engine(Errno::INVAL)));
    assert_eq!(server.handle.request(VOLUME, ControlOp::Flush), Ok(()));
    let refused = server.handle.request(VOLUME, ControlOp::GiveUpLost);
    assert_eq!(refused, Err(ControlError::Engine(Errno::OPNOTSUPP)));
    assert_eq!(server.handle.start(VOLUME, ControlOp::Drain).unwrap().wait(), Ok(()));
    assert_eq!(server.handle.with_core(|_| 42), Ok(42));
}

#[test]
fn a_changed_or_closed_export_sends_its_clients_away() {
    let server = serve("mem:2M", Passthrough::new());
    let mut client = server.connect();
    server.handle.resize_export(VOLUME, 1 << 20).unwrap();
    assert!(client.read(0, 512).is_err());
    let mut client = server.connect();
    assert_eq!(client.size_bytes(), 1 << 20);
    server.handle.close_export(VOLUME).unwrap();
    assert!(client.read(0, 512).is_err());
    assert!(Client::connect(&server.address(), "disk").is_err());
    server.handle.close_doors().unwrap();
    assert!(UnixStream::connect(&server.socket).is_err());
}

/// Neighbours on the door's list are served by different reactors.
#[test]
fn clients_of_different_reactors_see_one_volume() {
    let server = serve("mem:8M", Passthrough::new());
    let mut clients: Vec<Client> = (0..4).map(|_| server.connect()).collect();
    for turn in 0..64u64 {
        let content = pattern(turn, 128 << 10);
        let offset = turn % 8 * (128 << 10);
        clients[turn as usize % 4].write(offset, &content).unwrap().unwrap();
        for client in &mut clients {
            assert!(client.read(offset, 128 << 10).unwrap().unwrap() == content);
        }
    }
    let latencies = server.handle.latencies(VOLUME).unwrap();
    assert_eq!((latencies.read.count, latencies.write.count), (256, 64), "of all clients");
}

/// What the core can do while devices work is done then, and not left for their answers.
#[test]
fn a_core_may_catch_up_while_devices_work() {
    let core = Odd::new(|request, _, _| Ok(vec![request]));
    let caught_up = core.caught_up.clone();
    let server = serve("mem:1M", core);
    let mut client = server.connect();
    for turn in 0..100 {
        client.write(turn * 4096, &pattern(turn, 4096)).unwrap().unwrap();
    }
    assert!(caught_up.load(std::sync::atomic::Ordering::Relaxed) > 0, "it was never let");
}

/// Each reply of one client comes about in a turn of the other one's reactor, at any moment of its own: none
/// may be left lying while everybody sleeps.
#[test]
fn replies_reach_the_other_reactor_whatever_it_is_doing() {
    const READS: u64 = 20_000;
    let server = serve("mem:1M", Odd::new(pairing()));
    let (done, ends) = std::sync::mpsc::channel();
    for _ in 0..2 {
        let (mut client, done) = (server.connect(), done.clone());
        std::thread::spawn(move || {
            for turn in 0..READS {
                client.read(turn % 256 * 4096, 4096).unwrap().unwrap();
            }
            done.send(()).unwrap();
        });
    }
    for _ in 0..2 {
        if ends.recv_timeout(Duration::from_secs(60)).is_err() {
            #[expect(clippy::mem_forget, reason = "its end would wait for the device that hangs")]
            std::mem::forget(server);
            panic!("a read was not answered");
        }
    }
}

/// When the answer comes, no door serves the volume any more, and no door anything after the last.
#[test]
fn all_reactors_have_obeyed_before_the_answer() {
    let server = serve("mem:1M", Passthrough::new());
    let ended = |clients: Vec<UnixStream>| {
        for mut client in clients {
            client.set_nonblocking(true).unwrap();
            client.read_to_end(&mut Vec::new()).expect("the end is there at once");
        }
    };
    let connect = || {
        let connect = |_| {
            let mut stream = UnixStream::connect(&server.socket).unwrap();
            enter(&mut stream);
            stream
        };
        (0..4).map(connect).collect::<Vec<_>>()
    };
    let clients = connect();
    server.handle.resize_export(VOLUME, 1 << 19).unwrap();
    ended(clients);
    let clients = connect();
    server.handle.close_doors().unwrap();
    ended(clients);
}

#[test]
fn a_panic_in_one_reactor_ends_them_all() {
    let mut server = serve("mem:1M", Odd::new(panicking_at(8, 8)));
    let mut clients: Vec<Client> = (0..4).map(|_| server.connect()).collect();
    assert!(clients[1].read(0, 4096).unwrap().is_ok());
    assert!(clients[1].read(4096, 4096).is_err(), "the connection ends");
    assert!(server.end().is_err(), "and so does the server");
    assert!(!server.socket.exists());
    assert_eq!(server.handle.with_core(|_| ()), Err(ControlError::Stopped));
}

/// A failed reactor has not waited for what the kernel and threads have under way.
#[test]
fn what_may_be_in_use_outlives_a_panic() {
    let file = tempfile::NamedTempFile::new().unwrap();
    file.as_file().set_len(1 << 20).unwrap();
    let spec = file.path().display().to_string();
    let mut server = serve(&spec, Odd::new(panicking_at(8, 8)));
    assert!(server.connect().read(4096, 4096).is_err());
    assert!(server.end().is_err());
    server.device = open(&parse("mem:1M").unwrap(), Access::Exclusive).unwrap();
    let again = open(&parse(&spec).unwrap(), Access::Exclusive);
    assert!(
        matches!(again, Err(DeviceError::Locked { .. })),
        "the device and its buffers are kept: {again:?}"
    );
}

#[test]
fn a_stop_lets_what_is_under_way_end() {
    let mut server = serve("model:hdd?size=64M&speed=2", Passthrough::new());
    let mut client = server.connect();
    for cookie in 0..40 {
        client.sender().send_write(cookie, cookie * 1_048_576, &pattern(cookie, 4096), false).unwrap();
    }
    // The first reply says that the others are on their way as well.
    client.receive().unwrap().result.unwrap();
    let other = server.handle.clone();
    let second = std::thread::spawn(move || other.stop());
    server.handle.stop().unwrap_or_else(|error| assert_eq!(error, ControlError::Stopped));
    second.join().unwrap().unwrap_or_else(|error| assert_eq!(error, ControlError::Stopped));
    server.join();
    assert_eq!(server.handle.with_core(|_| ()), Err(ControlError::Stopped));
    assert!(!server.socket.exists());
}

#[test]
fn a_modelled_disk_is_served_and_can_be_cut_off() {
    let store = tempfile::NamedTempFile::new().unwrap();
    store.as_file().set_len(16 << 20).unwrap();
    let spec = format!("model:ssd?store={}&speed=50", store.path().display());
    let server = serve_with(&spec, Passthrough::new(), |config| {
        config.device_timeout = Duration::from_millis(500);
    });
    let mut client = server.connect();
    let (first, second) = (pattern(1, 300_032), pattern(2, 300_032));
    client.write(512, &first).unwrap().unwrap();
    client.flush().unwrap().unwrap();
    client.write(8 << 20, &second).unwrap().unwrap();
    assert!(client.read(8 << 20, 300_032).unwrap().unwrap() == second);
    server.device.lose_unflushed();
    // It answers nothing any more, and is given up.
    assert_eq!(client.read(0, 512).unwrap().unwrap_err(), Errno::IO);
    let after = std::fs::read(store.path()).unwrap();
    assert!(after[512..300_544] == first);
    assert!(after[8 << 20..(8 << 20) + 300_032] != second);
}

#[test]
fn a_device_that_hangs_is_given_up() {
    // Thousandths of the speed of a hard disk: every read takes seconds.
    let server = serve_with("model:hdd?size=64M&speed=0.001", Passthrough::new(), |config| {
        config.device_timeout = Duration::from_millis(300);
    });
    let mut client = server.connect();
    client.sender().send_read(1, 32 << 20, 4096).unwrap();
    client.sender().send_read(2, 8 << 20, 65536).unwrap();
    for _ in 0..2 {
        assert_eq!(client.receive().unwrap().result.unwrap_err(), Errno::IO);
    }
    // From now on it is gone.
    assert_eq!(client.read(0, 512).unwrap().unwrap_err(), Errno::IO);
    let notices = server.notices.lock().unwrap();
    assert_eq!(notices.iter().filter(|notice| matches!(notice, ServerNotice::DeviceGone { .. })).count(), 1);
}

/// Goal: a disk that zeroes one range after the other works, however many wait. Method: ranges for two seconds, each of which is
/// done within the timeout, asked for at once.
#[test]
fn a_device_that_zeroes_for_long_is_not_given_up() {
    let server = serve_with("model:hdd?size=64M&speed=0.05", Passthrough::new(), |config| {
        config.device_timeout = Duration::from_millis(1000);
    });
    let mut client = server.connect();
    for cookie in 0..32 {
        client.sender().send_write_zeroes(cookie, cookie << 20, 1 << 20, false).unwrap();
    }
    for _ in 0..32 {
        client.receive().unwrap().result.unwrap();
    }
}

#[test]
fn tcp_and_several_addresses_work() {
    let server = serve_with("mem:1M", Passthrough::new(), |config| {
        config.listen.push("127.0.0.1:0".parse().unwrap());
        config.exports[0].read_only = true;
    });
    let mut client = server.connect();
    assert_eq!(client.write(0, &[1; 512]).unwrap().unwrap_err(), Errno::PERM);
    assert_eq!(client.read(0, 512).unwrap().unwrap(), vec![0; 512]);
}
