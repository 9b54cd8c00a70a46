//! The wire between a disk and its host: one transfer at a time, in the order of their asking.

/// Nanoseconds that `bytes` take at `mb_per_s` millions of bytes per second.
pub(crate) fn transfer_ns(bytes: u64, mb_per_s: u64) -> u64 {
    bytes.saturating_mul(1000) / mb_per_s
}

/// A wire that is free from some time on.
#[derive(Debug)]
pub(crate) struct Link {
    mb_per_s: u64,
    free_ns: u64,
}

impl Link {
    pub(crate) fn new(mb_per_s: u64) -> Link {
        Link { mb_per_s, free_ns: 0 }
    }

    /// Sends `bytes` as soon after `now_ns` as the wire is free, which `overhead_ns` keep busy too.
    /// Returns when the last byte is through.
    pub(crate) fn carry(&mut self, now_ns: u64, overhead_ns: u64, bytes: u64) -> u64 {
        self.free_ns = self.free_ns.max(now_ns) + overhead_ns + transfer_ns(bytes, self.mb_per_s);
        self.free_ns
    }
}

#[cfg(test)]
mod tests {
    use super::Link;

    #[test]
    fn transfers_follow_each_other() {
        let mut link = Link::new(500);
        assert_eq!(link.carry(1000, 100, 500), 2100);
        assert_eq!(link.carry(1000, 0, 1000), 4100);
        assert_eq!(link.carry(9000, 0, 500), 10_000);
    }
}
