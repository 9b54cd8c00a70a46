//! Device operations under way: from an effect of the core to its completion.
//!
//! Invariants:
//! - I1: an operation of the core is answered exactly once, by its device or by the timeout.
//! - I2: buffers that the kernel may still touch have a reference: the core's own until the answer, and
//!   after a timeout one that is taken before the core hears of it.
//! - I3: a device that let one operation time out gets no other: a write that lands late must
//!   not find a newer one done.

use crate::buffers::Pool;
use crate::devices::nbd::memory::Span;
use crate::devices::nbd::{Event, Kind as NbdKind, NbdDevice, Operation as NbdOperation};
use crate::devices::{
    AlignedBytes, Device, Job, Kind, OpenFile, Submitter, Transfer, ZERO_BYTES, is_refusal,
};
use crate::reactor::backend::{Backend, Operation, Way};
use crate::reactor::tokens::Owner;
use engine::effect::{Errno, Io, IoId, IoOp, Pieces, Target};
use engine::memory::{Memory, Slice};
use engine::units::{Nanos, VOLUMES_MAX, VolumeIndex};
use slab::Slab;
use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Vectors that one system call takes.
const VECTORS_MAX: usize = 1024;
/// Shortest transfer from or to memory or the page cache that a thread of the kernel copies. Handing over a shorter one costs more
/// than copying it.
const OFFLOAD_BYTES_MIN: u64 = 64 * 1024;
/// Longest pause between two looks at the age of operations, as long as the reactors are not held up.
const TIMEOUT_LOOK_NS: u64 = Nanos::SECOND;
/// Number of devices that a core can name: the cache, its second half if it is mirrored, and an origin for each volume.
pub(crate) const LINES: usize = 2 + VOLUMES_MAX;
/// The line of the second half.
const MIRROR: usize = 1 + VOLUMES_MAX;
/// The line of a half that was let go of and has operations under way which timed out. The core cannot name it.
const ASIDE: usize = LINES;
/// Operations of one device that may be at the kernel, where each may need a thread.
pub(crate) const AT_KERNEL_MAX: usize = 64;

/// System call that a flight is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Read,
    Write,
    Flush,
    Discard,
    /// Zeroing by the device's own operation: the file, and the operation.
    Zero {
        mode: u32,
    },
    /// Zeroing by writing zeroes.
    WriteZeroes,
}

impl Step {
    /// Whether a range is discarded or zeroed, without data of a client.
    fn is_of_range(self) -> bool {
        matches!(self, Step::Discard | Step::Zero { .. } | Step::WriteZeroes)
    }
}

struct Flight {
    io: IoId,
    line: usize,
    step: Step,
    pieces: Pieces,
    offset_bytes: u64,
    len_bytes: u64,
    done_bytes: u64,
    vectors: Vec<libc::iovec>,
    /// The first vector that is not wholly done.
    vector: usize,
    issued: Nanos,
    /// Way it was issued, while a file does it.
    way: Option<Way>,
    /// It was refused because it would have to wait.
    waits: bool,
    /// The core was told that it failed; the kernel still works on it.
    abandoned: bool,
}

/// Answer for the core.
pub(crate) struct Landed {
    pub io: IoId,
    pub result: Result<(), Errno>,
}

/// One device as the core names it.
#[derive(Default)]
struct Line {
    device: Option<Device>,
    gone: bool,
    /// Operations under way for which [`Way::is_at_kernel`].
    at_kernel: usize,
    /// Those for which [`Flight::is_long_read`].
    long_reads: usize,
    /// Whether one for which [`Step::is_of_range`] ended since the last look.
    has_ended_range: bool,
}

impl Line {
    fn nbd(&self) -> Option<&NbdDevice> {
        match self.device.as_ref()?.kind() {
            Kind::Nbd(nbd) => Some(nbd),
            Kind::File(_) | Kind::Modelled(_) => None,
        }
    }
}

/// All devices and their operations under way.
pub(crate) struct Flights {
    lines: [Line; LINES + 1],
    flights: Slab<Flight>,
    /// Vectors of finished operations, to be used again.
    spare_vectors: Vec<Vec<libc::iovec>>,
    finished: VecDeque<Landed>,
    /// Devices that were given up and not reported yet.
    gone: Vec<Target>,
    /// Events of exports, not reported yet.
    events: VecDeque<(Target, Event)>,
    zeroes: Option<AlignedBytes>,
    timeout_ns: u64,
    next_look: Nanos,
    any_modelled: bool,
    any_nbd: bool,
}

