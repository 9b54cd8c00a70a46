//! The tests, and which record a process asks for next.

/// A test. Each leaves the files to the one after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Test {
    /// Write a new file in order.
    InitialWrite,
    /// Write it again in order.
    Rewrite,
    /// Read it in order.
    Read,
    /// Read it in order once more.
    ReRead,
    /// Read every record, in any order.
    RandomRead,
    /// Processes of even number do as in [`Test::RandomRead`], those of odd number as in [`Test::RandomWrite`].
    Mixed,
    /// Write every record, in any order.
    RandomWrite,
}

impl Test {
    /// All, in the order in which iozone runs them.
    pub const ALL: [Test; 7] = [
        Test::InitialWrite,
        Test::Rewrite,
        Test::Read,
        Test::ReRead,
        Test::RandomRead,
        Test::Mixed,
        Test::RandomWrite,
    ];

    /// Name of the processes in iozone's report.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Test::InitialWrite => "initial-writer",
            Test::Rewrite => "rewriter",
            Test::Read => "reader",
            Test::ReRead => "re-reader",
            Test::RandomRead => "random-reader",
            Test::Mixed => "mixed-workload",
            Test::RandomWrite => "random-writer",
        }
    }

    /// The test of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<Test> {
        Test::ALL.into_iter().find(|test| test.name() == name)
    }

    /// Whether this process writes; processes count from 0.
    #[must_use]
    pub fn writes(self, process: u32) -> bool {
        match self {
            Test::InitialWrite | Test::Rewrite | Test::RandomWrite => true,
            Test::Read | Test::ReRead | Test::RandomRead => false,
            Test::Mixed => !process.is_multiple_of(2),
        }
    }

    fn is_random(self) -> bool {
        matches!(self, Test::RandomRead | Test::Mixed | Test::RandomWrite)
    }
}

/// One request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ask {
    /// Whether it writes.
    pub is_write: bool,
    /// The record of the process's file.
    pub record: u64,
}

/// The requests of one process. Every process meets its records in the same order: iozone seeds each alike.
#[derive(Clone, Debug)]
pub struct Sequence {
    is_write: bool,
    records: u64,
    next: u64,
    /// The order, if it is not that of the file.
    shuffled: Option<Vec<u32>>,
}

impl Sequence {
    /// Requests of a process in a test of a file of so many records.
    #[must_use]
    pub fn new(test: Test, process: u32, records: u32) -> Sequence {
        Sequence {
            is_write: test.writes(process),
            records: u64::from(records),
            next: 0,
            shuffled: test.is_random().then(|| shuffled(records)),
        }
    }
}

impl Iterator for Sequence {
    type Item = Ask;

    fn next(&mut self) -> Option<Ask> {
        if self.next == self.records {
            return None;
        }
        let record = self.shuffled.as_ref().map_or(self.next, |order| u64::from(order[self.next as usize]));
        self.next += 1;
        Some(Ask { is_write: self.is_write, record })
    }
}

/// iozone's shuffle: each place changes with one that is drawn among all.
fn shuffled(records: u32) -> Vec<u32> {
    let mut order: Vec<u32> = (0..records).collect();
    let mut random = Lrand48::new(0);
    for place in 0..order.len() {
        order.swap(place, random.draw() as usize % records as usize);
    }
    order
}

/// The C library's `lrand48`, with which iozone draws: X' = 0x5DEECE66D X + 0xB modulo 2^48, of which the highest
/// 31 bits (POSIX).
struct Lrand48 {
    state: u64,
}

impl Lrand48 {
    /// As after `srand48(seed)`.
    fn new(seed: u32) -> Lrand48 {
        Lrand48 { state: u64::from(seed) << 16 | 0x330e }
    }

    fn draw(&mut self) -> u32 {
        self.state = self.state.wrapping_mul(0x5_deec_e66d).wrapping_add(0xb) & ((1 << 48) - 1);
        (self.state >> 17) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first numbers after `srand48(0)` of the GNU C library.
    #[test]
    fn the_generator_is_that_of_the_c_library() {
        let mut random = Lrand48::new(0);
        let drawn: Vec<u32> = (0..4).map(|_| random.draw()).collect();
        assert_eq!(drawn, [366_850_414, 1_610_402_240, 206_956_554, 1_869_309_841]);
    }

    #[test]
    fn every_record_comes_once_and_in_the_same_order_for_every_process() {
        let first: Vec<Ask> = Sequence::new(Test::RandomRead, 0, 1000).collect();
        assert_eq!(first, Sequence::new(Test::RandomRead, 3, 1000).collect::<Vec<_>>());
        let mut records: Vec<u64> = first.iter().map(|ask| ask.record).collect();
        assert!(!records.is_sorted());
        records.sort_unstable();
        assert_eq!(records, (0..1000).collect::<Vec<_>>());
        let written: Vec<u64> = Sequence::new(Test::Rewrite, 1, 1000).map(|ask| ask.record).collect();
        assert_eq!(written, records);
    }

    #[test]
    fn of_a_mixed_test_every_other_process_writes() {
        let writes: Vec<bool> = (0..4).map(|process| Test::Mixed.writes(process)).collect();
        assert_eq!(writes, [false, true, false, true]);
    }
}
