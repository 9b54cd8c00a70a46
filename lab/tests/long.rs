//! Long runs: that they are the same each time, that what is read is what was written, that terabytes fit.

use engine::composition::Composition;
use engine::effect::WriteMode;
use engine::units::{Nanos, SectorRange, VOLUME_BLOCKS_MAX, VolumeIndex};
use forebay_lab::long::recovery_cost::{self, State};
use forebay_lab::long::{
    Action, Answer, Contents, Demand, Disk, Latencies, Load, LoadOptions, LongRun, Next, Pattern, Setup,
    Statistics, Trouble, Until, VolumeSetup, Workload,
};

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const CACHE: Latencies = Latencies { read_ns: 80_000, write_ns: 40_000, flush_ns: 200_000 };
const ORIGIN: Latencies = Latencies { read_ns: 500_000, write_ns: 700_000, flush_ns: 1_000_000 };

fn setup(cache_bytes: u64, origin_bytes: u64, modes: &[WriteMode], contents: Contents) -> Setup {
    let volumes = modes
        .iter()
        .map(|&mode| VolumeSetup { origin: Disk::constant(origin_bytes, ORIGIN), mode })
        .collect();
    Setup { cache: Disk::constant(cache_bytes, CACHE), volumes, contents }
}

/// Writes and reads of an odd size over four times the cache: everything happens, the log wraps.
fn mix(mode: WriteMode, request_bytes: u64, seed: u64) -> Result<(Statistics, u64, u64), Trouble> {
    let mut run = LongRun::new(setup(32 * MIB, 128 * MIB, &[mode], Contents::Tags), |_| ())?;
    let mut load = Load::new(LoadOptions {
        request_bytes,
        pattern: Pattern::Zipf { theta_permille: 700 },
        read_permille: 500,
        jobs: 2,
        depth: 8,
        flush_every: 50,
        requests: Some(20_000),
        seed,
        ..LoadOptions::reads(128 * MIB / 4096)
    });
    run.run(&mut load, Until::End)?;
    run.idle(10 * Nanos::SECOND)?;
    run.run(&mut Load::new(LoadOptions::once(128 * MIB / 4096)), Until::End)?;
    let status = run.status();
    assert_eq!(status.volumes[0].dirty_bytes, 0, "{mode:?}: an idle cache brings everything home");
    Ok((run.statistics(), status.cache.wraps, run.digest()))
}

#[test]
fn what_is_read_is_what_was_written_last() -> Result<(), Trouble> {
    let modes =
        [WriteMode::Writeback, WriteMode::Writethrough, WriteMode::Writearound, WriteMode::Passthrough];
    for mode in modes {
        // Whole blocks; parts of blocks; longer than the engine takes at once.
        for request_bytes in [8192, 2560, 520 * 1024] {
            let (statistics, wraps, _) = mix(mode, request_bytes, 1)?;
            assert_eq!(statistics.reads.errors + statistics.writes.errors + statistics.flushes.errors, 0);
            assert_eq!(statistics.reads.count + statistics.writes.count, 20_000 + 1024);
            assert!(statistics.verified_blocks > 30_000, "{mode:?} {request_bytes}: {statistics:?}");
            let is_logged = matches!(mode, WriteMode::Writeback | WriteMode::Writethrough);
            assert!(wraps > 0 || !is_logged, "{mode:?} {request_bytes}: the log wraps");
        }
    }
    Ok(())
}

/// Where a segment ends, the rest of what was read goes to the next one.
#[test]
fn what_was_read_once_is_cached_to_the_last_block() -> Result<(), Trouble> {
    let mut run = LongRun::new(setup(256 * MIB, GIB, &[WriteMode::Writeback], Contents::Tags), |_| ())?;
    // What is read before the origin was flushed for the first time is not cached: wait for that.
    run.run(&mut Load::new(LoadOptions::once(32)), Until::End)?;
    run.idle(Nanos::SECOND)?;
    let mut pass = || -> Result<u64, Trouble> {
        let before = run.status().volumes[0].counters.miss_blocks;
        run.run(&mut Load::new(LoadOptions::once(96 * MIB / 4096)), Until::End)?;
        run.idle(Nanos::SECOND)?;
        Ok(run.status().volumes[0].counters.miss_blocks - before)
    };
    assert!(pass()? > 0);
    assert_eq!(pass()?, 0, "all was there");
    Ok(())
}

