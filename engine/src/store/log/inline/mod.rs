//! `inline`: data lies in the ring, behind the header of its batch.
//!
//! | file | subject |
//! | --- | --- |
//! | `group_commit.rs` | how long a write waits for others |
//! | `gathering.rs` | fills that wait for each other |
//! | `late.rs` | headers that follow what they are of |
//! | `pace.rs` | how fast writes go while clients read from the device, too |

mod gathering;
mod group_commit;
pub(super) mod late;
mod pace;

use super::assembly::BATCHES_IN_FLIGHT_MAX;
use super::draft::Draft;
use super::{ClientAppend, LogStore, PartSource, Publish};
use crate::format::EntryKind;
use crate::machine::Machine;
use crate::machine::guard::{Blocks, Hold};
use crate::machine::request::{RequestKey, Route};
use crate::memory::{Memory, Slice};
use crate::mutation::Mutation;
use crate::number::{to_u32, wide};
use crate::units::{BLOCK_BYTES, Nanos};
use gathering::Gathering;
use group_commit::{GroupCommit, Pending};
use late::LateChoice;
use pace::Pace;

/// The state of this way to append.
#[derive(Debug, Default)]
pub(crate) struct Inline {
    pub(super) group_commit: GroupCommit,
    pub(super) gathering: Gathering,
    pub(super) late: LateChoice,
    pub(super) pace: Pace,
}

impl Inline {
    /// Whether no fill waits, and nothing that could go has to be asked again.
    #[inline]
    pub(super) fn is_quiet(&self) -> bool {
        // Without fills nobody asks for them.
        self.gathering.is_empty() && self.group_commit.deadline().is_none()
    }

    /// When to ask again whether a batch may go, if nothing else happens before.
    #[inline]
    pub(in crate::store::log) fn deadline(&self) -> Option<Nanos> {
        let gathers = self.group_commit.deadline().into_iter().chain(self.gathering.deadline());
        gathers.chain(self.late.until).min()
    }
}

impl Machine<LogStore> {
    /// Sends off what is pending, as far as it may go now.
    pub(super) fn assemble_inline<M: Memory>(&mut self, memory: &mut M) {
        if self.store.segments.free() <= self.config.segments_reserved {
            self.drop_fills(memory);
        }
        if self.store.appender.has_frames() && self.latched.is_none() && self.are_fills_due() {
            self.place_fills(memory);
        }
        self.tend_late(memory);
        loop {
            let log = &self.store.log;
            let has_internal = !log.internal.is_empty() || log.is_floor_wanted;
            let has_writes = !log.client.is_empty();
            let has_fills = self.store.appender.has_company();
            if !(has_internal || has_writes || has_fills) {
                // Most calls end here, behind the last batch or for reads: nobody waits, and no clock has to come.
                self.store.appender.inline_mut().group_commit.clear_deadline();
                self.store.appender.clear_company_deadline();
                return;
            }
            let in_flight = log.under_way();
            let is_full = log.in_flight.len().max(in_flight) >= BATCHES_IN_FLIGHT_MAX;
            let is_enough = log.pending_blocks >= self.config.group_commit_blocks;
            let writes = log.client.len();
            let is_hurried = has_internal || self.is_stopping;
            let is_stopped = is_full || self.latched.is_some();
            let pending_blocks = log.pending_blocks;
            let now = self.now;
            let pace = &mut self.store.appender.inline_mut().pace;
            let held_until = if is_hurried { None } else { pace.held_until(pending_blocks, now) };
            let is_held = held_until.is_some();
            let may_append = !is_stopped && !is_held && self.clients_may_append();
            let inline = self.store.appender.inline_mut();
            let may_wait = has_writes && may_append && in_flight == 0 && !is_hurried;
            if !may_wait {
                // No write waits for group commit: clear its deadline, or the driver would wake for it for ever.
                inline.group_commit.clear_deadline();
            }
            inline.group_commit.hold(held_until);
            let may_fill = has_fills && may_append;
            if !may_fill {
                self.store.appender.clear_company_deadline();
            }
            let may_go = match in_flight {
                0 if is_hurried => true,
                0 => may_wait && self.may_commit_group(),
                _ => is_enough && !is_held || may_append && has_writes && self.may_follow(),
            };
            let is_company_due = may_fill && self.is_company_due();
            if is_stopped || !(is_company_due || may_go) {
                return;
            }
            let writes_max = if may_wait && !is_company_due {
                let wait_ns_max = self.config.group_commit_wait_ns_max;
                self.store.appender.inline_mut().group_commit.first_of(writes, wait_ns_max)
            } else {
                u32::MAX
            };
            let is_late = !is_company_due && self.append_late(writes_max, memory);
            if !is_late && !self.assemble_one(writes_max, memory) {
                return;
            }
            let LogStore { appender, log, flood, .. } = &mut self.store;
            let sent = writes.saturating_sub(log.client.len());
            let sent_blocks = pending_blocks.saturating_sub(log.pending_blocks);
            flood.appended(sent_blocks);
            appender.inline_mut().pace.sent(wide(sent), sent_blocks, now);
            if !is_late {
                let batch = log.in_flight.back_mut().expect("it was just sent");
                batch.writes = sent;
                log.in_flight_writes += sent;
            }
        }
    }

