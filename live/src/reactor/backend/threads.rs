//! The backend without io_uring: poll(2) for sockets, threads for devices.
//!
//! Sockets are tried at once when there is something to try, without waiting; only what would wait is
//! polled for. Device operations go to threads, which ring an eventfd when one is done.

use crate::reactor::backend::workers::Workers;
use crate::reactor::backend::{Finished, Operation, Token};
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::time::Duration;

struct Job {
    token: Token,
    operation: Operation,
}

/// Operations done by threads, and sockets by the reactor itself.
pub(crate) struct Threads {
    workers: Workers,
    /// Socket operations that would have waited when last tried.
    waiting: Vec<Job>,
    /// Socket operations that were not tried yet.
    fresh: Vec<Job>,
    finished: Vec<Finished>,
    polls: Vec<libc::pollfd>,
    outstanding: usize,
}

impl Threads {
    /// Sockets, with nothing to do, and the threads.
    pub(crate) fn new(workers: Workers) -> Threads {
        Threads {
            workers,
            waiting: Vec::new(),
            fresh: Vec::new(),
            finished: Vec::new(),
            polls: Vec::new(),
            outstanding: 0,
        }
    }

    /// The threads for devices.
    pub(crate) fn workers(&mut self) -> &mut Workers {
        &mut self.workers
    }

    /// See [`crate::reactor::backend::Backend::push`].
    ///
    /// # Safety
    /// As there.
    pub(crate) unsafe fn push(&mut self, token: Token, operation: Operation) {
        self.outstanding += 1;
        let job = Job { token, operation };
        match operation {
            Operation::Accept { .. }
            | Operation::Receive { .. }
            | Operation::Send { .. }
            | Operation::Poll { .. }
            | Operation::Wake { .. } => {
                self.fresh.push(job);
            }
            Operation::Read { file, .. }
            | Operation::Write { file, .. }
            | Operation::Flush { file, .. }
            | Operation::Allocate { file, .. } => {
                // SAFETY: the caller promises the same.
                unsafe { self.workers.push(file, token, operation) };
            }
            Operation::Queue(_) => unreachable!("queues are for rings"),
        }
    }

    /// Tries queued operations; if none is finished, waits for one or the timeout.
    pub(crate) fn submit(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        for job in std::mem::take(&mut self.fresh) {
            self.attempt(job);
        }
        if self.is_ready() {
            // An operation that waits longer must not starve behind others that are always ready.
            return self.poll(Some(Duration::ZERO));
        }
        self.poll(timeout)
    }

    fn attempt(&mut self, job: Job) {
        // SAFETY: the memory is valid until the token comes back, as `push` was promised.
        match unsafe { perform(job.operation) } {
            result if result == -libc::EAGAIN => self.waiting.push(job),
            result => self.finished.push(Finished { token: job.token, result }),
        }
    }

    fn poll(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        let wanted = |fd: RawFd, events: i16| libc::pollfd { fd, events, revents: 0 };
        self.polls.clear();
        self.polls.push(wanted(self.workers.event().as_raw_fd(), libc::POLLIN));
        self.polls.extend(self.waiting.iter().map(|job| match job.operation {
            Operation::Accept { socket } | Operation::Receive { socket, .. } => wanted(socket, libc::POLLIN),
            Operation::Send { socket, .. } => wanted(socket, libc::POLLOUT),
            Operation::Wake { event: descriptor, .. } | Operation::Poll { descriptor } => {
                wanted(descriptor, libc::POLLIN)
            }
            _ => unreachable!("device operations go to the threads"),
        }));
        let milliseconds = match timeout {
            None => -1,
            Some(timeout) => i32::try_from(timeout.as_nanos().div_ceil(1_000_000)).unwrap_or(i32::MAX),
        };
        // SAFETY: the array is ours and as long as stated.
        let ready =
            unsafe { libc::poll(self.polls.as_mut_ptr(), self.polls.len() as libc::nfds_t, milliseconds) };
        if ready < 0 {
            let error = io::Error::last_os_error();
            return if error.kind() == io::ErrorKind::Interrupted { Ok(()) } else { Err(error) };
        }
        if self.polls[0].revents != 0 {
            let _ = rustix::io::read(self.workers.event(), &mut [0; 8]);
        }
        let waiting = std::mem::take(&mut self.waiting);
        for (place, job) in waiting.into_iter().enumerate() {
            if self.polls[place + 1].revents == 0 {
                self.waiting.push(job);
            } else {
                self.attempt(job);
            }
        }
        Ok(())
    }

    /// Whether results are there.
    pub(crate) fn is_ready(&self) -> bool {
        !self.finished.is_empty() || self.workers.is_ready()
    }

    /// Appends all results.
    pub(crate) fn reap(&mut self, finished: &mut Vec<Finished>) {
        let before = finished.len();
        finished.append(&mut self.finished);
        self.workers.reap(finished);
        self.outstanding -= finished.len() - before;
    }

    /// Operations that have not come back yet.
    pub(crate) fn outstanding(&self) -> usize {
        self.outstanding
    }
}

/// Whether there is something to be read, or accepted.
fn can_be_read(descriptor: RawFd) -> bool {
    let mut poll = libc::pollfd { fd: descriptor, events: libc::POLLIN, revents: 0 };
    // SAFETY: one structure of ours.
    unsafe { libc::poll(&raw mut poll, 1, 0) != 0 }
}

/// Performs an operation at a socket, without waiting.
///
/// # Safety
/// All that the operation points to is valid and unshared meanwhile.
unsafe fn perform(operation: Operation) -> i32 {
    let result: i64 = match operation {
        // The listening sockets wait in accept, because the ring needs them to.
        Operation::Accept { socket } if !can_be_read(socket) => return -libc::EAGAIN,
        Operation::Accept { socket } => {
            // SAFETY: no address is asked for.
            let taken = unsafe {
                libc::accept4(socket, std::ptr::null_mut(), std::ptr::null_mut(), libc::SOCK_CLOEXEC)
            };
            i64::from(taken)
        }
        // SAFETY: the caller keeps the message and all that it points to.
        Operation::Receive { socket, message, .. } => unsafe {
            libc::recvmsg(socket, message, libc::MSG_DONTWAIT) as i64
        },
        // SAFETY: the caller keeps the message and all that it points to.
        Operation::Send { socket, message, .. } => unsafe {
            libc::sendmsg(socket, message, libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) as i64
        },
        Operation::Poll { descriptor } if !can_be_read(descriptor) => return -libc::EAGAIN,
        Operation::Poll { .. } => 0,
        Operation::Wake { event, .. } if !can_be_read(event) => return -libc::EAGAIN,
        // SAFETY: the caller keeps the eight bytes.
        Operation::Wake { event, into } => unsafe { libc::read(event, into.cast(), 8) as i64 },
        Operation::Read { .. }
        | Operation::Write { .. }
        | Operation::Flush { .. }
        | Operation::Queue(_)
        | Operation::Allocate { .. } => {
            unreachable!("device operations go to the threads")
        }
    };
    if result < 0 {
        return -io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO);
    }
    i32::try_from(result).expect("a system call moves at most 2 GiB")
}
