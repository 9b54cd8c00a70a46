//! Device operations under way: from an effect of the core to its completion.
//!
//! Invariants:
//! - I1: an operation of the core is answered exactly once, by its device or by the timeout.
//! - I2: buffers that the kernel may still touch have a reference: the core's own until the answer, and
//!   after a timeout one that is taken before the core hears of it.
//! - I3: a device that let one operation time out gets no other: a write that lands late must
//!   not find a newer one done.

use crate::buffers::{Pool, Sums};
use crate::devices::{
    AlignedBytes, Device, Job, Kind, OpenFile, Submitter, Transfer, ZERO_BYTES, is_refusal,
};
use crate::reactor::backend::{Backend, Operation};
use crate::reactor::tokens::Owner;
use engine::effect::{Errno, Io, IoId, IoOp, Pieces, Target};
use engine::memory::{Memory, Slice};
use engine::units::{BLOCK_BYTES, Nanos, VOLUMES_MAX, VolumeIndex, payload_checksum};
use slab::Slab;
use std::collections::VecDeque;
use std::io::{IoSlice, IoSliceMut};

/// Vectors that one system call takes.
const VECTORS_MAX: usize = 1024;
/// A transfer through a disk's page cache that is at least this long is copied by a thread of the kernel.
/// Below, handing it over costs more than copying.
const OFFLOAD_BYTES_MIN: u64 = 64 * 1024;
/// A copy within memory that is at least this long is the last one of its round.
/// Measured on tmpfs with fio over NBD: its bytes are then still in the caches when they are
/// checked and sent. The price: a write that is done at once gathers less company for its batch.
const LONG_COPY_BYTES_MIN: u64 = 64 * 1024;
/// While one reactor has all clients, a longer write is copied in parts of this length, one a round: between them it
/// gives the kernel the next receive. Measured with fio over NBD, 128 KiB writes: 1.05 to 1.3 times as many of one
/// connection, but a fifth fewer of four connections at two reactors, which have enough to do beside each other.
const PART_BYTES: u64 = 64 * 1024;
/// Copies within memory that a round does together come to so many bytes at the most: they stay in the caches.
const ROUND_COPY_BYTES_MAX: u64 = 256 * 1024;
/// The longest pause between two looks at the age of operations.
const TIMEOUT_LOOK_NS: u64 = Nanos::SECOND;
/// The devices a core can name: the cache, and an origin for each volume.
const LINES: usize = 1 + VOLUMES_MAX;

/// What an operation is doing at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Read,
    Write,
    Flush,
    Discard,
    /// Zeroing by the device's own operation, and by which.
    Zero {
        mode: u32,
    },
    /// Zeroing by writing zeroes.
    WriteZeroes,
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
    /// The core was told that it failed; the kernel still works on it.
    abandoned: bool,
}

/// A read or write within memory: waits for its round, and is then done by a reactor that gives the
/// driver to others meanwhile.
pub(crate) struct MemoryCopy {
    io: IoId,
    line: usize,
    device: Device,
    is_read: bool,
    vectors: Vectors,
    offset_bytes: u64,
    len_bytes: u64,
    /// Whose blocks' checksums are wanted, too: what a long read of the cache brings. The core compares them, and
    /// it would compute them while other reactors wait for it.
    judged: Option<Slice>,
}

/// Where a copy goes to or comes from; one piece is the common case.
enum Vectors {
    One(libc::iovec),
    Many(Vec<libc::iovec>),
}

/// What came of a copy: see [`Flights::copied`].
pub(crate) enum Copied {
    /// It is done.
    Wholly(Landed),
    /// A part of it is done; the rest is left.
    Partly(MemoryCopy),
}

/// An answer for the core, with what is known of the bytes that it brought.
pub(crate) struct Landed {
    pub io: IoId,
    pub result: Result<(), Errno>,
    pub sums: Option<Sums>,
}

/// One device as the core names it.
#[derive(Default)]
struct Line {
    device: Option<Device>,
    gone: bool,
}

