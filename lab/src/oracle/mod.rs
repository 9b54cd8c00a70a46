//! The oracle: for every sector, the contents that a read may return now, after a power cut, or after a crash of the
//! process; and the errors that a fault explains.
//!
//! The oracle sees what a client sees: requests and their answers. Of the devices it is told
//! the faults alone.

mod explain;
mod order;
mod sector;

pub use explain::Explained;

use crate::content::{Source, Tag};
use crate::violation::{Kind, Violation};
use engine::units::{SECTORS_PER_BLOCK, SectorRange};
use order::OrderJudge;
use sector::{Candidate, Candidates, Durable, NEVER, Time, Version};
use std::collections::VecDeque;

/// Promises of a profile. The default is a disk's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Contract {
    /// Acknowledged changes survive a crash of the process alone.
    pub kill_keeps_acknowledged: bool,
    /// The number of each volume's newest acknowledged writes that a crash may take all the same.
    pub kill_loses_newest: usize,
    /// Without that promise: writes acknowledged this long before the crash survive.
    pub kill_keeps_after_ns: Option<u64>,
    /// Changes that were flushed, or acknowledged as durable, survive a power cut.
    pub cut_keeps_flushed: bool,
    /// Content that was read once after a crash stays.
    pub reads_pin: bool,
}

impl Default for Contract {
    fn default() -> Contract {
        Contract {
            kill_keeps_acknowledged: true,
            kill_loses_newest: 0,
            kill_keeps_after_ns: None,
            cut_keeps_flushed: true,
            reads_pin: true,
        }
    }
}

/// A change of content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// A write; its number.
    Write(u64),
    /// Zeroes.
    Zeroes,
    /// A discard.
    Discard,
}

/// When something was submitted, in the oracle's own time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(Time);

struct Write {
    volume: usize,
    start: u64,
    sectors: u64,
}

struct Volume {
    /// The content of each sector, or where in `open` its candidates are.
    cells: Vec<u64>,
    open: Vec<Candidates>,
    free: Vec<u32>,
    /// Sectors with candidates; some of them may have none any more.
    listed: Vec<u32>,
    /// Changes answered before this moment were flushed.
    flushed: Time,
    /// FLUSHes that were answered, and that rot may still undo: when, and what they cover.
    flushes: VecDeque<(Time, Time)>,
    /// Changes that nothing can undo any more; without it all that is durable.
    told: Option<Durable>,
    /// Acknowledged content that the origin lost and that no FLUSH covers: somebody has to be told.
    must_fail_flush: Option<Untold>,
    /// The writes that were acknowledged in this life, in order, where a crash of the process may take the newest.
    acknowledged: Vec<Answered>,
}

/// When a write was submitted, and when it was acknowledged.
#[derive(Clone, Copy)]
struct Answered {
    submitted: Time,
    answered: Time,
}

/// When the newest `count` writes of these were submitted that were acknowledged by a time.
fn newest_at(acknowledged: &[Answered], end: Time, count: usize) -> impl Iterator<Item = Time> {
    let end = acknowledged.partition_point(|write| write.answered <= end);
    acknowledged[end.saturating_sub(count)..end].iter().map(|write| write.submitted)
}

/// Acknowledged writes that were lost, and of which no FLUSH has told yet.
#[derive(Clone, Copy)]
struct Untold {
    /// When they were lost.
    lost: Time,
    /// When the newest of them was answered: a FLUSH speaks for what was answered before it was submitted.
    newest: Time,
    /// When the oldest of them was answered: a FLUSH that was submitted later cannot promise it.
    oldest: Time,
    heard: Heard,
}

/// The process's knowledge of a loss. A kill before it is noted leaves it told to nobody.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Heard {
    Nothing,
    /// The engine was called, and the driver did not draw its effects yet.
    Called,
    /// Noted beside the cache, or told.
    Noted,
}

/// Marks a cell that has candidates. No tag has this bit: garbage is never promised to anybody.
const OPEN: u64 = 1 << 63;

impl Volume {
    fn new(tags: impl Iterator<Item = Tag>) -> Volume {
        let cells = tags.map(|tag| tag.0).collect();
        Volume {
            cells,
            open: Vec::new(),
            free: Vec::new(),
            listed: Vec::new(),
            flushed: 0,
            flushes: VecDeque::new(),
            told: None,
            must_fail_flush: None,
            acknowledged: Vec::new(),
        }
    }

