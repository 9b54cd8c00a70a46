//! A file system on a volume: the kernel's ext4 through nbdfuse and a loop device.

use crate::daemon::{Daemon, Site, first_difference, tool, try_tool};
use crate::fuse::{self, FuseFile, LoopDevice};
use std::fs::File;
use std::time::{Duration, Instant};

/// Longest time for which a file system may be busy when it is to be unmounted.
const BUSY_MAX: Duration = Duration::from_secs(20);

/// A mounted file system, unmounted when it goes.
pub struct Mount {
    directory: String,
}

impl Mount {
    /// Mounts the ext4 on the device at `mnt` in the site.
    pub fn new(site: &Site, device: &LoopDevice) -> Mount {
        let directory = site.path("mnt");
        std::fs::create_dir_all(&directory).expect("a mount point");
        tool("mount", &["-t", "ext4", device.path(), &directory]);
        Mount { directory }
    }

    /// Where something of that name is in it.
    pub fn path(&self, name: &str) -> String {
        format!("{}/{name}", self.directory)
    }

    /// Unmounts it; waits for so long if it is busy. The error is the refusal.
    fn unmount(&self, patience: Duration) -> Result<(), String> {
        let start = Instant::now();
        loop {
            let output = try_tool("umount", &[&self.directory]);
            if output.status.success() {
                return Ok(());
            }
            let refusal = String::from_utf8_lossy(&output.stderr).into_owned();
            // A child that another test has just forked has our open files until it becomes another program.
            if !refusal.contains("busy") || start.elapsed() >= patience {
                return Err(refusal);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let Err(refusal) = self.unmount(BUSY_MAX) else { return };
        // What is below it must not wait for whoever holds it.
        try_tool("umount", &["--lazy", &self.directory]);
        if !std::thread::panicking() {
            panic!("{} cannot be unmounted: {refusal}", self.directory);
        }
    }
}

/// Goal: what a file system keeps is kept. Method: ext4 is made, filled, unmounted; the daemon is killed and started
/// again; ext4 is whole and holds what was written. At last the origin alone holds it all.
#[test]
fn ext4_survives_the_daemon() {
    ext4_survives("forebay", &[], [192 << 20, 64 << 20], 2 << 20);
}

/// The same where everything goes home in strict order: the cache is small for what is overwritten, and writes wait.
#[test]
fn ext4_survives_the_daemon_in_strict_order() {
    ext4_survives("forebay", &["--order", "strict"], [192 << 20, 64 << 20], 2 << 20);
}

/// Goal: who holds a file system for a moment does not fail its test. Method: a file in it is open when it is to be
/// unmounted.
#[test]
fn a_busy_file_system_is_waited_for() {
    if fuse::is_left_out("the test of busy file systems") {
        return;
    }
    let site = Site::new("busy");
    let image = site.file("image", 8 << 20);
    let device = LoopDevice::over(&image);
    tool("mkfs.ext4", &["-q", "-F", device.path()]);
    let mount = Mount::new(&site, &device);
    let held = File::create(mount.path("held")).expect("room in the file system");
    let refusal = mount.unmount(Duration::ZERO).expect_err("it is busy");
    assert!(refusal.contains("busy"), "{refusal}");
    let holder = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(200));
        drop(held);
    });
    drop(mount);
    holder.join().expect("it only sleeps");
}

/// The same with any profile, and what else is said when the cache is made. The `number`th of eight files has
/// `number * file_bytes`.
pub fn ext4_survives(profile: &str, more: &[&str], [origin_bytes, cache_bytes]: [u64; 2], file_bytes: u64) {
    if fuse::is_left_out("the ext4 test") {
        return;
    }
    let site = Site::new(&["ext4", profile, more.last().copied().unwrap_or("plain")].join("-"));
    let origin = site.file("origin", origin_bytes);
    let cache = site.file("cache", cache_bytes);
    let create = ["create", "--origin", &origin, "--cache", &cache, "--name", "disk", "--mode", "writeback"];
    site.run(&[&create[..], &["--profile", profile], more].concat());
    let files: Vec<String> = (0..8)
        .map(|number| site.noise(&format!("file-{number}"), (number + 1) * file_bytes, number))
        .collect();
    let names: Vec<String> = (0..files.len()).map(|number| format!("copy-{number}")).collect();

    let daemon = Daemon::start(&site, &cache, &[]);
    {
        let file = FuseFile::mount(&site, "fuse", &daemon.uri("disk"));
        let device = LoopDevice::attach(&file);
        tool("mkfs.ext4", &["-q", "-F", device.path()]);
        let mount = Mount::new(&site, &device);
        for (file, name) in files.iter().zip(&names) {
            std::fs::copy(file, mount.path(name)).expect("room in the file system");
        }
        // Some come and go, so that blocks are written twice and discarded.
        for name in &names[..4] {
            std::fs::remove_file(mount.path(name)).expect("it was just copied");
        }
        tool("sync", &["--file-system", &mount.directory]);
        for (file, name) in files.iter().zip(&names[..4]) {
            std::fs::copy(file, mount.path(name)).expect("room in the file system");
        }
    }
    daemon.kill();

    let daemon = Daemon::start(&site, &cache, &[]);
    {
        let file = FuseFile::mount(&site, "fuse", &daemon.uri("disk"));
        let device = LoopDevice::attach(&file);
        tool("e2fsck", &["-f", "-n", device.path()]);
        let mount = Mount::new(&site, &device);
        for (file, name) in files.iter().zip(&names) {
            assert_eq!(first_difference(file, &mount.path(name)), None, "{name}");
        }
    }
    site.run(&["detach", &cache, "disk", "--verify"]);
    daemon.stop();
    tool("e2fsck", &["-f", "-n", &origin]);
}
