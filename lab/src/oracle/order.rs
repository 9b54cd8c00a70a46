//! The judge of strict order: whether an origin alone holds what a disk could hold after a power cut.
//!
//! A state is allowed if there is a flush up to which everything is there, and of what came later nothing is there that was
//! submitted after the next flush was answered. The judge sees what the client sees, and the origin's content.

use super::sector::{NEVER, Time};
use super::{Change, Moment};
use crate::content::{Source, Tag};
use engine::units::SectorRange;
use std::collections::BTreeMap;

/// A change of one sector.
#[derive(Clone, Copy, Debug)]
struct Seen {
    /// The content; a discard has none: it may do nothing.
    tag: Option<Tag>,
    submitted: Time,
    /// The flushes that were answered by then.
    flushes_before: usize,
    answered: Time,
    /// A flush submitted at this time or later covers it; never, if it may not have happened.
    required: Time,
    /// The number of flushes before the one that it was itself: acknowledged as durable.
    own_flush: Option<usize>,
    /// When a crash came before it was flushed, or answered, or the origin lost it: no read that began later has told yet
    /// whether it is there.
    doubtful_since: Option<Time>,
}

impl Seen {
    /// Whether that content may be from it.
    fn fits(&self, tag: Tag) -> bool {
        match self.tag {
            Some(written) => written == tag,
            None => matches!(tag.source(), Source::Zero | Source::Garbage),
        }
    }
}

/// The changes of a sector that may still be what the origin holds.
#[derive(Debug, Default)]
struct Changes {
    /// In the order they were submitted.
    seen: Vec<Seen>,
    /// The content before all of them cannot be there any more.
    is_begun: bool,
    /// The outcome of the last look; none where they have changed since.
    found: Option<Found>,
}

/// Numbers of flushes, from one to another. The other one is [`usize::MAX`] where any number may come yet.
type Span = (usize, usize);

/// The flushes after which a sector may hold what the origin has of it.
#[derive(Debug, PartialEq)]
struct Found {
    /// The content that the origin has.
    tag: Tag,
    /// The content that it durably has.
    kept: Tag,
    /// In order; they do not overlap.
    spans: Vec<Span>,
    /// The least number for what it durably has.
    reached: usize,
    /// The number of flushes for which this is so; none where it is so however many there are.
    flushes: Option<usize>,
}

/// The changes and the flushes of one volume.
#[derive(Debug)]
pub(super) struct OrderJudge {
    /// The origin's content before all of them.
    before: Vec<Tag>,
    /// The content of sectors that would be there without what of that was not durable: discards, answered or on their way.
    durable_before: BTreeMap<u64, Tag>,
    /// The number of the first write that is judged. Earlier ones may have been under way.
    first_number: u64,
    /// Of each flush that was answered: it covers what was answered before this.
    flushes: Vec<Time>,
    sectors: BTreeMap<u64, Changes>,
    /// Flushes that the origin is past, by what it durably held: what was over by then is forgotten.
    reached: usize,
}

impl OrderJudge {
    pub fn new(before: Vec<Tag>, durable: &[Tag], first_number: u64) -> OrderJudge {
        let pairs = (0..).zip(before.iter().zip(durable));
        let unlike = pairs.filter(|(_, (held, kept))| held != kept);
        let durable_before = unlike.map(|(at, (_, kept))| (at, *kept)).collect();
        let (flushes, sectors) = (Vec::new(), BTreeMap::new());
        OrderJudge { before, durable_before, first_number, flushes, sectors, reached: 0 }
    }

    /// The origin has these sectors more.
    pub fn grow(&mut self, content: &[Tag]) {
        self.before.extend_from_slice(content);
    }

    /// The changes of a sector, to be changed.
    fn changes_of(&mut self, sector: u64) -> &mut Changes {
        let all = self.sectors.entry(sector).or_default();
        all.found = None;
        all
    }

