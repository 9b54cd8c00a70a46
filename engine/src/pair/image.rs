//! Two devices as one, for what is done step by step: `create`, recovery, and the verbs on a cache that does not run.

use super::{Half, Marks, PairWords, Standing};
use crate::effect::Errno;
use crate::format::{
    FlushNote, ORIGIN_BYTES_MAX, PAIR_PAGE_BYTES, PAIR_PAGE_OFFSETS, PairPage, SUPERBLOCK_BYTES,
    SUPERBLOCK_OFFSETS, SetId,
};
use crate::image::{Image, Known, ReadAt};
use crate::number::{index_wide, wide};
use crate::recovery::{CopyHealth, SuperblockError, load_superblock};
use alloc::string::String;
use alloc::vec::Vec;

/// The length that is compared and copied at a time.
const COPY_BYTES: u64 = 256 << 10;
const BLOCK: usize = 4096;
/// Where both copies of the superblock are, by offset and length.
const SUPERBLOCK_RANGES: [(u64, u64); 2] =
    [(SUPERBLOCK_OFFSETS[0], wide(SUPERBLOCK_BYTES)), (SUPERBLOCK_OFFSETS[1], wide(SUPERBLOCK_BYTES))];

/// The update of the newest superblock of a half, and how many of its copies are whole.
type SuperblockRank = (u64, usize);

/// Why two devices are not the halves of one cache that can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum JoinError {
    /// No device was given, or none could be opened.
    #[error("None of the devices of the cache is there")]
    Nothing,
    /// Each half says that the other one does not count.
    #[error("Each device of the mirrored cache went on without the other one, so neither has everything")]
    Split,
    /// The only half was being brought up to date.
    #[error(
        "This device of the mirrored cache was not up to date when it was last used: the other one is needed"
    )]
    Behind,
    /// Two devices that are no pair.
    #[error("The devices are not the two halves of one mirrored cache")]
    NotOfPair,
    /// The superblock tells of two devices, and no page tells whether this one has everything.
    #[error(
        "Both copies of the page of this device of the mirrored cache are damaged: the other one is needed"
    )]
    PageLost,
    /// One device has no page of a mirrored cache, and the other one no superblock.
    #[error(
        "One device has a superblock and no page of a mirrored cache, which may be damaged; of the other one: {0}"
    )]
    NoPage(SuperblockError),
    /// The superblock cannot be read.
    #[error(transparent)]
    Superblock(#[from] SuperblockError),
}

/// The newest page of a half on a device, if there is one.
pub fn page_of<I: Image>(image: &mut I) -> Option<PairPage> {
    last_page(image).map(|last| last.page)
}

/// The newest page of a half that is whole.
#[derive(Clone, Debug)]
struct LastPage {
    page: PairPage,
    /// The highest update that the half may have got: a copy that is damaged may have been the next one.
    update_max: u64,
}

fn last_page<I: Image>(image: &mut I) -> Option<LastPage> {
    let copies = PAIR_PAGE_OFFSETS.map(|offset_bytes| {
        let bytes = image.read(offset_bytes, PAIR_PAGE_BYTES).ok()?;
        PairPage::decode(&bytes).ok()
    });
    let is_one_damaged = copies.iter().any(Option::is_none);
    let page = copies.into_iter().flatten().max_by_key(|page| page.update)?;
    let update_max = page.update + u64::from(is_one_damaged);
    Some(LastPage { page, update_max })
}

/// One device, or the two halves of a mirrored cache, as one.
///
/// It reads from one half that counts, and from the other one what that cannot read. It writes and flushes both. Before the
/// first write the halves are made the same; what has failed by then does not count any more.
#[derive(Debug)]
pub struct Pair<I> {
    halves: [Option<I>; 2],
    /// The words of the pages; `None` for a cache that is not mirrored.
    said: Option<PairWords>,
    preferred: Half,
    /// Ranges, by offset and length, in which the half that is preferred is damaged: they are read from the other one.
    turned: [Vec<(u64, u64)>; 2],
    /// The halves are the same but for what is marked, and who does not count is recorded.
    is_ready: bool,
    /// The update of the page that each half had when they were joined.
    page_updates: [u64; 2],
}

/// Says what is known of a block, by its offset.
type Knows<'a> = &'a mut dyn FnMut(u64, &[u8]) -> Known;

