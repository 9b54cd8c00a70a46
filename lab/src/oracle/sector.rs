//! Candidates: contents that one sector may have.
//!
//! A sector has *candidates*: changes of it that may be what a read returns now, or after a power
//! cut. Time is the oracle's own count of events.

use crate::content::Tag;

/// A point in the oracle's time. `NEVER` is later than all.
pub(super) type Time = u64;
pub(super) const NEVER: Time = u64::MAX;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Version {
    /// This content.
    Tag(Tag),
    /// A discard: zeroes, or anything that was written here before.
    Any,
    /// Somebody changed the origin of a cached block: what the cache has, or what the origin has, as often as it likes.
    Either(Tag, Tag),
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Candidate {
    pub version: Version,
    pub submitted: Time,
    /// The time of its answer, or of the crash that prevented the answer.
    pub answered: Time,
    /// Acknowledged as durable.
    pub is_fua: bool,
    /// It may never have happened: it failed, or a crash came before its answer.
    pub is_doubtful: bool,
    /// It was answered with an error: reads may not show it, and a crash may still bring it.
    pub is_failed: bool,
    /// Reads do not return it any more, but a power cut may bring it back.
    pub is_hidden: bool,
    /// It lies on the medium since a power cut: of all such one is the truth.
    pub is_settled: bool,
}

impl Candidate {
    pub fn new(version: Version, submitted: Time) -> Candidate {
        Candidate {
            version,
            submitted,
            answered: NEVER,
            is_fua: false,
            is_doubtful: false,
            is_failed: false,
            is_hidden: false,
            is_settled: false,
        }
    }

    /// Durable content before all changes.
    pub fn settled(tag: Tag) -> Candidate {
        let version = Version::Tag(tag);
        Candidate { answered: 0, is_fua: true, is_settled: true, ..Candidate::new(version, 0) }
    }

    fn is_done(&self) -> bool {
        self.answered != NEVER && !self.is_doubtful
    }

    fn is_durable(&self, durable: Durable) -> bool {
        self.is_done() && (self.is_fua && self.answered < durable.fua || self.answered < durable.flushed)
    }
}

/// The changes that count as durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Durable {
    /// Those answered before this moment.
    pub flushed: Time,
    /// Those answered before this moment that were acknowledged as durable.
    pub fua: Time,
}

impl Durable {
    /// All that was flushed before a moment, or acknowledged as durable at any.
    pub fn flushed(flushed: Time) -> Durable {
        Durable { flushed, fua: NEVER }
    }
}

/// A loss of the origin of what the cache has.
#[derive(Clone, Copy, Debug)]
struct LostBehind {
    time: Time,
    /// Changes that were durable then.
    durable: Durable,
    /// The cache's content may go with the process: a write that nobody was answered for may have brought it there.
    may_go: bool,
}

/// The candidates of a sector that has more than one, in the order they were submitted.
#[derive(Clone, Debug, Default)]
pub(super) struct Candidates {
    pub list: Vec<Candidate>,
    /// The last time when devices lost their unflushed writes.
    lost: Time,
    /// The last loss of the origin of what the cache has, or something newer of its block.
    lost_behind: Option<LostBehind>,
    /// Somebody changed the origin of the block while the cache had a copy of it; no write has settled the sector since.
    pub differs: bool,
}

impl Candidates {
    /// Begins anew, with this content.
    pub fn begin(&mut self, tag: Tag) {
        self.list.clear();
        self.list.push(Candidate::settled(tag));
        (self.lost, self.lost_behind, self.differs) = (0, None, false);
    }

    /// The submit time of the newest change that every read submitted at `reader` or later must see.
    fn seen_since(&self, reader: Time) -> Time {
        let loss = self.loss_beside(reader);
        let is_seen = |candidate: &&Candidate| {
            let is_there = loss.is_none_or(|durable| candidate.is_durable(durable));
            candidate.is_done() && candidate.answered < reader && is_there
        };
        self.list.iter().filter(is_seen).map(|candidate| candidate.submitted).max().unwrap_or(0)
    }

