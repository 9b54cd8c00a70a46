//! Goal: volumes are served over TLS to those who may, to the tools that people have, and to nobody else.
//! Method: the daemon with certificates of openssl's; libnbd, QEMU, fio and openssl as clients.

mod relay;

use crate::clients::run_fio;
use crate::daemon::{Daemon, Site, first_difference, tool, try_tool};
use crate::nbd_origin::server::Server;
use crate::pki::{self, certificates};
use live::nbd::client::{Address, Client};
use relay::Relay;
use serde_json::Value;
use std::fs;
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;

/// A cache in front of an empty origin, served over TLS.
struct Served {
    daemon: Daemon,
    cache: String,
    port: u16,
    /// The certificates of server and client.
    pki: String,
}

impl Served {
    fn new(site: &Site, origin_bytes: u64, options: &[&str]) -> Served {
        let origin = site.file("origin", origin_bytes);
        let cache = site.file("cache", 64 * MIB);
        site.run(&["create", "--origin", &origin, "--cache", &cache, "--name", "disk"]);
        let pki = certificates(site, "pki", "localhost");
        Served::start(site, cache, pki, options)
    }

    fn start(site: &Site, cache: String, pki: String, options: &[&str]) -> Served {
        let secure = ["--nbd", "127.0.0.1:0", "--tls-certificates", &pki];
        let daemon = Daemon::start(site, &cache, &[&secure[..], options].concat());
        let addresses = daemon.ready().split("nbd=").nth(1).expect("addresses").split(' ').next();
        let port = addresses.and_then(|all| all.rsplit(':').next()).expect("a port").parse();
        Served { port: port.expect("a number"), daemon, cache, pki }
    }

    /// The export, for a client with these certificates.
    fn uri(&self, pki: &str) -> String {
        format!("nbds://localhost:{}/disk?tls-certificates={pki}", self.port)
    }

    /// A client must not be served, and the log must say why in one line more.
    fn refuses(&self, site: &Site, why: &str, client: impl FnOnce() -> bool) {
        let lines = |site: &Site| -> Vec<String> {
            let log = fs::read_to_string(site.path("daemon.log")).expect("a log");
            log.lines().filter(|line| line.contains("[F60]")).map(str::to_owned).collect()
        };
        let before = lines(site).len();
        assert!(!client(), "{why}: it is served");
        let end = Instant::now() + Duration::from_secs(20);
        let new = loop {
            let new = lines(site).split_off(before);
            if !new.is_empty() {
                break new;
            }
            assert!(Instant::now() < end, "{why}: nothing is said");
            std::thread::sleep(Duration::from_millis(20));
        };
        assert!(
            new.len() == 1 && new[0].contains("the client at 127.0.0.1:") && new[0].contains(why),
            "{why}: {new:?}"
        );
    }
}

fn is_served(uri: &str) -> bool {
    try_tool("nbdinfo", &["--size", uri]).status.success()
}

/// What goes in over TLS comes out over TLS, with io_uring and with threads, and is at home in the end.
#[test]
fn tools_work_over_tls() {
    for (name, threads) in [("tls-ring", "0"), ("tls-threads", "1")] {
        let site = Site::new(name).with("FOREBAY_NO_IO_URING", threads);
        let size_bytes = 96 * MIB;
        let served = Served::new(&site, size_bytes, &[]);
        let uri = served.uri(&served.pki);
        let info: Value = serde_json::from_str(&tool("nbdinfo", &["--json", &uri])).expect("JSON");
        assert_eq!(
            (&info["TLS"], &info["exports"][0]["export-size"]),
            (&Value::Bool(true), &size_bytes.into())
        );
        assert_eq!(info["structured"], true);
        let input = site.noise("input", size_bytes, 7);
        tool("nbdcopy", &["--flush", "--requests=16", &input, &uri]);
        let output = site.path("output");
        tool("nbdcopy", &[&uri, &output]);
        assert_eq!(first_difference(&input, &output), None, "nbdcopy");
        // QEMU, by its own names for the same directory.
        let credentials = format!("tls-creds-x509,id=tls,endpoint=client,dir={}", served.pki);
        let image = format!(
            "driver=nbd,server.type=inet,server.host=localhost,server.port={},export=disk,tls-creds=tls",
            served.port
        );
        let taken = site.path("taken");
        tool("qemu-img", &["convert", "--object", &credentials, "--image-opts", &image, "-O", "raw", &taken]);
        assert_eq!(first_difference(&input, &taken), None, "qemu-img");
        // fio's libnbd may not be told of certificates: nbdkit stands between, another client of our own.
        let (port, credentials) =
            (format!("port={}", served.port), format!("tls-certificates={}", served.pki));
        let to = ["nbd", "hostname=localhost", &port, "export=disk", "tls=require", &credentials];
        let between = Server::nbdkit(&site, "between", &to);
        let job = [
            "--name=verify".to_owned(),
            "--ioengine=nbd".to_owned(),
            format!("--uri={}", between.uri()),
            "--size=32M".to_owned(),
            "--rw=randwrite".to_owned(),
            "--bsrange=512-256k".to_owned(),
            "--blockalign=512".to_owned(),
            "--iodepth=16".to_owned(),
            "--verify=crc32c".to_owned(),
            "--verify_fatal=1".to_owned(),
            "--verify_state_save=0".to_owned(),
        ];
        run_fio(&job);
        drop(between);
        let Served { daemon, cache, .. } = served;
        site.run(&["flush", &cache]);
        daemon.stop();
        assert_eq!(site.report(&["check", &cache])["ok"], true);
    }
}

