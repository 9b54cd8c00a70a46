//! The pages of docs/recipes: their commands, run as they are written there, on files in place of devices.

use crate::daemon::{Site, end_of, first_difference, tool};
use crate::nbd_origin::bucket::Bucket;
use crate::nbd_origin::cluster::Cluster;
use live::nbd::client::{Address, Client};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;
const PIECE: u64 = 64 << 10;
const SIZE: u64 = 48 * MIB;

/// A recipe at work: its page, a directory, and what its variables stand for.
struct Recipe {
    page: &'static str,
    site: Site,
    variables: Vec<(&'static str, String)>,
    /// Where programs are looked for first.
    programs: String,
}

impl Recipe {
    fn new(name: &str, page: &'static str) -> Recipe {
        let site = Site::new(name);
        let variables = vec![
            ("SOCKET", site.path("socket")),
            ("FOREBAY_STATE_DIR", site.path("state")),
            ("FOREBAY_RUN_DIR", site.path("run")),
        ];
        Recipe { page, site, variables, programs: String::new() }
    }

    /// Lets a variable stand for a file with some content.
    fn with_disk(&mut self, variable: &'static str, seed: u64) -> String {
        let path = self.site.noise(variable, SIZE, seed);
        self.variables.push((variable, path.clone()));
        path
    }

    /// Lets a variable stand for a blank file.
    fn with_ssd(&mut self, variable: &'static str) -> String {
        let path = self.site.file(variable, 32 * MIB);
        self.variables.push((variable, path.clone()));
        path
    }

    /// Takes over where programs find a cluster or a bucket, from the variables of a process that does.
    fn with_environment(&mut self, lines: &str) {
        for (name, value) in lines.lines().filter_map(|line| line.split_once('=')) {
            let known = ["LD_LIBRARY_PATH", "QEMU_MODULE_DIR", "PYTHONPATH", "CEPH_CONF", "CEPH_ARGS"];
            let keys = ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_DEFAULT_REGION"];
            if name == "PATH" {
                self.programs = format!("{value}:");
            } else if let Some(name) = known.iter().chain(&keys).find(|known| **known == name) {
                self.variables.push((name, value.to_owned()));
            }
        }
    }

    /// The commands below a mark of the page.
    fn commands(&self, mark: &str) -> String {
        let mark = format!("<!-- {mark} -->\n");
        let (_, rest) = self.page.split_once(&mark).unwrap_or_else(|| panic!("the recipe has {mark}"));
        let lines: Vec<&str> = rest.lines().take_while(|line| line.starts_with("    ")).collect();
        assert!(!lines.is_empty(), "{mark} has commands");
        lines.join("\n")
    }

    /// A shell with the recipe's variables, in which `forebay` is the one under test.
    fn shell(&self, script: &str) -> Command {
        let forebay = Path::new(env!("CARGO_BIN_EXE_forebay")).parent().expect("a directory");
        let others = std::env::var("PATH").unwrap_or_default();
        let path = format!("{}:{}{others}", forebay.display(), self.programs);
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "sh", "-ec", script]).env("PATH", path);
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        command.stdin(Stdio::null());
        command
    }

    /// Runs what stands below a mark, which must work; what it says.
    fn run(&self, mark: &str) -> String {
        let output = self.shell(&self.commands(mark)).output().expect("a shell");
        let told = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{mark}: {told}{}", String::from_utf8_lossy(&output.stderr));
        told
    }

    /// Starts what stands below a mark.
    fn start(&self, mark: &str) -> Running {
        self.start_script(&format!("exec {}", self.commands(mark).trim_start()))
    }

    fn start_script(&self, script: &str) -> Running {
        let child = self.shell(script).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        Running(child.expect("a shell"))
    }

    /// The same, and waits until it serves that volume.
    fn serve(&self, mark: &str, volume: &str) -> Running {
        let running = self.start(mark);
        wait_until("the daemon serves", || self.connect(volume).is_some());
        running
    }

    /// Waits until an origin's server takes clients at the socket of that name.
    fn await_origin(&self, socket: &str, export: &str) {
        let address = Address::Unix(self.site.path(socket).into());
        wait_until("the origin is served", || Client::connect(&address, export).is_ok());
    }

    fn connect(&self, volume: &str) -> Option<Client> {
        Client::connect(&Address::Unix(self.site.path("socket").into()), volume).ok()
    }

    /// Writes pieces here and there, to the volume and to what it should hold.
    fn write(&self, volume: &str, expected: &mut [u8], seed: u64) {
        let mut client = self.connect(volume).expect("it serves");
        for number in 0..60 {
            let at = (number * 7919 + seed * 13) % (SIZE / PIECE) * PIECE;
            let data: Vec<u8> = (0..PIECE).map(|place| (place ^ number ^ (seed << 4)) as u8).collect();
            expected[at as usize..][..PIECE as usize].copy_from_slice(&data);
            client.write(at, &data).expect("the daemon answers").expect("the volume takes it");
        }
    }
}

