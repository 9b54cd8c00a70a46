//! Backends: a reactor's system calls, carried out by an io_uring or, where the kernel refuses one, by threads.

mod ciphers;
mod ears;
mod ring;
mod threads;
mod workers;

pub(crate) use ciphers::{Cipher, Work};
pub(crate) use ears::Ear;

use crate::kernel::ublk::Order;
use ciphers::Ciphers;
use ears::Ears;
use ring::Ring;
use std::cell::RefCell;
use std::io;
use std::os::fd::RawFd;
use std::rc::Rc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;
use threads::Threads;
use workers::Workers;

/// The name of an operation under way; comes back with its result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Token(pub u64);

/// The end of an operation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Finished {
    /// The operation.
    pub token: Token,
    /// Bytes moved or another number that is not negative, or the errno as a negative one.
    pub result: i32,
}

/// Way to do an operation at a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// The file is memory of this process, and never waits.
    Memory,
    /// By the kernel, and by one of its threads if it would have to wait. Each file has at most
    /// [`AT_KERNEL_MAX`](crate::devices::flights::AT_KERNEL_MAX) operations there.
    Kernel,
    /// The same, but a copy of many bytes: better done by a thread of the kernel in any case than by the calling one.
    Copy,
    /// By the kernel, and by none of its threads: it fails with `EAGAIN` if it would have to wait, and with `EOPNOTSUPP`
    /// if the file cannot tell.
    AtOnce,
    /// In a thread of its file, however long it takes.
    Waiting,
}

impl Way {
    /// Whether it may take one of the kernel's threads.
    pub(crate) fn is_at_kernel(self) -> bool {
        matches!(self, Way::Kernel | Way::Copy)
    }
}

/// A system call to be done when possible. Addresses stay valid until it has finished: that is the duty of the caller
/// of [`Backend::push`]. `offload`: the bytes are many, and better copied by a thread of the kernel than by the
/// calling one.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Operation {
    /// Take a connection; the result is its descriptor.
    Accept { socket: RawFd },
    /// Receive available bytes, at least one.
    Receive { socket: RawFd, message: *mut libc::msghdr, offload: bool },
    /// Send; may send less than everything.
    Send { socket: RawFd, message: *const libc::msghdr, offload: bool },
    /// Read an eventfd.
    Wake { event: RawFd, into: *mut u64 },
    /// Wait until a descriptor can be read.
    Poll { descriptor: RawFd },
    /// Read from a device into the vectors.
    Read { file: RawFd, offset_bytes: u64, vectors: *const libc::iovec, count: u32, way: Way },
    /// Write the vectors to a device.
    Write { file: RawFd, offset_bytes: u64, vectors: *const libc::iovec, count: u32, way: Way },
    /// `fdatasync`.
    Flush { file: RawFd, way: Way },
    /// A command for a tag of a ublk queue; the result is that of the tag's next request. May take for ever, so it does
    /// not count as outstanding. Only a ring can do it.
    Queue(Order),
    /// `fallocate`.
    Allocate { file: RawFd, mode: u32, offset_bytes: u64, len_bytes: u64 },
}

/// A way to have operations done, and the ciphers and ears beside it.
pub(crate) struct Backend {
    calls: Calls,
    ciphers: Ciphers,
    ears: Ears,
    /// Polls for ears that have ended.
    ready: Vec<Token>,
}

/// A way to have system calls done.
enum Calls {
    /// io_uring.
    Ring(Box<Ring>),
    /// Where the kernel refuses io_uring.
    Threads(Box<Threads>),
}

/// Target of all reads of eventfds: that one ended is all that counts, so nothing ever looks here.
static EVENT_COUNT: AtomicU64 = AtomicU64::new(0);

/// The environment variable that makes [`Backend::new`] take threads, for tests.
const NO_IO_URING: &str = "FOREBAY_NO_IO_URING";

impl Backend {
    /// The best backend that the kernel offers, and the errno with which it refused io_uring. Device operations may name
    /// these files only.
    ///
    /// It belongs to the thread that makes it.
    pub(crate) fn new(files: &[RawFd]) -> io::Result<(Backend, Option<i32>)> {
        let workers = Workers::new(files)?;
        let refused = if std::env::var_os(NO_IO_URING).is_some_and(|value| value != "0" && !value.is_empty())
        {
            libc::EPERM
        } else {
            match Ring::build() {
                Ok(ring) => {
                    return Ok((Backend::with(Calls::Ring(Box::new(Ring::with(ring, workers)))), None));
                }
                Err(error) => error.raw_os_error().unwrap_or(libc::ENOSYS),
            }
        };
        Ok((Backend::with(Calls::Threads(Box::new(Threads::new(workers)))), Some(refused)))
    }

    fn with(calls: Calls) -> Backend {
        Backend { calls, ciphers: Ciphers::default(), ears: Ears::default(), ready: Vec::new() }
    }

    fn workers(&mut self) -> &mut Workers {
        match &mut self.calls {
            Calls::Ring(ring) => ring.workers(),
            Calls::Threads(threads) => threads.workers(),
        }
    }