    /// Changes that were durable when the origin lost something while a read was under way that was submitted at `reader`: it may read the
    /// origin, whatever the cache has by now.
    fn loss_beside(&self, reader: Time) -> Option<Durable> {
        self.lost_behind.filter(|lost| reader < lost.time).map(|lost| lost.durable)
    }

    fn durable_since(&self, durable: Durable) -> Time {
        let is_durable = |candidate: &&Candidate| candidate.is_durable(durable);
        self.list.iter().filter(is_durable).map(|candidate| candidate.submitted).max().unwrap_or(0)
    }

    /// Forgets candidates that neither a read submitted at `reader` or later nor a power cut can bring.
    pub fn prune(&mut self, reader: Time, durable: Durable) {
        let (seen, durable) = (self.seen_since(reader), self.durable_since(durable));
        self.list.retain(|candidate| {
            let is_readable = !candidate.is_hidden && candidate.answered >= seen;
            is_readable || candidate.answered >= durable
        });
    }

    /// The content, if it is certain for ever.
    pub fn certain(&self, durable: Durable) -> Option<Tag> {
        match self.list[..] {
            [only] if only.is_durable(durable) && !only.is_hidden => match only.version {
                Version::Tag(tag) => Some(tag),
                Version::Any | Version::Either(..) => None,
            },
            _ => None,
        }
    }

    /// The content, if it is certain as long as nothing rots: older ones may come back only with rot.
    pub fn certain_now(&self, durable: Durable) -> Option<Tag> {
        let mut readable = self.readable(NEVER);
        match (readable.next(), readable.next()) {
            (Some(Candidate { version: Version::Tag(tag), .. }), None) => {
                let is_durable = self.readable(NEVER).all(|only| only.is_durable(durable));
                is_durable.then_some(*tag)
            }
            _ => None,
        }
    }

    /// Contents that a read submitted at `reader` may return.
    pub fn readable(&self, reader: Time) -> impl Iterator<Item = &Candidate> {
        let seen = self.seen_since(reader);
        let may_be_hidden = self.loss_beside(reader).is_some();
        let is_shown = move |candidate: &&Candidate| may_be_hidden || !candidate.is_hidden;
        self.list.iter().filter(is_shown).filter(move |candidate| candidate.answered >= seen)
    }

    /// Narrows the candidates by a read that was submitted at `reader` and returned `found`; `explains` says whether
    /// a candidate can be that. If nothing was under way during the read, `found` is there, and stays. The oldest
    /// read still under way was submitted at `oldest`.
    pub fn pin(
        &mut self,
        reader: Time,
        oldest: Time,
        durable: Durable,
        found: Tag,
        explains: impl Fn(&Candidate) -> bool,
    ) {
        if self.list.len() < 2 && self.list.iter().all(|only| only.version != Version::Any) {
            return;
        }
        let seen = self.seen_since(reader);
        let is_readable = |candidate: &Candidate| !candidate.is_hidden && candidate.answered >= seen;
        let quiet_since = reader.min(oldest);
        // A read that was under way when the devices lost something may have seen the content before.
        if self.lost >= quiet_since {
            return;
        }
        if self.list.iter().any(|candidate| is_readable(candidate) && candidate.answered >= quiet_since) {
            return;
        }
        let explaining = |candidate: &Candidate| is_readable(candidate) && explains(candidate);
        // The cache or the origin showed it, and the other one may show what it has next time.
        let is_either = |candidate: &Candidate| matches!(candidate.version, Version::Either(..));
        if self.list.iter().any(|candidate| is_either(candidate) && explaining(candidate)) {
            return;
        }
        let concrete =
            |candidate: &Candidate| explaining(candidate) && candidate.version == Version::Tag(found);
        let chosen = match self.list.iter().rposition(concrete) {
            Some(chosen) => chosen,
            None => {
                let Some(chosen) = self.list.iter().rposition(explaining) else { return };
                let discard = &self.list[chosen];
                // RULE 12: until a discard is flushed, its sectors may read as zeroes once, and as an earlier
                // version later. Of one that a kill interrupted the read tells that it was done; but the origin may lose it
                // yet, with a flush that fails.
                let is_over = discard.is_doubtful && !discard.is_failed && discard.answered < durable.flushed;
                // One of a part of a block leaves what the cache and the origin have of it, even if that differs.
                if self.differs || !(discard.is_durable(durable) || discard.is_settled || is_over) {
                    return;
                }
                chosen
            }
        };
        // A change that failed may be there for a while, and be gone after a crash.
        if self.list.iter().any(|candidate| explaining(candidate) && candidate.is_failed) {
            return;
        }
        // A change that no explaining change could have overwritten never happened.
        let latest = self.list.iter().filter(|c| explaining(c)).map(|c| c.answered).max().unwrap_or(0);
        let is_settled = self.list[chosen].is_settled;
        let mut at = 0;
        self.list.retain_mut(|candidate| {
            at += 1;
            if at - 1 == chosen {
                candidate.version = Version::Tag(found);
                candidate.is_doubtful = false;
                return true;
            }
            if !is_readable(candidate) || candidate.version == Version::Tag(found) {
                return true;
            }
            let is_too_late = candidate.submitted > latest && !candidate.is_failed;
            let never_was = is_too_late || (is_settled && candidate.is_settled);
            candidate.is_hidden = true;
            !never_was
        });
    }

