//! Fetch: the range that a miss reads from the origin, and whether the request waits for the fill.

pub(crate) mod neighbourhood;
pub(crate) mod read_cost;
pub(crate) mod warm_up;

use crate::units::SectorRange;

/// The range that an admitted miss reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fetch {
    /// The range of the request, which is answered by that very read and does not wait for the fill.
    ///
    /// Source: bcache, EnhanceIO; bcache's `readahead` is off by default.
    Request {
        /// Read beyond its end; default 0, 0 to 1 048 576 bytes, a multiple of 512.
        readahead_bytes: u32,
    },
    /// The range of the request; it is answered when that range is in the cache, too.
    ///
    /// Source: flashcache 3.1.1, `flashcache_io_callback`: a read of the disk goes on as a write to the cache, and only
    /// the end of that is the end of the request.
    Filled,
    /// The range of the request, and what lies beside it as far as that pays, which stays in memory; see
    /// [`neighbourhood`].
    Neighbourhood {
        /// Memory for what was read beside; default 16 MiB.
        neighbour_bytes: u32,
    },
    /// Every frame that it touches, wholly.
    ///
    /// Source: dm-cache, which promotes whole blocks.
    Frame {
        /// The request waits for the copy and is served from it, as until Linux 4.11. Else it goes
        /// to the origin, and the copy reads the origin again.
        waits: bool,
    },
}

impl Fetch {
    /// The range that is read for `asked`, in a volume of `volume_sectors` with frames of `frame_sectors`.
    ///
    /// A frame at the end of a volume may be shorter than others.
    #[must_use]
    pub fn range(self, asked: SectorRange, frame_sectors: u64, volume_sectors: u64) -> SectorRange {
        assert!(asked.sectors > 0 && asked.end() <= volume_sectors, "a request lies in its volume");
        let (start, end) = match self {
            Fetch::Request { readahead_bytes } => {
                (asked.start, asked.end() + u64::from(readahead_bytes / 512))
            }
            Fetch::Filled | Fetch::Neighbourhood { .. } => (asked.start, asked.end()),
            Fetch::Frame { .. } => {
                (asked.start - asked.start % frame_sectors, asked.end().next_multiple_of(frame_sectors))
            }
        };
        SectorRange { start, sectors: end.min(volume_sectors) - start }
    }

    /// Whether the request waits until the missing range is in the cache.
    #[must_use]
    pub fn waits(self) -> bool {
        matches!(self, Fetch::Frame { waits: true } | Fetch::Filled)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(fetch: Fetch, start: u64, sectors: u64) -> (u64, u64) {
        let read = fetch.range(SectorRange { start, sectors }, 512, 100_000);
        (read.start, read.end())
    }

    #[test]
    fn a_request_reads_what_was_asked_for_and_ahead() {
        assert_eq!(range(Fetch::Request { readahead_bytes: 0 }, 1000, 8), (1000, 1008));
        assert_eq!(range(Fetch::Request { readahead_bytes: 65_536 }, 1000, 8), (1000, 1136));
        assert_eq!(range(Fetch::Request { readahead_bytes: 65_536 }, 99_900, 8), (99_900, 100_000));
    }

    #[test]
    fn a_frame_is_read_wholly() {
        let frame = Fetch::Frame { waits: true };
        assert_eq!(range(frame, 1000, 8), (512, 1024));
        assert_eq!(range(frame, 1000, 24), (512, 1024));
        assert_eq!(range(frame, 1000, 25), (512, 1536));
        assert_eq!(range(frame, 512, 512), (512, 1024));
        // 100 000 = 195 * 512 + 160.
        assert_eq!(range(frame, 99_999, 1), (99_840, 100_000));
        assert!(frame.waits() && !Fetch::Frame { waits: false }.waits());
        assert!(!Fetch::Request { readahead_bytes: 0 }.waits());
    }
}