/// What is read in a row lies in a row: a header for each MiB, and not for each request.
#[test]
fn fills_share_headers() -> Result<(), Trouble> {
    let mut run = LongRun::new(setup(GIB, GIB, &[WriteMode::Writeback], Contents::Nothing), |_| ())?;
    run.run(&mut Load::new(LoadOptions::once(32)), Until::End)?;
    run.idle(Nanos::SECOND)?;
    for depth in [1, 8] {
        run.begin_measuring();
        let first_block = u64::from(depth) * 64 * MIB / 4096;
        let read = LoadOptions { first_block, depth, ..LoadOptions::once(64 * MIB / 4096) };
        run.run(&mut Load::new(read), Until::End)?;
        run.idle(Nanos::SECOND)?;
        let written_bytes = run.statistics().cache.written_bytes;
        assert!((64 * MIB..65 * MIB).contains(&written_bytes), "{written_bytes} at depth {depth}");
    }
    Ok(())
}

/// Goal: what clients read often outlives more than one round of what they write; what they read once does not. Method: two areas,
/// one read four times, one once, then writes of more than twice the cache, with pauses in which they go home.
#[test]
fn what_is_read_often_stays_for_several_rounds() -> Result<(), Trouble> {
    let mut run = LongRun::new(setup(256 * MIB, GIB, &[WriteMode::Writeback], Contents::Tags), |_| ())?;
    run.run(&mut Load::new(LoadOptions::once(32)), Until::End)?;
    run.idle(Nanos::SECOND)?;
    let area = |mib: u64| LoadOptions { first_block: mib * MIB / 4096, ..LoadOptions::once(8 * MIB / 4096) };
    let (often, seldom) = (area(0), area(16));
    for area in [seldom, often, often, often, often] {
        run.run(&mut Load::new(area), Until::End)?;
        run.idle(Nanos::SECOND)?;
    }
    for part in 0..9 {
        let requests = Some(64 * MIB / (128 << 10));
        let first_block = (64 + part * 64) * MIB / 4096;
        let write =
            LoadOptions { first_block, read_permille: 0, requests, ..LoadOptions::once(64 * MIB / 4096) };
        // No faster than a disk: where the cache runs out of room, nothing stays.
        let pace = LoadOptions { request_bytes: 128 << 10, depth: 1, think_ns: 1_000_000, ..write };
        run.run(&mut Load::new(pace), Until::End)?;
        run.idle(10 * Nanos::SECOND)?;
    }
    assert!(run.status().cache.wraps >= 2, "{}", run.status().cache.wraps);
    let mut missed_of = |area| -> Result<u64, Trouble> {
        let before = run.status().volumes[0].counters.miss_blocks;
        run.run(&mut Load::new(area), Until::End)?;
        Ok(run.status().volumes[0].counters.miss_blocks - before)
    };
    let blocks = 8 * MIB / 4096;
    let missed = missed_of(often)?;
    assert!(missed < blocks / 4, "{missed} of {blocks}");
    assert_eq!(missed_of(seldom)?, blocks);
    Ok(())
}

