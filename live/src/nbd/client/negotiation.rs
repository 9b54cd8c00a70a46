//! The client's side of the handshake.

use super::stream::Stream;
use super::{Address, ClientError};
use crate::nbd::wire::WireError;
use crate::nbd::wire::option::Fields;
use crate::nbd::wire::protocol::{
    FLAG_FIXED_NEWSTYLE, FLAG_NO_ZEROES, FLAG_READ_ONLY, GREETING_BYTES, GREETING_MAGIC, INFO_BLOCK_SIZE,
    INFO_DESCRIPTION, INFO_EXPORT, INFO_NAME, OPT_ABORT, OPT_GO, OPT_LIST, OPT_STARTTLS,
    OPT_STRUCTURED_REPLY, OPTION_MAGIC, OPTION_REPLY_HEADER_BYTES, OPTION_REPLY_MAGIC, REP_ACK,
    REP_ERR_UNSUP, REP_ERROR_BIT, REP_INFO, REP_SERVER, STRING_BYTES_MAX,
};
use std::io::{Read, Write};

/// The longest reply to an option that a server may send.
const REPLY_BYTES_MAX: usize = 2 * STRING_BYTES_MAX + 64;
/// Replies that a server may send to one option.
const REPLIES_MAX: usize = 4096;

/// Description of an export by its server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExportInfo {
    /// The export's size in bytes.
    pub size_bytes: u64,
    /// Transmission flags, `FLAG_*`.
    pub flags: u16,
    /// Minimum, preferred and maximum block size in bytes, if the server said so.
    pub block_sizes: Option<[u32; 3]>,
    /// The export's canonical name, if the server said so.
    pub name: Option<String>,
    /// The description, if there is one.
    pub description: Option<String>,
    /// Structured replies were agreed on.
    pub structured: bool,
}

impl ExportInfo {
    /// The smallest unit of a request in bytes.
    #[must_use]
    pub fn min_block_bytes(&self) -> u32 {
        self.block_sizes.map_or(512, |[min, ..]| min)
    }

    /// Whether the export may not be written.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.flags & FLAG_READ_ONLY != 0
    }
}

/// The names of a server's exports, with their descriptions.
///
/// # Errors
/// Any [`ClientError`].
pub fn list(address: &Address) -> Result<Vec<(String, String)>, ClientError> {
    let mut stream = Stream::connect(address).map_err(ClientError::Socket)?;
    greet(&mut stream)?;
    send_option(&mut stream, OPT_LIST, &[])?;
    let mut exports = Vec::new();
    for _ in 0..REPLIES_MAX {
        let (kind, data) = receive_reply(&mut stream, OPT_LIST)?;
        match kind {
            REP_SERVER => {
                let mut fields = Fields::new(&data);
                let name = text(fields.string()?);
                exports.push((name, text(fields.rest())));
            }
            REP_ACK => {
                send_option(&mut stream, OPT_ABORT, &[])?;
                return Ok(exports);
            }
            other => return Err(unexpected(OPT_LIST, other)),
        }
    }
    Err(WireError::Number { what: "reply", found: REPLIES_MAX as u64 }.into())
}

/// Asks the server to go on over TLS, after which the options begin anew.
pub(crate) fn start_tls(stream: &mut (impl Read + Write)) -> Result<(), ClientError> {
    send_option(stream, OPT_STARTTLS, &[])?;
    match receive_reply(stream, OPT_STARTTLS)? {
        (REP_ACK, _) => Ok(()),
        (other, _) => Err(unexpected(OPT_STARTTLS, other)),
    }
}

