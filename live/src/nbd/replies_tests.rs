use super::*;
use crate::nbd::wire::{simple_reply, structured_header};
use proptest::prelude::*;

/// Reads of 16 bytes at 512, under the cookies that are left.
struct Table {
    cookies: Vec<u64>,
    data: Vec<u8>,
}

impl Table {
    fn new() -> Table {
        Table { cookies: vec![1, 2], data: vec![0xee; 16] }
    }
}

impl Requests for Table {
    fn asked(&mut self, cookie: u64) -> Option<Asked> {
        self.cookies.contains(&cookie).then_some(Asked { offset_bytes: 512, read_bytes: 16 })
    }

    fn take(&mut self, _: u64, at_bytes: u32, len_bytes: u32, input: &mut impl Read) -> io::Result<usize> {
        input.read(&mut self.data[at_bytes as usize..(at_bytes + len_bytes) as usize])
    }

    fn zero(&mut self, _: u64, at_bytes: u32, len_bytes: u32) {
        self.data[at_bytes as usize..(at_bytes + len_bytes) as usize].fill(0);
    }
}

fn chunk(flags: u16, kind: u16, content: &[&[u8]]) -> Vec<u8> {
    let content = content.concat();
    let header = structured_header(flags, kind, 1, content.len() as u32);
    [&header[..], &content].concat()
}

fn data(flags: u16, offset_bytes: u64, bytes: &[u8]) -> Vec<u8> {
    chunk(flags, REPLY_TYPE_OFFSET_DATA, &[&offset_bytes.to_be_bytes(), bytes])
}

fn hear(table: &mut Table, bytes: &[u8]) -> Result<Ending, ClientError> {
    Replies::default().hear(&mut &bytes[..], table)
}

#[test]
fn pieces_in_any_order_make_up_a_read() {
    let mut table = Table::new();
    let hole = chunk(0, REPLY_TYPE_OFFSET_HOLE, &[&516_u64.to_be_bytes(), &8_u32.to_be_bytes()]);
    let bytes = [data(0, 524, b"wxyz"), hole, data(REPLY_FLAG_DONE, 512, b"abcd")].concat();
    assert_eq!(hear(&mut table, &bytes).unwrap(), Ending { cookie: 1, result: Ok(()) });
    assert_eq!(table.data, b"abcd\0\0\0\0\0\0\0\0wxyz");
}

#[test]
fn pieces_that_overlap_or_lie_outside_are_refused() {
    let twice = [data(0, 512, b"abcd"), data(0, 514, b"cdef")].concat();
    let gap = data(REPLY_FLAG_DONE, 512, b"abcd");
    let behind = data(0, 526, b"abcd");
    let before = data(0, 511, b"abcd");
    let empty = data(0, 512, b"");
    for bytes in [twice, gap, behind, before, empty] {
        assert!(matches!(hear(&mut Table::new(), &bytes), Err(ClientError::Pieces { cookie: 1 })));
    }
}

/// A server may send a long read byte by byte: what has come is neither kept byte by byte nor gone through for each.
#[test]
fn pieces_that_meet_are_one() {
    let mut partial = Partial::default();
    // From both ends to the middle.
    for at in 0..1 << 19 {
        assert!(partial.add(at, at + 1) && partial.add((1 << 20) - at - 1, (1 << 20) - at));
        assert!(partial.stretches.len() <= 2);
    }
    assert!(partial.is_whole(1 << 20) && partial.stretches.len() == 1);
}

/// A read of 64 KiB, and a server that answers with the same kind of chunk again and again.
struct Long;

impl Requests for Long {
    fn asked(&mut self, _: u64) -> Option<Asked> {
        Some(Asked { offset_bytes: 0, read_bytes: 64 << 10 })
    }

    fn take(&mut self, _: u64, _: u32, len_bytes: u32, input: &mut impl Read) -> io::Result<usize> {
        input.read(&mut vec![0; len_bytes as usize])
    }

    fn zero(&mut self, _: u64, _: u32, _: u32) {}
}

/// An input that makes up chunk after chunk, at most so many.
struct Endless<F> {
    next: F,
    chunks: u64,
    chunks_max: u64,
    rest: Vec<u8>,
}

impl<F: FnMut(u64) -> Vec<u8>> Read for Endless<F> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.rest.is_empty() {
            assert!(self.chunks < self.chunks_max, "no reply has so many chunks");
            self.rest = (self.next)(self.chunks);
            self.chunks += 1;
        }
        let some = into.len().min(self.rest.len());
        into[..some].copy_from_slice(&self.rest[..some]);
        self.rest.drain(..some);
        Ok(some)
    }
}

#[test]
fn a_reply_without_end_is_refused() {
    let none: fn(u64) -> Vec<u8> = |_| chunk(0, REPLY_TYPE_NONE, &[]);
    let error: fn(u64) -> Vec<u8> =
        |_| chunk(0, REPLY_TYPE_ERROR, &[&5_u32.to_be_bytes(), &0_u16.to_be_bytes()]);
    // Each second byte, so that no piece meets another one.
    let apart: fn(u64) -> Vec<u8> = |at| data(0, 2 * at, b"x");
    for (next, chunks_max) in [(none, 1), (error, 130), (apart, 66)] {
        let mut input = Endless { next, chunks: 0, chunks_max, rest: Vec::new() };
        let heard = Replies::default().hear(&mut input, &mut Long);
        assert!(matches!(heard, Err(ClientError::Parts { cookie: 1 })), "{heard:?}");
    }
}

