//! A solid-state disk: channels behind one controller and one wire.
//!
//! Modelled:
//! - channels that each read or program one page at a time, so that reads wait for programs and for
//!   each other; which channel holds which page follows from the address and the seed;
//! - a wire that each command keeps busy for its overhead and its data, and latencies that keep
//!   nothing busy;
//! - a write buffer: writes are done when it has them. Pages are programmed when enough for one
//!   has gathered, when the rest is some milliseconds old, when writes wait for room, or for a
//!   flush. Reads go before that, but cannot hold it up for ever when somebody waits for it;
//! - power-loss protection: nothing is volatile and a flush has nothing to wait for;
//! - a translation layer: erase blocks, those that are erased, and what it costs to empty one when there are
//!   none, so that a trimmed disk and a full one differ; reads of what was never written need no flash;
//! - reading ahead for whoever reads in order.
//!
//! Left out: collecting while the host is idle, mapping tables that have to be loaded, suspended
//! programs, wear, heat.

mod read_ahead;
mod translation;

use crate::commands::{Command, Commands};
use crate::link::Link;
use crate::operation::{Completion, Op, Submit};
use crate::parameters::SsdParameters;
use crate::ranges::Range;
use crate::timeline::Timeline;
use crate::write_buffer::{Part, WriteBuffer};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use read_ahead::{Ahead, ReadAhead};
use translation::Translation;

const MICROSECOND_NS: u64 = 1000;

/// The time that less than a page waits in the buffer for more. By taste.
const GATHER_NS: u64 = 5_000_000;

/// Event inside the disk.
#[derive(Debug)]
enum Event {
    /// A channel has done its job.
    PageDone { channel: usize, job: Job },
    /// A part of a write is in the buffer.
    Landed(Part),
    /// The data of a write past the buffer is here.
    Arrived(Command),
    /// A flush begins.
    Flush(Command),
    /// A command is done.
    Done(Command),
    /// The buffer has waited long enough for more data.
    Gathered,
}

/// Work of a channel.
#[derive(Clone, Copy, Debug)]
enum Job {
    /// A page of a transfer of the host's, by its index.
    Page(usize),
    /// A page read ahead, by its number.
    Ahead(u64),
    /// A batch of the write buffer.
    Behind(u64),
}

/// A channel, and the host's operations for it.
#[derive(Debug, Default)]
struct Channel {
    waiting: VecDeque<Job>,
    is_busy: bool,
    /// Jobs of the host's since the last batch of the buffer.
    jobs_in_row: u64,
    /// Batches of the buffer that it may still do before those.
    turn_pages: u64,
}

/// A command that is spread over channels.
#[derive(Clone, Copy, Debug)]
struct Transfer {
    command: Command,
    pages_left: u64,
    /// For each page of a write, the copying that made room for it.
    copy_ns: u64,
}

/// The disk.
#[derive(Debug)]
pub struct Ssd {
    page_bytes: u64,
    read_ns: u64,
    program_ns: u64,
    command_ns: u64,
    write_command_ns: u64,
    read_latency_ns: u64,
    write_latency_ns: u64,
    flush_ns: u64,
    is_protected: bool,
    read_turn_pages: u64,
    write_turn_pages: u64,
    seed: u64,
    commands: Commands,
    timeline: Timeline<Event>,
    link: Link,
    write_buffer: WriteBuffer,
    translation: Translation,
    read_ahead: ReadAhead,
    channels: Vec<Channel>,
    channels_idle: usize,
    channel_next: usize,
    transfers: Vec<Transfer>,
    transfers_free: Vec<usize>,
    /// Flushes that wait for the buffer as it was when they began.
    flushes: Vec<Command>,
    /// Flushes that begin when those are done.
    flushes_next: Vec<Command>,
    is_gathering: bool,
    is_gathered: bool,
}