impl<I: Image> Pair<I> {
    /// Makes one of the devices of a cache, given in any order. It writes nothing.
    ///
    /// # Errors
    /// [`JoinError`].
    pub fn join(devices: [Option<I>; 2]) -> Result<Pair<I>, JoinError> {
        let mut found: Vec<(I, Option<LastPage>, SuperblockRank)> = Vec::new();
        let (mut refused, mut is_page_lost) = (None, false);
        for mut device in devices.into_iter().flatten() {
            match load_superblock(&mut device) {
                Ok((superblock, copies)) => {
                    // A page that an earlier cache left says nothing.
                    let size_bytes = device.size_bytes();
                    let is_its = |LastPage { page, .. }: &LastPage| {
                        page.set_id == superblock.set_id && page.size_bytes <= size_bytes
                    };
                    let last = last_page(&mut device).filter(is_its);
                    is_page_lost |= superblock.is_mirrored && last.is_none();
                    let whole = copies.iter().filter(|copy| copy.is_whole()).count();
                    found.push((device, last, (superblock.update, whole)));
                }
                Err(error) => refused = Some(error),
            }
        }
        let has_page = found.iter().any(|(_, last, _)| last.is_some());
        if !has_page {
            let mut found = found.into_iter();
            return match (found.next(), found.next(), refused) {
                // RULE 20: it may have been out, and lack what was written since.
                (Some(_), _, None) if is_page_lost => Err(JoinError::PageLost),
                (Some((device, ..)), None, None) => Ok(Pair::alone(device)),
                (None, _, Some(error)) => Err(error.into()),
                (None, _, None) => Err(JoinError::Nothing),
                (Some(_), None, Some(error)) => Err(JoinError::NoPage(error)),
                (Some(_), Some(_), _) => Err(JoinError::NotOfPair),
            };
        }
        // Of the two there may be one that is no half: it does not count.
        let mut halves: [Option<(I, PairPage)>; 2] = [None, None];
        let (mut updates_max, mut superblocks) = ([0; 2], [(0, 0); 2]);
        for (device, last, superblock) in found {
            let Some(LastPage { page, update_max }) = last else { continue };
            let half = usize::from(page.half);
            if halves[half].is_some() || halves.iter().flatten().any(|(_, other)| other.set_id != page.set_id)
            {
                return Err(JoinError::NotOfPair);
            }
            updates_max[half] = update_max;
            superblocks[half] = superblock;
            halves[half] = Some((device, page));
        }
        let standings =
            judge(halves.each_ref().map(|half| half.as_ref().map(|(_, page)| page)), updates_max)?;
        let newest = halves.iter().zip(standings).filter(|(_, standing)| *standing == Standing::In);
        let newest = newest.filter_map(|(half, _)| half.as_ref()).max_by_key(|(_, page)| page.update);
        let (_, page) = newest.ok_or(JoinError::Behind)?;
        let mut marks = Marks::of(page.size_bytes, page.region_bytes, &page.marks);
        for (half, _) in halves.iter().zip(standings).filter(|(_, standing)| *standing == Standing::In) {
            // The two may be from before and after a write of the pages.
            half.iter().for_each(|(_, page)| {
                marks.add(&Marks::of(page.size_bytes, page.region_bytes, &page.marks));
            });
        }
        let mut out_since = [0; 2];
        out_since[1 - usize::from(page.half)] = page.out_since_update;
        let said = PairWords {
            set_id: page.set_id,
            standings,
            out_since,
            once_counts_from: page.once_counts_from,
            update: halves.iter().flatten().map(|(_, page)| page.update).max().unwrap_or(0),
            names: page.names.clone(),
            marks,
        };
        let page_updates = halves.each_ref().map(|half| half.as_ref().map_or(0, |(_, page)| page.update));
        let mut standing = standings.into_iter();
        let halves = halves.map(|half| {
            let is_in = standing.next() == Some(Standing::In);
            half.filter(|_| is_in).map(|(device, _)| device)
        });
        let preferred = if halves[0].is_some() { Half::First } else { Half::Second };
        let mut turned: [Vec<(u64, u64)>; 2] = Default::default();
        // RULE 20: a copy that rotted may have been the newest superblock of its half.
        let older =
            Half::BOTH.into_iter().find(|half| superblocks[half.at()] < superblocks[half.other().at()]);
        if let (Some(older), [Some(_), Some(_)]) = (older, &halves) {
            turned[older.at()].extend(SUPERBLOCK_RANGES);
        }
        Ok(Pair { halves, said: Some(said), preferred, turned, is_ready: false, page_updates })
    }

