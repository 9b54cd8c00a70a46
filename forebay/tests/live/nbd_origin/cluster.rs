//! A real Ceph cluster: an RBD image behind qemu-nbd, through deaths of the daemon, of qemu-nbd and of the OSD.
//!
//! `FOREBAY_LIVES` is how often the daemon dies (2).

use super::MIB;
use super::ordeal::Ordeal;
use super::scripts::{Process, Script};
use super::server::Server;
use crate::daemon::Site;
use crate::settings::number;
use std::time::Duration;

const CEPH: Script = Script("ceph");
const SIZE: u64 = 64 * MIB;
/// Less than the image, so that data goes home and comes back all the time.
const CACHE_BYTES: u64 = 32 * MIB;

/// A monitor and an OSD, with an image.
pub struct Cluster<'site> {
    site: &'site Site,
    directory: String,
    osd: Option<Process>,
    _monitor: Process,
}

impl<'site> Cluster<'site> {
    /// A new cluster; `None` if it is not to be had here.
    pub fn new(site: &'site Site, test: &str, size_bytes: u64) -> Option<Cluster<'site>> {
        if CEPH.is_left_out(test) {
            return None;
        }
        let directory = site.path("ceph");
        CEPH.run(&["make", &directory]);
        let monitor = CEPH.start(site, &["mon", &directory]);
        let osd = CEPH.start(site, &["osd", &directory]);
        CEPH.run(&["image", &directory, &(size_bytes / MIB).to_string()]);
        Some(Cluster { site, directory, osd: Some(osd), _monitor: monitor })
    }

    /// A command that finds the cluster.
    fn run(&self, command: &[&str]) -> String {
        CEPH.run(&[&["run", &self.directory][..], command].concat())
    }

    /// The variables by which programs find it, one a line.
    pub fn environment(&self) -> String {
        self.run(&["env"])
    }

    /// qemu-nbd with the image.
    fn serve(&self) -> Server {
        let socket = self.site.path("rbd.sock");
        let words = CEPH.words(&["nbd", &self.directory, &socket]);
        Server::command(&socket, words, "disk")
    }

    /// The OSD stops, and starts again after a while.
    fn restart_osd(&mut self, pause: Duration) {
        self.osd.take().expect("it runs").stop();
        std::thread::sleep(pause);
        self.osd = Some(CEPH.start(self.site, &["osd", &self.directory]));
    }

    /// The same without a warning.
    fn kill_osd(&mut self, pause: Duration) {
        drop(self.osd.take());
        std::thread::sleep(pause);
        self.osd = Some(CEPH.start(self.site, &["osd", &self.directory]));
    }

    /// A file with an image, or its snapshot, as the cluster has it.
    pub fn export(&self, image: &str) -> String {
        let path = self.site.path(&format!("exported-{image}"));
        self.run(&["rbd", "export", "--no-progress", image, &path]);
        path
    }
}

#[test]
fn an_image_of_a_real_cluster_is_what_clients_saw() {
    let site = Site::new("origin-ceph");
    let Some(mut cluster) = Cluster::new(&site, "the test with a Ceph cluster", SIZE) else {
        return;
    };
    let mut ordeal = Ordeal::new(&site, cluster.serve(), CACHE_BYTES, SIZE, 8);
    let pause = Duration::from_secs(1);
    for life in 0..number("FOREBAY_LIVES", 2) {
        ordeal.live(Duration::from_secs(4), |operator| match life % 3 {
            0 => operator.restart_server(),
            1 => cluster.restart_osd(pause),
            _ => cluster.kill_osd(pause),
        });
    }
    ordeal.fio(|operator| {
        operator.restart_server();
        cluster.restart_osd(pause);
    });
    ordeal.come_home(|| cluster.export("disk"));
}
