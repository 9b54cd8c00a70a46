//! Small traces whose outcome can be told by hand, and a real one.

use super::*;
use crate::trace::{Reading, read};
use engine::composition::Composition;
use engine::effect::WriteMode;

const MIB: u64 = 1 << 20;

fn outcome(text: &str, mode: WriteMode, pace: Pace) -> Result<Outcome, ReplayError> {
    outcome_of("x.csv", text.as_bytes(), mode, pace)
}

fn outcome_of(name: &str, bytes: &[u8], mode: WriteMode, pace: Pace) -> Result<Outcome, ReplayError> {
    let model = |name| models::find(name).expect("it is built in");
    let (cache, origin) = (model("ssd"), model("hdd"));
    let composition = Composition::plain_log();
    let plan =
        Plan { composition: &composition, cache: &cache, cache_bytes: 32 * MIB, origin: &origin, mode };
    let mut source = read(name, bytes, Reading::default())?;
    let survey = Survey::of(source.as_mut(), &mut |_| ())?;
    let mut source = read(name, bytes, Reading::default())?;
    replay(&plan, pace, &survey, source.as_mut(), |_| (), &mut |_| ())
}

/// One request a second in the way of Tencent: `op` 0 reads, 1 writes.
fn trace(requests: &[(u64, u64, u64)]) -> String {
    requests.iter().map(|(second, block, op)| format!("{second},{},8,{op},1\n", block * 8)).collect()
}

#[test]
fn the_second_read_of_a_block_is_a_hit() -> Result<(), ReplayError> {
    let text = trace(&[(100, 5, 0), (101, 5, 0), (102, 6, 0), (103, 5, 0)]);
    let timed = outcome(&text, WriteMode::Writeback, Pace::Timed)?;
    assert_eq!((timed.hit_blocks, timed.miss_blocks, timed.requests), (2, 2, 4));
    assert_eq!((timed.hits, timed.misses, timed.hit_ratio()), (2, 2, Some(0.5)));
    assert_eq!((timed.origin.read_bytes, timed.entered_bytes), (8192, 8192));
    assert_eq!((timed.origin.written_bytes, timed.homecoming_ratio()), (0, None));
    assert!(timed.writes.is_none() && timed.errors == 0);
    let reads = timed.reads.expect("it reads");
    assert!(
        reads.p50_ns < Nanos::MILLISECOND && reads.max_ns > Nanos::MILLISECOND,
        "hits are fast: {reads:?}"
    );
    // Without a pause all reads come before the first one's block is in the cache. It waits in memory for others to enter with.
    let closed = outcome(&text, WriteMode::Writeback, Pace::Depth(1))?;
    assert_eq!((closed.hit_blocks, closed.miss_blocks, closed.requests), (2, 2, 4));
    Ok(())
}

#[test]
fn a_timed_trace_takes_its_time_and_a_closed_loop_does_not() -> Result<(), ReplayError> {
    // The third is late and comes with the second.
    let text = trace(&[(100, 1, 0), (190, 2, 0), (150, 3, 0), (200, 1, 0)]);
    let timed = outcome(&text, WriteMode::Writeback, Pace::Timed)?;
    assert!((100 * Nanos::SECOND..101 * Nanos::SECOND).contains(&timed.elapsed_ns), "{}", timed.elapsed_ns);
    let reads = timed.reads.expect("it reads");
    assert!(reads.max_ns < Nanos::SECOND, "a late request waits for nobody: {reads:?}");
    let closed = outcome(&text, WriteMode::Writeback, Pace::Depth(2))?;
    assert!(closed.elapsed_ns < Nanos::SECOND, "{}", closed.elapsed_ns);
    let untimed = outcome_of("x.trace", b"1\n2\n", WriteMode::Writeback, Pace::Timed);
    assert!(matches!(untimed, Err(ReplayError::NoTimes)), "{untimed:?}");
    let wrong = outcome(&trace(&[(0, 1, 0), (18_000_000_000, 1, 0)]), WriteMode::Writeback, Pace::Timed);
    assert!(matches!(wrong, Err(ReplayError::TooLong)), "{wrong:?}");
    Ok(())
}

#[test]
fn what_is_written_is_a_backlog_until_it_is_home() -> Result<(), ReplayError> {
    // One block eight times within a second, and seven others.
    let mut requests = vec![(100, 7, 1); 8];
    requests.extend((0..7).map(|block| (100, block, 1)));
    let text = trace(&requests);
    let back = outcome(&text, WriteMode::Writeback, Pace::Timed)?;
    assert_eq!(back.backlog.at_end_bytes, 8 * 4096);
    assert!(back.backlog.drain_ns.is_some_and(|ns| ns > 0), "{back:?}");
    assert_eq!(back.backlog.drain_origin_written_bytes, 8 * 4096);
    assert_eq!(back.homecoming_ratio(), Some(8.0 / 15.0));
    assert!(back.write_amplification().is_some_and(|factor| factor > 1.0), "there are headers: {back:?}");
    let around = outcome(&text, WriteMode::Writearound, Pace::Timed)?;
    assert_eq!((around.backlog.max_bytes, around.backlog.drain_ns), (0, Some(0)));
    assert_eq!((around.origin.written_bytes, around.homecoming_ratio()), (15 * 4096, Some(1.0)));
    assert_eq!(around.entered_bytes, 0);
    Ok(())
}

#[test]
fn a_real_excerpt_is_the_same_each_time() -> Result<(), ReplayError> {
    let bytes = include_bytes!("../../tests/traces/cloudphysics.vscsi.zst");
    let replay = |pace| outcome_of("cloudphysics.vscsi.zst", bytes, WriteMode::Writeback, pace);
    let timed = replay(Pace::Timed)?;
    assert_eq!(timed, replay(Pace::Timed)?);
    assert_eq!((timed.requests, timed.errors, timed.client_written_bytes), (600, 0, 1_182_208));
    assert_eq!(timed.elapsed_ns / Nanos::SECOND, 22);
    assert!(timed.backlog.drain_ns.is_some());
    assert!(replay(Pace::Depth(32))?.elapsed_ns < timed.elapsed_ns);
    Ok(())
}

#[test]
fn jobs_ask_what_fio_asks_and_then_all_goes_home() -> Result<(), Box<dyn std::error::Error>> {
    let model = |name| models::find(name).expect("it is built in");
    let (cache, origin, composition) = (model("ssd"), model("hdd"), Composition::plain_log());
    let mode = WriteMode::Writeback;
    let plan =
        Plan { composition: &composition, cache: &cache, cache_bytes: 32 * MIB, origin: &origin, mode };
    let file = "[write]\nioengine=libaio\nrw=randwrite\nbs=4k\nsize=1m\niodepth=8\n[read]\nstonewall\nrw=read\nbs=8k\n\
                size=3m\nfilename=write.0.0\n";
    let outcome = carry_out(&plan, &crate::workload::fio::parse(file)?, |_| (), &mut |_| ())?;
    assert_eq!((outcome.origin_bytes, outcome.requests, outcome.errors), (3 * MIB, 256 + 384, 0));
    assert_eq!((outcome.hit_blocks, outcome.miss_blocks), (256, 512), "what was written, and what was not");
    assert_eq!(outcome.homecoming_ratio(), Some(1.0));
    let many: String = (0..2).map(|at| format!("[{at}]\nrw=write\nbs=1m\nsize=100t\n")).collect();
    let error = carry_out(&plan, &crate::workload::fio::parse(&many)?, |_| (), &mut |_| ());
    assert!(matches!(error, Err(ReplayError::LargeFiles)), "{error:?}");
    Ok(())
}
