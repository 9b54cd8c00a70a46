//! The client's side of NBD: replies to requests under way, from any bytes at all.
#![no_main]

use libfuzzer_sys::fuzz_target;
use live::nbd::client::ClientError;
use live::nbd::replies::{Asked, Replies, Requests};
use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Read};
use std::slice::Chunks;

/// Requests with small cookies, so that bytes find them.
struct Table(BTreeMap<u64, (Asked, Vec<u8>)>);

impl Requests for Table {
    fn asked(&mut self, cookie: u64) -> Option<Asked> {
        self.0.get(&cookie).map(|(asked, _)| *asked)
    }

    fn take(&mut self, cookie: u64, at_bytes: u32, len_bytes: u32, input: &mut impl Read) -> io::Result<usize> {
        let (_, data) = self.0.get_mut(&cookie).expect("it was asked for");
        input.read(&mut data[at_bytes as usize..(at_bytes + len_bytes) as usize])
    }

    fn zero(&mut self, cookie: u64, at_bytes: u32, len_bytes: u32) {
        let (_, data) = self.0.get_mut(&cookie).expect("it was asked for");
        data[at_bytes as usize..(at_bytes + len_bytes) as usize].fill(0);
    }
}

/// Bytes that come in portions.
struct Portions<'b> {
    portions: Chunks<'b, u8>,
    portion: &'b [u8],
}

impl Read for Portions<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.portion.is_empty() {
            let Some(next) = self.portions.next() else { return Ok(0) };
            self.portion = next;
            return Err(ErrorKind::WouldBlock.into());
        }
        self.portion.read(into)
    }
}

fuzz_target!(|input: &[u8]| {
    let request = |cookie: u64| {
        let asked = Asked { offset_bytes: cookie * 512, read_bytes: if cookie < 6 { 64 * cookie as u32 } else { 0 } };
        (cookie, (asked, vec![0xaa; asked.read_bytes as usize]))
    };
    let mut table = Table((0..8).map(request).collect());
    let mut replies = Replies::default();
    // The first byte says how the others come: in portions of that length, with nothing for now after each.
    let Some((portion_bytes, bytes)) = input.split_first() else { return };
    let portions = bytes.chunks(usize::from(*portion_bytes).max(1));
    let mut stream = Portions { portions, portion: &[] };
    loop {
        match replies.hear(&mut stream, &mut table) {
            Ok(ending) => assert!(table.0.remove(&ending.cookie).is_some(), "each request ends once"),
            Err(ClientError::Socket(error)) if error.kind() == ErrorKind::WouldBlock => {}
            Err(_) => return,
        }
    }
});