    /// Notes a power cut at `time`.
    pub fn power_cut(&mut self, time: Time, durable: Durable) {
        let durable = self.durable_since(durable);
        self.list.retain(|candidate| candidate.answered >= durable);
        for candidate in &mut self.list {
            *candidate = Candidate {
                submitted: time,
                answered: time,
                is_fua: true,
                is_settled: true,
                ..Candidate::new(candidate.version, time)
            };
        }
        self.list.dedup_by(|a, b| a.version == b.version);
    }

    /// When the newest write was acknowledged that no flush covers, if there is one that no later change has taken, and it is not
    /// what is `left`. A discard that came behind it takes it while it is under way, even if it came before the answer: nobody can
    /// ask for what was there, unless a read has shown it since.
    pub fn newest_unflushed(&self, durable: Durable, left: Tag) -> Option<Time> {
        let seen = self.seen_since(NEVER);
        let unflushed = self.volatile(durable);
        let newest = unflushed
            .filter(|candidate| candidate.is_done() && candidate.answered >= seen)
            .max_by_key(|candidate| candidate.answered);
        let is_discarded = |newest: &Candidate| {
            let is_later = |other: &Candidate| other.submitted > newest.submitted && !other.is_hidden;
            self.list.iter().any(|other| other.version == Version::Any && is_later(other))
        };
        newest
            .filter(|newest| newest.version != Version::Tag(left) && !is_discarded(newest))
            .map(|newest| newest.answered)
    }

    /// Whether there is a discard.
    pub fn has_discard(&self) -> bool {
        self.list.iter().any(|candidate| candidate.version == Version::Any)
    }

    /// Whether there is a write that no flush covers, acknowledged or not.
    pub fn has_volatile(&self, durable: Durable) -> bool {
        self.volatile(durable).any(|candidate| candidate.answered != NEVER)
    }

    fn volatile(&self, durable: Durable) -> impl Iterator<Item = &Candidate> {
        let is_volatile =
            move |candidate: &&Candidate| !candidate.is_durable(durable) && candidate.version != Version::Any;
        self.list.iter().filter(is_volatile)
    }

    /// Notes that at `time` devices lost unflushed writes answered after `since`: any content that a power cut might
    /// leave may be there.
    pub fn lose_unflushed(&mut self, time: Time, durable: Durable, since: Time) {
        self.lost = time;
        for candidate in &mut self.list {
            candidate.is_hidden = false;
            let is_newer = candidate.answered != NEVER && candidate.answered > since;
            candidate.is_doubtful |= is_newer && !candidate.is_durable(durable);
        }
    }