/// openssl's own client: versions of TLS, and the names in our certificate.
#[test]
fn openssl_agrees() {
    let site = Site::new("tls-openssl");
    let served = Served::new(&site, 16 * MIB, &[]);
    let relay = Relay::to(served.port);
    let file = |name: &str| format!("{}/{name}.pem", served.pki);
    let (authority, own, key) = (file("ca-cert"), file("client-cert"), file("client-key"));
    let connect = format!("127.0.0.1:{}", relay.port());
    let says = |more: &[&str]| {
        let plain = ["s_client", "-connect", &connect, "-CAfile", &authority, "-cert", &own, "-key", &key];
        let verified = ["-verify_return_error", "-verify_hostname", "localhost"];
        let output = try_tool("openssl", &[&plain[..], &verified, more].concat());
        String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
    };
    for version in ["-tls1_2", "-tls1_3"] {
        let said = says(&[version]);
        assert!(
            said.contains("Verify return code: 0 (ok)") || said.contains("Verification: OK"),
            "{version}: {said}"
        );
    }
    let said = says(&["-tls1_1", "-cipher", "ALL:@SECLEVEL=0"]);
    assert!(
        said.contains("alert") && !said.contains("Cipher is TLS"),
        "a version that is no longer safe: {said}"
    );
    served.daemon.stop();
}

/// Each is refused with one line that says why; a client at work beside them notices nothing.
#[test]
fn who_may_not_is_refused() {
    let site = Site::new("tls-refused");
    let served = Served::new(&site, 32 * MIB, &[]);
    let mut beside =
        Client::connect(&Address::Unix(served.daemon.socket().to_path_buf()), "disk").expect("it is served");
    let content: Vec<u8> = (0..64 * 1024).map(|at| (at * 7 / 3) as u8).collect();
    let mut turn = 0;
    let mut works = || {
        let at = turn * 65_536;
        beside.write(at, &content).expect("it is connected").expect("it is taken");
        assert_eq!(beside.read(at, 65_536).expect("it is connected").expect("it is there"), content);
        turn += 1;
    };
    let plain = format!("nbd://localhost:{}/disk", served.port);
    served.refuses(&site, "it does not use TLS", || is_served(&plain));
    works();
    let stranger = certificates(&site, "stranger", "localhost");
    // It trusts the server, and comes with a certificate of another authority.
    let mixed = pki::copy(&site, &stranger, "mixed");
    fs::copy(format!("{}/ca-cert.pem", served.pki), format!("{mixed}/ca-cert.pem")).expect("a file");
    served.refuses(&site, "nobody in ca-cert.pem has signed it", || is_served(&served.uri(&mixed)));
    works();
    let late = pki::copy(&site, &served.pki, "late");
    pki::expire(&served.pki, &late);
    served.refuses(&site, "it has expired", || is_served(&served.uri(&late)));
    works();
    let nameless = pki::copy(&site, &served.pki, "nameless");
    fs::remove_file(format!("{nameless}/client-cert.pem")).expect("a file");
    fs::remove_file(format!("{nameless}/client-key.pem")).expect("a file");
    served.refuses(&site, "it has no certificate", || is_served(&served.uri(&nameless)));
    works();
    // It does not trust the server.
    let log = fs::read_to_string(site.path("daemon.log")).expect("a log");
    assert!(!is_served(&served.uri(&stranger)), "the server is not the one that the client trusts");
    let status = site.wait_for_status(&served.cache, "all are counted", |status| {
        status["clients"]["refused"].as_u64() >= Some(5)
    });
    works();
    assert_eq!(status["clients"]["limit"], 256);
    assert!(log.lines().all(|line| !line.contains("panic")), "{log}");
    let uri = served.uri(&served.pki);
    assert!(is_served(&uri), "who may is served after all of them");
    drop(beside);
    let Served { daemon, cache, pki, .. } = served;
    daemon.stop();
    // Without client certificates, if that is said.
    let served = Served::start(&site, cache, pki, &["--tls-any-client"]);
    assert!(is_served(&served.uri(&nameless)), "anybody who uses TLS");
    served.refuses(&site, "nobody in ca-cert.pem has signed it", || is_served(&served.uri(&mixed)));
    served.daemon.stop();
}

