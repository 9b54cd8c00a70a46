//! The server's side of NBD on a blocking socket, for servers that are part of a test.

use live::nbd::wire::{Export, Handshake, Outcome, RawRequest, Session, decode_request};
use std::io::{self, BufReader, Read, Write};
use std::os::unix::net::UnixStream;

/// Goes through the handshake with the one export; nothing if the client wanted no more than that.
pub fn enter(
    mut stream: &UnixStream,
    reader: &mut BufReader<UnixStream>,
    export: &Export,
) -> io::Result<Option<Session>> {
    let exports = [Some(export.clone())];
    let mut output = Vec::new();
    let mut handshake = Handshake::new(&mut output);
    let session = loop {
        stream.write_all(&output)?;
        output.clear();
        let mut byte = [0];
        reader.read_exact(&mut byte)?;
        match handshake.feed(&byte, &exports, &mut output).outcome {
            Some(Outcome::Serve(session)) => break Some(session),
            Some(Outcome::Close | Outcome::StartTls) => break None,
            None => {}
        }
    };
    stream.write_all(&output)?;
    Ok(session)
}

/// The next request, with its payload.
pub fn next_request(reader: &mut BufReader<UnixStream>) -> io::Result<(RawRequest, Vec<u8>)> {
    let mut header = [0; 28];
    reader.read_exact(&mut header)?;
    let request = decode_request(&header).map_err(io::Error::other)?;
    let mut payload = vec![0; if request.command == 1 { request.len_bytes as usize } else { 0 }];
    reader.read_exact(&mut payload)?;
    Ok((request, payload))
}
