//! The server's side of the fixed newstyle handshake.
//!
//! A handshake is a machine that eats bytes: nothing is kept but a header in parts and the data of
//! one option, at most [`OPTION_BYTES_MAX`].

use super::export::Export;
use super::option::{InfoRequest, parse_meta_context, reply, reply_infos, reply_server};
use super::protocol::{
    EXPORT_NAME_ZEROES_BYTES, FLAG_FIXED_NEWSTYLE, FLAG_NO_ZEROES, GREETING_BYTES, GREETING_MAGIC, OPT_ABORT,
    OPT_EXPORT_NAME, OPT_GO, OPT_INFO, OPT_LIST, OPT_LIST_META_CONTEXT, OPT_SET_META_CONTEXT, OPT_STARTTLS,
    OPT_STRUCTURED_REPLY, OPTION_BYTES_MAX, OPTION_HEADER_BYTES, OPTION_MAGIC, OPTIONS_MAX, REP_ACK,
    REP_ERR_INVALID, REP_ERR_TLS_REQD, REP_ERR_TOO_BIG, REP_ERR_UNKNOWN, REP_ERR_UNSUP,
    SKIPPED_OPTION_BYTES_MAX, STRING_BYTES_MAX,
};
use super::reply::Session;

/// Result of feeding a handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Bytes that the handshake took. Fewer than it was given only with an outcome: the bytes after
    /// [`Outcome::Serve`] belong to the transmission.
    pub consumed: usize,
    /// End of the handshake or of its part in the clear, if it ended. The output is to be sent in either case.
    pub outcome: Option<Outcome>,
}

/// End of a handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The transmission of this session begins.
    Serve(Session),
    /// Send the output, then go on over TLS: [`Handshake::secured`]. All bytes behind are records of TLS.
    StartTls,
    /// Send the output, then close.
    Close,
}

/// Part that TLS has in a handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Security {
    /// It is not offered.
    None,
    /// It must come first: whatever else is asked for is refused.
    Wanted {
        /// A client asked for something else.
        was_refused: bool,
    },
    /// It is there.
    Begun,
}

/// A handshake in progress.
#[derive(Debug)]
pub struct Handshake {
    state: State,
    /// Bytes of the header or of the option's data that the state waits for.
    partial: Vec<u8>,
    structured: bool,
    no_zeroes: bool,
    fixed_newstyle: bool,
    options: u32,
    security: Security,
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// Waiting for the client's 4 bytes of flags.
    Flags,
    /// Waiting for the 16 bytes before an option's data.
    Header,
    /// Waiting for the data of an option.
    Data { option: u32, len_bytes: usize },
    /// Throwing away the data of an option; its error is already in the output.
    Skip { left_bytes: usize },
    /// Over; nothing is taken any more.
    Over(Outcome),
}

impl Handshake {
    /// Begins a handshake: appends the greeting to `output`.
    #[must_use]
    pub fn new(output: &mut Vec<u8>) -> Handshake {
        Handshake::begin(Security::None, output)
    }

    /// Begins a handshake of which nothing but [`Outcome::StartTls`] can come before TLS (the protocol's mode FORCEDTLS).
    #[must_use]
    pub fn with_tls(output: &mut Vec<u8>) -> Handshake {
        Handshake::begin(Security::Wanted { was_refused: false }, output)
    }

    fn begin(security: Security, output: &mut Vec<u8>) -> Handshake {
        let greeting_at = output.len();
        output.extend_from_slice(&GREETING_MAGIC.to_be_bytes());
        output.extend_from_slice(&OPTION_MAGIC.to_be_bytes());
        output.extend_from_slice(&(FLAG_FIXED_NEWSTYLE | FLAG_NO_ZEROES).to_be_bytes());
        assert_eq!(output.len() - greeting_at, GREETING_BYTES);
        Handshake {
            state: State::Flags,
            partial: Vec::new(),
            structured: false,
            no_zeroes: false,
            fixed_newstyle: false,
            options: 0,
            security,
        }
    }

    /// Goes on over TLS, after [`Outcome::StartTls`].
    ///
    /// # Panics
    /// If it has not come.
    pub fn secured(&mut self) {
        assert!(matches!(self.state, State::Over(Outcome::StartTls)), "TLS begins when it was agreed on");
        self.state = State::Header;
        self.security = Security::Begun;
    }

    /// Whether a client was refused something because it does not use TLS.
    #[must_use]
    pub fn lacked_tls(&self) -> bool {
        self.security == Security::Wanted { was_refused: true }
    }