/// A command that goes on; killed when it goes.
struct Running(Child);

impl Running {
    /// Asks it for a clean end.
    fn stop(mut self) {
        tool("sh", &["-c", &format!("kill -TERM {}", self.0.id())]);
        let status = end_of(&mut self.0).expect("it ends");
        assert!(status.success(), "the daemon ended with {status}");
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        end_of(&mut self.0);
    }
}

fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < Duration::from_secs(60), "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn bytes_of(path: &str) -> Vec<u8> {
    std::fs::read(path).expect("the file")
}

fn assert_holds(path: &str, expected: &[u8]) {
    let found = bytes_of(path);
    assert_eq!(found.len(), expected.len(), "{path} has another size");
    let differs = found.iter().zip(expected).position(|(one, other)| one != other);
    assert_eq!(differs, None, "{path} has another content from this byte on");
}

#[test]
fn the_recipe_of_a_nas_works_as_it_is_written() {
    let mut recipe = Recipe::new("nas", include_str!("../../../docs/recipes/nas.md"));
    let array = recipe.with_disk("ARRAY", 1);
    let second = recipe.with_disk("ARRAY2", 2);
    recipe.with_ssd("SSD");
    let (mut expected, mut archive) = (bytes_of(&array), bytes_of(&second));
    assert!(recipe.run("create").contains("volume media"));
    let daemon = recipe.serve("serve", "media");
    recipe.write("media", &mut expected, 1);
    assert_holds(&array, &expected);
    assert!(recipe.run("writeback").contains("writeback"));
    recipe.write("media", &mut expected, 2);
    recipe.run("flush");
    assert_holds(&array, &expected);
    daemon.stop();
    recipe.run("add");
    let daemon = recipe.serve("serve", "archive");
    recipe.write("archive", &mut archive, 3);
    recipe.write("media", &mut expected, 4);
    recipe.run("out");
    daemon.stop();
    assert_holds(&array, &expected);
    assert_holds(&second, &archive);
}

#[test]
fn the_recipe_of_a_cloud_disk_works_as_it_is_written() {
    let mut recipe = Recipe::new("cloud", include_str!("../../../docs/recipes/cloud-disk.md"));
    let disk = recipe.with_disk("DISK", 3);
    let nvme = recipe.with_ssd("NVME");
    let mut expected = bytes_of(&disk);
    assert!(recipe.run("create").contains("as ephemeral writethrough cache"));
    let daemon = recipe.serve("serve", "data");
    recipe.write("data", &mut expected, 5);
    assert!(recipe.run("warm").contains("warmed: "));
    daemon.stop();
    // The instance stops, and its store is blank.
    recipe.site.file("NVME", 32 * MIB);
    let daemon = recipe.serve("again", "data");
    recipe.write("data", &mut expected, 6);
    // It stops without a word, and its store is gone, then blank.
    drop(daemon);
    std::fs::remove_file(&nvme).expect("the store");
    let daemon = recipe.serve("uncached", "data");
    recipe.write("data", &mut expected, 7);
    daemon.stop();
    recipe.site.file("NVME", 32 * MIB);
    let daemon = recipe.serve("again", "data");
    recipe.write("data", &mut expected, 8);
    recipe.run("out");
    daemon.stop();
    assert_holds(&disk, &expected);
}

/// What stands on the page of buckets below its server; `expected` is what the disk holds before and after.
fn follow_the_recipe_of_a_bucket(recipe: &Recipe, expected: &mut [u8]) {
    recipe.await_origin("bucket", "");
    recipe.run("create");
    let daemon = recipe.serve("serve", "bucket");
    recipe.write("bucket", expected, 8);
    assert!(recipe.run("look").contains("volume     bucket"), "the status tells of the volume");
    recipe.run("flush");
    recipe.write("bucket", expected, 9);
    recipe.run("out");
    daemon.stop();
}

fn recipe_of_a_bucket(name: &str) -> Recipe {
    let mut recipe = Recipe::new(name, include_str!("../../../docs/recipes/s3.md"));
    recipe.with_ssd("SSD");
    recipe.variables.push(("BUCKET", recipe.site.path("bucket")));
    recipe
}

