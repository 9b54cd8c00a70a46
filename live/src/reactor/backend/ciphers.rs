//! Ciphers: the encryption of sockets, done by a reactor's own thread at a time when it does not hold up the others.
//!
//! To the doors this is one more system call: they queue it, and its result comes back with the others.

use crate::reactor::backend::{Finished, Token};
use std::cell::RefCell;
use std::io::IoSlice;
use std::rc::Rc;

/// The encryption of one connection.
pub(crate) trait Cipher {
    /// Opens what has come, into the vectors; the number of bytes. 0 at the end of the connection; otherwise the errno as
    /// a negative number: EAGAIN if more has to come first.
    fn open(&mut self, into: &mut [&mut [u8]]) -> i32;
    /// Seals a part of the vectors, to be sent next; the number of bytes.
    fn seal(&mut self, from: &[IoSlice<'_>]) -> i32;
}

/// Work of a cipher. The vectors of a message stay valid until its token has come back: that is the duty of the caller
/// of [`Backend::push_work`](super::Backend::push_work).
#[derive(Clone, Copy, Debug)]
pub(crate) enum Work {
    /// Open into the vectors of a message, as a receive does.
    Open { message: *mut libc::msghdr },
    /// Seal from the vectors of a message, as a send does; without one, only what the cipher itself has to say.
    Seal { message: Option<*const libc::msghdr> },
}

/// A cipher with its work.
struct Job {
    token: Token,
    cipher: Rc<RefCell<dyn Cipher>>,
    work: Work,
}

/// Work of all ciphers of a reactor.
#[derive(Default)]
pub(crate) struct Ciphers {
    jobs: Vec<Job>,
    finished: Vec<Finished>,
}

impl Ciphers {
    /// Queues work.
    ///
    /// # Safety
    /// As of [`Backend::push_work`](super::Backend::push_work).
    pub(super) unsafe fn push(&mut self, token: Token, cipher: Rc<RefCell<dyn Cipher>>, work: Work) {
        self.jobs.push(Job { token, cipher, work });
    }

    /// Does all that is queued.
    pub(super) fn work(&mut self) {
        for Job { token, cipher, work } in self.jobs.drain(..) {
            // SAFETY: `push` was promised that the memory is valid and unshared until the token comes back.
            let result = unsafe { perform(&mut *cipher.borrow_mut(), work) };
            self.finished.push(Finished { token, result });
        }
    }

    /// Whether there is neither work nor a result.
    pub(super) fn is_idle(&self) -> bool {
        self.jobs.is_empty() && self.finished.is_empty()
    }

    /// Appends all results.
    pub(super) fn reap(&mut self, finished: &mut Vec<Finished>) {
        finished.append(&mut self.finished);
    }

    /// Work and results that have not come back.
    pub(super) fn outstanding(&self) -> usize {
        self.jobs.len() + self.finished.len()
    }
}

/// Lets a cipher do its work.
///
/// # Safety
/// The message and its vectors are valid, and nobody else touches them meanwhile.
unsafe fn perform(cipher: &mut dyn Cipher, work: Work) -> i32 {
    match work {
        Work::Open { message } => {
            // SAFETY: the caller promises a valid message.
            let vectors = unsafe { vectors(message) };
            let mut into: Vec<&mut [u8]> = vectors
                .iter()
                // SAFETY: each vector is memory of the connection or of a buffer that it holds, and they do not overlap.
                .map(|vector| unsafe {
                    std::slice::from_raw_parts_mut(vector.iov_base.cast::<u8>(), vector.iov_len)
                })
                .collect();
            cipher.open(&mut into)
        }
        Work::Seal { message: None } => cipher.seal(&[]),
        Work::Seal { message: Some(message) } => {
            // SAFETY: the caller promises a valid message.
            let vectors = unsafe { vectors(message) };
            let from: Vec<IoSlice<'_>> = vectors
                .iter()
                // SAFETY: each vector is memory of the connection or of a buffer that it holds, and nobody writes to it.
                .map(|vector| unsafe {
                    IoSlice::new(std::slice::from_raw_parts(vector.iov_base.cast::<u8>(), vector.iov_len))
                })
                .collect();
            cipher.seal(&from)
        }
    }
}

/// The vectors of a message.
///
/// # Safety
/// The message is valid for as long as the result is used.
unsafe fn vectors<'a>(message: *const libc::msghdr) -> &'a [libc::iovec] {
    // SAFETY: the caller promises a valid message, and a valid message has as many vectors as it says.
    unsafe { std::slice::from_raw_parts((*message).msg_iov, (*message).msg_iovlen) }
}