    /// Changes that are durable unless rot undoes them.
    fn durable(&self) -> Durable {
        Durable::flushed(self.flushed)
    }

    /// Changes that no crash undoes, with or without rot.
    fn lasting(&self) -> Durable {
        self.told.unwrap_or_else(|| self.durable())
    }

    /// Changes that were durable when a moment came.
    fn durable_at(&self, moment: Time) -> Durable {
        let flushes = self.flushes.iter().take_while(|(answered, _)| *answered < moment);
        let flushed = flushes.map(|(_, covered)| *covered).max();
        let known = self.told.map_or(0, |told| told.flushed);
        Durable { flushed: flushed.unwrap_or(0).max(known), fua: moment }
    }

    fn open_at(&self, sector: u64) -> Option<&Candidates> {
        let cell = *self.cells.get(sector as usize)?;
        (cell & OPEN != 0).then(|| &self.open[(cell & !OPEN) as usize])
    }

    fn candidates(&mut self, sector: u64) -> &mut Candidates {
        let cell = &mut self.cells[sector as usize];
        if *cell & OPEN == 0 {
            let at = self.free.pop().unwrap_or_else(|| {
                self.open.push(Candidates::default());
                self.open.len() as u32 - 1
            });
            self.open[at as usize].begin(Tag(*cell));
            *cell = OPEN | u64::from(at);
            self.listed.push(sector as u32);
        }
        &mut self.open[(*cell & !OPEN) as usize]
    }

    /// Closes the sector's candidates if only one is left.
    fn settle(&mut self, sector: u64) {
        let cell = self.cells[sector as usize];
        if cell & OPEN == 0 {
            return;
        }
        let at = (cell & !OPEN) as u32;
        if let Some(tag) = self.open[at as usize].certain(self.lasting()) {
            self.cells[sector as usize] = tag.0;
            self.free.push(at);
        }
    }

    /// Does `body` for all sectors with candidates.
    fn for_each_open(&mut self, mut body: impl FnMut(&mut Candidates)) {
        let mut listed = std::mem::take(&mut self.listed);
        listed.retain(|&sector| self.cells[sector as usize] & OPEN != 0);
        // A sector may have been closed and opened again, and then is listed twice.
        listed.sort_unstable();
        listed.dedup();
        for &sector in &listed {
            body(&mut self.open[(self.cells[sector as usize] & !OPEN) as usize]);
            self.settle(u64::from(sector));
        }
        listed.retain(|&sector| self.cells[sector as usize] & OPEN != 0);
        self.listed = listed;
    }
}

/// The oracle of all volumes of a world.
pub struct Oracle {
    contract: Contract,
    volumes: Vec<Volume>,
    writes: Vec<Write>,
    time: Time,
    /// When the reads under way were submitted.
    readers: Vec<Time>,
    /// The judge of the first volume's origin, if that volume goes home in strict order.
    order: Option<OrderJudge>,
    /// That order was asked to end, and nobody knows whether it did.
    is_order_in_doubt: bool,
    /// Injected faults.
    pub explained: Explained,
}

impl Oracle {
    /// An oracle of volumes that hold these tags, durably.
    pub fn new(contract: Contract, volumes: impl Iterator<Item = Vec<Tag>>) -> Oracle {
        Oracle {
            contract,
            volumes: volumes.map(|tags| Volume::new(tags.into_iter())).collect(),
            writes: Vec::new(),
            time: 1,
            readers: Vec::new(),
            order: None,
            is_order_in_doubt: false,
            explained: Explained::default(),
        }
    }

    /// The first volume goes home in strict order from now on, or not any more: what its origin alone holds, which is all this
    /// now, and durably this, is judged.
    pub fn judge_order(&mut self, origin: Option<[Vec<Tag>; 2]>) {
        let first_number = self.writes.len() as u64 + 1;
        self.order = origin.map(|[before, durable]| OrderJudge::new(before, &durable, first_number));
        self.is_order_in_doubt = false;
    }

    /// The strict order of the first volume was asked to end: until it is known whether it did, its origin is not judged.
    pub fn doubt_order(&mut self, is_in_doubt: bool) {
        self.is_order_in_doubt = is_in_doubt;
    }

