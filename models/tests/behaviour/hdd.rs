//! Hard disks: what their data sheets and everybody's experience say.

use crate::load::{Client, FLUSH, GIB, KIB, MIB, random, sequential, with};
use forebay_models::{Disk, Media, Op, Submit, Value};

fn zone_mb_per_s(name: &str, zone: usize) -> u64 {
    let Media::Hdd(hdd) = forebay_models::find(name).unwrap().media else { panic!("a hard disk") };
    hdd.zone_mb_per_s[zone]
}

#[test]
fn random_reads_take_a_seek_and_half_a_turn() {
    for size_bytes in [8 * GIB, 2_000_398_934_016] {
        let report = Client::named("hdd", size_bytes).run(1, 2000, random(Op::Read, size_bytes, 4 * KIB, 1));
        assert!((8_000_000..20_000_000).contains(&report.latency_ns_mean), "{report:?}");
        assert!((60..120).contains(&report.iops()), "{report:?}");
    }
    let slow = Client::named("hdd-5400", 8 * GIB).run(1, 2000, random(Op::Read, 8 * GIB, 4 * KIB, 1));
    assert!((50..70).contains(&slow.iops()), "{slow:?}");
}

#[test]
fn a_deep_queue_is_served_by_the_shortest_way() {
    let one = Client::named("hdd", 8 * GIB).run(1, 2000, random(Op::Read, 8 * GIB, 4 * KIB, 1));
    let many = Client::named("hdd", 8 * GIB).run(32, 4000, random(Op::Read, 8 * GIB, 4 * KIB, 1));
    assert!(many.iops() * 10 >= one.iops() * 17, "{many:?}");
    assert!(many.iops() < one.iops() * 4, "{many:?}");
    // Nothing starves: an overdue command waits at most for those that are overdue before it.
    assert!(many.latency_ns_max < 1_500_000_000, "{many:?}");
}

#[test]
fn sequential_reads_have_the_rate_of_their_zone() {
    let size_bytes = 8 * GIB;
    for (depth, len_bytes) in [(1, 128 * KIB), (1, MIB), (8, 128 * KIB), (32, 64 * KIB)] {
        for (zone, offset_bytes) in [(0, MIB), (7, size_bytes / 100 * 91)] {
            let mut client = Client::named("hdd", size_bytes);
            let report =
                client.run(depth, 400 * MIB / len_bytes, sequential(Op::Read, offset_bytes, len_bytes));
            let rate = zone_mb_per_s("hdd", zone);
            assert!(report.mb_per_s() * 10 >= rate * 9, "{} of {rate}", report.mb_per_s());
            assert!(report.mb_per_s() <= rate + 2, "{} of {rate}", report.mb_per_s());
        }
    }
}

#[test]
fn a_reader_slower_than_the_medium_reads_from_memory() {
    let mut client = Client::named("hdd", 8 * GIB);
    let small = client.run(1, 20_000, sequential(Op::Read, GIB, 4 * KIB));
    assert!(small.mb_per_s() >= 50, "{small:?}");
    let hit_ns =
        client.time_ns(Submit { op: Op::Read, offset_bytes: GIB + 20_000 * 4 * KIB, len_bytes: 4 * KIB });
    assert!(hit_ns < 100_000, "{hit_ns}");
}

#[test]
fn one_command_at_a_time_needs_the_read_buffer_to_be_fast() {
    let run = |bytes: u64| {
        let mut client = Client::new(&with("hdd", &[("read_buffer_bytes", Value::Number(bytes))]), 8 * GIB);
        client.run(1, 2000, sequential(Op::Read, 0, 64 * KIB)).mb_per_s()
    };
    assert!(run(16 * MIB) > 150);
    // Without it the next command comes too late, and the platter must turn once more.
    assert!(run(0) < 20);
}

#[test]
fn writes_are_fast_until_the_cache_is_full() {
    let mut client = Client::named("hdd", 8 * GIB);
    let mut next = random(Op::Write, 8 * GIB, 4 * KIB, 2);
    let into_cache = client.run(1, 200, &mut next);
    assert!(into_cache.latency_ns_mean < 200_000, "{into_cache:?}");
    client.run(1, 2000, &mut next);
    let to_media = client.run(1, 2000, &mut next);
    assert!((100..400).contains(&to_media.iops()), "{to_media:?}");

    let mut client = Client::named("hdd", 8 * GIB);
    let rate = zone_mb_per_s("hdd", 0);
    client.run(4, 800, sequential(Op::Write, 0, 128 * KIB));
    let streaming = client.run(4, 2000, sequential(Op::Write, 100 * MIB, 128 * KIB));
    assert!(streaming.mb_per_s() * 10 >= rate * 9, "{streaming:?}");
    assert!(streaming.mb_per_s() <= rate + 3, "{streaming:?}");
}

