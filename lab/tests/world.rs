//! The world itself: small scripts in which what is promised is kept.

use engine::effect::{RequestOp, Target, WriteMode};
use lab::disk::Fate;
use lab::disk::faults::Kind;
use lab::violation::Violation;
use lab::world::{Setup, World, blocks, sectors};

#[test]
fn a_flushed_write_survives_a_power_cut() -> Result<(), Violation> {
    for (mode, _) in WriteMode::ALL.into_iter().take(4) {
        let mut world = World::new(Setup::new(1).with_modes(&[mode]));
        let ticket = world.write(0, blocks(10, 4));
        world.succeed(ticket)?;
        let ticket = world.write(0, sectors(333, 5));
        world.succeed(ticket)?;
        let ticket = world.flush(0);
        world.succeed(ticket)?;
        let late = world.write(0, blocks(10, 1));
        world.succeed(late)?;
        world.cut_power(|_| Fate::Lost);
        world.open()?;
        world.verify_cut()?;
        world.expect_sound_image()?;
        let read = world.read(0, blocks(10, 1));
        world.succeed(read)?;
        let ticket = world.submit(0, RequestOp::Drain);
        world.succeed(ticket)?;
        world.expect_origin_equals_view(0)?;
        world.run_dry()?;
        world.stop()?;
    }
    Ok(())
}

#[test]
fn a_write_that_is_held_back_can_land_in_a_crash_of_the_process() -> Result<(), Violation> {
    for lands in [false, true] {
        let mut world = World::new(Setup::new(2));
        world.hold(|io| io.is_cache(Kind::Write));
        let ticket = world.write(0, blocks(7, 2));
        world.until_pending(|io| io.is_cache(Kind::Write))?;
        assert!(world.answer(ticket).is_none());
        world.kill(|write| {
            assert!(write.target == Target::Cache && write.is_in_flight);
            lands
        });
        world.open()?;
        world.verify_cut()?;
        let read = world.read(0, blocks(7, 1));
        world.succeed(read)?;
        let found = world.answer(read).expect("it was answered").found[0];
        assert_eq!(matches!(found.source(), lab::content::Source::Write { .. }), lands);
    }
    Ok(())
}
