//! A hard disk: one arm over turning platters.
//!
//! Modelled:
//! - the seek curve, the angle of the platter, zones with their own rates, settling for writes;
//! - a command queue from which the shortest way is served next, unless something has waited too
//!   long; a controller that takes its time for each command;
//! - a buffer for what was read and read ahead, of which some is read after every request, wanted or not;
//! - a volatile write cache: writes are done when it has them, and are written behind in
//!   elevator order, the nearest of the next few places first, when reads leave a pause, when it is half full, when writes wait for room (then
//!   in turns with reads, some places each turn), or for a flush;
//! - the order of overlapping commands: who reads what is being written waits until the write cache has it;
//! - the flush command of SATA, for which the queue must be empty.
//!
//! Left out: heads and skew (the rates are meant as sustained rates), defects and retries, reading
//! a track from the middle, 4 KiB sectors under 512-byte writes, recalibration, standby.

mod geometry;
mod read_buffer;

use crate::commands::{Command, Commands};
use crate::link::Link;
use crate::operation::{Completion, Op, Submit};
use crate::parameters::HddParameters;
use crate::ranges::Range;
use crate::timeline::Timeline;
use crate::write_buffer::{Part, WriteBuffer};
use alloc::vec::Vec;
use geometry::Geometry;
use read_buffer::ReadBuffer;

const MICROSECOND_NS: u64 = 1000;
const MILLISECOND_NS: u64 = 1_000_000;

/// Bytes written behind before reads get their turn. By taste: about 6 ms of an outer track.
const BEHIND_BYTES_MAX: u64 = 1 << 20;

/// Event inside the disk.
#[derive(Debug)]
enum Event {
    /// The controller has understood a command.
    Understood(Command),
    /// The arm has done its job.
    ArmDone(Job),
    /// A part of a write is in the cache.
    Landed(Part),
    /// A command that needed no arm is done.
    Done(Command),
    /// Reads may have paused long enough for writing behind.
    Pause,
    /// The head has read as far beyond a request as it always does.
    Beyond,
}

/// Work of the arm.
#[derive(Clone, Copy, Debug)]
enum Job {
    Read(Command),
    /// A write past the cache.
    Write(Command),
    /// A batch of the write cache.
    Behind(u64),
}

/// A command that needs the arm.
#[derive(Debug)]
struct Waiting {
    command: Command,
    since_ns: u64,
}

/// The disk.
#[derive(Debug)]
pub struct Hdd {
    geometry: Geometry,
    write_settle_ns: u64,
    command_ns: u64,
    age_limit_ns: u64,
    pause_ns: u64,
    beyond_bytes: u64,
    behind_places: u64,
    read_turn: u64,
    write_choices: u64,
    commands: Commands,
    timeline: Timeline<Event>,
    link: Link,
    controller_free_ns: u64,
    write_buffer: WriteBuffer,
    read_buffer: ReadBuffer,
    waiting: Vec<Waiting>,
    /// Reads of data on its way into the write cache, each with the number of the write that it waits for.
    behind_writes: Vec<(u64, Command)>,
    flush: Option<Command>,
    /// The place of the head now, or at the end of the job. Elsewhere while it reads ahead.
    head_byte: u64,
    is_arm_busy: bool,
    is_pause_awaited: bool,
    /// Until when the arm is only busy with reading beyond a request.
    beyond_until_ns: Option<u64>,
    /// Places written behind in this turn of theirs.
    behind_in_row: u64,
    /// Commands served since the last of those.
    served_in_row: u64,
    last_read_ns: Option<u64>,
}

