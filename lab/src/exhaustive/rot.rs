//! Rot in small worlds: at every moment, in every block that the cache has.
//!
//! What an explorer does with subsets of writes is done here with blocks: after each event the power is cut with all unflushed writes
//! lost and with all of them kept, or the process ends; then one sector of one block has rotted when the cache is opened again. So
//! it goes on through the script and, where that ends with a stop, behind the stop. A cache whose records rotted may be refused.

use super::{Act, Crash, EVENTS_MAX, Explorer, Found};
use crate::content::Tag;
use crate::disk::Fate;
use crate::violation::{Kind, Violation, catch};
use crate::world::{Refusal, World};
use engine::format::SEGMENTS_OFFSET;
use engine::recovery::OpenError;
use engine::units::SECTORS_PER_BLOCK;

/// The ends of a life, behind which a sector has rotted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// A power cut that takes all that no flush covers.
    Lost,
    /// A power cut that takes nothing.
    Kept,
    /// The end of the process, whose writes in flight land.
    Kill,
    /// A clean stop, when all is answered.
    Stop,
}

const ENDS: [End; 4] = [End::Lost, End::Kept, End::Kill, End::Stop];

/// Counts of visited states.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rotten {
    /// Events after which something was different than before.
    pub events: u64,
    /// Moment, end and block.
    pub states: u64,
    /// Those in which the cache was refused.
    pub refused: u64,
    /// Those in which the log's end was lost, as far as that is allowed.
    pub ends_lost: u64,
}

impl Explorer<'_> {
    /// Visits every block at every moment.
    ///
    /// # Errors
    /// The first violation.
    pub fn explore_rot(&self) -> Result<Rotten, Box<Found>> {
        let mut visited = Rotten::default();
        let stops = self.script.acts.iter().any(|act| matches!(act, Act::Stop));
        // A script that stops the cache itself is cut while it does.
        let ends = if stops { &ENDS[..3] } else { &ENDS };
        for events in 0..EVENTS_MAX {
            let (played, ..) = self.look(events)?;
            if !played.is_like_before {
                visited.events += 1;
                for &end in ends {
                    for sector in self.sectors_with_content(events, end)? {
                        self.visit_rotten(events, end, sector, &mut visited)?;
                    }
                }
            }
            if played.is_over {
                break;
            }
        }
        Ok(visited)
    }

    /// A sector of each block of the cache that has content after such an end: the sectors take turns, and of the superblock's copies
    /// only the first blocks count.
    fn sectors_with_content(&self, events: u64, end: End) -> Result<Vec<u64>, Box<Found>> {
        let result = catch(|| {
            let (mut world, _) = self.play(events)?;
            come_to(&mut world, end)?;
            let cache = world.cache();
            let blocks = (0..cache.sectors()).step_by(SECTORS_PER_BLOCK as usize);
            let mut was_blank = true;
            let mut chosen = Vec::new();
            for first in blocks {
                let sectors = cache.read(first, SECTORS_PER_BLOCK).iter().zip(first..);
                let filled: Vec<u64> =
                    sectors.filter(|(sector, _)| sector.tag() != Tag::ZERO).map(|(_, at)| at).collect();
                if !filled.is_empty() && (was_blank || first >= SEGMENTS_OFFSET / 512) {
                    chosen.push(filled[events as usize % filled.len()]);
                }
                was_blank = filled.is_empty();
            }
            Ok(chosen)
        });
        result.map_err(|violation| self.found(events, Crash::Rotten { end, sector: 0 }, violation))
    }

    fn visit_rotten(
        &self,
        events: u64,
        end: End,
        sector: u64,
        visited: &mut Rotten,
    ) -> Result<(), Box<Found>> {
        let result = catch(|| {
            let (mut world, _) = self.play(events)?;
            world.rot_behind_next_end(sector, 77);
            come_to(&mut world, end)?;
            visited.states += 1;
            match world.try_open()? {
                Ok(()) => {
                    visited.ends_lost += u64::from(world.is_end_lost());
                    world.verify_cut()
                }
                Err(Refusal::Cache(OpenError::Scan(_) | OpenError::Superblock(_)))
                    if world.is_metadata_rotten() =>
                {
                    visited.refused += 1;
                    Ok(())
                }
                // A record that a clean copy is older than the origin may have lain behind the end.
                Err(Refusal::Sample { .. }) if world.is_end_lost() => {
                    visited.refused += 1;
                    Ok(())
                }
                Err(error) => {
                    Err(Violation::new(Kind::Contract, format!("the cache cannot be opened: {error}")))
                }
            }
        });
        result.map_err(|violation| self.found(events, Crash::Rotten { end, sector }, violation))
    }
}

fn come_to(world: &mut World, end: End) -> Result<(), Violation> {
    match end {
        End::Lost => world.cut_power(|_| Fate::Lost),
        End::Kept => world.cut_power(|_| Fate::Kept),
        End::Kill => world.kill(|_| true),
        End::Stop => world.stop()?,
    }
    Ok(())
}
