//! Block devices as origin and cache: files under the loop driver.

use crate::daemon::{Daemon, Site, first_difference, tool, try_tool};
use crate::filesystem::Mount;
use crate::fuse::LoopDevice;

const MIB: u64 = 1 << 20;

/// A pair of block devices is created, served, locked, detached like a pair of files.
#[test]
fn a_volume_on_block_devices() {
    served_on_block_devices("512");
}

#[test]
fn a_volume_on_block_devices_of_large_sectors() {
    served_on_block_devices("4096");
}

fn served_on_block_devices(sector_bytes: &str) {
    let site = Site::new(&format!("loop-{sector_bytes}"));
    let origin_file = site.noise("origin", 48 * MIB, 1);
    let cache_file = site.file("cache", 40 * MIB);
    let Some(origin) = LoopDevice::try_with_sectors(sector_bytes, &origin_file) else { return };
    let Some(cache) = LoopDevice::try_with_sectors(sector_bytes, &cache_file) else { return };
    let create = ["create", "--origin", origin.path(), "--cache", cache.path(), "--name", "disk"];
    site.run(&[&create[..], &["--trial-seconds", "1"]].concat());
    let daemon = Daemon::start(&site, cache.path(), &[]);
    let output = site.path("output");
    tool("nbdcopy", &[&daemon.uri("disk"), &output]);
    assert_eq!(first_difference(&origin_file, &output), None, "an untouched origin is seen as it is");
    let input = site.noise("input", 48 * MIB, 2);
    tool("nbdcopy", &["--flush", &input, &daemon.uri("disk")]);

    // Hazard 13: nobody else gets at either of them, under whatever name.
    let other = site.file("other", 32 * MIB);
    for taken in [origin.path(), &origin_file] {
        let message = site.refused(&["create", "--origin", taken, "--cache", &other, "--name", "disk"]);
        let is_refused_for_that =
            message.contains("is in use by another forebay") || message.contains("claimed");
        assert!(is_refused_for_that, "{taken}: {message}");
    }
    let message =
        site.refused(&["create", "--origin", &other, "--cache", cache.path(), "--wipe", cache.path()]);
    assert!(message.contains("in use") || message.contains("claimed"), "{message}");
    daemon.kill();

    let daemon = Daemon::start(&site, cache.path(), &[]);
    tool("nbdcopy", &[&daemon.uri("disk"), &output]);
    assert_eq!(first_difference(&input, &output), None, "what was flushed is there after a kill");
    site.run(&["detach", cache.path(), "--verify"]);
    daemon.stop();
    drop((origin, cache));
    assert_eq!(first_difference(&input, &origin_file), None);
}

/// What cannot be written takes no mode that writes, or what is dirty could never go home.
#[test]
fn a_device_that_is_read_only_is_for_mode_readonly() {
    let site = Site::new("read-only-device");
    let origin_file = site.noise("origin", 48 * MIB, 1);
    let other = site.noise("other", 48 * MIB, 2);
    let (cache, second) = (site.file("cache", 40 * MIB), site.file("second", 40 * MIB));
    let Some(origin) = LoopDevice::try_attach(&origin_file) else { return };
    let writable = Writable(&origin);
    let set = |flag: &str| tool("blockdev", &[flag, origin.path()]);
    let create = ["create", "--origin", origin.path(), "--cache", &cache, "--name", "disk"];
    let refused = |verb: &[&str]| {
        let message = site.refused(verb);
        assert!(message.contains("is read-only; use mode readonly"), "{verb:?}: {message}");
    };
    set("--setro");
    refused(&create);
    site.run(&["create", "--origin", &other, "--cache", &second, "--name", "other"]);
    refused(&["add", &second, "--origin", origin.path(), "--name", "disk"]);
    set("--setrw");
    site.run(&create);
    set("--setro");
    refused(&["serve", &cache, "--nbd", &format!("unix:{}", site.path("door"))]);
    site.run(&["set", &cache, "disk", "mode=readonly"]);
    let daemon = Daemon::start(&site, &cache, &[]);
    let output = site.path("output");
    tool("nbdcopy", &[&daemon.uri("disk"), &output]);
    assert_eq!(first_difference(&origin_file, &output), None);
    refused(&["set", &cache, "disk", "mode=writeback"]);
    daemon.stop();
    drop(writable);
}

