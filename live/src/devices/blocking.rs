//! A device used by one synchronous job, such as recovery, `create` and `check`.

use crate::devices::nbd::memory::Span;
use crate::devices::nbd::{Kind as NbdKind, NbdDevice, Operation};
use crate::devices::{AlignedBytes, Device, Job, Kind, Transfer};
use engine::effect::Errno;
use engine::format::FlushNote;
use engine::image::{Image, ReadAt};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Reads of a group that are under way at the same time.
const GROUP_READS_MAX: usize = 8;
/// Bytes that one system call moves at the most, so that bounce buffers stay small.
const TRANSFER_BYTES_MAX: usize = 4 << 20;

/// Numbers the operations of all threads that wait for modelled disks.
static TOKENS: AtomicU64 = AtomicU64::new(0);

/// A device whose operations wait until they are done. It shares the open file of the
/// device it was made from, and may be used beside a running reactor.
#[derive(Debug)]
pub struct BlockingDevice {
    device: Device,
    /// Bytes that are read instead of those of the device, by offset, until they are written over.
    shadows: Vec<(u64, Vec<u8>)>,
    flush_note: Option<FlushNote>,
}

impl BlockingDevice {
    /// Uses `device` by waiting.
    #[must_use]
    pub fn new(device: &Device) -> BlockingDevice {
        BlockingDevice { device: device.clone(), shadows: Vec::new(), flush_note: None }
    }

    /// Reads these bytes where the device has others, as if they had been written.
    #[must_use]
    pub fn with_shadows(self, shadows: Vec<(u64, Vec<u8>)>) -> BlockingDevice {
        BlockingDevice { shadows, ..self }
    }

    /// Has the note of a flush that outlived the last process.
    #[must_use]
    pub fn with_flush_note(self, flush_note: Option<FlushNote>) -> BlockingDevice {
        BlockingDevice { flush_note, ..self }
    }

    /// Reads exactly `bytes` from any offset.
    ///
    /// # Errors
    /// The device's errno; [`Errno::INVAL`] if the range is not inside the device.
    pub fn read_at(&mut self, offset_bytes: u64, bytes: &mut [u8]) -> Result<(), Errno> {
        read(&self.device, offset_bytes, bytes)?;
        cast_shadows(&self.shadows, offset_bytes, bytes);
        Ok(())
    }

    /// Writes `bytes` at the offset; both are multiples of the device's sector.
    ///
    /// # Errors
    /// The device's errno; [`Errno::INVAL`] if the range is not aligned or not inside the device.
    pub fn write_at(&mut self, offset_bytes: u64, bytes: &[u8]) -> Result<(), Errno> {
        let sector_bytes = u64::from(self.device.sector_bytes());
        let len_bytes = bytes.len() as u64;
        check_range(&self.device, offset_bytes, len_bytes)?;
        if !offset_bytes.is_multiple_of(sector_bytes) || !len_bytes.is_multiple_of(sector_bytes) {
            return Err(Errno::INVAL);
        }
        let end = offset_bytes + len_bytes;
        self.shadows.retain(|(at, shadow)| *at >= end || at + shadow.len() as u64 <= offset_bytes);
        let mut bounce = AlignedBytes::new(bytes.len().min(TRANSFER_BYTES_MAX));
        let mut offset_bytes = offset_bytes;
        for chunk in bytes.chunks(TRANSFER_BYTES_MAX) {
            match self.device.kind() {
                Kind::File(file) if !file.is_copied() => {
                    bounce[..chunk.len()].copy_from_slice(chunk);
                    file.write_at(offset_bytes, &bounce[..chunk.len()])?;
                }
                Kind::File(file) => file.write_at(offset_bytes, chunk)?,
                Kind::Nbd(nbd) => write_to_export(nbd, offset_bytes, chunk)?,
                Kind::Modelled(modelled) => {
                    let len_bytes = chunk.len() as u64;
                    match modelled.perform(token(), Job::Write { offset_bytes, len_bytes }) {
                        Transfer::None(result) => result?,
                        _ => modelled.write_at(offset_bytes, chunk)?,
                    }
                }
            }
            offset_bytes += chunk.len() as u64;
        }
        Ok(())
    }