#[test]
fn writes_without_a_cache_wait_for_the_platter() {
    let parameters = with("hdd", &[("write_cache_bytes", Value::Number(0))]);
    let mut client = Client::new(&parameters, 8 * GIB);
    let scattered = client.run(1, 1000, random(Op::Write, 8 * GIB, 4 * KIB, 2));
    assert!((60..120).contains(&scattered.iops()), "{scattered:?}");
    // Each write just misses the one before: 7200 turns a minute are 120 a second.
    let neighbours = client.run(1, 1000, sequential(Op::Write, GIB, 4 * KIB));
    assert!((115..=121).contains(&neighbours.iops()), "{neighbours:?}");
    // A queue lets the head go on.
    let queued = client.run(8, 2000, sequential(Op::Write, 2 * GIB, 128 * KIB));
    assert!(queued.mb_per_s() > 120, "{queued:?}");
    assert_eq!(client.disk.volatile_bytes(client.now_ns), 0);
    assert!(client.time_ns(FLUSH) < 1_000_000);
}

/// Goal: a flush takes as long as the drain, no shorter. Method: the same writes twice, once flushed and
/// once left alone until nothing is volatile any more.
#[test]
fn a_flush_takes_as_long_as_the_drain() {
    let written = || {
        let mut client = Client::named("hdd", 8 * GIB);
        client.run(1, 300, random(Op::Write, 8 * GIB, 4 * KIB, 9));
        assert!(client.disk.volatile_bytes(client.now_ns) > 200 * 4 * KIB);
        client
    };
    let mut flushed = written();
    let flush_ns = flushed.time_ns(FLUSH);
    assert_eq!(flushed.disk.volatile_bytes(flushed.now_ns), 0);
    let mut left = written();
    let began_ns = left.now_ns;
    while left.disk.volatile_bytes(left.now_ns) > 0 {
        left.sleep(1_000_000);
    }
    let drain_ns = left.now_ns - began_ns;
    assert!(drain_ns.abs_diff(flush_ns) <= 2_000_000, "{drain_ns} {flush_ns}");
    assert!((500_000_000..3_000_000_000).contains(&flush_ns), "{flush_ns}");
    assert!(flushed.time_ns(FLUSH) < 1_000_000);
}

#[test]
fn reads_go_before_writing_behind() {
    let mut client = Client::named("hdd", 8 * GIB);
    client.run(1, 100, random(Op::Write, 8 * GIB, 4 * KIB, 2));
    let volatile_bytes = client.disk.volatile_bytes(client.now_ns);
    let reads = client.run(1, 300, random(Op::Read, 8 * GIB, 4 * KIB, 1));
    assert!(reads.latency_ns_mean < 15_000_000, "{reads:?}");
    assert!(client.disk.volatile_bytes(client.now_ns) + 2 * 4 * KIB >= volatile_bytes);
    client.sleep(2_000_000_000);
    assert_eq!(client.disk.volatile_bytes(client.now_ns), 0);
}

#[test]
fn what_a_power_cut_would_take_is_known_byte_by_byte() {
    let mut client = Client::named("hdd", 8 * GIB);
    client.time_ns(Submit { op: Op::Read, offset_bytes: 0, len_bytes: 4 * KIB });
    client.time_ns(Submit { op: Op::Write, offset_bytes: GIB, len_bytes: 64 * KIB });
    let now_ns = client.now_ns;
    let is_volatile = |disk: &mut Disk, offset| disk.is_volatile(now_ns, offset, 512);
    assert!(is_volatile(&mut client.disk, GIB));
    assert!(is_volatile(&mut client.disk, GIB + 64 * KIB - 1));
    assert!(!is_volatile(&mut client.disk, GIB - 512));
    assert!(!is_volatile(&mut client.disk, GIB + 64 * KIB));
    let hit_ns = client.time_ns(Submit { op: Op::Read, offset_bytes: GIB + 4 * KIB, len_bytes: 4 * KIB });
    assert!(hit_ns < 100_000, "read from the write cache in {hit_ns} ns");
    client.sleep(100_000_000);
    assert!(!client.disk.is_volatile(client.now_ns, 0, 8 * GIB));
}

/// Goal: commands that overlap are carried out in their order. Method: a write waits for room in the write cache, and a
/// read of its place, which the read buffer could answer at once, waits for it; one from elsewhere does not.
#[test]
fn a_read_of_what_is_being_written_waits_for_the_write() {
    let parameters = with("hdd", &[("write_cache_runs", Value::Number(8))]);
    let mut client = Client::new(&parameters, 8 * GIB);
    let at = |op, offset_bytes| Submit { op, offset_bytes, len_bytes: 4 * KIB };
    client.time_ns(at(Op::Read, 5 * GIB));
    for place in 0..12 {
        client.submit(at(Op::Write, place * 600 * MIB));
    }
    let write = client.submit(at(Op::Write, 5 * GIB));
    let read = client.submit(at(Op::Read, 5 * GIB));
    let done: Vec<u64> = (0..14).map(|_| client.wait().token).collect();
    let order = |token| done.iter().position(|done| *done == token).unwrap();
    assert!(order(write) < order(read) && order(write) > 8, "{done:?}");
    assert!(client.time_ns(at(Op::Read, 5 * GIB)) < 100_000, "the read buffer has it");
}