/// All devices and what they are doing.
pub(crate) struct Flights {
    lines: [Line; LINES],
    flights: Slab<Flight>,
    /// Vectors of finished operations, to be used again.
    spare_vectors: Vec<Vec<libc::iovec>>,
    finished: VecDeque<Landed>,
    /// Copies within memory, in order, by the reactor that has to do them: the one that asked, as
    /// what it copies is then in the caches where it is needed.
    copies: Vec<VecDeque<MemoryCopy>>,
    /// Copies that are not answered.
    copying: usize,
    /// Devices that were given up since somebody asked.
    gone: Vec<Target>,
    zeroes: Option<AlignedBytes>,
    timeout_ns: u64,
    next_look: Nanos,
    any_modelled: bool,
}

// SAFETY: the vectors' addresses are all that is not `Send` here. They name pool memory and the zeroes, which
// are no thread's own; who may touch that is what I2 says, whichever thread does it.
unsafe impl Send for Flights {}

fn line_of(target: Target) -> usize {
    match target {
        Target::Cache => 0,
        Target::Origin(volume) => 1 + volume.at(),
        Target::State => unreachable!("the driver's notes are no device"),
    }
}

fn target_of(line: usize) -> Target {
    match line.checked_sub(1) {
        None => Target::Cache,
        Some(volume) => Target::Origin(VolumeIndex(u8::try_from(volume).expect("few volumes"))),
    }
}

impl Flights {
    /// The devices, for so many reactors.
    pub(crate) fn new(
        cache: Option<Device>,
        origins: Vec<Option<Device>>,
        timeout_ns: u64,
        reactors: usize,
    ) -> Flights {
        assert!(origins.len() <= VOLUMES_MAX, "a cache has at most {VOLUMES_MAX} volumes");
        let mut lines: [Line; LINES] = std::array::from_fn(|_| Line::default());
        for (line, device) in lines.iter_mut().zip(std::iter::once(cache).chain(origins)) {
            line.device = device;
        }
        let any_modelled = lines.iter().any(|line| line.device.as_ref().is_some_and(Device::is_modelled));
        Flights {
            lines,
            flights: Slab::with_capacity(1024),
            spare_vectors: Vec::new(),
            finished: VecDeque::new(),
            copies: (0..reactors).map(|_| VecDeque::new()).collect(),
            copying: 0,
            gone: Vec::new(),
            zeroes: None,
            timeout_ns,
            next_look: Nanos(0),
            any_modelled,
        }
    }

