//! The survey of a trace: a first pass that counts, before anything is made of it.

use super::spread::BlockSet;
use super::{Op, Source, TraceError};
use engine::units::SECTOR_BYTES;

/// Counts over a whole trace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Survey {
    /// Reads.
    pub reads: u64,
    /// Writes.
    pub writes: u64,
    /// Discards.
    pub discards: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// The first sector after the last one that is asked for, for each volume.
    pub volume_sectors: Vec<u64>,
    /// Distinct blocks of 4 KiB that are read or written.
    pub footprint_blocks: u64,
    /// From the earliest time to the latest; `None` if there are no times.
    pub span_ns: Option<u64>,
    /// Requests that came earlier than one before them.
    pub late: u64,
}

impl Survey {
    /// Reads the whole of a trace; `on_progress` gets the number of requests so far, now and then.
    ///
    /// # Errors
    /// [`TraceError`], as the source returns it.
    pub fn of(source: &mut dyn Source, on_progress: &mut dyn FnMut(u64)) -> Result<Survey, TraceError> {
        let mut survey = Survey::default();
        let mut blocks = BlockSet::default();
        let mut times: Option<(u64, u64)> = None;
        while let Some(entry) = source.next_entry()? {
            let bytes = entry.range.sectors * SECTOR_BYTES;
            match entry.op {
                Op::Read => (survey.reads, survey.read_bytes) = (survey.reads + 1, survey.read_bytes + bytes),
                Op::Write => {
                    (survey.writes, survey.written_bytes) = (survey.writes + 1, survey.written_bytes + bytes);
                }
                Op::Discard => survey.discards += 1,
            }
            let volume = entry.volume as usize;
            if survey.volume_sectors.len() <= volume {
                survey.volume_sectors.resize(volume + 1, 0);
            }
            survey.volume_sectors[volume] = survey.volume_sectors[volume].max(entry.range.end());
            if entry.op != Op::Discard {
                blocks.extend(
                    (entry.range.first_block()..entry.range.end_block()).map(|block| (entry.volume, block)),
                );
            }
            if let Some(at_ns) = entry.at_ns {
                let (earliest, latest) = times.get_or_insert((at_ns, at_ns));
                survey.late += u64::from(at_ns < *latest);
                *earliest = at_ns.min(*earliest);
                *latest = at_ns.max(*latest);
            }
            if survey.requests().is_multiple_of(1 << 14) {
                on_progress(survey.requests());
            }
        }
        survey.footprint_blocks = blocks.len() as u64;
        survey.span_ns = times.map(|(earliest, latest)| latest - earliest);
        Ok(survey)
    }

    /// Requests in all.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.reads + self.writes + self.discards
    }
}
