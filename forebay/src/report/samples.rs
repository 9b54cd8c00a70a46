//! Reports for tests.

use super::{StatsReport, StatusReport};
use serde_json::json;

/// A look after so many seconds of the same load: 100 reads of 4 KiB a second, three in four of them hits.
#[must_use]
pub fn look_after(seconds: u64, session: u64) -> (StatusReport, StatsReport) {
    let status = json!({
        "running": true, "session": session, "recovery": null, "nbd": ["unix:/run/x"],
        "oldest_dirty_seconds": 12.5,
        "volumes": [{
            "name": "data", "origin": "/dev/sdb", "mode": "writeback", "mode_target": "writeback",
            "state": "active", "size_bytes": 1 << 30, "dirty_bytes": 5 << 20, "dirty_limit_bytes": null,
            "lost_bytes": 0, "cached_bytes": 64 << 20, "origin_errors": 0, "uncached": false,
            "destage_bytes_per_second": 1 << 20
        }],
        "cache": null
    });
    let mut counts = [0; 17];
    counts[3] = 100 * seconds;
    let requests = json!({
        "reads": 100 * seconds, "writes": 10 * seconds, "flushes": 0, "discards": 0, "write_zeroes": 0,
        "read_bytes": 409_600 * seconds, "written_bytes": 40_960 * seconds, "hits": 75 * seconds,
        "misses": 25 * seconds, "hit_blocks": 75 * seconds, "miss_blocks": 25 * seconds,
        "beside_blocks": 0, "beside_hit_blocks": 0, "ahead_blocks": 0, "ahead_hit_blocks": 0, "warm_up_blocks": 0, "fill_blocks": 25 * seconds,
        "fill_dropped_blocks": 0, "destaged_blocks": 256 * seconds, "relocated_blocks": 0,
        "corrupt_clean_blocks": 0, "bypasses": super::BypassStats::default()
    });
    let mut volume = requests.clone();
    volume["name"] = "data".into();
    volume["origin"] = json!({"read_bytes": 0, "written_bytes": 0, "flushes": 0});
    volume["latency"] = serde_json::to_value(super::Measured::default().latency).expect("numbers");
    volume["durations"] = json!([{"operation": "read", "counts": counts, "sum_seconds": 0.01}]);
    let stats = json!({
        "running": true, "volumes": [volume], "total": requests, "cache_wraps": 0,
        "cache": {"read_bytes": 0, "written_bytes": 0, "flushes": 0}
    });
    let status = serde_json::from_value(status).expect("a status");
    (status, serde_json::from_value(stats).expect("statistics"))
}
