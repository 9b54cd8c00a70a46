//! Curves that can be told by hand, and those of a real trace.

use super::*;
use crate::trace::{Reading, Survey, read};
use std::num::NonZeroU32;

const W106: (&str, &[u8]) =
    ("cloudphysics-w106.u32le.xz", include_bytes!("../../tests/traces/cloudphysics-w106.u32le.xz"));

fn advice_of(name: &str, bytes: &[u8], sample_blocks: u32) -> Advice {
    let model = |name| models::find(name).expect("it is built in");
    let (cache, origin) = (&model("ssd"), &model("hdd"));
    let options = Options { sample_blocks: NonZeroU32::new(sample_blocks), sizes_blocks: &[], cache, origin };
    let open = || read(name, bytes, Reading::default()).expect("it is well-formed");
    let survey = Survey::of(open().as_mut(), &mut |_| ()).expect("it is well-formed");
    advise(&options, &survey, open().as_mut(), &mut |done, all| assert!(done <= all))
        .expect("it is well-formed")
}

fn curve<'a>(advice: &'a Advice, policy: &str) -> &'a Curve {
    advice.curves.iter().find(|curve| curve.policy == policy).expect("it is one of the policies")
}

/// Reads of the blocks 0 to `blocks`, again and again.
fn rounds(blocks: u64, rounds: u64) -> String {
    (0..blocks * rounds).map(|at| format!("{}\n", at % blocks)).collect()
}

#[test]
fn lru_has_a_cliff_where_a_loop_fits() {
    let advice = advice_of("loop.trace", rounds(200, 10).as_bytes(), u32::MAX);
    assert_eq!((advice.footprint_bytes, advice.sample_rate), (200 * 4096, 1.0));
    for (bytes, point) in advice.sizes_bytes.iter().zip(&curve(&advice, "lru").points) {
        let expected = if *bytes >= 200 * 4096 { 0.9 } else { 0.0 };
        assert_eq!(point.expect("LRU has all points").hit_ratio, expected, "{bytes}");
    }
    assert_eq!(advice.hit_ratio_max, 0.9);
    // Random replacement keeps part of a loop.
    let random = curve(&advice, "random").points.iter().flatten();
    assert!(random.clone().filter(|point| (0.1..0.9).contains(&point.hit_ratio)).count() > 2, "{random:?}");
    assert_eq!(advice.sample_error, SampleError::default(), "all is looked at");
}

#[test]
fn every_policy_has_all_the_hits_where_all_fits() {
    let advice = advice_of("loop.trace", rounds(1000, 5).as_bytes(), u32::MAX);
    for (policy, _) in POLICIES {
        let point =
            curve(&advice, policy).points.last().copied().flatten().expect("the sample is everything");
        assert_eq!((point.hit_ratio, point.read_hit_ratio), (0.8, Some(0.8)), "{policy}");
        assert_eq!(point.written_bytes, 1000 * 4096, "{policy}: each block once");
        let Service { cache_read_ns, origin_read_ns, .. } = advice.service;
        assert_eq!(point.latency_ns, (cache_read_ns * 4 + origin_read_ns) / 5, "{policy}");
    }
}

/// A list that is searched from the end: LRU as plainly as it can be said.
fn naive_lru_hits(blocks: impl Iterator<Item = u64>, size: usize) -> u64 {
    let (mut list, mut hits) = (Vec::new(), 0);
    for block in blocks {
        match list.iter().rposition(|&other| other == block) {
            Some(at) => {
                list.remove(at);
                hits += 1;
            }
            None if list.len() == size => {
                list.remove(0);
            }
            None => (),
        }
        list.push(block);
    }
    hits
}

#[test]
fn the_exact_curve_of_a_real_trace_is_lru() {
    // Hits of LRU of 1, 10 and 50 % of 6225 blocks, counted by another program.
    let golden = [(62, 0.498_183), (622, 0.795_133), (3112, 0.879_05)];
    let mut source = read(W106.0, W106.1, Reading::default()).expect("it is well-formed");
    let (mut exact, mut blocks) = (exact::LruHits::default(), Vec::new());
    while let Some(entry) = source.next_entry().expect("it is well-formed") {
        exact.access((0, entry.range.first_block()), Access::Read);
        blocks.push(entry.range.first_block());
    }
    for (size, ratio) in golden {
        let hits = exact.hits(size).reads;
        assert!((hits as f64 / 60_000.0 - ratio).abs() < 1e-6, "{size}: {hits} hits");
    }
    assert_eq!(exact.hits(62).reads, naive_lru_hits(blocks.into_iter(), 62));
}