/// Goal: what is hot outlives a copy that takes all the room the disk makes. Method: the same, without a pause, eight at a time.
#[test]
fn what_is_hot_stays_through_a_flood_of_writes() -> Result<(), Trouble> {
    let mut run = LongRun::new(setup(256 * MIB, 2 * GIB, &[WriteMode::Writeback], Contents::Tags), |_| ())?;
    run.run(&mut Load::new(LoadOptions::once(32)), Until::End)?;
    run.idle(Nanos::SECOND)?;
    let hot = LoadOptions::once(4 * MIB / 4096);
    for _ in 0..3 {
        run.run(&mut Load::new(hot), Until::End)?;
        run.idle(Nanos::SECOND)?;
    }
    let flood = LoadOptions { first_block: 64 * MIB / 4096, ..LoadOptions::once(GIB / 4096) };
    let requests = Some(GIB / (128 << 10));
    let flood = LoadOptions { request_bytes: 128 << 10, read_permille: 0, depth: 8, requests, ..flood };
    run.run(&mut Load::new(flood), Until::End)?;
    let status = run.status();
    assert!(status.cache.wraps >= 3, "{}", status.cache.wraps);
    assert!(status.volumes[0].dirty_bytes > 128 * MIB, "the disk is behind: {:?}", status.volumes[0]);
    let before = status.volumes[0].counters.miss_blocks;
    run.run(&mut Load::new(hot), Until::End)?;
    let missed = run.status().volumes[0].counters.miss_blocks - before;
    assert!(missed < 4 * MIB / 4096 / 4, "{missed}");
    Ok(())
}

/// Goal: of a copy through a full cache what was read last is there, too, as what was written is, and what is hot outlives both.
/// Method: an area is read thrice, another one copied that is twice the cache, no faster than a disk.
#[test]
fn of_a_copy_what_is_read_enters_too_and_what_is_hot_stays() -> Result<(), Trouble> {
    let setup = setup(256 * MIB, 2 * GIB, &[WriteMode::Writeback], Contents::Tags);
    // What is read beside enters for reasons of its own.
    let mut run = LongRun::composed(setup, &Composition::forebay(), |config| config.neighbour_bytes_max = 0)?;
    run.run(&mut Load::new(LoadOptions::once(32)), Until::End)?;
    run.idle(Nanos::SECOND)?;
    let area = |mib: u64, len_mib: u64| LoadOptions {
        first_block: mib * MIB / 4096,
        ..LoadOptions::once(len_mib * MIB / 4096)
    };
    let hot = area(0, 4);
    for _ in 0..3 {
        run.run(&mut Load::new(hot), Until::End)?;
        run.idle(Nanos::SECOND)?;
    }
    for part in 0..8 {
        let requests = Some(64 * MIB / (128 << 10));
        let long = |mib, read_permille| LoadOptions {
            request_bytes: 128 << 10,
            depth: 1,
            think_ns: 1_000_000,
            read_permille,
            requests,
            ..area(mib, 64)
        };
        run.run(&mut Load::new(long(64 + part * 64, 1000)), Until::End)?;
        run.run(&mut Load::new(long(1024 + part * 64, 0)), Until::End)?;
    }
    assert!(run.status().cache.wraps >= 2, "{}", run.status().cache.wraps);
    let mut read_of_disk = |area| -> Result<u64, Trouble> {
        run.begin_measuring();
        run.run(&mut Load::new(area), Until::End)?;
        Ok(run.statistics().origins[0].read_bytes)
    };
    let bytes = read_of_disk(hot)?;
    assert!(bytes < MIB, "{bytes} of what is hot");
    let bytes = read_of_disk(area(64 + 7 * 64, 64))?;
    assert!(bytes < 16 * MIB, "{bytes} of what was read last");
    Ok(())
}

/// A load whose client needs a while for each request.
struct Busy {
    load: Load,
    each_ns: u64,
    next: Nanos,
}

impl Workload for Busy {
    fn next(&mut self, now: Nanos) -> Next {
        if now < self.next {
            return Next::At(self.next);
        }
        let next = self.load.next(now);
        if matches!(next, Next::Demand(_)) {
            self.next = now.plus(self.each_ns);
        }
        next
    }

    fn answered(&mut self, answer: &Answer) {
        self.load.answered(answer);
    }
}

