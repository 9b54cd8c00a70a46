//! bcache's rates, worked through by hand, and against the formulas over the whole history.

use super::*;
use alloc::vec::Vec;
use proptest::prelude::*;

/// A cache without other volumes whose target at 10 % is `target` sectors.
fn facts(now_s: u64, dirty: u64, target: u64) -> Pressure {
    Pressure {
        now: Nanos(now_s * Nanos::SECOND),
        dirty_sectors: dirty,
        cache_sectors: target * 10,
        origin_sectors: 1 << 30,
        origins_sectors: 1 << 30,
        frame_sectors: 1024,
        ..Pressure::default()
    }
}

/// The rates after updates at which so much is dirty. Copies keep up all the time.
fn rates(choice: PiChoice, dirty: &[u64], target: u64) -> Vec<i64> {
    let mut pi = Pi::new(choice);
    pi.budget(&facts(0, dirty[0], target));
    let period = u64::from(choice.update_s);
    let mut rates = Vec::new();
    for (at, &dirty) in dirty.iter().enumerate() {
        let facts = facts((at as u64 + 1) * period, dirty, target);
        pi.due = facts.now.plus(Nanos::SECOND);
        pi.budget(&facts);
        rates.push(pi.rate());
    }
    rates
}

#[test]
fn era_b_of_a_burst_that_stays() {
    // 60 000 dirty, none before, no target: 60 000·5/6000 = 50; growth 12 000/s, averaged over 6: 2000, ·30/6000 = 10.
    // Then growth 0: 2000·5/6 = 1666, ·30/6000 = 8.
    assert_eq!(rates(PiChoice::B, &[60_000, 60_000], 0), [1084, 1142]);
    // Below the target and shrinking: −50, growth −2000/s averaged −333, −1; down to 1 in the end.
    assert_eq!(
        rates(PiChoice::B, &[50_000, 40_000], 100_000)[0],
        1024 + (-50_000 * 5 / 6000) + 1666 * 30 / 6000
    );
    assert_eq!(rates(PiChoice { rate_start: 1, ..PiChoice::B }, &[10; 4], 100_000), [1; 4]);
}

#[test]
fn era_c_of_an_error_that_stays() {
    // 40 000 above the target: 1000, and 40 000·5/10 000 = 20 more each time.
    assert_eq!(rates(PiChoice::PUBLISHED, &[140_000; 3], 100_000), [1020, 1040, 1060]);
    // Below the target the lowest rate, and the sum does not go below zero.
    assert_eq!(rates(PiChoice::PUBLISHED, &[50_000, 50_000, 140_000], 100_000), [8, 8, 1020]);
}

#[test]
fn era_a_of_a_burst_that_stays() {
    // 200 000 dirty, none before, target 100 000. Growth ·16, at most 200 000; averaged over 8: 25 000.
    // Error (125 000 << 8) / 100 000 = 320; (1024·320 >> 8) / 64 = 20.
    // Then growth 0: 25 000·7/8 = 21 875; (121 875 << 8) / 100 000 = 312; (1044·312 >> 8) / 64 = 19.
    assert_eq!(rates(PiChoice::A, &[200_000, 200_000], 100_000), [1044, 1063]);
    // Without a target (percent of nothing) the rate stays.
    assert_eq!(rates(PiChoice::A, &[200_000], 0), [1024]);
}

/// Goal: the eras differ as published. Method: one minute of the same load, the rate every 5 s; the table was worked
/// out from the published formulas beside this code.
#[test]
fn one_minute_of_each_era() {
    let dirty = [20, 60, 120, 200, 300, 260, 200, 150, 120, 100, 80, 60].map(|thousand| thousand * 1000);
    let minute = |choice| {
        let mut pi = Pi::new(choice);
        pi.budget(&facts(0, dirty[0], 100_000));
        let rate = |(at, dirty): (u64, u64)| {
            let facts = facts((at + 1) * 5, dirty, 100_000);
            pi.client_request();
            pi.due = facts.now.plus(Nanos::SECOND);
            pi.budget(&facts);
            pi.rate()
        };
        (0..).zip(dirty).map(rate).collect::<Vec<i64>>()
    };
    let a = [1024, 1024, 1024, 1024, 1024, 1054, 1054, 1054, 1054, 1054, 1054, 1051];
    let b = [961, 937, 970, 1081, 1287, 1446, 1541, 1583, 1596, 1590, 1566, 1523];
    let c = [8, 8, 510, 2560, 5160, 4240, 2790, 1565, 825, 325, 8, 8];
    for (choice, rates) in [(PiChoice::A, a), (PiChoice::B, b), (PiChoice::PUBLISHED, c)] {
        assert_eq!(minute(choice), rates, "{:?}", choice.era);
    }
}

#[test]
fn copies_that_lag_do_not_raise_the_rate() {
    for (choice, stays) in [(PiChoice::A, 1024), (PiChoice::B, 1024), (PiChoice::PUBLISHED, 1000)] {
        let mut pi = Pi::new(choice);
        pi.budget(&facts(0, 140_000, 100_000));
        pi.budget(&facts(u64::from(choice.update_s), 140_000, 100_000));
        assert_eq!(pi.rate(), stays, "{:?}: no copy was due for a whole period", choice.era);
    }
}