impl Ssd {
    pub(crate) fn new(parameters: &SsdParameters, size_bytes: u64, seed: u64) -> Ssd {
        let channels = parameters.channels as usize;
        Ssd {
            page_bytes: parameters.page_bytes,
            read_ns: parameters.read_us * MICROSECOND_NS,
            program_ns: parameters.program_us * MICROSECOND_NS,
            command_ns: parameters.command_ns,
            write_command_ns: parameters.write_command_ns,
            read_latency_ns: parameters.read_latency_us * MICROSECOND_NS,
            write_latency_ns: parameters.write_latency_us * MICROSECOND_NS,
            flush_ns: parameters.flush_us * MICROSECOND_NS,
            is_protected: parameters.power_loss_protection,
            read_turn_pages: parameters.read_turn_pages,
            write_turn_pages: parameters.write_turn_pages,
            seed,
            commands: Commands::new(size_bytes, parameters.queue_depth, parameters.flush_exclusive),
            timeline: Timeline::new(),
            link: Link::new(parameters.interface_mb_per_s),
            write_buffer: WriteBuffer::new(parameters.write_cache_bytes, u64::MAX),
            translation: Translation::new(parameters, size_bytes),
            read_ahead: ReadAhead::new(parameters.read_ahead_bytes, parameters.page_bytes, size_bytes),
            channels: (0..channels).map(|_| Channel::default()).collect(),
            channels_idle: channels,
            channel_next: 0,
            transfers: Vec::new(),
            transfers_free: Vec::new(),
            flushes: Vec::new(),
            flushes_next: Vec::new(),
            is_gathering: false,
            is_gathered: false,
        }
    }

    pub(crate) fn submit(&mut self, now_ns: u64, token: u64, submit: Submit) {
        self.advance(now_ns);
        self.commands.submit(token, submit);
        self.admit(now_ns);
    }

    pub(crate) fn poll(&mut self, now_ns: u64) -> Option<Completion> {
        self.advance(now_ns);
        self.commands.pop_done()
    }

    pub(crate) fn next_ns(&self) -> Option<u64> {
        self.commands.next_ns(self.timeline.next_ns())
    }

    pub(crate) fn size_bytes(&self) -> u64 {
        self.commands.size_bytes()
    }

    pub(crate) fn is_volatile(&mut self, now_ns: u64, start: u64, end: u64) -> bool {
        self.advance(now_ns);
        !self.is_protected && start < end && self.write_buffer.is_volatile(Range { start, end })
    }

    pub(crate) fn volatile_bytes(&mut self, now_ns: u64) -> u64 {
        self.advance(now_ns);
        if self.is_protected { 0 } else { self.write_buffer.volatile_bytes() }
    }

    fn advance(&mut self, now_ns: u64) {
        self.commands.tick(now_ns);
        while let Some((at_ns, event)) = self.timeline.pop_due(now_ns) {
            match event {
                Event::PageDone { channel, job } => self.page_done(at_ns, channel, job),
                Event::Landed(part) => self.landed(at_ns, &part),
                Event::Arrived(command) => self.spread_write(at_ns, command),
                Event::Flush(command) => self.flush(at_ns, command),
                Event::Done(command) => {
                    self.commands.complete(command, at_ns);
                    self.admit(at_ns);
                }
                Event::Gathered => {
                    self.is_gathering = false;
                    self.is_gathered = true;
                    self.drain(at_ns);
                }
            }
        }
    }

    fn admit(&mut self, now_ns: u64) {
        while let Some(command) = self.commands.admit() {
            match command.op {
                Op::Read => self.read(now_ns, command),
                Op::Write if self.write_buffer.is_off() => {
                    let arrived_ns = self.link.carry(now_ns, self.write_command_ns, command.len_bytes);
                    self.timeline.push(arrived_ns, Event::Arrived(command));
                }
                Op::Write => {
                    self.write_buffer.queue(command);
                    self.take_in(now_ns);
                    self.drain(now_ns);
                }
                Op::Flush => {
                    let begin_ns = self.link.carry(now_ns, self.command_ns, 0);
                    self.timeline.push(begin_ns, Event::Flush(command));
                }
                Op::Discard => {
                    let range = Range { start: command.offset_bytes, end: command.end_bytes() };
                    self.write_buffer.forget(range);
                    self.translation.discard(range);
                    self.read_ahead.forget(range.start, range.end);
                    let done_ns = self.link.carry(now_ns, self.command_ns, 0) + self.write_latency_ns;
                    self.timeline.push(done_ns, Event::Done(command));
                    self.end_flushes(now_ns);
                    self.take_in(now_ns);
                }
            }
        }
    }

    fn read(&mut self, now_ns: u64, command: Command) {
        if self.write_buffer.holds(Range { start: command.offset_bytes, end: command.end_bytes() }) {
            self.send(now_ns, command);
        } else {
            self.spread_read(now_ns, command);
        }
        for page in self.read_ahead.note(command.offset_bytes, command.end_bytes()) {
            if self.is_written(page) {
                self.enqueue(now_ns, page, Job::Ahead(page));
            } else {
                // No read can be waiting for it yet, and it needs no flash.
                self.read_ahead.arrived(page);
            }
        }
    }

    /// The data of a read is ready for the wire.
    fn send(&mut self, now_ns: u64, command: Command) {
        let sent_ns = self.link.carry(now_ns, self.command_ns, command.len_bytes);
        self.timeline.push(sent_ns + self.read_latency_ns, Event::Done(command));
    }

