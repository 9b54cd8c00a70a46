//! The requests of a trace as the workload of a long run.

use super::plan::{Pace, ReplayError};
use crate::long::{Action, Answer, Demand, Next, Workload};
use crate::trace::{Layout, Op, Source};
use engine::units::{Nanos, VolumeIndex};

/// A trace under way.
pub(super) struct Replay<'a> {
    source: &'a mut dyn Source,
    layout: &'a Layout,
    pace: Pace,
    /// The virtual time and the trace's time at which it began.
    began: Option<(Nanos, u64)>,
    /// The latest time of a request so far.
    latest: Nanos,
    /// The request that comes next, if it was read already.
    ahead: Option<(Nanos, Action)>,
    under_way: u32,
    is_over: bool,
    error: Option<ReplayError>,
}

impl<'a> Replay<'a> {
    pub(super) fn new(source: &'a mut dyn Source, layout: &'a Layout, pace: Pace) -> Replay<'a> {
        Replay {
            source,
            layout,
            pace,
            began: None,
            latest: Nanos(0),
            ahead: None,
            under_way: 0,
            is_over: false,
            error: None,
        }
    }

    /// The error that ended it too early, if one did.
    pub(super) fn end(self) -> Result<(), ReplayError> {
        self.error.map_or(Ok(()), Err)
    }

    fn read(&mut self, now: Nanos) -> Result<Option<(Nanos, Action)>, ReplayError> {
        let Some(entry) = self.source.next_entry()? else { return Ok(None) };
        let range = self.layout.place(&entry).ok_or(ReplayError::Changed)?;
        let action = match entry.op {
            Op::Read => Action::Read(range),
            Op::Write => Action::Write { range, fua: false },
            Op::Discard => Action::Discard(range),
        };
        let due = match self.pace {
            Pace::Depth(_) => now,
            Pace::Timed => {
                let at_ns = entry.at_ns.ok_or(ReplayError::Changed)?;
                let (began, first_ns) = *self.began.get_or_insert((now, at_ns));
                began.plus(at_ns.saturating_sub(first_ns)).max(self.latest)
            }
        };
        self.latest = due;
        Ok(Some((due, action)))
    }
}

impl Workload for Replay<'_> {
    fn next(&mut self, now: Nanos) -> Next {
        let is_full = matches!(self.pace, Pace::Depth(depth) if self.under_way >= depth);
        if self.ahead.is_none() && !self.is_over && !is_full {
            match self.read(now) {
                Ok(ahead) => self.ahead = ahead,
                Err(error) => self.error = Some(error),
            }
            self.is_over = self.ahead.is_none();
        }
        match self.ahead {
            _ if is_full => Next::OnAnswer,
            None => Next::End,
            Some((due, _)) if due > now => Next::At(due),
            Some((due, action)) => {
                self.ahead = None;
                self.under_way += 1;
                Next::Demand(Demand { job: 0, volume: VolumeIndex(0), action, due })
            }
        }
    }

    fn answered(&mut self, _: &Answer) {
        self.under_way -= 1;
    }
}
