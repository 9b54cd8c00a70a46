//! Traces of binary records.

use super::{Entry, Format, Op, Place, Reason, Source, TraceError, range, range_of_bytes};
use engine::units::SECTOR_BYTES;
use std::io::{BufRead, ErrorKind, Read};

/// The longest record.
const RECORD_BYTES_MAX: usize = 32;

/// A trace of records.
pub(super) struct Records<R> {
    from: R,
    file: String,
    format: Format,
    unit_sectors: u64,
    number: u64,
    is_over: bool,
}

impl<R: BufRead> Records<R> {
    /// `unit_sectors` counts where the format has no unit of its own.
    pub(super) fn new(file: &str, from: R, format: Format, unit_sectors: u64) -> Records<R> {
        Records { from, file: file.to_owned(), format, unit_sectors, number: 0, is_over: false }
    }

    fn record_bytes(&self) -> usize {
        match self.format {
            Format::Vscsi => 32,
            Format::OracleGeneral => 24,
            Format::U32Le => 4,
            _ => unreachable!("these have lines"),
        }
    }

    fn next(&mut self) -> Result<Option<Entry>, Reason> {
        let mut bytes = [0; RECORD_BYTES_MAX];
        let record_bytes = self.record_bytes();
        loop {
            self.number += 1;
            let record = &mut bytes[..record_bytes];
            match fill(&mut self.from, record)? {
                0 => return Ok(None),
                filled if filled < record_bytes => return Err(Reason::CutOff(record_bytes)),
                _ => (),
            }
            let entry = match self.format {
                Format::Vscsi => vscsi(record)?,
                Format::OracleGeneral => oracle_general(record)?,
                _ => u32le(record, self.unit_sectors)?,
            };
            if entry.is_some() {
                return Ok(entry);
            }
        }
    }
}

impl<R: BufRead> Source for Records<R> {
    fn next_entry(&mut self) -> Result<Option<Entry>, TraceError> {
        if self.is_over {
            return Ok(None);
        }
        let next = self.next();
        self.is_over = !matches!(next, Ok(Some(_)));
        next.map_err(|reason| TraceError {
            file: self.file.clone(),
            place: Place::Record(self.number),
            reason,
        })
    }
}

/// Reads until `bytes` is full or the file ends; how many were read.
fn fill(from: &mut impl Read, bytes: &mut [u8]) -> std::io::Result<usize> {
    let mut filled = 0;
    while filled < bytes.len() {
        match from.read(&mut bytes[filled..]) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == ErrorKind::Interrupted => (),
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

fn le<const N: usize>(record: &[u8], at: usize) -> [u8; N] {
    record[at..at + N].try_into().expect("inside a whole record")
}

/// Source of the layout: the reader of libCacheSim, as facts.
fn vscsi(record: &[u8]) -> Result<Option<Entry>, Reason> {
    let len_bytes = u32::from_le_bytes(le(record, 4));
    let command = u16::from_le_bytes(le(record, 12));
    let [_, version] = le(record, 14);
    let lba = u64::from_le_bytes(le(record, 16));
    let time_us = u64::from_le_bytes(le(record, 24));
    if version != 1 {
        return Err(Reason::VscsiVersion(version));
    }
    // Reads and writes of 6, 10, 12 and 16 bytes.
    let op = match command {
        0x08 | 0x28 | 0xa8 | 0x88 => Op::Read,
        0x0a | 0x2a | 0xaa | 0x8a => Op::Write,
        _ => return Ok(None),
    };
    let too_late = || Reason::Number { field: "time", text: time_us.to_string() };
    let at_ns = Some(time_us.checked_mul(1000).ok_or_else(too_late)?);
    let range = range(op, lba, u64::from(len_bytes).div_ceil(SECTOR_BYTES))?;
    Ok(range.map(|range| Entry { at_ns, volume: 0, op, range }))
}

fn oracle_general(record: &[u8]) -> Result<Option<Entry>, Reason> {
    let time_s = u32::from_le_bytes(le(record, 0));
    let lba = u64::from_le_bytes(le(record, 4));
    let len_bytes = u32::from_le_bytes(le(record, 12));
    let at_ns = Some(u64::from(time_s) * 1_000_000_000);
    let range = range(Op::Read, lba, u64::from(len_bytes).div_ceil(SECTOR_BYTES))?;
    Ok(range.map(|range| Entry { at_ns, volume: 0, op: Op::Read, range }))
}

fn u32le(record: &[u8], unit_sectors: u64) -> Result<Option<Entry>, Reason> {
    let unit_bytes = unit_sectors * SECTOR_BYTES;
    let offset_bytes = u64::from(u32::from_le_bytes(le(record, 0))) * unit_bytes;
    let range = range_of_bytes(Op::Read, offset_bytes, unit_bytes)?;
    Ok(range.map(|range| Entry { at_ns: None, volume: 0, op: Op::Read, range }))
}
