//! A bucket of a real S3 server: nbdkit's S3 plugin, through deaths of the daemon and of nbdkit.
//!
//! `FOREBAY_LIVES` is how often the daemon dies (2).

use super::ordeal::Ordeal;
use super::scripts::{Process, Script};
use super::server::Server;
use super::{MIB, create};
use crate::daemon::{Site, tool};
use crate::settings::number;
use std::time::Duration;

const BUCKET: Script = Script("bucket");
const SIZE: u64 = 2 * MIB;

/// A server with a bucket.
pub struct Bucket<'site> {
    site: &'site Site,
    port: String,
    _server: Process,
}

impl<'site> Bucket<'site> {
    /// A new bucket; `None` if it is not to be had here.
    pub fn new(site: &'site Site, test: &str) -> Option<Bucket<'site>> {
        if BUCKET.is_left_out(test) {
            return None;
        }
        let free = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = free.local_addr().expect("its address").port().to_string();
        drop(free);
        let server = BUCKET.start(site, &["serve", &port]);
        BUCKET.run(&["make", &port]);
        Some(Bucket { site, port, _server: server })
    }

    /// Where S3 is spoken.
    pub fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// The variables by which programs find it, one a line.
    pub fn environment(&self) -> String {
        BUCKET.run(&["run", "env"])
    }

    /// nbdkit with a disk in the bucket.
    fn serve(&self, name: &str) -> Server {
        let socket = self.site.path(name);
        let words = BUCKET.words(&["nbd", &self.port, &socket, &(SIZE / MIB).to_string()]);
        Server::command(&socket, words, "")
    }
}

#[test]
fn a_disk_in_a_bucket_is_what_clients_saw() {
    let site = Site::new("origin-s3");
    let Some(bucket) = Bucket::new(&site, "the test with a bucket") else {
        return;
    };
    let mut ordeal = Ordeal::new(&site, bucket.serve("s3.sock"), 32 * MIB, SIZE, 8);
    for _ in 0..number("FOREBAY_LIVES", 2) {
        ordeal.live(Duration::from_secs(4), |operator| operator.restart_server());
    }
    ordeal.fio(|operator| operator.restart_server());
    ordeal.come_home(|| {
        let path = site.path("exported");
        let another = bucket.serve("another.sock");
        tool("nbdcopy", &["--no-extents", &another.uri(), &path]);
        path
    });
}

/// Nothing is written, and one line says what is wrong, if the server of a bucket has no keys.
#[test]
fn a_bucket_without_keys_is_refused() {
    let site = Site::new("origin-s3-keys");
    let Some(bucket) = Bucket::new(&site, "the test with a bucket without keys") else {
        return;
    };
    let socket = site.path("s3.sock");
    let endpoint = format!("endpoint-url={}", bucket.endpoint());
    let without =
        ["env", "-u", "AWS_ACCESS_KEY_ID", "-u", "AWS_SECRET_ACCESS_KEY", "AWS_EC2_METADATA_DISABLED=true"];
    let home = site.path("nobody");
    let home = format!("HOME={home}");
    let serve = ["nbdkit", "--foreground", "--unix", &socket, "--filter=blocksize", "S3", &endpoint];
    let disk = ["bucket=disks", "key=disk", "size=4M", "object-size=64k", "minblock=64k"];
    let words = BUCKET.words(&[&["run"][..], &without, &[&home], &serve, &disk].concat());
    let server = Server::command(&socket, words, "");
    let cache = site.file("cache", 32 * MIB);
    let line = site.refused(&["create", "--origin", &server.uri(), "--cache", &cache, "--name", "disk"]);
    assert_eq!(line.trim_end().lines().count(), 1, "one line: {line}");
    assert!(line.contains("cannot read the origin at byte 0"), "{line}");
    assert!(std::fs::read(&cache).expect("the cache").iter().all(|&byte| byte == 0), "nothing was written");
    drop(server);
    // With its keys it is an origin.
    let server = bucket.serve("right.sock");
    create(&site, &server.uri(), 32 * MIB, &[]);
}
