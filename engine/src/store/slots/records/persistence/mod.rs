//! Persistence: the ways to make changes of slots durable.
//!
//! Each way is told of changes and answers what to write next; it does no I/O itself.
//!
//! | folder | a newly dirty slot is durable | published as |
//! | --- | --- | --- |
//! | `sync_sector/` | when its page is written, before the write is acknowledged | flashcache, EnhanceIO |
//! | `commit/` | by its mapping, which a transaction committed before | dm-cache |
//! | `bit_tree/` | by a bit of a tree, which a transaction committed before | MapperX |
//!
//! `areas/` is for all of them: the pages of checksums, and the data that waits for them.
//!
//! All of them are *safe* if they rely on flushed writes only. The published systems rely on devices that lose nothing.
//!
//! Comments cite the histories H1 to H19 of `docs/rules.md`: crashes that the records were designed against.

pub mod areas;
pub mod bit_tree;
pub mod commit;
pub mod sync_sector;
