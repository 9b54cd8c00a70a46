//! Changes that clients made to an origin, and what they have to be told when it loses them with a flush that fails.
//!
//! Of a lost change a FLUSH tells that fails and was asked for after the client had the answer to the change. Answers count
//! as had when the driver has drawn the effects: what it hands over before that, a client asked for without them.

use crate::effect::Errno;

/// Number of a group of calls, behind which the driver draws the effects of all of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Group(pub u64);

/// How far a client's change of an origin came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reached {
    /// The origin has answered for no part of it.
    Nothing,
    /// The origin has answered for a part of it.
    Origin,
    /// The same, and the origin may have lost it since.
    Lost,
}

/// Changes of which a FLUSH has to tell that they may be lost.
#[derive(Clone, Copy, Debug)]
struct Lost {
    errno: Errno,
    /// The number of them of which clients have no answer yet.
    unanswered: u64,
    /// The group in which the last of the others was answered.
    answered_in: Group,
}

/// The changes that clients made to an origin.
#[derive(Debug, Default)]
pub struct ClientChanges {
    /// The number of those that the origin has answered for in part at least, and of which clients have no answer yet.
    unanswered: u64,
    /// The group in which the last of the others was answered.
    answered_in: Group,
    lost: Option<Lost>,
}

impl ClientChanges {
    /// Notes that the origin answered for a first part of a change.
    pub fn begin(&mut self) {
        self.unanswered += 1;
    }

    /// Notes that a client is answered whose change reached so far.
    pub fn answered(&mut self, reached: Reached, group: Group) {
        if reached == Reached::Nothing {
            return;
        }
        self.unanswered -= 1;
        self.answered_in = group;
        if let (Reached::Lost, Some(lost)) = (reached, &mut self.lost) {
            lost.unanswered -= 1;
            lost.answered_in = group;
        }
    }

    /// Whether a FLUSH that came in this group speaks for all changes up to now.
    pub fn are_spoken_for(&self, flush: Group) -> bool {
        self.unanswered == 0 && flush > self.answered_in
    }

    /// Notes that all changes may be lost, and that no FLUSH tells of it yet. The caller marks those without an answer as
    /// [`Reached::Lost`].
    pub fn lose(&mut self, errno: Errno) {
        let ClientChanges { unanswered, answered_in, .. } = *self;
        self.lost = Some(Lost { errno, unanswered, answered_in });
    }

    /// The error of a loss of which no FLUSH has told yet.
    pub fn untold(&self) -> Option<Errno> {
        self.lost.map(|lost| lost.errno)
    }

    /// The error with which a FLUSH fails that came in this group. The next one does not if this one `speaks` for changes that
    /// were answered before it, and there are no others.
    pub fn tell(&mut self, flush: Group, speaks: bool) -> Option<Errno> {
        let Lost { errno, unanswered, answered_in } = self.lost?;
        if speaks && unanswered == 0 && flush > answered_in {
            self.lost = None;
        }
        Some(errno)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flushes_fail_until_one_comes_behind_all_answers() {
        let mut changes = ClientChanges::default();
        changes.begin();
        changes.begin();
        changes.begin();
        changes.answered(Reached::Origin, Group(5));
        assert!(!changes.are_spoken_for(Group(9)), "two are not answered");
        changes.lose(Errno::IO);
        assert_eq!(changes.tell(Group(6), true), Some(Errno::IO));
        changes.answered(Reached::Lost, Group(7));
        changes.answered(Reached::Lost, Group(8));
        changes.begin();
        assert_eq!(
            changes.tell(Group(8), true),
            Some(Errno::IO),
            "it came before the client had the last answer"
        );
        assert_eq!(changes.tell(Group(9), false), Some(Errno::IO), "it tells of itself alone");
        assert_eq!(changes.tell(Group(9), true), Some(Errno::IO));
        assert_eq!(changes.tell(Group(9), true), None, "what came later was not lost");
        changes.answered(Reached::Origin, Group(9));
        assert!(!changes.are_spoken_for(Group(9)) && changes.are_spoken_for(Group(10)));
    }
}
