//! Reading the two copies of the superblock: the newer whole one counts.

use crate::effect::Errno;
use crate::format::{FormatError, SUPERBLOCK_BYTES, SUPERBLOCK_OFFSETS, Succession, Superblock};
use crate::image::Image;
use crate::number::wide;

/// Why a device cannot be used as a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SuperblockError {
    /// No copy has the magic.
    #[error("The device is not formatted as a cache")]
    NotFormatted,
    /// A copy has the magic, none is whole.
    #[error("Both copies of the superblock are damaged")]
    Damaged,
    /// The cache has another format.
    #[error("The cache has format version {found}, this program knows version {supported}")]
    Version {
        /// The version on the device.
        found: u16,
        /// The version of this program.
        supported: u16,
    },
    /// The device is smaller than it was.
    #[error("The cache device has {device_bytes} bytes, it had {cache_bytes} when it was formatted")]
    DeviceTooSmall {
        /// Its size now.
        device_bytes: u64,
        /// Its size when it was formatted.
        cache_bytes: u64,
    },
    /// The copies are from two caches.
    #[error("The two copies of the superblock are from different caches")]
    MixedSets,
    /// The device failed a read, and the other copy is no help.
    #[error("The superblock cannot be read at byte {offset_bytes} (errno {})", errno.0)]
    Device {
        /// The copy's offset.
        offset_bytes: u64,
        /// The device's error.
        errno: Errno,
    },
}

/// The condition of one copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyHealth {
    /// Whole and the newest.
    Current,
    /// Whole, but the other one is newer.
    Older,
    /// Not a superblock, or a damaged one.
    Bad(FormatError),
    /// The device could not read it.
    Unreadable(Errno),
    /// Beyond the device's end.
    Outside,
}

impl CopyHealth {
    /// Whether the copy is a superblock, the newest one or an older one.
    pub(crate) fn is_whole(self) -> bool {
        matches!(self, CopyHealth::Current | CopyHealth::Older)
    }
}

/// The condition of both copies.
pub type CopyState = [CopyHealth; 2];

/// Reads both copies of the superblock; the whole one with the highest update counts.
///
/// # Errors
/// [`SuperblockError`].
pub fn load_superblock<I: Image>(image: &mut I) -> Result<(Superblock, CopyState), SuperblockError> {
    let mut state = [CopyHealth::Outside; 2];
    let mut copies = [None, None];
    for (at, offset) in SUPERBLOCK_OFFSETS.into_iter().enumerate() {
        if offset + wide(SUPERBLOCK_BYTES) > image.size_bytes() {
            continue;
        }
        state[at] = match image.read(offset, SUPERBLOCK_BYTES) {
            Err(errno) => CopyHealth::Unreadable(errno),
            Ok(bytes) => match Superblock::decode(&bytes) {
                Err(error) => CopyHealth::Bad(error),
                Ok(superblock) => {
                    copies[at] = Some(superblock);
                    CopyHealth::Current
                }
            },
        };
    }
    let mut superblock = match copies {
        [Some(a), Some(b)] => {
            // RULE 16: a cache that is made anew on its own device says in its last superblock whose place it gives up.
            let gives_up_to = |one: &Superblock, other: &Superblock| match one.line.succession {
                Succession::Remade { by, .. } => by == other.set_id,
                _ => false,
            };
            if a.set_id != b.set_id && !gives_up_to(&a, &b) && !gives_up_to(&b, &a) {
                return Err(SuperblockError::MixedSets);
            }
            if a.update < b.update {
                state[0] = CopyHealth::Older;
                b
            } else {
                if b.update < a.update {
                    state[1] = CopyHealth::Older;
                }
                a
            }
        }
        [Some(superblock), None] | [None, Some(superblock)] => superblock,
        [None, None] => return Err(why_none(state)),
    };
    if image.size_bytes() < superblock.cache_bytes {
        return Err(SuperblockError::DeviceTooSmall {
            device_bytes: image.size_bytes(),
            cache_bytes: superblock.cache_bytes,
        });
    }
    // RULE 5: the process ended, and memory tells what the device does not yet.
    if let Some(note) = image.flush_note().filter(|note| note.is_of(&superblock)) {
        superblock.flushed_sequence = superblock.flushed_sequence.max(note.sequence);
    }
    Ok((superblock, state))
}