// SAFETY: the vectors' addresses are the only part that is not `Send` here. They name pool memory and the zeroes,
// which belong to no thread; I2 says who may touch that, on any thread.
unsafe impl Send for Flights {}

fn line_of(target: Target) -> usize {
    match target {
        Target::Cache => 0,
        Target::Mirror => MIRROR,
        Target::Origin(volume) => 1 + volume.at(),
        Target::State => unreachable!("the driver's notes are no device"),
    }
}

fn target_of(line: usize) -> Target {
    match line.checked_sub(1) {
        None => Target::Cache,
        Some(_) if line == MIRROR => Target::Mirror,
        Some(volume) => Target::Origin(VolumeIndex(u8::try_from(volume).expect("few volumes"))),
    }
}

impl Flights {
    /// All devices, with nothing under way.
    pub(crate) fn new(
        [cache, mirror]: [Option<Device>; 2],
        origins: Vec<Option<Device>>,
        timeout_ns: u64,
    ) -> Flights {
        assert!(origins.len() <= VOLUMES_MAX, "a cache has at most {VOLUMES_MAX} volumes");
        let mut lines: [Line; LINES + 1] = std::array::from_fn(|_| Line::default());
        lines[MIRROR].device = mirror;
        for (line, device) in lines.iter_mut().zip(std::iter::once(cache).chain(origins)) {
            line.device = device;
        }
        let any_modelled = lines.iter().any(|line| line.device.as_ref().is_some_and(Device::is_modelled));
        let any_nbd = lines.iter().any(|line| line.nbd().is_some());
        Flights {
            lines,
            flights: Slab::with_capacity(1024),
            spare_vectors: Vec::new(),
            finished: VecDeque::new(),
            gone: Vec::new(),
            events: VecDeque::new(),
            zeroes: None,
            timeout_ns,
            next_look: Nanos(0),
            any_modelled,
            any_nbd,
        }
    }

    /// Takes a device as the origin of a volume.
    ///
    /// # Errors
    /// If another one was there before, and has operations under way.
    pub(crate) fn take_origin(&mut self, volume: VolumeIndex, device: Device) -> Result<(), Device> {
        let line = line_of(Target::Origin(volume));
        if self.is_under_way(line) {
            return Err(device);
        }
        self.any_modelled |= device.is_modelled();
        self.any_nbd |= matches!(device.kind(), Kind::Nbd(_));
        self.lines[line] = Line { device: Some(device), ..Line::default() };
        Ok(())
    }

    /// Lets go of the origin of a volume. None if there is none, or an operation that timed out is still under way there.
    pub(crate) fn let_go_of_origin(&mut self, volume: VolumeIndex) -> Option<Device> {
        let line = line_of(Target::Origin(volume));
        if self.is_under_way(line) {
            return None;
        }
        if let Some(nbd) = self.lines[line].nbd() {
            nbd.let_go();
        }
        std::mem::take(&mut self.lines[line]).device
    }

    /// Whether the cache has operations under way, or had one that timed out.
    pub(crate) fn is_cache_under_way(&self) -> bool {
        let line = line_of(Target::Cache);
        self.is_under_way(line) || self.lines[line].gone
    }

    /// Puts a device in the place of the cache, which has no operations under way; returns the one before.
    pub(crate) fn replace_cache(&mut self, device: Device) -> Option<Device> {
        self.any_modelled |= device.is_modelled();
        let line = &mut self.lines[line_of(Target::Cache)];
        std::mem::replace(line, Line { device: Some(device), ..Line::default() }).device
    }

    /// Lets go of a half of the cache that the core does not use. One where operations that timed out are still under way is
    /// put aside until they end. Returns the devices that nothing is under way at.
    ///
    /// # Errors
    /// [`Errno::BUSY`] if the core waits for that half, or another one is put aside already.
    pub(crate) fn let_go_of_half(&mut self, half: Target) -> Result<Vec<Device>, Errno> {
        let line = line_of(half);
        let is_aside_free = !self.is_under_way(ASIDE);
        let hangs = self.is_under_way(line);
        if hangs && !(self.lines[line].gone && is_aside_free) {
            return Err(Errno::BUSY);
        }
        let mut left = Vec::new();
        if is_aside_free {
            left.extend(std::mem::take(&mut self.lines[ASIDE]).device);
        }
        let half = std::mem::take(&mut self.lines[line]);
        if hangs {
            self.lines[ASIDE] = half;
            let flights = self.flights.iter_mut().map(|(_, flight)| flight);
            flights.filter(|flight| flight.line == line).for_each(|flight| flight.line = ASIDE);
        } else {
            left.extend(half.device);
        }
        Ok(left)
    }

