//! Verifies a cache that is not running: both copies of the superblock, and every head, header, summary and
//! payload block of the log, or every record of a slot, and every block of it whose checksum is known.

use crate::composition::Composition;
use crate::format::{
    EntryKind, FormatError, Layout, SEGMENTS_OFFSET, SUPERBLOCK_OFFSETS, SlotLayout, SummaryBatch, Superblock,
};
use crate::image::Image;
use crate::mutation::Mutations;
use crate::number::{index, index_wide, to_u32, wide};
use crate::recovery::{
    self, CopyHealth, CopyState, KnownBlock, OpenError, Opened, Options, SuperblockError, load_superblock,
};
use crate::store::log::checkpoint;
use crate::store::log::scan::keys::{places_of, split};
use crate::store::log::scan::{BatchRecord, Damage, ScanError, Span, Survey, Walk, read_group_into, survey};
use crate::store::slots::recovery::check::{self as slots, AreaDamage, Found, RecordError};
use crate::units::{BLOCK_BYTES, Place, SECTORS_PER_BLOCK, payload_checksum};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// Errors that a report lists at the most; all are counted.
const ERRORS_MAX: usize = 1000;
/// Blocks that are read at a time: 8 MiB, as a group of smaller reads.
const WINDOW_BLOCKS: u32 = 2048;

/// One damaged place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckError {
    /// The segment; `None` for the superblock and in slots.
    pub segment: Option<u32>,
    /// The slot; `None` for the superblock and in a log.
    pub slot: Option<u32>,
    /// The offset on the device.
    pub offset_bytes: u64,
    /// The damage.
    pub what: Wrong,
}

/// A kind of damage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Wrong {
    /// In a superblock or a log.
    #[error(transparent)]
    Damage(#[from] Damage),
    /// In the record of a slot.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// In a page of the slots' checksums.
    #[error("the checksums of slots are damaged: {0}")]
    Checksums(FormatError),
}

/// The findings of a check.
#[derive(Clone, Debug)]
pub struct Report {
    /// Whether nothing is wrong. An end torn by a crash is not wrong.
    pub ok: bool,
    /// The superblock, if one can be trusted.
    pub superblock: Option<Superblock>,
    /// Why there is no superblock.
    pub superblock_error: Option<SuperblockError>,
    /// Why the log cannot be used as it is; the rest of the report is then about what a repair would leave.
    pub log_error: Option<ScanError>,
    /// Why the slots cannot be used as they are.
    pub slots_error: Option<OpenError>,
    /// The damaged places in detail: the first 1000.
    pub errors: Vec<CheckError>,
    /// The number of damaged places.
    pub errors_count: u64,
    /// Segments of the log.
    pub segments: u64,
    /// Batches in them.
    pub batches: u64,
    /// Entries in those.
    pub entries: u64,
    /// Payload blocks whose checksum was compared, those included that do not count any more.
    pub payload_blocks_verified: u64,
    /// Batches behind the end of the log, whole or torn, left by a crash.
    pub batches_cut: u64,
    /// Copies of the superblock that are torn beside a whole one, as a power cut leaves one while it is written. After a
    /// clean stop that is damage.
    pub superblock_copies_torn: u64,
    /// Slots.
    pub slots: u64,
    /// Slots of which something is recorded that counts.
    pub records: u64,
}

/// Verifies the cache on `image`; nothing is written.
#[must_use]
pub fn check<I: Image>(image: &mut I) -> Report {
    let mut report = Report {
        ok: false,
        superblock: None,
        superblock_error: None,
        log_error: None,
        slots_error: None,
        errors: Vec::new(),
        errors_count: 0,
        segments: 0,
        batches: 0,
        entries: 0,
        payload_blocks_verified: 0,
        batches_cut: 0,
        superblock_copies_torn: 0,
        slots: 0,
        records: 0,
    };
    match load_superblock(image) {
        Err(error) => {
            report.superblock_error = Some(error);
            report.errors_count += 1;
        }
        Ok((superblock, copies)) => {
            report.add_copies(copies, superblock.clean_stop);
            match superblock.layout {
                Layout::Log(_) | Layout::Keys(_) | Layout::Frames(_) => report.check_log(image, &superblock),
                Layout::Slots(layout) => report.check_slots(image, &superblock, &layout),
            }
            report.superblock = Some(superblock);
        }
    }
    report.ok = report.errors_count == 0;
    report
}

