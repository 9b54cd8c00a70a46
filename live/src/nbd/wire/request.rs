//! Requests of the transmission phase: decoding, and the one place where they are judged.

use super::protocol::{
    CMD_DISC, CMD_FLAG_FUA, CMD_FLAG_NO_HOLE, CMD_FLUSH, CMD_READ, CMD_TRIM, CMD_WRITE, CMD_WRITE_ZEROES,
    PAYLOAD_BYTES_MAX, REQUEST_BYTES, REQUEST_MAGIC, SKIPPED_PAYLOAD_BYTES_MAX,
};
use super::{Export, WireError};
use engine::effect::Errno;
use engine::units::{SECTOR_BYTES, SectorRange};

/// A request as it was sent; nothing but its magic number was checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawRequest {
    /// Command flags, `CMD_FLAG_*`.
    pub flags: u16,
    /// The command, `CMD_*`.
    pub command: u16,
    /// The client's name for the request, to be repeated in the reply.
    pub cookie: u64,
    /// Where.
    pub offset_bytes: u64,
    /// The length. After a WRITE as many bytes follow.
    pub len_bytes: u32,
}

/// A request that is valid for its export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Send the range's content.
    Read {
        /// The range to read: at most [`PAYLOAD_BYTES_MAX`].
        range: SectorRange,
    },
    /// The payload that follows goes to the range.
    Write {
        /// Where to: at most [`PAYLOAD_BYTES_MAX`].
        range: SectorRange,
        /// Durable before the reply.
        fua: bool,
    },
    /// Make changes acknowledged on any connection durable.
    Flush,
    /// The content is not needed any more.
    Trim {
        /// The range, up to 4 GiB.
        range: SectorRange,
        /// Durable before the reply.
        fua: bool,
    },
    /// The range shall read as zeroes.
    WriteZeroes {
        /// The range, up to 4 GiB.
        range: SectorRange,
        /// Durable before the reply.
        fua: bool,
    },
}

/// Judgement on a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Carry it out.
    Accept(Command),
    /// Throw away the payload that follows, then answer with the error.
    Reject {
        /// The error to answer with.
        errno: Errno,
        /// Bytes that follow the request and belong to it; at most [`SKIPPED_PAYLOAD_BYTES_MAX`].
        skip_payload_bytes: u32,
    },
    /// The client disconnects: answer the requests under way, then close. Has no reply itself.
    Finish,
    /// Close: the stream cannot be followed any further.
    Disconnect,
}

/// Decodes a request.
///
/// # Errors
/// [`WireError::Magic`] if these are not the first bytes of a request.
pub fn decode_request(header: &[u8; REQUEST_BYTES]) -> Result<RawRequest, WireError> {
    let found = u32::from_be_bytes(part(header, 0));
    if found != REQUEST_MAGIC {
        return Err(WireError::Magic { found: u64::from(found), expected: u64::from(REQUEST_MAGIC) });
    }
    Ok(RawRequest {
        flags: u16::from_be_bytes(part(header, 4)),
        command: u16::from_be_bytes(part(header, 6)),
        cookie: u64::from_be_bytes(part(header, 8)),
        offset_bytes: u64::from_be_bytes(part(header, 16)),
        len_bytes: u32::from_be_bytes(part(header, 24)),
    })
}

/// Encodes a request; the opposite of [`decode_request`].
#[must_use]
pub fn encode_request(request: &RawRequest) -> [u8; REQUEST_BYTES] {
    let mut header = [0; REQUEST_BYTES];
    header[0..4].copy_from_slice(&REQUEST_MAGIC.to_be_bytes());
    header[4..6].copy_from_slice(&request.flags.to_be_bytes());
    header[6..8].copy_from_slice(&request.command.to_be_bytes());
    header[8..16].copy_from_slice(&request.cookie.to_be_bytes());
    header[16..24].copy_from_slice(&request.offset_bytes.to_be_bytes());
    header[24..28].copy_from_slice(&request.len_bytes.to_be_bytes());
    header
}