#[test]
fn fragmented_buckets_raise_the_rate() {
    let rate = |in_use_percent, busy_buckets, dirty_sectors| {
        let mut pi = Pi::new(PiChoice::PUBLISHED);
        pi.budget(&facts(0, dirty_sectors, 10_000_000));
        let facts = Pressure { in_use_percent, busy_buckets, ..facts(5, dirty_sectors, 10_000_000) };
        pi.budget(&facts);
        pi.rate()
    };
    // 100 buckets of 1024 sectors with 8 dirty sectors each: 128 times as much.
    assert_eq!(rate(50, 100, 800), 8, "not yet");
    assert_eq!(rate(57, 100, 800), 8 * 7);
    assert_eq!(rate(60, 100, 800), 8 * 30);
    assert_eq!(rate(64, 100, 800), 8 * 70);
    assert_eq!(rate(66, 100, 800), 8 * 2000);
    // 102 400 sectors of buckets for 25 601 dirty ones: 3 times, which is not fragmented; for 25 600: 4 times.
    assert_eq!(rate(66, 100, 25_601), 8);
    assert_eq!(rate(66, 100, 25_600), 256 * 2000);
}

#[test]
fn six_quiet_updates_lift_the_limit_until_a_request_comes() {
    let mut pi = Pi::new(PiChoice::PUBLISHED);
    let rates: Vec<i64> = (0..=7)
        .map(|round| {
            pi.budget(&facts(round * 5, 140_000, 100_000));
            pi.rate()
        })
        .collect();
    assert_eq!(rates, [1024, 1000, 1000, 1000, 1000, 1000, RATE_IDLE, RATE_IDLE]);
    pi.client_request();
    assert_eq!(pi.rate(), 1);
    pi.budget(&facts(40, 140_000, 100_000));
    assert_eq!(pi.rate(), 1000, "the next update");
    let mut never = Pi::new(PiChoice { idles_at_max: false, ..PiChoice::PUBLISHED });
    for round in 0..=20 {
        never.budget(&facts(round * 5, 140_000, 100_000));
    }
    assert_eq!(never.rate(), 1000);
}

#[test]
fn the_limiter_of_each_era() {
    let ms = |count| count * Nanos::MILLISECOND;
    let wait_ms = |choice, runs: &[u64]| {
        let mut pi = Pi::new(choice);
        let now = Nanos(100 * Nanos::SECOND);
        pi.due = now;
        runs.iter().for_each(|&sectors| pi.started(now, sectors));
        pi.wait_until.since(now) / Nanos::MILLISECOND
    };
    // 1024 sectors at 1024 sectors/s: a second; at 102 400: 10 ms.
    assert_eq!(
        [PiChoice::A, PiChoice::B, PiChoice::PUBLISHED].map(|choice| wait_ms(choice, &[1024])),
        [10, 1000, 1000]
    );
    // Ahead at the most: a waits a second, but knows of all; b forgets what is beyond a second, c beyond 2.5.
    assert_eq!(
        [PiChoice::A, PiChoice::B, PiChoice::PUBLISHED].map(|choice| wait_ms(choice, &[1 << 20])),
        [1000, 1000, 2500]
    );
    // Behind at the most two seconds: of 10 s of silence two are made up for.
    for (choice, waits_ms) in [(PiChoice::B, 0), (PiChoice::PUBLISHED, 0)] {
        let mut pi = Pi::new(choice);
        pi.due = Nanos(90 * Nanos::SECOND);
        let now = Nanos(100 * Nanos::SECOND);
        pi.started(now, 1024);
        assert_eq!((pi.due, pi.wait_until.since(now)), (Nanos(98 * Nanos::SECOND), ms(waits_ms)));
    }
}

#[test]
fn the_first_sweep_has_nothing_to_make_up_for() {
    for choice in [PiChoice::B, PiChoice::PUBLISHED] {
        let mut pi = Pi::new(choice);
        pi.budget(&facts(0, 0, 100_000));
        let facts = facts(100, 140_000, 100_000);
        assert!(pi.budget(&facts).runs > 0);
        pi.started(facts.now, 1024);
        assert_eq!(pi.wait_until.since(facts.now), 1024 * Nanos::SECOND / pi.rate().unsigned_abs());
    }
}

#[test]
fn a_short_wait_is_left_out_before_a_run_that_continues_the_last() {
    // 32 sectors at 1024 sectors/s: 31.25 ms. 64: 62.5 ms.
    for (choice, sectors, continuing) in
        [(PiChoice::B, 32, 1), (PiChoice::B, 64, 0), (PiChoice::PUBLISHED, 32, 0)]
    {
        let mut pi = Pi::new(choice);
        let facts = facts(0, 140_000, 100_000);
        assert_eq!(pi.budget(&facts).runs, if choice.era == PiEra::C { 5 } else { 1 });
        pi.started(facts.now, sectors);
        let budget = pi.budget(&facts);
        assert_eq!((budget.runs, budget.continuing), (0, continuing));
        assert_eq!(budget.look_again, Some(pi.wait_until));
        let later = Pressure { now: pi.wait_until, ..facts };
        assert!(pi.budget(&later).runs > 0);
    }
}