/// Makes a cache usable that cannot be opened as it is: cuts its log at the damage, or takes the records of slots back
/// that cannot be right. What these told of is lost. Answers how many slots those were. Of blocks whose checksums rotted
/// nothing is known then.
///
/// # Errors
/// [`OpenError`], if there is more wrong than that.
pub fn repair<I: Image>(image: &mut I, index_budget_bytes: u64) -> Result<u64, OpenError> {
    let (superblock, _) = load_superblock(image)?;
    match superblock.layout {
        Layout::Log(_) | Layout::Keys(_) | Layout::Frames(_) => {
            let options = Options { index_budget_bytes, repair: true, mutations: Mutations::NONE };
            recovery::open(image, options).map(|_| 0)
        }
        Layout::Slots(layout) => {
            let composition = Composition::of(&superblock)?;
            slots::repair(image, &superblock, &layout, &composition)
        }
    }
}

impl Report {
    fn add(&mut self, segment: Option<u32>, offset_bytes: u64, what: Damage) {
        self.push(CheckError { segment, slot: None, offset_bytes, what: what.into() });
    }

    fn push(&mut self, error: CheckError) {
        self.errors_count += 1;
        if self.errors.len() < ERRORS_MAX {
            self.errors.push(error);
        }
    }

    fn check_log<I: Image>(&mut self, image: &mut I, superblock: &Superblock) {
        let Some(survey) = self.survey_log(image, superblock) else { return };
        self.batches_cut = survey.seen_sequence.saturating_sub(survey.end.sequence);
        let mut keys = Keys::new();
        for span in &survey.spans {
            self.segments += 1;
            self.check_segment(image, superblock, span, survey.flushed_sequence, &mut keys);
        }
        self.check_keys(image, keys);
        if let Some(offset_bytes) = checkpoint::compare::doubted(image, superblock) {
            self.add(None, offset_bytes, Damage::CheckpointDiffers);
        }
    }

    fn check_slots<I: Image>(&mut self, image: &mut I, superblock: &Superblock, layout: &SlotLayout) {
        self.slots = u64::from(layout.shape().frames);
        match Composition::of(superblock) {
            Err(error) => self.slots_error = Some(error.into()),
            Ok(composition) => {
                let walked = slots::walk(image, superblock, layout, &composition, &mut |found| match found {
                    Found::Record(recorded) => self.records += u64::from(!recorded.is_void),
                    Found::Error { slot, page_offset_bytes: offset_bytes, error } => {
                        let what = error.into();
                        self.push(CheckError { segment: None, slot: Some(slot), offset_bytes, what });
                    }
                });
                self.slots_error = walked.err();
                slots::each_area(image, superblock, (layout, composition.safe), |area, checksums| {
                    let offset_bytes = layout.checksum_page_offset_bytes(area);
                    let what = match checksums {
                        Ok(_) => return,
                        Err(AreaDamage::Unreadable(errno)) => Damage::Unreadable(errno).into(),
                        Err(AreaDamage::Rotten(error)) => Wrong::Checksums(error),
                    };
                    self.push(CheckError { segment: None, slot: None, offset_bytes, what });
                });
                // The very judge of a start has the last word.
                let options = Options { index_budget_bytes: 0, repair: false, mutations: Mutations::NONE };
                match recovery::inspect(image, options) {
                    Ok(opened) => self.check_slot_data(image, &opened),
                    Err(error) => self.slots_error = Some(error),
                }
            }
        }
        if self.slots_error.is_some() && self.errors_count == 0 {
            self.errors_count += 1;
        }
    }

    /// Verifies the blocks of slots whose checksums the device tells; lost ones are known to be rotten.
    fn check_slot_data<I: Image>(&mut self, image: &mut I, opened: &Opened) {
        opened.each_known_block(&mut |slot, blocks| {
            let reads = blocks.iter().map(|block| (block.offset_bytes, index_wide(BLOCK_BYTES)));
            let mut group = Vec::new();
            read_group_into(image, reads, &mut group);
            for (read, &KnownBlock { offset_bytes, checksum }) in group.iter().zip(blocks) {
                let what = match read.result {
                    Err(errno) => Damage::Unreadable(errno),
                    Ok(()) if payload_checksum(&read.bytes) != checksum => Damage::Payload,
                    Ok(()) => continue,
                };
                self.push(CheckError { segment: None, slot: Some(slot), offset_bytes, what: what.into() });
            }
            self.payload_blocks_verified += wide(blocks.len());
        });
    }

