//! Reading ahead: sequential reads find the next pages in memory.
//!
//! A read that begins where one of the last few ended continues a stream, and the pages behind it are fetched, a
//! window of them.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::Range;

/// Streams that are told apart. By taste.
const STREAMS: usize = 8;

/// A row of reads, each of which began where the one before ended.
#[derive(Debug)]
struct Stream {
    end_byte: u64,
    /// Pages below this one were asked for ahead.
    ahead_page: u64,
    used: u64,
}

/// A page that was fetched before a read asked for it.
#[derive(Debug, Default)]
struct Page {
    is_here: bool,
    /// Transfers that wait for it.
    waiting: Vec<usize>,
}

/// The streams and their pages.
#[derive(Debug)]
pub(super) struct ReadAhead {
    page_bytes: u64,
    window_pages: u64,
    end_page: u64,
    streams: Vec<Stream>,
    pages: BTreeMap<u64, Page>,
    uses: u64,
}

/// State of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ahead {
    /// In memory.
    Here,
    /// On its way.
    Coming,
    /// No read asked for it.
    No,
}

impl ReadAhead {
    /// Keeps up to `window_bytes` ahead of each stream, up to the end of the disk; none for 0.
    pub(super) fn new(window_bytes: u64, page_bytes: u64, disk_bytes: u64) -> ReadAhead {
        ReadAhead {
            page_bytes,
            window_pages: window_bytes / page_bytes,
            end_page: disk_bytes.div_ceil(page_bytes),
            streams: Vec::new(),
            pages: BTreeMap::new(),
            uses: 0,
        }
    }

    pub(super) fn look(&self, page: u64) -> Ahead {
        match self.pages.get(&page) {
            Some(page) if page.is_here => Ahead::Here,
            Some(_) => Ahead::Coming,
            None => Ahead::No,
        }
    }

    /// `transfer` waits for a page that is coming.
    pub(super) fn wait(&mut self, page: u64, transfer: usize) {
        if let Some(page) = self.pages.get_mut(&page) {
            page.waiting.push(transfer);
        }
    }

    /// A read came. Returns the pages to fetch for those that will follow.
    pub(super) fn note(&mut self, start_byte: u64, end_byte: u64) -> Vec<u64> {
        if self.window_pages == 0 {
            return Vec::new();
        }
        self.uses += 1;
        let next_page = end_byte.div_ceil(self.page_bytes);
        let Some(index) = self.streams.iter().position(|stream| stream.end_byte == start_byte) else {
            self.begin(end_byte, next_page);
            return Vec::new();
        };
        let limit = self.end_page.min(end_byte / self.page_bytes + self.window_pages);
        let stream = &mut self.streams[index];
        let fetch = next_page.max(stream.ahead_page)..limit;
        *stream = Stream { end_byte, ahead_page: stream.ahead_page.max(limit), used: self.uses };
        // Pages wholly behind the reader are not needed any more.
        self.drop_here(start_byte / self.page_bytes..end_byte / self.page_bytes);
        if self.pages.len() as u64 > 2 * STREAMS as u64 * self.window_pages {
            // Pages that came after their stream was given up.
            self.drop_here(0..self.end_page);
        }
        let mut new = Vec::new();
        for page in fetch {
            self.pages.entry(page).or_insert_with(|| {
                new.push(page);
                Page::default()
            });
        }
        new
    }

    fn begin(&mut self, end_byte: u64, next_page: u64) {
        let stream = Stream { end_byte, ahead_page: next_page, used: self.uses };
        if self.streams.len() < STREAMS {
            self.streams.push(stream);
            return;
        }
        let mut oldest = 0;
        for index in 1..STREAMS {
            if self.streams[index].used < self.streams[oldest].used {
                oldest = index;
            }
        }
        let old = core::mem::replace(&mut self.streams[oldest], stream);
        self.drop_here(old.end_byte / self.page_bytes..old.ahead_page);
    }

    fn drop_here(&mut self, pages: Range<u64>) {
        let gone: Vec<u64> =
            self.pages.range(pages).filter(|(_, page)| page.is_here).map(|(&number, _)| number).collect();
        for page in gone {
            self.pages.remove(&page);
        }
    }

    /// A page came. Returns the transfers that wait for it.
    pub(super) fn arrived(&mut self, page: u64) -> Vec<usize> {
        let Some(page) = self.pages.get_mut(&page) else { return Vec::new() };
        page.is_here = true;
        core::mem::take(&mut page.waiting)
    }

    /// The host wrote or discarded the range.
    pub(super) fn forget(&mut self, start_byte: u64, end_byte: u64) {
        if !self.pages.is_empty() {
            self.drop_here(start_byte / self.page_bytes..end_byte.div_ceil(self.page_bytes));
        }
    }
}
