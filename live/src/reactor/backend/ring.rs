//! One io_uring for sockets, and for what devices do without waiting.
//!
//! All devices share the threads that the kernel has for operations that wait. So a device has only a few operations
//! there at a time ([`Way::Kernel`]), and the kernel may have a thread for each. Whatever else may wait for a device does
//! not go to the ring: [`Workers`] do it.

use crate::devices::flights::{AT_KERNEL_MAX, LINES};
use crate::kernel::ublk::Order;
use crate::reactor::backend::workers::Workers;
use crate::reactor::backend::{EVENT_COUNT, Finished, Operation, Token, Way};
use io_uring::types::{Fd, FsyncFlags, SubmitArgs, Timespec};
use io_uring::{IoUring, opcode, squeue};
use std::io;
use std::os::fd::AsRawFd;
use std::time::Duration;

/// Operations that can wait for one system call to start them.
const SUBMISSIONS: u32 = 1024;
/// Results that can wait to be picked up; the kernel keeps more elsewhere, at a cost.
const COMPLETIONS: u32 = 16 * 1024;

/// Threads that the kernel may have for what waits: one for each operation that devices have there by [`Way::Kernel`].
const KERNEL_THREADS_MAX: u32 = (AT_KERNEL_MAX * LINES) as u32;

/// A ring, used by the thread that made it.
pub(crate) struct Ring {
    ring: IoUring,
    workers: Workers,
    outstanding: usize,
    /// Commands of ublk queues among them, which wait for as long as nobody asks for anything.
    at_queues: usize,
    /// The kernel was told how many threads it may have.
    has_kernel_threads: bool,
}

/// Token of the ring's own read of the workers' eventfd; no owner has such a one.
const WORKERS_DONE: u64 = u64::MAX;
/// Set in what the kernel sees as the token of a command of a ublk queue; no owner's token has it.
const AT_QUEUE: u64 = 1 << 63;

impl Ring {
    /// A ring with the best flags that the kernel knows.
    pub(crate) fn build() -> io::Result<IoUring> {
        let ring = build(true).or_else(|_| build(false))?;
        let parameters = ring.params();
        // Waiting with a timeout, and never losing a result.
        if !parameters.is_feature_ext_arg() || !parameters.is_feature_nodrop() {
            return Err(io::Error::from_raw_os_error(libc::ENOSYS));
        }
        Ok(ring)
    }

    /// The ring with the threads beside it.
    pub(crate) fn with(ring: IoUring, workers: Workers) -> Ring {
        let mut ring = Ring { ring, workers, outstanding: 0, at_queues: 0, has_kernel_threads: false };
        ring.await_workers();
        ring
    }

    /// See [`crate::reactor::backend::Backend::push`].
    ///
    /// # Safety
    /// As there.
    pub(crate) unsafe fn push(&mut self, token: Token, operation: Operation) {
        self.outstanding += 1;
        match operation {
            Operation::Read { file, way: Way::Waiting, .. }
            | Operation::Write { file, way: Way::Waiting, .. }
            | Operation::Flush { file, way: Way::Waiting }
            | Operation::Allocate { file, .. } => {
                // SAFETY: the caller promises the same.
                unsafe { self.workers.push(file, token, operation) };
            }
            Operation::Read { way: Way::Kernel, .. }
            | Operation::Write { way: Way::Kernel, .. }
            | Operation::Flush { way: Way::Kernel, .. } => {
                self.allow_kernel_threads();
                // SAFETY: the caller keeps the memory that the entry points to until the token comes back.
                unsafe { self.push_entry(&entry(operation).user_data(token.0)) };
            }
            Operation::Queue(_) => {
                self.at_queues += 1;
                // SAFETY: the entry points to no memory.
                unsafe { self.push_entry(&entry(operation).user_data(token.0 | AT_QUEUE)) };
            }
            // SAFETY: the caller keeps the memory that the entry points to until the token comes back.
            _ => unsafe { self.push_entry(&entry(operation).user_data(token.0)) },
        }
    }

