//! Slots: the cache device is divided into places of one size, each of which holds one piece of a volume.
//!
//! | file | holds |
//! | --- | --- |
//! | `set_map.rs` | which set a piece belongs to |
//! | `table.rs` | what each slot holds, and what is going on with it |
//! | `directory.rs` | from a piece to its slot |
//! | `recovery_plan.rs` | from the pages on a device to a table |
//!
//! These are data only: requests, and what reaches the devices, are the business of others.

pub mod directory;
pub mod recovery_plan;
pub mod set_map;
pub mod table;
