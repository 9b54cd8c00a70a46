//! The five calls.

use crate::effect::{Effect, Errno, IoId, Request};
use crate::memory::Memory;
use crate::status::Status;
use crate::units::Nanos;

/// The engine's table of requests is full: submit again after a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Busy;

/// A running cache.
pub struct Engine {}

impl Engine {
    /// Takes a request. `now` never goes back from one call to the next.
    ///
    /// # Errors
    /// [`Busy`] when too many are under way; the request was not taken, its buffer still
    /// belongs to the driver.
    pub fn submit<M: Memory>(&mut self, now: Nanos, request: Request, memory: &mut M) -> Result<(), Busy> {
        let _ = (now, request, memory);
        Ok(())
    }

    /// A device answered operation `io`.
    pub fn complete<M: Memory>(&mut self, now: Nanos, io: IoId, result: Result<(), Errno>, memory: &mut M) {
        let _ = (now, io, result, memory);
    }

    /// Time passed: call it when [`Engine::deadline`] was reached.
    pub fn advance<M: Memory>(&mut self, now: Nanos, memory: &mut M) {
        let _ = (now, memory);
    }

    /// The next thing to do, until `None`. Call it until then after every group of the calls
    /// above: what waits for company (group commit) is sent off when the driver has no more input.
    pub fn poll_effect<M: Memory>(&mut self, memory: &mut M) -> Option<Effect> {
        let _ = memory;
        None
    }

    /// When the engine wants [`Engine::advance`] called, if nothing else happens before.
    #[must_use]
    pub fn deadline(&self) -> Option<Nanos> {
        None
    }

    /// A picture of the engine.
    #[must_use]
    pub fn status(&self) -> Status {
        unimplemented!()
    }
}