    /// Drops a range, which reads as anything then.
    ///
    /// # Errors
    /// The device's errno; [`Errno::OPNOTSUPP`] if it cannot do that.
    pub fn discard(&mut self, offset_bytes: u64, len_bytes: u64) -> Result<(), Errno> {
        check_range(&self.device, offset_bytes, len_bytes)?;
        match self.device.kind() {
            Kind::File(file) => file.discard(offset_bytes, len_bytes),
            Kind::Nbd(_) => Err(Errno::OPNOTSUPP),
            Kind::Modelled(modelled) => {
                match modelled.perform(token(), Job::Discard { offset_bytes, len_bytes }) {
                    Transfer::None(result) => result,
                    Transfer::Read { .. } | Transfer::Write { .. } => Ok(()),
                }
            }
        }
    }

    /// Performs reads at the same time, and `beside` on this thread before that takes part; it counts for `own` of those that read.
    fn read_together(&mut self, reads: &mut [ReadAt], own: usize, beside: &mut dyn FnMut()) {
        let (device, shadows) = (&self.device, &self.shadows);
        let perform = |request: &mut ReadAt| {
            request.result = read(device, request.offset_bytes, &mut request.bytes);
            cast_shadows(shadows, request.offset_bytes, &mut request.bytes);
        };
        let workers = reads.len().min(GROUP_READS_MAX);
        let queue: Vec<std::sync::Mutex<&mut ReadAt>> = reads.iter_mut().map(std::sync::Mutex::new).collect();
        let next = AtomicUsize::new(0);
        let work = || {
            while let Some(slot) = queue.get(next.fetch_add(1, Ordering::Relaxed)) {
                perform(&mut slot.lock().unwrap_or_else(std::sync::PoisonError::into_inner));
            }
        };
        std::thread::scope(|scope| {
            // Without another thread this one does more. One that finds no memory for its signal stack ends the
            // process, so there is none where memory may come to an end.
            let others = if is_memory_limited() { 0 } else { workers.saturating_sub(own) };
            for _ in 0..others {
                let _ = std::thread::Builder::new().spawn_scoped(scope, work);
            }
            beside();
            work();
        });
    }

    /// Makes earlier writes durable.
    ///
    /// # Errors
    /// The device's errno.
    pub fn flush(&mut self) -> Result<(), Errno> {
        match self.device.kind() {
            Kind::File(file) => file.flush(),
            Kind::Nbd(nbd) => nbd.perform(Operation::FLUSH, Span::default()),
            Kind::Modelled(modelled) => match modelled.perform(token(), Job::Flush) {
                Transfer::None(result) => result,
                Transfer::Read { .. } | Transfer::Write { .. } => Ok(()),
            },
        }
    }
}

/// Puts shadows over what was read at an offset.
fn cast_shadows(shadows: &[(u64, Vec<u8>)], offset_bytes: u64, bytes: &mut [u8]) {
    let end = offset_bytes + bytes.len() as u64;
    for (at, shadow) in shadows {
        let (from, to) = ((*at).max(offset_bytes), (at + shadow.len() as u64).min(end));
        if from < to {
            let place = |byte: u64, first: u64| usize::try_from(byte - first).expect("inside what was read");
            bytes[place(from, offset_bytes)..place(to, offset_bytes)]
                .copy_from_slice(&shadow[place(from, *at)..place(to, *at)]);
        }
    }
}

/// Whether the process has a limit of address space (`ulimit -v`).
fn is_memory_limited() -> bool {
    rustix::process::getrlimit(rustix::process::Resource::As).current.is_some()
}

fn token() -> u64 {
    TOKENS.fetch_add(1, Ordering::Relaxed)
}

fn check_range(device: &Device, offset_bytes: u64, len_bytes: u64) -> Result<(), Errno> {
    match offset_bytes.checked_add(len_bytes) {
        Some(end) if end <= device.size_bytes() => Ok(()),
        _ => Err(Errno::INVAL),
    }
}

