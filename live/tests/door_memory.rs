//! Goal: a client that leaves gives all its memory back. Method: a core that keeps a buffer in nearly each large block of
//! the memory, so that a long read gets some of what it needs and no more; then its client is sent away.

#[allow(dead_code, reason = "other tests need more of it")]
mod support;

use engine::effect::{Effect, Request, RequestOp};
use engine::memory::Memory;
use engine::units::VolumeIndex;
use forebay_live::buffers::Pool;
use forebay_live::devices::{Access, open, parse};
use forebay_live::nbd::client::Client;
use forebay_live::server::ExportConfig;
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use support::{Odd, Take, VOLUME, pattern, serve_with};

const PATIENCE: Duration = Duration::from_secs(15);
/// Frames of the longest piece of a read.
const PIECE_FRAMES: u32 = 64;

/// The counts of a core.
#[derive(Default)]
struct Counts {
    writes_held: AtomicU64,
    reads: AtomicU64,
    /// Memory of the doors in use after the last flush.
    used_bytes: AtomicU64,
}

/// Answers reads and flushes at once, and writes at flushes: at the first all but one in each run of [`PIECE_FRAMES`] after
/// the first run, at the next all.
fn scattering(counts: Arc<Counts>) -> impl Take {
    let (mut kept, mut has_scattered) = (Vec::new(), false);
    move |request: Request, memory: &mut Pool, replies: &mut VecDeque<Effect>| {
        match request.op {
            RequestOp::Write { from, .. } => {
                kept.push((request.id, from.buffer));
                counts.writes_held.fetch_add(1, Ordering::SeqCst);
                return Ok(Vec::new());
            }
            RequestOp::Read { into, .. } => {
                memory.release(into.buffer);
                counts.reads.fetch_add(1, Ordering::SeqCst);
            }
            _ => {
                let mut runs = BTreeSet::new();
                for (id, buffer) in std::mem::take(&mut kept) {
                    let is_kept = runs.insert(buffer.0 / PIECE_FRAMES) && runs.len() > 1;
                    if is_kept && !has_scattered {
                        kept.push((id, buffer));
                    } else {
                        memory.release(buffer);
                        replies.push_back(Effect::Reply { id, result: Ok(()) });
                    }
                }
                has_scattered = true;
                counts.used_bytes.store(memory.door_used_bytes(), Ordering::SeqCst);
            }
        }
        replies.push_back(Effect::Reply { id: request.id, result: Ok(()) });
        Ok(Vec::new())
    }
}

fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn what_came_of_a_long_read_goes_with_its_client() {
    let counts = Arc::new(Counts::default());
    let core = Odd::new(scattering(Arc::clone(&counts)));
    // No volume has more than its share of the core.
    let server = serve_with("mem:8M", core, |config| {
        for volume in 1..=4 {
            let device = open(&parse("mem:8M").unwrap(), Access::Exclusive).unwrap();
            config.exports.push(ExportConfig {
                volume: VolumeIndex(volume),
                name: format!("writer{volume}"),
                size_bytes: device.size_bytes(),
                min_block_bytes: 512,
                read_only: false,
            });
            config.origins.push(Some(device));
        }
    });
    // Each client may hold as much as it leaves: together nearly all.
    let mut clients = Vec::new();
    let mut count = 0;
    for (volume, writes) in [(1, 500), (2, 500), (3, 500), (4, 240), (4, 120), (4, 60), (4, 30), (4, 15)] {
        let mut client = Client::connect(&server.address(), &format!("writer{volume}")).unwrap();
        for cookie in 0..writes {
            client.sender().send_write(cookie, 4096 * cookie, &pattern(cookie, 4096), false).unwrap();
        }
        count += writes;
        wait_until("all are taken", || counts.writes_held.load(Ordering::SeqCst) == count);
        clients.push(client);
    }
    server.connect().flush().unwrap().unwrap();
    let mut reader = server.connect_simple();
    reader.sender().send_read(1, 0, 1 << 20).unwrap();
    wait_until("some of it comes", || counts.reads.load(Ordering::SeqCst) > 0);
    server.handle.resize_export(VOLUME, 4 << 20).unwrap();
    assert!(reader.receive().is_err(), "it never got all it needs");
    wait_until("all memory is free", || {
        server.connect().flush().unwrap().unwrap();
        counts.used_bytes.load(Ordering::SeqCst) == 0
    });
}
