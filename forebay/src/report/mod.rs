//! Reports of `status`, `stats` and `advise`: the shape of their JSON, which is a contract, and the text for people.

mod advice;
mod clients;
mod division;
mod halves;
mod history;
mod pace;
pub mod rates;
#[cfg(test)]
pub mod samples;
mod scrub;
mod stats;
mod status;

pub use advice::{AdviceReport, VolumeFacts, WearFacts};
pub use clients::ClientsReport;
pub use division::Division;
pub use halves::HalfReport;
pub use history::{ChangeReport, changes, now_seconds};
pub use pace::{PaceReport, milliseconds};
pub use scrub::ScrubReport;
pub use stats::{
    BypassStats, DeviceStats, DurationStats, Measured, Reasons, RequestStats, StatsReport, VolumeStats,
};
pub use status::{
    CacheIdentity, CacheReport, LimitsReport, OrderReport, RecoveryReport, StatusReport, VolumeReport,
    line_id,
};