    /// Takes bytes from the client and appends answers to `output`.
    ///
    /// `exports` are all that can be asked for, by their place; a place that is `None` is not
    /// served. The empty name means the only export if there is exactly one. Output is bounded by
    /// [`OPTIONS_MAX`] answers to one handshake.
    ///
    /// # Panics
    /// If a served export has a minimum block size that the protocol does not allow.
    pub fn feed(&mut self, input: &[u8], exports: &[Option<Export>], output: &mut Vec<u8>) -> Step {
        let mut consumed = 0;
        loop {
            let rest = &input[consumed..];
            match self.state {
                State::Over(outcome) => return Step { consumed, outcome: Some(outcome) },
                State::Skip { left_bytes } => {
                    let skipped = left_bytes.min(rest.len());
                    consumed += skipped;
                    self.state = State::Skip { left_bytes: left_bytes - skipped };
                    if skipped < left_bytes {
                        return Step { consumed, outcome: None };
                    }
                    self.state = State::Header;
                }
                State::Flags | State::Header | State::Data { .. } => {
                    let wanted = self.wanted_bytes();
                    let taken = (wanted - self.partial.len()).min(rest.len());
                    self.partial.extend_from_slice(&rest[..taken]);
                    consumed += taken;
                    if self.partial.len() < wanted {
                        return Step { consumed, outcome: None };
                    }
                    let bytes = std::mem::take(&mut self.partial);
                    self.state = self.take(&bytes, exports, output);
                    self.partial = bytes;
                    self.partial.clear();
                }
            }
        }
    }

    /// Bytes that make the current state's item complete; may be 0 for an option without data.
    fn wanted_bytes(&self) -> usize {
        match self.state {
            State::Flags => 4,
            State::Header => OPTION_HEADER_BYTES,
            State::Data { len_bytes, .. } => len_bytes,
            State::Skip { .. } | State::Over(_) => 0,
        }
    }

    /// Handles one complete item and returns the next state.
    fn take(&mut self, bytes: &[u8], exports: &[Option<Export>], output: &mut Vec<u8>) -> State {
        match self.state {
            State::Flags => self.take_flags(bytes),
            State::Header => self.take_header(bytes, output),
            State::Data { option, .. } => self.take_option(option, bytes, exports, output),
            State::Skip { .. } | State::Over(_) => unreachable!("these states take no items"),
        }
    }

    fn take_flags(&mut self, bytes: &[u8]) -> State {
        let flags = number(bytes);
        if flags & !u64::from(FLAG_FIXED_NEWSTYLE | FLAG_NO_ZEROES) != 0 {
            return State::Over(Outcome::Close);
        }
        self.fixed_newstyle = flags & u64::from(FLAG_FIXED_NEWSTYLE) != 0;
        self.no_zeroes = flags & u64::from(FLAG_NO_ZEROES) != 0;
        State::Header
    }

    fn take_header(&mut self, bytes: &[u8], output: &mut Vec<u8>) -> State {
        let (option, len_bytes) = (number(&bytes[8..12]) as u32, number(&bytes[12..16]) as u32);
        self.options += 1;
        // An old client knows no replies to options, so it cannot be told that one was wrong.
        let answerable = self.fixed_newstyle && option != OPT_EXPORT_NAME;
        let legal = number(&bytes[..8]) == OPTION_MAGIC
            && self.options <= OPTIONS_MAX
            && (answerable || (option == OPT_EXPORT_NAME && len_bytes as usize <= STRING_BYTES_MAX))
            && len_bytes <= SKIPPED_OPTION_BYTES_MAX;
        if !legal {
            return State::Over(Outcome::Close);
        }
        if let Security::Wanted { was_refused } = &mut self.security
            && !matches!(option, OPT_STARTTLS | OPT_ABORT)
        {
            *was_refused = true;
            if option == OPT_EXPORT_NAME {
                return State::Over(Outcome::Close);
            }
            reply(output, option, REP_ERR_TLS_REQD, &[]);
            return State::Skip { left_bytes: len_bytes as usize };
        }
        let known = matches!(
            option,
            OPT_EXPORT_NAME
                | OPT_ABORT
                | OPT_LIST
                | OPT_INFO
                | OPT_GO
                | OPT_STRUCTURED_REPLY
                | OPT_LIST_META_CONTEXT
                | OPT_SET_META_CONTEXT
        ) || (option == OPT_STARTTLS && self.security != Security::None);
        let error = if !known {
            REP_ERR_UNSUP
        } else if len_bytes > OPTION_BYTES_MAX {
            REP_ERR_TOO_BIG
        } else {
            return State::Data { option, len_bytes: len_bytes as usize };
        };
        reply(output, option, error, &[]);
        State::Skip { left_bytes: len_bytes as usize }
    }

