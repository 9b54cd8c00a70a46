//! Brakes in virtual time: what goes, in which order, and when.

use super::*;
use proptest::prelude::*;

const A: VolumeIndex = VolumeIndex(0);
const B: VolumeIndex = VolumeIndex(5);

fn iops(per_second: u64, burst: u64) -> Limits {
    Limits { iops: Some(Rate { per_second, burst }), bandwidth: None }
}

/// Lets time pass from one deadline to the next; what goes when.
fn run(brakes: &mut Brakes<u64>, mut now: Nanos) -> Vec<(u64, Nanos)> {
    let mut went = Vec::new();
    while let Some(deadline) = brakes.deadline(now) {
        assert!(deadline >= now);
        now = deadline;
        while let Some(item) = brakes.take_due(now) {
            went.push((item, now));
        }
    }
    went
}

#[test]
fn without_limits_everything_goes_at_once() {
    let mut brakes = Brakes::new();
    assert!(!brakes.are_any_on());
    for item in 0..1000 {
        assert_eq!(brakes.pass(A, 1 << 20, item, Nanos(7)), Some(item));
    }
    assert_eq!((brakes.deadline(Nanos(7)), brakes.held_back(A)), (None, HeldBack::default()));
}

#[test]
fn what_waits_keeps_its_order_and_goes_in_its_time() {
    let mut brakes = Brakes::new();
    brakes.set(A, iops(10, 1), Nanos(0));
    assert_eq!(brakes.pass(A, 4096, 0, Nanos(0)), Some(0));
    for item in 1..=3 {
        assert_eq!(brakes.pass(A, 4096, item, Nanos(0)), None);
    }
    let tenth = Nanos::SECOND / 10;
    assert_eq!(run(&mut brakes, Nanos(0)), [1, 2, 3].map(|item| (item, Nanos(item * tenth))));
    assert_eq!(brakes.held_back(A), HeldBack { requests: 3, wait_ns: 6 * tenth });
}

#[test]
fn both_rates_hold_and_a_discard_counts_as_a_request_alone() {
    let mut brakes = Brakes::new();
    let bandwidth = Some(Rate { per_second: 1 << 20, burst: 1 << 20 });
    brakes.set(A, Limits { bandwidth, ..iops(1000, 1000) }, Nanos(0));
    assert_eq!(brakes.pass(A, 1 << 20, 0, Nanos(0)), Some(0));
    assert_eq!(brakes.pass(A, 0, 1, Nanos(0)), Some(1), "it brings no data");
    assert_eq!(brakes.pass(A, 1 << 19, 2, Nanos(0)), None);
    assert_eq!(run(&mut brakes, Nanos(0)), [(2, Nanos(Nanos::SECOND / 2))]);
    let range = engine::units::SectorRange { start: 0, sectors: 8 };
    assert_eq!(counted_bytes(&RequestOp::Discard { range, fua: true }), Some(0));
    assert_eq!(counted_bytes(&RequestOp::Flush), None);
    assert_eq!(counted_bytes(&RequestOp::Drain), None);
}

#[test]
fn limits_that_are_taken_away_let_everything_go() {
    let mut brakes = Brakes::new();
    brakes.set(A, iops(1, 1), Nanos(0));
    assert_eq!(brakes.pass(A, 4096, 0, Nanos(0)), Some(0));
    assert_eq!(brakes.pass(A, 4096, 1, Nanos(0)), None);
    assert_eq!(brakes.pass(A, 4096, 2, Nanos(0)), None);
    brakes.set(A, Limits::default(), Nanos(5));
    assert_eq!(brakes.pass(A, 4096, 3, Nanos(5)), None, "none overtakes what came before");
    assert_eq!(run(&mut brakes, Nanos(5)), [1, 2, 3].map(|item| (item, Nanos(5))));
    assert!(!brakes.are_any_on());
}

#[test]
fn a_rate_that_stays_remembers() {
    let mut brakes = Brakes::new();
    brakes.set(A, iops(1, 1), Nanos(0));
    assert_eq!(brakes.pass(A, 4096, 0, Nanos(0)), Some(0));
    brakes.set(A, Limits { bandwidth: Some(Rate { per_second: 1, burst: 1 }), ..iops(1, 1) }, Nanos(0));
    assert_eq!(brakes.pass(A, 0, 1, Nanos(0)), None);
    assert_eq!(brakes.deadline(Nanos(0)), Some(Nanos(Nanos::SECOND)));
}

#[test]
fn what_nobody_wants_is_withdrawn() {
    let mut brakes = Brakes::new();
    brakes.set(A, iops(1, 1), Nanos(0));
    for item in 0..6 {
        brakes.pass(A, 4096, item, Nanos(0));
    }
    assert_eq!(brakes.withdraw(B, |_| true), Vec::<u64>::new());
    assert_eq!(brakes.withdraw(A, |item| item % 2 == 1), [1, 3, 5]);
    let second = Nanos::SECOND;
    assert_eq!(run(&mut brakes, Nanos(0)), [(2, Nanos(second)), (4, Nanos(2 * second))]);
}

#[test]
fn each_limited_volume_has_its_part_of_the_memory() {
    let mut brakes = Brakes::new();
    assert!(!brakes.is_full(A, 0), "without limits nothing is full");
    brakes.set(A, iops(1, 1), Nanos(0));
    brakes.set(B, iops(1, 1), Nanos(0));
    for item in 0..5 {
        brakes.pass(A, 512, item, Nanos(0));
    }
    assert!(brakes.is_full(A, 2 * 4 * 4096), "four blocks wait, whatever their requests are long");
    assert!(!brakes.is_full(A, 2 * 4 * 4096 + 1));
    assert!(!brakes.is_full(B, 1));
}

proptest! {
    /// Everything goes, in the order of its volume, as soon as its rate allows and no sooner; and a volume without
    /// limits never waits, whatever waits beside it.
    #[test]
    fn all_that_comes_goes_in_order(
        per_second in 1u64..5_000,
        burst in 1u64..50,
        arrivals in prop::collection::vec((any::<bool>(), 0u64..3_000_000), 1..200),
    ) {
        let mut brakes = Brakes::new();
        brakes.set(A, iops(per_second, burst), Nanos(0));
        let mut now = Nanos(0);
        let mut went: Vec<(u64, Nanos)> = Vec::new();
        let mut came = 0_u64;
        for (is_limited, rest_ns) in arrivals {
            let then = now.plus(rest_ns);
            while let Some(deadline) = brakes.deadline(now).filter(|deadline| *deadline <= then) {
                now = deadline;
                while let Some(item) = brakes.take_due(now) {
                    went.push((item, now));
                }
            }
            now = then;
            if is_limited {
                went.extend(brakes.pass(A, 4096, came, now).map(|item| (item, now)));
                came += 1;
            } else {
                prop_assert_eq!(brakes.pass(B, 4096, 7, now), Some(7));
            }
        }
        went.extend(run(&mut brakes, now));
        prop_assert_eq!(went.len() as u64, came);
        for (at, (item, when)) in went.iter().enumerate() {
            prop_assert_eq!(*item, at as u64, "in order");
            let earlier = at as u64;
            let allowed = u128::from(burst)
                + u128::from(when.0) * u128::from(per_second) / u128::from(Nanos::SECOND);
            prop_assert!(u128::from(earlier) < allowed + 1);
        }
        let last = went.last().map_or(Nanos(0), |(_, when)| *when);
        let needed_ns = came.saturating_mul(Nanos::SECOND).div_ceil(per_second);
        prop_assert!(last.0 <= now.0 + needed_ns, "nothing waits longer than all of it takes");
    }
}