#[test]
fn the_engines_lru_is_lru() {
    let advice = advice_of(W106.0, W106.1, u32::MAX);
    let mut source = read(W106.0, W106.1, Reading::default()).expect("it is well-formed");
    let mut sample = sample::Sample::new(1, 1);
    while let Some(entry) = source.next_entry().expect("it is well-formed") {
        sample.access((0, entry.range.first_block()), Access::Read, engine::units::Nanos(0));
    }
    for (bytes, point) in advice.sizes_bytes.iter().zip(&curve(&advice, "lru").points).step_by(4) {
        if let Some(hits) = policy::simulate(&POLICIES[0].1, &sample, bytes / 4096) {
            assert_eq!(Some(hits.reads as f64 / 60_000.0), point.map(|point| point.hit_ratio), "{bytes}");
        }
    }
}

#[test]
fn a_sample_of_a_real_trace_is_about_right() {
    let (whole, part) = (advice_of(W106.0, W106.1, u32::MAX), advice_of(W106.0, W106.1, 1500));
    assert!((0.2..0.3).contains(&part.sample_rate), "{}", part.sample_rate);
    assert!((1350..1650).contains(&part.sample_blocks), "{}", part.sample_blocks);
    assert_eq!(curve(&whole, "lru"), curve(&part, "lru"), "LRU is exact whatever the sample");
    let SampleError { mean, max } = part.sample_error;
    // The SHARDS paper finds a mean of 0.006 with 8192 sampled blocks; this is a fifth of them.
    assert!(mean > 0.0 && mean < 0.03 && max < 0.1, "{mean} {max}");
    for (policy, _) in POLICIES {
        let pairs = curve(&whole, policy).points.iter().zip(&curve(&part, policy).points);
        let differences: Vec<f64> = pairs
            .filter_map(|(whole, part)| Some((whole.as_ref()?.hit_ratio - part.as_ref()?.hit_ratio).abs()))
            .collect();
        let mean = differences.iter().sum::<f64>() / differences.len() as f64;
        // A bucket is 128 blocks, so the smaller sizes have too few buckets.
        assert!(differences.len() >= 5 && mean < 0.05, "{policy}: {mean} {differences:?}");
    }
}

#[test]
fn what_is_recommended_is_the_smallest_size_that_is_enough() {
    let advice = advice_of(W106.0, W106.1, u32::MAX);
    let Recommendation::Cache { size_bytes, point, hit_ratio_max, .. } = advice.recommendation() else {
        panic!("it is worth a cache")
    };
    assert!(point.hit_ratio >= hit_ratio_max * 0.9);
    let at = advice.sizes_bytes.iter().position(|&bytes| bytes == size_bytes).expect("it was looked at");
    assert!(at > 0 && advice.best(at - 1).1.hit_ratio < hit_ratio_max * 0.9, "a smaller one is not enough");
    let once = advice_of("once.trace", rounds(500, 1).as_bytes(), u32::MAX);
    assert_eq!(once.recommendation(), Recommendation::NoCache { hit_ratio_max: 0.0 });
    let nothing = advice_of("none.u32le", b"", u32::MAX);
    assert_eq!(nothing.recommendation(), Recommendation::NoCache { hit_ratio_max: 0.0 });
}

#[test]
fn the_plot_has_a_line_for_each_policy_in_each_panel() {
    for advice in [advice_of(W106.0, W106.1, 1500), advice_of("none.u32le", b"", 10)] {
        let svg = plot(&advice, "a trace & more").expect("it is drawn");
        assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"), "{svg}");
        assert!(svg.contains("a trace &amp; more"));
        for (policy, _) in POLICIES {
            assert_eq!(svg.matches(&format!("\n{policy}\n")).count(), 3, "{policy}");
        }
    }
}
