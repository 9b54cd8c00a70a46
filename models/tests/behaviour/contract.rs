//! What every disk keeps to, whatever it is asked.

use crate::load::{Client, FLUSH, GIB, KIB, MIB, Random, with};
use forebay_models::{Disk, Op, Parameters, Submit, Value};
use std::collections::HashSet;

/// The built-in disks, and some that are cut to the bone.
fn all_disks() -> Vec<Parameters> {
    let mut disks = forebay_models::catalogue();
    let number = Value::Number;
    disks.push(with("hdd", &[("write_cache_bytes", number(0))]));
    disks.push(with("hdd", &[("write_cache_bytes", number(5000)), ("write_cache_runs", number(1))]));
    disks.push(with("hdd", &[("read_buffer_bytes", number(0)), ("queue_depth", number(1))]));
    disks.push(with("ssd", &[("write_cache_bytes", number(0))]));
    disks.push(with("ssd", &[("write_cache_bytes", number(5000)), ("channels", number(1))]));
    disks.push(with("nvme", &[("write_cache_bytes", number(100_000)), ("queue_depth", number(3))]));
    disks.push(with("nvme", &[("power_loss_protection", Value::Flag(true))]));
    disks
}

fn anything(random: &mut Random, size_bytes: u64) -> Submit {
    let op = match random.below(20) {
        0..=8 => Op::Read,
        9..=17 => Op::Write,
        18 => Op::Discard,
        _ => return FLUSH,
    };
    // Mostly small, sometimes huge, in a few places so that ranges meet, up to the last byte.
    let len_bytes = match random.below(40) {
        0 => (1 + random.below(4)) * MIB,
        1..=5 => (1 + random.below(256)) * KIB,
        _ => (1 + random.below(16)) * 512,
    };
    let place = random.below(8) * (size_bytes / 8) + random.below(256) * 512;
    let offset_bytes = if random.below(30) == 0 { size_bytes } else { place };
    Submit { op, offset_bytes: offset_bytes.min(size_bytes - len_bytes), len_bytes }
}

/// Goal: nothing is lost, doubled or late, and `next_ns` is right (which `Client::wait` checks). Method:
/// random operations at random depths with random pauses; at the end everything is done, and
/// after a flush nothing is volatile.
#[test]
fn every_token_completes_exactly_once() {
    for (index, parameters) in all_disks().iter().enumerate() {
        for seed in 0..4 {
            let mut random = Random(seed * 1000 + index as u64);
            let size_bytes = [16 * MIB, GIB, parameters.size_bytes][random.below(3) as usize];
            let mut client = Client::new(parameters, size_bytes);
            let depth = [1, 4, 64, 200][seed as usize];
            let mut under_way = HashSet::new();
            let mut last_ns = 0;
            for _ in 0..1500 {
                if under_way.len() < depth && random.below(3) > 0 {
                    assert!(under_way.insert(client.submit(anything(&mut random, size_bytes))));
                } else if !under_way.is_empty() && random.below(4) > 0 {
                    let completion = client.wait();
                    assert!(under_way.remove(&completion.token), "{}", parameters.name);
                    assert!(completion.done_ns >= last_ns);
                    last_ns = completion.done_ns;
                } else if under_way.is_empty() {
                    assert_eq!(client.disk.next_ns(), None);
                    client.sleep(random.below(30_000_000));
                }
            }
            while !under_way.is_empty() {
                assert!(under_way.remove(&client.wait().token));
            }
            client.time_ns(FLUSH);
            assert_eq!(client.disk.volatile_bytes(client.now_ns), 0, "{}", parameters.name);
            assert_eq!(client.disk.next_ns(), None);
        }
    }
}

/// Goal: the times do not depend on how often a driver looks. Method: the same operations at the same
/// times, polled at each `next_ns`, and polled only at the times of the submits.
#[test]
fn times_do_not_depend_on_polling() {
    for parameters in all_disks() {
        let run = |is_eager: bool| {
            let mut disk = Disk::new(&parameters, GIB, 11);
            let mut random = Random(42);
            let (mut now_ns, mut done) = (0, Vec::new());
            for token in 0..800 {
                let submit_ns = now_ns + random.below(2_000_000);
                while let Some(next_ns) = disk.next_ns().filter(|next_ns| is_eager && *next_ns <= submit_ns) {
                    done.extend(disk.poll(next_ns));
                }
                now_ns = submit_ns;
                disk.submit(now_ns, token, anything(&mut random, GIB));
            }
            let end_ns = now_ns + 1_000_000_000_000;
            while let Some(completion) = disk.poll(end_ns) {
                done.push(completion);
            }
            done
        };
        let eager = run(true);
        assert_eq!(eager.len(), 800);
        assert_eq!(eager, run(false), "{}", parameters.name);
    }
}

#[test]
fn the_seed_decides_what_is_left_to_chance() {
    for name in ["hdd", "ssd"] {
        let run = |seed| {
            let mut disk = Disk::new(&forebay_models::find(name).unwrap(), GIB, seed);
            let mut random = Random(1);
            for token in 0..50 {
                disk.submit(0, token, anything(&mut random, GIB));
            }
            std::iter::from_fn(|| disk.poll(1_000_000_000_000)).collect::<Vec<_>>()
        };
        assert_eq!(run(1), run(1));
        assert_ne!(run(1), run(2));
    }
}

/// Goal: a flush covers every write that was done before it, in the middle of a load too. Method: places
/// that are written once; after the flush none of those written before it is volatile.
#[test]
fn a_flush_covers_what_was_done_before_it() {
    for parameters in all_disks() {
        let mut client = Client::new(&parameters, GIB);
        let mut random = Random(5);
        let (mut writes, mut done) = (std::collections::HashMap::new(), Vec::new());
        for round in 0..400 {
            let offset_bytes = (round * 7919 % 4000) * 64 * KIB;
            let token = client.submit(Submit { op: Op::Write, offset_bytes, len_bytes: 4 * KIB });
            writes.insert(token, offset_bytes);
            if round % 40 == 39 {
                let covered = done.clone();
                let flush = client.submit(FLUSH);
                // More writes follow before the flush is done.
                for _ in 0..random.below(5) {
                    let offset_bytes = (4000 + random.below(4000)) * 64 * KIB;
                    writes.insert(
                        client.submit(Submit { op: Op::Write, offset_bytes, len_bytes: 4 * KIB }),
                        offset_bytes,
                    );
                }
                loop {
                    let token = client.wait().token;
                    if token == flush {
                        break;
                    }
                    done.push(writes[&token]);
                }
                for offset_bytes in covered {
                    assert!(
                        !client.disk.is_volatile(client.now_ns, offset_bytes, 4 * KIB),
                        "{}",
                        parameters.name
                    );
                }
            } else if random.below(2) == 0 {
                done.push(writes[&client.wait().token]);
            }
        }
    }
}