fn read(device: &Device, offset_bytes: u64, bytes: &mut [u8]) -> Result<(), Errno> {
    check_range(device, offset_bytes, bytes.len() as u64)?;
    let sector_bytes = u64::from(device.sector_bytes());
    let mut offset_bytes = offset_bytes;
    for chunk in bytes.chunks_mut(TRANSFER_BYTES_MAX) {
        let end = offset_bytes + chunk.len() as u64;
        match device.kind() {
            Kind::File(file) if file.is_copied() => file.read_at(offset_bytes, chunk)?,
            kind => {
                // Reads the whole sectors around the range, into memory aligned as they are.
                let start = offset_bytes - offset_bytes % sector_bytes;
                let len_bytes = end.next_multiple_of(sector_bytes) - start;
                let mut bounce =
                    AlignedBytes::new(usize::try_from(len_bytes).expect("a chunk and its edges"));
                match kind {
                    Kind::File(file) => file.read_at(start, &mut bounce)?,
                    Kind::Nbd(nbd) => read_from_export(nbd, start, &mut bounce)?,
                    Kind::Modelled(modelled) => {
                        match modelled.perform(token(), Job::Read { offset_bytes: start, len_bytes }) {
                            Transfer::None(result) => result?,
                            _ => modelled.read_at(start, &mut bounce)?,
                        }
                    }
                }
                let skip = usize::try_from(offset_bytes - start).expect("less than a sector");
                chunk.copy_from_slice(&bounce[skip..skip + chunk.len()]);
            }
        }
        offset_bytes = end;
    }
    Ok(())
}

#[expect(unsafe_code, reason = "the device's threads fill the caller's memory")]
fn read_from_export(nbd: &NbdDevice, offset_bytes: u64, into: &mut [u8]) -> Result<(), Errno> {
    let vector = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() };
    // SAFETY: the memory is borrowed, for this call alone, until the operation is answered.
    let span = unsafe { Span::new(&[vector]) };
    nbd.perform(Operation { kind: NbdKind::Read, offset_bytes, len_bytes: into.len() as u64 }, span)
}

#[expect(unsafe_code, reason = "the device's threads read the caller's memory")]
fn write_to_export(nbd: &NbdDevice, offset_bytes: u64, from: &[u8]) -> Result<(), Errno> {
    let vector = libc::iovec { iov_base: from.as_ptr().cast_mut().cast(), iov_len: from.len() };
    // SAFETY: the memory is borrowed until the operation is answered, and a write only reads it.
    let span = unsafe { Span::new(&[vector]) };
    nbd.perform(Operation { kind: NbdKind::Write, offset_bytes, len_bytes: from.len() as u64 }, span)
}

impl Image for BlockingDevice {
    fn size_bytes(&self) -> u64 {
        self.device.size_bytes()
    }

    fn read_group(&mut self, reads: &mut [ReadAt]) {
        self.read_together(reads, 1, &mut || ());
    }

    fn read_group_beside(&mut self, reads: &mut [ReadAt], beside: &mut dyn FnMut()) {
        self.read_together(reads, 0, beside);
    }

    fn write(&mut self, offset_bytes: u64, bytes: &[u8]) -> Result<(), Errno> {
        self.write_at(offset_bytes, bytes)
    }

    fn flush(&mut self) -> Result<(), Errno> {
        BlockingDevice::flush(self)
    }