    /// Gets ready for operations of one more file.
    pub(crate) fn learn(&mut self, file: RawFd) -> io::Result<()> {
        self.workers().learn(file)
    }

    /// Forgets a file that has no operations under way, and gets no more.
    pub(crate) fn forget(&mut self, file: RawFd) {
        self.workers().forget(file);
    }

    /// Queues an operation.
    ///
    /// # Safety
    /// Everything the operation points to stays valid, and is not touched by anybody else in a
    /// way that races with the kernel, until its token has come back from [`Backend::reap`].
    pub(crate) unsafe fn push(&mut self, token: Token, operation: Operation) {
        match &mut self.calls {
            // SAFETY: the caller promises the same.
            Calls::Ring(ring) => unsafe { ring.push(token, operation) },
            // SAFETY: the caller promises the same.
            Calls::Threads(threads) => unsafe { threads.push(token, operation) },
        }
    }

    /// Queues work of a cipher.
    ///
    /// # Safety
    /// The message of the work and its vectors stay valid and are not touched by anybody else until its token has come
    /// back from [`Backend::reap`].
    pub(crate) unsafe fn push_work(&mut self, token: Token, cipher: Rc<RefCell<dyn Cipher>>, work: Work) {
        // SAFETY: the caller promises the same.
        unsafe { self.ciphers.push(token, cipher, work) };
    }

    /// Queues a read of an eventfd, which ends when another thread writes to it.
    pub(crate) fn await_event(&mut self, token: Token, event: RawFd) {
        // SAFETY: the count lives as long as the process, and nothing but the kernel touches it.
        unsafe { self.push(token, Operation::Wake { event, into: EVENT_COUNT.as_ptr() }) };
    }

    /// Whether there is an ear with that descriptor.
    pub(crate) fn has_ear(&self, descriptor: RawFd) -> bool {
        self.ears.have(descriptor)
    }

    /// Listens by this ear from now on, in [`Backend::reap`].
    pub(crate) fn listen(&mut self, ear: Box<dyn Ear>) {
        let descriptor = ear.descriptor();
        let token = self.ears.add(ear);
        self.await_ear(token, descriptor);
    }

    fn await_ear(&mut self, token: Token, descriptor: RawFd) {
        // SAFETY: it points to no memory.
        unsafe { self.push(token, Operation::Poll { descriptor }) };
    }

    /// Starts queued operations and picks up finished ones, without waiting for the kernel.
    pub(crate) fn submit(&mut self) -> io::Result<()> {
        match &mut self.calls {
            Calls::Ring(ring) => ring.submit()?,
            Calls::Threads(threads) => threads.submit(Some(Duration::ZERO))?,
        }
        self.ciphers.work();
        Ok(())
    }

    /// Starts queued operations and waits until one is finished, or for `timeout`.
    pub(crate) fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        if !self.ciphers.is_idle() {
            return self.submit();
        }
        match &mut self.calls {
            Calls::Ring(ring) => ring.wait(timeout),
            Calls::Threads(threads) => threads.submit(timeout),
        }
    }

    /// Whether something is finished, or would be at the next [`Backend::submit`]. Costs no system call.
    pub(crate) fn is_ready(&mut self) -> bool {
        let is_ready = match &mut self.calls {
            Calls::Ring(ring) => ring.is_ready(),
            Calls::Threads(threads) => threads.is_ready(),
        };
        is_ready || !self.ciphers.is_idle()
    }

    /// Appends everything that is finished, and hears what has come for ears. The latter may take a while, so nothing is
    /// locked meanwhile.
    pub(crate) fn reap(&mut self, finished: &mut Vec<Finished>) {
        match &mut self.calls {
            Calls::Ring(ring) => ring.reap(finished),
            Calls::Threads(threads) => threads.reap(finished),
        }
        if self.ears.len() > 0 {
            let mut ready = std::mem::take(&mut self.ready);
            ready.extend(finished.extract_if(.., |end| Ears::is_for_ear(end.token)).map(|end| end.token));
            for token in ready.drain(..) {
                if let Some(descriptor) = self.ears.hear(token) {
                    self.await_ear(token, descriptor);
                }
            }
            self.ready = ready;
        }
        self.ciphers.reap(finished);
    }

    /// Whether a short spin instead of a sleep can notice something earlier.
    pub(crate) fn can_spin(&self) -> bool {
        matches!(self.calls, Calls::Ring(_))
    }

    /// Whether it can do [`Operation::Queue`].
    pub(crate) fn is_ring(&self) -> bool {
        matches!(self.calls, Calls::Ring(_))
    }

    /// Operations that have not come back yet, but for [`Operation::Queue`] and the polls for ears.
    pub(crate) fn outstanding(&self) -> usize {
        let calls = match &self.calls {
            Calls::Ring(ring) => ring.outstanding(),
            Calls::Threads(threads) => threads.outstanding(),
        };
        calls - self.ears.len() + self.ciphers.outstanding()
    }
}