/// Goal: small writes keep the device at work, and share headers as far as their depth allows. Method: a device that takes the
/// same time for each write of the engine, so that two batches on their way at a time take half of the time that batches in turns
/// do; a client that sends what was answered one by one, as clients do.
#[test]
fn small_writes_go_on_while_a_batch_is_on_its_way() -> Result<(), Trouble> {
    for (depth, bytes_percent) in [(2, 204), (4, 154), (8, 128), (32, 109)] {
        let setup = setup(GIB, GIB, &[WriteMode::Writeback], Contents::Nothing);
        let mut run = LongRun::new(setup, |_| ())?;
        let requests = Some(20_000);
        let write = LoadOptions { read_permille: 0, depth, requests, ..LoadOptions::reads(128 * MIB / 4096) };
        let busy = |seed| {
            let load = Load::new(LoadOptions { seed, ..write });
            Busy { load, each_ns: 500, next: Nanos(0) }
        };
        run.run(&mut busy(1), Until::End)?;
        run.begin_measuring();
        run.run(&mut busy(2), Until::End)?;
        let statistics = run.statistics();
        let least_ns = 20_000 / u64::from(depth) * CACHE.write_ns;
        let took_ns = statistics.elapsed_ns();
        assert!(took_ns < least_ns * 3 / 2, "depth {depth}: {took_ns} ns, and no less than {least_ns}");
        let written_bytes = statistics.cache.written_bytes;
        assert!(written_bytes < 20_000 * 4096 * bytes_percent / 100, "depth {depth}: {written_bytes}");
    }
    Ok(())
}

/// Goal: long writes do not fill the cache with what the origin could have taken meanwhile. Method: three quarters of the cache are
/// written in requests of 128 KiB, at a third of the origin's speed and without a pause.
#[test]
fn long_writes_go_home_while_clients_write() -> Result<(), Trouble> {
    let mut run = LongRun::new(setup(256 * MIB, GIB, &[WriteMode::Writeback], Contents::Nothing), |_| ())?;
    run.idle(Nanos::SECOND)?;
    let write = LoadOptions { request_bytes: 128 << 10, read_permille: 0, ..LoadOptions::once(GIB / 4096) };
    let pace = LoadOptions { depth: 1, think_ns: 1_000_000, requests: Some(192 * 8), ..write };
    run.run(&mut Load::new(pace), Until::End)?;
    let dirty_bytes = run.status().volumes[0].dirty_bytes;
    assert!(dirty_bytes < 80 * MIB, "{dirty_bytes}");
    Ok(())
}

/// Goal: a burst of long writes has the SSD to itself, and what it left goes home behind it. Method: 30 % of the cache is written in
/// requests of 128 KiB without a pause.
#[test]
fn nothing_goes_home_while_a_burst_is_under_way() -> Result<(), Trouble> {
    let mut run = LongRun::new(setup(256 * MIB, GIB, &[WriteMode::Writeback], Contents::Nothing), |_| ())?;
    run.idle(Nanos::SECOND)?;
    run.begin_measuring();
    let write = LoadOptions { request_bytes: 128 << 10, read_permille: 0, ..LoadOptions::once(GIB / 4096) };
    run.run(&mut Load::new(LoadOptions { depth: 1, requests: Some(76 * 8), ..write }), Until::End)?;
    assert_eq!(run.statistics().cache.read_bytes, 0, "nothing is read to go home");
    run.idle(10 * Nanos::SECOND)?;
    assert_eq!(run.status().volumes[0].dirty_bytes, 0);
    Ok(())
}

/// What was written through is home: the sweep has nothing to add.
#[test]
fn what_is_written_through_reaches_the_origin_once() -> Result<(), Trouble> {
    let mut run = LongRun::new(setup(256 * MIB, GIB, &[WriteMode::Writethrough], Contents::Tags), |_| ())?;
    run.idle(Nanos::SECOND)?;
    run.begin_measuring();
    // Longer than the origin waits for its flush, and some blocks again and again.
    let pattern = Pattern::Zipf { theta_permille: 900 };
    let requests = Some(20_000);
    let blocks = 64 * MIB / 4096;
    let writes = LoadOptions { pattern, read_permille: 0, requests, ..LoadOptions::reads(blocks) };
    run.run(&mut Load::new(writes), Until::End)?;
    run.idle(10 * Nanos::SECOND)?;
    assert_eq!(run.statistics().origins[0].written_bytes, 20_000 * 4096);
    assert_eq!(run.status().volumes[0].dirty_bytes, 0);
    Ok(())
}

