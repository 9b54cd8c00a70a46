//! Report of `advise`: what the running load says about size, modes and wear.

use super::status::WrittenReport;
use crate::output::Size;
use engine::effect::WriteMode;
use lab::curve::{Ongoing, Reuse, SizePoint};
use serde::{Deserialize, Serialize};
use std::io::{self, Write};

/// Accesses in the sample from which anything can be told. By taste.
const SAMPLED_MIN: u64 = 1000;
/// A gain in hit ratio that is worth twice the cache, and a loss that is not worth half of it. By taste.
const GAIN: f64 = 0.05;
const LOSS: f64 = 0.02;
/// A hit ratio below which no cache helps. By taste.
const NOTHING: f64 = 0.05;
/// A cache that has so much of the hits of the largest one is large enough. By taste, as in `lab advise`.
const ENOUGH: f64 = 0.9;
/// The parts of the blocks accessed that are written from which writes count much, and below which they count little.
const MANY_WRITES: f64 = 0.2;
const FEW_WRITES: f64 = 0.02;
/// The parts of the reads that ask for what was written lately.
const MANY_REREADS: f64 = 0.15;
const FEW_REREADS: f64 = 0.05;
const DAY_SECONDS: f64 = 86_400.0;
const YEAR_DAYS: f64 = 365.0;

/// `advise`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AdviceReport {
    /// The time over which the load was looked at: since the start, a day at the most.
    pub seconds: f64,
    /// Blocks that clients read in that time.
    pub read_blocks: u64,
    /// Blocks that they wrote.
    pub written_blocks: u64,
    /// The sample: one block in so many.
    pub sample_one_in: u64,
    /// Blocks of the sample that are remembered.
    pub sample_blocks: u64,
    /// Accesses to them.
    pub sample_accesses: u64,
    /// The size of the cache.
    pub cache_bytes: u64,
    /// The part of the blocks read that the cache had, since the start; absent if none was read.
    pub measured_read_hit_ratio: Option<f64>,
    /// Hit ratios of LRU by size, ascending; empty before there was any load.
    pub curve: Vec<CurvePoint>,
    /// Half the cache, the cache, and twice the cache.
    pub half: Option<CurvePoint>,
    pub present: Option<CurvePoint>,
    pub twice: Option<CurvePoint>,
    /// The size to choose; absent if too little has happened, or no size helps.
    pub size_advised_bytes: Option<u64>,
    /// The meaning of that, in a sentence.
    pub size: String,
    /// The volumes.
    pub volumes: Vec<VolumeAdvice>,
    /// Wear of the SSD.
    pub wear: WearAdvice,
}

/// A point of the curve.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct CurvePoint {
    pub cache_bytes: u64,
    /// The part of all accesses that are hits.
    pub hit_ratio: f64,
    /// The part of the reads; absent if there were none.
    pub read_hit_ratio: Option<f64>,
}

/// A volume in `advise`. Parts are of the blocks accessed, over the same time as the curve, as the sample has them.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct VolumeAdvice {
    pub name: String,
    pub mode: String,
    /// The mode to choose; absent if the present one fits, or too little has happened.
    pub mode_advised: Option<String>,
    /// The part that is written; absent if nothing was accessed.
    pub written_ratio: Option<f64>,
    /// The part of the reads that ask for what was written lately.
    pub reads_of_written_ratio: Option<f64>,
    /// The part of the writes that hit what was written lately: in writeback it need not go home twice.
    pub writes_of_written_ratio: Option<f64>,
    /// Flushes for each write, since the start.
    pub flushes_per_write: Option<f64>,
    /// Dirty data now.
    pub dirty_bytes: u64,
    /// The meaning of that, in a sentence.
    pub sentence: String,
}

/// Wear of the SSD, by reason.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct WearAdvice {
    /// Bytes written to it since the start, by reason.
    pub written: WrittenReport,
    /// Bytes written to it in a day at that rate.
    pub written_bytes_per_day: u64,
    /// Bytes that may be written in a day by the wear budget; absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget_bytes_per_day: Option<u64>,
    /// Blocks that did not enter the cache since the start because of that budget.
    #[serde(default)]
    pub budget_blocks: u64,
    /// Years that its rated endurance lasts at that rate; absent if it was not said, or nothing is written.
    pub years_left: Option<f64>,
    /// The meaning of that, in a sentence.
    pub sentence: String,
}