    pub fn submitted(&mut self, range: SectorRange, change: Change, now: Time) {
        for sector in range.start..range.end() {
            let tag = match change {
                Change::Write(number) => Some(Tag::written(number, sector - range.start)),
                Change::Zeroes => Some(Tag::ZERO),
                Change::Discard => None,
            };
            let seen = Seen {
                tag,
                submitted: now,
                flushes_before: self.flushes.len(),
                answered: NEVER,
                required: NEVER,
                own_flush: None,
                doubtful_since: None,
            };
            let all = &mut self.changes_of(sector).seen;
            assert!(all.last().is_none_or(|last| last.submitted <= now), "they come in order");
            all.push(seen);
        }
    }

    pub fn changed(&mut self, range: SectorRange, at: Moment, fua: bool, is_ok: bool, now: Time) {
        let own_flush = (fua && is_ok).then_some(self.flushes.len());
        for sector in range.start..range.end() {
            let all = self.changes_of(sector);
            for seen in all.seen.iter_mut().filter(|seen| seen.submitted == at.0) {
                seen.answered = now;
                if is_ok && seen.tag.is_some() {
                    (seen.required, seen.own_flush) = (now, own_flush);
                }
            }
        }
        if fua && is_ok {
            self.flushed(at);
        }
    }

    pub fn flushed(&mut self, at: Moment) {
        let covers = self.flushes.last().copied().unwrap_or(0);
        self.flushes.push(covers.max(at.0));
    }

    /// Changes that were not answered may have happened or not; behind a power cut also those that no flush covers.
    pub fn crashed(&mut self, is_power: bool, now: Time) {
        let covered = self.flushes.last().copied().unwrap_or(0);
        let all = self.sectors.values_mut().flat_map(|all| {
            all.found = None;
            &mut all.seen
        });
        for seen in all {
            // Nobody can tell whether a discard happened.
            if seen.tag.is_none() {
                seen.answered = seen.answered.min(now);
            } else if seen.answered == NEVER
                || is_power && seen.required > covered && seen.own_flush.is_none()
            {
                seen.doubtful_since = Some(now);
                seen.required = NEVER;
                seen.answered = seen.answered.min(now);
            }
        }
    }

    /// The origin lost what it had of a sector, and no flush covers. A change that is under way is sent again.
    pub fn lost(&mut self, sector: u64, now: Time) {
        let covered = self.flushes.last().copied().unwrap_or(0);
        let Some(all) = self.sectors.get_mut(&sector) else { return };
        all.found = None;
        let is_in_doubt =
            |seen: &&mut Seen| seen.answered != NEVER && seen.required > covered && seen.own_flush.is_none();
        for seen in all.seen.iter_mut().filter(is_in_doubt) {
            seen.doubtful_since = seen.tag.map(|_| now).or(seen.doubtful_since);
            seen.required = NEVER;
        }
    }

    /// A read that was submitted at `at` returned this content: what was in doubt then is there, or never will be.
    pub fn read(&mut self, sector: u64, tag: Tag, at: Moment, now: Time) {
        let is_doubtful = |seen: &Seen| seen.doubtful_since.is_some_and(|since| since < at.0);
        let Some(Changes { seen: all, found: known, .. }) = self.sectors.get_mut(&sector) else { return };
        if !all.iter().any(is_doubtful) {
            return;
        }
        *known = None;
        // Concurrent changes may be there in either order: the later ones are judged by themselves.
        let mut found: Vec<&mut Seen> = all.iter_mut().filter(|seen| seen.fits(tag)).collect();
        let answered = found.iter().map(|seen| seen.answered).max().unwrap_or(0);
        // Of several zeroes nobody can tell which ones were read.
        if let [seen] = &mut found[..]
            && is_doubtful(seen)
        {
            seen.doubtful_since = None;
            seen.required = now;
        }
        all.retain(|seen| !is_doubtful(seen) || seen.submitted <= answered);
    }

    /// Judges what an origin holds, and what of that is durable: it never goes back to where that was not yet.
    ///
    /// # Errors
    /// Two sectors that cannot be so at the same time, or one that cannot be so at all.
    pub fn judge(&mut self, origin: impl Fn(u64) -> Tag, durable: impl Fn(u64) -> Tag) -> Result<(), String> {
        let reached = self.judge_held(origin, durable)?;
        if reached > self.reached {
            self.forget_before(reached);
        }
        Ok(())
    }

