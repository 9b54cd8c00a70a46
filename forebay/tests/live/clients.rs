//! Clients that others wrote, against the daemon: libnbd's tools and fio.

use crate::daemon::{Daemon, Site, first_difference, tool};
use serde_json::Value;

/// A cache of 64 MiB in front of an empty origin.
fn small_volume(site: &Site, origin_bytes: u64) -> (String, String) {
    let origin = site.file("origin", origin_bytes);
    let cache = site.file("cache", 64 << 20);
    site.run(&["create", "--origin", &origin, "--cache", &cache, "--name", "disk"]);
    (origin, cache)
}

/// What `nbdinfo` is told about the volume is what a kernel or QEMU would be told.
#[test]
fn nbdinfo_sees_an_ordinary_disk() {
    let site = Site::new("nbdinfo");
    let (_, cache) = small_volume(&site, 96 << 20);
    let daemon = Daemon::start(&site, &cache, &[]);
    assert!(daemon.ready().contains("disk"), "{}", daemon.ready());
    for export in ["", "disk"] {
        let output = tool("nbdinfo", &["--json", &daemon.uri(export)]);
        let info: Value = serde_json::from_str(&output).expect("nbdinfo writes JSON");
        assert_eq!(info["protocol"], "newstyle-fixed");
        assert_eq!(info["structured"], true);
        let export = &info["exports"][0];
        assert_eq!(export["export-size"], 96 << 20);
        assert_eq!(export["is_read_only"], false);
        for able in ["can_flush", "can_fua", "can_multi_conn", "can_trim", "can_zero"] {
            assert_eq!(export[able], true, "{able} in {export}");
        }
        assert_eq!(export["block_size_preferred"], 4096);
    }
    let list: Value =
        serde_json::from_str(&tool("nbdinfo", &["--list", "--json", &daemon.uri("")])).expect("JSON");
    assert_eq!(list["exports"][0]["export-name"], "disk");
    daemon.stop();
}

/// A file goes in, the daemon is stopped and started, and the same file comes out; then it is in the
/// origin too.
#[test]
fn nbdcopy_gets_out_what_it_put_in() {
    let site = Site::new("nbdcopy");
    // More than the cache holds, so that the log wraps.
    let size_bytes = 160 << 20;
    let (origin, cache) = small_volume(&site, size_bytes);
    let input = site.noise("input", size_bytes, 1);
    let daemon = Daemon::start(&site, &cache, &[]);
    tool("nbdcopy", &["--flush", &input, &daemon.uri("disk")]);
    let compare = |daemon: &Daemon, name: &str| {
        let output = site.path(name);
        tool("nbdcopy", &[&daemon.uri("disk"), &output]);
        assert_eq!(first_difference(&input, &output), None, "{name}");
    };
    compare(&daemon, "output");
    daemon.stop();
    let daemon = Daemon::start(&site, &cache, &[]);
    compare(&daemon, "output-after-restart");
    site.run(&["flush", &cache]);
    assert_eq!(first_difference(&input, &origin), None, "flush brings everything home");
    assert_eq!(site.report(&["status", &cache])["volumes"][0]["dirty_bytes"], 0);
    daemon.stop();
    assert_eq!(site.report(&["check", &cache])["ok"], true);
}

/// fio reads back what it wrote, of all sizes from a sector up, at several depths.
#[test]
fn fio_verifies_at_every_depth() {
    let site = Site::new("fio-depth");
    let (_, cache) = small_volume(&site, 96 << 20);
    let daemon = Daemon::start(&site, &cache, &[]);
    for depth in [1, 8, 32] {
        let mut arguments = fio_job(&daemon, "verify", 80);
        arguments.push(format!("--iodepth={depth}"));
        run_fio(&arguments);
    }
    daemon.stop();
}

/// Four clients at once, each with its own part of the volume.
#[test]
fn fio_verifies_with_several_clients_at_once() {
    let site = Site::new("fio-clients");
    let (_, cache) = small_volume(&site, 128 << 20);
    let daemon = Daemon::start(&site, &cache, &[]);
    let mut arguments = fio_job(&daemon, "verify", 24);
    arguments.extend(["--iodepth=8", "--numjobs=4", "--offset_increment=32M"].map(str::to_owned));
    run_fio(&arguments);
    daemon.stop();
    assert_eq!(site.report(&["check", &cache])["ok"], true);
}

/// fio reads in a row what it wrote, one request at a time, so that it is read ahead of; others write beside it.
#[test]
fn fio_verifies_what_was_read_ahead() {
    let site = Site::new("fio-ahead");
    let (_, cache) = small_volume(&site, 96 << 20);
    let daemon = Daemon::start(&site, &cache, &[]);
    for size in ["4k", "16k", "128k"] {
        let stream = [
            "--name=stream".to_owned(),
            "--ioengine=nbd".to_owned(),
            format!("--uri={}", daemon.uri("disk")),
            "--size=24M".to_owned(),
            format!("--bs={size}"),
            "--verify=crc32c".to_owned(),
            "--verify_fatal=1".to_owned(),
            "--verify_state_save=0".to_owned(),
        ];
        run_fio(&[&stream[..], &["--rw=write".to_owned()]].concat());
        site.run(&["flush", &cache]);
        let mut beside = fio_job(&daemon, "beside", 16);
        beside.push("--offset=32M".to_owned());
        run_fio(&[&stream[..], &["--rw=read".to_owned()], &beside[..]].concat());
    }
    let requests = &site.report(&["stats", &cache])["total"];
    let ahead_hit_blocks = requests["ahead_hit_blocks"].as_u64().expect("a number");
    assert!(ahead_hit_blocks > 3 * 6144 / 2, "most of it is in memory when it is asked for: {requests}");
    daemon.stop();
}

/// Writes at random places and reads all of it back. The sizes are multiples of a sector, so that
/// blocks are partly written.
pub fn fio_job(daemon: &Daemon, name: &str, size_mebibytes: u32) -> Vec<String> {
    vec![
        format!("--name={name}"),
        "--ioengine=nbd".to_owned(),
        format!("--uri={}", daemon.uri("disk")),
        format!("--size={size_mebibytes}M"),
        "--rw=randwrite".to_owned(),
        "--bsrange=512-64k".to_owned(),
        "--blockalign=512".to_owned(),
        "--verify=crc32c".to_owned(),
        "--verify_fatal=1".to_owned(),
        "--verify_state_save=0".to_owned(),
        "--fsync=64".to_owned(),
    ]
}

/// Runs fio, which must find what it wrote.
pub fn run_fio(arguments: &[String]) {
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    tool("fio", &arguments);
}