/// The most telling of the reasons why neither copy is usable.
fn why_none(state: CopyState) -> SuperblockError {
    for health in state {
        if let CopyHealth::Bad(FormatError::Version { found, supported }) = health {
            return SuperblockError::Version { found, supported };
        }
    }
    for (health, offset_bytes) in state.into_iter().zip(SUPERBLOCK_OFFSETS) {
        if let CopyHealth::Unreadable(errno) = health {
            return SuperblockError::Device { offset_bytes, errno };
        }
    }
    let is_damaged = state
        .into_iter()
        .any(|health| matches!(health, CopyHealth::Bad(error) if error != FormatError::Magic));
    if is_damaged { SuperblockError::Damaged } else { SuperblockError::NotFormatted }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::FlushNote;
    use crate::mutation::Mutations;
    use crate::store::log::scan::testlog::{CACHE_BYTES, TestLog};
    use std::vec;

    #[test]
    fn chooses_the_newer_whole_copy_of_the_superblock() {
        let mut log = TestLog::new();
        log.superblock.update = 2;
        let mut bytes = vec![0; SUPERBLOCK_BYTES];
        log.superblock.encode(&mut bytes);
        log.disk.write(SUPERBLOCK_OFFSETS[1], &bytes).unwrap();
        log.disk.flush().unwrap();
        let (found, copies) = load_superblock(&mut log.disk).unwrap();
        assert_eq!((found.update, copies), (2, [CopyHealth::Older, CopyHealth::Current]));
        log.disk.bytes[crate::number::index_wide(SUPERBLOCK_OFFSETS[1]) + 5000] ^= 1;
        let (found, copies) = load_superblock(&mut log.disk).unwrap();
        assert_eq!(
            (found.update, copies),
            (1, [CopyHealth::Current, CopyHealth::Bad(FormatError::Checksum)])
        );
        log.disk.bytes[70] ^= 1;
        assert_eq!(load_superblock(&mut log.disk).unwrap_err(), SuperblockError::Damaged);
        log.disk.bytes[..1 << 20].fill(0);
        assert_eq!(load_superblock(&mut log.disk).unwrap_err(), SuperblockError::NotFormatted);
    }

    #[test]
    fn the_only_new_copy_is_written_last() {
        let mut log = TestLog::new();
        log.superblock.update = 2;
        let mut bytes = vec![0; SUPERBLOCK_BYTES];
        log.superblock.encode(&mut bytes);
        log.disk.write(SUPERBLOCK_OFFSETS[0], &bytes).unwrap();
        log.disk.flush().unwrap();
        let mut newer = log.superblock.clone();
        newer.update = 3;
        // Behind the tear, too, there is something new.
        newer.composition = "a = b".into();
        let mut torn = Torn { disk: &mut log.disk, is_over: false };
        crate::recovery::write_superblock(&mut torn, &newer, Mutations::NONE).unwrap_err();
        let (found, _) = load_superblock(&mut log.disk).unwrap();
        assert_eq!(found.update, 2, "a cut brings back nothing that was there before");
    }

    /// A device beside whose memory there is a note.
    struct Noted<'a, I> {
        disk: &'a mut I,
        note: FlushNote,
    }

    impl<I: Image> Image for Noted<'_, I> {
        fn size_bytes(&self) -> u64 {
            self.disk.size_bytes()
        }

        fn read_group(&mut self, reads: &mut [crate::image::ReadAt]) {
            self.disk.read_group(reads);
        }

        fn write(&mut self, _: u64, _: &[u8]) -> Result<(), Errno> {
            Err(Errno::IO)
        }

        fn flush(&mut self) -> Result<(), Errno> {
            Err(Errno::IO)
        }

        fn flush_note(&self) -> Option<FlushNote> {
            Some(self.note)
        }
    }

    #[test]
    fn a_note_of_a_flush_counts_for_its_own_session() {
        let mut log = TestLog::new();
        let Superblock { set_id, session, .. } = log.superblock;
        let note = FlushNote { set_id, session, sequence: 1000 };
        let mut flushed =
            |note| load_superblock(&mut Noted { disk: &mut log.disk, note }).unwrap().0.flushed_sequence;
        assert_eq!(flushed(note), 1000);
        assert!(flushed(FlushNote { session: session + 1, ..note }) < 1000);
        assert!(flushed(FlushNote { set_id: [0xEE; 16], ..note }) < 1000);
        log.superblock.clean_stop = true;
        let mut bytes = vec![0; SUPERBLOCK_BYTES];
        log.superblock.encode(&mut bytes);
        SUPERBLOCK_OFFSETS.iter().for_each(|offset| log.disk.write(*offset, &bytes).unwrap());
        let (found, _) = load_superblock(&mut Noted { disk: &mut log.disk, note }).unwrap();
        assert!(found.flushed_sequence < 1000, "a clean stop has told all");
    }

    /// Fails in the middle of its first write.
    struct Torn<'a, I> {
        disk: &'a mut I,
        is_over: bool,
    }

    impl<I: Image> Image for Torn<'_, I> {
        fn size_bytes(&self) -> u64 {
            self.disk.size_bytes()
        }

        fn read_group(&mut self, reads: &mut [crate::image::ReadAt]) {
            self.disk.read_group(reads);
        }

        fn write(&mut self, offset_bytes: u64, bytes: &[u8]) -> Result<(), Errno> {
            assert!(!std::mem::replace(&mut self.is_over, true), "one write");
            self.disk.write(offset_bytes, &bytes[..4096])?;
            self.disk.flush()?;
            Err(Errno::IO)
        }

        fn flush(&mut self) -> Result<(), Errno> {
            Err(Errno::IO)
        }
    }

    /// Goal: a cache that was given up while it was formatted never comes back. Method: its superblock is torn behind its first
    /// sector, and then that of the next one is torn within its first sector, with and without voiding in between.
    #[test]
    fn a_torn_write_over_a_torn_one_makes_no_whole_superblock() {
        for is_voided in [false, true] {
            let mut log = TestLog::new();
            log.disk.bytes[..1 << 20].fill(0xff);
            let mut bytes = vec![0; SUPERBLOCK_BYTES];
            log.superblock.encode(&mut bytes);
            let is_void = |sector: &[u8]| sector.iter().all(|byte| *byte == crate::recovery::VOID);
            assert!(!bytes.chunks(512).any(is_void), "nor does voiding put one in place when it is torn");
            log.disk.bytes[..512].copy_from_slice(&bytes[..512]);
            assert_eq!(load_superblock(&mut log.disk).unwrap_err(), SuperblockError::Damaged);
            if is_voided {
                crate::recovery::void_superblocks(&mut log.disk).unwrap();
            }
            log.superblock.set_id = [8; 16];
            log.superblock.encode(&mut bytes);
            log.disk.bytes[512..SUPERBLOCK_BYTES].copy_from_slice(&bytes[512..]);
            assert_eq!(load_superblock(&mut log.disk).is_ok(), !is_voided);
        }
    }

    #[test]
    fn refuses_a_device_that_was_shortened_or_mixed() {
        let mut log = TestLog::new();
        log.disk.bytes.truncate(100 << 10);
        assert_eq!(
            load_superblock(&mut log.disk).unwrap_err(),
            SuperblockError::DeviceTooSmall { device_bytes: 100 << 10, cache_bytes: CACHE_BYTES }
        );
        let mut log = TestLog::new();
        log.superblock.set_id = [8; 16];
        let mut bytes = vec![0; SUPERBLOCK_BYTES];
        log.superblock.encode(&mut bytes);
        log.disk.write(SUPERBLOCK_OFFSETS[0], &bytes).unwrap();
        assert_eq!(load_superblock(&mut log.disk).unwrap_err(), SuperblockError::MixedSets);
    }
}
