//! The numbers of the NBD protocol, under the names the protocol document gives them.

/// Bytes of a request without its payload.
pub const REQUEST_BYTES: usize = 28;
/// Bytes of a simple reply without its payload.
pub const SIMPLE_REPLY_BYTES: usize = 16;
/// Bytes of the header of a structured reply chunk.
pub const CHUNK_HEADER_BYTES: usize = 20;
/// Bytes that a server sends first.
pub const GREETING_BYTES: usize = 18;
/// Bytes of an option without its data.
pub const OPTION_HEADER_BYTES: usize = 16;
/// Bytes of a reply to an option without its data.
pub const OPTION_REPLY_HEADER_BYTES: usize = 20;
/// Zero bytes after the answer to `NBD_OPT_EXPORT_NAME`, unless both sides agreed to leave them out.
pub const EXPORT_NAME_ZEROES_BYTES: usize = 124;

/// The longest READ or WRITE, announced to clients as the maximum block size.
pub const PAYLOAD_BYTES_MAX: u32 = 64 << 20;
/// The longest payload of a refused WRITE that is read and thrown away; a longer one ends the connection.
pub const SKIPPED_PAYLOAD_BYTES_MAX: u32 = 128 << 20;
/// The block size that clients are told to prefer.
pub const PREFERRED_BLOCK_BYTES: u32 = 4096;
/// The longest export name or description (the protocol's limit for strings).
pub const STRING_BYTES_MAX: usize = 4096;
/// The longest option data that is looked at; a longer option is answered with `NBD_REP_ERR_TOO_BIG`.
pub const OPTION_BYTES_MAX: u32 = 64 << 10;
/// The longest option data that is read and thrown away; a longer option ends the connection.
pub const SKIPPED_OPTION_BYTES_MAX: u32 = 1 << 20;
/// Options in one handshake; one more ends the connection, so a client cannot talk for ever.
pub const OPTIONS_MAX: u32 = 256;

const _: () = assert!(PAYLOAD_BYTES_MAX <= SKIPPED_PAYLOAD_BYTES_MAX, "a refused legal WRITE is skipped");
const _: () = assert!(OPTION_BYTES_MAX <= SKIPPED_OPTION_BYTES_MAX, "a legal option is read");

/// "NBDMAGIC".
pub const GREETING_MAGIC: u64 = 0x4e42_444d_4147_4943;
/// "IHAVEOPT".
pub const OPTION_MAGIC: u64 = 0x4948_4156_454f_5054;
/// Begins every reply to an option.
pub const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
/// Begins every request.
pub const REQUEST_MAGIC: u32 = 0x2560_9513;
/// Begins every simple reply.
pub const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;
/// Begins every structured reply chunk.
pub const STRUCTURED_REPLY_MAGIC: u32 = 0x668e_33ef;

/// Handshake flags: the server speaks fixed newstyle; the client does too.
pub const FLAG_FIXED_NEWSTYLE: u16 = 1;
/// Handshake flags: no zeroes after the answer to `NBD_OPT_EXPORT_NAME`.
pub const FLAG_NO_ZEROES: u16 = 1 << 1;

/// Enter transmission without a way to answer errors (old clients).
pub const OPT_EXPORT_NAME: u32 = 1;
/// End the handshake.
pub const OPT_ABORT: u32 = 2;
/// List the exports.
pub const OPT_LIST: u32 = 3;
/// Go on over TLS.
pub const OPT_STARTTLS: u32 = 5;
/// Tell about an export.
pub const OPT_INFO: u32 = 6;
/// Tell about an export and enter transmission.
pub const OPT_GO: u32 = 7;
/// Use structured replies.
pub const OPT_STRUCTURED_REPLY: u32 = 8;
/// List the metadata contexts of an export.
pub const OPT_LIST_META_CONTEXT: u32 = 9;
/// Select metadata contexts of an export.
pub const OPT_SET_META_CONTEXT: u32 = 10;