    fn pages(&self, command: &Command) -> core::ops::RangeInclusive<u64> {
        command.offset_bytes / self.page_bytes..=(command.end_bytes() - 1) / self.page_bytes
    }

    /// Gives the pages of a write to their channels.
    fn spread_write(&mut self, now_ns: u64, command: Command) {
        let pages = self.pages(&command);
        let pages_left = pages.end() - pages.start() + 1;
        let range = Range { start: command.offset_bytes, end: command.end_bytes() };
        self.read_ahead.forget(range.start, range.end);
        let copy_ns = self.translation.write(range) / pages_left;
        let index = self.begin_transfer(Transfer { command, pages_left, copy_ns });
        for page in pages {
            self.enqueue(now_ns, page, Job::Page(index));
        }
    }

    /// Gives those pages of a read that are in the flash, and not in memory, to their channels.
    fn spread_read(&mut self, now_ns: u64, command: Command) {
        let index = self.begin_transfer(Transfer { command, pages_left: 1, copy_ns: 0 });
        for page in self.pages(&command) {
            match self.read_ahead.look(page) {
                Ahead::Here => {}
                Ahead::Coming => {
                    self.transfers[index].pages_left += 1;
                    self.read_ahead.wait(page, index);
                }
                Ahead::No if self.is_written(page) => {
                    self.transfers[index].pages_left += 1;
                    self.enqueue(now_ns, page, Job::Page(index));
                }
                Ahead::No => {}
            }
        }
        // One was counted for the loop itself.
        self.transfer_page_done(now_ns, index);
    }

    fn begin_transfer(&mut self, transfer: Transfer) -> usize {
        if let Some(index) = self.transfers_free.pop() {
            self.transfers[index] = transfer;
            return index;
        }
        self.transfers.push(transfer);
        self.transfers.len() - 1
    }

    fn is_written(&self, page: u64) -> bool {
        let start = page * self.page_bytes;
        let end = (start + self.page_bytes).min(self.commands.size_bytes());
        self.translation.holds(Range { start, end })
    }

    fn enqueue(&mut self, now_ns: u64, page: u64, job: Job) {
        let channel = self.channel_of(page);
        self.channels[channel].waiting.push_back(job);
        if !self.channels[channel].is_busy {
            self.use_channel(now_ns, channel);
        }
    }

    /// The channel that holds a page. Neighbours are on different channels, and a stride does not
    /// always meet the same one: each row of pages is turned by an amount of its own.
    fn channel_of(&self, page: u64) -> usize {
        let channels = self.channels.len() as u64;
        let mut turn = (page / channels).wrapping_add(self.seed).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        turn ^= turn >> 32;
        ((page % channels + turn % channels) % channels) as usize
    }

    /// Moves waiting writes into the buffer while there is room.
    fn take_in(&mut self, now_ns: u64) {
        while let Some(part) = self.write_buffer.next_part() {
            let overhead_ns = if part.is_first { self.write_command_ns } else { 0 };
            let landed_ns = self.link.carry(now_ns, overhead_ns, part.range.bytes());
            self.timeline.push(landed_ns, Event::Landed(part));
        }
    }

    fn landed(&mut self, now_ns: u64, part: &Part) {
        self.write_buffer.landed(part);
        self.read_ahead.forget(part.range.start, part.range.end);
        if part.is_last {
            self.timeline.push(now_ns + self.write_latency_ns, Event::Done(part.command));
        }
        self.take_in(now_ns);
        self.drain(now_ns);
    }

    fn flush(&mut self, now_ns: u64, command: Command) {
        if self.is_protected {
            self.timeline.push(now_ns + self.flush_ns, Event::Done(command));
        } else if self.flushes.is_empty() {
            self.write_buffer.begin_flush();
            self.flushes.push(command);
            self.end_flushes(now_ns);
            self.drain(now_ns);
        } else {
            self.flushes_next.push(command);
        }
    }

    fn end_flushes(&mut self, now_ns: u64) {
        while !self.flushes.is_empty() && self.write_buffer.is_flushed() {
            for command in self.flushes.drain(..) {
                self.timeline.push(now_ns + self.flush_ns, Event::Done(command));
            }
            if !self.flushes_next.is_empty() {
                self.write_buffer.begin_flush();
                core::mem::swap(&mut self.flushes, &mut self.flushes_next);
            }
        }
    }

    /// Whether a request waits until the buffer has been written.
    fn is_drain_urgent(&self) -> bool {
        !self.flushes.is_empty() || self.write_buffer.is_starved()
    }