    /// A cache that is not mirrored.
    pub fn alone(device: I) -> Pair<I> {
        Pair {
            halves: [Some(device), None],
            said: None,
            preferred: Half::First,
            turned: Default::default(),
            is_ready: true,
            page_updates: [0; 2],
        }
    }

    /// Makes two devices the halves of a new cache of `size_bytes`: writes their pages. The records of the cache are to be
    /// written next, and its superblock last.
    ///
    /// # Errors
    /// The errno of a device.
    pub fn create(
        halves: [I; 2],
        set_id: SetId,
        size_bytes: u64,
        names: [&str; 2],
    ) -> Result<Pair<I>, Errno> {
        if names.iter().any(|name| name.len() > ORIGIN_BYTES_MAX) {
            return Err(Errno::INVAL);
        }
        let marks = Marks::new(size_bytes);
        let said = PairWords {
            set_id,
            standings: [Standing::In; 2],
            out_since: [0; 2],
            once_counts_from: [0; 2],
            update: 0,
            names: names.map(String::from),
            marks: marks.none(),
        };
        let mut pair = Pair {
            halves: halves.map(Some),
            said: Some(said),
            preferred: Half::First,
            turned: Default::default(),
            is_ready: true,
            page_updates: [0; 2],
        };
        // Both copies, so that no older one is left.
        pair.write_pages()?;
        pair.write_pages()?;
        Ok(pair)
    }

    /// Whether the cache is mirrored.
    #[must_use]
    pub fn is_mirrored(&self) -> bool {
        self.said.is_some()
    }

    /// The names of both halves, as they were given when the cache was made.
    #[must_use]
    pub fn names(&self) -> Option<[&str; 2]> {
        self.said.as_ref().map(|said| said.names.each_ref().map(String::as_str))
    }

    /// Whether the halves count.
    #[must_use]
    pub fn standings(&self) -> [Standing; 2] {
        self.said.as_ref().map_or([Standing::In, Standing::Out], |said| said.standings)
    }

    /// The words of both halves, for an engine that runs on them; `None` for a cache that is not mirrored.
    #[must_use]
    pub fn words(&self) -> Option<PairWords> {
        self.said.clone()
    }

    /// The devices that count, the first half first.
    #[must_use]
    pub fn into_halves(self) -> [Option<I>; 2] {
        self.halves
    }

    /// Makes both halves the same before the first write, and records which one does not count.
    fn make_ready(&mut self, known: Knows<'_>) -> Result<(), Errno> {
        if self.is_ready {
            return Ok(());
        }
        self.is_ready = true;
        if self.halves.iter().all(Option::is_some) {
            self.copy_what_differs(known)?;
            self.write_late_pages()?;
        } else {
            // RULE 20: a process that crashed may have left the last page volatile. While the other copy is written, a power cut
            // would tear both.
            self.flush_halves()?;
        }
        if let Some(said) = &mut self.said {
            for half in Half::BOTH {
                if self.halves[half.at()].is_none() {
                    said.declare_out(half);
                }
            }
            // RULE 20: also a pair of which nothing failed tells each start, so that an older copy of a half is known as such.
            self.write_pages()?;
        }
        Ok(())
    }

    /// RULE 20: what a crash left different is the same from here on.
    fn copy_what_differs(&mut self, known: Knows<'_>) -> Result<(), Errno> {
        let Some(said) = &self.said else { return Ok(()) };
        let (marks, size_bytes) = (said.marks.clone(), said.marks.size_bytes());
        let regions = marks.marked().map(|region| marks.range(region));
        let preferred = self.preferred;
        let turned = core::mem::take(&mut self.turned[preferred.at()]);
        // RULE 20: what is damaged on the half that is read is mended first, or the rest would copy it.
        let from_other = turned.iter().map(|range| (preferred.other(), *range));
        let ranges = from_other.chain(regions.map(|range| (preferred, range)));
        let mut copying = Copying { known, have_failed: [false; 2], from_other: &turned };
        self.copy_superblocks(&mut copying)?;
        for (source, (from, len)) in ranges {
            let mut at = from;
            while at < (from + len).min(size_bytes) {
                let bytes = COPY_BYTES.min((from + len).min(size_bytes) - at);
                self.copy_range(source, at, index_wide(bytes), &mut copying)?;
                at += bytes;
            }
        }
        let Copying { have_failed, .. } = copying;
        if have_failed == [true; 2] {
            return Err(Errno::IO);
        }
        self.flush_halves()?;
        // RULE 20: not before everything that it alone had is on the other one.
        for half in Half::BOTH {
            if have_failed[half.at()] && self.halves.iter().all(Option::is_some) {
                self.lose(half);
            }
        }
        Ok(())
    }

