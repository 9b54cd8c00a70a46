//! A device as seen through its cable: it keeps a write for certain only after a flush.
//!
//! # The fault model
//!
//! A write *lands* at some moment between its start and its answer: from then on reads see it. It is
//! durable when a flush was answered that began after the write was answered. Until then a power cut may take
//! it, whole or in pieces of 512 or 4096 bytes, and independently of all other writes.
//!
//! | fault | cache: superblock | cache: heads, headers, summaries | cache: payload | origin |
//! | --- | --- | --- | --- | --- |
//! | power cut: unflushed writes lost, kept, torn | all is kept that was promised | the same | the same | the same |
//! | read error | recovery refuses or uses the other copy | recovery refuses | clean: the origin answers; dirty: EIO there | EIO there, nothing else |
//! | write error (the range: old, new or torn) | the cache latches | the cache latches | the cache latches | EIO to a client's write; a destage is repeated |
//! | flush error (what was unflushed: kept, lost, still volatile) | the cache latches | the same | the same | EIO to whoever waits; a destage is repeated |
//! | latency spike | nothing but time | the same | the same | the same |
//! | flush that goes on while changes are under way, two seconds at the most | nothing but time | the same | the same | the same |
//! | slow for long | reads of what is clean pass it by; nothing but time | the same | the same | nothing but time |
//! | hang | after the driver's timeout the device counts as gone | the same | the same | the same |
//! | bit rot | the other copy counts | recovery refuses what was durable; the log's end: `world/log_end.rs` | clean: the origin answers; dirty: EIO there, never old data; the log's end: the same | not injected: an origin has no checksums |
//! | misdirected write | scripts alone | scripts alone | clean: the origin answers; dirty: EIO there | not injected |
//! | gone | reads of dirty data, and writes of volumes with dirty data: EIO; all else goes on | | | EIO for what the cache has not |
//! | gone and back | as gone until the next start | | | all goes on, the dirty data goes home |
//! | half of a mirrored cache: one at a time, any of these but rot of the superblock; lost for good, away, an older copy | nothing: the other half has everything | the same | the same; what one half alone has is clean: the origin | |
//! | out of space | | | | ENOSPC to a client's write; a destage is repeated |
//!
//! Where sectors rot: in a log those that durable headers came behind (`notes.rs`); in slots any sector of a block whose
//! checksum is known, at any time, across cuts, kills, stops and the time switched off, and the pages of checksums. Known is what
//! the process wrote, and what the page of a closed area tells. Rot in a block of which a start knows nothing is taken back
//! before that start (`world/rot.rs`): it would be read as data. At rest no area that this process opened may be open, so there is
//! little of that.
//!
//! Where one half of a mirrored cache rots, it is always the same one, and the other one never fails: two faults are more than
//! two devices stand.
//!
//! A process crash leaves the device alone: any of the writes in flight land or do not, each as a whole. Memory that outlives
//! the process is there afterwards, and what it holds is written before anything else is done; a power cut empties it.
//!
//! # Behind the cache's back
//!
//! While no engine runs, somebody may change an origin. A start compares its identity, its size, the well-known places
//! whose checksums are on record, and up to 64 clean blocks; then it is refused, or the origin is served as it is.
//!
//! | change | refused for certain | otherwise served: a sector that was changed |
//! | --- | --- | --- |
//! | sectors rewritten, or all of it rolled back | if a place on record was changed; if clean blocks were, and all are compared because there are no more than 64; if all clean blocks were | not in the cache: reads as the origin's. Clean in the cache: reads as either, as long as the copy may be there. Dirty: reads as the client wrote it, and goes home |
//! | another disk | if the identity is on record; else as above | the same |
//! | shrunk | always | |
//! | grown | never, and said | all as before, at the old size |
//!
//! Of changed clean blocks a start misses a part `f` with the probability `(1 - f)^64`. No clean copy goes home over what
//! somebody wrote: a crash may call no block dirty that was clean when the origin was changed, except where it calls
//! clean slots dirty by the kind of their records (`commit` all, `bit-tree` those below a marked leaf). What was
//! changed after a crash is compared with what recovery finds, which may count clean blocks as dirty within the bounds of
//! the records: those go home.
//!
//! A cache that is an older copy of itself, with fewer writes of its superblock than are noted beside it, is refused. The
//! notes are of the last start and the last clean stop: an older copy of a session that crashed passes, and nothing is
//! promised for it; the swarm does not make such copies. A cache in the place of another one has other volumes and so
//! another origin; an origin in the place of another one is another disk.
//!
//! What an operator does while no engine runs (`add`, `set`, `set origin=changed`, `check --repair`) may be cut by the power
//! at any write and flush: it is done or not, and can be repeated. After a repair of a log a block of which the log had any
//! entry may have any content that it ever had; every other block is as before.
//!
//! A start that is refused writes nothing to the cache; each later one is refused for the same reason, until the origin is
//! put back, when all is as before, or accepted, when the volume is what its origin is.
//!
//! # Servers
//!
//! An origin may be behind a server, and then there are connections. A change lands at the server as at a disk, and is durable when
//! a flush was answered, or when it is answered and said so itself. The client of the server is the daemon's own
//! ([`engine::remote`]).
//!
//! | event | what may happen | what is promised |
//! | --- | --- | --- |
//! | the connection is lost | of the requests under way some are carried out, at once or in the next second, others never | all are answered as if nothing had been |
//! | the server dies | of what was not flushed any part is kept; nothing is carried out later | the next FLUSH fails where writes went around the cache; what is in a log stays there |
//! | it is away | for a while, or until the next life | what needs it waits for ten seconds and then fails; it goes on when it is back |
//! | another disk, an older copy, a smaller one comes back | the right one follows, or nothing | refused, and nothing is sent to it, if it differs where the client looks; a smaller one always |
//! | the right disk comes back | without what it lost, larger than before | never refused |
//! | an answer comes twice, or when its connection is over, or says that the server ends | at any time | nobody takes it for another one |
//! | a process is killed | what its server has is carried out in the next second, or never; the server dies, too | a start reads nothing before that |
//! | the server hangs | it counts as gone after the driver's timeout | as with a disk |
//!
//! Not made here, because no client could stand it: a disk that is the same wherever the client looks (counted, and not used); a
//! server that carries a request out more than a second after its connection was lost; one that loses something with a flush that
//! it was asked for on a connection which is over. When a server dies behind a kill, nobody is told that it lost what went around
//! the cache.

