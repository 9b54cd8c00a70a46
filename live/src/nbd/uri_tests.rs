use super::*;
use proptest::prelude::*;

fn tcp(host: &str, port: u16, export: &str) -> NbdUri {
    let server = Server::Tcp { host: host.to_owned(), port };
    NbdUri { server, export: export.to_owned(), tls: None }
}

fn unix(socket: &str, export: &str) -> NbdUri {
    NbdUri { server: Server::Unix { socket: socket.into() }, export: export.to_owned(), tls: None }
}

#[test]
fn hosts_ports_and_exports_are_read() {
    for (text, uri) in [
        ("nbd://host/disk", tcp("host", PORT, "disk")),
        ("nbd://host", tcp("host", PORT, "")),
        ("nbd://host/", tcp("host", PORT, "")),
        ("nbd://host:/", tcp("host", PORT, "")),
        ("NBD://10.0.0.1:1234/a/b", tcp("10.0.0.1", 1234, "a/b")),
        ("nbd://host//a", tcp("host", PORT, "/a")),
        ("nbd://[::1]:99/a%20b%2Fc%23", tcp("::1", 99, "a b/c#")),
        ("nbd+unix:///disk?socket=/run/x.sock", unix("/run/x.sock", "disk")),
        ("nbd+unix:///?socket=/run/a%26b.sock", unix("/run/a&b.sock", "")),
    ] {
        assert_eq!(parse(text), Ok(uri), "{text}");
    }
}

#[test]
fn tls_has_a_directory_and_a_name() {
    let uri = parse("nbds://host/disk?tls-certificates=/etc/pki&tls-hostname=nas").unwrap();
    assert_eq!(uri.tls, Some(Tls { certificates: "/etc/pki".into(), hostname: Some("nas".to_owned()) }));
    assert_eq!(uri.to_string(), "nbds://host/disk?tls-certificates=/etc/pki&tls-hostname=nas");
    assert_eq!(uri.canonical(), "nbd://host/disk", "it is one export, however it is reached");
}

#[test]
fn wrong_names_say_what_is_wrong() {
    let line = |text: &str| {
        let line = parse(text).unwrap_err().to_string();
        assert!(!line.contains('\n'), "one line: {line}");
        line
    };
    assert!(line("nbd:").contains("names no host"));
    assert!(line("nbd:host:10809").contains("names no host"));
    assert!(line("nbd:///disk").contains("names no host"));
    assert!(line("nbd://ho st/disk").contains("is not a URI"));
    assert!(line("nbd://host/%zz").contains("is not a URI"));
    assert!(line("nbd://host/%ff").contains("must be UTF-8"));
    assert!(line("nbd://host/a%00b").contains("must be UTF-8"));
    assert!(line(&format!("nbd://host/{}", "a".repeat(4097))).contains("must be UTF-8"));
    assert!(line("nbd://host:0/disk").contains("is no port"));
    assert!(line("nbd://host:65536/disk").contains("is no port"));
    assert!(line("nbd://host:port/disk").contains("is not a URI"));
    assert!(line("nbd://me@host/disk").contains("pre-shared keys"));
    assert!(line("nbd://host/disk#part").contains("%23"));
    assert!(line("nbd://host/disk?sokcet=/x").contains("unknown parameter `sokcet`"));
    assert!(line("nbd://host/disk?socket=/x").contains("no meaning with `nbd:`"));
    assert!(line("nbd://host/disk?tls-certificates=/x").contains("no meaning with `nbd:`"));
    assert!(line("nbd+unix:///disk").contains("add ?socket="));
    assert!(line("nbd+unix:///disk?socket=").contains("needs a value"));
    assert!(line("nbd+unix:///disk?socket=/a&socket=/b").contains("given twice"));
    assert!(line("nbd+unix://disk?socket=/a").contains("three slashes"));
    assert!(line("nbds://host/disk").contains("needs tls-certificates=DIR"));
    assert!(line("nbds+unix:///d?socket=/x&tls-certificates=/y").contains("needs tls-hostname=NAME"));
    assert!(line("nbd+vsock:///disk").contains("is no kind of NBD"));
}

proptest! {
    #[test]
    fn what_is_written_is_read_again(export in "\\PC{0,20}", socket in "/[^\\x00]{1,20}", port in 1..=u16::MAX) {
        for uri in [tcp("host", port, &export), tcp("::1", port, &export), unix(&socket, &export)] {
            prop_assert_eq!(parse(&uri.to_string()), Ok(uri));
        }
    }

    #[test]
    fn no_text_is_too_strange(text in "(nbds?(\\+unix)?:)?(//)?\\PC{0,40}") {
        let _ = parse(&text);
    }
}
