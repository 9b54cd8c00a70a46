//! From a hash to a bucket, from a bucket to its first slot.
//!
//! Linear hashing: with n buckets and 2^k the smallest power of two that is not below n, a hash
//! belongs to the bucket of its k low bits, or, where that one does not exist yet, of its k - 1
//! low bits. A new bucket takes its entries from exactly one other.
//!
//! Source: W. Litwin, "Linear hashing: a new tool for file and table addressing", VLDB 1980.

use crate::number::{index, low_u32, to_u32, wide};
use crate::table::page::{Address, PAGE_WORDS, PageNumber, Pages};
use alloc::vec::Vec;

/// Buckets at the least: the low [`SURE_BITS`] bits of a hash and of its bucket are the same.
pub const BUCKETS_MIN: u32 = 1 << SURE_BITS;
/// Low bits of a hash that its bucket's number gives back.
pub const SURE_BITS: u32 = 7;
/// Limit of buckets: a table that has them all goes on with longer buckets.
pub const BUCKETS_MAX: u32 = 1 << 25;

/// The buckets of one table.
#[derive(Debug)]
pub struct Directory {
    pages: Vec<PageNumber>,
    buckets: u32,
    /// The k low bits.
    mask: u32,
}

impl Directory {
    /// [`BUCKETS_MIN`] empty buckets.
    pub fn new(pages: &mut Pages) -> Directory {
        let mut directory = Directory { pages: Vec::new(), buckets: 0, mask: BUCKETS_MIN - 1 };
        for _ in 0..BUCKETS_MIN {
            directory.push_empty(pages);
        }
        directory
    }

    /// How many buckets there are.
    #[inline]
    pub fn buckets(&self) -> u32 {
        self.buckets
    }

    /// The bucket that `hash` belongs to.
    #[inline]
    pub fn bucket_of(&self, hash: u64) -> u32 {
        let bucket = low_u32(hash) & self.mask;
        if bucket < self.buckets { bucket } else { bucket & (self.mask >> 1) }
    }

    /// The first slot of `bucket`; [`Address::NONE`] if it is empty.
    #[inline]
    pub fn first(&self, pages: &Pages, bucket: u32) -> Address {
        Address(pages.words(self.address(bucket))[0])
    }

    /// Makes `slot` the first slot of `bucket`.
    #[inline]
    pub fn set_first(&mut self, pages: &mut Pages, bucket: u32, slot: Address) {
        pages.words_mut(self.address(bucket))[0] = slot.0;
    }

    /// Adds an empty bucket. Answers the bucket that the entries of the new one are in.
    pub fn grow(&mut self, pages: &mut Pages) -> u32 {
        let added = self.buckets;
        if added > self.mask {
            self.mask = self.mask * 2 + 1;
        }
        self.push_empty(pages);
        added & (self.mask >> 1)
    }

    /// Takes the last bucket away, which is empty. Answers the bucket its hashes now belong to.
    pub fn shrink(&mut self, pages: &mut Pages) -> u32 {
        assert!(self.buckets > BUCKETS_MIN, "the low bits of a hash stay sure");
        let last = self.buckets - 1;
        assert!(self.first(pages, last) == Address::NONE, "no entry is lost");
        let heir = last & (self.mask >> 1);
        self.buckets = last;
        if last <= (self.mask >> 1) + 1 {
            self.mask >>= 1;
        }
        if index(last).is_multiple_of(PAGE_WORDS) {
            let page = self.pages.pop().expect("the last bucket had a page");
            pages.give_back(page);
        }
        heir
    }

    /// Bytes on the heap besides the pages.
    pub fn allocated_bytes(&self) -> u64 {
        wide(self.pages.capacity() * size_of::<PageNumber>())
    }

    fn push_empty(&mut self, pages: &mut Pages) {
        let added = self.buckets;
        assert!(added < BUCKETS_MAX);
        if index(added).is_multiple_of(PAGE_WORDS) {
            self.pages.push(pages.take(PageNumber::NONE));
        }
        self.buckets += 1;
        self.set_first(pages, added, Address::NONE);
    }

    #[inline]
    fn address(&self, bucket: u32) -> Address {
        let bucket = index(bucket);
        Address::new(self.pages[bucket / PAGE_WORDS], to_u32(bucket % PAGE_WORDS))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_bucket_takes_its_hashes_from_one_other_and_gives_them_back() {
        let mut pages = Pages::new();
        let mut directory = Directory::new(&mut pages);
        for _ in 0..5000 {
            let before: Vec<u32> = (0..20_000u64).step_by(37).map(|hash| directory.bucket_of(hash)).collect();
            let source = directory.grow(&mut pages);
            let added = directory.buckets() - 1;
            for (hash, before) in (0..20_000u64).step_by(37).zip(&before) {
                let now = directory.bucket_of(hash);
                assert!(now == *before || (now == added && *before == source));
                assert_eq!(now % BUCKETS_MIN, hash as u32 % BUCKETS_MIN);
            }
            if added.is_multiple_of(500) {
                assert_eq!(directory.shrink(&mut pages), source);
                assert_eq!(directory.grow(&mut pages), source);
            }
        }
        while directory.buckets() > BUCKETS_MIN {
            let source = directory.shrink(&mut pages);
            assert_eq!(directory.bucket_of(u64::from(directory.buckets())), source);
        }
        assert_eq!(pages.in_use(), 1);
    }
}
