//! Options of the handshake: parsing their data, encoding the replies.

use super::WireError;
use super::export::Export;
use super::protocol::{
    INFO_BLOCK_SIZE, INFO_DESCRIPTION, INFO_EXPORT, INFO_NAME, OPTION_REPLY_MAGIC, REP_INFO, REP_SERVER,
    STRING_BYTES_MAX,
};

/// Takes numbers and strings from the front of an option's data.
pub(crate) struct Fields<'a> {
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    pub(crate) fn new(data: &'a [u8]) -> Fields<'a> {
        Fields { rest: data }
    }

    fn bytes(&mut self, len: usize) -> Result<&'a [u8], WireError> {
        let (taken, rest) =
            self.rest.split_at_checked(len).ok_or(WireError::Length { len_bytes: len as u64 })?;
        self.rest = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        let (taken, rest) =
            self.rest.split_first_chunk::<N>().ok_or(WireError::Length { len_bytes: N as u64 })?;
        self.rest = rest;
        Ok(*taken)
    }

    pub(crate) fn u16(&mut self) -> Result<u16, WireError> {
        Ok(u16::from_be_bytes(self.array()?))
    }

    pub(crate) fn u32(&mut self) -> Result<u32, WireError> {
        Ok(u32::from_be_bytes(self.array()?))
    }

    pub(crate) fn u64(&mut self) -> Result<u64, WireError> {
        Ok(u64::from_be_bytes(self.array()?))
    }

    /// A string after its length.
    pub(crate) fn string(&mut self) -> Result<&'a [u8], WireError> {
        let len_bytes = self.u32()?;
        if len_bytes as usize > STRING_BYTES_MAX {
            return Err(WireError::Length { len_bytes: u64::from(len_bytes) });
        }
        self.bytes(len_bytes as usize)
    }

    /// All that is left.
    pub(crate) fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.rest)
    }

    /// Nothing must be left.
    pub(crate) fn end(&self) -> Result<(), WireError> {
        if self.rest.is_empty() {
            Ok(())
        } else {
            Err(WireError::Length { len_bytes: self.rest.len() as u64 })
        }
    }
}

/// The data of `NBD_OPT_INFO` and `NBD_OPT_GO`.
pub(super) struct InfoRequest<'a> {
    pub(super) name: &'a [u8],
    pub(super) wants_name: bool,
    pub(super) wants_description: bool,
    pub(super) wants_block_sizes: bool,
}

impl<'a> InfoRequest<'a> {
    pub(super) fn parse(data: &'a [u8]) -> Result<InfoRequest<'a>, WireError> {
        let mut fields = Fields::new(data);
        let mut request = InfoRequest {
            name: fields.string()?,
            wants_name: false,
            wants_description: false,
            wants_block_sizes: false,
        };
        for _ in 0..fields.u16()? {
            match fields.u16()? {
                INFO_NAME => request.wants_name = true,
                INFO_DESCRIPTION => request.wants_description = true,
                INFO_BLOCK_SIZE => request.wants_block_sizes = true,
                // The export's size is always sent, and unknown information is ignored.
                _ => {}
            }
        }
        fields.end()?;
        Ok(request)
    }
}

/// The export name in the data of the two metadata context options; a server without contexts needs nothing else.
pub(super) fn parse_meta_context(data: &[u8]) -> Result<&[u8], WireError> {
    let mut fields = Fields::new(data);
    let name = fields.string()?;
    for _ in 0..fields.u32()? {
        fields.string()?;
    }
    fields.end()?;
    Ok(name)
}

/// Appends one reply to `option`, its data in parts.
pub(super) fn reply(output: &mut Vec<u8>, option: u32, kind: u32, data: &[&[u8]]) {
    let len_bytes: usize = data.iter().map(|part| part.len()).sum();
    output.extend_from_slice(&OPTION_REPLY_MAGIC.to_be_bytes());
    output.extend_from_slice(&option.to_be_bytes());
    output.extend_from_slice(&kind.to_be_bytes());
    output.extend_from_slice(&(len_bytes as u32).to_be_bytes());
    for part in data {
        output.extend_from_slice(part);
    }
}

/// Appends the `NBD_REP_SERVER` of one export.
pub(super) fn reply_server(output: &mut Vec<u8>, option: u32, export: &Export) {
    let name_bytes = (export.name.len() as u32).to_be_bytes();
    let parts = [&name_bytes, export.name.as_bytes(), export.description.as_bytes()];
    reply(output, option, REP_SERVER, &parts);
}

/// Appends the `NBD_REP_INFO`s that were asked for.
pub(super) fn reply_infos(output: &mut Vec<u8>, option: u32, export: &Export, request: &InfoRequest<'_>) {
    let size = export.announced_bytes().to_be_bytes();
    let flags = export.transmission_flags().to_be_bytes();
    reply(output, option, REP_INFO, &[&INFO_EXPORT.to_be_bytes(), &size, &flags]);
    if request.wants_name {
        reply(output, option, REP_INFO, &[&INFO_NAME.to_be_bytes(), export.name.as_bytes()]);
    }
    if request.wants_description && !export.description.is_empty() {
        let parts = [&INFO_DESCRIPTION.to_be_bytes(), export.description.as_bytes()];
        reply(output, option, REP_INFO, &parts);
    }
    if request.wants_block_sizes {
        let [min, preferred, max] = export.block_sizes().map(u32::to_be_bytes);
        reply(output, option, REP_INFO, &[&INFO_BLOCK_SIZE.to_be_bytes(), &min, &preferred, &max]);
    }
}
