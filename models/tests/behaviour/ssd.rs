//! Solid-state disks: the rates they are described with.

use crate::load::{Client, FLUSH, GIB, KIB, MIB, random, sequential, with};
use forebay_models::{Op, Submit, Value};

fn percent(value: u64, expected: u64) -> bool {
    value.abs_diff(expected) * 100 <= expected * 8
}

#[test]
fn small_random_reads_have_the_stated_rates() {
    let cases = [("ssd", 80, 32, 90_000), ("nvme", 80, 256, 400_000)];
    for (name, latency_us, depth, iops) in cases {
        let one = Client::named(name, 64 * GIB).run(1, 5000, random(Op::Read, 64 * GIB, 4 * KIB, 1));
        let many = Client::named(name, 64 * GIB).run(depth, 50_000, random(Op::Read, 64 * GIB, 4 * KIB, 1));
        assert!(percent(one.latency_ns_mean, latency_us * 1000), "{name}: {one:?}");
        assert!(percent(many.iops(), iops), "{name}: {} {many:?}", many.iops());
    }
}

#[test]
fn sequential_transfers_are_limited_by_the_wire() {
    for (name, mb_per_s) in [("ssd", 520), ("nvme", 3200)] {
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

/// The same flash, trimmed and worn in: random writes differ several times, and a discard makes room again.
#[test]
fn a_full_disk_writes_slower_than_a_trimmed_one() {
    let rate = |fill_permille, fill_scattered, discard| {
        let changes = [
            ("fill_permille", Value::Number(fill_permille)),
            ("fill_scattered", Value::Flag(fill_scattered)),
        ];
        let mut client = Client::new(&with("ssd", &changes), 16 * GIB);
        if discard {
            client.time_ns(Submit { op: Op::Discard, offset_bytes: 0, len_bytes: 16 * GIB });
        }
        client.run(32, 40_000, random(Op::Write, 16 * GIB, 4 * KIB, 1));
        client.run(32, 40_000, random(Op::Write, 16 * GIB, 4 * KIB, 2)).iops()
    };
    let (trimmed, full, discarded) = (rate(0, false, false), rate(1000, true, false), rate(1000, true, true));
    assert!(trimmed > 80_000, "{trimmed}");
    assert!((12_000..20_000).contains(&full), "{full}");
    assert!(percent(discarded, trimmed), "{discarded}");
}

#[test]
fn what_was_never_written_is_read_without_the_flash() {
    let mut client = Client::new(&with("ssd", &[("fill_permille", Value::Number(0))]), 16 * GIB);
    client.run(8, 1000, sequential(Op::Write, 0, MIB));
    client.time_ns(FLUSH);
    let written = client.run(1, 1000, random(Op::Read, GIB / 2, 4 * KIB, 1)).latency_ns_mean;
    let mut above = random(Op::Read, GIB / 2, 4 * KIB, 1);
    let never = client.run(1, 1000, || {
        let submit = above();
        Submit { offset_bytes: submit.offset_bytes + 8 * GIB, ..submit }
    });
    assert!(written > never.latency_ns_mean + 50_000, "{written} {never:?}");
}

#[test]
fn who_reads_in_order_finds_the_next_pages_in_memory() {
    let one = Client::named("ssd", 16 * GIB).run(1, 2000, sequential(Op::Read, GIB, 4 * KIB));
    let other = Client::named("ssd", 16 * GIB).run(1, 2000, random(Op::Read, GIB, 4 * KIB, 1));
    assert!(one.latency_ns_mean + 45_000 < other.latency_ns_mean, "{one:?} {other:?}");
    // At most the wire and the latencies, and nothing of the flash.
    let large = Client::named("ssd", 16 * GIB).run(1, 2000, sequential(Op::Read, GIB, 128 * KIB));
    assert!(large.latency_ns_mean < 128 * KIB * 1000 / 520 + 20_000, "{large:?}");
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