/// Goal: a disk that takes long for a flush is not kept busy with those that nobody waits for. Method: writes through the cache for
/// 20 s, and a disk that takes half a second.
#[test]
fn a_disk_that_flushes_slowly_is_flushed_seldom() -> Result<(), Trouble> {
    let slow = Latencies { flush_ns: Nanos::SECOND / 2, ..ORIGIN };
    let origin = Disk::constant(GIB, slow);
    let volumes = vec![VolumeSetup { origin, mode: WriteMode::Writethrough }];
    let setup = Setup { cache: Disk::constant(GIB, CACHE), volumes, contents: Contents::Tags };
    let mut run = LongRun::new(setup, |_| ())?;
    run.idle(Nanos::SECOND)?;
    run.begin_measuring();
    let writes = LoadOptions { read_permille: 0, depth: 1, ..LoadOptions::reads(64 * MIB / 4096) };
    run.run(&mut Load::new(writes), Until::Time(Nanos(21 * Nanos::SECOND)))?;
    let flushes = run.statistics().origins[0].flushes;
    assert!((3..=6).contains(&flushes), "one in four and a half seconds: {flushes}");
    run.idle(2 * Nanos::SECOND)?;
    assert_eq!(run.status().volumes[0].dirty_bytes, 0, "and all is known to be home when clients are silent");
    Ok(())
}

/// A cache of which half is dirty, and a client that reads what is not cached.
fn dirty_and_read() -> Result<(LongRun, Load), Trouble> {
    let mut run = LongRun::new(setup(GIB, 4 * GIB, &[WriteMode::Writeback], Contents::Nothing), |_| ())?;
    run.idle(Nanos::SECOND)?;
    let write = LoadOptions { request_bytes: 64 << 10, read_permille: 0, ..LoadOptions::once(GIB / 4096) };
    run.run(&mut Load::new(LoadOptions { requests: Some(512 * 16), ..write }), Until::End)?;
    let read = LoadOptions { first_block: GIB / 4096, depth: 1, ..LoadOptions::reads(3 * GIB / 4096) };
    Ok((run, Load::new(LoadOptions { think_ns: 100_000, ..read })))
}

/// Goal: where clients have read and not written for a while, destage takes little of their disk. Method: half of the cache is
/// dirty, and one client reads what is not cached: what goes home in the first seconds, and later.
#[test]
fn destage_takes_its_time_while_clients_only_read() -> Result<(), Trouble> {
    let (mut run, mut read) = dirty_and_read()?;
    let mut home_in = |seconds: u64| -> Result<u64, Trouble> {
        let before = run.status().volumes[0].counters.destaged_blocks;
        let until = Nanos(run.now().0 + seconds * Nanos::SECOND);
        run.run(&mut read, Until::Time(until))?;
        Ok(run.status().volumes[0].counters.destaged_blocks - before)
    };
    let first = home_in(4)?;
    home_in(8)?;
    let later = home_in(4)?;
    assert!(later > 0 && later * 4 < first, "{first} blocks at first, {later} later");
    Ok(())
}

/// A flush costs a disk's readers as much as many runs, and in a short silence they are about to come back.
#[test]
fn an_origin_that_is_left_to_readers_is_seldom_flushed_and_not_woken() -> Result<(), Trouble> {
    let (mut run, mut read) = dirty_and_read()?;
    let mut read_for = |run: &mut LongRun, seconds: u64| {
        run.begin_measuring();
        let until = Nanos(run.now().0 + seconds * Nanos::SECOND);
        run.run(&mut read, Until::Time(until)).map(|_| run.statistics().origins[0].flushes)
    };
    let at_first = read_for(&mut run, 8)?;
    read_for(&mut run, 62)?;
    let later = read_for(&mut run, 40)?;
    assert!(at_first >= 12 && later <= 8, "{at_first} flushes in 8 s at first, {later} in 40 s later");
    let mut home_in = |ns: u64| -> Result<u64, Trouble> {
        let before = run.status().volumes[0].counters.destaged_blocks;
        run.idle(ns)?;
        Ok(run.status().volumes[0].counters.destaged_blocks - before)
    };
    let (at_once, in_time) = (home_in(Nanos::SECOND)?, home_in(2 * Nanos::SECOND)?);
    assert!(at_once * 8 < in_time, "{at_once} blocks in the first second, {in_time} in the next two");
    Ok(())
}