    /// Lets the kernel have a thread for each operation that files can have there.
    fn allow_kernel_threads(&mut self) {
        if !self.has_kernel_threads {
            self.has_kernel_threads = true;
            // Kernels before 5.15 have only the default, four for each processor.
            let _ = self.ring.submitter().register_iowq_max_workers(&mut [KERNEL_THREADS_MAX, 0]);
        }
    }

    /// The threads for what may wait.
    pub(crate) fn workers(&mut self) -> &mut Workers {
        &mut self.workers
    }

    /// Queues a read of the workers' eventfd.
    fn await_workers(&mut self) {
        let event = Fd(self.workers.event().as_raw_fd());
        let entry = opcode::Read::new(event, EVENT_COUNT.as_ptr().cast(), 8).build().user_data(WORKERS_DONE);
        // SAFETY: the count lives as long as the process, and nothing but the kernel touches it.
        unsafe { self.push_entry(&entry) };
    }

    /// Queues an entry.
    ///
    /// # Safety
    /// The memory that it points to stays valid and unshared until its result is there.
    unsafe fn push_entry(&mut self, entry: &squeue::Entry) {
        loop {
            // SAFETY: the caller promises the same.
            if unsafe { self.ring.submission().push(entry) }.is_ok() {
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
        let (mut workers_done, mut from_queues) = (false, 0);
        finished.extend(self.ring.completion().filter_map(|entry| {
            let name = entry.user_data();
            let is_own = name == WORKERS_DONE;
            workers_done |= is_own;
            from_queues += usize::from(!is_own && name & AT_QUEUE != 0);
            (!is_own).then(|| Finished { token: Token(name & !AT_QUEUE), result: entry.result() })
        }));
        self.at_queues -= from_queues;
        if workers_done {
            self.workers.reap(finished);
            self.await_workers();
        }
        self.outstanding -= finished.len() - before;
    }

    /// Operations that have not come back yet, but for commands of ublk queues.
    pub(crate) fn outstanding(&self) -> usize {
        self.outstanding - self.at_queues
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
        Operation::Poll { descriptor } => opcode::PollAdd::new(Fd(descriptor), libc::POLLIN as u32).build(),
        Operation::Wake { event, into } => opcode::Read::new(Fd(event), into.cast(), 8).build(),
        Operation::Read { file, offset_bytes, vectors, count, way } => {
            let entry = opcode::Readv::new(Fd(file), vectors, count).offset(offset_bytes);
            offloaded(entry.rw_flags(flags(way)).build(), way == Way::Copy)
        }
        Operation::Write { file, offset_bytes, vectors, count, way } => {
            let entry = opcode::Writev::new(Fd(file), vectors, count).offset(offset_bytes);
            offloaded(entry.rw_flags(flags(way)).build(), way == Way::Copy)
        }
        Operation::Flush { file, .. } => opcode::Fsync::new(Fd(file)).flags(FsyncFlags::DATASYNC).build(),
        Operation::Queue(Order { file, command, argument }) => {
            opcode::UringCmd16::new(Fd(file), command).cmd(argument).build()
        }
        Operation::Allocate { .. } => unreachable!("it goes to the threads"),
    }
}

fn flags(way: Way) -> i32 {
    if way == Way::AtOnce { libc::RWF_NOWAIT } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reactor::backend::Backend;

    #[test]
    fn a_command_of_a_queue_comes_back_and_holds_up_no_end() {
        let (mut backend, None) = Backend::new(&[]).unwrap() else { return };
        let event = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).unwrap();
        let order = Order { file: event.as_raw_fd(), command: 0, argument: [0; 16] };
        // SAFETY: the command points to nothing.
        unsafe { backend.push(Token(7), Operation::Queue(order)) };
        assert_eq!(backend.outstanding(), 0);
        let mut finished = Vec::new();
        while finished.is_empty() {
            backend.wait(Some(Duration::from_secs(10))).unwrap();
            backend.reap(&mut finished);
        }
        // An eventfd knows no commands.
        assert_eq!((finished[0].token, finished[0].result < 0, finished.len()), (Token(7), true, 1));
        assert_eq!(backend.outstanding(), 0);
    }
}