    /// Whether the first volume's origin is judged, now or when nothing is in doubt any more.
    pub fn has_order(&self) -> bool {
        self.order.is_some()
    }

    /// A change was under way when that began.
    pub fn under_way_in_order(&mut self, range: SectorRange, change: Change, at: Moment) {
        if let Some(judge) = &mut self.order {
            judge.submitted(range, change, at.0);
        }
    }

    /// Judges what the origin of the first volume holds, and what of that is durable, if that goes home in strict order.
    ///
    /// # Errors
    /// A violation of kind [`Kind::Physical`].
    pub fn expect_order(
        &mut self,
        origin: impl Fn(u64) -> Tag,
        durable: impl Fn(u64) -> Tag,
    ) -> Result<(), Violation> {
        let Some(judge) = self.order.as_mut().filter(|_| !self.is_order_in_doubt) else { return Ok(()) };
        judge.judge(origin, durable).map_err(|what| {
            Violation::new(Kind::Physical, format!("the origin alone is in no flushed state: {what}"))
        })
    }

    /// A moment of its own.
    pub fn moment(&mut self) -> Moment {
        self.time += 1;
        Moment(self.time)
    }

    /// The number that the next write of a range gets.
    pub fn number_write(&mut self, volume: usize, range: SectorRange) -> u64 {
        self.writes.push(Write { volume, start: range.start, sectors: range.sectors });
        self.writes.len() as u64
    }

    fn horizon(&self) -> Time {
        self.readers.iter().copied().min().unwrap_or(NEVER)
    }

    /// A change was submitted.
    pub fn submitted(&mut self, volume: usize, range: SectorRange, change: Change) -> Moment {
        let Moment(now) = self.moment();
        let horizon = self.horizon();
        if let (0, Some(judge)) = (volume, &mut self.order) {
            judge.submitted(range, change, now);
        }
        let volume = &mut self.volumes[volume];
        let lasting = volume.lasting();
        for sector in range.start..range.end() {
            let version = match change {
                Change::Write(number) => Version::Tag(Tag::written(number, sector - range.start)),
                Change::Zeroes => Version::Tag(Tag::ZERO),
                Change::Discard => Version::Any,
            };
            let candidates = volume.candidates(sector);
            if candidates.list.len() > 2 {
                candidates.prune(horizon, lasting);
            }
            candidates.list.push(Candidate::new(version, now));
        }
        Moment(now)
    }

    /// Gives up the lost blocks of a volume: each block that may be concerned is as if it were discarded at this moment. A
    /// change that is submitted later is newer, even if it is answered first.
    pub fn given_up(&mut self, volume: usize) -> Moment {
        let Moment(now) = self.moment();
        let Oracle { volumes, explained, .. } = self;
        let cells = &mut volumes[volume];
        let end = cells.cells.len() as u64;
        for start in explained.suspects_of(volume) {
            for sector in start..(start + SECTORS_PER_BLOCK).min(end) {
                let given_up = Candidate { answered: now, ..Candidate::new(Version::Any, now) };
                cells.candidates(sector).list.push(given_up);
            }
        }
        Moment(now)
    }

    /// A change was acknowledged, or failed.
    pub fn changed(&mut self, volume: usize, range: SectorRange, at: Moment, fua: bool, is_ok: bool) {
        let Moment(now) = self.moment();
        if let (0, Some(judge)) = (volume, &mut self.order) {
            judge.changed(range, at, fua, is_ok, now);
        }
        let volume = &mut self.volumes[volume];
        let mut is_write = false;
        for sector in range.start..range.end() {
            if volume.cells[sector as usize] & OPEN == 0 {
                continue;
            }
            let candidates = volume.candidates(sector);
            // They are in the order they were submitted.
            let newest = candidates.list.iter_mut().rev().take_while(|candidate| candidate.submitted >= at.0);
            for candidate in newest.filter(|candidate| candidate.submitted == at.0) {
                is_write |= candidate.version != Version::Any;
                candidate.answered = now;
                candidate.is_fua = fua && is_ok;
                candidate.is_doubtful = !is_ok;
                candidate.is_failed = !is_ok;
            }
        }
        if is_write && is_ok && self.contract.kill_loses_newest > 0 {
            volume.acknowledged.push(Answered { submitted: at.0, answered: now });
        }
    }