mod content;
pub mod faults;
mod notes;

pub use content::Content;

use crate::content::{Sector, Tag};
use crate::random::Random;
use engine::format::FlushNote;
use faults::Faults;
use notes::Notes;
use std::rc::Rc;

/// A write that landed and that no flush covers.
#[derive(Clone, Debug)]
pub struct Unflushed {
    /// Counts the device's writes.
    pub serial: u64,
    /// The first sector.
    pub first: u64,
    /// Content of the write.
    pub content: Content,
    /// The time of its answer, if any, in the device's own counting.
    answered: Option<u64>,
    /// It is part of a write that failed.
    pub is_failed: bool,
}

/// Fate of a write that no flush covers, in a power cut.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It is lost.
    Lost,
    /// It is kept.
    Kept,
    /// The sectors with a `true` are kept.
    Torn(Vec<bool>),
}

impl Fate {
    /// A fate by chance: `luck` of 4 writes are kept, some of the others are torn.
    pub fn draw(sectors: u64, luck: u64, random: &mut Random) -> Fate {
        if random.below(4) < luck {
            return Fate::Kept;
        }
        if sectors < 2 || random.one_in(2) {
            return Fate::Lost;
        }
        // At sectors or at blocks; pieces anywhere or a prefix.
        let unit = if random.one_in(2) { 1 } else { 8 };
        let pieces = sectors.div_ceil(unit);
        let prefix = if random.one_in(2) { Some(random.below(pieces)) } else { None };
        let kept: Vec<bool> =
            (0..pieces).map(|at| prefix.map_or_else(|| random.one_in(2), |prefix| at < prefix)).collect();
        Fate::Torn((0..sectors).map(|sector| kept[(sector / unit) as usize]).collect())
    }
}

/// A mark of the moment when a flush began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlushTicket(u64);

/// A device.
#[derive(Clone, Debug)]
pub struct Disk {
    cells: Vec<Sector>,
    durable: Vec<Sector>,
    unflushed: Vec<Unflushed>,
    serial: u64,
    notes: Notes,
    /// The serial at the last flush.
    flushed_at: u64,
    /// For each block, the number of notes at its last write.
    written_at: Vec<u64>,
    /// Sectors that rotted, and their content before.
    rotten: Vec<(u64, Sector)>,
    /// The faults.
    pub faults: Faults,
    /// The note of a flush in the machine's memory, where a process that ended left one.
    pub flush_note: Option<FlushNote>,
}