/// A device that can be written again at the end: whoever gets it next would find it read-only.
struct Writable<'a>(&'a LoopDevice);

impl Drop for Writable<'_> {
    fn drop(&mut self) {
        try_tool("blockdev", &["--setrw", self.0.path()]);
    }
}

/// Hazard 13: an origin with a mounted file system is refused, by `create` and by `serve`.
#[test]
fn a_mounted_origin_is_refused() {
    let site = Site::new("mounted");
    let origin_file = site.file("origin", 64 * MIB);
    let cache = site.file("cache", 32 * MIB);
    let Some(origin) = LoopDevice::try_attach(&origin_file) else { return };
    tool("mkfs.ext4", &["-q", "-F", origin.path()]);
    let create = ["create", "--origin", origin.path(), "--cache", &cache, "--name", "disk"];
    {
        let _mount = Mount::new(&site, &origin);
        let message = site.refused(&create);
        assert!(message.contains("mounted"), "{message}");
    }
    site.run(&create);
    let door = format!("unix:{}", site.path("door"));
    let _mount = Mount::new(&site, &origin);
    let message = site.refused(&["serve", &cache, "--nbd", &door]);
    assert!(message.contains("mounted") && message.contains("unmount it"), "{message}");
}

/// Hazard 9: a disk that was only mounted and unmounted behind the cache is not served any more.
#[test]
fn an_origin_that_was_mounted_behind_the_cache_is_refused() {
    let site = Site::new("remounted");
    let origin_file = site.file("origin", 64 * MIB);
    let cache = site.file("cache", 32 * MIB);
    let Some(origin) = LoopDevice::try_attach(&origin_file) else { return };
    tool("mkfs.ext4", &["-q", "-F", origin.path()]);
    site.run(&["create", "--origin", origin.path(), "--cache", &cache, "--name", "disk"]);
    drop(Mount::new(&site, &origin));
    let door = format!("unix:{}", site.path("door"));
    let message = site.refused(&["serve", &cache, "--nbd", &door]);
    assert!(message.contains("changed behind the cache at byte 0"), "{message}");
}

/// What lies in a hole is read in any piece, whatever the sectors of the disk below: it says nothing of what can be written.
#[test]
fn a_file_of_holes_has_the_sectors_of_its_disk() {
    let site = Site::new("holes");
    let disk_file = site.file("disk", 256 * MIB);
    let Some(disk) = LoopDevice::try_with_sectors("4096", &disk_file) else { return };
    tool("mkfs.ext4", &["-q", "-F", disk.path()]);
    let mount = Mount::new(&site, &disk);
    let (origin, cache) = (mount.path("origin"), mount.path("cache"));
    tool("truncate", &["--size=48M", &origin]);
    tool("truncate", &["--size=40M", &cache]);
    site.run(&["create", "--origin", &origin, "--cache", &cache, "--name", "disk"]);
    let daemon = Daemon::start(&site, &cache, &[]);
    let input = site.noise("input", 48 * MIB, 1);
    tool("nbdcopy", &["--flush", &input, &daemon.uri("disk")]);
    site.run(&["flush", &cache]);
    daemon.stop();
    // It is the same origin, though what is in it is held to the sectors now.
    let daemon = Daemon::start(&site, &cache, &[]);
    site.run(&["detach", &cache, "disk", "--verify"]);
    daemon.stop();
    assert_eq!(first_difference(&input, &origin), None);
}

/// A block is the least that a cache asks a device for.
#[test]
fn sectors_that_are_longer_than_a_block_are_refused() {
    let site = Site::new("long-sectors");
    let (file, other) = (site.file("file", 64 * MIB), site.file("other", 64 * MIB));
    // Kernels before 6.15 make none.
    let Some(device) = LoopDevice::try_with_sectors("16384", &file) else { return };
    for [origin, cache] in [[device.path(), &other], [&other, device.path()]] {
        let message = site.refused(&["create", "--origin", origin, "--cache", cache, "--name", "disk"]);
        assert!(message.contains("has sectors of 16384 bytes; at most 4096 can be used"), "{message}");
    }
}
