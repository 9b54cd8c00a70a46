//! Solid-state disks: the rates they are described with.

use crate::load::{Client, FLUSH, GIB, KIB, MIB, random, sequential, with};
use models::{Op, Submit, Value};

fn percent(value: u64, expected: u64) -> bool {
    value.abs_diff(expected) * 100 <= expected * 8
}

#[test]
fn small_random_reads_have_the_stated_rates() {
    let cases = [
        ("ssd", 80, 32, 90_000),
        ("nvme", 80, 256, 400_000),
        ("samsung-850-pro", 100, 32, 100_000),
        ("samsung-830", 122, 32, 80_000),
    ];
    for (name, latency_us, depth, iops) in cases {
        let one = Client::named(name, 64 * GIB).run(1, 5000, random(Op::Read, 64 * GIB, 4 * KIB, 1));
        let many = Client::named(name, 64 * GIB).run(depth, 50_000, random(Op::Read, 64 * GIB, 4 * KIB, 1));
        assert!(percent(one.latency_ns_mean, latency_us * 1000), "{name}: {one:?}");
        assert!(percent(many.iops(), iops), "{name}: {} {many:?}", many.iops());
    }
}

#[test]
fn sequential_transfers_are_limited_by_the_wire() {
    for (name, mb_per_s) in [("ssd", 520), ("nvme", 3200), ("samsung-850-pro", 550)] {
        let read = Client::named(name, 64 * GIB).run(8, 5000, sequential(Op::Read, 0, 128 * KIB));
        assert!(read.mb_per_s() <= mb_per_s && read.mb_per_s() * 100 >= mb_per_s * 93, "{name}: {read:?}");
        // The write buffer takes the first at the same rate.
        let write = Client::named(name, 64 * GIB).run(8, 100, sequential(Op::Write, 0, 128 * KIB));
        assert!(write.mb_per_s() <= mb_per_s && write.mb_per_s() * 100 >= mb_per_s * 90, "{name}: {write:?}");
    }
}

#[test]
fn writes_are_fast_until_the_buffer_is_full() {
    for (name, program_mb_per_s) in [("ssd", 477), ("nvme", 1748), ("samsung-830", 320)] {
        let mut client = Client::named(name, 64 * GIB);
        client.run(16, 20_000, sequential(Op::Write, 0, 128 * KIB));
        let full = client.run(16, 8000, sequential(Op::Write, 8 * GIB, 128 * KIB));
        assert!(percent(full.mb_per_s(), program_mb_per_s), "{name}: {full:?}");
    }
    let mut client = Client::named("ssd", 64 * GIB);
    let small = client.run(1, 1000, random(Op::Write, 64 * GIB, 4 * KIB, 1));
    assert!(small.latency_ns_mean < 30_000, "{small:?}");
    let many = client.run(32, 50_000, random(Op::Write, 64 * GIB, 4 * KIB, 1));
    assert!((80_000..100_000).contains(&many.iops()), "{many:?}");
}

#[test]
fn garbage_collection_slows_the_steady_state() {
    let parameters = with("ssd", &[("write_amplification_permille", Value::Number(3000))]);
    let mut client = Client::new(&parameters, 64 * GIB);
    client.run(16, 2000, sequential(Op::Write, 0, 128 * KIB));
    let full = client.run(16, 4000, sequential(Op::Write, 8 * GIB, 128 * KIB));
    assert!(percent(full.mb_per_s(), 477 / 3), "{full:?}");
}

#[test]
fn a_flush_waits_for_the_drain() {
    let mut client = Client::named("ssd", 64 * GIB);
    client.run(8, 200, sequential(Op::Write, 0, 128 * KIB));
    let volatile_bytes = client.disk.volatile_bytes(client.now_ns);
    assert!(volatile_bytes > 0);
    let flush_ns = client.time_ns(FLUSH);
    let drain_ns = volatile_bytes * 1000 / 477;
    // The pages under way may be nearly done, and the last ones may not fill all channels.
    assert!(flush_ns > drain_ns - 550_000 && flush_ns < drain_ns + 1_200_000, "{flush_ns} {drain_ns}");
    assert_eq!(client.disk.volatile_bytes(client.now_ns), 0);
    client.time_ns(Submit { op: Op::Write, offset_bytes: 0, len_bytes: 4 * KIB });
    let one_page_ns = client.time_ns(FLUSH);
    assert!((550_000..800_000).contains(&one_page_ns), "{one_page_ns}");
    assert!(client.time_ns(FLUSH) < 200_000);
}

#[test]
fn a_protected_buffer_is_not_volatile_and_flushes_at_once() {
    let parameters = with("nvme", &[("power_loss_protection", Value::Flag(true))]);
    let mut client = Client::new(&parameters, 64 * GIB);
    client.run(8, 200, sequential(Op::Write, 0, 128 * KIB));
    assert_eq!(client.disk.volatile_bytes(client.now_ns), 0);
    assert!(!client.disk.is_volatile(client.now_ns, 0, 200 * 128 * KIB));
    assert!(client.time_ns(FLUSH) < 100_000);
}

#[test]
fn without_a_buffer_a_write_waits_for_the_flash() {
    let parameters = with("ssd", &[("write_cache_bytes", Value::Number(0))]);
    let mut client = Client::new(&parameters, 64 * GIB);
    let one_ns = client.time_ns(Submit { op: Op::Write, offset_bytes: 0, len_bytes: 4 * KIB });
    assert!((550_000..650_000).contains(&one_ns), "{one_ns}");
    assert_eq!(client.disk.volatile_bytes(client.now_ns), 0);
    let report = client.run(16, 1000, random(Op::Write, 64 * GIB, MIB, 1));
    assert!(report.mb_per_s() > 400, "{report:?}");
}

#[test]
fn what_is_left_in_the_buffer_is_written_after_a_while_and_a_discard_drops_it() {
    let mut client = Client::named("ssd", 64 * GIB);
    for _ in 0..2 {
        client.time_ns(Submit { op: Op::Write, offset_bytes: 64 * KIB, len_bytes: 4 * KIB });
        assert!(client.disk.is_volatile(client.now_ns, 64 * KIB, 1));
        assert!(!client.disk.is_volatile(client.now_ns, 0, 64 * KIB));
        let hit_ns = client.time_ns(Submit { op: Op::Read, offset_bytes: 64 * KIB, len_bytes: 4 * KIB });
        assert!(hit_ns < 30_000, "{hit_ns}");
        client.sleep(10_000_000);
        assert_eq!(client.disk.volatile_bytes(client.now_ns), 0);
    }
    client.time_ns(Submit { op: Op::Write, offset_bytes: 64 * KIB, len_bytes: 4 * KIB });
    client.time_ns(Submit { op: Op::Discard, offset_bytes: 0, len_bytes: GIB });
    assert_eq!(client.disk.volatile_bytes(client.now_ns), 0);
}

#[test]
fn reads_are_slower_beside_writes_but_neither_starves() {
    let mut client = Client::named("ssd", 64 * GIB);
    let (mut reads, mut writes) =
        (random(Op::Read, 64 * GIB, 4 * KIB, 1), random(Op::Write, 64 * GIB, 64 * KIB, 2));
    let mut turn = 0u64;
    let mixed = client.run(32, 40_000, || {
        turn += 1;
        if turn.is_multiple_of(2) { reads() } else { writes() }
    });
    assert!(mixed.mb_per_s() > 300, "{mixed:?}");
    assert!(mixed.latency_ns_max < 100_000_000, "{mixed:?}");
}