#[test]
fn a_sweep_is_followed_by_a_rest() {
    for choice in [PiChoice::A, PiChoice::B, PiChoice::PUBLISHED] {
        let mut pi = Pi::new(choice);
        let first = pi.budget(&facts(0, 140_000, 100_000));
        let waits_for_company = choice.era == PiEra::A;
        assert_eq!(first.runs == 0, waits_for_company, "a rests when data first becomes dirty");
        assert!(pi.budget(&facts(30, 140_000, 100_000)).runs > 0);
        pi.wrapped(Nanos(31 * Nanos::SECOND));
        assert_eq!(pi.budget(&facts(60, 140_000, 100_000)).runs, 0);
        assert!(pi.budget(&Pressure { is_draining: true, ..facts(60, 140_000, 100_000) }).runs == 64);
        assert!(pi.budget(&facts(61, 140_000, 100_000)).runs > 0);
    }
}

#[test]
fn no_percentage_and_a_drain_are_without_limit() {
    let mut pi = Pi::new(PiChoice { writeback_percent: 0, ..PiChoice::PUBLISHED });
    let facts = Pressure { runs: 60, ..facts(0, 140_000, 100_000) };
    pi.started(facts.now, 1 << 30);
    assert_eq!(pi.budget(&facts).runs, 4, "of 64 copies");
    assert_eq!(pi.budget(&Pressure { dirty_sectors: 0, ..facts }).runs, 0);
    let mut pi = Pi::new(PiChoice::B);
    pi.budget(&facts);
    pi.started(facts.now, 1 << 30);
    assert_eq!(pi.budget(&facts).runs, 0);
    assert_eq!(pi.budget(&Pressure { is_draining: true, ..facts }).runs, 4);
}

#[test]
fn the_target_is_shared_by_the_size_of_origins() {
    let facts = Pressure {
        cache_sectors: 1_000_000,
        origin_sectors: 1 << 40,
        origins_sectors: 4 << 40,
        ..Pressure::default()
    };
    assert_eq!(target_sectors(&facts, 10), 25_000);
}

/// The facts of one update.
type Sample = (i64, bool);

/// The rate after all samples, from the formulas alone.
fn rate_of(choice: PiChoice, samples: &[Sample], target: i64) -> i64 {
    let inverse = i64::from(choice.p_inverse);
    let trend = |upto: usize| {
        let weight = if choice.era == PiEra::A { 8 } else { 6 };
        (0..=upto).fold(0, |trend, at| {
            let before = if at == 0 { 0 } else { samples[at - 1].0 };
            let (dirty, growth) = (samples[at].0, samples[at].0 - before);
            let growth = if choice.era == PiEra::A { (growth * 16).clamp(-dirty, dirty) } else { growth / 5 };
            (trend * (weight - 1) + growth) / weight
        })
    };
    let mut rate = 1024;
    let mut sum = 0;
    for (at, &(dirty, keeps_up)) in samples.iter().enumerate() {
        let error = dirty - target;
        rate = match choice.era {
            PiEra::A => {
                let error = (dirty + trend(at) - target) * 256 / target;
                let change = (rate * error).div_euclid(256) / inverse;
                rate + if keeps_up { change } else { change.min(0) }
            }
            PiEra::B => {
                let change = error * 5 / inverse + trend(at) * 30 / inverse;
                rate + if keeps_up { change } else { change.min(0) }
            }
            PiEra::C => {
                if (error < 0 && sum > 0) || (error > 0 && keeps_up) {
                    sum += error * 5;
                }
                error / inverse + sum / 10_000
            }
        };
        rate = if choice.era == PiEra::C { rate.clamp(8, 1_000_000_000) } else { rate.clamp(1, 1_000_000) };
    }
    rate
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]
    /// Goal: what is carried from update to update is what the formulas say. Method: any history of dirty data, with
    /// copies that keep up or lag, beside the formulas over the whole history.
    #[test]
    fn behaves_as_the_formulas(
        samples in prop::collection::vec((1i64..40_000_000, any::<bool>()), 1..40),
        target in 1u64..20_000_000,
    ) {
        for choice in [PiChoice::A, PiChoice::B, PiChoice { idles_at_max: false, ..PiChoice::PUBLISHED }] {
            let mut pi = Pi::new(choice);
            pi.budget(&facts(0, 1, target));
            for (at, &(dirty, keeps_up)) in samples.iter().enumerate() {
                let facts = facts((at as u64 + 1) * u64::from(choice.update_s), dirty as u64, target);
                pi.due = if keeps_up { facts.now } else { Nanos(0) };
                pi.look(&facts);
                prop_assert_eq!(pi.rate(), rate_of(choice, &samples[..=at], target as i64));
            }
        }
    }
}
