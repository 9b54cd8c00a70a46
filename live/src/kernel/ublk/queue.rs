//! Queues of ublk devices: memory that the driver shares, and the file by which data is moved.

use super::codec::{
    Asked, COMMIT_AND_FETCH, DESCRIPTION_BYTES, FETCH, Information, QUEUE_STRIDE_BYTES, data_offset,
    tag_argument,
};
use rustix::mm::{MapFlags, ProtFlags};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::ptr::NonNull;
use std::sync::Arc;

/// A command for a tag: goes to the driver by a ring, and comes back when the tag has a request. It names no memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Order {
    /// The file of the device.
    pub file: RawFd,
    /// The command.
    pub command: u32,
    /// Its argument.
    pub argument: [u8; 16],
}

/// One queue of a device, to be served by one thread.
#[derive(Debug)]
pub struct Queue {
    /// The file of the device; all its queues share it.
    file: Arc<OwnedFd>,
    number: u16,
    tags: u16,
    descriptions: Descriptions,
}

/// The driver's descriptions of requests, by tag.
#[derive(Debug)]
struct Descriptions {
    base: NonNull<u8>,
    mapped_bytes: usize,
}

// SAFETY: the mapping is only read, and belongs to this value alone.
unsafe impl Send for Descriptions {}

impl Queue {
    /// The queues of a device with this file. Each can be had once, as long as the device is served.
    ///
    /// # Errors
    /// What the system says.
    pub(super) fn all(file: OwnedFd, information: &Information) -> io::Result<Vec<Queue>> {
        let file = Arc::new(file);
        let queue = |number| {
            let descriptions = Descriptions::map(&file, number, information.tags)?;
            Ok(Queue { file: Arc::clone(&file), number, tags: information.tags, descriptions })
        };
        (0..information.queues).map(queue).collect()
    }

    /// Number of its tags.
    #[must_use]
    pub fn tags(&self) -> u16 {
        self.tags
    }

    /// The command that wants the first request of a tag.
    pub(crate) fn fetch(&self, tag: u16) -> Order {
        let argument = tag_argument(self.number, tag, 0);
        Order { file: self.file.as_raw_fd(), command: FETCH, argument }
    }

    /// The command that answers the request of a tag, and wants the next one. The result is the bytes that were moved, or
    /// an errno as a negative number.
    pub(crate) fn commit(&self, tag: u16, result: i32) -> Order {
        let argument = tag_argument(self.number, tag, result);
        Order { file: self.file.as_raw_fd(), command: COMMIT_AND_FETCH, argument }
    }

    /// The request that a tag has.
    pub(crate) fn asked(&self, tag: u16) -> Asked {
        assert!(tag < self.tags, "a tag of this queue");
        // SAFETY: the mapping has a description for each tag of the queue, as long as this value lives. The driver writes
        // one before the command of its tag comes back, and not again before the next command for the tag, which has not
        // been given; reading it as volatile bytes is sound even if it did otherwise.
        let bytes = unsafe {
            let place = self.descriptions.base.as_ptr().add(usize::from(tag) * DESCRIPTION_BYTES);
            place.cast::<[u8; DESCRIPTION_BYTES]>().read_volatile()
        };
        Asked::decode(&bytes)
    }

    /// Copies what a write brings, from a byte of it on.
    ///
    /// # Errors
    /// What the driver says, most often since the request is not there any more.
    pub(crate) fn take(&self, tag: u16, offset_bytes: u32, mut into: &mut [u8]) -> io::Result<()> {
        let mut at = data_offset(self.number, tag, offset_bytes);
        while !into.is_empty() {
            let count = rustix::io::pread(&self.file, &mut *into, at)?;
            if count == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            into = &mut into[count..];
            at += count as u64;
        }
        Ok(())
    }