/// Facts from which advice on a volume is made.
pub struct VolumeFacts {
    pub name: String,
    pub mode: WriteMode,
    pub reuse: Reuse,
    pub writes: u64,
    pub flushes: u64,
    pub dirty_bytes: u64,
}

/// Facts from which advice on the SSD's wear is made.
pub struct WearFacts {
    pub written: WrittenReport,
    pub seconds: f64,
    pub lifetime_written_bytes: u64,
    pub endurance_bytes: Option<u64>,
    pub budget_bytes_per_day: Option<u64>,
    pub budget_blocks: u64,
}

impl From<&SizePoint> for CurvePoint {
    fn from(point: &SizePoint) -> CurvePoint {
        let SizePoint { size_bytes, hit_ratio, read_hit_ratio } = *point;
        CurvePoint { cache_bytes: size_bytes, hit_ratio, read_hit_ratio }
    }
}

impl CurvePoint {
    /// The ratio that counts for the size: hits of reads. Writes hit whatever the size, but where there are no reads.
    fn ratio(&self) -> f64 {
        self.read_hit_ratio.unwrap_or(self.hit_ratio)
    }
}

fn percent(ratio: f64) -> String {
    format!("{:.1} %", ratio * 100.0)
}

fn share(part: u64, all: u64) -> Option<f64> {
    (all > 0).then(|| part as f64 / all as f64)
}

impl AdviceReport {
    /// The advice that these facts give.
    #[must_use]
    pub fn new(
        load: &Ongoing,
        seconds: f64,
        cache_bytes: u64,
        measured_read_hit_ratio: Option<f64>,
        volumes: Vec<VolumeFacts>,
        wear: WearFacts,
    ) -> AdviceReport {
        let curve: Vec<CurvePoint> = load.curve().iter().map(CurvePoint::from).collect();
        let at = |bytes: u64| {
            let blocks = bytes / engine::units::BLOCK_BYTES * engine::units::BLOCK_BYTES;
            curve
                .iter()
                .find(|point| point.cache_bytes.abs_diff(blocks) < 2 * engine::units::BLOCK_BYTES)
                .copied()
        };
        let (half, present, twice) = (at(cache_bytes / 2), at(cache_bytes), at(cache_bytes * 2));
        let sample_accesses = load.sampled_accesses();
        let is_enough = sample_accesses >= SAMPLED_MIN;
        let (size_advised_bytes, size) = match (half, present, twice) {
            (Some(half), Some(present), Some(twice)) if is_enough => size([half, present, twice], &curve),
            _ => (
                None,
                format!(
                    "Too little has happened: {sample_accesses} accesses in the sample. Ask again later."
                ),
            ),
        };
        let accesses = load.accesses();
        AdviceReport {
            seconds,
            read_blocks: accesses.reads,
            written_blocks: accesses.writes,
            sample_one_in: 1 << load.log2(),
            sample_blocks: load.sampled_blocks(),
            sample_accesses,
            cache_bytes,
            measured_read_hit_ratio,
            curve,
            half,
            present,
            twice,
            size_advised_bytes,
            size,
            volumes: volumes.into_iter().map(|facts| VolumeAdvice::new(facts, is_enough)).collect(),
            wear: WearAdvice::new(&wear),
        }
    }

    /// Prints it for people.
    ///
    /// # Errors
    /// The error of writing.
    pub fn print(&self, to: &mut impl Write) -> io::Result<()> {
        let blocks = engine::units::BLOCK_BYTES;
        writeln!(
            to,
            "load       {} read, {} written by clients in {}; of the blocks, one in {} is in the sample ({} accesses)",
            Size(self.read_blocks * blocks),
            Size(self.written_blocks * blocks),
            Time(self.seconds),
            self.sample_one_in,
            self.sample_accesses
        )?;
        if let Some(ratio) = self.measured_read_hit_ratio {
            writeln!(to, "measured   {} of the blocks read were hits, since the start", percent(ratio))?;
        }
        if !self.curve.is_empty() {
            writeln!(to, "\n{:>12} {:>10} {:>10}", "cache", "reads hit", "all hit")?;
            // Every second size is enough for people; the present one is among them.
            let present = self.curve.iter().position(|point| Some(*point) == self.present).unwrap_or(0);
            for (at, point) in self.curve.iter().enumerate().filter(|(at, _)| at % 2 == present % 2) {
                let reads = point.read_hit_ratio.map_or_else(|| "-".to_owned(), percent);
                let mark = if at == present && self.present.is_some() { "  as it is" } else { "" };
                writeln!(
                    to,
                    "{:>12} {reads:>10} {:>10}{mark}",
                    Size(point.cache_bytes).to_string(),
                    percent(point.hit_ratio)
                )?;
            }
        }
        writeln!(to, "\nsize       {}", self.size)?;
        for volume in &self.volumes {
            writeln!(to, "volume     {}, {}: {}", volume.name, volume.mode, volume.sentence)?;
        }
        writeln!(to, "wear       {}", self.wear.sentence)
    }
}

