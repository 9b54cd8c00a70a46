//! Origins over TLS: who the server is, who we are, and what is refused.

use super::server::Server;
use super::{Known, MIB, connect, create};
use crate::daemon::{Daemon, Site};
use crate::pki::certificates;

fn serve(site: &Site, image: &str, certificates: &str, more: &[&str]) -> Server {
    let directory = format!("--tls-certificates={certificates}");
    Server::nbdkit(site, "origin", &[&["--tls=require", &directory][..], more, &["file", image]].concat())
}

fn uri(server: &Server, certificates: &str, name: &str) -> String {
    let socket = server.socket();
    format!("nbds+unix:///?socket={socket}&tls-certificates={certificates}&tls-hostname={name}")
}

#[test]
fn an_origin_is_reached_over_tls() {
    let site = Site::new("origin-tls");
    let image = site.file("image", 48 * MIB);
    let certificates = certificates(&site, "pki", "nas");
    let mut server = serve(&site, &image, &certificates, &["--tls-verify-peer"]);
    let cache = create(&site, &uri(&server, &certificates, "nas"), 32 * MIB, &[]);
    let daemon = Daemon::start(&site, &cache, &[]);
    let mut known = Known::new(48 * MIB);
    let mut client = connect(&daemon);
    known.write(&mut client, 300);
    server.kill();
    server.again();
    known.write(&mut client, 300);
    known.compare(&mut client);
    site.run(&["detach", &cache, "--verify"]);
    daemon.stop();
    known.compare_file(&image);
}

#[test]
fn who_is_not_who_they_say_is_refused() {
    let site = Site::new("origin-tls-refused");
    let image = site.file("image", 32 * MIB);
    let cache = site.file("cache", 32 * MIB);
    let (right, wrong) = (certificates(&site, "right", "nas"), certificates(&site, "wrong", "nas"));
    let server = serve(&site, &image, &right, &["--tls-verify-peer"]);
    let refused = |origin: &str| {
        let line = site.refused(&["create", "--origin", origin, "--cache", &cache]);
        assert_eq!(line.trim_end().lines().count(), 1, "one line: {line}");
        line
    };
    let line = refused(&uri(&server, &right, "another"));
    assert!(line.contains("certificate is not valid"), "another name: {line}");
    let line = refused(&uri(&server, &wrong, "nas"));
    assert!(line.contains("certificate is not valid"), "an authority that we do not know: {line}");
    let line = refused(&server.uri());
    assert!(line.contains("wants TLS"), "no TLS: {line}");
    let line = refused(&uri(&server, &site.path("nowhere"), "nas"));
    assert!(line.contains("ca-cert.pem"), "no certificates: {line}");
    std::fs::remove_file(format!("{right}/client-key.pem")).expect("it was there");
    let line = refused(&uri(&server, &right, "nas"));
    assert!(line.contains("client-key.pem"), "no key: {line}");
    std::fs::remove_file(format!("{right}/client-cert.pem")).expect("it was there");
    let line = refused(&uri(&server, &right, "nas"));
    assert!(line.contains("refused us") || line.contains("closed"), "a client without a name: {line}");
    let plain = Server::file(&site, "plain", &image);
    let line = refused(&uri(&plain, &wrong, "nas"));
    assert!(line.contains("does not offer TLS"), "{line}");
    let bytes = std::fs::read(&cache).expect("the cache");
    assert!(bytes.iter().all(|&byte| byte == 0), "nothing was written");
}