    /// Copies to a read what it asked for, from a byte of it on.
    ///
    /// # Errors
    /// As [`Queue::take`].
    pub(crate) fn give(&self, tag: u16, offset_bytes: u32, mut from: &[u8]) -> io::Result<()> {
        let mut at = data_offset(self.number, tag, offset_bytes);
        while !from.is_empty() {
            let count = rustix::io::pwrite(&self.file, from, at)?;
            if count == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            from = &from[count..];
            at += count as u64;
        }
        Ok(())
    }
}

impl Descriptions {
    fn map(file: &OwnedFd, queue: u16, tags: u16) -> io::Result<Descriptions> {
        let mapped_bytes =
            (usize::from(tags) * DESCRIPTION_BYTES).next_multiple_of(rustix::param::page_size());
        let offset = u64::from(queue) * QUEUE_STRIDE_BYTES;
        // SAFETY: a new mapping at an address of the kernel's choice touches nothing.
        let base = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                mapped_bytes,
                ProtFlags::READ,
                MapFlags::SHARED,
                file,
                offset,
            )?
        };
        let base = NonNull::new(base.cast()).expect("a mapping is never at address 0");
        Ok(Descriptions { base, mapped_bytes })
    }
}

impl Drop for Descriptions {
    fn drop(&mut self) {
        // SAFETY: the mapping was made in `map`, with this length, and nothing refers to it any more.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.mapped_bytes) };
    }
}

#[cfg(test)]
impl Queue {
    /// A queue of a driver that is a file in memory: a tag has a request with this code, first sector and number of them.
    pub(crate) fn asking(tag: u16, code: u8, (start, sectors): (u64, u32)) -> Queue {
        use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
        let file = memfd_create("queue", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&file, QUEUE_STRIDE_BYTES).unwrap();
        let mut description = [0; DESCRIPTION_BYTES];
        description[0] = code;
        description[4..8].copy_from_slice(&sectors.to_ne_bytes());
        description[8..16].copy_from_slice(&start.to_ne_bytes());
        rustix::io::pwrite(&file, &description, u64::from(tag) * DESCRIPTION_BYTES as u64).unwrap();
        Queue::all(file, &Information::wanted(0, 1, 0)).unwrap().remove(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::ublk::Op;
    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

    /// A file with holes stands for the driver's: descriptions at its beginning, and the data of requests far behind.
    #[test]
    fn a_queue_reads_descriptions_and_moves_data() {
        let file = memfd_create("queues", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&file, 1 << 43).unwrap();
        let information = Information::wanted(0, 2, 0);
        let mut description = [0; DESCRIPTION_BYTES];
        description[0] = 1;
        description[4] = 8;
        let at = QUEUE_STRIDE_BYTES + 3 * DESCRIPTION_BYTES as u64;
        rustix::io::pwrite(&file, &description, at).unwrap();
        rustix::io::pwrite(&file, &[7; 4096], data_offset(1, 3, 0)).unwrap();
        let queues = Queue::all(file, &information).unwrap();
        let asked = queues[1].asked(3);
        assert_eq!((asked.op, asked.start, asked.sectors), (Op::Write, 0, 8));
        assert_eq!(
            (queues[0].asked(3).op, queues[1].asked(4).op),
            (Op::Read, Op::Read),
            "nothing was said there"
        );
        let mut bytes = [0; 1024];
        queues[1].take(3, 3072, &mut bytes).unwrap();
        assert_eq!(bytes, [7; 1024]);
        queues[0].give(3, 512, &[9; 512]).unwrap();
        queues[0].take(3, 0, &mut bytes).unwrap();
        assert_eq!((bytes[511], bytes[512]), (0, 9));
        assert_eq!(queues[1].commit(3, -5).argument, tag_argument(1, 3, -5));
        assert_eq!((queues[0].fetch(0).command, queues[0].tags()), (FETCH, 257));
    }

    #[test]
    fn data_that_is_not_all_there_is_an_error() {
        let file = memfd_create("queues", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&file, data_offset(0, 0, 100)).unwrap();
        let queue = Queue::all(file, &Information::wanted(0, 1, 0)).unwrap().remove(0);
        let error = queue.take(0, 0, &mut [0; 512]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    }
}