    /// Starts an operation on behalf of a reactor, by its backend.
    pub(crate) fn start(
        &mut self,
        io: Io,
        now: Nanos,
        pool: &mut Pool,
        backend: &mut Backend,
        reactor: usize,
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
        // A copy within memory waits for nothing, so nobody else need do it.
        if let Kind::File(file) = device.kind()
            && file.is_memory()
            && matches!(step, Step::Read | Step::Write)
        {
            let device = device.clone();
            let is_read = step == Step::Read;
            let judged = match &pieces {
                Pieces::One(piece) if is_read && io.target == Target::Cache => Some(*piece),
                _ => None,
            };
            let is_judged = len_bytes >= LONG_COPY_BYTES_MIN && len_bytes.is_multiple_of(BLOCK_BYTES);
            let judged = judged.filter(|_| is_judged);
            let vectors = match pieces {
                Pieces::One(piece) => Vectors::One(vector(piece, pool)),
                Pieces::Many(pieces) => {
                    Vectors::Many(pieces.iter().map(|piece| vector(*piece, pool)).collect())
                }
            };
            let copy =
                MemoryCopy { io: io.id, line, device, is_read, vectors, offset_bytes, len_bytes, judged };
            self.copies[reactor].push_back(copy);
            self.copying += 1;
            return;
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
            abandoned: false,
        });
        self.issue(key, now, backend);
    }

    /// Whether a copy waits for [`Flights::take_copies`].
    pub(crate) fn has_copies(&self, reactor: usize) -> bool {
        !self.copies[reactor].is_empty()
    }

    /// Appends the copies that a reactor has to do in this round. Each goes through [`MemoryCopy::carry_out`] to
    /// [`Flights::copied`]: the core holds its buffers until it is answered there.
    pub(crate) fn take_copies(&mut self, reactor: usize, round: &mut Vec<MemoryCopy>) {
        let mut bytes = 0;
        while let Some(next) = self.copies[reactor].front() {
            bytes += next.len_bytes;
            if bytes > next.len_bytes.max(ROUND_COPY_BYTES_MAX) {
                break;
            }
            let copy = self.copies[reactor].pop_front().expect("it was there");
            let is_last = copy.len_bytes >= LONG_COPY_BYTES_MIN;
            if self.lines[copy.line].gone {
                self.copying -= 1;
                self.answer(copy.io, Err(Errno::TIMEDOUT));
            } else {
                round.push(copy);
            }
            if is_last {
                break;
            }
        }
    }

    /// A reactor has made a copy, or a part of it: then the rest comes in its next round.
    pub(crate) fn copied(&mut self, reactor: usize, copied: Copied) {
        match copied {
            Copied::Wholly(landed) => {
                self.copying -= 1;
                self.finished.push_back(landed);
            }
            Copied::Partly(rest) => self.copies[reactor].push_front(rest),
        }
    }

    /// Hands the rest of a flight to its device.
    fn issue(&mut self, key: usize, now: Nanos, backend: &mut Backend) {
        let flight = &mut self.flights[key];
        let device = self.lines[flight.line].device.as_ref().expect("a flight has a device");
        let (offset_bytes, len_bytes) = (flight.offset_bytes, flight.len_bytes);
        let file = match device.kind() {
            Kind::File(file) => file,
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
        let operation = match flight.step {
            Step::Read | Step::Write => transfer(file, flight),
            Step::Flush if !file.needs_flush() => return self.finish(key, Ok(())),
            Step::Flush => Operation::Flush { file: file.raw_fd() },
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
                transfer(file, flight)
            }
        };
        // SAFETY: the vectors are the flight's own and stay where they are until it is finished;
        // what they point to is pool memory with a reference (I2), or the zeroes, which live as
        // long as `self` and are only read.
        unsafe { backend.push(Owner::Flight(key as u64).token(), operation) };
    }

    /// The kernel has done an operation, or a part of it.
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
        if flight.abandoned {
            return self.bury(key, pool);
        }
        if matches!(-result, libc::EAGAIN | libc::EINTR) {
            return self.issue(key, now, backend);
        }
        let Some(Kind::File(file)) = self.lines[flight.line].device.as_ref().map(Device::kind) else {
            unreachable!("only files do system calls");
        };
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

    /// Picks up what modelled disks have done by now.
    pub(crate) fn poll_models(&mut self, now: Nanos, pool: &mut Pool) {
        if !self.any_modelled {
            return;
        }
        for line in 0..LINES {
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
        self.next_look = now.plus(TIMEOUT_LOOK_NS.min(self.timeout_ns / 4 + 1));
        for line in 0..LINES {
            let late = |flight: &Flight| flight.line == line && now.since(flight.issued) >= self.timeout_ns;
            if self.lines[line].gone || !self.flights.iter().any(|(_, flight)| late(flight)) {
                continue;
            }
            self.lines[line].gone = true;
            self.gone.push(target_of(line));
            for (_, flight) in self.flights.iter_mut().filter(|(_, flight)| flight.line == line) {
                for piece in flight.pieces.as_slice() {
                    pool.retain(piece.buffer);
                }
                flight.abandoned = true;
                let result = Err(Errno::TIMEDOUT);
                self.finished.push_back(Landed { io: flight.io, result, sums: None });
            }
        }
    }

    /// When [`Flights::poll_models`] or [`Flights::expire`] has something to do.
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
        self.flights.len() + self.copying
    }

    fn answer(&mut self, io: IoId, result: Result<(), Errno>) {
        self.finished.push_back(Landed { io, result, sums: None });
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
        let mut vectors = std::mem::take(&mut flight.vectors);
        vectors.clear();
        self.spare_vectors.push(vectors);
        flight
    }
}