    /// Takes a device as a half of the cache, in the place of one that was let go of.
    ///
    /// # Errors
    /// [`Errno::BUSY`] if one is there.
    pub(crate) fn take_half(&mut self, half: Target, device: Device) -> Result<(), Errno> {
        let line = line_of(half);
        if self.lines[line].device.is_some() || self.is_under_way(line) {
            return Err(Errno::BUSY);
        }
        self.any_modelled |= device.is_modelled();
        self.lines[line] = Line { device: Some(device), ..Line::default() };
        Ok(())
    }

    fn is_under_way(&self, line: usize) -> bool {
        self.flights.iter().any(|(_, flight)| flight.line == line)
    }

    /// Starts an operation by the backend of the reactor that drew it from the core; `waker` wakes that reactor.
    pub(crate) fn start(
        &mut self,
        io: Io,
        now: Nanos,
        pool: &mut Pool,
        backend: &mut Backend,
        waker: &Arc<OwnedFd>,
    ) {
        let line = line_of(io.target);
        if self.lines[line].gone {
            return self.answer(io.id, Err(Errno::TIMEDOUT));
        }
        let Some(device) = &self.lines[line].device else {
            return self.answer(io.id, Err(Errno::NODEV));
        };
        let empty = || Pieces::Many(Vec::new());
        let (step, offset_bytes, len_bytes, pieces) = match io.op {
            IoOp::Read { offset_bytes, into } => (Step::Read, offset_bytes, into.len_bytes(), into),
            IoOp::Write { offset_bytes, from } => (Step::Write, offset_bytes, from.len_bytes(), from),
            IoOp::Flush => (Step::Flush, 0, 0, empty()),
            IoOp::Discard { offset_bytes, len_bytes } => (Step::Discard, offset_bytes, len_bytes, empty()),
            IoOp::WriteZeroes { offset_bytes, len_bytes } => {
                (Step::Zero { mode: 0 }, offset_bytes, len_bytes, empty())
            }
            IoOp::Abandon(_) => unreachable!("an abandonment goes to the driver's notes"),
        };
        let inside = offset_bytes.checked_add(len_bytes).is_some_and(|end| end <= device.size_bytes());
        if !inside {
            return self.answer(io.id, Err(Errno::IO));
        }
        if self.flights.is_empty() {
            self.next_look = now.plus(self.look_pause_ns());
        }
        let mut vectors = self.spare_vectors.pop().unwrap_or_default();
        vectors.extend(pieces.as_slice().iter().map(|piece| vector(*piece, pool)));
        let key = self.flights.insert(Flight {
            io: io.id,
            line,
            step,
            pieces,
            offset_bytes,
            len_bytes,
            done_bytes: 0,
            vectors,
            vector: 0,
            issued: now,
            way: None,
            waits: false,
            abandoned: false,
        });
        self.lines[line].long_reads += usize::from(self.flights[key].is_long_read());
        if self.lines[line].nbd().is_some() {
            self.ask(key, backend, waker);
        } else {
            self.issue(key, now, backend);
        }
    }

    /// Hands a flight to the export that it goes to.
    fn ask(&mut self, key: usize, backend: &mut Backend, waker: &Arc<OwnedFd>) {
        let flight = &self.flights[key];
        let nbd = self.lines[flight.line].nbd().expect("the caller has just seen it");
        let kind = match flight.step {
            Step::Read => NbdKind::Read,
            Step::Write => NbdKind::Write,
            Step::Flush => NbdKind::Flush,
            Step::Discard => NbdKind::Discard,
            Step::Zero { .. } | Step::WriteZeroes => NbdKind::Zero,
        };
        let operation = NbdOperation { kind, offset_bytes: flight.offset_bytes, len_bytes: flight.len_bytes };
        // SAFETY: what the vectors point to is pool memory with a reference until the answer (I2). The core
        // lets nobody else use what is read into, nor write to what is written from.
        let span = unsafe { Span::new(&flight.vectors) };
        nbd.submit(operation, span, key as u64, waker);
        match (flight.is_long_read(), self.lines[flight.line].long_reads) {
            (true, 2..) => nbd.leave_hearing(),
            (false, 0) => nbd.take_hearing(backend, waker),
            // Whoever has the duty goes on. Of reactors that is the one that asked last.
            _ => nbd.hear_by(backend, waker),
        }
    }