    /// Copies the superblocks one after the other: a power cut may tear one, and the half needs another one then.
    fn copy_superblocks(&mut self, copying: &mut Copying<'_>) -> Result<(), Errno> {
        let is_other_newer = copying.is_from_other(SUPERBLOCK_RANGES[0].0);
        let source = if is_other_newer { self.preferred.other() } else { self.preferred };
        let mut ranges = SUPERBLOCK_RANGES;
        if let Some(target) = &mut self.halves[source.other().at()]
            && let Ok((_, [CopyHealth::Current, other])) = load_superblock(target)
            && other != CopyHealth::Current
        {
            // The only one that is of use goes last.
            ranges.reverse();
        }
        for (from, len) in ranges {
            self.copy_range(source, from, index_wide(len), copying)?;
            let Some(target) = &mut self.halves[source.other().at()] else { return Ok(()) };
            // RULE 20: it still counts until what it alone has is on the other half.
            copying.have_failed[source.other().at()] |= target.flush().is_err();
        }
        Ok(())
    }

    /// Copies the blocks that differ from a half, and what that has wrong from the other one. A half that fails to take a block
    /// has failed.
    fn copy_range(
        &mut self,
        source: Half,
        at: u64,
        len: usize,
        copying: &mut Copying<'_>,
    ) -> Result<(), Errno> {
        let preferred = self.preferred;
        let [Some(first), Some(second)] = &mut self.halves else { return Ok(()) };
        let (from, to) = match source {
            Half::First => (first, second),
            Half::Second => (second, first),
        };
        let (good, other) = (read_blocks(from, at, len), read_blocks(to, at, len));
        let is_gone =
            |device: &mut I| SUPERBLOCK_RANGES.iter().all(|&(at, _)| device.read(at, BLOCK).is_err());
        if good.iter().all(Option::is_none) && is_gone(from) {
            // With it is what it alone had and recovery has seen: the next start does with the other one.
            return Err(Errno::IO);
        }
        for (offset_bytes, (block, there)) in (at..).step_by(BLOCK).zip(good.iter().zip(&other)) {
            let is_page = |page: &u64| (*page..page + wide(PAIR_PAGE_BYTES)).contains(&offset_bytes);
            if block == there
                || PAIR_PAGE_OFFSETS.iter().any(is_page)
                || (source == preferred && copying.is_from_other(offset_bytes))
            {
                continue;
            }
            let mut said = |bytes: &Option<Vec<u8>>| {
                bytes.as_ref().map_or(Known::Wrong, |bytes| (copying.known)(offset_bytes, bytes))
            };
            let said = [said(block), said(there)];
            if said.contains(&Known::Differs) {
                continue;
            }
            if block.is_none() && there.is_some() && said[1] == Known::Wrong {
                // Recovery has read it, and nobody has it any more: the next start does with the other half.
                return Err(Errno::IO);
            }
            // RULE 20: rot on the half that is read is not copied over what is whole.
            let mends = there
                .as_ref()
                .filter(|_| said[0] == Known::Wrong && (block.is_none() || said[1] == Known::Right));
            let (half, device, right) = match (mends, block) {
                (Some(there), _) => (source, &mut *from, there),
                (None, Some(block)) => (source.other(), &mut *to, block),
                (None, None) => continue,
            };
            let has_failed = &mut copying.have_failed[half.at()];
            *has_failed = *has_failed || device.write(offset_bytes, right).is_err();
        }
        Ok(())
    }

    fn lose(&mut self, half: Half) {
        self.halves[half.at()] = None;
        if let Some(said) = &mut self.said {
            said.declare_out(half);
        }
        if self.preferred == half {
            self.preferred = half.other();
        }
    }

    /// Does `change` to each half; fails if none did it. Returns whether a half failed that did not before.
    fn change(&mut self, mut change: impl FnMut(Half, &mut I) -> Result<(), Errno>) -> Result<bool, Errno> {
        let mut has_lost = false;
        for half in Half::BOTH {
            let Some(device) = &mut self.halves[half.at()] else { continue };
            if let Err(errno) = change(half, device) {
                has_lost = true;
                if self.halves[half.other().at()].is_none() {
                    return Err(errno);
                }
                self.lose(half);
            }
        }
        Ok(has_lost)
    }