/// Certificates are renewed while the daemon runs: a reload reads them, and one that cannot be used changes nothing.
#[test]
fn certificates_are_read_again() {
    let site = Site::new("tls-renewed");
    let served = Served::new(&site, 16 * MIB, &[]);
    let old = pki::copy(&site, &served.pki, "old");
    let renewed = certificates(&site, "renewed", "localhost");
    let log = || fs::read_to_string(site.path("daemon.log")).expect("a log");
    let wait_until = |what: &str, is_so: &dyn Fn() -> bool| {
        let end = Instant::now() + Duration::from_secs(20);
        while !is_so() {
            assert!(Instant::now() < end, "{what}: {}", log());
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    fs::write(format!("{}/server-key.pem", served.pki), "no key").expect("a file");
    served.daemon.reload();
    wait_until("it says so", &|| log().contains("[F61] the former certificates stay: cannot use "));
    assert!(is_served(&served.uri(&old)), "the former certificates stay");
    for name in ["ca-cert", "server-cert", "server-key"] {
        fs::copy(format!("{renewed}/{name}.pem"), format!("{}/{name}.pem", served.pki)).expect("a file");
    }
    served.daemon.reload();
    wait_until("new clients see the new certificate", &|| is_served(&served.uri(&renewed)));
    assert!(!is_served(&served.uri(&old)), "the former authority has nothing to say any more");
    served.daemon.stop();
}

/// Certificates that are missing, broken, or not of each other: one line, and nothing is begun.
#[test]
fn certificates_that_do_not_fit_are_one_line() {
    let site = Site::new("tls-unfit");
    let origin = site.file("origin", 16 * MIB);
    let cache = site.file("cache", 32 * MIB);
    site.run(&["create", "--origin", &origin, "--cache", &cache, "--name", "disk"]);
    let (good, other) = (certificates(&site, "good", "localhost"), certificates(&site, "other", "localhost"));
    let before = fs::read(&cache).expect("the cache");
    let refused = |pki: &str, more: &[&str], words: &[&str]| {
        let serve = ["serve", &cache, "--nbd", "127.0.0.1:0", "--tls-certificates", pki];
        let line = site.refused(&[&serve[..], more].concat());
        assert_eq!(line.trim_end().lines().count(), 1, "one line: {line}");
        assert!(words.iter().all(|word| line.contains(word)), "{words:?} in {line}");
    };
    refused(&site.path("nowhere"), &[], &["nowhere/ca-cert.pem", "does not exist"]);
    let file = |name: &str| format!("{good}/{name}.pem");
    fs::copy(format!("{other}/server-key.pem"), file("server-key")).expect("a file");
    refused(&good, &[], &["server-cert.pem does not fit its key"]);
    fs::write(file("server-key"), "-----BEGIN PRIVATE KEY-----\n!!!\n-----END PRIVATE KEY-----\n")
        .expect("a file");
    refused(&good, &[], &["cannot use ", "server-key.pem"]);
    fs::write(file("server-key"), "").expect("a file");
    refused(&good, &[], &["server-key.pem: it holds no key"]);
    fs::remove_file(file("server-key")).expect("a file");
    fs::create_dir(file("server-key")).expect("a directory");
    refused(&good, &[], &["server-key.pem"]);
    fs::write(file("server-cert"), "x").expect("a file");
    refused(&good, &[], &["server-cert.pem: it holds no certificate"]);
    fs::remove_file(file("ca-cert")).expect("a file");
    refused(&good, &[], &["ca-cert.pem"]);
    refused(&good, &["--tls-any-client"], &["server-cert.pem: it holds no certificate"]);
    // In the clear only to this machine.
    let line = site.refused(&["serve", &cache, "--nbd", "0.0.0.0:0"]);
    assert!(
        line.contains("0.0.0.0:0 would be open to other machines") && line.contains("--insecure"),
        "{line}"
    );
    assert!(fs::read(&cache).expect("the cache") == before, "a start that is refused changes nothing");
    let daemon = Daemon::start(&site, &cache, &["--nbd", "0.0.0.0:0", "--insecure"]);
    daemon.stop();
}
