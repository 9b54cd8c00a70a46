//! Slots: the cache device is divided into places of one size, each of which holds one piece of a volume.
//!
//! | file | holds |
//! | --- | --- |
//! | `set_map.rs` | which set a piece belongs to |
//! | `table.rs` | what each slot holds, and what is going on with it |
//! | `directory.rs` | from a piece to its slot |
//!
//! These are data only: requests, and what reaches the devices, are the business of others.

pub mod directory;
pub mod set_map;
pub mod table;
