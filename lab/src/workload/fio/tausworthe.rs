//! The generator that fio uses unless told otherwise: P. L'Ecuyer's taus88 (Mathematics of Computation 65, 1996),
//! seeded in fio's way.

/// Multiplier of the congruential generator that spreads the seed.
const LCG: u32 = 69069;
/// The seeds that fio begins with; it means 2 to the powers 31, 17 and 7, but in C `^` is exclusive or.
const FIRST: u32 = (2 ^ 31) + (2 ^ 17) + (2 ^ 7);
/// Numbers that are drawn and dropped before the first one that counts.
const CRANKS: u32 = 6;

/// 32-bit numbers with a period of about 2^88.
#[derive(Clone, Debug)]
pub(super) struct Tausworthe {
    states: [u32; 3],
}

impl Tausworthe {
    /// The generator of a seed, of which the low 32 bits count.
    pub(super) fn new(seed: u64) -> Tausworthe {
        let seed = seed as u32;
        let mut before = FIRST;
        // Each component needs some bit above its lowest ones.
        let states = [1, 7, 15].map(|least| {
            let x = before.wrapping_mul(LCG) ^ seed;
            before = if x < least { x + least } else { x };
            before
        });
        let mut generator = Tausworthe { states };
        (0..CRANKS).for_each(|_| {
            generator.next();
        });
        generator
    }

    /// The next number.
    pub(super) fn next(&mut self) -> u32 {
        for (state, (a, b, dropped_bits, d)) in
            self.states.iter_mut().zip([(13, 19, 1, 12), (2, 25, 3, 4), (3, 11, 4, 17)])
        {
            let feedback = ((*state << a) ^ *state) >> b;
            *state = ((*state >> dropped_bits << dropped_bits) << d) ^ feedback;
        }
        self.states.iter().fold(0, |sum, state| sum ^ state)
    }

    /// A number below `end`, as fio scales it: in floating point.
    pub(super) fn below(&mut self, end: u64) -> u64 {
        (end as f64 * (f64::from(self.next()) / 4_294_967_296.0)) as u64
    }
}