    fn take_option(
        &mut self,
        option: u32,
        data: &[u8],
        exports: &[Option<Export>],
        output: &mut Vec<u8>,
    ) -> State {
        if option == OPT_EXPORT_NAME {
            return State::Over(self.export_name(data, exports, output));
        }
        let outcome = match option {
            OPT_ABORT => {
                reply(output, option, REP_ACK, &[]);
                Ok(Some(Outcome::Close))
            }
            OPT_LIST => list(data, exports, output),
            OPT_STARTTLS => self.start_tls(data, output),
            OPT_STRUCTURED_REPLY => self.structured_reply(data, output),
            OPT_INFO | OPT_GO => self.info(option, data, exports, output),
            _ => self.meta_context(option, data, exports, output),
        };
        match outcome {
            Ok(Some(outcome)) => State::Over(outcome),
            Ok(None) => State::Header,
            Err(error) => {
                reply(output, option, error, &[]);
                State::Header
            }
        }
    }

    fn export_name(&self, name: &[u8], exports: &[Option<Export>], output: &mut Vec<u8>) -> Outcome {
        let Some((index, export)) = find(name, exports) else {
            return Outcome::Close;
        };
        output.extend_from_slice(&export.announced_bytes().to_be_bytes());
        output.extend_from_slice(&export.transmission_flags().to_be_bytes());
        if !self.no_zeroes {
            output.extend_from_slice(&[0; EXPORT_NAME_ZEROES_BYTES]);
        }
        Outcome::Serve(Session { export: index, structured: self.structured })
    }

    fn start_tls(&mut self, data: &[u8], output: &mut Vec<u8>) -> Result<Option<Outcome>, u32> {
        if !data.is_empty() || self.security == Security::Begun {
            return Err(REP_ERR_INVALID);
        }
        reply(output, OPT_STARTTLS, REP_ACK, &[]);
        Ok(Some(Outcome::StartTls))
    }

    fn structured_reply(&mut self, data: &[u8], output: &mut Vec<u8>) -> Result<Option<Outcome>, u32> {
        if !data.is_empty() {
            return Err(REP_ERR_INVALID);
        }
        self.structured = true;
        reply(output, OPT_STRUCTURED_REPLY, REP_ACK, &[]);
        Ok(None)
    }

    fn info(
        &self,
        option: u32,
        data: &[u8],
        exports: &[Option<Export>],
        output: &mut Vec<u8>,
    ) -> Result<Option<Outcome>, u32> {
        let request = InfoRequest::parse(data).map_err(|_| REP_ERR_INVALID)?;
        let (index, export) = find(request.name, exports).ok_or(REP_ERR_UNKNOWN)?;
        reply_infos(output, option, export, &request);
        reply(output, option, REP_ACK, &[]);
        let session = Session { export: index, structured: self.structured };
        Ok((option == OPT_GO).then_some(Outcome::Serve(session)))
    }

    /// There are no contexts, so an empty list is the whole answer.
    fn meta_context(
        &self,
        option: u32,
        data: &[u8],
        exports: &[Option<Export>],
        output: &mut Vec<u8>,
    ) -> Result<Option<Outcome>, u32> {
        let name = parse_meta_context(data).map_err(|_| REP_ERR_INVALID)?;
        if !self.structured {
            return Err(REP_ERR_INVALID);
        }
        find(name, exports).ok_or(REP_ERR_UNKNOWN)?;
        reply(output, option, REP_ACK, &[]);
        Ok(None)
    }
}

fn list(data: &[u8], exports: &[Option<Export>], output: &mut Vec<u8>) -> Result<Option<Outcome>, u32> {
    if !data.is_empty() {
        return Err(REP_ERR_INVALID);
    }
    for export in exports.iter().flatten() {
        reply_server(output, OPT_LIST, export);
    }
    reply(output, OPT_LIST, REP_ACK, &[]);
    Ok(None)
}

fn find<'a>(name: &[u8], exports: &'a [Option<Export>]) -> Option<(usize, &'a Export)> {
    let mut served = exports.iter().enumerate().filter_map(|(index, export)| Some((index, export.as_ref()?)));
    let found = if name.is_empty() {
        let only = served.next();
        if served.next().is_some() { None } else { only }
    } else {
        served.find(|(_, export)| export.name.as_bytes() == name)
    };
    if let Some((_, export)) = found {
        export.assert_valid();
    }
    found
}

/// A big-endian number of at most 8 bytes.
fn number(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
}
