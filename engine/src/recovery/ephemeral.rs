//! Ephemeral caches: devices that may be blank at any start, or hold what they held some time ago.
//!
//! All that is known of such a cache when it is gone are notes beside it. They decide whether another one may take its place,
//! and whether one that is there has lost its place (rule 17).

use crate::effect::WriteMode;
use crate::mutation::{Mutation, Mutations};

/// A volume of a cache that is gone, as the notes have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotedVolume {
    /// The cache may have held something that the origin does not have.
    pub may_be_dirty: bool,
    /// The origin was written without the cache since: what that held is void.
    pub is_abandoned: bool,
}

/// Something that lacks for another cache to take the place of one that is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lacking {
    /// The cache was none that may be gone.
    Ephemeral,
    /// The origin of this volume: something of it may be lost.
    Origin {
        /// Its place among the notes.
        at: usize,
    },
}

/// Whether another cache may take the place of one that is gone, of which `volumes` is noted.
///
/// # Errors
/// What lacks.
pub fn may_be_replaced(
    is_ephemeral: bool,
    volumes: &[NotedVolume],
    mutations: Mutations,
) -> Result<(), Lacking> {
    if !is_ephemeral {
        return Err(Lacking::Ephemeral);
    }
    // RULE 17: nothing dirty can be lost.
    let is_needed = |volume: &NotedVolume| volume.may_be_dirty && !volume.is_abandoned;
    match volumes.iter().position(is_needed) {
        Some(at) if !mutations.has(Mutation::FormatThoughDirty) => Err(Lacking::Origin { at }),
        _ => Ok(()),
    }
}

/// Whether a cache has lost its place to another one. What it holds is void: its origins were written since.
#[must_use]
pub fn is_replaced(is_noted: bool, mutations: Mutations) -> bool {
    is_noted && !mutations.has(Mutation::TrustReplaced)
}

/// Whether a volume may need its cache from a start on: whether the cache may hold something that the origin does not have.
/// `noted` is what the notes said before that start; without any it may.
#[must_use]
pub fn needs_its_cache(
    mode: WriteMode,
    found_dirty_bytes: u64,
    noted: Option<bool>,
    mutations: Mutations,
) -> bool {
    // RULE 17: what recovery found dirty is read from now on, and must not be another version later.
    let is_recovered = found_dirty_bytes > 0 && !mutations.has(Mutation::OverlookRecovered);
    mode == WriteMode::Writeback || is_recovered || noted.unwrap_or(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLEAN: NotedVolume = NotedVolume { may_be_dirty: false, is_abandoned: false };
    const DIRTY: NotedVolume = NotedVolume { may_be_dirty: true, is_abandoned: false };

    #[test]
    fn another_cache_takes_the_place_of_one_that_held_nothing_alone() {
        let may =
            |is_ephemeral, volumes: &[NotedVolume]| may_be_replaced(is_ephemeral, volumes, Mutations::NONE);
        assert_eq!(may(true, &[CLEAN, CLEAN]), Ok(()));
        assert_eq!(may(false, &[CLEAN]), Err(Lacking::Ephemeral));
        assert_eq!(may(true, &[CLEAN, DIRTY]), Err(Lacking::Origin { at: 1 }));
        assert_eq!(may(true, &[NotedVolume { is_abandoned: true, ..DIRTY }]), Ok(()), "it is void anyway");
    }

    #[test]
    fn a_volume_needs_its_cache_unless_all_says_that_it_does_not() {
        let needs = |mode, dirty_bytes, noted| needs_its_cache(mode, dirty_bytes, noted, Mutations::NONE);
        assert!(!needs(WriteMode::Writethrough, 0, Some(false)));
        assert!(needs(WriteMode::Writethrough, 4096, Some(false)));
        assert!(needs(WriteMode::Writethrough, 0, Some(true)));
        assert!(needs(WriteMode::Writearound, 0, None));
        assert!(needs(WriteMode::Writeback, 0, Some(false)));
    }
}