/// Judges a request; whatever is accepted is inside the export, aligned, and not too long.
///
/// | wrong | answer |
/// | --- | --- |
/// | unknown command or flag | `EINVAL` |
/// | change of a read-only export | `EPERM` |
/// | length 0, not aligned to the minimum block, READ or WRITE too long | `EINVAL` |
/// | range not inside the export | `ENOSPC` for WRITE and WRITE_ZEROES, else `EINVAL` |
/// | WRITE longer than [`SKIPPED_PAYLOAD_BYTES_MAX`] | the connection ends |
///
/// # Panics
/// If the export itself is not valid: its minimum block is the driver's choice.
#[must_use]
pub fn validate(request: &RawRequest, export: &Export) -> Verdict {
    export.assert_valid();
    if request.command == CMD_DISC {
        return Verdict::Finish;
    }
    let skip_payload_bytes = if request.command == CMD_WRITE { request.len_bytes } else { 0 };
    if skip_payload_bytes > SKIPPED_PAYLOAD_BYTES_MAX {
        return Verdict::Disconnect;
    }
    match judge(request, export) {
        Ok(command) => Verdict::Accept(command),
        Err(errno) => Verdict::Reject { errno, skip_payload_bytes },
    }
}

fn judge(request: &RawRequest, export: &Export) -> Result<Command, Errno> {
    // FUA is legal on every command of an export that offers it and means something only where
    // something is changed. NO_HOLE is a wish about space that the cache has no say in.
    let flags_known = match request.command {
        CMD_READ | CMD_FLUSH | CMD_WRITE | CMD_TRIM => CMD_FLAG_FUA,
        CMD_WRITE_ZEROES => CMD_FLAG_FUA | CMD_FLAG_NO_HOLE,
        _ => return Err(Errno::INVAL),
    };
    if request.flags & !flags_known != 0 {
        return Err(Errno::INVAL);
    }
    if request.command == CMD_FLUSH {
        return Ok(Command::Flush);
    }
    if export.read_only && request.command != CMD_READ {
        return Err(Errno::PERM);
    }
    let has_payload = matches!(request.command, CMD_READ | CMD_WRITE);
    if has_payload && request.len_bytes > PAYLOAD_BYTES_MAX {
        return Err(Errno::INVAL);
    }
    let range = aligned_range(request, export)?;
    let fua = request.flags & CMD_FLAG_FUA != 0;
    Ok(match request.command {
        CMD_READ => Command::Read { range },
        CMD_WRITE => Command::Write { range, fua },
        CMD_TRIM => Command::Trim { range, fua },
        _ => Command::WriteZeroes { range, fua },
    })
}

fn aligned_range(request: &RawRequest, export: &Export) -> Result<SectorRange, Errno> {
    let (offset_bytes, len_bytes) = (request.offset_bytes, u64::from(request.len_bytes));
    let block_bytes = u64::from(export.min_block_bytes);
    if len_bytes == 0 || !offset_bytes.is_multiple_of(block_bytes) || !len_bytes.is_multiple_of(block_bytes) {
        return Err(Errno::INVAL);
    }
    let inside = offset_bytes.checked_add(len_bytes).is_some_and(|end| end <= export.size_bytes);
    if !inside {
        let writes = matches!(request.command, CMD_WRITE | CMD_WRITE_ZEROES);
        return Err(if writes { Errno::NOSPC } else { Errno::INVAL });
    }
    Ok(SectorRange { start: offset_bytes / SECTOR_BYTES, sectors: len_bytes / SECTOR_BYTES })
}

fn part<const N: usize>(header: &[u8; REQUEST_BYTES], at: usize) -> [u8; N] {
    let mut bytes = [0; N];
    bytes.copy_from_slice(&header[at..at + N]);
    bytes
}