    fn flush_halves(&mut self) -> Result<(), Errno> {
        self.change(|_, device| device.flush()).map(drop)
    }

    /// RULE 20: a half whose page a crash kept from being written gets it now, before the next one is written: two that are
    /// missing tell an older copy. One that rotted is written first, so that a page is there at any time.
    fn write_late_pages(&mut self) -> Result<(), Errno> {
        let Some(said) = &self.said else { return Ok(()) };
        let pages = Half::BOTH.map(|half| said.page(half, &said.marks));
        let (updates, newest) = (self.page_updates, said.update);
        let mut bytes = alloc::vec![0; PAIR_PAGE_BYTES];
        self.change(|half, device| {
            for update in updates[half.at()] + 1..=newest {
                PairPage { update, ..pages[half.at()].clone() }.encode(&mut bytes);
                device.write(PAIR_PAGE_OFFSETS[index_wide(update % 2)], &bytes)?;
                device.flush()?;
            }
            Ok(())
        })
        .map(drop)
    }

    /// Writes the pages of all halves that count, durably.
    fn write_pages(&mut self) -> Result<(), Errno> {
        loop {
            let Some(said) = &mut self.said else { return Ok(()) };
            said.update += 1;
            let offset_bytes = PAIR_PAGE_OFFSETS[index_wide(said.update % 2)];
            let pages = Half::BOTH.map(|half| said.page(half, &said.marks));
            let mut bytes = alloc::vec![0; PAIR_PAGE_BYTES];
            let has_lost = self.change(|half, device| {
                pages[half.at()].encode(&mut bytes);
                device.write(offset_bytes, &bytes)?;
                device.flush()
            })?;
            if !has_lost && !self.said.as_ref().is_some_and(PairWords::is_out_told_once) {
                return Ok(());
            }
        }
    }
}

/// The copy of what differs between two halves.
struct Copying<'a> {
    known: Knows<'a>,
    /// The halves that failed to take a block.
    have_failed: [bool; 2],
    /// Ranges, of which the half that is not read otherwise has what counts.
    from_other: &'a [(u64, u64)],
}

impl Copying<'_> {
    fn is_from_other(&self, offset_bytes: u64) -> bool {
        self.from_other.iter().any(|(from, len)| (*from..from + len).contains(&offset_bytes))
    }
}

impl PairWords {
    /// A half does not count any more; the next pages say so.
    fn declare_out(&mut self, half: Half) {
        self.standings[half.at()] = Standing::Out;
        if self.out_since[half.at()] == 0 {
            self.out_since[half.at()] = self.update + 1;
        }
    }
}

/// RULE 20: which halves count, by what their pages say, and by the highest updates that these may have had.
fn judge(pages: [Option<&PairPage>; 2], updates_max: [u64; 2]) -> Result<[Standing; 2], JoinError> {
    let standing_of = |page: &PairPage| if page.is_behind { Standing::Behind } else { Standing::In };
    Ok(match pages {
        [None, None] => return Err(JoinError::Nothing),
        [Some(page), None] | [None, Some(page)] if page.is_behind => return Err(JoinError::Behind),
        [Some(_), None] => [Standing::In, Standing::Out],
        [None, Some(_)] => [Standing::Out, Standing::In],
        [Some(first), Some(second)] => match (first.is_other_out, second.is_other_out) {
            (true, true) if !first.is_behind && !second.is_behind => {
                // What a half says that was there before the other one went on without it is an old story.
                if second.update < first.out_since_update {
                    [Standing::In, Standing::Out]
                } else if first.update < second.out_since_update {
                    [Standing::Out, Standing::In]
                } else {
                    return Err(JoinError::Split);
                }
            }
            (true, _) if !first.is_behind => [Standing::In, Standing::Out],
            (_, true) if !second.is_behind => [Standing::Out, Standing::In],
            // A page is written to both, so they differ by one at the most; a half that lacks more is an older copy.
            _ if first.update > updates_max[1] + 1 => [standing_of(first), Standing::Out],
            _ if second.update > updates_max[0] + 1 => [Standing::Out, standing_of(second)],
            _ => [standing_of(first), standing_of(second)],
        },
    })
}