    fn flush_note(&self) -> Option<FlushNote> {
        self.flush_note
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::devices::{Access, DeviceError, open, parse};

    fn round_trip(spec: &str) {
        let device = open(&parse(spec).unwrap(), Access::Exclusive).unwrap();
        assert_eq!(device.size_bytes(), 1 << 20);
        let mut disk = BlockingDevice::new(&device);
        let pattern: Vec<u8> = (0..8192u32).map(|i| (i % 251) as u8).collect();
        disk.write_at(4096, &pattern).unwrap();
        disk.flush().unwrap();
        let mut bytes = vec![0; 1000];
        disk.read_at(4096 + 777, &mut bytes).unwrap();
        assert_eq!(bytes, pattern[777..1777]);
        let mut reads: Vec<ReadAt> = (0..20u64)
            .map(|i| ReadAt { offset_bytes: i * 4096, bytes: vec![9; 4096], result: Err(Errno::IO) })
            .collect();
        let mut besides = 0;
        disk.read_group_beside(&mut reads, &mut || besides += 1);
        disk.read_group_beside(&mut [], &mut || besides += 1);
        assert_eq!(besides, 2);
        assert!(reads.iter().all(|read| read.result.is_ok()));
        assert_eq!([&reads[1].bytes[..], &reads[2].bytes[..]].concat(), pattern);
        assert_eq!(reads[3].bytes, vec![0; 4096]);
        assert_eq!(disk.read_at((1 << 20) - 10, &mut [0; 11]), Err(Errno::INVAL));
        assert_eq!(disk.read_at(u64::MAX, &mut [0; 11]), Err(Errno::INVAL));
        assert_eq!(disk.write_at(100, &[0; 512]), Err(Errno::INVAL));
    }

    #[test]
    fn files_memory_and_models_keep_what_is_written() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(1 << 20).unwrap();
        round_trip(&file.path().display().to_string());
        round_trip("mem:1M");
        round_trip("model:ssd?size=1M&speed=1000");
    }

    #[test]
    fn shadows_are_read_until_they_are_written_over() {
        let device = open(&parse("mem:1M").unwrap(), Access::Exclusive).unwrap();
        let shadows = vec![(4096, vec![1; 4096]), (16384, vec![2; 4096])];
        let mut disk = BlockingDevice::new(&device).with_shadows(shadows);
        let mut bytes = [9; 10];
        disk.read_at(4091, &mut bytes).unwrap();
        assert_eq!(bytes, [0, 0, 0, 0, 0, 1, 1, 1, 1, 1]);
        disk.write_at(0, &[3; 8192]).unwrap();
        assert_eq!(Image::read(&mut disk, 4096, 4096).unwrap(), vec![3; 4096]);
        assert_eq!(Image::read(&mut disk, 12288, 8192).unwrap()[4096..], vec![2; 4096]);
        let mut below = BlockingDevice::new(&device);
        assert_eq!(Image::read(&mut below, 16384, 4096).unwrap(), vec![0; 4096], "the device has none");
    }

    #[test]
    fn a_device_in_use_is_refused() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(1 << 20).unwrap();
        let spec = parse(&file.path().display().to_string()).unwrap();
        let first = open(&spec, Access::Exclusive).unwrap();
        assert!(matches!(open(&spec, Access::Exclusive), Err(DeviceError::Locked { .. })));
        assert!(matches!(open(&spec, Access::ReadOnlyExclusive), Err(DeviceError::Locked { .. })));
        let other = open(&spec, Access::ReadOnly).unwrap();
        assert!(other.same_as(&first));
        assert_eq!(other.identity(), first.identity());
        drop(first);
        rustix::fs::flock(file.as_file(), rustix::fs::FlockOperation::LockShared).unwrap();
        assert!(matches!(open(&spec, Access::Exclusive), Err(DeviceError::LookedAt { .. })));
        rustix::fs::flock(file.as_file(), rustix::fs::FlockOperation::Unlock).unwrap();
        assert!(open(&spec, Access::Exclusive).is_ok());
    }

    #[test]
    fn what_is_no_device_is_refused() {
        let open_text = |text: &str| open(&parse(text).unwrap(), Access::Exclusive).map(|_| ());
        assert!(matches!(open_text("/nowhere/at/all"), Err(DeviceError::Missing { .. })));
        assert!(matches!(open_text("/"), Err(DeviceError::NotADevice { .. })));
        assert!(matches!(open_text("/dev/null"), Err(DeviceError::NotADevice { .. })));
        let empty = tempfile::NamedTempFile::new().unwrap();
        assert!(matches!(open_text(&empty.path().display().to_string()), Err(DeviceError::Empty { .. })));
        let store = format!("model:hdd?store={}&size=1G", empty.path().display());
        empty.as_file().set_len(4096).unwrap();
        assert!(matches!(open_text(&store), Err(DeviceError::StoreTooSmall { .. })));
    }
}