    /// Notes that at `time` the origin lost unflushed writes of a sector, of whose block the cache has what is to go home: who
    /// reads later reads that. It `may_go` with the process.
    pub fn lose_behind(&mut self, time: Time, durable: Durable, may_go: bool) {
        (self.lost, self.lost_behind) = (time, Some(LostBehind { time, durable, may_go }));
    }

    /// Notes that at `time` acknowledged changes that no flush covers may have been lost: those whose time `is_lost`.
    pub fn lose(&mut self, time: Time, durable: Durable, is_lost: impl Fn(Time) -> bool) {
        let mut has_lost = false;
        for candidate in &mut self.list {
            if candidate.is_done() && !candidate.is_durable(durable) && is_lost(candidate.submitted) {
                candidate.is_doubtful = true;
                has_lost = true;
            }
        }
        if has_lost {
            self.lost = time;
            self.list.iter_mut().for_each(|candidate| candidate.is_hidden = false);
        }
    }

    /// Notes that the process ended at `time`; the device goes on.
    pub fn process_crash(&mut self, time: Time) {
        if let Some(lost) = self.lost_behind.filter(|lost| lost.may_go) {
            for candidate in &mut self.list {
                candidate.is_hidden = false;
                candidate.is_doubtful |=
                    candidate.answered <= lost.time && !candidate.is_durable(lost.durable);
            }
        }
        for candidate in &mut self.list {
            if candidate.answered == NEVER {
                candidate.answered = time;
                candidate.is_doubtful = true;
            }
            candidate.is_hidden &= !std::mem::take(&mut candidate.is_failed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_under_way_when_the_process_ended_is_volatile() {
        let mut candidates = Candidates::default();
        candidates.begin(Tag::written(1, 0));
        assert!(!candidates.has_volatile(Durable::flushed(0)));
        candidates.list.push(Candidate::new(Version::Tag(Tag::written(2, 0)), 2));
        candidates.process_crash(3);
        assert!(
            candidates.has_volatile(Durable::flushed(0))
                && candidates.newest_unflushed(Durable::flushed(0), Tag::ZERO).is_none()
        );
    }

    #[test]
    fn a_read_after_a_kill_settles_no_discard_that_was_not_flushed() {
        let mut candidates = Candidates::default();
        candidates.begin(Tag::written(1, 0));
        candidates.list.push(Candidate::new(Version::Any, 2));
        candidates.process_crash(3);
        let zeroes = |candidate: &Candidate| candidate.version == Version::Any;
        candidates.pin(4, NEVER, Durable::flushed(0), Tag::ZERO, zeroes);
        assert_eq!(candidates.readable(6).count(), 2, "zeroes, or what was there before");
        candidates.pin(4, NEVER, Durable::flushed(4), Tag::ZERO, zeroes);
        assert_eq!(candidates.readable(6).count(), 1, "zeroes");
    }

    #[test]
    fn a_discard_takes_a_write_that_was_under_way_beside_it() {
        let written = Tag::written(1, 0);
        let begin = |submitted| {
            let mut candidates = Candidates::default();
            candidates.begin(Tag::ZERO);
            let write = Candidate { answered: 5, ..Candidate::new(Version::Tag(written), submitted) };
            let discard = Candidate { answered: 6, ..Candidate::new(Version::Any, 3) };
            candidates.list.extend([write, discard]);
            candidates.list.sort_by_key(|candidate| candidate.submitted);
            candidates
        };
        let durable = Durable::flushed(0);
        assert_eq!(begin(4).newest_unflushed(durable, Tag::ZERO), Some(5), "the write came behind it");
        let mut candidates = begin(2);
        assert_eq!(candidates.newest_unflushed(durable, Tag::ZERO), None, "it was discarded");
        candidates.list[2].answered = NEVER;
        assert_eq!(candidates.newest_unflushed(durable, Tag::ZERO), None, "it may be discarded by now");
        candidates.list[2].answered = 6;
        candidates.pin(7, NEVER, durable, written, |_| true);
        assert_eq!(candidates.newest_unflushed(durable, Tag::ZERO), Some(5), "a read has shown it since");
    }

    #[test]
    fn a_read_of_two_that_differ_settles_nothing() {
        let (cached, shown) = (Tag::written(1, 0), Tag::written(2, 0));
        let mut candidates = Candidates::default();
        candidates.begin(cached);
        candidates.list[0].version = Version::Either(cached, shown);
        // A discard that failed, and then a crash.
        let failed =
            Candidate { answered: 3, is_failed: true, is_doubtful: true, ..Candidate::new(Version::Any, 2) };
        candidates.list.push(failed);
        candidates.process_crash(4);
        let explains = |candidate: &Candidate| match candidate.version {
            Version::Either(one, other) => [one, other].contains(&shown),
            version => version != Version::Tag(cached),
        };
        candidates.pin(5, NEVER, Durable::flushed(0), shown, explains);
        assert!(
            candidates.readable(6).any(|c| c.version == Version::Either(cached, shown)),
            "the origin was read once, and the cache may be read next time"
        );
    }

    #[test]
    fn a_discard_leaves_two_that_differ() {
        let (cached, shown) = (Tag::written(1, 0), Tag::written(2, 0));
        let mut candidates = Candidates::default();
        candidates.begin(cached);
        candidates.list[0].version = Version::Either(cached, shown);
        candidates.differs = true;
        let discard = Candidate { answered: 3, ..Candidate::new(Version::Any, 2) };
        candidates.list.push(discard);
        let durable = Durable::flushed(4);
        candidates.power_cut(5, durable);
        candidates.pin(6, NEVER, durable, cached, |_| true);
        assert_eq!(candidates.certain(durable), None, "the origin has something else");
        candidates.list.push(Candidate { answered: 8, ..Candidate::new(Version::Tag(shown), 7) });
        let durable = Durable::flushed(9);
        candidates.prune(NEVER, durable);
        assert_eq!(candidates.certain(durable), Some(shown), "a write settles it");
    }

    #[test]
    fn what_the_origin_lost_behind_the_cache_is_seen_by_reads_under_way_alone() {
        let [old, lost, new] = [1, 2, 3].map(|number| Tag::written(number, 0));
        let mut candidates = Candidates::default();
        candidates.begin(old);
        candidates.list.push(Candidate { answered: 3, ..Candidate::new(Version::Tag(lost), 2) });
        candidates.list.push(Candidate { answered: 7, ..Candidate::new(Version::Tag(new), 6) });
        let is_old_readable = |candidates: &Candidates, reader| {
            candidates.readable(reader).any(|c| c.version == Version::Tag(old))
        };
        assert!(!is_old_readable(&candidates, 5));
        candidates.lose_behind(8, Durable::flushed(0), false);
        assert!(is_old_readable(&candidates, 5) && !is_old_readable(&candidates, 9));
        candidates.lose_behind(8, Durable::flushed(4), false);
        assert!(!is_old_readable(&candidates, 5), "it was flushed");
    }

    #[test]
    fn a_read_settles_nothing_that_was_lost_under_way() {
        let (old, new) = (Tag::written(1, 0), Tag::written(2, 0));
        let mut candidates = Candidates::default();
        candidates.begin(old);
        candidates.list.push(Candidate { answered: 3, ..Candidate::new(Version::Tag(new), 2) });
        candidates.lose_unflushed(6, Durable::flushed(0), 0);
        let is_new = |candidate: &Candidate| candidate.version == Version::Tag(new);
        let is_old_readable =
            |candidates: &Candidates| candidates.readable(9).any(|c| c.version == Version::Tag(old));
        // It may have been carried out before the loss.
        candidates.pin(5, NEVER, Durable::flushed(0), new, is_new);
        assert!(is_old_readable(&candidates));
        // So may another one that is still under way.
        candidates.pin(7, 5, Durable::flushed(0), new, is_new);
        assert!(is_old_readable(&candidates));
        candidates.pin(8, NEVER, Durable::flushed(0), new, is_new);
        assert!(!is_old_readable(&candidates));
    }
}
