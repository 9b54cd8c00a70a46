//! Placement: where on the cache device a piece lies.
//!
//! | folder | places |
//! | --- | --- |
//! | `slots/` | fixed places of one size, in sets or not |

pub mod slots;
