//! Persistence: what of the slots is durable, and when.
//!
//! Each is told what happens and says what is to be written next; it does no I/O itself.
//!
//! | file | a newly dirty slot is durable | published as |
//! | --- | --- | --- |
//! | `sync_sector.rs` | when its page is written, before the write is acknowledged | flashcache, EnhanceIO |
//! | `commit.rs` | by its mapping, which a transaction committed before | dm-cache |
//! | `bit_tree.rs` | by a bit of a tree, which a transaction committed before | MapperX |
//!
//! In all of them *safe* means: what is relied on was flushed. The published systems rely on devices that lose
//! nothing.
//!
//! Comments cite the histories H1 to H19 of `docs/rules.md`: crashes that the records were designed against.

pub mod bit_tree;
pub mod commit;
pub mod sync_sector;
