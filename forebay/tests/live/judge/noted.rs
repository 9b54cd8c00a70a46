//! What a verb notes of an origin without a daemon is still true after a power cut of the origin.

use super::layer::Layer;
use super::ledger::{Ledger, Place};
use super::medium::Plant;
use crate::daemon::{Daemon, Site};
use crate::fuse;
use live::nbd::client::{Address, Client};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex};

const MIB: u64 = 1 << 20;

/// Somebody's write to a well-known place, which nobody flushed but the verb.
#[test]
fn an_origin_is_noted_as_it_is_durable() {
    if fuse::is_left_out("the test of an origin that is noted") {
        return;
    }
    // Each seed takes other writes with it.
    for seed in 0..3 {
        let site = Site::new("noted");
        let ledger = Arc::new(Mutex::new(Ledger::default()));
        let mut origin =
            Layer::new(&site, "origin", 16 * MIB, (Plant::None, seed), (Place::Origin(0), &ledger));
        let cache = site.file("cache", 64 * MIB);
        site.run(&["create", "--origin", origin.path(), "--cache", &cache, "--name", "disk"]);
        let changed = File::options().write(true).open(origin.path()).expect("it is mounted");
        changed.write_all_at(&[7; 4096], 0).expect("it is well");
        site.run(&["set", &cache, "disk", "origin=changed"]);
        origin.fail_power();
        origin.release();
        drop(changed);
        origin.restore_power();
        let daemon = Daemon::start(&site, &cache, &[]);
        let mut client = Client::connect(&Address::from(daemon.socket()), "disk").expect("it is ready");
        let content = client.read(0, 4096).expect("the daemon answers").expect("all is well");
        assert!(content.iter().all(|&byte| byte == 7), "what was noted is there");
        drop(client);
        daemon.stop();
    }
}
