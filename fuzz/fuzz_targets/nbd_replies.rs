//! The client's side of NBD: replies to requests under way, from any bytes at all.
#![no_main]

use libfuzzer_sys::fuzz_target;
use live::nbd::replies::{Asked, Replies, Requests};
use std::collections::BTreeMap;
use std::io::{self, Read};

/// Requests with small cookies, so that bytes find them.
struct Table(BTreeMap<u64, (Asked, Vec<u8>)>);

impl Requests for Table {
    fn asked(&mut self, cookie: u64) -> Option<Asked> {
        self.0.get(&cookie).map(|(asked, _)| *asked)
    }

    fn take(&mut self, cookie: u64, at_bytes: u32, len_bytes: u32, input: &mut impl Read) -> io::Result<()> {
        let (_, data) = self.0.get_mut(&cookie).expect("it was asked for");
        input.read_exact(&mut data[at_bytes as usize..(at_bytes + len_bytes) as usize])
    }

    fn zero(&mut self, cookie: u64, at_bytes: u32, len_bytes: u32) {
        let (_, data) = self.0.get_mut(&cookie).expect("it was asked for");
        data[at_bytes as usize..(at_bytes + len_bytes) as usize].fill(0);
    }
}

fuzz_target!(|input: &[u8]| {
    let request = |cookie: u64| {
        let asked = Asked { offset_bytes: cookie * 512, read_bytes: if cookie < 6 { 64 * cookie as u32 } else { 0 } };
        (cookie, (asked, vec![0xaa; asked.read_bytes as usize]))
    };
    let mut table = Table((0..8).map(request).collect());
    let mut replies = Replies::default();
    let mut stream = input;
    while let Ok(ending) = replies.hear(&mut stream, &mut table) {
        assert!(table.0.remove(&ending.cookie).is_some(), "each request ends once");
    }
});