    /// A FLUSH that was submitted at `at` was acknowledged.
    ///
    /// # Errors
    /// A violation of kind [`Kind::Contract`] if what it covers was lost and nobody was told.
    pub fn flushed(&mut self, volume: usize, at: Moment) -> Result<(), Violation> {
        let Moment(now) = self.moment();
        let state = &mut self.volumes[volume];
        if state.must_fail_flush.is_some_and(|untold| untold.lost < at.0 || untold.oldest < at.0) {
            let what =
                format!("a FLUSH of volume {volume} succeeds after a failed one lost acknowledged writes");
            return Err(Violation::new(Kind::Contract, what));
        }
        state.flushed = state.flushed.max(at.0);
        if let (0, Some(judge)) = (volume, &mut self.order) {
            judge.flushed(at);
        }
        if state.told.is_some() {
            state.flushes.push_back((now, state.flushed));
        }
        Ok(())
    }

    /// All that was acknowledged as durable before a moment stays, whatever rots; later changes may not. Without a moment
    /// all stays.
    pub fn told(&mut self, until: Option<Moment>) {
        let Moment(now) = until.unwrap_or_else(|| self.moment());
        for volume in &mut self.volumes {
            let known = volume.durable_at(now);
            volume.flushes.retain(|(answered, _)| *answered >= now);
            volume.told = Some(known);
        }
    }

    /// A FLUSH that was submitted at `at` failed: the client knows of what was acknowledged before that.
    pub fn flush_failed(&mut self, volume: usize, at: Moment) {
        let untold = &mut self.volumes[volume].must_fail_flush;
        *untold = untold.filter(|untold| untold.newest >= at.0);
    }

    /// A read was submitted.
    pub fn read_begins(&mut self) -> Moment {
        let moment = self.moment();
        self.readers.push(moment.0);
        moment
    }

    /// A read was answered; `found` is what it returned, nothing if it failed. Where `is_untold` holds the next read may return
    /// something else all the same: its origin lost what was acknowledged, and nobody was told.
    ///
    /// # Errors
    /// A violation of kind [`Kind::Content`].
    pub fn read_ends(
        &mut self,
        volume: usize,
        first: u64,
        at: Moment,
        found: Option<&[Tag]>,
        is_untold: impl Fn(&u64) -> bool,
    ) -> Result<(), Violation> {
        if let Some(position) = self.readers.iter().position(|reader| *reader == at.0) {
            self.readers.swap_remove(position);
        }
        let horizon = self.horizon();
        for (step, tag) in found.unwrap_or_default().iter().enumerate() {
            let sector = first + step as u64;
            if let (0, Some(judge)) = (volume, &mut self.order) {
                judge.read(sector, *tag, at, self.time);
            }
            let cell = self.volumes[volume].cells[sector as usize];
            if cell == tag.0 {
                continue;
            }
            if cell & OPEN == 0 {
                return Err(self.wrong_content(volume, sector, at, *tag));
            }
            let Oracle { volumes, writes, contract, .. } = self;
            let (durable, lasting) = (volumes[volume].durable(), volumes[volume].lasting());
            let candidates = &mut volumes[volume].open[(cell & !OPEN) as usize];
            let was_ever = || match tag.source() {
                Source::Zero => true,
                Source::Initial { volume: v, sector: s } => (v, s) == (volume, sector),
                Source::Write { number, offset } => writes.get(number as usize - 1).is_some_and(|write| {
                    write.volume == volume && write.start + offset == sector && offset < write.sectors
                }),
                Source::Garbage => false,
            };
            let explains = |candidate: &Candidate| match candidate.version {
                Version::Tag(version) => version == *tag,
                Version::Either(cached, origin) => [cached, origin].contains(tag),
                Version::Any => was_ever(),
            };
            if !candidates.readable(at.0).any(explains) {
                return Err(self.wrong_content(volume, sector, at, *tag));
            }
            if contract.reads_pin && !is_untold(&sector) {
                candidates.pin(at.0, horizon, durable, *tag, explains);
            }
            candidates.prune(horizon, lasting);
            volumes[volume].settle(sector);
        }
        Ok(())
    }