    /// Picks up the answers and events of exports.
    pub(crate) fn poll_exports(&mut self, pool: &mut Pool) {
        if !self.any_nbd {
            return;
        }
        for line in 0..LINES {
            let Some((answers, events)) = self.lines[line].nbd().and_then(NbdDevice::news) else { continue };
            self.events.extend(events.into_iter().map(|event| (target_of(line), event)));
            for (token, result) in answers {
                let key = usize::try_from(token).expect("a token of ours");
                if self.flights[key].abandoned {
                    self.bury(key, pool);
                } else {
                    self.finish(key, result);
                }
            }
        }
    }

    /// The next event of an export.
    pub(crate) fn take_event(&mut self) -> Option<(Target, Event)> {
        self.events.pop_front()
    }

    /// Makes exports let go of the memory of all operations.
    pub(crate) fn let_go_of_exports(&self) {
        self.lines.iter().filter_map(Line::nbd).for_each(NbdDevice::let_go);
    }

    /// Hands the rest of a flight to its device.
    fn issue(&mut self, key: usize, now: Nanos, backend: &mut Backend) {
        let flight = &mut self.flights[key];
        let device =
            self.lines[flight.line].device.as_ref().expect("a flight goes to a device that is there");
        let (offset_bytes, len_bytes) = (flight.offset_bytes, flight.len_bytes);
        let file = match device.kind() {
            Kind::File(file) => file,
            Kind::Nbd(_) => unreachable!("what goes to an export is asked for"),
            Kind::Modelled(modelled) => {
                let job = match flight.step {
                    Step::Read => Job::Read { offset_bytes, len_bytes },
                    Step::Write => Job::Write { offset_bytes, len_bytes },
                    Step::Flush => Job::Flush,
                    Step::Discard => Job::Discard { offset_bytes, len_bytes },
                    Step::Zero { .. } | Step::WriteZeroes => Job::Zero { offset_bytes, len_bytes },
                };
                return modelled.submit(now, Submitter::Reactor, key as u64, job);
            }
        };
        let way = way(file, flight, self.lines[flight.line].at_kernel);
        let operation = match flight.step {
            Step::Read | Step::Write => transfer(file, flight, way),
            Step::Flush if !file.needs_flush() => return self.finish(key, Ok(())),
            Step::Flush => Operation::Flush { file: file.raw_fd(), way },
            Step::Discard => match file.discard_mode() {
                None => return self.finish(key, Err(Errno::OPNOTSUPP)),
                Some(mode) => {
                    Operation::Allocate { file: file.raw_fd(), mode: mode.bits(), offset_bytes, len_bytes }
                }
            },
            Step::Zero { .. } => match file.zero_mode() {
                Some(mode) => {
                    flight.step = Step::Zero { mode: mode.bits() };
                    Operation::Allocate { file: file.raw_fd(), mode: mode.bits(), offset_bytes, len_bytes }
                }
                None => {
                    flight.step = Step::WriteZeroes;
                    return self.issue(key, now, backend);
                }
            },
            Step::WriteZeroes => {
                let zeroes = self.zeroes.get_or_insert_with(|| AlignedBytes::new(ZERO_BYTES));
                let rest = (len_bytes - flight.done_bytes).min(ZERO_BYTES as u64);
                flight.vectors.clear();
                flight.vector = 0;
                flight.vectors.push(libc::iovec {
                    iov_base: zeroes.as_mut_ptr().cast(),
                    iov_len: usize::try_from(rest).expect("at most the buffer"),
                });
                transfer(file, flight, way)
            }
        };
        flight.way = Some(way);
        self.lines[flight.line].at_kernel += usize::from(way.is_at_kernel());
        // SAFETY: the vectors are the flight's own and stay where they are until it is finished;
        // what they point to is pool memory with a reference (I2), or the zeroes, which live as
        // long as `self` and are only read.
        unsafe { backend.push(Owner::Flight(key as u64).token(), operation) };
    }

