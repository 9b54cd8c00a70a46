//! The verifying client is tested itself: a correct disk passes, whatever it is allowed to do, and each
//! planted bug is found, and named for what it is.
//!
//! Method: a disk in memory, which does requests out of order and dies after some number of them.

#[path = "support/server_wire.rs"]
mod server_wire;
#[path = "support/verifier/small_histories.rs"]
mod small_histories;
#[path = "support/toy_server.rs"]
mod toy_server;
#[path = "support/verifier.rs"]
mod verifier;

use live::nbd::client::{Address, Client};
use toy_server::{Bug, ToyServer};
use verifier::{Crash, Damage, Load, Progress, Verifier, Violation, Wrong};

const SIZE_BYTES: u64 = 4 << 20;
const CONNECTIONS: usize = 3;

fn connect(server: &ToyServer) -> Client {
    Client::connect(&Address::from(server.path()), "toy").expect("the toy listens")
}

/// One life under load, then the crash; the last word of the verifier in the life after.
fn life(
    server: &ToyServer,
    verifier: &mut Verifier,
    load: &Load,
    requests: u64,
    crash: Crash,
) -> Result<Progress, Box<Violation>> {
    let serving = server.live(CONNECTIONS, requests);
    let mut clients: Vec<Client> = (0..CONNECTIONS).map(|_| connect(server)).collect();
    let progress = verifier.run(&mut clients, load);
    drop(clients);
    serving.join().expect("the toy ends");
    let progress = progress?;
    verifier.after_crash(crash);
    server.with_disk(|disk| match crash {
        Crash::Power => disk.cut_power(),
        Crash::Process => disk.kill(),
    });
    Ok(progress)
}

/// Reads everything twice in a life of its own.
fn sweep(server: &ToyServer, verifier: &mut Verifier) -> Result<(), Box<Violation>> {
    let serving = server.live(1, u64::MAX);
    let mut client = connect(server);
    let result = verifier.verify_all(&mut client).and_then(|()| verifier.verify_all(&mut client));
    drop(client);
    serving.join().expect("the toy ends");
    result
}

/// Ten lives with either crash; the first violation.
fn lives(bug: Bug, seed: u64, min_block_bytes: u32) -> Result<Progress, Box<Violation>> {
    let name = format!("{bug:?}-{seed}-{min_block_bytes}");
    let server = ToyServer::new(&name, SIZE_BYTES, min_block_bytes, bug, seed);
    let mut verifier = Verifier::new(seed, SIZE_BYTES);
    let mut total = Progress::default();
    for number in 0..10_u64 {
        let crash = if number % 2 == 0 { Crash::Power } else { Crash::Process };
        let requests = 200 + seed * 37 % 100 + number;
        let progress = life(&server, &mut verifier, &Load::mixed(u64::MAX, 8), requests, crash)?;
        assert!(progress.died, "the load has no end but the server's");
        total.changes += progress.changes;
        total.flushes += progress.flushes;
        total.cut_off += progress.cut_off;
        total.errors += progress.errors;
        // Every third life begins without a look at everything, so that less is settled.
        if number % 3 != 2 {
            sweep(&server, &mut verifier)?;
        }
    }
    Ok(total)
}

#[test]
fn a_correct_disk_passes() {
    for seed in 0..12 {
        let min_block_bytes = if seed % 4 == 3 { 4096 } else { 512 };
        let total = lives(Bug::None, seed, min_block_bytes).unwrap_or_else(|violation| panic!("{violation}"));
        assert!(total.changes > 500 && total.flushes > 10 && total.cut_off > 10, "{total:?}");
        assert_eq!(total.errors, 0);
    }
}

#[test]
fn a_load_with_an_end_ends() {
    let server = ToyServer::new("end", SIZE_BYTES, 512, Bug::None, 1);
    let serving = server.live(2, u64::MAX);
    let mut clients = [connect(&server), connect(&server)];
    let mut verifier = Verifier::new(1, SIZE_BYTES);
    let progress = verifier.run(&mut clients, &Load::mixed(500, 4)).unwrap();
    assert_eq!((progress.answered, progress.died, progress.cut_off), (500, false, 0));
    // The connections are still good.
    let progress = verifier.run(&mut clients, &Load::mixed(100, 1)).unwrap();
    assert_eq!((progress.answered, progress.died), (100, false));
    drop(clients);
    serving.join().unwrap();
}

/// The violation that a bug shows within some seeds.
fn found(bug: Bug) -> Violation {
    let violation = (0..5).find_map(|seed| lives(bug, seed, 512).err());
    *violation.unwrap_or_else(|| panic!("{bug:?} was not found"))
}

#[test]
fn planted_bugs_are_found_and_named() {
    use Wrong::{Changed, Lost, Returned, Stale};
    let wrongs: [(Bug, &[Wrong]); 9] = [
        (Bug::StaleRead, &[Stale]),
        (Bug::FlushIgnored, &[Lost]),
        (Bug::FuaIgnored, &[Lost]),
        (Bug::WriteDropped, &[Stale, Lost]),
        (Bug::ZeroesIgnored, &[Stale, Lost]),
        (Bug::ProcessCrashLoses, &[Lost]),
        (Bug::Undecided, &[Changed, Returned]),
        (Bug::DeadTail, &[Returned]),
        (Bug::Misplaced, &[Stale, Lost]),
    ];
    for (bug, expected) in wrongs {
        let violation = found(bug);
        match &violation {
            Violation::Content { wrong: Some(wrong), .. } => {
                assert!(expected.contains(wrong), "{bug:?}: {violation}");
            }
            // What is written to the wrong place is missing in the right one as well.
            Violation::Content { read: Err(Damage::Misplaced { .. }), .. } if bug == Bug::Misplaced => {}
            _ => panic!("{bug:?}: {violation}"),
        }
    }
    for bug in [Bug::TornSector, Bug::Garbage, Bug::DiscardLeaks] {
        let damage = match found(bug) {
            Violation::Content { read: Err(damage), .. } => damage,
            other => panic!("{bug:?}: {other}"),
        };
        let is_named = match bug {
            Bug::TornSector => damage == Damage::Torn,
            Bug::Garbage => damage == Damage::Invented,
            _ => matches!(damage, Damage::Misplaced { .. }),
        };
        assert!(is_named, "{bug:?}: {damage:?}");
    }
}
