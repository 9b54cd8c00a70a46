//! Traces of one line a request.

use super::number::{scaled, seconds, shown, whole};
use super::{Entry, Format, Op, Place, Reason, Source, TraceError, range, range_of_bytes};
use engine::units::SECTOR_BYTES;
use std::collections::HashMap;
use std::io::{BufRead, Read};

/// The longest line that is read.
const LINE_BYTES_MAX: usize = 4096;

/// A trace of lines.
pub(super) struct Lines<R> {
    from: R,
    file: String,
    format: Format,
    unit_sectors: u64,
    line: Vec<u8>,
    number: u64,
    is_over: bool,
    volumes: Volumes,
}

/// The disks by the field, or the two fields, that name them.
#[derive(Default)]
struct Volumes {
    numbers: HashMap<String, u32>,
    /// The name that is looked up, to spare an allocation for each line.
    name: String,
}

impl Volumes {
    fn number(&mut self, name: &str, rest: &str) -> Result<u32, Reason> {
        self.name.clear();
        self.name.extend([name, ",", rest]);
        if let Some(&number) = self.numbers.get(&self.name) {
            return Ok(number);
        }
        let too_many = |_| Reason::Number { field: "volume", text: shown(name) };
        let number = u32::try_from(self.numbers.len()).map_err(too_many)?;
        self.numbers.insert(self.name.clone(), number);
        Ok(number)
    }
}

impl<R: BufRead> Lines<R> {
    /// `unit_sectors` counts where the format has no unit of its own.
    pub(super) fn new(file: &str, from: R, format: Format, unit_sectors: u64) -> Lines<R> {
        Lines {
            from,
            file: file.to_owned(),
            format,
            unit_sectors,
            line: Vec::new(),
            number: 0,
            is_over: false,
            volumes: Volumes::default(),
        }
    }

    /// Reads the next line; false at the end of the file.
    fn read_line(&mut self) -> Result<bool, Reason> {
        self.line.clear();
        self.number += 1;
        let limit = LINE_BYTES_MAX as u64 + 1;
        let read = self.from.by_ref().take(limit).read_until(b'\n', &mut self.line)?;
        if read as u64 == limit && self.line.last() != Some(&b'\n') {
            return Err(Reason::LongLine(LINE_BYTES_MAX));
        }
        Ok(read > 0)
    }

    fn next(&mut self) -> Result<Option<Entry>, Reason> {
        while self.read_line()? {
            let text = str::from_utf8(&self.line).map_err(|_| Reason::NotText)?.trim_ascii();
            let has_header = matches!(self.format, Format::OpenCas | Format::Systor);
            let is_header = has_header && self.number == 1 && !text.starts_with(|c: char| c.is_ascii_digit());
            if text.is_empty() || text.starts_with('#') || is_header {
                continue;
            }
            if let Some(entry) = parse(self.format, text, self.unit_sectors, &mut self.volumes)? {
                return Ok(Some(entry));
            }
        }
        Ok(None)
    }
}

impl<R: BufRead> Source for Lines<R> {
    fn next_entry(&mut self) -> Result<Option<Entry>, TraceError> {
        if self.is_over {
            return Ok(None);
        }
        let next = self.next();
        self.is_over = !matches!(next, Ok(Some(_)));
        next.map_err(|reason| TraceError { file: self.file.clone(), place: Place::Line(self.number), reason })
    }
}

/// The first `N` fields; there may be more.
fn fields<'a, const N: usize>(parts: impl Iterator<Item = &'a str>) -> Result<[&'a str; N], Reason> {
    let mut fields = [""; N];
    let mut found = 0;
    for (field, part) in fields.iter_mut().zip(parts) {
        *field = part.trim_ascii();
        found += 1;
    }
    if found < N { Err(Reason::Fields { found, wanted: N }) } else { Ok(fields) }
}

/// The operation of a word, in any case: all of it, or its first letter alone.
fn op_by_word(text: &str) -> Result<Op, Reason> {
    match text.to_ascii_lowercase().as_str() {
        "r" | "read" => Ok(Op::Read),
        "w" | "write" | "writezeroes" => Ok(Op::Write),
        "d" | "discard" => Ok(Op::Discard),
        _ => Err(Reason::Operation(shown(text))),
    }
}