    /// Takes an operation, or a part of it, that the kernel has done.
    pub(crate) fn landed(
        &mut self,
        key: u64,
        result: i32,
        now: Nanos,
        pool: &mut Pool,
        backend: &mut Backend,
    ) {
        let key = usize::try_from(key).expect("a key of ours");
        let flight = &mut self.flights[key];
        let way = flight.way.take();
        self.lines[flight.line].at_kernel -= usize::from(way.is_some_and(Way::is_at_kernel));
        if flight.abandoned {
            return self.bury(key, pool);
        }
        let Some(Kind::File(file)) = self.lines[flight.line].device.as_ref().map(Device::kind) else {
            unreachable!("only files do system calls");
        };
        if matches!(-result, libc::EAGAIN | libc::EINTR) {
            flight.waits |= result == -libc::EAGAIN;
            return self.issue(key, now, backend);
        }
        if result == -libc::EOPNOTSUPP && way == Some(Way::AtOnce) {
            file.lacks_nowait();
            return self.issue(key, now, backend);
        }
        if result < 0 {
            let refusal = is_refusal(-result);
            match flight.step {
                Step::Zero { mode } if refusal => {
                    file.refused(rustix::fs::FallocateFlags::from_bits_retain(mode));
                    return self.issue(key, now, backend);
                }
                Step::Discard if refusal => {
                    if let Some(mode) = file.discard_mode() {
                        file.refused(mode);
                    }
                    return self.finish(key, Err(Errno::OPNOTSUPP));
                }
                _ => return self.finish(key, Err(Errno(-result))),
            }
        }
        match flight.step {
            Step::Flush | Step::Discard | Step::Zero { .. } => self.finish(key, Ok(())),
            Step::Read | Step::Write | Step::WriteZeroes => {
                // Nothing moved: the file ends here, though it did not at the start.
                if result == 0 {
                    return self.finish(key, Err(Errno::IO));
                }
                flight.moved(u64::from(result.unsigned_abs()));
                if flight.done_bytes == flight.len_bytes {
                    self.finish(key, Ok(()));
                } else {
                    self.issue(key, now, backend);
                }
            }
        }
    }

    /// Picks up the operations that modelled disks have done by now.
    pub(crate) fn poll_models(&mut self, now: Nanos, pool: &mut Pool) {
        if !self.any_modelled {
            return;
        }
        for line in 0..self.lines.len() {
            let Some(device) = self.lines[line].device.clone().filter(Device::is_modelled) else { continue };
            let Kind::Modelled(modelled) = device.kind() else { continue };
            while let Some((token, transfer)) = modelled.poll(now, Submitter::Reactor) {
                let key = usize::try_from(token).expect("a token of ours");
                let flight = &self.flights[key];
                if flight.abandoned {
                    self.bury(key, pool);
                    continue;
                }
                let result = match transfer {
                    Transfer::None(result) => result,
                    Transfer::Read { offset_bytes } => {
                        each_piece(&flight.pieces, offset_bytes, |piece, at| {
                            modelled.read_at(at, pool.bytes_mut(piece))
                        })
                    }
                    Transfer::Write { offset_bytes } => {
                        each_piece(&flight.pieces, offset_bytes, |piece, at| {
                            modelled.write_at(at, pool.bytes(piece))
                        })
                    }
                };
                self.finish(key, result);
            }
        }
    }

    /// Gives up devices with an operation older than the timeout.
    pub(crate) fn expire(&mut self, now: Nanos, pool: &mut Pool) {
        if self.flights.is_empty() || now < self.next_look {
            return;
        }
        let pause_ns = self.look_pause_ns();
        let held_up_ns = now.since(self.next_look);
        self.next_look = now.plus(pause_ns);
        if held_up_ns > pause_ns {
            // The reactors themselves were stopped, or got no processor, and nobody took what is done. That time does
            // not count, and what was done meanwhile comes before the next look.
            for (_, flight) in &mut self.flights {
                flight.issued = flight.issued.plus(held_up_ns).min(now);
            }
            return;
        }
        self.count_ranges_anew(now);
        for line in 0..LINES {
            // While the server of an export is away nothing is under way there: other limits hold.
            let up_since = self.lines[line].nbd().map_or(Nanos(0), NbdDevice::up_since);
            let late = |flight: &Flight| {
                flight.line == line && now.since(flight.issued.max(up_since)) >= self.timeout_ns
            };
            if self.lines[line].gone || !self.flights.iter().any(|(_, flight)| late(flight)) {
                continue;
            }
            self.lines[line].gone = true;
            if let Some(nbd) = self.lines[line].nbd() {
                nbd.give_up();
            }
            self.gone.push(target_of(line));
            for (_, flight) in self.flights.iter_mut().filter(|(_, flight)| flight.line == line) {
                for piece in flight.pieces.as_slice() {
                    pool.retain(piece.buffer);
                }
                flight.abandoned = true;
                let result = Err(Errno::TIMEDOUT);
                self.finished.push_back(Landed { io: flight.io, result });
            }
        }
    }