    /// Whether there is something in the buffer that should be programmed now.
    fn is_drain_due(&self) -> bool {
        let held_bytes = self.write_buffer.held_bytes();
        held_bytes >= self.page_bytes || (held_bytes > 0 && (self.is_gathered || self.is_drain_urgent()))
    }

    /// Programs from the buffer on idle channels.
    fn drain(&mut self, now_ns: u64) {
        let mut looked_at = 0;
        while self.channels_idle > 0 && looked_at < self.channels.len() && self.is_drain_due() {
            let channel = self.channel_next;
            self.channel_next = (channel + 1) % self.channels.len();
            looked_at += 1;
            if !self.channels[channel].is_busy {
                self.use_channel(now_ns, channel);
            }
        }
        if self.write_buffer.held_bytes() == 0 {
            self.is_gathered = false;
        } else if !self.is_gathering && !self.is_gathered {
            self.is_gathering = true;
            self.timeline.push(now_ns + GATHER_NS, Event::Gathered);
        }
    }

    /// Gives an idle channel its next job.
    fn use_channel(&mut self, now_ns: u64, index: usize) {
        let is_drain_due = self.is_drain_due();
        let is_drain_urgent = self.is_drain_urgent();
        let channel = &mut self.channels[index];
        assert!(!channel.is_busy, "a channel does one thing at a time");
        if channel.jobs_in_row >= self.read_turn_pages {
            channel.turn_pages = self.write_turn_pages;
        }
        let must_drain = is_drain_due && is_drain_urgent && channel.turn_pages > 0;
        let job = if let Some(job) = channel.waiting.front().copied()
            && !must_drain
        {
            channel.waiting.pop_front();
            channel.jobs_in_row = channel.jobs_in_row.saturating_add(1);
            job
        } else if is_drain_due && let Some((batch, _)) = self.write_buffer.take(0, self.page_bytes, u64::MAX)
        {
            channel.jobs_in_row = 0;
            channel.turn_pages = channel.turn_pages.saturating_sub(1);
            Job::Behind(batch)
        } else {
            return;
        };
        channel.is_busy = true;
        self.channels_idle -= 1;
        let job_ns = match job {
            Job::Ahead(_) => self.read_ns,
            Job::Page(index) if self.transfers[index].command.op == Op::Read => self.read_ns,
            Job::Page(index) => self.program_ns + self.transfers[index].copy_ns,
            Job::Behind(batch) => {
                let ranges = self.write_buffer.ranges(batch).iter();
                self.program_ns + ranges.map(|range| self.translation.write(*range)).sum::<u64>()
            }
        };
        self.timeline.push(now_ns + job_ns, Event::PageDone { channel: index, job });
    }

    fn page_done(&mut self, now_ns: u64, channel: usize, job: Job) {
        self.channels[channel].is_busy = false;
        self.channels_idle += 1;
        match job {
            Job::Page(index) => self.transfer_page_done(now_ns, index),
            Job::Ahead(page) => {
                for transfer in self.read_ahead.arrived(page) {
                    self.transfer_page_done(now_ns, transfer);
                }
            }
            Job::Behind(batch) => {
                self.write_buffer.written(batch);
                self.end_flushes(now_ns);
                self.take_in(now_ns);
            }
        }
        self.use_channel(now_ns, channel);
        self.drain(now_ns);
    }

    fn transfer_page_done(&mut self, now_ns: u64, index: usize) {
        let transfer = &mut self.transfers[index];
        transfer.pages_left -= 1;
        if transfer.pages_left > 0 {
            return;
        }
        let command = transfer.command;
        self.transfers_free.push(index);
        if command.op == Op::Read {
            self.send(now_ns, command);
        } else {
            self.timeline.push(now_ns + self.write_latency_ns, Event::Done(command));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Ssd;
    use crate::parameters::Media;
    use std::vec;

    #[test]
    fn neighbours_are_on_different_channels_and_all_channels_are_used() {
        let Media::Ssd(parameters) = crate::find("ssd").unwrap().media else { panic!("an SSD") };
        let ssd = Ssd::new(&parameters, 1 << 30, 5);
        let channels = parameters.channels;
        for row in 0..50 {
            let mut used = vec![0; channels as usize];
            for page in row * channels..(row + 1) * channels {
                used[ssd.channel_of(page)] += 1;
            }
            assert_eq!(used, vec![1; channels as usize]);
        }
        let mut used = vec![0; channels as usize];
        for stride in 0..1000 {
            used[ssd.channel_of(stride * channels)] += 1;
        }
        assert!(used.iter().all(|count| *count > 1000 / channels / 3), "{used:?}");
    }
}
