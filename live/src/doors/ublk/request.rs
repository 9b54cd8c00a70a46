//! Requests of a ublk queue: judged before the core sees them, and as they are under way.

use crate::doors::Export;
use crate::doors::offers::Arrival;
use crate::doors::pieces::{Cut, Kind, cut};
use crate::kernel::ublk::{Asked, Op, REQUEST_BYTES_MAX};
use engine::effect::Errno;
use engine::units::{SECTOR_BYTES, SectorRange};

/// A request that a tag has.
#[derive(Debug)]
pub(super) struct Request {
    pub kind: Kind,
    pub fua: bool,
    pub offset_bytes: u64,
    pub len_bytes: u64,
    /// Bytes of it that were handed on.
    pub issued_bytes: u64,
    /// Pieces that the core has not answered.
    pub outstanding: u32,
    /// The first error.
    pub errno: Option<Errno>,
    /// Its arrival, once that was told.
    pub arrival: Option<Arrival>,
}

impl Request {
    /// The request that was asked of an export, if it may be done.
    ///
    /// # Errors
    /// The answer to a request that is refused.
    pub(super) fn accept(asked: Asked, export: Option<&Export>) -> Result<Request, Errno> {
        let export = export.ok_or(Errno::NODEV)?;
        let kind = match asked.op {
            Op::Read => Kind::Read,
            Op::Write => Kind::Write,
            Op::Flush => Kind::Flush,
            Op::Discard => Kind::Trim,
            Op::WriteZeroes => Kind::WriteZeroes,
            Op::Other => return Err(Errno::OPNOTSUPP),
        };
        if export.read_only && !matches!(kind, Kind::Read | Kind::Flush) {
            return Err(Errno::PERM);
        }
        let mut request = Request {
            kind,
            fua: asked.fua,
            offset_bytes: 0,
            len_bytes: 0,
            issued_bytes: 0,
            outstanding: 0,
            errno: None,
            arrival: None,
        };
        if kind == Kind::Flush {
            return Ok(request);
        }
        let sectors = u64::from(asked.sectors);
        let end = asked.start.checked_add(sectors).ok_or(Errno::INVAL)?;
        let has_data = matches!(kind, Kind::Read | Kind::Write);
        let is_allowed = sectors > 0
            && end <= export.announced_bytes() / SECTOR_BYTES
            && !(has_data && sectors * SECTOR_BYTES > u64::from(REQUEST_BYTES_MAX));
        if !is_allowed {
            return Err(Errno::INVAL);
        }
        request.offset_bytes = asked.start * SECTOR_BYTES;
        request.len_bytes = sectors * SECTOR_BYTES;
        Ok(request)
    }

    /// Its range; empty for a flush.
    pub(super) fn range(&self) -> SectorRange {
        SectorRange { start: self.offset_bytes / SECTOR_BYTES, sectors: self.len_bytes / SECTOR_BYTES }
    }

    /// The next piece that the core takes at once; `None` when there is no more.
    pub(super) fn next_cut(&self) -> Option<Cut> {
        cut(self.kind, self.offset_bytes + self.issued_bytes, self.len_bytes - self.issued_bytes)
    }

    /// Whether nothing more of it will be handed to the core.
    pub(super) fn is_issued(&self) -> bool {
        self.issued_bytes == self.len_bytes
    }

    /// Stops handing on pieces. Those handed on are carried out.
    pub(super) fn cut_short(&mut self) {
        self.len_bytes = self.issued_bytes;
    }

    /// The answer: an errno, or the bytes of the data that were moved.
    pub(super) fn result(&self) -> i32 {
        match (self.errno, self.kind) {
            (Some(errno), _) => -errno.0,
            (None, Kind::Read | Kind::Write) => i32::try_from(self.len_bytes).expect("at most the limit"),
            (None, _) => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn export(size_bytes: u64, read_only: bool) -> Export {
        let (name, description) = ("disk".to_owned(), String::new());
        Export { name, description, size_bytes, min_block_bytes: 512, read_only }
    }

    fn asked(op: Op, start: u64, sectors: u32) -> Asked {
        Asked { op, fua: false, start, sectors }
    }

    fn judge(asked: Asked, export: &Export) -> Result<(Kind, u64, u64), Errno> {
        let request = Request::accept(asked, Some(export))?;
        Ok((request.kind, request.offset_bytes, request.len_bytes))
    }

    #[test]
    fn what_the_export_allows_is_accepted() {
        let (disk, kept) = (export(1 << 20, false), export(1 << 20, true));
        assert_eq!(judge(asked(Op::Read, 2040, 8), &disk), Ok((Kind::Read, 2040 * 512, 4096)));
        assert_eq!(judge(asked(Op::Flush, 9999, 0), &disk), Ok((Kind::Flush, 0, 0)));
        assert_eq!(judge(asked(Op::Discard, 0, 2048), &disk), Ok((Kind::Trim, 0, 1 << 20)));
        assert_eq!(judge(asked(Op::Read, 0, 1), &kept), Ok((Kind::Read, 0, 512)));
        for (op, start, sectors, errno) in [
            (Op::Read, 2041, 8, Errno::INVAL),
            (Op::Write, u64::MAX, 1, Errno::INVAL),
            (Op::Write, 0, 0, Errno::INVAL),
            (Op::Read, 0, 1025, Errno::INVAL),
            (Op::Other, 0, 1, Errno::OPNOTSUPP),
        ] {
            assert_eq!(judge(asked(op, start, sectors), &disk), Err(errno), "{op:?} {start} {sectors}");
        }
        assert_eq!(judge(asked(Op::WriteZeroes, 0, 1), &kept), Err(Errno::PERM));
        let gone = Request::accept(asked(Op::Read, 0, 1), None);
        assert_eq!(gone.map(|request| request.kind), Err(Errno::NODEV));
    }

    #[test]
    fn an_answer_is_the_bytes_or_the_error() {
        let disk = export(1 << 20, false);
        let mut write = Request::accept(asked(Op::Write, 0, 8), Some(&disk)).unwrap();
        assert_eq!(write.result(), 4096);
        write.errno = Some(Errno::NOSPC);
        assert_eq!(write.result(), -28);
        let flush = Request::accept(asked(Op::Flush, 0, 0), Some(&disk)).unwrap();
        assert_eq!(flush.result(), 0);
    }

    proptest! {
        /// No request that is accepted reaches beyond the export.
        #[test]
        fn nothing_beyond_the_end_is_accepted(start: u64, sectors: u32, size_bytes in 0u64..1 << 40) {
            for op in [Op::Read, Op::Write, Op::Discard, Op::WriteZeroes] {
                if let Ok((_, offset_bytes, len_bytes)) = judge(asked(op, start, sectors), &export(size_bytes, false)) {
                    prop_assert!(offset_bytes + len_bytes <= size_bytes && len_bytes > 0);
                }
            }
        }
    }
}