    /// Whether the writes that wait need not wait for more.
    fn may_commit_group(&mut self) -> bool {
        let LogStore { appender, log, .. } = &mut self.store;
        let pending = Pending { writes: log.client.len(), blocks: log.pending_blocks };
        appender.inline_mut().group_commit.may_go(self.now, pending, self.config.group_commit_wait_ns_max)
    }

    /// Whether enough writes wait for a batch beside those that are in flight.
    #[inline]
    fn may_follow(&mut self) -> bool {
        let LogStore { appender, log, .. } = &mut self.store;
        let (writes, batches) = (log.client.len(), log.under_way());
        let wait_ns_max = self.config.group_commit_wait_ns_max;
        let group_commit = &mut appender.inline_mut().group_commit;
        group_commit.may_follow(writes, batches, log.in_flight_writes, wait_ns_max)
    }

    /// Puts part of a client's write into a batch; returns what has no room in it.
    pub(super) fn gather_inline<M: Memory>(
        &mut self,
        request: RequestKey,
        blocks: Blocks,
        slice: Slice,
        draft: &mut Draft,
        memory: &mut M,
    ) -> Option<ClientAppend> {
        let active = &self.requests[request];
        let (volume, is_through) = (active.volume, active.route == Route::LogThenOrigin);
        let now = Blocks { first: blocks.first, count: blocks.count.min(draft.room()) };
        let bytes = to_u32(now.count * BLOCK_BYTES);
        if is_through {
            self.note_whether_new(request, now);
        }
        let target = self.volume_mut(volume);
        target.guard.acquire(now, Hold::Publishing);
        let volume_id = target.id;
        let place = Some(draft.next_place());
        let checksums_at = draft.checksums.len();
        draft.add_checksums(slice, now.count, memory);
        // HAZARD 6: dirty until the origin has it, in write-through, too: after a crash between the two writes the
        // log is repeated.
        let is_clean = is_through && self.is_mutated(Mutation::WritethroughLogsClean);
        let kind = if is_clean { EntryKind::Clean } else { EntryKind::Dirty };
        draft.push_payload_entry(kind, volume_id, now);
        draft.pieces.push(slice.part(0, bytes));
        draft.publish.push(Publish::Part { request, volume, blocks: now, place, checksums_at });
        draft.add_payload(now.count);
        self.store.log.pending_blocks -= now.count;
        self.requests[request].sequence = draft.sequence;
        let rest = Blocks { first: now.end(), count: blocks.count - now.count };
        (rest.count > 0).then(|| {
            let source = PartSource::Data(slice.part(bytes, slice.len_bytes - bytes));
            ClientAppend::Part { request, blocks: rest, source }
        })
    }
}
