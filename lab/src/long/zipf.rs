//! Zipf's law over any number of ranks: rank k is drawn with a probability like k^-theta.
//!
//! The ranks are divided into buckets, the first 64 alone, the others in groups that grow by a 64th; a
//! bucket is drawn by Walker's alias method, a rank in it uniformly. So a draw costs two
//! random numbers and one look into a table of some ten KiB, whatever the number of ranks, and no rank's
//! probability is wrong by more than a hundredth. The powers are computed from sums and products alone: the
//! standard library's differ between machines in the last bit.
//!
//! This is not the approximation by which fio draws.

use crate::random::Random;

/// Ranks with a bucket of their own, and one over the growth of the other buckets.
const SINGLE_RANKS: u64 = 64;

#[derive(Clone, Copy, Debug)]
struct Bucket {
    first: u64,
    ranks: u32,
    /// Of 2^32 draws of this bucket those that stay here; the others go to `alias`.
    stay: u32,
    alias: u32,
}

/// A source of ranks.
#[derive(Clone, Debug)]
pub struct Zipf {
    buckets: Vec<Bucket>,
}

impl Zipf {
    /// Ranks 0 to `ranks` - 1, rank 0 the most frequent. `theta_permille` is a thousand times theta; 0 is
    /// uniform.
    ///
    /// # Panics
    /// If there are no ranks, or more than 2^36, or if theta is above 4.
    #[must_use]
    pub fn new(ranks: u64, theta_permille: u32) -> Zipf {
        assert!((1..=1 << 36).contains(&ranks), "between 1 and 2^36 ranks");
        assert!(theta_permille <= 4000, "theta is at most 4");
        let theta = f64::from(theta_permille) / 1000.0;
        let mut buckets = Vec::new();
        let mut weights = Vec::new();
        let mut first = 0;
        while first < ranks {
            let count = (first / SINGLE_RANKS).max(1).min(ranks - first);
            // The middle of the bucket stands for all of it.
            let middle = first as f64 + (count as f64 + 1.0) / 2.0;
            weights.push(count as f64 * exponential(-theta * logarithm(middle)));
            buckets.push(Bucket { first, ranks: count as u32, stay: u32::MAX, alias: 0 });
            first += count;
        }
        fill_aliases(&mut buckets, &weights);
        Zipf { buckets }
    }

    /// The next rank.
    pub fn draw(&self, random: &mut Random) -> u64 {
        let drawn = random.next_u64();
        let at = ((drawn >> 32) * self.buckets.len() as u64) >> 32;
        let mut bucket = self.buckets[at as usize];
        if drawn as u32 > bucket.stay {
            bucket = self.buckets[bucket.alias as usize];
        }
        if bucket.ranks == 1 { bucket.first } else { bucket.first + random.below(u64::from(bucket.ranks)) }
    }
}

/// Walker's method: each bucket keeps a part of its share of the draws and gives the rest to one other.
fn fill_aliases(buckets: &mut [Bucket], weights: &[f64]) {
    let total: f64 = weights.iter().sum();
    let mut left: Vec<f64> = weights.iter().map(|weight| weight / total * weights.len() as f64).collect();
    let (mut small, mut large): (Vec<usize>, Vec<usize>) = (0..left.len()).partition(|&at| left[at] < 1.0);
    while let (Some(poor), Some(&rich)) = (small.pop(), large.last()) {
        buckets[poor].stay = (left[poor] * f64::from(u32::MAX)) as u32;
        buckets[poor].alias = rich as u32;
        left[rich] -= 1.0 - left[poor];
        if left[rich] < 1.0 {
            large.pop();
            small.push(rich);
        }
    }
}

/// The natural logarithm of a number that is at least 1.
fn logarithm(number: f64) -> f64 {
    let mut exponent = (number.to_bits() >> 52) as i64 - 1023;
    let mut mantissa = f64::from_bits(number.to_bits() & ((1 << 52) - 1) | 1023 << 52);
    if mantissa > 1.5 {
        mantissa /= 2.0;
        exponent += 1;
    }
    // ln m = 2 (t + t^3/3 + t^5/5 + ...) with |t| at most 1/5: 12 terms give 16 digits.
    let t = (mantissa - 1.0) / (mantissa + 1.0);
    let (mut power, mut sum) = (t, 0.0);
    for term in 0..12 {
        sum += power / f64::from(2 * term + 1);
        power *= t * t;
    }
    2.0 * sum + exponent as f64 * std::f64::consts::LN_2
}

/// e to a number that is at most 0; 0 where that is too small to matter.
fn exponential(number: f64) -> f64 {
    let twos = (number / std::f64::consts::LN_2).floor();
    if twos < -1000.0 {
        return 0.0;
    }
    let rest = number - twos * std::f64::consts::LN_2;
    let (mut term, mut sum) = (1.0, 1.0);
    for at in 1..20 {
        term *= rest / f64::from(at);
        sum += term;
    }
    sum * f64::from_bits(((1023 + twos as i64) as u64) << 52)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn powers_agree_with_the_standard_library() {
        for number in [1.0, 1.5, 2.0, 3.7, 1000.0, 1e9, 6.8e10] {
            for theta in [0.0, 0.5, 0.99, 1.0, 1.2, 4.0] {
                let (ours, theirs) = (exponential(-theta * logarithm(number)), number.powf(-theta));
                assert!((ours / theirs - 1.0).abs() < 1e-12, "{number}^-{theta}: {ours} {theirs}");
            }
        }
    }

    #[test]
    fn ranks_come_as_often_as_the_law_says() {
        const RANKS: u64 = 10_000;
        const DRAWS: usize = 2_000_000;
        for theta_permille in [0, 800, 1000, 1200] {
            let zipf = Zipf::new(RANKS, theta_permille);
            let mut random = Random::new(1);
            let mut counts = vec![0u64; RANKS as usize];
            for _ in 0..DRAWS {
                counts[zipf.draw(&mut random) as usize] += 1;
            }
            let law = |rank: u64| (rank as f64 + 1.0).powf(-f64::from(theta_permille) / 1000.0);
            let total: f64 = (0..RANKS).map(law).sum();
            for (first, end) in [(0, 1), (1, 2), (9, 10), (10, 100), (100, 1000), (1000, 5000), (5000, RANKS)]
            {
                let found: u64 = counts[first as usize..end as usize].iter().sum();
                let expected = (first..end).map(law).sum::<f64>() / total * DRAWS as f64;
                let tolerance = 0.01 * expected + 5.0 * expected.sqrt();
                assert!(
                    (found as f64 - expected).abs() < tolerance,
                    "theta {theta_permille}: ranks {first}..{end} came {found} times, not {expected}"
                );
            }
        }
    }

    #[test]
    fn one_rank_is_enough() {
        assert_eq!(Zipf::new(1, 990).draw(&mut Random::new(1)), 0);
    }
}
