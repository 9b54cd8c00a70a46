//! Threads for device operations that may wait. Each file has its own, so that one that hangs holds up no other.

use crate::reactor::backend::{Finished, Operation, Token};
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// Least number of threads that a file can come to have: enough for a disk to sort its operations.
const THREADS_MIN: usize = 8;
/// Threads that a file can come to have for each processor; the kernel's own pool for such operations has as many.
const THREADS_A_PROCESSOR: usize = 4;
/// Stack of a thread, in bytes; all it does is one system call.
const STACK_BYTES: usize = 128 * 1024;

struct Job {
    token: Token,
    operation: Operation,
}

// SAFETY: the caller of `push` keeps its memory valid and unshared until it has
// finished, whichever thread performs it.
unsafe impl Send for Job {}

#[derive(Default)]
struct Jobs {
    waiting: VecDeque<Job>,
    /// Threads that wait and were not woken.
    idle: usize,
    /// Threads that were woken and do not go on yet.
    woken: usize,
    ended: bool,
}

/// Operations of one file that no thread has begun.
#[derive(Default)]
struct Queue {
    jobs: Mutex<Jobs>,
    comes: Condvar,
}

/// Operations that are done.
struct Done {
    list: Mutex<Vec<Finished>>,
    /// Set while the list may have something that the reactor has not taken.
    any: AtomicBool,
    /// Written to when `any` is set.
    event: OwnedFd,
}

/// One file's operations and threads.
struct FileWorkers {
    file: RawFd,
    queue: Arc<Queue>,
    threads: Vec<JoinHandle<()>>,
}

/// Threads of all files, and what they have done.
pub(crate) struct Workers {
    files: Vec<FileWorkers>,
    done: Arc<Done>,
    threads_max: usize,
    outstanding: usize,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Workers {
    /// Starts a thread for each of the files. More are started when there is work for them.
    pub(crate) fn new(files: &[RawFd]) -> io::Result<Workers> {
        let flags = rustix::event::EventfdFlags::CLOEXEC;
        let done = Done {
            list: Mutex::default(),
            any: AtomicBool::new(false),
            event: rustix::event::eventfd(0, flags)?,
        };
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let mut workers = Workers {
            files: Vec::with_capacity(files.len()),
            done: Arc::new(done),
            threads_max: THREADS_MIN.max(THREADS_A_PROCESSOR * processors),
            outstanding: 0,
        };
        for &file in files {
            workers.learn(file)?;
        }
        Ok(workers)
    }

    /// Starts a thread for one more file.
    pub(crate) fn learn(&mut self, file: RawFd) -> io::Result<()> {
        self.files.push(FileWorkers { file, queue: Arc::default(), threads: Vec::new() });
        let started = self.start_thread(self.files.len() - 1);
        if started.is_err() {
            self.files.pop();
        }
        started
    }

    /// Ends the threads of a file, which has no operations under way.
    pub(crate) fn forget(&mut self, file: RawFd) {
        let Some(at) = self.files.iter().position(|other| other.file == file) else { return };
        let mut of_file = self.files.remove(at);
        lock(&of_file.queue.jobs).ended = true;
        of_file.queue.comes.notify_all();
        for thread in of_file.threads.drain(..) {
            let _ = thread.join();
        }
    }

    /// Queues an operation of one of the files.
    ///
    /// # Safety
    /// That of [`crate::reactor::backend::Backend::push`].
    pub(crate) unsafe fn push(&mut self, file: RawFd, token: Token, operation: Operation) {
        let at =
            self.files.iter().position(|other| other.file == file).expect("a file that was named before");
        self.outstanding += 1;
        let of_file = &self.files[at];
        let mut jobs = lock(&of_file.queue.jobs);
        jobs.waiting.push_back(Job { token, operation });
        let is_awaited = jobs.idle > 0;
        jobs.idle -= usize::from(is_awaited);
        jobs.woken += usize::from(is_awaited);
        drop(jobs);
        if is_awaited {
            of_file.queue.comes.notify_one();
        } else if of_file.threads.len() < self.threads_max {
            // Without another one the operation waits for those that are there.
            let _ = self.start_thread(at);
        }
    }

    fn start_thread(&mut self, at: usize) -> io::Result<()> {
        let of_file = &mut self.files[at];
        let (queue, done) = (Arc::clone(&of_file.queue), Arc::clone(&self.done));
        let builder = std::thread::Builder::new().name(format!("device-{at}")).stack_size(STACK_BYTES);
        of_file.threads.push(builder.spawn(move || work(&queue, &done))?);
        Ok(())
    }

    /// The eventfd that can be read when something is done that was not taken yet.
    pub(crate) fn event(&self) -> BorrowedFd<'_> {
        self.done.event.as_fd()
    }