/// The size to choose, and why.
fn size([half, present, twice]: [CurvePoint; 3], curve: &[CurvePoint]) -> (Option<u64>, String) {
    let best = curve.last().map_or(0.0, CurvePoint::ratio);
    if best < NOTHING {
        let sentence = format!(
            "Hardly anything is accessed twice: {} of the reads would be hits with {} of cache. No size helps reads.",
            percent(best),
            Size(curve.last().map_or(0, |point| point.cache_bytes))
        );
        return (None, sentence);
    }
    let (gain, loss) = (twice.ratio() - present.ratio(), present.ratio() - half.ratio());
    let both =
        format!("twice the cache would bring {:+.1} points, half of it {:+.1}", gain * 100.0, -loss * 100.0);
    let enough = curve.iter().find(|point| point.ratio() >= best * ENOUGH);
    if gain >= GAIN {
        let bytes = enough.map_or(twice.cache_bytes, |point| point.cache_bytes.max(twice.cache_bytes));
        let point = curve.iter().find(|point| point.cache_bytes == bytes).unwrap_or(&twice);
        let sentence = format!(
            "Take a larger one: {both}. With {}, {} of the reads are hits, where {} are now.",
            Size(bytes),
            percent(point.ratio()),
            percent(present.ratio())
        );
        return (Some(bytes), sentence);
    }
    if loss < LOSS {
        let bytes = enough.map_or(half.cache_bytes, |point| point.cache_bytes.min(half.cache_bytes));
        let sentence = format!("A smaller one would do: {both}. {} have nearly all the hits.", Size(bytes));
        return (Some(bytes), sentence);
    }
    (Some(present.cache_bytes), format!("The size fits: {both}."))
}

impl VolumeAdvice {
    fn new(facts: VolumeFacts, is_enough: bool) -> VolumeAdvice {
        let VolumeFacts { name, mode, reuse, writes, flushes, dirty_bytes } = facts;
        let written_ratio = share(reuse.accesses.writes, reuse.accesses.all());
        let reads_of_written_ratio = share(reuse.reads_of_written, reuse.accesses.reads);
        let writes_of_written_ratio = share(reuse.writes_of_written, reuse.accesses.writes);
        let mut advice = VolumeAdvice {
            name,
            mode: mode.name().to_owned(),
            mode_advised: None,
            written_ratio,
            reads_of_written_ratio,
            writes_of_written_ratio,
            flushes_per_write: share(flushes, writes),
            dirty_bytes,
            sentence: String::new(),
        };
        let (advised, sentence) = match written_ratio.filter(|_| is_enough) {
            Some(written) => advice.mode(mode, written, share(reuse.hits.reads, reuse.accesses.reads)),
            None => (None, "too little has happened".to_owned()),
        };
        advice.mode_advised = advised.map(|mode| mode.name().to_owned());
        advice.sentence = sentence;
        advice
    }

    /// The mode to choose instead of the present one, and why.
    fn mode(&self, mode: WriteMode, written: f64, read_hits: Option<f64>) -> (Option<WriteMode>, String) {
        let rereads = self.reads_of_written_ratio.unwrap_or(0.0);
        let rewrites = percent(self.writes_of_written_ratio.unwrap_or(0.0));
        match mode {
            WriteMode::Writeback if written < FEW_WRITES => (
                Some(WriteMode::Writethrough),
                format!(
                    "only {} of the blocks are written; writethrough would cost little and leave nothing dirty",
                    percent(written)
                ),
            ),
            WriteMode::Writeback => {
                let flushes = self.flushes_per_write.filter(|flushes| *flushes > 0.5).map_or("", |_| {
                    "; clients flush about as often as they write, so an SSD with power-loss protection pays"
                });
                let sentence = format!(
                    "the mode fits: {} of the blocks are written, and {rewrites} of the writes replace what was written \
                     lately and go home once{flushes}",
                    percent(written)
                );
                (None, sentence)
            }
            WriteMode::Writethrough | WriteMode::Writearound if written >= MANY_WRITES => (
                Some(WriteMode::Writeback),
                format!(
                    "{} of the blocks are written, and each write waits for the origin; writeback would answer from the \
                     SSD ({rewrites} of the writes replace what was written lately), if its risk may be taken: what is \
                     dirty is on the SSD alone",
                    percent(written)
                ),
            ),
            WriteMode::Writethrough if written >= FEW_WRITES && rereads < FEW_REREADS => (
                Some(WriteMode::Writearound),
                format!(
                    "only {} of the reads ask for what was written lately; writearound would spare the SSD the writes",
                    percent(rereads)
                ),
            ),
            WriteMode::Writearound if rereads >= MANY_REREADS => (
                Some(WriteMode::Writethrough),
                format!(
                    "{} of the reads ask for what was written lately, which writethrough would have in the cache",
                    percent(rereads)
                ),
            ),
            WriteMode::Passthrough => {
                let hits = percent(read_hits.unwrap_or(0.0));
                (None, format!("the cache is not used; with it about {hits} of the reads would be hits"))
            }
            _ => (None, format!("the mode fits: {} of the blocks are written", percent(written))),
        }
    }
}