impl Disk {
    /// A device of `sectors` with durable content as `content` says.
    pub fn new(sectors: u64, content: impl Fn(u64) -> Tag) -> Disk {
        let cells: Vec<Sector> = (0..sectors).map(|sector| Sector::Tag(content(sector))).collect();
        Disk {
            durable: cells.clone(),
            written_at: vec![0; cells.len().div_ceil(8)],
            cells,
            unflushed: Vec::new(),
            serial: 0,
            notes: Notes::default(),
            flushed_at: 0,
            rotten: Vec::new(),
            faults: Faults::default(),
            flush_note: None,
        }
    }

    /// Its size in sectors.
    #[must_use]
    pub fn sectors(&self) -> u64 {
        self.cells.len() as u64
    }

    /// Makes it longer; the new sectors are as `content` says.
    pub fn grow(&mut self, sectors: u64, content: impl Fn(u64) -> Tag) {
        self.cells.extend((self.cells.len() as u64..sectors).map(|sector| Sector::Tag(content(sector))));
        self.durable.extend_from_slice(&self.cells[self.durable.len()..]);
        self.written_at.resize(sectors.div_ceil(8) as usize, self.notes.count());
    }

    /// Makes it shorter. What was unflushed is durable before.
    pub fn shrink(&mut self, sectors: u64) {
        self.flush_all();
        self.cells.truncate(sectors as usize);
        self.durable.truncate(sectors as usize);
        self.written_at.truncate(sectors.div_ceil(8) as usize);
    }

    /// Content of a range as reads see it.
    ///
    /// # Panics
    /// If the range is not inside the device.
    #[must_use]
    pub fn read(&self, first: u64, sectors: u64) -> &[Sector] {
        &self.cells[first as usize..(first + sectors) as usize]
    }

    /// A number that changes with each write and each flush.
    #[must_use]
    pub fn writes(&self) -> u64 {
        self.serial
    }

    /// Content of a sector after a power cut that takes everything it can.
    #[must_use]
    pub fn durable(&self, sector: u64) -> &Sector {
        &self.durable[sector as usize]
    }

    /// The writes that no flush covers, in the order they landed.
    #[must_use]
    pub fn unflushed(&self) -> &[Unflushed] {
        &self.unflushed
    }

    /// Lands a write. Returns its serial.
    pub fn land(&mut self, first: u64, content: Content) -> u64 {
        content.copy_to(&mut self.cells, first);
        let end = first + content.sectors();
        self.written_at[(first / 8) as usize..end.div_ceil(8) as usize].fill(self.notes.count());
        self.serial += 1;
        let write = Unflushed { serial: self.serial, first, content, answered: None, is_failed: false };
        self.unflushed.push(write);
        self.serial
    }

    /// Lands a part of a write, as a failed write leaves it.
    pub fn land_part(&mut self, first: u64, content: &Content, kept: &[bool]) {
        for (step, _) in kept.iter().enumerate().filter(|(_, kept)| **kept) {
            let piece = match content {
                Content::Data(sectors) => Content::Data(Rc::new([sectors[step].clone()])),
                Content::Zeroes(_) => Content::Zeroes(1),
            };
            let serial = self.land(first + step as u64, piece);
            self.answered(serial);
            self.unflushed.last_mut().expect("it has just landed").is_failed = true;
        }
    }

    /// Ends the use of the device by a process: any later flush covers what landed.
    pub fn abandoned(&mut self) {
        self.serial += 1;
        for write in &mut self.unflushed {
            write.answered.get_or_insert(self.serial);
        }
    }

    /// Notes that the write was answered: later flushes cover it.
    pub fn answered(&mut self, serial: u64) {
        self.serial += 1;
        let answered = Some(self.serial);
        if let Some(write) = self.unflushed.iter_mut().rev().find(|write| write.serial == serial) {
            write.answered = answered;
        }
    }

    /// Begins a flush.
    pub fn flush_begins(&mut self) -> FlushTicket {
        self.serial += 1;
        FlushTicket(self.serial)
    }

