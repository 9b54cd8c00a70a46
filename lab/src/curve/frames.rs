//! A cache of frames of one block each, in which a policy chooses victims.

use super::sample::SampledAccess;
use engine::policies::admission::ghost::Ghost;
use engine::policies::replacement::free_frames::FreeFrames;
use engine::policies::replacement::{Arrival, Policy, Replacement, ReplacementChoice, Shape};
use engine::units::{BLOCK_BYTES, Frame, PieceKey, SECTOR_BYTES};

const NONE: u32 = u32::MAX;

/// A cache where any block may lie anywhere, and nothing is dirty.
pub(super) struct FrameCache {
    policy: Replacement,
    free: FreeFrames,
    frame_of: Vec<u32>,
    piece_in: Vec<u32>,
    ghost: Option<Ghost>,
}

impl FrameCache {
    /// An empty cache of `frames` frames for blocks with numbers below `pieces`.
    pub(super) fn new(choice: &ReplacementChoice, frames: u32, pieces: u32, seed: u64) -> FrameCache {
        let shape = Shape::whole(frames);
        let policy = Replacement::new(choice, shape, seed);
        let ghost = match &policy {
            Replacement::S3Fifo(s3_fifo) => Some(Ghost::new(s3_fifo.ghosts())),
            _ => None,
        };
        FrameCache {
            policy,
            free: FreeFrames::new(shape, choice.free_order(), |_| true),
            frame_of: vec![NONE; pieces as usize],
            piece_in: vec![NONE; frames as usize],
            ghost,
        }
    }

    /// Whether it is a hit. A miss enters, if the policy makes room for it.
    pub(super) fn access(&mut self, SampledAccess { piece, access, at }: SampledAccess) -> bool {
        self.policy.advance(at);
        self.policy.served(BLOCK_BYTES / SECTOR_BYTES);
        let frame = self.frame_of[piece as usize];
        let is_hit = frame != NONE;
        if is_hit {
            self.policy.hit(Frame(frame), access);
        } else {
            self.policy.miss();
            if let Some(frame) = self.room() {
                let key = PieceKey(u64::from(piece));
                let is_returning = self.ghost.as_mut().is_some_and(|ghost| ghost.take(key));
                let arrival = Arrival { is_returning, ..Arrival::first(access, false) };
                self.policy.insert(frame, arrival);
                self.frame_of[piece as usize] = frame.0;
                self.piece_in[frame.at()] = piece;
            }
        }
        self.policy.tick();
        is_hit
    }

    /// A frame for a newcomer.
    fn room(&mut self) -> Option<Frame> {
        if let Some(frame) = self.free.take(0) {
            return Some(frame);
        }
        if !self.policy.wants_victim(0, 0) {
            return None;
        }
        let victim = self.policy.victim(0, |_| true)?;
        let piece = std::mem::replace(&mut self.piece_in[victim.frame.at()], NONE);
        self.frame_of[piece as usize] = NONE;
        if let (true, Some(ghost)) = (victim.is_remembered, &mut self.ghost) {
            ghost.push(PieceKey(u64::from(piece)));
        }
        Some(victim.frame)
    }
}