impl Vectors {
    /// Takes the first bytes off; there are more.
    fn take_front(&mut self, bytes: usize) -> Vec<libc::iovec> {
        let vectors = match self {
            Vectors::One(vector) => std::slice::from_mut(vector),
            Vectors::Many(vectors) => vectors,
        };
        let (mut front, mut left, mut emptied) = (Vec::new(), bytes, 0);
        for vector in vectors {
            if left == 0 {
                break;
            }
            let taken = left.min(vector.iov_len);
            front.push(libc::iovec { iov_base: vector.iov_base, iov_len: taken });
            vector.iov_base = vector.iov_base.wrapping_byte_add(taken);
            vector.iov_len -= taken;
            left -= taken;
            emptied += usize::from(vector.iov_len == 0);
        }
        assert!(left == 0, "there is so much");
        if let Vectors::Many(vectors) = self {
            vectors.drain(..emptied);
        }
        front
    }
}

impl MemoryCopy {
    /// Does it, or if it may a part of a long write, without the driver.
    pub(crate) fn carry_out(mut self, in_parts: bool) -> Copied {
        let Kind::File(file) = self.device.kind() else { unreachable!("only files in memory are copied") };
        let at = self.offset_bytes;
        // SAFETY: a piece of a pool buffer with a reference (I2). The core does not look at it before the answer,
        // and nobody else knows of it.
        let into = |v: &libc::iovec| unsafe { std::slice::from_raw_parts_mut(v.iov_base.cast(), v.iov_len) };
        // SAFETY: as above; until the answer nobody writes there.
        let from = |v: &libc::iovec| unsafe { std::slice::from_raw_parts(v.iov_base.cast(), v.iov_len) };
        // No small rest is left: it would cost a round.
        if in_parts && !self.is_read && self.len_bytes >= 2 * PART_BYTES {
            let part = self.vectors.take_front(PART_BYTES as usize);
            let mut slices: Vec<_> = part.iter().map(|vector| IoSlice::new(from(vector))).collect();
            return match file.write_vectored_at(at, &mut slices) {
                Ok(()) => {
                    self.offset_bytes += PART_BYTES;
                    self.len_bytes -= PART_BYTES;
                    Copied::Partly(self)
                }
                Err(errno) => Copied::Wholly(Landed { io: self.io, result: Err(errno), sums: None }),
            };
        }
        let result = match (&self.vectors, self.is_read) {
            (Vectors::One(vector), true) => file.read_at(at, into(vector)),
            (Vectors::One(vector), false) => file.write_at(at, from(vector)),
            (Vectors::Many(vectors), true) => {
                let mut slices: Vec<_> = vectors.iter().map(|vector| IoSliceMut::new(into(vector))).collect();
                file.read_vectored_at(at, &mut slices)
            }
            (Vectors::Many(vectors), false) => {
                let mut slices: Vec<_> = vectors.iter().map(|vector| IoSlice::new(from(vector))).collect();
                file.write_vectored_at(at, &mut slices)
            }
        };
        // What was copied is still in the caches of this processor.
        let sums = match (&self.vectors, self.judged) {
            (Vectors::One(vector), Some(slice)) if result.is_ok() => {
                let blocks = from(vector).chunks(BLOCK_BYTES as usize).map(payload_checksum).collect();
                Some(Sums { slice, blocks })
            }
            _ => None,
        };
        Copied::Wholly(Landed { io: self.io, result, sums })
    }
}