    /// Ends a flush that succeeded: writes answered before it began are durable; of the others those for which `also`
    /// holds.
    pub fn flushed(&mut self, ticket: FlushTicket, also: &mut dyn FnMut() -> bool) {
        let durable = &mut self.durable;
        let mut kept: Vec<(u64, u64)> = Vec::new();
        let mut newer: Vec<Content> = Vec::new();
        self.unflushed.retain(|write| {
            let (first, end) = (write.first, write.first + write.content.sectors());
            // A newer write must not become durable under an older one that is still to come.
            let is_on_top = kept.iter().any(|&(other, other_end)| first < other_end && other < end);
            let is_covered = write.answered.is_some_and(|answered| answered < ticket.0);
            if is_covered || (also() && !is_on_top) {
                write.content.copy_to(durable, write.first);
                if is_covered && write.serial > self.flushed_at {
                    newer.push(write.content.clone());
                }
                return false;
            }
            kept.push((first, end));
            true
        });
        self.notes.add(newer.iter());
        self.flushed_at = self.serial;
    }

    /// Makes all that landed durable.
    pub fn flush_all(&mut self) {
        let ticket = self.flush_begins();
        self.flushed(ticket, &mut || true);
    }

    /// Number of times, since the sector's block was written, that a flush made a record durable that may note the flush before.
    #[must_use]
    pub fn notes_since(&self, sector: u64) -> u64 {
        self.notes.count() - self.written_at[(sector / 8) as usize]
    }

    /// Fails a flush. Of the answered and unflushed writes some are durable, some stay volatile, some are gone and
    /// reads see the content before; writes answered later are for a later flush. Returns the lost pieces: first
    /// sector and count of each.
    pub fn flush_failed(&mut self, random: &mut Random) -> Vec<(u64, u64)> {
        let mut gone = Vec::new();
        let mut kept = Vec::new();
        for write in std::mem::take(&mut self.unflushed) {
            let (first, end) = (write.first, write.first + write.content.sectors());
            let covers =
                |below: &Unflushed| first < below.first + below.content.sectors() && below.first < end;
            // A write still to come must not become durable over a newer one.
            let is_kept = write.answered.is_none() || kept.iter().any(covers);
            match if is_kept { 1 } else { random.below(3) } {
                0 => write.content.copy_to(&mut self.durable, write.first),
                1 => kept.push(write),
                _ => gone.push(write),
            }
        }
        self.unflushed = kept;
        for write in &gone {
            self.restore(write.first, write.content.sectors());
        }
        for at in 0..self.unflushed.len() {
            let Unflushed { first, content, .. } = &self.unflushed[at];
            content.copy_to(&mut self.cells, *first);
        }
        // A lost write is not missed if the same content was written again.
        gone.retain(|write| !write.content.is_at(&self.cells, write.first));
        gone.into_iter().map(|write| (write.first, write.content.sectors())).collect()
    }

    /// Cuts the power: `fate` decides over every write that no flush covers, in the order they landed.
    pub fn cut_power(&mut self, fate: &mut dyn FnMut(&Unflushed) -> Fate) {
        let writes = std::mem::take(&mut self.unflushed);
        for write in &writes {
            match fate(write) {
                Fate::Lost => (),
                Fate::Kept => write.content.copy_to(&mut self.durable, write.first),
                Fate::Torn(kept) => {
                    for (step, _) in kept.iter().enumerate().filter(|(_, kept)| **kept) {
                        write.content.copy_one(&mut self.durable, write.first, step);
                    }
                }
            }
        }
        for write in &writes {
            self.restore(write.first, write.content.sectors());
        }
    }

    /// Cuts the power of this device alone, with these changes under way. Returns the sectors of which reads see another
    /// content than before, of those that were unflushed.
    pub fn die(
        &mut self,
        under_way: Vec<(u64, Content)>,
        fate: &mut dyn FnMut(&Unflushed) -> Fate,
    ) -> Vec<u64> {
        let seen: Vec<(u64, Vec<Sector>)> = self
            .unflushed
            .iter()
            .map(|write| (write.first, self.read(write.first, write.content.sectors()).to_vec()))
            .collect();
        for (first, content) in under_way {
            self.land(first, content);
        }
        self.cut_power(fate);
        let mut lost = Vec::new();
        for (first, before) in seen {
            let now = self.read(first, before.len() as u64);
            let others = (first..).zip(now.iter().zip(&before)).filter(|(_, (now, before))| now != before);
            lost.extend(others.map(|(sector, _)| sector));
        }
        lost.sort_unstable();
        lost.dedup();
        lost
    }