/// The operation, for formats in which one digit says whether it is a read.
fn op_by_flag(text: &str, read: &str, write: &str) -> Result<Op, Reason> {
    match text {
        text if text == read => Ok(Op::Read),
        text if text == write => Ok(Op::Write),
        _ => Err(Reason::Operation(shown(text))),
    }
}

/// The request of a line; `None` if it has none.
fn parse(
    format: Format,
    text: &str,
    unit_sectors: u64,
    volumes: &mut Volumes,
) -> Result<Option<Entry>, Reason> {
    let unit_bytes = unit_sectors * SECTOR_BYTES;
    let (at_ns, volume, op, range) = match format {
        Format::Arc => {
            let [start, count] = fields(text.split_ascii_whitespace())?;
            let start = scaled("start", start, unit_sectors)?;
            let range = range(Op::Read, start, scaled("count", count, unit_sectors)?)?;
            (None, 0, Op::Read, range)
        }
        Format::BlockList if text == "*" => return Ok(None),
        Format::BlockList => {
            let start_bytes = scaled("block", text, unit_bytes)?;
            (None, 0, Op::Read, range_of_bytes(Op::Read, start_bytes, unit_bytes)?)
        }
        Format::DiskSim => {
            let [time, disk, lba, sectors, flag] = fields(text.split_ascii_whitespace())?;
            let op = op_by_flag(flag, "1", "0")?;
            let range = range(op, whole("address", lba)?, whole("length", sectors)?)?;
            (Some(whole("time", time)?), volumes.number(disk, "")?, op, range)
        }
        Format::Fiu => {
            let [time, _, _, lba, sectors, op, major, minor] = fields(text.split_ascii_whitespace())?;
            let op = op_by_word(op)?;
            let range = range(op, whole("address", lba)?, whole("length", sectors)?)?;
            (Some(whole("time", time)?), volumes.number(major, minor)?, op, range)
        }
        Format::Spc => {
            let [unit, lba, bytes, op, time] = fields(text.split(','))?;
            let op = op_by_word(op)?;
            let offset_bytes = scaled("address", lba, SECTOR_BYTES)?;
            let range = range_of_bytes(op, offset_bytes, whole("length", bytes)?)?;
            (Some(seconds("time", time)?), volumes.number(unit, "")?, op, range)
        }
        Format::Msr => {
            let [time, host, disk, op, offset_bytes, bytes] = fields(text.split(','))?;
            // `forebay record` writes them down, too.
            if op == "Flush" {
                return Ok(None);
            }
            let op = op_by_word(op)?;
            let range = range_of_bytes(op, whole("offset", offset_bytes)?, whole("length", bytes)?)?;
            (Some(scaled("time", time, 100)?), volumes.number(host, disk)?, op, range)
        }
        Format::Systor => {
            let [time, _, op, lun, offset_bytes, bytes] = fields(text.split(','))?;
            if op.is_empty() {
                return Ok(None);
            }
            let op = op_by_word(op)?;
            let range = range_of_bytes(op, whole("offset", offset_bytes)?, whole("length", bytes)?)?;
            (Some(seconds("time", time)?), volumes.number(lun, "")?, op, range)
        }
        Format::Tencent => {
            let [time, lba, sectors, flag, volume] = fields(text.split(','))?;
            let op = op_by_flag(flag, "0", "1")?;
            let range = range(op, whole("address", lba)?, whole("length", sectors)?)?;
            (Some(scaled("time", time, 1_000_000_000)?), volumes.number(volume, "")?, op, range)
        }
        Format::OpenCas => {
            let [time, op, lba, sectors] = fields(text.split(','))?;
            let op = op_by_word(op)?;
            let range = range(op, whole("address", lba)?, whole("length", sectors)?)?;
            (Some(whole("time", time)?), 0, op, range)
        }
        Format::Vscsi | Format::OracleGeneral | Format::U32Le => unreachable!("these have no lines"),
    };
    Ok(range.map(|range| Entry { at_ns, volume, op, range }))
}
