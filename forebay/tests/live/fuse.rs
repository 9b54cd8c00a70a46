//! Files that are NBD volumes, by nbdfuse: for whatever wants a file where there is only a socket.

use crate::daemon::{Site, end_of, tool, try_tool};
use std::fs::File;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Whether the tests that need FUSE are to be left out; fails if they are not and there is none.
pub fn is_left_out(test: &str) -> bool {
    if std::env::var_os("FOREBAY_SKIP_EXT4").is_some_and(|value| value == "1") {
        eprintln!("SKIPPED: {test}, because FOREBAY_SKIP_EXT4=1");
        return true;
    }
    for needed in ["/dev/fuse", "/dev/loop-control"] {
        let able = File::options().read(true).write(true).open(needed).is_ok();
        assert!(able, "{test} needs root and {needed}; FOREBAY_SKIP_EXT4=1 leaves it out");
    }
    false
}

/// A mounted file; unmounted when it goes.
pub struct FuseFile {
    child: Child,
    directory: String,
    path: String,
}

impl FuseFile {
    /// Mounts the export at `uri` as a file in the directory of that name in the site.
    pub fn mount(site: &Site, directory: &str, uri: &str) -> FuseFile {
        let directory = site.path(directory);
        std::fs::create_dir_all(&directory).expect("a mount point");
        let path = format!("{directory}/disk");
        let child = Command::new("setpriv")
            .args(["--pdeathsig", "TERM", "nbdfuse", &path, uri])
            .stdin(Stdio::null())
            .stderr(log(site))
            .spawn()
            .expect("nbdfuse starts");
        let file = FuseFile { child, directory, path };
        wait_for(&file.path);
        file
    }

    /// Where the file is.
    pub fn path(&self) -> &str {
        &self.path
    }
}

impl Drop for FuseFile {
    fn drop(&mut self) {
        try_tool("fusermount3", &["-u", "-z", &self.directory]);
        // It ends with its mount, but for a failed test that left the file in use.
        if end_of(&mut self.child).is_none() {
            let _ = self.child.kill();
        }
    }
}

/// A file as a block device; detached when it goes.
pub struct LoopDevice {
    path: String,
}

impl LoopDevice {
    /// Makes a block device of the file.
    pub fn attach(file: &FuseFile) -> LoopDevice {
        LoopDevice::over(file.path())
    }

    /// Makes a block device of the file at the path.
    pub fn over(path: &str) -> LoopDevice {
        LoopDevice { path: tool("losetup", &["--find", "--show", path]).trim().to_owned() }
    }

    /// Makes a block device of a plain file; `None`, with the reason printed, where that is refused.
    pub fn try_attach(path: &str) -> Option<LoopDevice> {
        LoopDevice::try_with_sectors("512", path)
    }

    /// The same with sectors of so many bytes.
    pub fn try_with_sectors(sector_bytes: &str, path: &str) -> Option<LoopDevice> {
        let output = try_tool("losetup", &["--find", "--show", "--sector-size", sector_bytes, path]);
        if !output.status.success() {
            let reason = String::from_utf8_lossy(&output.stderr);
            eprintln!("SKIPPED: a test on block devices, because losetup is refused: {}", reason.trim());
            return None;
        }
        let path = String::from_utf8(output.stdout).expect("a path");
        Some(LoopDevice { path: path.trim().to_owned() })
    }

    /// The device.
    pub fn path(&self) -> &str {
        &self.path
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        try_tool("losetup", &["--detach", &self.path]);
    }
}

/// A disk whose I/O fails with EIO while a file exists: nbdkit's error filter, as a file.
pub struct FaultyDisk {
    file: FuseFile,
    server: Child,
    trigger: String,
}

impl FaultyDisk {
    /// A disk of that name over a sparse file of that size.
    pub fn new(site: &Site, name: &str, size_bytes: u64) -> FaultyDisk {
        let image = site.file(&format!("{name}.img"), size_bytes);
        let socket = site.path(&format!("{name}.sock"));
        let trigger = site.path(&format!("{name}.fails"));
        let server = Command::new("setpriv")
            .args([
                "--pdeathsig",
                "KILL",
                "nbdkit",
                "--foreground",
                "--unix",
                &socket,
                "--filter=error",
                "file",
                &image,
            ])
            .args(["error=EIO", "error-rate=1", &format!("error-file={trigger}")])
            .stdin(Stdio::null())
            .stderr(log(site))
            .spawn()
            .expect("nbdkit starts");
        wait_for(&socket);
        let file = FuseFile::mount(site, &format!("{name}.fuse"), &format!("nbd+unix:///?socket={socket}"));
        FaultyDisk { file, server, trigger }
    }

    /// Where the disk is.
    pub fn path(&self) -> &str {
        self.file.path()
    }

    /// From now on all reads and writes fail.
    pub fn fail(&self) {
        std::fs::write(&self.trigger, []).expect("a new file");
    }

    /// From now on no operation is answered.
    pub fn hang(&self) {
        tool("kill", &["-STOP", &self.server.id().to_string()]);
    }

    /// What hangs is answered.
    pub fn go_on(&self) {
        tool("kill", &["-CONT", &self.server.id().to_string()]);
    }

    /// It works again.
    pub fn heal(&self) {
        std::fs::remove_file(&self.trigger).expect("it failed before");
    }
}

impl Drop for FaultyDisk {
    fn drop(&mut self) {
        self.go_on();
        try_tool("fusermount3", &["-u", "-z", &self.file.directory]);
        // Ours, and of no use without its client.
        let _ = self.server.kill();
        end_of(&mut self.server);
    }
}

/// Where these programs say what went wrong, which is much when it is meant to.
fn log(site: &Site) -> File {
    File::options().create(true).append(true).open(site.path("fuse.log")).expect("a log")
}

fn wait_for(path: &str) {
    let start = Instant::now();
    while !Path::new(path).exists() {
        assert!(start.elapsed() < Duration::from_secs(60), "{path} does not appear");
        std::thread::sleep(Duration::from_millis(20));
    }
}