/// The blocks of a range, `None` for each that cannot be read.
fn read_blocks<I: Image>(image: &mut I, at: u64, len: usize) -> Vec<Option<Vec<u8>>> {
    if let Ok(bytes) = image.read(at, len) {
        return bytes.chunks(BLOCK).map(|block| Some(block.to_vec())).collect();
    }
    (0..wide(len / BLOCK)).map(|step| image.read(at + step * wide(BLOCK), BLOCK).ok()).collect()
}

impl<I: Image> Image for Pair<I> {
    fn size_bytes(&self) -> u64 {
        let sizes = self.halves.iter().flatten().map(Image::size_bytes);
        sizes.min().unwrap_or(0)
    }

    fn read_group(&mut self, reads: &mut [ReadAt]) {
        self.read_group_beside(reads, &mut || ());
    }

    fn read_group_beside(&mut self, reads: &mut [ReadAt], beside: &mut dyn FnMut()) {
        let Some(device) = &mut self.halves[self.preferred.at()] else { return beside() };
        device.read_group_beside(reads, beside);
        let Some(other) = &mut self.halves[self.preferred.other().at()] else { return };
        for read in reads.iter_mut().filter(|read| read.result.is_err()) {
            other.read_group(core::slice::from_mut(read));
        }
        for &(from, len) in &self.turned[self.preferred.at()] {
            let end = |read: &ReadAt| read.offset_bytes + wide(read.bytes.len());
            for read in reads.iter_mut().filter(|read| read.offset_bytes < from + len && from < end(read)) {
                let range = from.max(read.offset_bytes)..(from + len).min(end(read));
                let Ok(bytes) = other.read(range.start, index_wide(range.end - range.start)) else {
                    continue;
                };
                let at = index_wide(range.start - read.offset_bytes);
                read.bytes[at..at + bytes.len()].copy_from_slice(&bytes);
            }
        }
    }

    fn write(&mut self, offset_bytes: u64, bytes: &[u8]) -> Result<(), Errno> {
        self.make_ready(&mut |_, _| Known::Nothing)?;
        if let Some(said) = &mut self.said {
            let len_bytes = wide(bytes.len());
            // RULE 20: marked on both before either has it.
            if !said.marks.cover(offset_bytes, len_bytes) {
                said.marks.mark(offset_bytes, len_bytes);
                self.write_pages()?;
            }
        }
        if self.change(|_, device| device.write(offset_bytes, bytes))? {
            self.write_pages()?;
        }
        Ok(())
    }

    fn may_differ(&self, offset_bytes: u64, len_bytes: u64) -> bool {
        let is_two = !self.is_ready && self.halves.iter().all(Option::is_some);
        let is_turned =
            |&(from, len): &(u64, u64)| from < offset_bytes + len_bytes && offset_bytes < from + len;
        let is_marked = self.said.as_ref().is_some_and(|said| said.marks.touch(offset_bytes, len_bytes));
        is_two && (is_marked || self.turned[self.preferred.at()].iter().any(is_turned))
    }

    fn once_counts_from(&self) -> Option<[u64; 2]> {
        let said = self.said.as_ref()?;
        Some(Half::BOTH.map(|half| {
            let is_there = self.halves[half.at()].is_some();
            if is_there { said.once_counts_from[half.at()] } else { u64::MAX }
        }))
    }

    fn flush_note(&self) -> Option<FlushNote> {
        match &self.halves {
            [Some(device), None] | [None, Some(device)] => device.flush_note(),
            // Each half has a log of its own in which it may be cut.
            _ => None,
        }
    }

    fn read_of(&mut self, half: Half, reads: &mut [ReadAt]) {
        match &mut self.halves[half.at()] {
            Some(device) => device.read_group(reads),
            None => reads.iter_mut().for_each(|read| read.result = Err(Errno::IO)),
        }
    }

    fn turn_over(&mut self) -> bool {
        let may = !self.is_ready && self.halves.iter().all(Option::is_some);
        if may {
            self.preferred = self.preferred.other();
        }
        may
    }

    fn turn_over_at(&mut self, offset_bytes: u64, len_bytes: u64) -> bool {
        let range = (offset_bytes, len_bytes);
        let turned = &mut self.turned[self.preferred.at()];
        let may = !self.is_ready && self.halves.iter().all(Option::is_some) && !turned.contains(&range);
        if may {
            turned.push(range);
        }
        may
    }

    fn settle(&mut self, known: Knows<'_>) -> Result<(), Errno> {
        self.make_ready(known)
    }

