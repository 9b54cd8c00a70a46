//! Caches of other kinds than [`Layer`]: a block device in memory that runs full, a file system that does.

use super::layer::Layer;
use crate::daemon::{Site, tool, try_tool};
use std::fs;
use std::path::Path;

/// What the cache of a trial stands on.
pub enum Cache<'site> {
    /// A disk that fails as it is told.
    Layer(Layer<'site>),
    /// A block device of the kernel whose memory can be limited.
    Zram(Zram),
    /// A sparse file on a file system that can be full.
    Small(SmallFileSystem),
}

impl Cache<'_> {
    /// Where it is.
    pub fn path(&self) -> &str {
        match self {
            Cache::Layer(layer) => layer.path(),
            Cache::Zram(zram) => &zram.path,
            Cache::Small(small) => &small.file,
        }
    }

    /// Leaves no room for anything that is new; `false` if it cannot.
    pub fn fill(&self) -> bool {
        match self {
            Cache::Layer(_) => return false,
            Cache::Zram(zram) => zram.limit("1"),
            Cache::Small(small) => small.resize(&small.used()),
        }
        true
    }

    /// Makes it whole again; no daemon may use it.
    pub fn heal(&mut self) {
        match self {
            Cache::Layer(layer) => layer.heal(),
            Cache::Zram(zram) => zram.limit("0"),
            Cache::Small(small) => small.resize("256m"),
        }
    }
}

/// A zram device of our own; removed when it goes.
pub struct Zram {
    number: String,
    path: String,
}

impl Zram {
    /// A device of that size; nothing where the kernel has none or refuses it.
    pub fn new(size_bytes: u64) -> Option<Zram> {
        let number = fs::read_to_string("/sys/class/zram-control/hot_add").ok()?.trim().to_owned();
        let zram = Zram { path: format!("/dev/zram{number}"), number };
        zram.write("disksize", &size_bytes.to_string()).ok()?;
        Path::new(&zram.path).exists().then_some(zram)
    }

    fn write(&self, attribute: &str, value: &str) -> std::io::Result<()> {
        fs::write(format!("/sys/block/zram{}/{attribute}", self.number), value)
    }

    /// Limits its memory to so many bytes, `0` for no limit.
    fn limit(&self, bytes: &str) {
        self.write("mem_limit", bytes).expect("a zram device has a limit");
    }
}

impl Drop for Zram {
    fn drop(&mut self) {
        // A test that failed may have left it in use; then it stays, which is no second failure.
        let _in_use = self.write("reset", "1");
        let _in_use = fs::write("/sys/class/zram-control/hot_remove", &self.number);
    }
}

/// A tmpfs with one sparse file; unmounted when it goes.
pub struct SmallFileSystem {
    directory: String,
    file: String,
}

impl SmallFileSystem {
    /// A file of that size on a file system that has room for it.
    pub fn new(site: &Site, size_bytes: u64) -> SmallFileSystem {
        let directory = site.path("small");
        fs::create_dir(&directory).expect("a mount point");
        tool("mount", &["-t", "tmpfs", "-o", "size=256m", "tmpfs", &directory]);
        let file = site.file("small/cache", size_bytes);
        SmallFileSystem { directory, file }
    }

    /// The bytes in use, as `mount` takes them.
    fn used(&self) -> String {
        let used = tool("df", &["--output=used", "--block-size=1", &self.directory]);
        used.lines().last().expect("df prints a number").trim().to_owned()
    }

    fn resize(&self, size: &str) {
        // Refused where more came meanwhile than is to be left: then it is not full, and nothing fails.
        try_tool("mount", &["-o", &format!("remount,size={size}"), &self.directory]);
    }
}

impl Drop for SmallFileSystem {
    fn drop(&mut self) {
        try_tool("umount", &["-l", &self.directory]);
    }
}
