//! What cannot be an origin: one line each, and nothing is written anywhere.

use super::server::Server;
use super::{MIB, create};
use crate::daemon::{Daemon, Site};
use std::io::{Read, Write};
use std::os::unix::net::UnixListener;

fn refusal(site: &Site, arguments: &[&str]) -> String {
    let line = site.refused(arguments);
    assert_eq!(line.trim_end().lines().count(), 1, "one line: {line}");
    line
}

/// The refusal of `create` with this origin. The cache stays as it was.
fn refused(site: &Site, origin: &str, more: &[&str]) -> String {
    let cache = site.noise("cache", 32 * MIB, 9);
    let before = std::fs::read(&cache).expect("the cache");
    let create = ["create", "--origin", origin, "--cache", &cache, "--name", "disk", "--wipe", &cache];
    let line = refusal(site, &[&create[..], more].concat());
    assert!(std::fs::read(&cache).expect("the cache") == before, "nothing was written: {line}");
    line
}

#[test]
fn names_without_a_server_are_refused() {
    let site = Site::new("origin-nowhere");
    let nowhere = format!("nbd+unix:///?socket={}", site.path("nowhere"));
    assert!(refused(&site, &nowhere, &[]).contains("cannot be reached: no such file"));
    assert!(refused(&site, "nbd://127.0.0.1:1/disk", &[]).contains("cannot be reached: connection refused"));
    let cache = site.file("other", 32 * MIB);
    let usage = |origin: &str| {
        let output = site.try_run(&["create", "--origin", origin, "--cache", &cache]);
        assert_eq!(output.status.code(), Some(2), "{origin}");
        String::from_utf8(output.stderr).expect("text")
    };
    assert!(usage("nbd:").contains("names no host"));
    assert!(usage("nbd://host/disk?colour=red").contains("unknown parameter `colour`"));
    let swapped = ["create", "--origin", &cache, "--cache", "nbd://127.0.0.1:1/disk"];
    assert!(refusal(&site, &swapped).contains("cannot be a cache"));
}

#[test]
fn an_export_that_is_not_there_is_refused() {
    let site = Site::new("origin-no-export");
    let image = site.file("image", 32 * MIB);
    let server = Server::qemu(&site, "origin", &image);
    let uri = server.uri().replace("///disk", "///another");
    assert!(refused(&site, &uri, &[]).contains("has no export `another`"));
}

#[test]
fn an_export_is_used_by_one_daemon() {
    let (site, other) = (Site::new("origin-locked"), Site::new("origin-locked-other"));
    let image = site.file("image", 32 * MIB);
    let server = Server::file(&site, "origin", &image);
    let cache = create(&site, &server.uri(), 32 * MIB, &[]);
    let daemon = Daemon::start(&site, &cache, &[]);
    assert!(refused(&other, &server.uri(), &[]).contains("its lock is taken"));
    daemon.stop();
}

/// A read-only export has one mode.
#[test]
fn a_read_only_export_is_for_mode_readonly() {
    let site = Site::new("origin-read-only");
    let image = site.noise("image", 32 * MIB, 2);
    let server = Server::nbdkit(&site, "origin", &["--readonly", "file", &image]);
    assert!(refused(&site, &server.uri(), &[]).contains("lets nobody write to it"));
    let cache = site.file("small", 32 * MIB);
    site.run(&[
        "create",
        "--origin",
        &server.uri(),
        "--cache",
        &cache,
        "--name",
        "disk",
        "--mode",
        "readonly",
    ]);
    let daemon = Daemon::start(&site, &cache, &[]);
    let output = site.path("output");
    for _ in 0..2 {
        crate::daemon::tool("nbdcopy", &[&daemon.uri("disk"), &output]);
        assert_eq!(crate::daemon::first_difference(&image, &output), None);
    }
    assert!(refusal(&site, &["set", &cache, "disk", "mode=writeback"]).contains("lets nobody write to it"));
    daemon.stop();
}

/// A server that states more than it has: it shows where the end should be.
#[test]
fn a_size_that_is_a_lie_is_refused() {
    let site = Site::new("origin-size");
    let read = "pread=test $4 -lt 33554432 || { echo EIO beyond the end >&2; exit 1; }; \
                dd if=/dev/zero bs=64k iflag=count_bytes count=$3 status=none";
    let server =
        Server::nbdkit(&site, "origin", &["eval", "get_size=echo 64M", read, "pwrite=cat >/dev/null"]);
    assert!(refused(&site, &server.uri(), &[]).contains("cannot read the origin at byte"));
    drop(server);
    let server = Server::nbdkit(&site, "nothing", &["memory", "0"]);
    assert!(refused(&site, &server.uri(), &[]).contains("is empty"));
}

/// An export that is smaller than its volume when the daemon starts.
#[test]
fn a_start_refuses_a_smaller_export() {
    let site = Site::new("origin-smaller");
    let (image, small) = (site.file("image", 32 * MIB), site.file("small", 24 * MIB));
    let mut server = Server::file(&site, "origin", &image);
    let cache = create(&site, &server.uri(), 32 * MIB, &[]);
    let before = std::fs::read(&cache).expect("the cache");
    server.kill();
    server.again_with(&small);
    let line = refusal(&site, &["serve", &cache, "--nbd", &format!("unix:{}", site.path("door"))]);
    assert!(line.contains("24 MiB") || line.contains("smaller") || line.contains("shrunk"), "{line}");
    assert!(std::fs::read(&cache).expect("the cache") == before, "nothing was written");
    assert!(std::fs::read(&small).expect("the export").iter().all(|&byte| byte == 0));
}

/// Servers that send what is not NBD, or lie.
#[test]
fn what_does_not_speak_nbd_is_refused() {
    let site = Site::new("origin-liar");
    let newstyle = [&b"NBDMAGICIHAVEOPT"[..], &[0, 3]].concat();
    let cases: [(&str, Vec<u8>, &str); 4] = [
        ("silent", Vec::new(), "does not answer"),
        ("web", b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec(), "does not speak NBD"),
        ("hangs-up", newstyle.clone(), "closed the connection"),
        ("rubbish", [&newstyle[..], &[0xff; 64]].concat(), "does not speak NBD"),
    ];
    for (name, bytes, expected) in cases {
        let socket = site.path(name);
        let listener = UnixListener::bind(&socket).expect("a socket");
        let answering = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("a client");
            stream.write_all(&bytes).expect("the client listens");
            // What the client says must be read, or it gets a reset and not our bytes.
            let _ = stream.read(&mut [0; 64]);
            if name != "hangs-up" {
                let _ = std::io::copy(&mut stream, &mut std::io::sink());
            }
        });
        let line = refused(&site, &format!("nbd+unix:///disk?socket={socket}"), &[]);
        assert!(line.contains(expected), "{name}: {line}");
        answering.join().expect("it answered");
    }
}
