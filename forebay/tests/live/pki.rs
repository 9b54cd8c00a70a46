//! Certificates for tests, made by openssl.

use crate::daemon::{Site, tool};
use std::fs;

/// A key that is quick to make.
const KEY: [&str; 5] = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"];

/// A directory of certificates, all from an authority of its own: of a server called `name`, and of a client.
pub fn certificates(site: &Site, directory: &str, name: &str) -> String {
    let directory = site.path(directory);
    fs::create_dir(&directory).expect("a new directory");
    let file = |name: &str| format!("{directory}/{name}.pem");
    let days = ["-days", "2", "-x509"];
    let (authority, authority_key) = (file("ca-cert"), file("ca-key"));
    let own = ["-subj", "/CN=tests", "-keyout", &authority_key, "-out", &authority];
    tool("openssl", &[&["req"][..], &KEY, &days, &own].concat());
    let names = format!("subjectAltName=DNS:{name}");
    for who in ["server", "client"] {
        let (its_key, its) = (file(&format!("{who}-key")), file(&format!("{who}-cert")));
        let signed = ["-CA", &authority, "-CAkey", &authority_key, "-subj", "/CN=one"];
        let extensions = ["-addext", &names, "-addext", "basicConstraints=critical,CA:FALSE"];
        let files = ["-keyout", &its_key, "-out", &its];
        tool("openssl", &[&["req"][..], &KEY, &days, &signed, &extensions, &files].concat());
    }
    directory
}

/// A copy of the directory for a client, with the authority and the client's own certificate.
pub fn copy(site: &Site, from: &str, to: &str) -> String {
    let to = site.path(to);
    fs::create_dir(&to).expect("a new directory");
    for name in ["ca-cert", "client-cert", "client-key"] {
        fs::copy(format!("{from}/{name}.pem"), format!("{to}/{name}.pem")).expect("a file of certificates");
    }
    to
}

/// Puts a client's certificate of the same authority into a directory that was valid until 2021.
pub fn expire(authority: &str, directory: &str) {
    let file = |name: &str| format!("{directory}/{name}");
    let request = ["req", "-new", "-subj", "/CN=one", "-addext", "basicConstraints=critical,CA:FALSE"];
    let (key, csr) = (file("client-key.pem"), file("client.csr"));
    tool("openssl", &[&request[..], &KEY, &["-keyout", &key, "-out", &csr]].concat());
    let (database, serial) = (file("index.txt"), file("serial"));
    fs::write(&database, "").expect("an empty file");
    fs::write(&serial, "1000\n").expect("a number");
    let settings = format!(
        "[ca]\ndefault_ca=d\n[d]\ndatabase={database}\nserial={serial}\nnew_certs_dir={directory}\n\
         default_md=sha256\npolicy=p\ncopy_extensions=copy\n[p]\ncommonName=supplied\n"
    );
    fs::write(file("ca.conf"), settings).expect("settings");
    let (conf, out) = (file("ca.conf"), file("client-cert.pem"));
    let (certificate, authority_key) =
        (format!("{authority}/ca-cert.pem"), format!("{authority}/ca-key.pem"));
    let dates = ["-startdate", "20200101000000Z", "-enddate", "20210101000000Z"];
    let files = ["-in", &csr, "-out", &out, "-cert", &certificate, "-keyfile", &authority_key];
    tool("openssl", &[&["ca", "-batch", "-notext", "-config", &conf][..], &dates, &files].concat());
}
