//! What is written to the cache is counted by reason.

use crate::rig::{Device, Kind, Rig, bytes, composition};
use forebay_engine::status::WrittenBytes;

fn written(rig: &Rig) -> WrittenBytes {
    let status = rig.status();
    let WrittenBytes { user_bytes, fill_bytes, relocation_bytes, header_bytes } = status.cache.written;
    assert_eq!(
        user_bytes + fill_bytes + relocation_bytes + header_bytes,
        status.cache.device.written_bytes,
        "every byte has a reason"
    );
    status.cache.written
}

#[test]
fn what_clients_write_counts_as_theirs_in_any_mode() {
    for mode in ["writeback", "writethrough"] {
        let mut rig = Rig::new(&composition(&[("write_mode", mode)]), 2048, 8192);
        let before = written(&rig);
        let ops = rig.write(8, 4, 1);
        let now = written(&rig);
        assert_eq!(now.user_bytes - before.user_bytes, 4 * 4096, "{mode}");
        assert_eq!(now.fill_bytes, before.fill_bytes, "{mode}");
        let all = bytes(&ops, Device::Cache, Kind::Write);
        assert_eq!(now.header_bytes - before.header_bytes, all - 4 * 4096, "{mode}");
    }
}

#[test]
fn what_a_miss_brings_counts_as_a_fill() {
    let mut rig = Rig::new(&composition(&[("write_mode", "writethrough")]), 2048, 8192);
    let before = written(&rig);
    drop(rig.read(8, 4));
    rig.run();
    let now = written(&rig);
    assert_eq!(now.fill_bytes - before.fill_bytes, 4 * 4096);
    assert_eq!(now.user_bytes, before.user_bytes);
    assert_eq!(now.relocation_bytes, 0, "slots are written in place");
}
