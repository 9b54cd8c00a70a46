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
//! # Histories
//!
//! Crashes that the records were designed against; comments and planted bugs cite them. A power cut takes any of the writes
//! that no completed flush covers. K and L are pieces, s is a slot.
//!
//! | # | what happens | why nothing is lost |
//! | --- | --- | --- |
//! | H1 | K is written to a fresh slot; a crash before its record | it was not answered, or not flushed: the origin is read |
//! | H2 | the record of s survives a power cut, the data in s does not | a flush lies between data and record |
//! | H3 | a dirty slot is rewritten in place, power cut | old, new or torn, as on any disk; the record stays |
//! | H4 | K goes home, s is given to L, the record of K comes back | S3: reused when the removal of the record is flushed |
//! | H5 | s is clean with K, K is written around it, the record of s comes back | the origin is written when the removal is flushed |
//! | H6 | K is rewritten while it goes home | writers wait; S5 keeps the slot dirty |
//! | H7 | with mappings alone every slot is dirty after a crash: s with an older K than the origin | K changes on the origin only when s was forgotten durably (H5) |
//! | H8 | a crash between the two writes of a write-through | it was not answered; one of both decides, at each later read the same |
//! | H9 | K is written to a clean slot below an unmarked leaf | S7: the mark is durable before |
//! | H10 | the same, while a transaction takes the mark away | S7: waits for that one, and for the next, which marks again |
//! | H11 | leaves are joined or split, a crash at any step | tree and mappings are of one transaction: either is found whole |
//! | H12 | a page of a transaction tears | it has another place, with the version that counts |
//! | H13 | the record of a transaction tears, or gets lost | the record before it, whose pages nobody wrote over |
//! | H14 | clean stop, start, crash at once | that the cache is in use is durable before the first request |
//! | H15 | a fill while its blocks are written around the cache | what was read is stamped; writers wait for a slot that is filled |
//! | H16 | FLUSH is answered, power cut | it covers pages and data that were written before |
//! | H17 | the origin loses what went home, s is forgotten | clean only when the origin was flushed |
//! | H18 | the process dies, devices keep everything | answered: data and record are written, and a start flushes what it found |
//! | H19 | recovery is cut, again and again | it writes what it would write again |

pub mod bit_tree;
pub mod commit;
pub mod sync_sector;