    /// Ranges that are discarded or zeroed come one after the other, and a disk may need seconds for each: those that wait behind
    /// one that has ended have their time from then on.
    fn count_ranges_anew(&mut self, now: Nanos) {
        for line in 0..LINES {
            if std::mem::take(&mut self.lines[line].has_ended_range) {
                let waiting = self.flights.iter_mut().map(|(_, flight)| flight);
                waiting
                    .filter(|flight| flight.line == line && flight.step.is_of_range())
                    .for_each(|flight| flight.issued = now);
            }
        }
    }

    fn look_pause_ns(&self) -> u64 {
        TIMEOUT_LOOK_NS.min(self.timeout_ns / 4 + 1)
    }

    /// Deadline of [`Flights::poll_models`] and [`Flights::expire`].
    pub(crate) fn deadline(&self) -> Option<Nanos> {
        if self.flights.is_empty() {
            return None;
        }
        let mut deadline = self.next_look;
        if self.any_modelled {
            for device in self.lines.iter().filter_map(|line| line.device.as_ref()) {
                if let Kind::Modelled(modelled) = device.kind()
                    && let Some(next) = modelled.next(Submitter::Reactor)
                {
                    deadline = deadline.min(next);
                }
            }
        }
        Some(deadline)
    }

    /// The next answer for the core.
    pub(crate) fn take_finished(&mut self) -> Option<Landed> {
        self.finished.pop_front()
    }

    /// The next device that was given up.
    pub(crate) fn take_gone(&mut self) -> Option<Target> {
        self.gone.pop()
    }

    /// Operations that no device has answered yet.
    pub(crate) fn in_flight(&self) -> usize {
        self.flights.len()
    }

    /// Whether reads of exports are all that is under way.
    pub(crate) fn is_reading_elsewhere(&self) -> bool {
        let is_read = |flight: &Flight| flight.step == Step::Read && self.lines[flight.line].nbd().is_some();
        self.flights.iter().all(|(_, flight)| is_read(flight))
    }

    fn answer(&mut self, io: IoId, result: Result<(), Errno>) {
        self.finished.push_back(Landed { io, result });
    }

    fn finish(&mut self, key: usize, result: Result<(), Errno>) {
        let flight = self.retire(key);
        self.answer(flight.io, result);
    }

    /// The late end of an operation that the core believes failed.
    fn bury(&mut self, key: usize, pool: &mut Pool) {
        let flight = self.retire(key);
        for piece in flight.pieces.as_slice() {
            pool.release(piece.buffer);
        }
    }

    fn retire(&mut self, key: usize) -> Flight {
        let mut flight = self.flights.remove(key);
        let line = &mut self.lines[flight.line];
        line.long_reads -= usize::from(flight.is_long_read());
        line.has_ended_range |= flight.step.is_of_range();
        let mut vectors = std::mem::take(&mut flight.vectors);
        vectors.clear();
        self.spare_vectors.push(vectors);
        flight
    }
}

impl Flight {
    /// Whether so much comes that it is better copied beside other work.
    fn is_long_read(&self) -> bool {
        self.step == Step::Read && self.len_bytes >= OFFLOAD_BYTES_MIN
    }