/// Enters transmission with `NBD_OPT_GO`.
pub(crate) fn enter(
    stream: &mut (impl Read + Write),
    export: &str,
    structured: bool,
) -> Result<ExportInfo, ClientError> {
    let mut info = ExportInfo::default();
    if structured {
        send_option(stream, OPT_STRUCTURED_REPLY, &[])?;
        match receive_reply(stream, OPT_STRUCTURED_REPLY)? {
            (REP_ACK, _) => info.structured = true,
            (REP_ERR_UNSUP, _) => {}
            (other, _) => return Err(unexpected(OPT_STRUCTURED_REPLY, other)),
        }
    }
    let mut data = Vec::new();
    data.extend_from_slice(&(export.len() as u32).to_be_bytes());
    data.extend_from_slice(export.as_bytes());
    data.extend_from_slice(&3_u16.to_be_bytes());
    for wanted in [INFO_NAME, INFO_DESCRIPTION, INFO_BLOCK_SIZE] {
        data.extend_from_slice(&wanted.to_be_bytes());
    }
    send_option(stream, OPT_GO, &data)?;
    for _ in 0..REPLIES_MAX {
        match receive_reply(stream, OPT_GO)? {
            (REP_INFO, data) => info.take(&data)?,
            (REP_ACK, _) => return Ok(info),
            (other, _) => return Err(unexpected(OPT_GO, other)),
        }
    }
    Err(WireError::Number { what: "reply", found: REPLIES_MAX as u64 }.into())
}

impl ExportInfo {
    fn take(&mut self, data: &[u8]) -> Result<(), ClientError> {
        let mut fields = Fields::new(data);
        match fields.u16()? {
            INFO_EXPORT => {
                self.size_bytes = fields.u64()?;
                self.flags = fields.u16()?;
                fields.end()?;
            }
            INFO_NAME => self.name = Some(text(fields.rest())),
            INFO_DESCRIPTION => self.description = Some(text(fields.rest())),
            INFO_BLOCK_SIZE => {
                self.block_sizes = Some([fields.u32()?, fields.u32()?, fields.u32()?]);
                fields.end()?;
            }
            _ => {}
        }
        Ok(())
    }
}

/// Takes the server's greeting, and answers it.
pub(crate) fn greet(stream: &mut (impl Read + Write)) -> Result<(), ClientError> {
    let mut greeting = [0; GREETING_BYTES];
    stream.read_exact(&mut greeting)?;
    let mut fields = Fields::new(&greeting);
    for expected in [GREETING_MAGIC, OPTION_MAGIC] {
        let found = fields.u64()?;
        if found != expected {
            return Err(WireError::Magic { found, expected }.into());
        }
    }
    let flags = fields.u16()?;
    if flags & FLAG_FIXED_NEWSTYLE == 0 {
        return Err(WireError::Number { what: "handshake flags", found: u64::from(flags) }.into());
    }
    let ours = u32::from(FLAG_FIXED_NEWSTYLE | (flags & FLAG_NO_ZEROES));
    Ok(stream.write_all(&ours.to_be_bytes())?)
}

fn send_option(stream: &mut impl Write, option: u32, data: &[u8]) -> Result<(), ClientError> {
    let mut frame = Vec::new();
    frame.extend_from_slice(&OPTION_MAGIC.to_be_bytes());
    frame.extend_from_slice(&option.to_be_bytes());
    frame.extend_from_slice(&(data.len() as u32).to_be_bytes());
    frame.extend_from_slice(data);
    Ok(stream.write_all(&frame)?)
}

/// One reply to `option`: its type and its data.
fn receive_reply(stream: &mut impl Read, option: u32) -> Result<(u32, Vec<u8>), ClientError> {
    let mut header = [0; OPTION_REPLY_HEADER_BYTES];
    stream.read_exact(&mut header)?;
    let mut fields = Fields::new(&header);
    let magic = fields.u64()?;
    if magic != OPTION_REPLY_MAGIC {
        return Err(WireError::Magic { found: magic, expected: OPTION_REPLY_MAGIC }.into());
    }
    let (answered, kind, len_bytes) = (fields.u32()?, fields.u32()?, fields.u32()?);
    if answered != option {
        return Err(WireError::Number { what: "option", found: u64::from(answered) }.into());
    }
    if len_bytes as usize > REPLY_BYTES_MAX {
        return Err(WireError::Length { len_bytes: u64::from(len_bytes) }.into());
    }
    let mut data = vec![0; len_bytes as usize];
    stream.read_exact(&mut data)?;
    Ok((kind, data))
}

fn unexpected(option: u32, reply: u32) -> ClientError {
    if reply & REP_ERROR_BIT != 0 {
        ClientError::Refused { option, reply }
    } else {
        WireError::Number { what: "reply", found: u64::from(reply) }.into()
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
