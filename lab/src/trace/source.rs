//! From a file to a [`Source`]: decompression, and which format it is.

use super::binary::Records;
use super::text::Lines;
use super::{Format, Place, Reading, Reason, Source, TraceError};
use engine::units::SECTOR_BYTES;
use std::fs::File;
use std::io::{BufReader, Cursor, Read};
use std::path::Path;

/// Limit of memory for decoding xz: twice the need of its largest preset.
const XZ_BYTES_MAX: u64 = 128 << 20;
/// The largest window of zstd that is decoded, as a power of two: the limit of its command line too.
const ZSTD_WINDOW_LOG_MAX: u32 = 27;
/// Size of a file's buffer, and of the part from which its format is guessed.
const BUFFER_BYTES: usize = 1 << 16;

/// Opens a trace. The file's name tells how it is compressed (`.zst`, `.xz`, `.gz`, or not).
///
/// # Errors
/// [`TraceError`]: the file cannot be read, its format is not known, or the unit is none.
pub fn open(path: &Path, reading: Reading) -> Result<Box<dyn Source>, TraceError> {
    let name = path.display().to_string();
    let opened = File::open(path).and_then(|file| Ok((file.metadata()?.is_file(), file)));
    let reason = match opened {
        Ok((true, file)) => return read(&name, file, reading),
        Ok((false, _)) => Reason::NoFile,
        Err(error) => error.into(),
    };
    Err(TraceError { file: name, place: Place::File, reason })
}

/// Reads a trace from anywhere; `name` is used in errors, and tells what a file's name tells.
///
/// # Errors
/// [`TraceError`]: it cannot be read, its format is not known, or the unit is none.
pub fn read<'a>(
    name: &str,
    from: impl Read + 'a,
    reading: Reading,
) -> Result<Box<dyn Source + 'a>, TraceError> {
    try_read(name, from, reading).map_err(|reason| TraceError {
        file: name.to_owned(),
        place: Place::File,
        reason,
    })
}

/// Whether there is nothing but remarks, as in a recording of clients that asked for nothing.
fn is_remarks(head: &[u8]) -> bool {
    let mut lines = head.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
    lines.all(|line| line.is_empty() || line.starts_with(b"#"))
}

fn try_read<'a>(name: &str, from: impl Read + 'a, reading: Reading) -> Result<Box<dyn Source + 'a>, Reason> {
    let lower = name.to_ascii_lowercase();
    let (plain_name, mut from): (&str, Box<dyn Read + 'a>) = if let Some(plain) = lower.strip_suffix(".zst") {
        let mut decoder = zstd::Decoder::new(from)?;
        decoder.window_log_max(ZSTD_WINDOW_LOG_MAX)?;
        (plain, Box::new(decoder))
    } else if let Some(plain) = lower.strip_suffix(".gz") {
        (plain, Box::new(flate2::read::MultiGzDecoder::new(from)))
    } else if let Some(plain) = lower.strip_suffix(".xz") {
        let flags = liblzma::stream::CONCATENATED;
        let stream =
            liblzma::stream::Stream::new_stream_decoder(XZ_BYTES_MAX, flags).map_err(std::io::Error::from)?;
        (plain, Box::new(liblzma::read::XzDecoder::new_stream(from, stream)))
    } else {
        (&lower, Box::new(from))
    };
    let format = match reading.format.or_else(|| guess(plain_name, b"")) {
        Some(format) => format,
        None => {
            // The first frame of a recording may have a remark alone.
            let mut head = Vec::new();
            from.by_ref().take(BUFFER_BYTES as u64).read_to_end(&mut head)?;
            let unknown = if is_remarks(&head) { Reason::Nothing } else { Reason::UnknownFormat };
            let format = guess(plain_name, &head).ok_or(unknown)?;
            from = Box::new(Cursor::new(head).chain(from));
            format
        }
    };
    let from = BufReader::with_capacity(BUFFER_BYTES, from);
    let unit_bytes = match (reading.unit_bytes, format.unit_bytes()) {
        (None, unit_bytes) => unit_bytes.unwrap_or(SECTOR_BYTES),
        (Some(_), None) => return Err(Reason::UnitOfItsOwn(format.name())),
        (Some(unit_bytes), Some(_)) => unit_bytes,
    };
    if !(SECTOR_BYTES..=1 << 20).contains(&unit_bytes) || !unit_bytes.is_multiple_of(SECTOR_BYTES) {
        return Err(Reason::Unit(unit_bytes));
    }
    let unit_sectors = unit_bytes / SECTOR_BYTES;
    Ok(match format {
        Format::Vscsi | Format::OracleGeneral | Format::U32Le => {
            Box::new(Records::new(name, from, format, unit_sectors))
        }
        _ => Box::new(Lines::new(name, from, format, unit_sectors)),
    })
}

/// The format of a trace, from its name without the suffix of the compression, in lower case, and from its first
/// bytes.
#[must_use]
pub fn guess(name: &str, head: &[u8]) -> Option<Format> {
    let by_name = [
        (".vscsi", Format::Vscsi),
        (".oraclegeneral", Format::OracleGeneral),
        (".oraclegeneral.bin", Format::OracleGeneral),
        (".u32le", Format::U32Le),
        (".lis", Format::Arc),
        (".spc", Format::Spc),
    ];
    if let Some((_, format)) = by_name.iter().find(|(suffix, _)| name.ends_with(suffix)) {
        return Some(*format);
    }
    let mut lines = head.split(|byte| *byte == b'\n');
    let line = lines.find(|line| !line.starts_with(b"#")).unwrap_or_default();
    let line = str::from_utf8(line).ok()?.trim_ascii();
    if line.starts_with("ts_ns,op,") {
        return Some(Format::OpenCas);
    }
    let commas: Vec<&str> = line.split(',').collect();
    match commas.len() {
        1 => match line.split_ascii_whitespace().count() {
            1 if line == "*" || line.bytes().all(|byte| byte.is_ascii_digit()) => Some(Format::BlockList),
            4 => Some(Format::Arc),
            5 => Some(Format::DiskSim),
            9 => Some(Format::Fiu),
            _ => None,
        },
        5 if matches!(commas[3].trim(), "r" | "w" | "R" | "W") => Some(Format::Spc),
        5 => Some(Format::Tencent),
        6 => Some(Format::Systor),
        7 => Some(Format::Msr),
        _ => None,
    }
}
