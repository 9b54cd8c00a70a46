use super::*;
use crate::nbd::wire::structured_header;
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

    fn take(&mut self, _: u64, at_bytes: u32, len_bytes: u32, input: &mut impl Read) -> io::Result<()> {
        input.read_exact(&mut self.data[at_bytes as usize..(at_bytes + len_bytes) as usize])
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

#[test]
fn a_second_answer_is_an_answer_to_nothing() {
    let mut table = Table::new();
    let none = chunk(REPLY_FLAG_DONE, REPLY_TYPE_ERROR, &[&5_u32.to_be_bytes(), &0_u16.to_be_bytes()]);
    assert_eq!(hear(&mut table, &none).unwrap().result, Err(Errno::IO));
    table.cookies.retain(|cookie| *cookie != 1);
    assert!(matches!(hear(&mut table, &none), Err(ClientError::Stray { cookie: 1 })));
}

proptest! {
    /// Good replies with some bytes changed, cut off somewhere.
    #[test]
    fn any_bytes_are_heard_or_refused(
        changes in prop::collection::vec((0_usize..90, any::<u8>()), 0..8),
        end in 0_usize..90,
    ) {
        let hole = chunk(0, REPLY_TYPE_OFFSET_HOLE, &[&520_u64.to_be_bytes(), &8_u32.to_be_bytes()]);
        let mut bytes = [hole, data(REPLY_FLAG_DONE, 512, b"abcdefgh"), vec![0; 16]].concat();
        for (at, byte) in changes {
            if let Some(place) = bytes.get_mut(at) {
                *place = byte;
            }
        }
        bytes.truncate(end);
        let mut table = Table::new();
        let mut replies = Replies::default();
        let mut stream = &bytes[..];
        while let Ok(ending) = replies.hear(&mut stream, &mut table) {
            prop_assert!(table.cookies.contains(&ending.cookie));
            table.cookies.retain(|cookie| *cookie != ending.cookie);
        }
    }
}
