//! An origin that fails a flush may have lost what it had of late: nothing of that is clean any more.

use crate::rig::{Device, Kind, Rig, bytes, composition};
use forebay_engine::effect::{Errno, RequestOp, WriteMode};

#[test]
fn what_an_origin_may_have_lost_is_not_clean() {
    let mut rig = Rig::new(&composition(&[("write_mode", "writethrough")]), 2048, 8192);
    rig.write(5, 4, 1);
    assert_eq!(bytes(&rig.read(5, 4).1, Device::Cache, Kind::Read), 4 * 4096);
    rig.fails_flushes = true;
    let flush = rig.submit(RequestOp::Flush);
    rig.run();
    assert!(rig.is_answered(flush));
    assert_eq!(bytes(&rig.read(5, 4).1, Device::Cache, Kind::Read), 0, "the origin is asked what it has");
}

#[test]
fn what_was_written_home_and_not_flushed_stays_dirty() {
    let mut rig =
        Rig::new(&composition(&[("destage", "threshold"), ("set_dirty_percent", "10")]), 2048, 8192);
    (0..60).for_each(|number| drop(rig.write(number * 2, 1, 1)));
    assert_eq!(rig.dirty_blocks(), 60);
    rig.fails_flushes = true;
    rig.pass_ms(3_000);
    assert_eq!(rig.dirty_blocks(), 60);
    rig.fails_flushes = false;
    rig.pass_ms(10_000);
    // 10 % of 512, and what was under way beside them.
    assert!((50..=51).contains(&rig.dirty_blocks()), "{}", rig.dirty_blocks());
}

#[test]
fn what_an_origin_lost_is_told_behind_a_succession() {
    let mut rig = Rig::new(&composition(&[("write_mode", "writearound")]), 2048, 8192);
    rig.write(5, 4, 1);
    rig.fails_flushes = true;
    let drain = rig.submit(RequestOp::Drain);
    rig.pass_ms(100);
    rig.fails_flushes = false;
    rig.pass_ms(10_000);
    assert_eq!(rig.answer(drain), Some(Ok(())), "the origin can be flushed again, whatever it lost");
    rig.succeed();
    let mut flush = || {
        let flush = rig.submit(RequestOp::Flush);
        rig.run();
        rig.answer(flush)
    };
    assert_eq!(flush(), Some(Err(Errno::IO)), "the client was told of nothing yet");
    assert_eq!(flush(), Some(Ok(())), "what came later was not lost");
}

#[test]
fn a_flush_that_waits_for_mappings_tells_of_a_loss() {
    let mut made_of = composition(&[("persistence", "commit"), ("write_mode", "writearound")]);
    // As published, writes are answered before their mappings are durable, and a FLUSH waits for those.
    made_of.safe = false;
    let mut rig = Rig::new(&made_of, 2048, 8192);
    rig.write(100, 1, 1);
    rig.submit(RequestOp::SetMode(WriteMode::Writeback));
    rig.run();
    rig.write(5, 1, 2);
    let flush = rig.submit(RequestOp::Flush);
    rig.submit(RequestOp::SetMode(WriteMode::Writearound));
    rig.fails_flushes = true;
    let durable = rig.submit_write_with(200 * 8, 8, 3, true);
    rig.run_but(|op| op.device == Device::Cache);
    assert_eq!((rig.answer(flush), rig.answer(durable)), (None, Some(Err(Errno::IO))));
    rig.fails_flushes = false;
    rig.pass_ms(3_000);
    assert_eq!(rig.answer(flush), Some(Err(Errno::IO)), "what it speaks for may be lost");
}
