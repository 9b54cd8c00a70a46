//! Hash tables that are dense at every size: what the index is made of.
//!
//! A table is a linear hash: it grows by splitting one bucket at a time, so neither its time
//! nor its memory ever jumps. A bucket's entries lie in a *slot* that is just as large as they
//! need; all slots of one size lie packed on pages of their own. When a slot goes away, the
//! last slot of its size moves into the gap. So a table of any size wastes the odd ends of
//! its pages, and little else, and what one table gives up the other can use.
//!
//! ```text
//! directory            pages of slots
//! bucket 0 ─────────►  │ slot of 18 │ slot of 18 │ slot of 18 │ free ...
//! bucket 1 ───┐
//! bucket 2    └─────►  │ slot of 22   │ slot of 22   │ free ...
//! ```
//!
//! | file | holds |
//! | --- | --- |
//! | `page.rs` | the pages that all tables share |
//! | `slot_stack.rs` | slots of one size, packed |
//! | `directory.rs` | from a hash to a bucket, from a bucket to its slot |
//! | `linear_hash.rs` | the table |
//!
//! The policies stand on fixed tables, which take all their memory when they are made:
//!
//! | file | holds |
//! | --- | --- |
//! | `bits.rs` | one bit for each entry |
//! | `key_index.rs` | from a key to an entry of an array that has the keys |
//! | `key_map.rs` | from a key to a number |
//! | `frame_lists.rs` | linked lists of entries |
//! | `hit_levels.rs` | 16 lists by the logarithm of hits (dm-cache's mq) |
//! | `level_lists.rs` | 64 lists of even lengths, with marks of age (dm-cache's smq) |

pub mod bits;
mod directory;
pub mod frame_lists;
pub mod hit_levels;
pub mod key_index;
pub mod key_map;
pub mod level_lists;
pub mod linear_hash;
pub mod page;
mod slot_stack;
