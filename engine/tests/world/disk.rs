//! A disk with a volatile write cache, and its image for recovery.

use engine::effect::Errno;
use engine::image::{Image, ReadAt};

/// A small generator with a fixed sequence for a seed.
#[derive(Clone)]
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number below `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        (self.next() >> 16) % end
    }

    /// True once in `n` times.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

/// Bytes that survive a power cut, and writes that may not.
pub struct Disk {
    durable: Vec<u8>,
    volatile: Vec<(usize, Vec<u8>)>,
    current: Vec<u8>,
    pub fail_writes: Option<Errno>,
    pub fail_reads: Option<Errno>,
    pub fail_flushes: Option<Errno>,
    pub flushes: u64,
}

impl Disk {
    pub fn new(bytes: usize) -> Disk {
        Disk {
            durable: vec![0; bytes],
            volatile: Vec::new(),
            current: vec![0; bytes],
            fail_writes: None,
            fail_reads: None,
            fail_flushes: None,
            flushes: 0,
        }
    }

    pub fn bytes(&self) -> &[u8] {
        &self.current
    }

    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.current
    }

    pub fn write_at(&mut self, offset: usize, bytes: &[u8]) {
        self.current[offset..offset + bytes.len()].copy_from_slice(bytes);
        self.volatile.push((offset, bytes.to_vec()));
    }

    pub fn flush_all(&mut self) {
        self.flushes += 1;
        for (offset, bytes) in self.volatile.drain(..) {
            self.durable[offset..offset + bytes.len()].copy_from_slice(&bytes);
        }
    }

    /// Any subset of the sectors of the unflushed writes survives, in any order.
    pub fn cut_power(&mut self, random: &mut Random) {
        let mut writes = std::mem::take(&mut self.volatile);
        for at in (1..writes.len()).rev() {
            writes.swap(at, random.below(at as u64 + 1) as usize);
        }
        let luck = 1 + random.below(4);
        for (offset, bytes) in writes {
            let is_torn = random.one_in(3);
            if !is_torn && random.one_in(luck) {
                continue;
            }
            for (step, sector) in bytes.chunks(512).enumerate() {
                if is_torn && random.one_in(2) {
                    continue;
                }
                let at = offset + step * 512;
                self.durable[at..at + sector.len()].copy_from_slice(sector);
            }
        }
        self.current.copy_from_slice(&self.durable);
    }
}

impl Image for Disk {
    fn size_bytes(&self) -> u64 {
        self.current.len() as u64
    }

    fn read_group(&mut self, reads: &mut [ReadAt]) {
        for read in reads {
            let at = read.offset_bytes as usize;
            let len = read.bytes.len();
            match self.current.get(at..at + len) {
                Some(bytes) => read.bytes.copy_from_slice(bytes),
                None => read.result = Err(Errno::INVAL),
            }
        }
    }

    fn write(&mut self, offset_bytes: u64, bytes: &[u8]) -> Result<(), Errno> {
        self.write_at(offset_bytes as usize, bytes);
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Errno> {
        self.flush_all();
        Ok(())
    }
}
