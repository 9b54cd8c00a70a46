//! The pages that all tables share: memory that grows by one page at a time.
//!
//! Words are 32 bits. An [`Address`] names a word of a page. Pages that a table gives back are
//! kept for the next one that needs a page, so the bytes allocated are those of the peak.

use crate::number::{index, index_wide, to_u32, wide};
use alloc::boxed::Box;
use alloc::vec::Vec;

/// Words in a page. By measurement: smaller pages lose more to slots that do not fit at their
/// ends, larger ones lose more to the last page of each slot size, which is half empty.
pub const PAGE_WORDS: usize = 1024;
/// Bytes in a page.
pub const PAGE_BYTES: u64 = wide(PAGE_WORDS * size_of::<u32>());
/// Low bits of an address that name the word within its page.
const WORD_BITS: u32 = PAGE_WORDS.trailing_zeros();
/// One more than the largest page number; the last one would reach [`Address::NONE`].
const PAGES_MAX: usize = (1 << (u32::BITS - WORD_BITS)) - 1;

/// The content of a page.
pub type PageWords = [u32; PAGE_WORDS];

const _: () = assert!(PAGE_WORDS.is_power_of_two(), "an address is a page number and a word number");

/// A word of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address(pub u32);

impl Address {
    /// No word at all.
    pub const NONE: Address = Address(u32::MAX);

    /// The word `word` of page `page`.
    #[inline]
    #[must_use]
    pub fn new(page: PageNumber, word: u32) -> Address {
        Address((page.0 << WORD_BITS) | word)
    }

    #[inline]
    fn page(self) -> usize {
        index(self.0 >> WORD_BITS)
    }

    #[inline]
    fn word(self) -> usize {
        index(self.0) & (PAGE_WORDS - 1)
    }
}

/// A page's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageNumber(u32);

impl PageNumber {
    /// No page at all.
    pub const NONE: PageNumber = PageNumber(u32::MAX);
}

/// All pages, those in use and those that wait for the next use.
#[derive(Debug)]
pub struct Pages {
    pages: Vec<Box<PageWords>>,
    /// Memory for more pages.
    spare: Vec<Box<PageWords>>,
    /// For a page in use whatever its user links it to; for a free one the next free one.
    links: Vec<PageNumber>,
    first_free: PageNumber,
    free: usize,
}

impl Pages {
    /// No pages yet.
    #[inline]
    #[must_use]
    pub fn new() -> Pages {
        Pages {
            pages: Vec::new(),
            spare: Vec::new(),
            links: Vec::new(),
            first_free: PageNumber::NONE,
            free: 0,
        }
    }

    /// A page with undefined content, linked to `link`.
    ///
    /// # Panics
    /// If there are more pages than addresses can name (16 GiB).
    pub fn take(&mut self, link: PageNumber) -> PageNumber {
        if self.first_free != PageNumber::NONE {
            let page = self.first_free;
            self.first_free = self.links[index(page.0)];
            self.links[index(page.0)] = link;
            self.free -= 1;
            return page;
        }
        assert!(self.pages.len() < PAGES_MAX, "all pages have an address");
        if self.pages.len() == self.pages.capacity() {
            let more = Self::list_step(self.pages.len());
            self.pages.reserve_exact(more);
            self.links.reserve_exact(more);
        }
        let words = self.spare.pop().unwrap_or_else(|| Box::new([0; PAGE_WORDS]));
        self.pages.push(words);
        self.links.push(link);
        PageNumber(to_u32(self.pages.len() - 1))
    }

    /// Takes memory for a page to come, instead of the heap's.
    pub fn take_spare(&mut self, words: Box<PageWords>) {
        self.spare.push(words);
    }

    /// Gives up what memory there is for pages to come.
    pub fn drop_spare(&mut self) {
        self.spare = Vec::new();
    }

    /// Gives a page back.
    pub fn give_back(&mut self, page: PageNumber) {
        self.links[index(page.0)] = self.first_free;
        self.first_free = page;
        self.free += 1;
        assert!(self.free <= self.pages.len(), "a page is given back once");
    }

    /// The link of a page in use.
    #[must_use]
    pub fn link(&self, page: PageNumber) -> PageNumber {
        self.links[index(page.0)]
    }

    /// The words from `address` to the end of its page.
    #[inline]
    #[must_use]
    pub fn words(&self, address: Address) -> &[u32] {
        &self.pages[address.page()][address.word()..]
    }