    fn add_copies(&mut self, copies: CopyState, is_clean_stop: bool) {
        for (health, offset_bytes) in copies.into_iter().zip(SUPERBLOCK_OFFSETS) {
            match health {
                // A crash between the writes of two copies leaves an older one: the next start writes both.
                CopyHealth::Current | CopyHealth::Older | CopyHealth::Outside => (),
                CopyHealth::Bad(FormatError::Checksum) if !is_clean_stop => self.superblock_copies_torn += 1,
                CopyHealth::Bad(error) => self.add(None, offset_bytes, Damage::SuperblockCopy(error)),
                CopyHealth::Unreadable(errno) => self.add(None, offset_bytes, Damage::Unreadable(errno)),
            }
        }
    }

    /// The log, or the log that a repair would leave.
    fn survey_log<I: Image>(&mut self, image: &mut I, superblock: &Superblock) -> Option<Survey> {
        let error = match survey(image, superblock, false, Mutations::NONE) {
            Ok(survey) => return Some(survey),
            Err(error) => error,
        };
        self.log_error = Some(error);
        match error {
            ScanError::Corrupt { segment, offset_bytes, what } => self.add(Some(segment), offset_bytes, what),
            ScanError::Device { offset_bytes, errno } => {
                self.add(None, offset_bytes, Damage::Unreadable(errno))
            }
            ScanError::SuperblockStale { .. } => {
                self.errors_count += 1;
                return None;
            }
        }
        survey(image, superblock, true, Mutations::NONE).ok()
    }

    fn check_segment<I: Image>(
        &mut self,
        image: &mut I,
        superblock: &Superblock,
        span: &Span,
        flushed_sequence: u64,
        keys: &mut Keys,
    ) {
        let segment = span.span.segment;
        let mut walk = Walk::new(superblock, segment, span.head, WINDOW_BLOCKS);
        let summary = read_summary(image, superblock, span);
        let is_listed = matches!(summary, Ok(Some(_)));
        let mut listed = summary.iter().flatten().flatten();
        let mut is_same = true;
        while walk.sequence <= span.span.last_sequence {
            let found = match walk.next(image) {
                Ok(Some(found)) => found,
                Ok(None) => {
                    self.add(Some(segment), walk.offset_of(walk.block), walk.damage.unwrap_or(Damage::Chain));
                    return;
                }
                Err(error) => return self.add_scan_error(segment, walk.offset_of(walk.block), error),
            };
            let record = found.into_record();
            self.batches += 1;
            self.entries += wide(record.entries.len());
            if is_listed {
                is_same &= listed.next().is_some_and(|batch| {
                    batch.header_block == record.header_block
                        && batch.payload_block == record.payload_block
                        && batch.entries == record.entries
                        && batch.checksums == record.checksums
                });
            }
            if matches!(superblock.layout, Layout::Keys(_) | Layout::Frames(_)) {
                note_keys(segment, superblock, &record, keys);
            }
            let (_, _, behind) = split(&record.entries, &record.checksums);
            self.check_payload(image, &mut walk, segment, record.payload_block, &behind);
        }
        // A summary that a crash tore is not wrong: its segment is read from the headers then. It is durable
        // once a flush covers a batch behind it, unless a later session had to write it again. A session may
        // have had no time for that yet: what it found torn is written again before its first flush.
        let is_durable = span.span.last_sequence < flushed_sequence
            && span.footer.is_some_and(|decoded| {
                decoded.footer.session == walk.session
                    && (decoded.footer.session == superblock.session
                        || flushed_sequence > superblock.cut_sequence)
            });
        if let Err((offset_bytes, what)) = summary
            && is_durable
        {
            self.add(Some(segment), offset_bytes, what);
        }
        if !is_same {
            self.add(
                Some(segment),
                walk.offset_of(superblock.geometry().segment_blocks - 1),
                Damage::SummaryDiffers,
            );
        }
    }

    fn check_payload<I: Image>(
        &mut self,
        image: &mut I,
        walk: &mut Walk,
        segment: u32,
        payload_block: u32,
        checksums: &[u32],
    ) {
        let mut from = 0;
        loop {
            match walk.verify(image, payload_block, checksums, from) {
                Ok(None) => break,
                Ok(Some(bad)) => {
                    self.add(Some(segment), walk.offset_of(payload_block + to_u32(bad)), Damage::Payload);
                    from = bad + 1;
                }
                Err(error) => return self.add_scan_error(segment, walk.offset_of(payload_block), error),
            }
        }
        self.payload_blocks_verified += wide(checksums.len());
    }