    /// Forgets content that was over before so many flushes: else each look would take longer than the one before.
    fn forget_before(&mut self, reached: usize) {
        self.reached = reached;
        let OrderJudge { sectors, flushes, .. } = self;
        let Some(&covers) = reached.checked_sub(1).and_then(|last| flushes.get(last)) else { return };
        for all in sectors.values_mut() {
            let is_past = |seen: &&Seen| {
                seen.required <= covers
                    || seen.required != NEVER && seen.own_flush.is_some_and(|own| own < reached)
            };
            // What was answered before the newest of these was submitted is over.
            let Some(newest) = all.seen.iter().rev().find(is_past).map(|seen| seen.submitted) else {
                continue;
            };
            let count = all.seen.len();
            all.seen.retain(|seen| seen.answered >= newest);
            if all.seen.len() < count || !all.is_begun {
                (all.is_begun, all.found) = (true, None);
            }
        }
    }

    /// Answers how many flushes the origin is durably past.
    fn judge_held(
        &mut self,
        origin: impl Fn(u64) -> Tag,
        durable: impl Fn(u64) -> Tag,
    ) -> Result<usize, String> {
        let mut sectors = std::mem::take(&mut self.sectors);
        let reached = self.look(&mut sectors, origin, durable);
        self.sectors = sectors;
        reached
    }

    /// The same, of these sectors.
    fn look(
        &self,
        sectors: &mut BTreeMap<u64, Changes>,
        origin: impl Fn(u64) -> Tag,
        durable: impl Fn(u64) -> Tag,
    ) -> Result<usize, String> {
        let mut reached = 0;
        let count = self.flushes.len();
        let mut changes = vec![0i64; count + 2];
        for (&sector, all) in &mut *sectors {
            let (tag, kept) = (origin(sector), durable(sector));
            // Most sectors are as they were at the last look.
            let is_so = |found: &Found| {
                (found.tag, found.kept) == (tag, kept) && found.flushes.is_none_or(|flushes| flushes == count)
            };
            if !all.found.as_ref().is_some_and(is_so) {
                all.found = Some(self.find(sector, all, tag, kept)?);
            }
            let found = all.found.as_ref().expect("it was found by now");
            for &(from, to) in &found.spans {
                changes[from] += 1;
                changes[to.min(count) + 1] -= 1;
            }
            reached = reached.max(found.reached);
        }
        let every = sectors.len() as i64;
        let mut sum = 0;
        let is_any = changes[..=count].iter().any(|change| {
            sum += change;
            sum == every
        });
        if is_any {
            return Ok(reached);
        }
        let found = || sectors.iter().filter_map(|(&sector, all)| Some((sector, all.found.as_ref()?)));
        let least = found().filter_map(|(sector, found)| Some((found.spans.first()?.0, sector, found.tag)));
        let most = found().filter_map(|(sector, found)| Some((found.spans.last()?.1, sector, found.tag)));
        let name = |bound: Option<(usize, u64, Tag)>| {
            bound.map_or(String::new(), |(flushes, sector, tag)| {
                format!("sector {sector} ({:?}) of {} flushes", tag.source(), flushes.min(count))
            })
        };
        Err(format!("no flush fits all: at least {}, at most {}", name(least.max()), name(most.min())))
    }

    /// Finds the flushes after which a sector may hold what the origin has of it.
    fn find(&self, sector: u64, all: &Changes, tag: Tag, kept: Tag) -> Result<Found, String> {
        let count = self.flushes.len();
        let mut spans = self.spans(sector, all, tag);
        let least = |spans: &[Span]| spans.iter().map(|span| span.0).min();
        let Some(first) = least(&spans) else {
            let source = tag.source();
            return Err(format!("sector {sector} holds {source:?}, which cannot be there: {:?}", all.seen));
        };
        let reached = if kept == tag { first } else { least(&self.spans(sector, all, kept)).unwrap_or(0) };
        spans.sort_unstable();
        spans.dedup_by(|later, earlier| {
            let is_joined = later.0 <= earlier.1;
            earlier.1 = if is_joined { earlier.1.max(later.1) } else { earlier.1 };
            is_joined
        });
        if let Some((_, last)) = spans.last_mut()
            && *last == count
        {
            *last = usize::MAX;
        }
        // A flush to come may cover these, and end what was before them.
        let covered = self.flushes.last().copied().unwrap_or(0);
        let waits =
            |seen: &Seen| seen.required != NEVER && seen.required > covered && seen.own_flush.is_none();
        let flushes = all.seen.iter().any(waits).then_some(count);
        Ok(Found { tag, kept, spans, reached, flushes })
    }