    /// Whether something is done.
    pub(crate) fn is_ready(&self) -> bool {
        self.done.any.load(Ordering::Acquire)
    }

    /// Appends all that is done.
    pub(crate) fn reap(&mut self, finished: &mut Vec<Finished>) {
        if self.done.any.swap(false, Ordering::AcqRel) {
            let mut list = lock(&self.done.list);
            self.outstanding -= list.len();
            finished.append(&mut list);
        }
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        for of_file in &self.files {
            lock(&of_file.queue.jobs).ended = true;
            of_file.queue.comes.notify_all();
        }
        // Otherwise a device hangs: its threads end with the process.
        if self.outstanding == 0 {
            for thread in self.files.iter_mut().flat_map(|of_file| of_file.threads.drain(..)) {
                let _ = thread.join();
            }
        }
    }
}

fn work(queue: &Queue, done: &Done) {
    loop {
        let mut jobs = lock(&queue.jobs);
        let job = loop {
            if jobs.ended {
                // Nobody waits for what was not begun, and its memory may be gone.
                return;
            }
            if let Some(job) = jobs.waiting.pop_front() {
                break job;
            }
            jobs.idle += 1;
            jobs = queue.comes.wait(jobs).unwrap_or_else(PoisonError::into_inner);
            // A thread may also wake by itself.
            let count = if jobs.woken > 0 { &mut jobs.woken } else { &mut jobs.idle };
            *count -= 1;
        };
        drop(jobs);
        let result = loop {
            // SAFETY: the memory is valid until the token comes back, as `push` was promised.
            match unsafe { perform(job.operation) } {
                result if result == -libc::EINTR => {}
                result => break result,
            }
        };
        lock(&done.list).push(Finished { token: job.token, result });
        if !done.any.swap(true, Ordering::AcqRel) {
            let _ = rustix::io::write(&done.event, &1u64.to_ne_bytes());
        }
    }
}

/// Performs a device operation, however long it takes.
///
/// # Safety
/// All that the operation points to is valid and unshared meanwhile.
unsafe fn perform(operation: Operation) -> i32 {
    let result: i64 = match operation {
        // SAFETY: the caller keeps the vectors and the memory that they point to.
        Operation::Read { file, offset_bytes, vectors, count, .. } => unsafe {
            libc::preadv(file, vectors, count as i32, offset_bytes as i64) as i64
        },
        // SAFETY: the caller keeps the vectors and the memory that they point to.
        Operation::Write { file, offset_bytes, vectors, count, .. } => unsafe {
            libc::pwritev(file, vectors, count as i32, offset_bytes as i64) as i64
        },
        // SAFETY: no memory is involved.
        Operation::Flush { file, .. } => i64::from(unsafe { libc::fdatasync(file) }),
        Operation::Allocate { file, mode, offset_bytes, len_bytes } => {
            // SAFETY: no memory is involved.
            let done = unsafe { libc::fallocate(file, mode as i32, offset_bytes as i64, len_bytes as i64) };
            i64::from(done)
        }
        Operation::Accept { .. }
        | Operation::Receive { .. }
        | Operation::Send { .. }
        | Operation::Queue(_)
        | Operation::Poll { .. }
        | Operation::Wake { .. } => {
            unreachable!("threads are for devices")
        }
    };
    if result < 0 {
        return -io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO);
    }
    i32::try_from(result).expect("a system call moves at most 2 GiB")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reactor::backend::Way;

    #[test]
    fn what_waits_at_the_end_is_not_done() {
        let job = Job { token: Token(1), operation: Operation::Flush { file: -1, way: Way::Waiting } };
        let jobs = Jobs { waiting: VecDeque::from([job]), ended: true, ..Jobs::default() };
        let queue = Queue { jobs: Mutex::new(jobs), comes: Condvar::new() };
        let event = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).expect("an eventfd");
        let done = Done { list: Mutex::default(), any: AtomicBool::new(false), event };
        work(&queue, &done);
        assert!(lock(&done.list).is_empty());
    }
}