    /// Verifies the data of keys that no later entry makes void.
    fn check_keys<I: Image>(&mut self, image: &mut I, keys: Keys) {
        for (place, (segment, checksum)) in keys {
            let offset_bytes = SEGMENTS_OFFSET + u64::from(place) * BLOCK_BYTES;
            match image.read(offset_bytes, index_wide(BLOCK_BYTES)) {
                Ok(bytes) if payload_checksum(&bytes) == checksum => (),
                Ok(_) => self.add(Some(segment), offset_bytes, Damage::Payload),
                Err(errno) => self.add(Some(segment), offset_bytes, Damage::Unreadable(errno)),
            }
            self.payload_blocks_verified += 1;
        }
    }

    fn add_scan_error(&mut self, segment: u32, near_bytes: u64, error: ScanError) {
        match error {
            ScanError::Device { offset_bytes, errno } => {
                self.add(Some(segment), offset_bytes, Damage::Unreadable(errno));
            }
            ScanError::Corrupt { offset_bytes, what, .. } => self.add(Some(segment), offset_bytes, what),
            ScanError::SuperblockStale { .. } => self.add(Some(segment), near_bytes, Damage::Chain),
        }
    }
}

/// By place: the segment of the last key that leads there, and the checksum to find.
type Keys = BTreeMap<u32, (u32, u32)>;

fn note_keys(segment: u32, superblock: &Superblock, batch: &BatchRecord, keys: &mut Keys) {
    let mut checksums = batch.checksums.iter();
    for entry in &batch.entries {
        let place = match entry.kind {
            EntryKind::Evicted => Some(Place(to_u32(entry.extra))),
            _ => places_of(superblock, entry),
        };
        if let (Some(place), EntryKind::Freed | EntryKind::Evicted) = (place, entry.kind) {
            let end = place.0 + entry.sectors / to_u32(SECTORS_PER_BLOCK);
            let mut behind = keys.split_off(&place.0);
            keys.append(&mut behind.split_off(&end));
        }
        // Frames of a volume that is gone are free, whatever keys say.
        let has_volume = superblock.volumes.iter().flatten().any(|volume| volume.id == entry.volume);
        let place = place.filter(|_| has_volume || matches!(superblock.layout, Layout::Keys(_)));
        for step in 0..entry.payload_blocks {
            let checksum = checksums.next();
            if let (Some(place), Some(checksum)) = (place, checksum) {
                keys.insert(place.0 + step, (segment, *checksum));
            }
        }
    }
}