    /// Finds the numbers of flushes, from one to another, after which a sector may hold this content.
    fn spans(&self, sector: u64, Changes { seen: all, is_begun, .. }: &Changes, tag: Tag) -> Vec<Span> {
        let fitting = all.iter().filter(|seen| seen.fits(tag));
        let mut spans: Vec<Span> =
            fitting.map(|seen| (seen.flushes_before, self.end_of(all, seen.answered))).collect();
        let is_earlier = matches!(tag.source(), Source::Write { number, .. } if number < self.first_number);
        let is_before = || {
            self.before.get(sector as usize) == Some(&tag) || self.durable_before.get(&sector) == Some(&tag)
        };
        if !is_begun && (is_earlier || is_before()) {
            spans.push((0, self.end_of(all, 0)));
        }
        spans.retain(|(least, most)| least <= most);
        spans
    }

    /// The number of flushes after which content of a change that was answered then is over. Without a newer version any number of
    /// flushes may have been; else those before the first that covers it.
    fn end_of(&self, all: &[Seen], answered: Time) -> usize {
        let newer = &all[all.partition_point(|seen| seen.submitted <= answered)..];
        let newer = newer.iter().filter(|seen| seen.required != NEVER);
        let first = newer.fold((NEVER, self.flushes.len()), |(required, own_flush), seen| {
            (required.min(seen.required), seen.own_flush.unwrap_or(own_flush).min(own_flush))
        });
        self.flushes.partition_point(|covers| *covers < first.0).min(first.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    struct History {
        judge: OrderJudge,
        now: Time,
        content: BTreeMap<u64, Tag>,
    }

    impl History {
        fn new() -> History {
            let before = (0..100).map(|sector| Tag::initial(0, sector)).collect();
            History { judge: OrderJudge::new(before, &[], 1), now: 0, content: BTreeMap::new() }
        }

        fn write(&mut self, number: u64, sector: u64) {
            let range = SectorRange { start: sector, sectors: 1 };
            self.now += 2;
            self.judge.submitted(range, Change::Write(number), self.now - 1);
            self.judge.changed(range, Moment(self.now - 1), false, true, self.now);
        }

        fn flush(&mut self) {
            self.now += 2;
            self.judge.flushed(Moment(self.now - 1));
        }

        fn holds(&mut self, sector: u64, number: u64) {
            self.content.insert(sector, Tag::written(number, 0));
        }

        fn read(&mut self, sector: u64, tag: Tag) {
            self.now += 2;
            self.judge.read(sector, tag, Moment(self.now - 1), self.now);
        }

        fn is_allowed(&mut self) -> bool {
            let History { judge, content, .. } = self;
            judge.judge_held(held(content), held(content)).is_ok()
        }

        /// The same, where all that the origin holds is durable.
        fn is_allowed_durably(&mut self) -> bool {
            let History { judge, content, .. } = self;
            judge.judge(held(content), held(content)).is_ok()
        }
    }

    fn held(content: &BTreeMap<u64, Tag>) -> impl Fn(u64) -> Tag {
        |sector| content.get(&sector).copied().unwrap_or_else(|| Tag::initial(0, sector))
    }

    #[test]
    fn allows_what_was_flushed_and_a_part_of_what_came_next() {
        let mut history = History::new();
        history.write(1, 10);
        history.write(2, 20);
        history.flush();
        history.write(3, 10);
        history.write(4, 30);
        assert!(history.is_allowed(), "nothing is home");
        history.holds(20, 2);
        assert!(history.is_allowed(), "a part of the first interval");
        history.holds(30, 4);
        assert!(!history.is_allowed(), "10 was flushed before that was written");
        history.holds(10, 1);
        assert!(history.is_allowed());
        history.holds(10, 3);
        assert!(history.is_allowed());
        history.flush();
        history.write(5, 40);
        history.holds(40, 5);
        assert!(history.is_allowed());
        history.holds(10, 1);
        assert!(!history.is_allowed(), "an older version is back");
    }

    #[test]
    fn what_was_not_durable_at_the_beginning_may_be_there_or_not() {
        let before: Vec<Tag> = (0..100).map(|sector| Tag::initial(0, sector)).collect();
        let mut kept = before.clone();
        kept[10] = Tag::ZERO;
        let mut history = History { judge: OrderJudge::new(before, &kept, 1), ..History::new() };
        history.write(1, 10);
        history.write(2, 11);
        assert!(history.is_allowed(), "nothing is home");
        history.content.insert(10, Tag::ZERO);
        assert!(history.is_allowed(), "a power cut took what was there");
        history.content.insert(11, Tag::ZERO);
        assert!(!history.is_allowed(), "that was durable");
        history.holds(11, 2);
        history.flush();
        history.write(3, 20);
        history.holds(20, 3);
        assert!(!history.is_allowed(), "10 was flushed before that was written");
    }

    #[test]
    fn what_a_crash_may_have_taken_is_not_asked_for() {
        let mut history = History::new();
        history.write(1, 10);
        history.flush();
        history.write(2, 10);
        history.now += 1;
        history.judge.crashed(true, history.now);
        history.flush();
        history.holds(10, 1);
        assert!(history.is_allowed(), "it may be lost");
        history.read(10, Tag::written(2, 0));
        history.flush();
        history.write(3, 20);
        history.holds(20, 3);
        assert!(!history.is_allowed(), "it was read, and flushed after that");
    }

    #[test]
    fn a_read_that_began_before_a_loss_tells_nothing_of_it() {
        let mut history = History::new();
        history.write(1, 10);
        let at = history.now + 1;
        history.now += 2;
        history.judge.lost(10, history.now);
        history.now += 1;
        history.judge.read(10, Tag::written(1, 0), Moment(at), history.now);
        history.flush();
        history.write(2, 20);
        history.holds(20, 2);
        assert!(history.is_allowed(), "the read may have found it before it was lost");
        history.read(10, Tag::written(1, 0));
        history.flush();
        history.write(3, 20);
        history.holds(20, 3);
        assert!(!history.is_allowed(), "it was read after that");
    }

    #[test]
    fn a_change_under_way_comes_after_the_loss_of_a_part_of_it() {
        let mut history = History::new();
        let range = SectorRange { start: 10, sectors: 1 };
        history.judge.submitted(range, Change::Write(1), 1);
        history.judge.lost(10, 2);
        history.now = 2;
        history.read(10, Tag::initial(0, 10));
        history.holds(10, 1);
        assert!(history.is_allowed(), "it was sent again");
    }

    #[test]
    fn an_origin_does_not_go_back_to_what_it_was_durably_past() {
        let past_second_flush = || {
            let mut history = History::new();
            history.write(1, 10);
            history.flush();
            history.write(2, 10);
            history.flush();
            history.write(3, 20);
            history.holds(10, 2);
            history.holds(20, 3);
            history
        };
        let go_back = |history: &mut History| history.content.clear();
        let mut history = past_second_flush();
        go_back(&mut history);
        assert!(history.is_allowed_durably(), "it was volatile");
        let mut history = past_second_flush();
        assert!(history.is_allowed_durably());
        go_back(&mut history);
        assert!(!history.is_allowed_durably());
        let mut history = past_second_flush();
        assert!(history.is_allowed_durably());
        history.content.remove(&20);
        assert!(history.is_allowed_durably(), "within what came after that flush");
    }

    #[test]
    fn zeroes_of_a_discard_tell_nothing_of_what_was_there_before() {
        let mut history = History::new();
        history.write(1, 10);
        history.judge.crashed(true, 3);
        let range = SectorRange { start: 10, sectors: 1 };
        history.judge.submitted(range, Change::Discard, 4);
        history.judge.changed(range, Moment(4), false, true, 5);
        history.now = 6;
        history.read(10, Tag::ZERO);
        history.holds(10, 1);
        assert!(history.is_allowed(), "the write went home, and the discard has not");
    }

    #[test]
    fn nobody_can_tell_which_of_two_zeroes_were_read() {
        let mut history = History::new();
        let range = SectorRange { start: 10, sectors: 1 };
        history.judge.submitted(range, Change::Zeroes, 1);
        history.judge.submitted(range, Change::Zeroes, 2);
        history.judge.changed(range, Moment(2), false, true, 3);
        history.now = 3;
        history.write(1, 10);
        history.judge.changed(range, Moment(1), false, true, 6);
        history.judge.crashed(true, 7);
        // The first ones, which were under way until after the write.
        history.now = 8;
        history.read(10, Tag::ZERO);
        history.holds(10, 1);
        assert!(history.is_allowed(), "the write goes home before them");
    }

    /// Goal: what a look keeps of what it found changes nothing that later ones say. Method: histories at random, of which each
    /// state is judged with what was kept and without.
    #[test]
    fn what_was_found_before_is_what_would_be_found_now() {
        let mut counts = [0; 2];
        for seed in 0..300 {
            let mut random = Random::new(seed);
            let mut history = History::new();
            let mut durable = BTreeMap::new();
            let mut under_way: Vec<(SectorRange, Moment)> = Vec::new();
            for number in 1..60 {
                history.now += 1;
                let (now, start) = (history.now, random.below(4));
                let range = SectorRange { start, sectors: 1 + random.below(2) };
                match random.below(12) {
                    0..4 => {
                        let changes =
                            [Change::Write(number), Change::Write(number), Change::Zeroes, Change::Discard];
                        history.judge.submitted(range, changes[random.below(4) as usize], now);
                        under_way.push((range, Moment(now)));
                    }
                    4..7 if !under_way.is_empty() => {
                        let (range, at) =
                            under_way.swap_remove(random.below(under_way.len() as u64) as usize);
                        history.judge.changed(range, at, random.one_in(4), !random.one_in(8), now);
                    }
                    7 => history.judge.flushed(Moment(now)),
                    8 if random.one_in(4) => {
                        under_way.clear();
                        history.judge.crashed(random.one_in(2), now);
                    }
                    9 if random.one_in(4) => history.judge.lost(start, now),
                    10 => {
                        let tag = held(&history.content)(start);
                        history.judge.read(start, tag, Moment(now), now);
                    }
                    11 if random.one_in(2) => _ = durable.insert(start, held(&history.content)(start)),
                    _ => {
                        let seen = history.judge.sectors.get(&start).map_or(&[][..], |all| &all.seen);
                        let newest = seen.iter().rev().nth(random.below(2) as usize);
                        let tag = newest.map(|seen| seen.tag.unwrap_or(Tag::ZERO));
                        tag.into_iter().for_each(|tag| _ = history.content.insert(start, tag));
                    }
                }
                let History { judge, content, .. } = &mut history;
                let kept = judge.judge_held(held(content), held(&durable));
                let found: Vec<_> = judge.sectors.values_mut().map(|all| all.found.take()).collect();
                assert_eq!(judge.judge_held(held(content), held(&durable)), kept, "seed {seed} at {now}");
                let is_same = judge.sectors.values().map(|all| &all.found).eq(&found);
                assert!(is_same || kept.is_err(), "seed {seed} at {now}: {found:?}, {:?}", judge.sectors);
                counts[usize::from(kept.is_ok())] += 1;
                if let Ok(reached) = kept
                    && reached > judge.reached
                {
                    let sectors = judge.sectors.values();
                    let over = |all: &Changes, answered| judge.end_of(&all.seen, answered) < reached;
                    let left = sectors.map(|all| {
                        let seen = all.seen.iter().filter(|seen| !over(all, seen.answered));
                        (all.is_begun || over(all, 0), seen.map(|seen| seen.submitted).collect())
                    });
                    let left: Vec<(bool, Vec<Time>)> = left.collect();
                    judge.forget_before(reached);
                    let has =
                        |all: &Changes| (all.is_begun, all.seen.iter().map(|seen| seen.submitted).collect());
                    assert_eq!(
                        judge.sectors.values().map(has).collect::<Vec<_>>(),
                        left,
                        "seed {seed} at {now}"
                    );
                }
            }
        }
        assert!(counts.iter().all(|count| *count > 1000), "{counts:?}");
    }
}