    fn flush(&mut self) -> Result<(), Errno> {
        self.make_ready(&mut |_, _| Known::Nothing)?;
        if self.change(|_, device| device.flush())? {
            self.write_pages()?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::Superblock;
    use crate::mutation::Mutations;
    use crate::recovery::write_superblock;
    use crate::store::log::scan::testlog::{Disk, new_superblock};
    use alloc::boxed::Box;

    fn page(half: u8, update: u64, other_out_since: Option<u64>) -> PairPage {
        PairPage {
            set_id: [1; 16],
            half,
            is_other_out: other_out_since.is_some(),
            out_since_update: other_out_since.unwrap_or(0),
            is_behind: false,
            update,
            size_bytes: 8 << 20,
            region_bytes: 64 << 10,
            names: [String::new(), String::new()],
            once_counts_from: [0; 2],
            marks: Box::new([0; crate::format::PAIR_MARK_BYTES]),
        }
    }

    #[test]
    fn of_two_pages_the_one_that_went_on_counts() {
        use Standing::{In, Out};
        let judged = |first: PairPage, second: PairPage| {
            judge([Some(&first), Some(&second)], [first.update, second.update])
        };
        assert_eq!(judged(page(0, 7, None), page(1, 7, None)), Ok([In, In]));
        assert_eq!(judged(page(0, 7, None), page(1, 6, None)), Ok([In, In]), "a crash between the two");
        assert_eq!(judged(page(0, 7, None), page(1, 5, None)), Ok([In, Out]), "an older copy");
        let rotten = judge([Some(&page(0, 7, None)), Some(&page(1, 5, None))], [7, 6]);
        assert_eq!(rotten, Ok([In, In]), "a crash between the two, and the one before rotted");
        assert_eq!(judged(page(0, 8, Some(8)), page(1, 7, None)), Ok([In, Out]));
        assert_eq!(judged(page(0, 7, None), page(1, 9, Some(8))), Ok([Out, In]));
        // The second one said long ago that the first one is out, which came back before it went out itself.
        assert_eq!(judged(page(0, 12, Some(11)), page(1, 9, Some(5))), Ok([In, Out]));
        assert_eq!(judged(page(0, 12, Some(8)), page(1, 9, Some(8))), Err(JoinError::Split));
    }

    #[test]
    fn without_pages_it_is_said_what_each_device_lacks() {
        let blank = Disk::new();
        let mut with_superblock = blank.clone();
        write_superblock(&mut with_superblock, &new_superblock(), Mutations::NONE).expect("memory works");
        let join = |first: &Disk, second: &Disk| {
            Pair::join([Some(first.clone()), Some(second.clone())]).map(drop).expect_err("there is no page")
        };
        assert!(matches!(join(&with_superblock, &blank), JoinError::NoPage(_)));
        assert!(matches!(join(&blank, &with_superblock), JoinError::NoPage(_)));
        assert_eq!(join(&with_superblock, &with_superblock), JoinError::NotOfPair);
        assert!(matches!(join(&blank, &blank), JoinError::Superblock(_)));
    }

    #[test]
    fn a_half_without_its_page_is_not_used_alone() {
        let mut half = Disk::new();
        let superblock = Superblock { is_mirrored: true, ..new_superblock() };
        write_superblock(&mut half, &superblock, Mutations::NONE).expect("memory works");
        let join = |devices: [Option<Disk>; 2]| Pair::join(devices).map(drop);
        assert_eq!(join([Some(half.clone()), None]), Err(JoinError::PageLost));
        assert_eq!(join([None, Some(half.clone())]), Err(JoinError::PageLost));
        assert_eq!(join([Some(half.clone()), Some(half)]), Err(JoinError::PageLost));
    }

    #[test]
    fn a_half_alone_counts_unless_it_is_behind() {
        let behind = PairPage { is_behind: true, ..page(1, 7, None) };
        assert_eq!(judge([Some(&page(0, 7, None)), None], [7, 0]), Ok([Standing::In, Standing::Out]));
        assert_eq!(judge([None, Some(&behind)], [0, 7]), Err(JoinError::Behind));
        assert_eq!(
            judge([Some(&page(0, 8, Some(3))), Some(&behind)], [8, 7]),
            Ok([Standing::In, Standing::Out])
        );
        assert_eq!(judge([None, None], [0, 0]), Err(JoinError::Nothing));
    }
}
