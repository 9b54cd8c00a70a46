//! Lost blocks that the operator gives up: they read as the origin has them, and nothing else does.

use crate::rig::{Device, Kind, Op, Rig, composition};
use forebay_engine::effect::{Errno, RequestOp};

/// Caches of slots of 4 and 64 KiB with a dirty block 5, whose copy rotted, and a dirty block 6.
fn rotten() -> Vec<Rig> {
    let small: &[(&str, &str)] = &[];
    let large = &[("slot_bytes", "65536"), ("ways", "0"), ("fetch", "frame"), ("waits", "true")];
    let new = |settings: &&[(&str, &str)]| {
        let mut rig = Rig::new(&composition(settings), 256, 1024);
        rig.fill_origin(5, 3);
        rig.fill_origin(6, 4);
        rig.write(5, 1, 7);
        rig.write(6, 1, 8);
        rig.rot(7);
        assert_eq!(answer_to_read(&mut rig, 5), Some(Err(Errno::IO)), "its only copy rotted");
        rig
    };
    [small, large].iter().map(new).collect()
}

fn answer_to_read(rig: &mut Rig, block: u64) -> Option<Result<(), Errno>> {
    let read = rig.submit_read(block * 8, 8);
    rig.run_but(is_origin_read);
    rig.answer(read)
}

fn is_origin_read(op: &Op) -> bool {
    op.device == Device::Origin && op.kind == Kind::Read
}

#[test]
fn what_is_given_up_is_what_the_origin_has() {
    for mut rig in rotten() {
        let given_up = rig.submit(RequestOp::GiveUpLost);
        rig.pass_ms(100);
        assert_eq!(rig.answer(given_up), Some(Ok(())));
        assert_eq!(rig.read(5, 2).0, [3, 8]);
        // The table of lost blocks no longer has it.
        rig.crash();
        assert_eq!(rig.read(5, 2).0, [3, 8]);
        let drain = rig.submit(RequestOp::Drain);
        rig.pass_ms(10_000);
        assert_eq!(rig.answer(drain), Some(Ok(())));
        assert_eq!((rig.origin_byte(5), rig.origin_byte(6)), (3, 8));
    }
}

#[test]
fn a_write_beside_it_stays() {
    for mut rig in rotten() {
        let given_up = rig.submit(RequestOp::GiveUpLost);
        rig.run_but(is_origin_read);
        let write = rig.submit_write(5 * 8, 8, 9);
        assert!(!rig.is_answered(given_up) && !rig.is_answered(write));
        rig.pass_ms(100);
        assert_eq!((rig.answer(given_up), rig.answer(write)), (Some(Ok(())), Some(Ok(()))));
        assert_eq!(rig.read(5, 2).0, [9, 8]);
    }
}

#[test]
fn what_is_lost_meanwhile_is_not_given_up() {
    for mut rig in rotten() {
        let given_up = rig.submit(RequestOp::GiveUpLost);
        rig.run_but(is_origin_read);
        rig.rot(8);
        assert_eq!(answer_to_read(&mut rig, 6), Some(Err(Errno::IO)));
        rig.pass_ms(100);
        assert_eq!(rig.answer(given_up), Some(Ok(())));
        assert_eq!(rig.read(5, 1).0, [3]);
        assert_eq!(answer_to_read(&mut rig, 6), Some(Err(Errno::IO)), "nobody has given it up");
    }
}

#[test]
fn what_the_origin_cannot_read_stays_lost_and_is_asked_for_again() {
    for mut rig in rotten() {
        rig.fails_reads = true;
        let failed = rig.submit(RequestOp::GiveUpLost);
        rig.pass_ms(100);
        assert_eq!(rig.answer(failed), Some(Err(Errno::IO)));
        assert_eq!(answer_to_read(&mut rig, 5), Some(Err(Errno::IO)));
        rig.fails_reads = false;
        let given_up = rig.submit(RequestOp::GiveUpLost);
        rig.pass_ms(100);
        assert_eq!(rig.answer(given_up), Some(Ok(())));
        assert_eq!(rig.read(5, 2).0, [3, 8]);
    }
}
