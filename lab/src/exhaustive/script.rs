//! Scripts, and how they are played event by event.

use crate::disk::faults::Kind;
use crate::violation::Violation;
use crate::world::World;
use engine::effect::{RequestOp, Target, WriteMode};
use engine::units::SectorRange;

/// One step of a script. Ranges are in sectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// A write is submitted.
    Write(SectorRange),
    /// A write that is durable when it is answered is submitted.
    Fua(SectorRange),
    /// A read is submitted.
    Read(SectorRange),
    /// A discard is submitted.
    Discard(SectorRange),
    /// A write-zeroes is submitted.
    Zeroes(SectorRange),
    /// A flush is submitted.
    Flush,
    /// A change of the mode is submitted.
    Mode(WriteMode),
    /// A drain is submitted.
    Drain,
    /// A clean stop is submitted; nothing may be after it but [`Act::Settle`].
    Stop,
    /// All that was submitted is answered.
    Settle,
    /// A write to the origin is under way, or all has come to rest.
    UntilOriginWrite,
    /// All has come to rest: dirty data is home.
    Rest,
}

/// Acts on one volume, and the worlds in which they make sense.
#[derive(Clone, Copy, Debug)]
pub struct Script<'a> {
    /// Its name.
    pub name: &'static str,
    /// Sectors of the volume.
    pub volume_sectors: u64,
    /// Before the script begins the log is written once round, without being looked at: each segment
    /// that is opened then was in use before.
    pub is_wrapped: bool,
    /// The acts, in order.
    pub acts: &'a [Act],
    /// Modes in which it makes sense.
    pub modes: &'a [WriteMode],
}

/// Part of a moment that a crash can show: moments with the same view lead to the same states.
#[derive(PartialEq, Eq)]
struct View {
    writes: Vec<(Target, u64, u64, bool)>,
    outstanding: usize,
    lasting: Vec<u8>,
}

impl View {
    fn of(world: &World) -> View {
        let writes = world
            .at_stake()
            .iter()
            .map(|write| (write.target, write.first, write.sectors(), write.is_in_flight))
            .collect();
        View { writes, outstanding: world.outstanding(), lasting: world.lasting().to_vec() }
    }
}

/// Plays a script, event by event.
pub(super) struct Player {
    pub world: World,
    /// Events that are still to be played.
    pub left: u64,
    /// The last event changed nothing that a crash could show.
    pub is_like_before: bool,
}

impl Player {
    /// Lets the next event happen. False if none is left to be played, or none is to come.
    fn step(&mut self) -> Result<bool, Violation> {
        if self.left == 0 {
            return Ok(false);
        }
        self.left -= 1;
        let before = (self.left == 0).then(|| View::of(&self.world));
        let is_done = self.world.step()?;
        if let Some(before) = before {
            self.is_like_before = before == View::of(&self.world);
        }
        Ok(is_done)
    }

    /// Carries out an act. False if the number of events is reached.
    pub(super) fn act(&mut self, act: Act) -> Result<bool, Violation> {
        let world = &mut self.world;
        match act {
            Act::Write(range) => _ = world.write(0, range),
            Act::Fua(range) => _ = world.write_fua(0, range),
            Act::Read(range) => _ = world.read(0, range),
            Act::Discard(range) => _ = world.discard(0, range),
            Act::Zeroes(range) => _ = world.write_zeroes(0, range),
            Act::Flush => _ = world.flush(0),
            Act::Mode(mode) => _ = world.submit(0, RequestOp::SetMode(mode)),
            Act::Drain => _ = world.submit(0, RequestOp::Drain),
            Act::Stop => _ = world.submit(0, RequestOp::Stop),
            Act::Settle => {
                while self.world.outstanding() > 0 {
                    if !self.step()? {
                        // If nothing is to come, requests are never answered: let the world say so.
                        return if self.left == 0 { Ok(false) } else { self.world.finish().map(|()| true) };
                    }
                }
            }
            Act::UntilOriginWrite => {
                while self.world.pending(|io| io.is_origin(0, Kind::Write)).is_empty() {
                    if !self.step()? {
                        return Ok(self.left > 0);
                    }
                }
            }
            Act::Rest => {
                while self.step()? {}
                return Ok(self.left > 0);
            }
        }
        self.world.is_sound().map(|()| true)
    }
}