#[test]
fn the_same_seed_is_the_same_run() -> Result<(), Trouble> {
    let digest = |seed| mix(WriteMode::Writeback, 4096, seed).map(|(_, _, digest)| digest);
    assert_eq!(digest(1)?, digest(1)?);
    assert_ne!(digest(1)?, digest(2)?);
    Ok(())
}

#[cfg(feature = "mutations")]
#[test]
fn a_stale_read_is_noticed() -> Result<(), Trouble> {
    use engine::mutation::{Mutation, Mutations};
    let setup = setup(32 * MIB, 32 * MIB, &[WriteMode::Writeback], Contents::Tags);
    let mutations = Mutations::NONE.with(Mutation::PartialWriteWithoutOld);
    let mut run = LongRun::new(setup, |config| config.mutations = mutations)?;
    let options = LoadOptions { request_bytes: 1024, read_permille: 0, depth: 1, ..LoadOptions::reads(64) };
    run.run(&mut Load::new(LoadOptions { requests: Some(1000), ..options }), Until::End)?;
    let read = run.run(&mut Load::new(LoadOptions::once(64)), Until::End);
    assert!(matches!(read, Err(Trouble::Mismatch(_))), "{read:?}");
    Ok(())
}

/// Requests at their times, whatever the answers: as a trace has them.
struct Trace {
    requests: Vec<(u64, Action)>,
    began: Option<Nanos>,
    answers: Vec<Answer>,
}

impl Workload for Trace {
    fn next(&mut self, now: Nanos) -> Next {
        let began = *self.began.get_or_insert(now);
        let Some(&(at_ns, action)) = self.requests.first() else { return Next::End };
        let due = began.plus(at_ns);
        if due > now {
            return Next::At(due);
        }
        self.requests.remove(0);
        Next::Demand(Demand { job: 0, volume: VolumeIndex(0), action, due })
    }

    fn answered(&mut self, answer: &Answer) {
        self.answers.push(*answer);
    }
}

#[test]
fn a_trace_keeps_its_times_and_every_kind_of_request_is_answered() -> Result<(), Trouble> {
    let setup = setup(64 * MIB, GIB, &[WriteMode::Writeback], Contents::Tags);
    let mut run = LongRun::new(setup, |_| ())?;
    run.idle(Nanos::SECOND)?;
    let blocks = |first: u64, count: u64| SectorRange { start: first * 8, sectors: count * 8 };
    let requests = vec![
        (0, Action::Read(blocks(100, 4))),
        // What was read waits for more.
        (15 * Nanos::MILLISECOND, Action::Read(blocks(100, 4))),
        (20 * Nanos::MILLISECOND, Action::Write { range: blocks(101, 1), fua: true }),
        (30 * Nanos::MILLISECOND, Action::WriteZeroes(blocks(102, 20_000))),
        (60 * Nanos::MILLISECOND, Action::Read(blocks(100, 4))),
        (70 * Nanos::MILLISECOND, Action::Discard(blocks(100, 20_000))),
        (70 * Nanos::MILLISECOND, Action::Flush),
        (Nanos::SECOND, Action::Read(SectorRange { start: 801, sectors: 3 })),
    ];
    let times: Vec<u64> = requests.iter().map(|(at_ns, _)| *at_ns).collect();
    let mut trace = Trace { requests, began: None, answers: Vec::new() };
    let began = run.now();
    assert_eq!(run.run(&mut trace, Until::End)?, 8);
    let mut due: Vec<u64> = trace.answers.iter().map(|answer| answer.demand.due.since(began)).collect();
    due.sort_unstable();
    assert_eq!(due, times);
    assert!(trace.answers.iter().all(|answer| answer.result.is_ok()));
    let latency = |at: usize| trace.answers[at].answered.since(trace.answers[at].demand.due);
    assert_eq!((latency(0), latency(1)), (ORIGIN.read_ns, 0), "a miss, then a hit in memory");
    let statistics = run.statistics();
    assert_eq!((statistics.reads.count, statistics.trims.count, statistics.flushes.count), (4, 2, 1));
    assert_eq!(statistics.writes.bytes, 4096);
    Ok(())
}