    /// The words from `address` to the end of its page, to be written.
    #[inline]
    pub fn words_mut(&mut self, address: Address) -> &mut [u32] {
        &mut self.pages[address.page()][address.word()..]
    }

    /// Copies `words` words; neither range leaves its page.
    pub fn copy(&mut self, from: Address, to: Address, words: usize) {
        let (source, target) = (from.word(), to.word());
        if from.page() == to.page() {
            self.pages[from.page()].copy_within(source..source + words, target);
            return;
        }
        let [from, to] =
            self.pages.get_disjoint_mut([from.page(), to.page()]).expect("two different pages that exist");
        to[target..target + words].copy_from_slice(&from[source..source + words]);
    }

    /// Bytes on the heap.
    #[must_use]
    pub fn allocated_bytes(&self) -> u64 {
        let lists = (self.pages.capacity() + self.spare.capacity()) * size_of::<Box<PageWords>>()
            + self.links.capacity() * size_of::<PageNumber>();
        wide(self.pages.len() + self.spare.len()) * PAGE_BYTES + wide(lists)
    }

    /// Of the bytes on the heap, those that wait for the next use.
    #[must_use]
    pub fn free_bytes(&self) -> u64 {
        wide(self.free) * PAGE_BYTES
    }

    /// An upper bound of [`Pages::allocated_bytes`] after `more` more pages than are in use now, and without spare ones.
    #[must_use]
    pub fn allocated_bytes_after(&self, more: u64) -> u64 {
        let pages = wide(self.pages.len() - self.free) + more;
        let per_page = wide(size_of::<Box<PageWords>>() + size_of::<PageNumber>());
        let lists = (pages + wide(Self::list_step(index_wide(pages)))).max(wide(self.pages.capacity()));
        pages.max(wide(self.pages.len())) * PAGE_BYTES + lists * per_page
    }

    /// How many pages the lists of pages are lengthened by: a sixteenth, not a doubling, so that
    /// the memory grows in small steps.
    fn list_step(pages: usize) -> usize {
        pages / 16 + 16
    }

    /// Pages in use.
    #[cfg(test)]
    pub fn in_use(&self) -> usize {
        self.pages.len() - self.free
    }
}

impl Default for Pages {
    fn default() -> Pages {
        Pages::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_given_back_is_the_next_one_taken() {
        let mut pages = Pages::new();
        let first = pages.take(PageNumber::NONE);
        let second = pages.take(first);
        assert_eq!(pages.link(second), first);
        pages.give_back(first);
        let bytes = pages.allocated_bytes();
        assert_eq!(pages.free_bytes(), PAGE_BYTES);
        assert_eq!(pages.take(second), first);
        assert_eq!(pages.allocated_bytes(), bytes);
        assert_eq!(pages.free_bytes(), 0);
    }

    #[test]
    fn spare_memory_is_used_first_and_given_up() {
        let mut pages = Pages::new();
        for _ in 0..2 {
            pages.take_spare(Box::new([7; PAGE_WORDS]));
        }
        let bytes = pages.allocated_bytes();
        let first = pages.take(PageNumber::NONE);
        assert_eq!(pages.words(Address::new(first, 0))[0], 7, "a page has undefined content");
        assert!(pages.allocated_bytes() >= bytes, "nothing left the heap");
        pages.drop_spare();
        assert!(pages.allocated_bytes() <= pages.allocated_bytes_after(0));
        assert_eq!((pages.in_use(), pages.free_bytes()), (1, 0));
    }

    #[test]
    fn words_are_copied_within_a_page_and_between_two() {
        let mut pages = Pages::new();
        let (one, two) = (pages.take(PageNumber::NONE), pages.take(PageNumber::NONE));
        pages.words_mut(Address::new(one, 10))[..3].copy_from_slice(&[1, 2, 3]);
        pages.copy(Address::new(one, 10), Address::new(one, 11), 3);
        assert_eq!(pages.words(Address::new(one, 10))[..4], [1, 1, 2, 3]);
        let end = Address::new(two, PAGE_WORDS as u32 - 4);
        pages.copy(Address::new(one, 10), end, 4);
        assert_eq!(pages.words(end), [1, 1, 2, 3]);
    }

    #[test]
    fn the_bound_on_growth_holds() {
        let mut pages = Pages::new();
        for _ in 0..200 {
            let bounds: Vec<u64> = (0..5).map(|more| pages.allocated_bytes_after(more)).collect();
            for bound in bounds {
                assert!(pages.allocated_bytes() <= bound);
                pages.take(PageNumber::NONE);
            }
        }
    }
}
