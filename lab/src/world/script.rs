//! Decisions of a scenario: the device operations that are held back, and when they go on.

use super::World;
use super::operations::{IoView, OpId};
use crate::disk::faults::Fault;
use crate::violation;
use engine::effect::{Errno, Target};
use engine::units::VolumeIndex;

impl World {
    /// Makes every device operation wait for [`World::complete`] from now on.
    pub fn be_manual(&mut self) {
        self.is_manual = true;
    }

    /// Holds back every operation that begins from now on and for which `filter` holds.
    pub fn hold(&mut self, filter: impl Fn(&IoView) -> bool + 'static) {
        self.filters.push(Box::new(filter));
    }

    /// Ends all holding back; held operations go on.
    pub fn release(&mut self) {
        self.is_manual = false;
        self.filters.clear();
        let held: Vec<u64> =
            self.in_flight.iter().filter(|(_, in_flight)| in_flight.is_held).map(|(op, _)| *op).collect();
        for op in held {
            if let Some(in_flight) = self.in_flight.get_mut(&op) {
                in_flight.is_held = false;
            }
            self.schedule(op);
        }
    }

    /// The operations under way for which `filter` holds, oldest first.
    #[must_use]
    pub fn pending(&self, filter: impl Fn(&IoView) -> bool) -> Vec<IoView> {
        self.in_flight.values().map(|in_flight| in_flight.view).filter(|view| filter(view)).collect()
    }

    /// Lets things happen until an operation is under way for which `filter` holds.
    ///
    /// # Errors
    /// A violation, also if none comes.
    pub fn until_pending(
        &mut self,
        filter: impl Fn(&IoView) -> bool,
    ) -> Result<IoView, violation::Violation> {
        for _ in 0..100_000 {
            if let Some(view) = self.pending(&filter).first() {
                return Ok(*view);
            }
            if !self.step()? {
                break;
            }
        }
        self.fail(violation::Kind::Liveness, "the operation that a scenario waits for never comes");
        self.is_sound()?;
        unreachable!("it just failed")
    }

    /// Lets an operation have its effect; its answer is still to come.
    pub fn land_op(&mut self, id: OpId) {
        self.land(id.0);
    }

    /// Carries out and answers an operation.
    ///
    /// # Errors
    /// A violation.
    pub fn complete(&mut self, id: OpId) -> Result<(), violation::Violation> {
        self.answer_op(id.0);
        self.is_sound()
    }

    /// Fails an operation.
    ///
    /// # Errors
    /// A violation.
    pub fn complete_failed(&mut self, id: OpId, errno: Errno) -> Result<(), violation::Violation> {
        if let Some(in_flight) = self.in_flight.get_mut(&id.0) {
            in_flight.fault = Some(Fault::Error(errno));
            self.counts.faults += 1;
        }
        self.answer_op(id.0);
        self.is_sound()
    }

    /// Carries out and answers all operations for which `filter` holds, oldest first, and those that begin because of
    /// that, until there are none.
    ///
    /// # Errors
    /// A violation.
    pub fn complete_all(&mut self, filter: impl Fn(&IoView) -> bool) -> Result<(), violation::Violation> {
        loop {
            let Some(view) = self.pending(&filter).first().copied() else { return self.is_sound() };
            self.complete(view.id)?;
        }
    }

    /// Whether a fault was injected into an operation whose answer is still to come.
    pub(super) fn has_faults_under_way(&self) -> bool {
        self.in_flight.values().any(|in_flight| in_flight.fault.is_some())
    }

    /// Whether an operation on the origin of a volume hangs: it is never answered before the driver's timeout.
    #[must_use]
    pub fn hangs(&self, volume: usize) -> bool {
        let origin = Target::Origin(VolumeIndex(volume as u8));
        self.in_flight.values().any(|op| op.view.target == origin && op.fault == Some(Fault::Hang))
    }

    /// How many operations are under way.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.in_flight.len()
    }
}