/// The option is done.
pub const REP_ACK: u32 = 1;
/// An export.
pub const REP_SERVER: u32 = 2;
/// A piece of information on an export.
pub const REP_INFO: u32 = 3;
/// The bit that all error replies to options have.
pub const REP_ERROR_BIT: u32 = 1 << 31;
/// The option is not known here.
pub const REP_ERR_UNSUP: u32 = REP_ERROR_BIT | 1;
/// The option's data makes no sense.
pub const REP_ERR_INVALID: u32 = REP_ERROR_BIT | 3;
/// Not without TLS.
pub const REP_ERR_TLS_REQD: u32 = REP_ERROR_BIT | 5;
/// There is no such export.
pub const REP_ERR_UNKNOWN: u32 = REP_ERROR_BIT | 6;
/// The option is too long.
pub const REP_ERR_TOO_BIG: u32 = REP_ERROR_BIT | 9;

/// Information: size and transmission flags.
pub const INFO_EXPORT: u16 = 0;
/// Information: the export's canonical name.
pub const INFO_NAME: u16 = 1;
/// Information: a line for people.
pub const INFO_DESCRIPTION: u16 = 2;
/// Information: minimum, preferred, maximum block size.
pub const INFO_BLOCK_SIZE: u16 = 3;

/// Transmission flags: the others mean something.
pub const FLAG_HAS_FLAGS: u16 = 1;
/// Transmission flags: no writing.
pub const FLAG_READ_ONLY: u16 = 1 << 1;
/// Transmission flags: FLUSH is supported.
pub const FLAG_SEND_FLUSH: u16 = 1 << 2;
/// Transmission flags: FUA is supported.
pub const FLAG_SEND_FUA: u16 = 1 << 3;
/// Transmission flags: TRIM is supported.
pub const FLAG_SEND_TRIM: u16 = 1 << 5;
/// Transmission flags: WRITE_ZEROES is supported.
pub const FLAG_SEND_WRITE_ZEROES: u16 = 1 << 6;
/// Transmission flags: a FLUSH on one connection covers writes acknowledged on every other.
pub const FLAG_CAN_MULTI_CONN: u16 = 1 << 8;

/// Read.
pub const CMD_READ: u16 = 0;
/// Write; its payload follows the request.
pub const CMD_WRITE: u16 = 1;
/// Finish the requests under way, then close. Has no reply.
pub const CMD_DISC: u16 = 2;
/// Make acknowledged changes durable.
pub const CMD_FLUSH: u16 = 3;
/// The content is not needed any more.
pub const CMD_TRIM: u16 = 4;
/// Read ahead; not offered here.
pub const CMD_CACHE: u16 = 5;
/// The range shall read as zeroes.
pub const CMD_WRITE_ZEROES: u16 = 6;
/// The allocation status of a range; not offered here.
pub const CMD_BLOCK_STATUS: u16 = 7;

/// Command flags: durable before the reply.
pub const CMD_FLAG_FUA: u16 = 1;
/// Command flags: zeroes must be allocated.
pub const CMD_FLAG_NO_HOLE: u16 = 1 << 1;
/// Command flags: the reply to a READ in one piece; not offered here.
pub const CMD_FLAG_DF: u16 = 1 << 2;
/// Command flags: zero only if that is faster than writing; not offered here.
pub const CMD_FLAG_FAST_ZERO: u16 = 1 << 4;

/// Chunk flags: the last chunk of its reply.
pub const REPLY_FLAG_DONE: u16 = 1;

/// A chunk without content.
pub const REPLY_TYPE_NONE: u16 = 0;
/// An offset and data.
pub const REPLY_TYPE_OFFSET_DATA: u16 = 1;
/// An offset and the length of a hole; this server sends none, its client understands it.
pub const REPLY_TYPE_OFFSET_HOLE: u16 = 2;
/// An error.
pub const REPLY_TYPE_ERROR: u16 = (1 << 15) | 1;
/// An error at an offset.
pub const REPLY_TYPE_ERROR_OFFSET: u16 = (1 << 15) | 2;