impl WearAdvice {
    fn new(facts: &WearFacts) -> WearAdvice {
        let WearFacts { written, seconds, lifetime_written_bytes, endurance_bytes, .. } = *facts;
        let WearFacts { budget_bytes_per_day, budget_blocks, .. } = *facts;
        let WrittenReport { user_bytes, fill_bytes, relocation_bytes, header_bytes } = written;
        let all_bytes = user_bytes + fill_bytes + relocation_bytes + header_bytes;
        let per_day = all_bytes as f64 / seconds.max(1.0) * DAY_SECONDS;
        let left = endurance_bytes.map(|endurance| endurance.saturating_sub(lifetime_written_bytes));
        let years_left = left.filter(|_| per_day > 0.0).map(|left| left as f64 / per_day / YEAR_DAYS);
        let reasons = [
            (
                user_bytes,
                "what clients write",
                "writearound spares it, for volumes whose writes are not read again",
            ),
            (fill_bytes, "what enters after misses", "a larger cache would miss less"),
            (
                relocation_bytes,
                "what the log moves to keep it",
                "a larger cache, or less dirty data, moves less",
            ),
            (header_bytes, "headers of small writes", "clients that write more at a time need fewer"),
        ];
        let (most_bytes, reason, remedy) =
            reasons.into_iter().max_by_key(|(bytes, ..)| *bytes).unwrap_or_default();
        let sentence = match share(most_bytes, all_bytes) {
            None => "nothing was written to the SSD since the start".to_owned(),
            Some(part) => {
                let lasts = match years_left {
                    Some(years) => format!("; at that rate it lasts {years:.1} years more"),
                    None if endurance_bytes.is_none() => {
                        "; how long it lasts is told with serve --endurance".to_owned()
                    }
                    None => String::new(),
                };
                format!(
                    "{} a day at the rate since the start, {} of it {reason}: {remedy}{lasts}",
                    Size(per_day as u64),
                    percent(part)
                )
            }
        };
        let budget = match (budget_bytes_per_day.map(Size), budget_blocks) {
            (None, _) => String::new(),
            (Some(day), 0) => format!("; the wear budget is {day} a day, and kept nothing out of the cache"),
            (Some(day), blocks) => format!(
                "; the wear budget of {day} a day kept {} out of the cache, and would keep them out of a larger one",
                Size(blocks * engine::units::BLOCK_BYTES)
            ),
        };
        WearAdvice {
            written,
            written_bytes_per_day: per_day as u64,
            budget_bytes_per_day,
            budget_blocks,
            years_left,
            sentence: sentence + &budget,
        }
    }
}

/// A span of time for people.
struct Time(f64);