#[test]
fn terabytes_fit_and_modelled_disks_take_their_time() -> Result<(), Trouble> {
    let model = |name, bytes, seed| Disk::modelled(&models::find(name).expect("it is built in"), bytes, seed);
    let volumes =
        vec![VolumeSetup { origin: model("hdd", 1_500_000_000_000, 1), mode: WriteMode::Writeback }];
    let cache = model("ssd", 128_000_000_000, 2);
    let mut run = LongRun::new(Setup { cache, volumes, contents: Contents::Nothing }, |_| ())?;
    run.idle(Nanos::SECOND)?;
    let blocks = 1_500_000_000_000 / 4096;
    let load = |read_permille, requests| {
        let pattern = Pattern::Zipf { theta_permille: 1200 };
        Load::new(LoadOptions {
            pattern,
            read_permille,
            requests: Some(requests),
            ..LoadOptions::reads(blocks)
        })
    };
    run.run(&mut load(700, 200_000), Until::End)?;
    run.begin_measuring();
    run.run(&mut load(1000, 100_000), Until::End)?;
    let statistics = run.statistics();
    let at = |quantile| statistics.reads.latency_ns.value_at_quantile(quantile);
    assert!((50_000..2_000_000).contains(&at(0.5)), "most are hits on the SSD: {} ns", at(0.5));
    assert!(at(0.999) > 3_000_000, "some are misses on the disk: {} ns", at(0.999));
    assert_eq!(statistics.answers(), 100_000);
    assert!(statistics.cache.reads > 50_000 && statistics.origins[0].reads > 100);
    assert_eq!(statistics.verified_blocks, 0, "there is nothing to compare");
    Ok(())
}

#[test]
fn more_than_the_engine_takes_at_once_waits() -> Result<(), Trouble> {
    let setup = setup(64 * MIB, GIB, &[WriteMode::Writeback, WriteMode::Writethrough], Contents::Tags);
    let mut run = LongRun::new(setup, |_| ())?;
    let options = LoadOptions { depth: 10_000, start_gap_ns: 0, ..LoadOptions::reads(GIB / 4096) };
    let volume = VolumeIndex(1);
    run.run(&mut Load::new(LoadOptions { volume, requests: Some(30_000), ..options }), Until::End)?;
    assert_eq!(run.statistics().reads.count, 30_000);
    assert!(run.buffer_bytes_max() >= 8192 * 4096);
    Ok(())
}

/// Goal: each way to keep records and data runs for long, a cache that is put there anew too. Method: writes and reads over four
/// times the cache, checked, twice.
#[test]
fn every_way_to_keep_data_runs() -> Result<(), Trouble> {
    let slots = |persistence: &str| {
        let mut composition = Composition::plain_slots();
        composition.set("persistence", persistence).expect("it is possible");
        composition
    };
    let mut buckets = Composition::plain_log();
    for (axis, choice) in [("writes", "extents"), ("persistence", "journal"), ("replacement", "bucket-lru")] {
        buckets.set(axis, choice).expect("it is possible");
    }
    for composition in [slots("sync-sector"), slots("commit"), slots("bit-tree"), buckets] {
        composition.validate().unwrap_or_else(|coupling| panic!("{}", coupling.rule));
        let setup = setup(64 * MIB, 256 * MIB, &[WriteMode::Writeback], Contents::Tags);
        let mut run = LongRun::composed(setup, &composition, |_| ())?;
        for _ in 0..2 {
            run.begin_measuring();
            let mut load = Load::new(LoadOptions {
                request_bytes: 4096,
                pattern: Pattern::Zipf { theta_permille: 700 },
                read_permille: 300,
                jobs: 2,
                depth: 8,
                flush_every: 500,
                requests: Some(100_000),
                seed: 1,
                ..LoadOptions::reads(256 * MIB / 4096)
            });
            run.run(&mut load, Until::End)?;
            let statistics = run.statistics();
            assert_eq!(statistics.reads.count + statistics.writes.count, 100_000);
            assert!(statistics.verified_blocks > 20_000, "{:?}: {statistics:?}", composition.persistence);
            run.renew_cache()?;
        }
    }
    Ok(())
}

