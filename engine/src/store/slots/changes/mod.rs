//! Changes: data that enters slots, writes to slots and around them, and pieces that leave.
//!
//! | file | holds |
//! | --- | --- |
//! | `asking.rs` | which pieces of a request may enter |
//! | `plan.rs` | the way of each part of a write |
//! | `places.rs` | slots are taken and given up for it |
//! | `writes.rs` | writes into slots and around them |
//! | `fills.rs` | data that was read enters slots |
//! | `promotions.rs` | whole pieces are copied into slots |
//! | `restores.rs` | lost blocks that are given up become what the origin has |
//! | `doubt.rs` | clean slots that the origin may not agree with leave |

pub(super) mod asking;
mod doubt;
mod fills;
mod places;
mod plan;
pub(super) mod promotions;
mod restores;
pub(super) mod writes;
