//! Memory of an operation: where the data of a write is, and where that of a read goes.

use std::io::{IoSlice, IoSliceMut};

/// Zeroes that are written where a server has no operation for them.
static ZEROES: [u8; 64 << 10] = [0; 64 << 10];

/// Parts of memory that hold an operation's data, one after the other.
///
/// The threads of a device use it until the operation is answered. Whoever makes it keeps the memory valid until
/// then, and lets nobody else write there, or read where the operation reads into.
#[derive(Clone, Debug, Default)]
pub(crate) struct Span {
    parts: Vec<libc::iovec>,
}

// SAFETY: the maker keeps the memory valid and unshared until the operation is answered, whichever thread uses it.
unsafe impl Send for Span {}
// SAFETY: shared, it only gives slices to read from; those to write to need it alone.
unsafe impl Sync for Span {}

impl Span {
    /// The memory that these vectors name.
    ///
    /// # Safety
    /// It stays valid until the operation is answered. Until then nobody writes to it; and nobody reads it, if the
    /// operation is a read.
    pub(crate) unsafe fn new(parts: &[libc::iovec]) -> Span {
        Span { parts: parts.to_vec() }
    }

    /// Zeroes to be written.
    pub(super) fn zeroes(len_bytes: u64) -> Span {
        let part = |len: u64| libc::iovec {
            iov_base: ZEROES.as_ptr().cast_mut().cast(),
            iov_len: usize::try_from(len).expect("at most the zeroes there are"),
        };
        let whole = ZEROES.len() as u64;
        let mut parts = vec![part(whole); usize::try_from(len_bytes / whole).expect("a request's length")];
        parts.extend(Some(len_bytes % whole).filter(|rest| *rest > 0).map(part));
        Span { parts }
    }

    /// The part of each vector that lies in a range of the operation's bytes.
    fn parts(&self, at_bytes: u64, len_bytes: u64) -> impl Iterator<Item = (*mut u8, usize)> + '_ {
        let end_bytes = at_bytes + len_bytes;
        let mut begins = 0;
        self.parts.iter().filter_map(move |part| {
            let (start, end) = (begins, begins + part.iov_len as u64);
            begins = end;
            let (from, to) = (start.max(at_bytes), end.min(end_bytes));
            (from < to).then(|| {
                let skip = usize::try_from(from - start).expect("inside a part");
                let len = usize::try_from(to - from).expect("inside a part");
                (part.iov_base.cast::<u8>().wrapping_add(skip), len)
            })
        })
    }

    /// A range of its bytes, to be read.
    pub(super) fn slices(&self, at_bytes: u64, len_bytes: u64) -> Vec<IoSlice<'_>> {
        // SAFETY: each part lies inside a vector, whose memory is valid, and not written to meanwhile.
        let slice = |(start, len): (*mut u8, usize)| unsafe { std::slice::from_raw_parts(start, len) };
        self.parts(at_bytes, len_bytes).map(|part| IoSlice::new(slice(part))).collect()
    }

    /// A range of its bytes, to be written to. Of one operation one thread at a time does that: the one that hears
    /// the replies of the connection on which it is under way.
    pub(super) fn slices_mut(&mut self, at_bytes: u64, len_bytes: u64) -> Vec<IoSliceMut<'_>> {
        // SAFETY: each part lies inside a vector, whose memory is valid and used by nobody else; vectors do not
        // overlap.
        let slice = |(start, len): (*mut u8, usize)| unsafe { std::slice::from_raw_parts_mut(start, len) };
        self.parts(at_bytes, len_bytes).map(|part| IoSliceMut::new(slice(part))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_cut_out_of_several_parts() {
        let (mut one, mut two) = (*b"abcd", *b"efgh");
        let vector =
            |bytes: &mut [u8]| libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
        // SAFETY: both arrays outlive it, and nobody else uses them.
        let mut span = unsafe { Span::new(&[vector(&mut one), vector(&mut two)]) };
        let text =
            |slices: Vec<IoSlice<'_>>| slices.iter().flat_map(|slice| slice.to_vec()).collect::<Vec<u8>>();
        assert_eq!(text(span.slices(0, 8)), b"abcdefgh");
        assert_eq!(text(span.slices(2, 4)), b"cdef");
        assert_eq!(text(span.slices(5, 2)), b"fg");
        assert_eq!(span.slices(4, 0).len(), 0);
        span.slices_mut(3, 2).iter_mut().for_each(|part| part.fill(b'-'));
        assert_eq!(text(span.slices(0, 8)), b"abc--fgh");
    }
}