    fn wrong_content(&self, volume: usize, sector: u64, at: Moment, found: Tag) -> Violation {
        let cell = self.volumes[volume].cells[sector as usize];
        let allowed: Vec<String> = if cell & OPEN == 0 {
            vec![self.name(Tag(cell))]
        } else {
            self.volumes[volume].open[(cell & !OPEN) as usize]
                .readable(at.0)
                .map(|candidate| match candidate.version {
                    Version::Tag(tag) => self.name(tag),
                    Version::Either(cached, origin) => {
                        format!("{} or {}", self.name(cached), self.name(origin))
                    }
                    Version::Any => "anything before (discard)".into(),
                })
                .collect()
        };
        Violation::new(
            Kind::Content,
            format!(
                "volume {volume} sector {sector}: read {}, allowed: {}",
                self.name(found),
                allowed.join(" or ")
            ),
        )
    }

    fn name(&self, tag: Tag) -> String {
        match tag.source() {
            Source::Zero => "zeroes".into(),
            Source::Initial { volume, sector } => format!("initial({volume}:{sector})"),
            Source::Garbage => format!("garbage({:#x})", tag.0),
            Source::Write { number, offset } => match self.writes.get(number as usize - 1) {
                Some(write) => format!("write {number} ({}:{})", write.volume, write.start + offset),
                None => format!("write {number}, which never was"),
            },
        }
    }

    /// The place of client data that a tag was written to, if any: volume and sector.
    #[must_use]
    pub fn place_of(&self, tag: Tag) -> Option<(usize, u64)> {
        match tag.source() {
            Source::Initial { volume, sector } => Some((volume, sector)),
            Source::Write { number, offset } => {
                self.writes.get(number as usize - 1).map(|write| (write.volume, write.start + offset))
            }
            Source::Zero | Source::Garbage => None,
        }
    }

    /// The power was cut: anything that may be there after it is there now, and nobody knows which.
    ///
    /// Rot may have taken what was acknowledged as durable at `rotten_since` or later.
    pub fn power_cut(&mut self, rotten_since: Option<Moment>) {
        let Moment(now) = self.moment();
        if let Some(judge) = &mut self.order {
            judge.crashed(true, now);
        }
        self.readers.clear();
        // A clean copy that came back may leave the cache, and then the origin's content is read.
        self.contract.reads_pin &= rotten_since.is_none();
        let keeps_flushed = self.contract.cut_keeps_flushed;
        for volume in &mut self.volumes {
            volume.must_fail_flush = None;
            volume.acknowledged.clear();
            let durable = match rotten_since {
                _ if !keeps_flushed => Durable::flushed(0),
                Some(Moment(since)) => volume.durable_at(since),
                None => volume.durable(),
            };
            volume.for_each_open(|candidates| candidates.power_cut(now, durable));
        }
    }

    /// The process is about to end of its own will: nothing of what it acknowledged is lost.
    pub fn stopped(&mut self) {
        self.volumes.iter_mut().for_each(|volume| volume.acknowledged.clear());
    }

    /// The process ended; the devices and the clients go on. What was under way may have landed. `is_unflushed_lost` if the
    /// cache lost what no flush of it covered. What was answered at `old` or before survives, whatever the contract says
    /// of what is newer. Rot may have taken what was acknowledged at `rotten_since` or later, but nothing that was flushed if
    /// that is remembered. A FLUSH still has to tell of the losses that the process had heard of.
    pub fn process_crash(
        &mut self,
        is_unflushed_lost: bool,
        old: Option<Moment>,
        (rotten_since, is_flush_remembered): (Option<Moment>, bool),
    ) {
        let is_lost = is_unflushed_lost || !self.contract.kill_keeps_acknowledged;
        let kept_until = if is_unflushed_lost { 0 } else { old.map_or(0, |old| old.0) };
        let since = match rotten_since {
            Some(Moment(rotten)) if is_lost => kept_until.min(rotten),
            Some(Moment(rotten)) => rotten,
            None => kept_until,
        };
        let is_lost = is_lost || rotten_since.is_some();
        self.contract.reads_pin &= rotten_since.is_none();
        let Moment(now) = self.moment();
        if let Some(judge) = &mut self.order {
            judge.crashed(is_lost, now);
        }
        let count = self.contract.kill_loses_newest;
        self.readers.clear();
        for volume in &mut self.volumes {
            let durable = match rotten_since {
                Some(Moment(at)) if !is_flush_remembered => volume.durable_at(at),
                _ => volume.durable(),
            };
            // What the devices tell of flushes now, a power cut may take before the next start succeeds.
            let lasting = volume.told.unwrap_or(durable);
            volume.must_fail_flush = volume.must_fail_flush.filter(|untold| untold.heard == Heard::Noted);
            // Where the log's end rotted, it is cut at a batch, and the newest are those of the time at which that was issued.
            let acknowledged = std::mem::take(&mut volume.acknowledged);
            let ends = [Some(now), rotten_since.map(|Moment(at)| at)].into_iter().flatten();
            let newest: Vec<Time> = ends.flat_map(|end| newest_at(&acknowledged, end, count)).collect();
            volume.for_each_open(|candidates| {
                if is_lost {
                    candidates.lose_unflushed(now, durable, since);
                }
                candidates.lose(now, durable, |submitted| newest.contains(&submitted));
                candidates.process_crash(now);
                candidates.prune(NEVER, lasting);
            });
        }
    }

