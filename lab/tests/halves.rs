//! Mirrored caches: runs of the swarm in which halves fail, are lost, rot and come back.

use engine::effect::Errno;
use engine::pair::{Half, Standing};
use forebay_lab::disk::faults::Kind;
use forebay_lab::swarm::{Options, Totals, run};
use forebay_lab::violation::Violation;
use forebay_lab::world::halves::Failing;
use forebay_lab::world::{Refusal, Setup, World, blocks};

/// Seeds, all of them mirrored.
const SEEDS: u64 = 300;

#[test]
fn no_seed_loses_anything_with_one_of_two_devices() {
    let (mut totals, mut failures) = (Totals::default(), Vec::new());
    for seed in 0..SEEDS {
        let outcome = run(&Options::draw(seed).with_halves());
        totals.add(&outcome.counts, outcome.failure.is_some());
        failures.extend(outcome.failure.map(|failure| failure.to_string()));
    }
    assert!(failures.is_empty(), "{} seeds failed:\n{}", failures.len(), failures.join("\n"));
    assert!(totals.counts.cuts > SEEDS, "each seed has some cuts: {totals:?}");
}

/// A cache whose second half went out, and on which more was written then.
fn one_half_out() -> Result<World, Violation> {
    let mut world = World::new(Setup { is_mirrored: true, ..Setup::new(1) });
    world.run_dry()?;
    for (block, failing) in [(10, None), (20, Some(Failing::Once(Kind::Write))), (30, None)] {
        failing.into_iter().for_each(|failing| world.fail_half(Half::Second, failing));
        let written = world.write_fua(0, blocks(block, 4));
        world.succeed(written)?;
    }
    assert_eq!(world.standings(), [Standing::In, Standing::Out]);
    Ok(world)
}

#[test]
fn an_old_half_alone_is_refused() {
    let mut world = one_half_out().expect("nothing is wrong");
    world.stop().expect("it stops");
    world.half(Half::First).faults.gone = Some(Errno::NODEV);
    let refused = world.try_open().expect("nothing is lost");
    assert!(matches!(refused, Err(Refusal::RolledBack)), "{refused:?}");
    world.half(Half::First).faults.heal();
    world.open().expect("the half that has everything is back");
    world.verify().expect("everything is there");
}

#[test]
fn a_half_that_comes_back_counts_when_it_has_everything() {
    let mut world = one_half_out().expect("nothing is wrong");
    world.kill(|_| true);
    world.open().expect("one half is enough");
    assert_eq!(world.standings(), [Standing::In, Standing::Out], "an old half does not count");
    let rejoined = world.rejoin();
    world.succeed(rejoined).expect("it is copied");
    assert_eq!(world.standings(), [Standing::In; 2]);
    world.kill(|_| true);
    world.blank_half(Half::First);
    world.open().expect("the other half is enough");
    assert_eq!(world.standings(), [Standing::Out, Standing::In]);
    world.verify().expect("everything is there");
}

#[test]
fn a_half_that_fails_in_the_last_moment_of_its_copy_does_not_count() {
    let mut world = one_half_out().expect("nothing is wrong");
    let rejoined = world.rejoin();
    while world.standings() != [Standing::In; 2] {
        assert!(world.step().expect("nothing is wrong"), "the copy comes to its end");
    }
    // The pages that say so are written, and not flushed yet.
    world.fail_half(Half::Second, Failing::Once(Kind::Flush));
    let answer = world.wait(rejoined).expect("nothing is lost");
    assert_eq!((answer, world.standings()), (Err(Errno::IO), [Standing::In, Standing::Out]));
    let rejoined = world.rejoin();
    world.succeed(rejoined).expect("it is copied again");
    world.verify().expect("everything is there");
}