    fn restore(&mut self, first: u64, sectors: u64) {
        let range = first as usize..(first + sectors) as usize;
        self.cells[range.clone()].clone_from_slice(&self.durable[range]);
    }

    /// Flips a bit of a sector on the medium. False if the sector is only in the volatile cache.
    pub fn rot(&mut self, sector: u64, bit: usize) -> bool {
        let covers =
            |write: &Unflushed| (write.first..write.first + write.content.sectors()).contains(&sector);
        if self.unflushed.iter().any(covers) {
            return false;
        }
        let rotten = self.cells[sector as usize].rotten(bit);
        self.rotten.push((sector, self.cells[sector as usize].clone()));
        self.cells[sector as usize] = rotten.clone();
        self.durable[sector as usize] = rotten;
        true
    }

    /// Gives sectors that rotted their content back: all of them, those that were written since, too.
    pub fn heal_rot(&mut self) {
        for (sector, before) in std::mem::take(&mut self.rotten) {
            self.cells[sector as usize] = before;
        }
    }

    /// Puts content on the medium, durably, as somebody else with access to the device would.
    pub fn tamper(&mut self, first: u64, content: &Content) {
        content.copy_to(&mut self.cells, first);
        content.copy_to(&mut self.durable, first);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(disk: &mut Disk, first: u64, number: u64, sectors: u64) -> u64 {
        let data: Rc<[Sector]> = (0..sectors).map(|at| Sector::Tag(Tag::written(number, at))).collect();
        disk.land(first, Content::Data(data))
    }

    fn tags(disk: &Disk) -> Vec<u64> {
        disk.read(0, disk.sectors()).iter().map(|sector| sector.tag().0 >> 12).collect()
    }

    #[test]
    fn a_cut_takes_what_no_flush_covers() {
        let mut disk = Disk::new(4, |_| Tag::ZERO);
        let first = write(&mut disk, 0, 1, 2);
        disk.answered(first);
        let ticket = disk.flush_begins();
        let late = write(&mut disk, 2, 2, 2);
        disk.answered(late);
        disk.flushed(ticket, &mut || false);
        assert_eq!(tags(&disk), [1, 1, 2, 2]);
        disk.cut_power(&mut |_| Fate::Lost);
        assert_eq!(tags(&disk), [1, 1, 0, 0]);
    }

    #[test]
    fn a_cut_tears_and_keeps_by_choice() {
        let mut disk = Disk::new(4, |_| Tag::ZERO);
        write(&mut disk, 0, 1, 4);
        write(&mut disk, 0, 2, 2);
        disk.cut_power(&mut |write| {
            if write.first == 0 && write.content.sectors() == 4 {
                Fate::Torn(vec![true, false, false, true])
            } else {
                Fate::Kept
            }
        });
        assert_eq!(tags(&disk), [2, 2, 0, 1]);
        disk.cut_power(&mut |_| unreachable!("nothing is unflushed after a cut"));
    }

    #[test]
    fn a_failed_flush_keeps_some_and_forgets_some() {
        let mut random = Random::new(5);
        let mut disk = Disk::new(64, |_| Tag::ZERO);
        for at in 0..64 {
            let serial = write(&mut disk, at, 1, 1);
            disk.answered(serial);
        }
        let gone = disk.flush_failed(&mut random);
        assert!(!gone.is_empty() && !disk.unflushed().is_empty());
        let seen = tags(&disk);
        for (sector, seen) in seen.iter().enumerate() {
            let is_gone = gone.iter().any(|&(first, _)| first == sector as u64);
            assert_eq!(*seen, u64::from(!is_gone));
        }
        assert!(gone.len() + disk.unflushed().len() < 64, "some became durable");
    }

    #[test]
    fn rot_flips_a_bit_on_the_medium() {
        let mut disk = Disk::new(2, |_| Tag::written(9, 0));
        assert!(disk.rot(1, 77));
        disk.cut_power(&mut |_| Fate::Lost);
        assert!(matches!(disk.read(1, 1)[0], Sector::Bytes(_)));
        write(&mut disk, 0, 1, 1);
        assert!(!disk.rot(0, 1));
    }
}