/// Goal: the last block of the largest volume is a block as any other. Method: whole blocks, parts of them, and all in a row, to
/// the end of 128 TiB, by each way to keep data.
#[test]
fn the_largest_volume_is_used_to_its_end() -> Result<(), Trouble> {
    const AREA_BLOCKS: u64 = 16 * MIB / 4096;
    for composition in [Composition::forebay(), Composition::plain_log(), Composition::plain_slots()] {
        let largest_bytes = VOLUME_BLOCKS_MAX * 4096;
        let setup = setup(64 * MIB, largest_bytes, &[WriteMode::Writeback], Contents::Tags);
        let mut run = LongRun::composed(setup, &composition, |_| ())?;
        for request_bytes in [4096, 512, 16 * 1024] {
            let first_block = VOLUME_BLOCKS_MAX - AREA_BLOCKS;
            let area = LoadOptions { first_block, ..LoadOptions::once(AREA_BLOCKS) };
            run.run(&mut Load::new(area), Until::End)?;
            run.idle(2 * Nanos::SECOND)?;
            let mut load = Load::new(LoadOptions {
                first_block,
                request_bytes,
                read_permille: 300,
                requests: Some(60_000),
                ..LoadOptions::reads(AREA_BLOCKS)
            });
            run.run(&mut load, Until::End)?;
        }
        run.idle(10 * Nanos::SECOND)?;
        let statistics = run.statistics();
        assert_eq!(statistics.reads.errors + statistics.writes.errors, 0);
        assert!(statistics.verified_blocks > 20_000, "{statistics:?}");
    }
    Ok(())
}

#[test]
fn of_a_device_that_is_too_large_the_rest_is_left() -> Result<(), Trouble> {
    const TIB: u64 = GIB * 1024;
    for composition in [Composition::forebay(), Composition::plain_log()] {
        let setup = setup(20 * TIB, GIB, &[WriteMode::Writeback], Contents::Tags);
        let mut run = LongRun::composed(setup, &composition, |_| ())?;
        run.run(
            &mut Load::new(LoadOptions { requests: Some(1000), ..LoadOptions::reads(4096) }),
            Until::End,
        )?;
        let reads = run.statistics().reads;
        assert_eq!((reads.count, reads.errors), (1000, 0));
    }
    Ok(())
}

#[test]
fn what_a_kill_leaves_is_opened_again() {
    for composition in [Composition::forebay(), Composition::plain_log()] {
        for state in State::ALL {
            let measured = recovery_cost::measure(&composition, 64 * MIB, state, &|| 0).expect("it opens");
            assert!(measured.device_ns > 0 && measured.read_bytes > 0, "{measured:?}");
            let (cached, dirty) = (measured.cached_bytes, measured.dirty_bytes);
            match state {
                State::Empty => assert!(cached < MIB && dirty == 0, "{measured:?}"),
                // Of what is read once at random half as much again leaves some out, and the ring has no room for all.
                State::Read => assert!(cached > 32 * MIB && dirty == 0, "{measured:?}"),
                State::Written => assert!(dirty > 3 * MIB && dirty < 64 * MIB / 10, "{measured:?}"),
            }
        }
    }
}
