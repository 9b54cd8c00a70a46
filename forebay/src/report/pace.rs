//! How fast the cache device answers reads, in `status`.

use engine::status::CachePace;
use serde::{Deserialize, Serialize};

/// How fast the cache device answers reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PaceReport {
    /// The time that half of its reads keep within, in microseconds; 0 if there were none.
    pub usual_us: u64,
    /// For how long it has been passed by, because it takes much longer; absent while it is used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub passed_for_ms: Option<u64>,
    /// The time that its slow reads took last; absent while it is used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slow_us: Option<u64>,
}

impl From<CachePace> for PaceReport {
    fn from(pace: CachePace) -> PaceReport {
        PaceReport {
            usual_us: pace.usual_ns / 1000,
            passed_for_ms: pace.passed_for_ns.map(|ns| ns / 1_000_000),
            slow_us: pace.passed_for_ns.map(|_| pace.slow_ns / 1000),
        }
    }
}

impl PaceReport {
    /// A line about a device that is passed by.
    #[must_use]
    pub fn trouble(&self) -> Option<String> {
        let seconds = self.passed_for_ms? / 1000;
        let (slow, usual) = (milliseconds(self.slow_us.unwrap_or(0)), milliseconds(self.usual_us));
        Some(format!(
            "the cache device: reads took {slow} ms instead of {usual} ms; for {seconds} s what the origin has was read \
             there where that is faster"
        ))
    }
}

/// Microseconds as milliseconds with one digit behind the point, or two where there is less than one.
pub fn milliseconds(us: u64) -> String {
    let ms = us as f64 / 1000.0;
    if us < 1000 { format!("{ms:.2}") } else { format!("{ms:.1}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_that_is_passed_by_has_a_line() {
        let pace = CachePace { usual_ns: 84_300, passed_for_ns: Some(61_700_000_000), slow_ns: 20_412_000 };
        assert_eq!(
            PaceReport::from(pace).trouble().as_deref(),
            Some(
                "the cache device: reads took 20.4 ms instead of 0.08 ms; for 61 s what the origin has was read there \
                 where that is faster"
            )
        );
        let well = PaceReport::from(CachePace { passed_for_ns: None, ..pace });
        assert_eq!((well.trouble(), well.slow_us), (None, None));
    }
}