/// Where no real one is to be had: the page's filters over a file, with the delay of a bucket.
#[test]
fn the_recipe_of_a_bucket_works_on_a_file() {
    let mut recipe = recipe_of_a_bucket("bucket-file");
    let disk = recipe.with_disk("DISK", 4);
    let mut expected = bytes_of(&disk);
    let serve = "exec nbdkit --foreground --unix \"$BUCKET\" --filter=retry --filter=blocksize --filter=delay \
                 file \"$DISK\" minblock=64k maxdata=64k delay-read=5ms delay-write=5ms";
    let _server = recipe.start_script(serve);
    follow_the_recipe_of_a_bucket(&recipe, &mut expected);
    assert_holds(&disk, &expected);
}

#[test]
fn the_recipe_of_a_bucket_works_as_it_is_written() {
    let mut recipe = recipe_of_a_bucket("bucket");
    let place = Site::new("bucket-server");
    let Some(bucket) = Bucket::new(&place, "the recipe of a bucket") else {
        return;
    };
    recipe.with_environment(&bucket.environment());
    recipe.variables.extend([("ENDPOINT", bucket.endpoint()), ("NAME", "disks".to_owned())]);
    recipe.variables.extend([("KEY", "recipe".to_owned()), ("SIZE", SIZE.to_string())]);
    let mut expected = vec![0; SIZE as usize];
    let server = recipe.start("server");
    follow_the_recipe_of_a_bucket(&recipe, &mut expected);
    drop(server);
    let exported = recipe.site.path("exported");
    std::fs::remove_file(recipe.site.path("bucket")).expect("the socket of the server that is gone");
    let _server = recipe.start("server");
    recipe.await_origin("bucket", "");
    tool("nbdcopy", &[&format!("nbd+unix:///?socket={}", recipe.site.path("bucket")), &exported]);
    assert_holds(&exported, &expected);
}

#[test]
fn the_recipe_of_a_ceph_image_works_as_it_is_written() {
    let mut recipe = Recipe::new("ceph", include_str!("../../../docs/recipes/ceph-rbd.md"));
    let place = Site::new("ceph-cluster");
    let Some(cluster) = Cluster::new(&place, "the recipe of a Ceph image", SIZE) else {
        return;
    };
    recipe.with_environment(&cluster.environment());
    recipe.with_ssd("NVME");
    recipe.variables.extend([("POOL", "rbd".to_owned()), ("IMAGE", "disk".to_owned())]);
    recipe.variables.push(("RBD", recipe.site.path("rbd")));
    let mut expected = vec![0; SIZE as usize];
    let server = recipe.start("server");
    recipe.await_origin("rbd", "disk");
    recipe.run("create");
    let daemon = recipe.serve("serve", "disk");
    recipe.write("disk", &mut expected, 12);
    assert!(recipe.run("look").contains("volume     disk"), "the status tells of the volume");
    recipe.run("flush");
    recipe.run("snapshot");
    let then = expected.clone();
    recipe.write("disk", &mut expected, 13);
    recipe.run("out");
    daemon.stop();
    drop(server);
    for (name, content) in [("disk@today", &then), ("disk", &expected)] {
        assert_holds(&cluster.export(name), content);
    }
}

#[test]
fn the_recipe_of_guests_works_as_it_is_written() {
    let mut recipe = Recipe::new("guests", include_str!("../../../docs/recipes/qemu.md"));
    let disk = recipe.with_disk("DISK", 5);
    let second = recipe.with_disk("DISK2", 6);
    recipe.with_ssd("SSD");
    let backup = recipe.site.path("backup");
    recipe.variables.push(("BACKUP", backup.clone()));
    let (mut expected, mut other) = (bytes_of(&disk), bytes_of(&second));
    recipe.run("create");
    recipe.run("add");
    let daemon = recipe.serve("serve", "guest1");
    recipe.write("guest1", &mut expected, 10);
    recipe.write("guest2", &mut other, 11);
    assert!(recipe.run("look").contains("48 MiB"), "qemu-img sees the size");
    recipe.run("copy");
    recipe.run("out");
    daemon.stop();
    let raw = recipe.site.path("raw");
    tool("qemu-img", &["convert", "-O", "raw", &backup, &raw]);
    assert_eq!(first_difference(&disk, &raw), None, "the copy is what was written");
    assert_holds(&disk, &expected);
    assert_holds(&second, &other);
}