/// A server may tell of each second sector that it is a hole, and of each sector that it cannot be read.
#[test]
fn a_reply_in_sectors_is_heard() {
    let sectors = 128_u64;
    let hole = |at: u64| {
        chunk(0, REPLY_TYPE_OFFSET_HOLE, &[&(at * SECTOR_BYTES).to_be_bytes(), &512_u32.to_be_bytes()])
    };
    let holes = (0..sectors).step_by(2).map(hole);
    let rest = (1..sectors).step_by(2).map(|at| data(0, at * SECTOR_BYTES, &[7; 512]));
    let errors = (0..sectors).map(|at| {
        let words: [&[u8]; 3] =
            [&5_u32.to_be_bytes(), &0_u16.to_be_bytes(), &(at * SECTOR_BYTES).to_be_bytes()];
        chunk(0, REPLY_TYPE_ERROR_OFFSET, &words)
    });
    let end = chunk(REPLY_FLAG_DONE, REPLY_TYPE_NONE, &[]);
    for (parts, result) in
        [(holes.chain(rest).collect::<Vec<_>>(), Ok(())), (errors.collect(), Err(Errno::IO))]
    {
        let bytes = [parts.concat(), end.clone()].concat();
        let heard = Replies::default().hear(&mut &bytes[..], &mut Long);
        assert_eq!(heard.expect("a whole reply"), Ending { cookie: 1, result });
    }
}

#[test]
fn a_second_answer_is_an_answer_to_nothing() {
    let mut table = Table::new();
    let none = chunk(REPLY_FLAG_DONE, REPLY_TYPE_ERROR, &[&5_u32.to_be_bytes(), &0_u16.to_be_bytes()]);
    assert_eq!(hear(&mut table, &none).unwrap().result, Err(Errno::IO));
    table.cookies.retain(|cookie| *cookie != 1);
    assert!(matches!(hear(&mut table, &none), Err(ClientError::Stray { cookie: 1 })));
}

proptest! {
    /// Any pieces are taken or refused as bytes that are noted one by one say.
    #[test]
    fn each_byte_comes_once(pieces in prop::collection::vec((0_u32..40, 1_u32..8), 0..30)) {
        let (mut partial, mut bytes) = (Partial::default(), [false; 48]);
        for (start, len) in pieces {
            let range = &mut bytes[start as usize..(start + len) as usize];
            let is_new = range.iter().all(|has_come| !has_come);
            if is_new {
                range.fill(true);
            }
            prop_assert_eq!(partial.add(start, start + len), is_new);
        }
    }

    /// Good replies with some bytes changed, cut off somewhere: heard as a whole, and as they trickle in.
    #[test]
    fn any_bytes_are_heard_or_refused(
        changes in prop::collection::vec((0_usize..150, any::<u8>()), 0..8),
        end in 0_usize..150,
        portions in prop::collection::vec(1_usize..40, 1..20),
    ) {
        let hole = chunk(0, REPLY_TYPE_OFFSET_HOLE, &[&520_u64.to_be_bytes(), &8_u32.to_be_bytes()]);
        let words: [&[u8]; 4] = [&5_u32.to_be_bytes(), &3_u16.to_be_bytes(), b"why", &514_u64.to_be_bytes()];
        let error = chunk(0, REPLY_TYPE_ERROR_OFFSET, &words);
        let last = data(REPLY_FLAG_DONE, 512, b"abcdefgh");
        let mut bytes = [hole, error, last, simple_reply(2, Ok(())).to_vec(), vec![b'x'; 16]].concat();
        for (at, byte) in changes {
            if let Some(place) = bytes.get_mut(at) {
                *place = byte;
            }
        }
        bytes.truncate(end);
        let (mut whole, mut trickled) = (Table::new(), Table::new());
        let at_once = hear_all(&mut whole, &mut &bytes[..]);
        let mut trickle = Trickle { rest: &bytes, portions: portions.into_iter().cycle(), left: 0 };
        prop_assert_eq!(at_once, hear_all(&mut trickled, &mut trickle));
        prop_assert_eq!(whole.data, trickled.data);
    }
}

/// An input that has nothing for now after each portion.
struct Trickle<'b, P> {
    rest: &'b [u8],
    portions: P,
    left: usize,
}

impl<P: Iterator<Item = usize>> Read for Trickle<'_, P> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.left == 0 && !self.rest.is_empty() {
            self.left = self.portions.next().expect("they come again");
            return Err(ErrorKind::WouldBlock.into());
        }
        let some = into.len().min(self.left);
        let read = self.rest.read(&mut into[..some])?;
        self.left -= read;
        Ok(read)
    }
}

/// Hears all there is; how the requests ended, and why there is no more.
fn hear_all(table: &mut Table, input: &mut impl Read) -> (Vec<Ending>, String) {
    let (mut replies, mut endings) = (Replies::default(), Vec::new());
    loop {
        match replies.hear(input, table) {
            Ok(ending) => {
                assert!(table.cookies.contains(&ending.cookie), "each request ends once");
                table.cookies.retain(|cookie| *cookie != ending.cookie);
                endings.push(ending);
            }
            Err(ClientError::Socket(error)) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return (endings, error.to_string()),
        }
    }
}
