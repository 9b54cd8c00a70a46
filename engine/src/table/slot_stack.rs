//! Slots of one size, packed on pages.
//!
//! ```text
//! page   │ slot │ slot │ slot │ odd end │
//!   ▲ link
//! page   │ slot │ slot │ ◄── top
//! ```
//!
//! Only the top can be taken away; whoever wants to be rid of another slot moves the top into
//! its place first.

use crate::number::{index, to_u32};
use crate::table::page::{Address, PAGE_WORDS, PageNumber, Pages};

/// The slots of one size: a stack over a chain of pages.
#[derive(Clone, Debug)]
pub struct SlotStack {
    words: u32,
    slots_per_page: u32,
    /// The page with the top slot; the page before it is its link.
    last_page: PageNumber,
    /// Slots on that page; 0 only if the stack is empty.
    used: u32,
}

impl SlotStack {
    /// No slots of `words` words yet.
    pub fn new(words: usize) -> SlotStack {
        assert!(words > 0 && words <= PAGE_WORDS, "a slot lies on one page");
        SlotStack {
            words: to_u32(words),
            slots_per_page: to_u32(PAGE_WORDS / words),
            last_page: PageNumber::NONE,
            used: 0,
        }
    }

    /// Words in one slot.
    pub fn words(&self) -> usize {
        index(self.words)
    }

    /// Adds a slot, content undefined.
    pub fn push(&mut self, pages: &mut Pages) -> Address {
        if self.last_page == PageNumber::NONE || self.used == self.slots_per_page {
            self.last_page = pages.take(self.last_page);
            self.used = 0;
        }
        self.used += 1;
        self.top()
    }

    /// The slot that was added last of all that are there.
    pub fn top(&self) -> Address {
        assert!(self.used > 0, "the stack has a slot");
        Address::new(self.last_page, (self.used - 1) * self.words)
    }

    /// The addresses of all slots, page by page.
    pub fn addresses<'a>(&self, pages: &'a Pages) -> impl Iterator<Item = Address> + use<'a> {
        let SlotStack { words, slots_per_page, mut last_page, mut used } = *self;
        core::iter::from_fn(move || {
            if last_page == PageNumber::NONE {
                return None;
            }
            let page = (last_page, used);
            (last_page, used) = (pages.link(last_page), slots_per_page);
            Some(page)
        })
        .flat_map(move |(page, used)| (0..used).map(move |slot| Address::new(page, slot * words)))
    }

    /// Takes the top away.
    pub fn pop(&mut self, pages: &mut Pages) {
        assert!(self.used > 0, "the stack has a slot");
        self.used -= 1;
        if self.used == 0 {
            let emptied = self.last_page;
            self.last_page = pages.link(emptied);
            pages.give_back(emptied);
            if self.last_page != PageNumber::NONE {
                self.used = self.slots_per_page;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn slots_come_and_go_in_stack_order_and_leave_no_page_behind() {
        let mut pages = Pages::new();
        let mut stack = SlotStack::new(PAGE_WORDS / 3);
        let addresses: Vec<Address> = (0..10).map(|_| stack.push(&mut pages)).collect();
        assert_eq!(pages.in_use(), 4);
        let mut found: Vec<Address> = stack.addresses(&pages).collect();
        found.sort_unstable_by_key(|address| address.0);
        assert_eq!(found, addresses);
        for address in addresses.iter().rev() {
            assert_eq!(stack.top(), *address);
            stack.pop(&mut pages);
        }
        assert_eq!(pages.in_use(), 0);
        assert!(stack.addresses(&pages).next().is_none());
        assert_eq!(stack.push(&mut pages), addresses[0]);
    }

    #[test]
    fn two_stacks_pass_their_pages_on() {
        let mut pages = Pages::new();
        let (mut small, mut large) = (SlotStack::new(7), SlotStack::new(500));
        for _ in 0..1000 {
            small.push(&mut pages);
        }
        let bytes = pages.allocated_bytes();
        for _ in 0..1000 {
            small.pop(&mut pages);
        }
        for _ in 0..12 {
            large.push(&mut pages);
        }
        assert_eq!(pages.allocated_bytes(), bytes);
    }
}