/// The batches that a sealed segment's summary lists; none for a segment without one.
///
/// # Errors
/// The damage of a summary and its place.
fn read_summary<I: Image>(
    image: &mut I,
    superblock: &Superblock,
    span: &Span,
) -> Result<Option<Vec<SummaryBatch>>, (u64, Damage)> {
    let Some(footer) = span.footer else { return Ok(None) };
    let geometry = superblock.geometry();
    let offset_bytes =
        geometry.offset_bytes(span.span.segment, geometry.segment_blocks - 1 - footer.body_blocks);
    let mut group = Vec::new();
    let len_bytes = index(footer.body_blocks) * index_wide(BLOCK_BYTES);
    read_group_into(image, core::iter::once((offset_bytes, len_bytes)), &mut group);
    let read = &group[0];
    match read.result.map(|()| footer.decode_body(&read.bytes)) {
        Ok(Ok(batches)) => Ok(Some(batches)),
        Ok(Err(error)) => Err((offset_bytes, Damage::Summary(error))),
        Err(errno) => Err((offset_bytes, Damage::Unreadable(errno))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::SUPERBLOCK_BYTES;
    use crate::store::log::scan::testlog::{Dice, GEOMETRY, TestLog};
    use alloc::vec;

    fn flushed_log(batches: u64) -> TestLog {
        let mut log = TestLog::new();
        let mut dice = Dice(5);
        for _ in 0..batches {
            log.append(3, &mut dice);
        }
        log.flush();
        log.append(1, &mut dice);
        log.flush();
        log
    }

    #[test]
    fn counts_what_it_verified_in_a_sound_cache() {
        let mut log = flushed_log(60);
        let report = check(&mut log.disk);
        assert!(report.ok && report.errors.is_empty(), "{:?}", report.errors);
        assert_eq!((report.batches, report.entries, report.payload_blocks_verified), (61, 122, 181));
        assert_eq!(report.segments, u64::from(log.segment_of(61)) + 1);
    }

    #[test]
    fn an_end_torn_by_a_crash_is_not_wrong() {
        let mut log = flushed_log(10);
        log.append(5, &mut Dice(1));
        log.append(5, &mut Dice(1));
        log.disk.keep_only(|at| at == 1);
        let report = check(&mut log.disk);
        assert!(report.ok, "{:?}", report.errors);
        assert_eq!(report.batches_cut, 2);
    }

    #[test]
    fn every_rotten_block_is_named_and_nothing_else() {
        let mut log = flushed_log(60);
        let places = [log.offset_of(3) + 2 * 4096, log.offset_of(3) + 3 * 4096, log.offset_of(60) + 4096];
        for place in places {
            log.disk.bytes[place + 1000] ^= 0x40;
        }
        let report = check(&mut log.disk);
        let found: Vec<(u64, Wrong)> =
            report.errors.iter().map(|error| (error.offset_bytes, error.what)).collect();
        assert_eq!(found, places.map(|place| (place as u64, Damage::Payload.into())));
        assert!(!report.ok && report.log_error.is_none());
        assert_eq!(report.payload_blocks_verified, 181);
    }

    #[test]
    fn headers_summaries_and_superblock_copies_are_verified() {
        let mut log = flushed_log(60);
        let header = log.offset_of(3);
        let (segment, body) = (1, GEOMETRY.offset_bytes(1, GEOMETRY.segment_blocks - 2));
        assert_ne!(log.segment_of(3), segment);
        log.disk.bytes[header + 50] ^= 1;
        log.disk.bytes[body as usize + 3] ^= 1;
        log.disk.bytes[SUPERBLOCK_OFFSETS[1] as usize + 9] ^= 1;
        let report = check(&mut log.disk);
        let mut kinds: Vec<(Option<u32>, u64)> =
            report.errors.iter().map(|error| (error.segment, error.offset_bytes)).collect();
        kinds.sort_unstable();
        let mut expected = [(Some(log.segment_of(3)), header as u64), (Some(segment), body)];
        expected.sort_unstable();
        assert_eq!((kinds, report.superblock_copies_torn), (expected.to_vec(), 1));
    }

    #[test]
    fn damage_that_stops_a_start_is_reported_with_what_is_left() {
        let mut log = flushed_log(60);
        let head = GEOMETRY.offset_bytes(2, 0);
        log.disk.bytes[head as usize] ^= 1;
        let report = check(&mut log.disk);
        assert!(matches!(report.log_error, Some(ScanError::Corrupt { segment: 2, .. })));
        let what = Damage::Segment.into();
        let error = CheckError { segment: Some(2), slot: None, offset_bytes: head, what };
        assert_eq!(report.errors, [error]);
        assert_eq!(report.segments, 2);
    }

    #[test]
    fn a_device_without_a_superblock_is_not_ok() {
        let mut log = flushed_log(3);
        log.disk.bytes[..1 << 20].fill(0);
        let report = check(&mut log.disk);
        assert!(!report.ok && report.errors_count == 1);
        assert_eq!(report.superblock_error, Some(SuperblockError::NotFormatted));
    }

    #[test]
    fn a_copy_that_a_crash_left_older_is_no_error() {
        let mut log = TestLog::new();
        log.superblock.update += 1;
        let mut bytes = vec![0; SUPERBLOCK_BYTES];
        log.superblock.encode(&mut bytes);
        log.disk.write(SUPERBLOCK_OFFSETS[0], &bytes).unwrap();
        log.disk.flush().unwrap();
        let report = check(&mut log.disk);
        assert_eq!((report.errors_count, report.superblock.map(|found| found.update)), (0, Some(2)));
        log.disk.bytes[index_wide(SUPERBLOCK_OFFSETS[1]) + 5000] ^= 1;
        let report = check(&mut log.disk);
        assert_eq!((report.errors_count, report.superblock_copies_torn), (0, 1), "a cut may have torn it");
        log.superblock.clean_stop = true;
        log.superblock.encode(&mut bytes);
        log.disk.write(SUPERBLOCK_OFFSETS[0], &bytes).unwrap();
        log.disk.flush().unwrap();
        let report = check(&mut log.disk);
        assert_eq!(
            (report.errors_count, report.superblock_copies_torn),
            (1, 0),
            "nothing tore it behind a stop"
        );
    }
}
