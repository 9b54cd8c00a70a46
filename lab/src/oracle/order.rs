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
}

/// The changes and the flushes of one volume.
#[derive(Debug)]
pub(super) struct OrderJudge {
    /// The origin's content before all of them.
    before: Vec<Tag>,
    /// The number of the first write that is judged. Earlier ones may have been under way.
    first_number: u64,
    /// Of each flush that was answered: it covers what was answered before this.
    flushes: Vec<Time>,
    sectors: BTreeMap<u64, Changes>,
    /// Flushes that the origin is past, by what it durably held: what was over by then is forgotten.
    reached: usize,
}

/// Flushes up to which a sector's content may be everything, and a sector that says so.
#[derive(Clone, Copy, Debug)]
struct Bound {
    flushes: usize,
    sector: u64,
    tag: Tag,
}

impl OrderJudge {
    pub fn new(before: Vec<Tag>, first_number: u64) -> OrderJudge {
        OrderJudge { before, first_number, flushes: Vec::new(), sectors: BTreeMap::new(), reached: 0 }
    }

    /// The origin has these sectors more.
    pub fn grow(&mut self, content: &[Tag]) {
        self.before.extend_from_slice(content);
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
            self.sectors.entry(sector).or_default().seen.push(seen);
        }
    }

    pub fn changed(&mut self, range: SectorRange, at: Moment, fua: bool, is_ok: bool, now: Time) {
        let own_flush = (fua && is_ok).then_some(self.flushes.len());
        for sector in range.start..range.end() {
            let all = self.sectors.entry(sector).or_default();
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
        for seen in self.sectors.values_mut().flat_map(|all| &mut all.seen) {
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
        let all = self.sectors.get_mut(&sector).into_iter().flat_map(|all| &mut all.seen);
        let is_in_doubt =
            |seen: &&mut Seen| seen.answered != NEVER && seen.required > covered && seen.own_flush.is_none();
        for seen in all.filter(is_in_doubt) {
            seen.doubtful_since = seen.tag.map(|_| now).or(seen.doubtful_since);
            seen.required = NEVER;
        }
    }

    /// A read that was submitted at `at` returned this content: what was in doubt then is there, or never will be.
    pub fn read(&mut self, sector: u64, tag: Tag, at: Moment, now: Time) {
        let is_doubtful = |seen: &Seen| seen.doubtful_since.is_some_and(|since| since < at.0);
        let Some(Changes { seen: all, .. }) = self.sectors.get_mut(&sector) else { return };
        if !all.iter().any(is_doubtful) {
            return;
        }
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
        let mut sectors = std::mem::take(&mut self.sectors);
        for all in sectors.values_mut() {
            let is_over = |answered: Time| self.end_of(&all.seen, answered) < reached;
            let is_begun = all.is_begun || is_over(0);
            let kept = all.seen.iter().filter(|seen| !is_over(seen.answered)).copied().collect();
            *all = Changes { seen: kept, is_begun };
        }
        self.sectors = sectors;
    }

    /// Answers how many flushes the origin is durably past.
    fn judge_held(&self, origin: impl Fn(u64) -> Tag, durable: impl Fn(u64) -> Tag) -> Result<usize, String> {
        let mut reached = 0;
        let mut spans = Vec::new();
        let count = self.flushes.len();
        let mut changes = vec![0i64; count + 2];
        let mut sectors = 0i64;
        let (mut least, mut most): (Option<Bound>, Option<Bound>) = (None, None);
        for (&sector, all) in &self.sectors {
            let tag = origin(sector);
            self.spans(sector, all, tag, &mut spans);
            if spans.is_empty() {
                let source = tag.source();
                return Err(format!(
                    "sector {sector} holds {source:?}, which cannot be there: {:?}",
                    all.seen
                ));
            }
            spans.sort_unstable();
            let low = Bound { flushes: spans[0].0, sector, tag };
            let high = spans.iter().map(|span| span.1).max().expect("there is one");
            let high = Bound { flushes: high, sector, tag };
            least = least.filter(|least| least.flushes >= low.flushes).or(Some(low));
            most = most.filter(|most| most.flushes <= high.flushes).or(Some(high));
            sectors += 1;
            let mut next = 0;
            for &(from, to) in &spans {
                let from = from.max(next);
                if from <= to {
                    changes[from] += 1;
                    changes[to + 1] -= 1;
                    next = to + 1;
                }
            }
            let kept = durable(sector);
            if kept != tag {
                self.spans(sector, all, kept, &mut spans);
            }
            reached = reached.max(spans.iter().map(|span| span.0).min().unwrap_or(0));
        }
        let mut sum = 0;
        let is_any = changes[..=count].iter().any(|change| {
            sum += change;
            sum == sectors
        });
        if is_any {
            return Ok(reached);
        }
        let name = |bound: Option<Bound>| {
            bound.map_or(String::new(), |bound| {
                let Bound { flushes, sector, tag } = bound;
                format!("sector {sector} ({:?}) of {flushes} flushes", tag.source())
            })
        };
        Err(format!("no flush fits all: at least {}, at most {}", name(least), name(most)))
    }

    /// Finds the numbers of flushes, from one to another, after which a sector may hold this content.
    fn spans(
        &self,
        sector: u64,
        Changes { seen: all, is_begun }: &Changes,
        tag: Tag,
        spans: &mut Vec<(usize, usize)>,
    ) {
        spans.clear();
        for seen in all {
            if seen.fits(tag) {
                spans.push((seen.flushes_before, self.end_of(all, seen.answered)));
            }
        }
        let is_earlier = matches!(tag.source(), Source::Write { number, .. } if number < self.first_number);
        if !is_begun && (is_earlier || self.before.get(sector as usize) == Some(&tag)) {
            spans.push((0, self.end_of(all, 0)));
        }
        spans.retain(|(least, most)| least <= most);
    }

    /// The number of flushes after which content of a change that was answered then is over. Without a newer version any number of
    /// flushes may have been; else those before the first that covers it.
    fn end_of(&self, all: &[Seen], answered: Time) -> usize {
        let count = self.flushes.len();
        let before = |seen: &Seen| {
            let others = self.flushes.partition_point(|covers| *covers < seen.required);
            seen.own_flush.unwrap_or(count).min(others)
        };
        let newer = all.iter().filter(|seen| seen.submitted > answered && seen.required != NEVER);
        newer.map(before).min().unwrap_or(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct History {
        judge: OrderJudge,
        now: Time,
        content: BTreeMap<u64, Tag>,
    }

    impl History {
        fn new() -> History {
            let before = (0..100).map(|sector| Tag::initial(0, sector)).collect();
            History { judge: OrderJudge::new(before, 1), now: 0, content: BTreeMap::new() }
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

        fn is_allowed(&self) -> bool {
            self.judge.judge_held(|sector| self.held(sector), |sector| self.held(sector)).is_ok()
        }

        /// The same, where all that the origin holds is durable.
        fn is_allowed_durably(&mut self) -> bool {
            let content = self.content.clone();
            let held = |sector| content.get(&sector).copied().unwrap_or_else(|| Tag::initial(0, sector));
            self.judge.judge(held, held).is_ok()
        }

        fn held(&self, sector: u64) -> Tag {
            self.content.get(&sector).copied().unwrap_or_else(|| Tag::initial(0, sector))
        }
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
}
