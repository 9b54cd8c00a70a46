//! Reports of `status` and `stats`: the shape of their JSON, which is a contract, and the text for people.

mod division;
mod history;
mod stats;
mod status;

pub use division::Division;
pub use history::{ChangeReport, changes, now_seconds};
pub use stats::{
    BypassStats, DeviceStats, DurationStats, Measured, Reasons, RequestStats, StatsReport, VolumeStats,
};
pub use status::{
    CacheIdentity, CacheReport, LimitsReport, RecoveryReport, StatusReport, VolumeReport, line_id,
};