    /// Whether a client discarded a sector, and nothing is durable since then.
    pub fn is_discarded(&self, volume: usize, sector: u64) -> bool {
        self.volumes[volume].open_at(sector).is_some_and(Candidates::has_discard)
    }

    /// A failed flush of an origin, or the end of its server, took unflushed content of a sector, of whose block the cache has what is
    /// to go home. A read under way may read the origin. What the cache has `may_go` with the process.
    pub fn origin_lost_behind(&mut self, volume: usize, sector: u64, may_go: bool) {
        let Moment(now) = self.moment();
        let volume = &mut self.volumes[volume];
        if volume.cells.get(sector as usize).is_some_and(|cell| cell & OPEN != 0) {
            let durable = volume.durable();
            volume.candidates(sector).lose_behind(now, durable, may_go);
        }
    }

    /// A failed flush of an origin took unflushed content of a sector, which the cache has not: what a power cut might have left
    /// may be there. If a FLUSH has to fail because of it, `told` is what the origin has now.
    pub fn origin_lost(&mut self, volume: usize, sector: u64, told: Option<Tag>) {
        let Moment(now) = self.moment();
        if let (0, Some(judge)) = (volume, &mut self.order) {
            judge.lost(sector, now);
        }
        let volume = &mut self.volumes[volume];
        if volume.cells.get(sector as usize).is_none_or(|cell| cell & OPEN == 0) {
            return;
        }
        let durable = volume.durable();
        let candidates = volume.candidates(sector);
        let newest = told.and_then(|left| candidates.newest_unflushed(durable, left));
        // What was under way when the process ended was promised to nobody, and is lost as well.
        if candidates.has_volatile(durable) {
            candidates.lose_unflushed(now, durable, 0);
        }
        if let Some(newest) = newest {
            let before = volume.must_fail_flush;
            let (newer, older) = before.map_or((newest, newest), |untold| (untold.newest, untold.oldest));
            volume.must_fail_flush = Some(Untold {
                lost: now,
                newest: newest.max(newer),
                oldest: newest.min(older),
                heard: before.map_or(Heard::Nothing, |untold| untold.heard),
            });
        }
    }

    /// The engine is called because an origin may have lost something.
    pub fn heard_of_loss(&mut self, volume: usize) {
        if let Some(untold) = &mut self.volumes[volume].must_fail_flush {
            untold.heard = untold.heard.max(Heard::Called);
        }
    }

    /// All that the engine was called for is answered or noted: clients have to be told of losses, whatever becomes of the process.
    pub fn noted_losses(&mut self) {
        let untold = self.volumes.iter_mut().filter_map(|volume| volume.must_fail_flush.as_mut());
        untold.filter(|untold| untold.heard == Heard::Called).for_each(|untold| untold.heard = Heard::Noted);
    }

    /// The cache cannot give back a block of zeroes: any block that may be all zeroes is concerned. A volume has so many `sectors`
    /// for certain: where it ended, a copy has zeroes for what came behind that since.
    pub fn suspect_zeroes(&mut self, sectors: impl Fn(usize) -> u64) {
        let Oracle { volumes, explained, .. } = self;
        for (index, volume) in volumes.iter().enumerate() {
            let may_be_zero = |cell: &u64| match cell & OPEN {
                0 => *cell == 0,
                _ => volume.open[(cell & !OPEN) as usize].list.iter().any(|candidate| {
                    match candidate.version {
                        Version::Any => true,
                        Version::Tag(tag) => tag == Tag::ZERO,
                        Version::Either(cached, origin) => [cached, origin].contains(&Tag::ZERO),
                    }
                }),
            };
            let end = volume.cells.len().min(sectors(index) as usize);
            for (block, cells) in (0..).zip(volume.cells[..end].chunks(SECTORS_PER_BLOCK as usize)) {
                if cells.iter().all(may_be_zero) {
                    explained.suspect(index, block * SECTORS_PER_BLOCK);
                }
            }
        }
    }