impl std::fmt::Display for Time {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            seconds if seconds < 120.0 => write!(f, "{seconds:.0} s"),
            seconds if seconds < 7200.0 => write!(f, "{:.0} min", seconds / 60.0),
            seconds => write!(f, "{:.0} h", seconds / 3600.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lab::curve::Counts;

    fn point(cache_bytes: u64, ratio: f64) -> CurvePoint {
        CurvePoint { cache_bytes, hit_ratio: ratio, read_hit_ratio: Some(ratio) }
    }

    fn sized(ratios: [f64; 5]) -> (Option<u64>, String) {
        let curve: Vec<CurvePoint> =
            ratios.iter().enumerate().map(|(at, ratio)| point(1 << (20 + at), *ratio)).collect();
        size([curve[1], curve[2], curve[3]], &curve)
    }

    #[test]
    fn a_size_follows_from_the_curve() {
        let (bytes, sentence) = sized([0.1, 0.2, 0.4, 0.7, 0.72]);
        assert_eq!(bytes, Some(8 << 20), "{sentence}");
        assert!(sentence.contains("+30.0 points") && sentence.contains("70.0 %"), "{sentence}");
        let (bytes, sentence) = sized([0.69, 0.7, 0.71, 0.71, 0.71]);
        assert_eq!(bytes, Some(1 << 20), "{sentence}");
        let (bytes, sentence) = sized([0.2, 0.5, 0.7, 0.72, 0.73]);
        assert_eq!(bytes, Some(4 << 20), "{sentence}");
        assert!(sentence.starts_with("The size fits"), "{sentence}");
        let (bytes, sentence) = sized([0.0, 0.0, 0.01, 0.01, 0.02]);
        assert_eq!(bytes, None, "{sentence}");
    }

    fn advised(mode: WriteMode, reads: u64, writes: u64, reads_of_written: u64) -> Option<String> {
        let reuse = Reuse {
            accesses: Counts { reads, writes },
            hits: Counts { reads: reads / 2, writes: writes / 2 },
            reads_of_written,
            writes_of_written: writes / 2,
        };
        let facts = |reuse| VolumeFacts {
            name: "a".to_owned(),
            mode,
            reuse,
            writes: 10,
            flushes: 10,
            dirty_bytes: 0,
        };
        assert!(VolumeAdvice::new(facts(Reuse::default()), true).mode_advised.is_none(), "nothing happened");
        assert!(VolumeAdvice::new(facts(reuse), false).mode_advised.is_none(), "too little happened");
        let advice = VolumeAdvice::new(facts(reuse), true);
        assert!(!advice.sentence.is_empty());
        advice.mode_advised
    }

    #[test]
    fn a_mode_follows_from_the_mix() {
        let of = |mode: &str| Some(mode.to_owned());
        assert_eq!(advised(WriteMode::Writeback, 1000, 10, 0), of("writethrough"));
        assert_eq!(advised(WriteMode::Writeback, 1000, 500, 0), None);
        assert_eq!(advised(WriteMode::Writethrough, 1000, 500, 0), of("writeback"));
        assert_eq!(advised(WriteMode::Writethrough, 1000, 100, 10), of("writearound"));
        assert_eq!(advised(WriteMode::Writethrough, 1000, 100, 100), None);
        assert_eq!(advised(WriteMode::Writearound, 1000, 100, 300), of("writethrough"));
        assert_eq!(advised(WriteMode::Writearound, 1000, 100, 10), None);
        assert_eq!(advised(WriteMode::Passthrough, 1000, 900, 10), None);
        assert_eq!(advised(WriteMode::Readonly, 1000, 0, 0), None);
    }

    #[test]
    fn wear_is_told_by_its_largest_reason() {
        let written = WrittenReport {
            user_bytes: 100,
            fill_bytes: 8 << 30,
            relocation_bytes: 1 << 30,
            header_bytes: 5,
        };
        let facts = WearFacts {
            written,
            seconds: DAY_SECONDS / 2.0,
            lifetime_written_bytes: 0,
            endurance_bytes: Some((18 * 365 * 3) << 30),
            budget_bytes_per_day: None,
            budget_blocks: 0,
        };
        let wear = WearAdvice::new(&facts);
        assert_eq!(wear.written_bytes_per_day >> 30, 18);
        assert!((wear.years_left.expect("its endurance is known") - 3.0).abs() < 0.01);
        assert!(wear.sentence.contains("88.9 % of it what enters after misses"), "{}", wear.sentence);
        assert!(!wear.sentence.contains("budget"), "{}", wear.sentence);
        let bounded = WearFacts { budget_bytes_per_day: Some(10 << 30), ..facts };
        let said = WearAdvice::new(&bounded).sentence;
        assert!(
            said.ends_with("; the wear budget is 10 GiB a day, and kept nothing out of the cache"),
            "{said}"
        );
        let said = WearAdvice::new(&WearFacts { budget_blocks: 512, ..bounded }).sentence;
        assert!(said.contains("the wear budget of 10 GiB a day kept 2 MiB out of the cache"), "{said}");
        let none = WearAdvice::new(&WearFacts { written: WrittenReport::default(), ..facts });
        assert!(none.years_left.is_none() && none.sentence.contains("nothing was written"));
    }
}