impl Hdd {
    pub(crate) fn new(parameters: &HddParameters, size_bytes: u64, seed: u64) -> Hdd {
        Hdd {
            geometry: Geometry::new(parameters, size_bytes, seed),
            write_settle_ns: parameters.write_settle_us * MICROSECOND_NS,
            command_ns: parameters.command_us * MICROSECOND_NS,
            age_limit_ns: parameters.age_limit_ms * MILLISECOND_NS,
            pause_ns: parameters.write_cache_idle_ms * MILLISECOND_NS,
            beyond_bytes: parameters.read_beyond_bytes,
            behind_places: parameters.write_turn_places,
            read_turn: parameters.read_turn_requests,
            write_choices: parameters.write_choices,
            commands: Commands::new(size_bytes, parameters.queue_depth, true),
            timeline: Timeline::new(),
            link: Link::new(parameters.interface_mb_per_s),
            controller_free_ns: 0,
            write_buffer: WriteBuffer::new(parameters.write_cache_bytes, parameters.write_cache_runs),
            read_buffer: ReadBuffer::new(parameters.read_buffer_bytes, parameters.read_segments, size_bytes),
            waiting: Vec::new(),
            behind_writes: Vec::new(),
            flush: None,
            head_byte: 0,
            is_arm_busy: false,
            is_pause_awaited: false,
            beyond_until_ns: None,
            behind_in_row: 0,
            served_in_row: 0,
            last_read_ns: None,
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
        start < end && self.write_buffer.is_volatile(Range { start, end })
    }

    pub(crate) fn volatile_bytes(&mut self, now_ns: u64) -> u64 {
        self.advance(now_ns);
        self.write_buffer.volatile_bytes()
    }

    fn advance(&mut self, now_ns: u64) {
        self.commands.tick(now_ns);
        while let Some((at_ns, event)) = self.timeline.pop_due(now_ns) {
            match event {
                Event::Understood(command) => self.understood(at_ns, command),
                Event::ArmDone(job) => self.arm_done(at_ns, job),
                Event::Landed(part) => self.landed(at_ns, &part),
                Event::Done(command) => self.complete(at_ns, command),
                Event::Pause => {
                    self.is_pause_awaited = false;
                    self.use_arm(at_ns);
                }
                Event::Beyond => {
                    if self.beyond_until_ns == Some(at_ns) {
                        self.beyond_until_ns = None;
                        self.is_arm_busy = false;
                        self.answer_waiting(at_ns);
                        self.use_arm(at_ns);
                    }
                }
            }
        }
    }

    /// Hands commands to the controller, which understands one after the other.
    fn admit(&mut self, now_ns: u64) {
        while let Some(command) = self.commands.admit() {
            self.controller_free_ns = self.controller_free_ns.max(now_ns) + self.command_ns;
            self.timeline.push(self.controller_free_ns, Event::Understood(command));
        }
    }

    fn complete(&mut self, now_ns: u64, command: Command) {
        self.commands.complete(command, now_ns);
        self.admit(now_ns);
    }

    fn understood(&mut self, now_ns: u64, command: Command) {
        match command.op {
            Op::Read => self.read_in_order(now_ns, command),
            Op::Write if self.write_buffer.is_off() => {
                self.waiting.push(Waiting { command, since_ns: now_ns });
                self.use_arm(now_ns);
            }
            Op::Write => {
                self.write_buffer.queue(command);
                self.take_in(now_ns);
                self.use_arm(now_ns);
            }
            Op::Flush => {
                self.write_buffer.begin_flush();
                self.flush = Some(command);
                self.end_flush(now_ns);
                self.use_arm(now_ns);
            }
            Op::Discard => self.complete(now_ns, command),
        }
    }

    /// Lets a read wait for the writes before it that it overlaps, or begins it.
    fn read_in_order(&mut self, now_ns: u64, command: Command) {
        let range = Range { start: command.offset_bytes, end: command.end_bytes() };
        match self.write_buffer.coming(range) {
            Some(number) => self.behind_writes.push((number, command)),
            None => self.read(now_ns, command),
        }
    }

    /// Answers a read from memory, or from what is about to pass under the head, or queues it.
    fn read(&mut self, now_ns: u64, command: Command) {
        let range = Range { start: command.offset_bytes, end: command.end_bytes() };
        self.last_read_ns = Some(now_ns);
        self.read_buffer.advance(&self.geometry, now_ns);
        if self.write_buffer.holds(range) || self.read_buffer.use_range(range) {
            let done_ns = self.link.carry(now_ns, 0, range.bytes());
            self.timeline.push(done_ns, Event::Done(command));
            self.read_on(now_ns, range.end);
            return;
        }
        let is_beyond = self.beyond_until_ns.is_some() && self.waiting.is_empty();
        if (!self.is_arm_busy || is_beyond)
            && let Some(passed_ns) = self.read_buffer.follow(&self.geometry, range)
        {
            self.beyond_until_ns = None;
            self.is_arm_busy = false;
            self.read_buffer.stop_ahead();
            self.begin(passed_ns.max(now_ns), range.end, Job::Read(command));
            return;
        }
        self.waiting.push(Waiting { command, since_ns: now_ns });
        self.use_arm(now_ns);
    }

    /// Answers the waiting reads that are in memory by now.
    fn answer_waiting(&mut self, now_ns: u64) {
        self.read_buffer.advance(&self.geometry, now_ns);
        let mut index = 0;
        while index < self.waiting.len() {
            let command = self.waiting[index].command;
            let range = Range { start: command.offset_bytes, end: command.end_bytes() };
            if command.op == Op::Read && self.read_buffer.use_range(range) {
                self.waiting.remove(index);
                let done_ns = self.link.carry(now_ns, 0, range.bytes());
                self.timeline.push(done_ns, Event::Done(command));
            } else {
                index += 1;
            }
        }
    }

    /// Reads ahead again if the arm has nothing else to do and the stream runs dry.
    fn read_on(&mut self, now_ns: u64, used_end: u64) {
        if self.is_arm_busy {
            return;
        }
        if let Some(from_byte) = self.read_buffer.hungry_at(used_end) {
            let from_ns = now_ns + self.geometry.rotation_ns(now_ns, self.geometry.place_ns(from_byte));
            self.read_buffer.resume_ahead(from_byte, used_end, from_ns);
        }
    }

    /// Moves waiting writes into the cache while there is room.
    fn take_in(&mut self, now_ns: u64) {
        while let Some(part) = self.write_buffer.next_part() {
            let landed_ns = self.link.carry(now_ns, 0, part.range.bytes());
            self.timeline.push(landed_ns, Event::Landed(part));
        }
    }

    fn landed(&mut self, now_ns: u64, part: &Part) {
        self.write_buffer.landed(part);
        self.overwritten(now_ns, part.range);
        if part.is_last {
            self.complete(now_ns, part.command);
            let behind: Vec<Command> = self
                .behind_writes
                .extract_if(.., |(number, _)| *number <= part.number)
                .map(|(_, c)| c)
                .collect();
            for command in behind {
                self.read(now_ns, command);
            }
        }
        self.take_in(now_ns);
        self.use_arm(now_ns);
    }

    /// Keeps the read buffer from answering with overwritten data.
    fn overwritten(&mut self, now_ns: u64, range: Range) {
        if self.read_buffer.is_ahead_in(range) {
            self.free_head(now_ns);
        }
        self.read_buffer.wrote(range);
    }

    /// Ends reading ahead.
    fn free_head(&mut self, now_ns: u64) {
        self.read_buffer.advance(&self.geometry, now_ns);
        if let Some(reached) = self.read_buffer.stop_ahead() {
            self.head_byte = reached;
        }
    }

    fn end_flush(&mut self, now_ns: u64) {
        if self.write_buffer.is_flushed()
            && let Some(command) = self.flush.take()
        {
            self.complete(now_ns, command);
        }
    }

    /// Gives the arm its next job, if it has none.
    fn use_arm(&mut self, now_ns: u64) {
        if self.is_arm_busy {
            return;
        }
        if self.is_behind_due(now_ns) {
            self.free_head(now_ns);
            let nearest = self.nearest_place(now_ns);
            if let Some((batch, range)) = self.write_buffer.take(nearest, BEHIND_BYTES_MAX, 1) {
                self.behind_in_row += 1;
                self.served_in_row = 0;
                self.go(now_ns, range, Job::Behind(batch));
            }
            return;
        }
        if self.waiting.is_empty() {
            return;
        }
        self.free_head(now_ns);
        let chosen = self.choose(now_ns);
        let command = self.waiting.remove(chosen).command;
        let range = Range { start: command.offset_bytes, end: command.end_bytes() };
        self.served_in_row += 1;
        if self.served_in_row >= self.read_turn {
            self.behind_in_row = 0;
        }
        if command.op == Op::Read {
            self.go(now_ns, range, Job::Read(command));
        } else {
            self.overwritten(now_ns, range);
            self.go(now_ns, range, Job::Write(command));
        }
    }

    /// The next place to write behind.
    fn nearest_place(&self, now_ns: u64) -> u64 {
        let places = self.write_buffer.places(self.head_byte, self.write_choices);
        let nearest = places.min_by_key(|&place| self.way_ns(now_ns, place, true));
        nearest.unwrap_or(self.head_byte)
    }

    /// Whether it is the write cache's turn.
    fn is_behind_due(&mut self, now_ns: u64) -> bool {
        if self.write_buffer.held_bytes() == 0 {
            return false;
        }
        let is_urgent = self.flush.is_some() || self.write_buffer.is_starved();
        if !self.waiting.is_empty() {
            return is_urgent && self.behind_in_row < self.behind_places;
        }
        let pause_end_ns = self.last_read_ns.map_or(0, |last_ns| last_ns + self.pause_ns);
        if is_urgent || self.write_buffer.is_half_full() || pause_end_ns <= now_ns {
            return true;
        }
        if !self.is_pause_awaited {
            self.is_pause_awaited = true;
            self.timeline.push(pause_end_ns, Event::Pause);
        }
        false
    }

    /// The waiting command with the shortest way, or the oldest one if it has waited too long.
    fn choose(&self, now_ns: u64) -> usize {
        let is_overdue = now_ns - self.waiting[0].since_ns > self.age_limit_ns;
        if is_overdue {
            return 0;
        }
        let mut best = (u64::MAX, 0);
        for (index, waiting) in self.waiting.iter().enumerate() {
            let is_write = waiting.command.op == Op::Write;
            let way_ns = self.way_ns(now_ns, waiting.command.offset_bytes, is_write);
            best = best.min((way_ns, index));
        }
        best.1
    }

    /// The time until `byte` is under the head.
    fn way_ns(&self, now_ns: u64, byte: u64, is_write: bool) -> u64 {
        let place_ns = self.geometry.place_ns(byte);
        let mut way_ns = self.geometry.seek_ns(self.geometry.place_ns(self.head_byte), place_ns);
        // On the same track the head has settled already.
        if is_write && way_ns > 0 {
            way_ns += self.write_settle_ns;
        }
        way_ns + self.geometry.rotation_ns(now_ns + way_ns, place_ns)
    }

    /// Moves the arm to a range and over it.
    fn go(&mut self, now_ns: u64, range: Range, job: Job) {
        let way_ns = self.way_ns(now_ns, range.start, !matches!(job, Job::Read(_)));
        let over_ns = self.geometry.place_ns(range.end) - self.geometry.place_ns(range.start);
        self.begin(now_ns + way_ns + over_ns, range.end, job);
    }

    fn begin(&mut self, done_ns: u64, end_byte: u64, job: Job) {
        assert!(!self.is_arm_busy, "the arm does one thing at a time");
        self.is_arm_busy = true;
        self.head_byte = end_byte;
        self.timeline.push(done_ns, Event::ArmDone(job));
    }

    fn arm_done(&mut self, now_ns: u64, job: Job) {
        self.is_arm_busy = false;
        match job {
            Job::Read(command) => {
                self.last_read_ns = Some(now_ns);
                let read = Range { start: command.offset_bytes, end: command.end_bytes() };
                self.read_buffer.begin_ahead(read, now_ns);
                if self.beyond_bytes > 0 {
                    let end = (read.end + self.beyond_bytes).min(self.commands.size_bytes());
                    let beyond_ns = self.geometry.place_ns(end) - self.geometry.place_ns(read.end);
                    self.is_arm_busy = true;
                    self.beyond_until_ns = Some(now_ns + beyond_ns);
                    self.timeline.push(now_ns + beyond_ns, Event::Beyond);
                }
                self.complete(now_ns, command);
            }
            Job::Write(command) => self.complete(now_ns, command),
            Job::Behind(batch) => {
                self.write_buffer.written(batch);
                self.end_flush(now_ns);
                self.take_in(now_ns);
            }
        }
        self.use_arm(now_ns);
    }
}
