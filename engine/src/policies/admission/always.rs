//! Every piece enters at its first touch.
//!
//! So do bcache, flashcache and EnhanceIO, behind their cutoffs and as far as their rules for
//! partial blocks let a request in. With a history it also tells replacement which pieces
//! come back soon after they left on probation: s3-fifo (Yang et al., SOSP 2023) lets those into its
//! main queue at once.

use super::ghost::Ghost;
use super::{Asked, Verdict};
use crate::units::PieceKey;

/// The tunables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AlwaysChoice {
    /// Pieces that are remembered after they left; default 0: none; s3-fifo takes as many as its main
    /// queue has frames. 0 to 4 294 967 294.
    pub ghost_pieces: u32,
}

/// The policy.
#[derive(Clone, Debug)]
pub struct Always {
    ghost: Ghost,
}

impl Always {
    /// A policy that remembers nothing yet.
    #[must_use]
    pub fn new(choice: AlwaysChoice) -> Always {
        Always { ghost: Ghost::new(choice.ghost_pieces) }
    }

    /// Admits.
    pub fn decide(&mut self, asked: &Asked) -> Verdict {
        let is_returning = self.ghost.take(asked.piece);
        Verdict::Admit { hits: 1, is_temporary: false, is_returning }
    }

    /// Remembers a piece that left.
    pub fn evicted(&mut self, piece: PieceKey) {
        self.ghost.push(piece);
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::asked;
    use super::*;
    use crate::policies::replacement::Access;
    use alloc::vec::Vec;

    /// Two pieces are remembered; of three that left the first is forgotten.
    #[test]
    fn what_left_returns_with_a_mark() {
        let mut always = Always::new(AlwaysChoice { ghost_pieces: 2 });
        (1..=3).for_each(|piece| always.evicted(asked(Access::Read, piece).piece));
        let marks: Vec<bool> = [1, 2, 3, 4, 2]
            .map(|piece| {
                always.decide(&asked(Access::Write, piece))
                    == Verdict::Admit { hits: 1, is_temporary: false, is_returning: true }
            })
            .into();
        assert_eq!(marks, [false, true, true, false, false]);
    }

    #[test]
    fn without_a_history_nothing_is_marked() {
        let mut always = Always::new(AlwaysChoice::default());
        always.evicted(asked(Access::Read, 1).piece);
        assert_eq!(always.decide(&asked(Access::Read, 1)), Verdict::ADMIT);
    }
}
