//! One io_uring for sockets and devices.

use crate::reactor::backend::{Finished, Operation, Token};
use io_uring::types::{Fd, FsyncFlags, SubmitArgs, Timespec};
use io_uring::{IoUring, opcode, squeue};
use std::io;
use std::time::Duration;

/// Operations that can wait for one system call to start them.
const SUBMISSIONS: u32 = 1024;
/// Results that can wait to be picked up; the kernel keeps more elsewhere, at a cost.
const COMPLETIONS: u32 = 16 * 1024;

/// A ring, used by the thread that made it.
pub(crate) struct Ring {
    ring: IoUring,
    outstanding: usize,
}

impl Ring {
    /// A ring with the best flags that the kernel knows.
    pub(crate) fn new() -> io::Result<Ring> {
        let ring = build(true).or_else(|_| build(false))?;
        let parameters = ring.params();
        // Waiting with a timeout, and never losing a result.
        if !parameters.is_feature_ext_arg() || !parameters.is_feature_nodrop() {
            return Err(io::Error::from_raw_os_error(libc::ENOSYS));
        }
        Ok(Ring { ring, outstanding: 0 })
    }

    /// See [`crate::reactor::backend::Backend::push`].
    ///
    /// # Safety
    /// As there.
    pub(crate) unsafe fn push(&mut self, token: Token, operation: Operation) {
        let entry = entry(operation).user_data(token.0);
        self.outstanding += 1;
        loop {
            // SAFETY: the caller keeps the memory that the entry points to until the token comes back.
            if unsafe { self.ring.submission().push(&entry) }.is_ok() {
                return;
            }
            // The ring is full: the kernel takes its entries. A shortage of the kernel's passes.
            if self.ring.submit().is_err() {
                std::thread::yield_now();
            }
        }
    }

    /// Starts queued operations, without waiting.
    pub(crate) fn submit(&mut self) -> io::Result<()> {
        tolerate(self.ring.submit())
    }

    /// Starts queued operations and waits for a result or the timeout.
    pub(crate) fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        match timeout {
            None => tolerate(self.ring.submit_and_wait(1)),
            Some(timeout) => {
                let time = Timespec::from(timeout);
                let arguments = SubmitArgs::new().timespec(&time);
                tolerate(self.ring.submitter().submit_with_args(1, &arguments))
            }
        }
    }

    /// Whether results are there or about to be.
    pub(crate) fn is_ready(&mut self) -> bool {
        !self.ring.completion().is_empty() || self.ring.submission().taskrun()
    }

    /// Appends all results.
    pub(crate) fn reap(&mut self, finished: &mut Vec<Finished>) {
        let before = finished.len();
        finished.extend(
            self.ring
                .completion()
                .map(|entry| Finished { token: Token(entry.user_data()), result: entry.result() }),
        );
        self.outstanding -= finished.len() - before;
    }

    /// Operations that have not come back yet.
    pub(crate) fn outstanding(&self) -> usize {
        self.outstanding
    }
}

/// A ring that one thread submits to, with results handed over when it looks, without interrupting it: two flags that
/// make small operations cheap. Kernels before 6.1 lack them.
fn build(best: bool) -> io::Result<IoUring> {
    let mut builder = IoUring::builder();
    builder.setup_cqsize(COMPLETIONS).setup_clamp();
    if best {
        builder.setup_single_issuer().setup_coop_taskrun().setup_defer_taskrun().setup_taskrun_flag();
    }
    builder.build(SUBMISSIONS)
}

/// Tolerates a signal, a timeout, or a busy kernel: the loop comes again.
fn tolerate(result: io::Result<usize>) -> io::Result<()> {
    match result {
        Ok(_) => Ok(()),
        Err(error) => match error.raw_os_error() {
            Some(libc::EINTR | libc::ETIME | libc::EAGAIN | libc::EBUSY) => Ok(()),
            _ => Err(error),
        },
    }
}

fn entry(operation: Operation) -> squeue::Entry {
    let offloaded =
        |entry: squeue::Entry, offload: bool| if offload { entry.flags(squeue::Flags::ASYNC) } else { entry };
    match operation {
        Operation::Accept { socket } => {
            opcode::Accept::new(Fd(socket), std::ptr::null_mut(), std::ptr::null_mut())
                .flags(libc::SOCK_CLOEXEC)
                .build()
        }
        Operation::Receive { socket, message, offload } => {
            offloaded(opcode::RecvMsg::new(Fd(socket), message).build(), offload)
        }
        Operation::Send { socket, message, offload } => {
            let entry = opcode::SendMsg::new(Fd(socket), message).flags(libc::MSG_NOSIGNAL as u32).build();
            offloaded(entry, offload)
        }
        Operation::Wake { event, into } => opcode::Read::new(Fd(event), into.cast(), 8).build(),
        Operation::Read { file, offset_bytes, vectors, count, offload } => {
            offloaded(opcode::Readv::new(Fd(file), vectors, count).offset(offset_bytes).build(), offload)
        }
        Operation::Write { file, offset_bytes, vectors, count, offload } => {
            offloaded(opcode::Writev::new(Fd(file), vectors, count).offset(offset_bytes).build(), offload)
        }
        Operation::Flush { file } => opcode::Fsync::new(Fd(file)).flags(FsyncFlags::DATASYNC).build(),
        Operation::Allocate { file, mode, offset_bytes, len_bytes } => {
            opcode::Fallocate::new(Fd(file), len_bytes).offset(offset_bytes).mode(mode as i32).build()
        }
    }
}