    /// Takes `bytes` off the front of the vectors.
    fn moved(&mut self, mut bytes: u64) {
        self.done_bytes += bytes;
        assert!(self.done_bytes <= self.len_bytes, "the kernel moves no more bytes than it was asked for");
        while bytes > 0 {
            let vector = &mut self.vectors[self.vector];
            let step = bytes.min(vector.iov_len as u64);
            let step_bytes = usize::try_from(step).expect("at most a vector");
            vector.iov_base = vector.iov_base.wrapping_byte_add(step_bytes);
            vector.iov_len -= step_bytes;
            if vector.iov_len == 0 {
                self.vector += 1;
            }
            bytes -= step;
        }
    }
}

fn vector(piece: Slice, pool: &Pool) -> libc::iovec {
    libc::iovec { iov_base: pool.pointer(piece).cast(), iov_len: piece.len_bytes as usize }
}

fn transfer(file: &OpenFile, flight: &Flight, way: Way) -> Operation {
    let rest = &flight.vectors[flight.vector..];
    let vectors = rest.as_ptr();
    let count = u32::try_from(rest.len().min(VECTORS_MAX)).expect("bounded");
    let offset_bytes = flight.offset_bytes + flight.done_bytes;
    let file = file.raw_fd();
    match flight.step {
        Step::Read => Operation::Read { file, offset_bytes, vectors, count, way },
        _ => Operation::Write { file, offset_bytes, vectors, count, way },
    }
}

/// The way of an operation at a file that has `at_kernel` others at the kernel.
fn way(file: &OpenFile, flight: &Flight, at_kernel: usize) -> Way {
    let is_transfer = matches!(flight.step, Step::Read | Step::Write | Step::WriteZeroes);
    let is_copy =
        is_transfer && file.is_copied() && flight.len_bytes - flight.done_bytes >= OFFLOAD_BYTES_MIN;
    // io_uring does one discard at a time of a file, and files may have to share a turn.
    let may_go = file.is_local() && at_kernel < AT_KERNEL_MAX && (is_transfer || flight.step == Step::Flush);
    if is_transfer && file.is_memory() {
        if is_copy { Way::Copy } else { Way::Memory }
    } else if may_go {
        if is_copy { Way::Copy } else { Way::Kernel }
    } else if is_transfer && file.has_nowait() && !flight.waits {
        Way::AtOnce
    } else {
        Way::Waiting
    }
}

fn each_piece(
    pieces: &Pieces,
    mut offset_bytes: u64,
    mut perform: impl FnMut(Slice, u64) -> Result<(), Errno>,
) -> Result<(), Errno> {
    for piece in pieces.as_slice() {
        perform(*piece, offset_bytes)?;
        offset_bytes += u64::from(piece.len_bytes);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffers::DOOR_BYTES_MIN;
    use crate::devices::{Access, open, parse};
    use engine::memory::Purpose;
    use std::time::Duration;

    const SECOND: u64 = Nanos::SECOND;

    /// Time in which nobody could take results is the reactors' own, and the age of no operation.
    #[test]
    fn a_device_is_not_given_up_because_the_reactors_were_held_up() {
        let device = open(&parse("mem:1M").unwrap(), Access::Exclusive).unwrap();
        let (mut backend, _) = Backend::new(&[device.raw_fd().unwrap()]).unwrap();
        let mut pool = Pool::new(DOOR_BYTES_MIN).unwrap();
        let mut flights = Flights::new([Some(device), None], Vec::new(), 4 * SECOND);
        let buffer = pool.allocate(Purpose::Payload, 4096).unwrap();
        let into = Pieces::One(Slice { buffer, offset_bytes: 0, len_bytes: 4096 });
        let io = Io { id: IoId(7), target: Target::Cache, op: IoOp::Read { offset_bytes: 0, into } };
        let waker = crate::reactor::shared::wake_events(1).unwrap().remove(0);
        flights.start(io, Nanos(5 * SECOND), &mut pool, &mut backend, &waker);
        for seconds in [6, 100, 101] {
            flights.expire(Nanos(seconds * SECOND), &mut pool);
            assert!(
                flights.take_gone().is_none(),
                "in {seconds} s it was looked at for less than the timeout"
            );
        }
        flights.expire(Nanos(102 * SECOND), &mut pool);
        assert_eq!(flights.take_gone(), Some(Target::Cache), "it had its time");
        assert_eq!(flights.take_finished().map(|landed| landed.result), Some(Err(Errno::TIMEDOUT)));
        while backend.outstanding() > 0 {
            backend.wait(Some(Duration::from_millis(10))).unwrap();
            backend.reap(&mut Vec::new());
        }
    }
}