impl Flight {
    /// Takes `bytes` off the front of the vectors.
    fn moved(&mut self, mut bytes: u64) {
        self.done_bytes += bytes;
        assert!(self.done_bytes <= self.len_bytes, "a transfer ends where it should");
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

fn transfer(file: &OpenFile, flight: &Flight) -> Operation {
    let rest = &flight.vectors[flight.vector..];
    let vectors = rest.as_ptr();
    let count = u32::try_from(rest.len().min(VECTORS_MAX)).expect("bounded");
    let offset_bytes = flight.offset_bytes + flight.done_bytes;
    let offload = file.is_copied() && flight.len_bytes - flight.done_bytes >= OFFLOAD_BYTES_MIN;
    let file = file.raw_fd();
    match flight.step {
        Step::Read => Operation::Read { file, offset_bytes, vectors, count, offload },
        _ => Operation::Write { file, offset_bytes, vectors, count, offload },
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
    use crate::devices::BlockingDevice;
    use crate::devices::{Access, open, parse};

    const BLOCK: u32 = BLOCK_BYTES as u32;

    fn flights_over(text: &str) -> (Flights, Device) {
        let device = open(&parse(text).unwrap(), Access::Exclusive).unwrap();
        (Flights::new(Some(device.clone()), Vec::new(), Nanos::SECOND, 1), device)
    }

    /// Has all copies made; how many rounds that took.
    fn copy_all(flights: &mut Flights, in_parts: bool) -> usize {
        let mut rounds = 0;
        while flights.has_copies(0) {
            let mut round = Vec::new();
            flights.take_copies(0, &mut round);
            round.into_iter().for_each(|copy| flights.copied(0, copy.carry_out(in_parts)));
            rounds += 1;
        }
        rounds
    }

    #[test]
    fn a_long_write_within_memory_is_made_in_parts_and_answered_once() {
        let (mut flights, device) = flights_over("mem:4M");
        let mut pool = Pool::new(crate::buffers::DOOR_BYTES_MIN).unwrap();
        let (mut backend, _) = Backend::new().unwrap();
        // Borders of parts and borders of pieces meet, and do not.
        for (number, lengths) in
            [vec![2, 64], vec![65], vec![1, 32, 32], vec![16, 16, 5], vec![3, 200], vec![31]]
                .into_iter()
                .enumerate()
        {
            let pieces: Vec<Slice> = lengths
                .iter()
                .map(|blocks| {
                    let buffer = pool.allocate_for_door(blocks * BLOCK).unwrap();
                    Slice { buffer, offset_bytes: 0, len_bytes: blocks * BLOCK }
                })
                .collect();
            let in_parts = number > 0;
            let mut expected = Vec::new();
            for piece in &pieces {
                let start = expected.len();
                let content = (0..piece.len_bytes as usize).map(|at| ((start + at) / 509 + number) as u8);
                expected.extend(content);
                pool.bytes_mut(*piece).copy_from_slice(&expected[start..]);
            }
            let from = if let [piece] = pieces[..] { Pieces::One(piece) } else { Pieces::Many(pieces) };
            let op = IoOp::Write { offset_bytes: BLOCK_BYTES, from };
            let io = Io { id: IoId(number as u64), target: Target::Cache, op };
            flights.start(io, Nanos(0), &mut pool, &mut backend, 0);
            let rounds = copy_all(&mut flights, in_parts);
            let parts = if in_parts { (expected.len() / PART_BYTES as usize).max(1) } else { 1 };
            assert_eq!(rounds, parts);
            let landed = flights.take_finished().unwrap();
            assert_eq!((landed.io, landed.result), (IoId(number as u64), Ok(())));
            assert!(flights.take_finished().is_none() && flights.in_flight() == 0);
            let mut found = vec![0; expected.len()];
            BlockingDevice::new(&device).read_at(BLOCK_BYTES, &mut found).unwrap();
            assert!(found == expected, "write {number}");
        }
    }

    #[test]
    fn a_long_read_of_the_cache_brings_the_checksums_of_its_blocks() {
        let (mut flights, device) = flights_over("mem:1M");
        let mut pool = Pool::new(crate::buffers::DOOR_BYTES_MIN).unwrap();
        let (mut backend, _) = Backend::new().unwrap();
        let content: Vec<u8> = (0..32 * BLOCK_BYTES as usize).map(|at| (at / 509) as u8).collect();
        BlockingDevice::new(&device).write_at(0, &content).unwrap();
        for (blocks, is_summed) in [(32, true), (8, false)] {
            let buffer = pool.allocate_for_door(blocks * BLOCK).unwrap();
            let into = Slice { buffer, offset_bytes: 0, len_bytes: blocks * BLOCK };
            let op = IoOp::Read { offset_bytes: 0, into: Pieces::One(into) };
            let io = Io { id: IoId(1), target: Target::Cache, op };
            flights.start(io, Nanos(0), &mut pool, &mut backend, 0);
            copy_all(&mut flights, true);
            let Landed { result: Ok(()), sums, .. } = flights.take_finished().unwrap() else { panic!() };
            assert_eq!(sums.is_some(), is_summed);
            let Some(sums) = sums else { continue };
            assert_eq!(sums.slice, into);
            assert!(sums.blocks.iter().copied().eq(content.chunks(BLOCK as usize).map(payload_checksum)));
        }
    }
}