    /// Whether a sector's content is beyond doubt, and what it is then.
    #[must_use]
    pub fn certain(&self, volume: usize, sector: u64) -> Option<Tag> {
        let state = &self.volumes[volume];
        match state.cells[sector as usize] {
            cell if cell & OPEN == 0 => Some(Tag(cell)),
            cell => state.open[(cell & !OPEN) as usize].certain_now(state.durable()),
        }
    }

    /// The volume has these sectors more.
    pub fn grow(&mut self, volume: usize, content: impl Iterator<Item = Tag>) {
        let content: Vec<Tag> = content.collect();
        if let (0, Some(judge)) = (volume, &mut self.order) {
            judge.grow(&content);
        }
        self.volumes[volume].cells.extend(content.iter().map(|tag| tag.0));
    }

    /// The origin of a volume has so many sectors now; new ones are as `content` says.
    pub fn fit(&mut self, volume: usize, sectors: u64, content: impl Fn(u64) -> Tag) {
        let volume = &mut self.volumes[volume];
        let old = volume.cells.len() as u64;
        volume.cells.extend((old..sectors).map(|sector| content(sector).0));
        volume.cells.truncate(sectors as usize);
        volume.listed.retain(|sector| u64::from(*sector) < sectors);
    }

    /// While no engine ran somebody wrote to a sector of an origin of which the cache has nothing.
    pub fn became(&mut self, volume: usize, sector: u64, now: Tag) {
        self.become_version(volume, sector, Version::Tag(now));
    }

    /// While no engine ran somebody wrote to a sector of an origin of which the cache has a clean copy, and no start noticed.
    pub fn became_either(&mut self, volume: usize, sector: u64, cached: Tag, now: Tag) {
        self.become_version(volume, sector, Version::Either(cached, now));
    }

    /// A repair may have lost what a range had: it has any content that it ever had.
    pub fn may_be_any(&mut self, volume: usize, range: SectorRange) {
        let end = range.end().min(self.volumes[volume].cells.len() as u64);
        (range.start..end).for_each(|sector| self.become_version(volume, sector, Version::Any));
    }

    fn become_version(&mut self, volume: usize, sector: u64, version: Version) {
        let volume = &mut self.volumes[volume];
        let candidates = volume.candidates(sector);
        candidates.begin(Tag::ZERO);
        candidates.list[0].version = version;
        candidates.differs = matches!(version, Version::Either(..));
        volume.settle(sector);
    }

    /// A volume begins anew with the content of its origin: what the cache has of it is void.
    pub fn replaced(&mut self, volume: usize, tags: Vec<Tag>) {
        self.explained.forget(volume);
        let flushed = self.volumes[volume].flushed;
        self.volumes[volume] = Volume { flushed, ..Volume::new(tags.into_iter()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flush_that_waited_cannot_promise_what_was_lost_meanwhile() {
        let sectors = SectorRange { start: 0, sectors: 1 };
        for is_answered_before in [true, false] {
            let old = Tag::initial(0, 0);
            let mut oracle = Oracle::new(Contract::default(), std::iter::once(vec![old]));
            let write = oracle.submitted(0, sectors, Change::Write(7));
            let early = oracle.moment();
            if is_answered_before {
                oracle.changed(0, sectors, write, false, true);
            }
            let flush = oracle.moment();
            if !is_answered_before {
                oracle.changed(0, sectors, write, false, true);
            }
            oracle.origin_lost(0, 0, Some(old));
            assert_eq!(oracle.flushed(0, flush).is_err(), is_answered_before);
            assert!(oracle.flushed(0, early).is_ok(), "it came before the answer");
            let late = oracle.moment();
            assert!(oracle.flushed(0, late).is_err());
            oracle.flush_failed(0, late);
            assert!(oracle.flushed(0, late).is_ok(), "a FLUSH has told of it");
        }
    }
}
