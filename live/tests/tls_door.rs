//! Goal: over TLS a client is served as in the clear, and one that means harm gets nothing, loses nothing and keeps
//! nobody from being served. Method: a server with certificates of openssl's; clients of our own, byte by byte.

#[allow(dead_code, reason = "other tests need more of it")]
mod support;

use forebay_live::nbd::wire::protocol::*;
use forebay_live::nbd::wire::{RawRequest, encode_request};
use forebay_live::passthrough::Passthrough;
use forebay_live::server::{Acceptor, ClientLimits, ListenAddress, Refusal, ServerNotice, TlsClients};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use support::{Running, pattern, run, serve_with};
use tempfile::TempDir;

const MIB: usize = 1 << 20;
/// Longest wait of a client that is to be served.
const PATIENCE: Duration = Duration::from_secs(20);

type Secure = StreamOwned<ClientConnection, TcpStream>;

/// A server over TLS, with its certificates and those of a client.
struct Site {
    running: Running<Passthrough>,
    port: u16,
    pki: TempDir,
}

/// Certificates of an authority, a server and a client in a directory.
fn make_certificates(directory: &Path) {
    let file = |name: &str| directory.join(name).display().to_string();
    let key =
        ["req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-x509"];
    let (authority, authority_key) = (file("ca-cert.pem"), file("ca-key.pem"));
    run(
        "openssl",
        &[&key[..], &["-subj", "/CN=tests", "-keyout", &authority_key, "-out", &authority]].concat(),
    );
    for who in ["server", "client"] {
        let (its_key, its) = (file(&format!("{who}-key.pem")), file(&format!("{who}-cert.pem")));
        let signed = ["-CA", &authority, "-CAkey", &authority_key, "-subj", "/CN=one"];
        let names =
            ["-addext", "subjectAltName=DNS:localhost", "-addext", "basicConstraints=critical,CA:FALSE"];
        run("openssl", &[&key[..], &signed, &names, &["-keyout", &its_key, "-out", &its]].concat());
    }
}

impl Site {
    fn new(size: &str, limits: ClientLimits) -> Site {
        let pki = tempfile::tempdir().unwrap();
        make_certificates(pki.path());
        let acceptor = Acceptor::open(pki.path(), TlsClients::Certified).unwrap();
        let running = serve_with(&format!("mem:{size}"), Passthrough::new(), |config| {
            config.listen.push("127.0.0.1:0".parse().unwrap());
            config.tls = Some(Arc::new(acceptor));
            config.limits = limits;
        });
        let port = running.addresses.iter().find_map(|address| match address {
            ListenAddress::Tcp(address) => Some(address.port()),
            ListenAddress::Unix(_) => None,
        });
        Site { port: port.unwrap(), running, pki }
    }

    /// A connection on which the server has agreed to TLS.
    fn agreed(&self) -> TcpStream {
        let mut stream = self.greeted();
        stream.write_all(&option(OPT_STARTTLS, &[])).unwrap();
        let mut reply = [0; OPTION_REPLY_HEADER_BYTES];
        stream.read_exact(&mut reply).unwrap();
        assert_eq!(reply[12..16], REP_ACK.to_be_bytes());
        stream
    }

    fn greeted(&self) -> TcpStream {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.read_exact(&mut [0; GREETING_BYTES]).unwrap();
        stream.write_all(&3u32.to_be_bytes()).unwrap();
        stream
    }

    fn config(&self) -> Arc<ClientConfig> {
        let file = |name: &str| self.pki.path().join(name);
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(file("ca-cert.pem")).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let own = vec![CertificateDer::from_pem_file(file("client-cert.pem")).unwrap()];
        let key = PrivateKeyDer::from_pem_file(file("client-key.pem")).unwrap();
        let builder =
            ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        Arc::new(builder.with_root_certificates(roots).with_client_auth_cert(own, key).unwrap())
    }

    fn secure(&self) -> Secure {
        let name = ServerName::try_from("localhost").unwrap();
        StreamOwned::new(ClientConnection::new(self.config(), name).unwrap(), self.agreed())
    }

    /// A client in its transmission.
    fn connect(&self) -> Secure {
        let mut stream = self.secure();
        let name = [&4u32.to_be_bytes()[..], b"disk", &0u16.to_be_bytes()].concat();
        stream.write_all(&option(OPT_GO, &name)).unwrap();
        loop {
            let mut head = [0; OPTION_REPLY_HEADER_BYTES];
            stream.read_exact(&mut head).unwrap();
            let number = |at: usize| u32::from_be_bytes(head[at..at + 4].try_into().unwrap());
            stream.read_exact(&mut vec![0; number(16) as usize]).unwrap();
            if number(12) == REP_ACK {
                return stream;
            }
            assert_eq!(number(12), REP_INFO);
        }
    }

    fn refusals(&self) -> Vec<Refusal> {
        let notices = self.running.notices.lock().unwrap();
        let refusal = |notice: &ServerNotice| match notice {
            ServerNotice::ClientRefused { refusal, .. } => Some(refusal.clone()),
            _ => None,
        };
        notices.iter().filter_map(refusal).collect()
    }

    /// Waits until a client was refused for such a reason.
    fn expects_refusal(&self, kind: &str) {
        let end = Instant::now() + PATIENCE;
        while !self.refusals().iter().any(|refusal| refusal.kind() == kind) {
            assert!(Instant::now() < end, "nobody was refused for {kind}: {:?}", self.refusals());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// A client comes and is served.
    fn serves(&self) {
        let mut client = self.connect();
        let content = pattern(9, 4096);
        write(&mut client, 4096, &content);
        assert!(read(&mut client, 4096, 4096) == content);
    }
}

fn option(number: u32, data: &[u8]) -> Vec<u8> {
    let len_bytes = u32::try_from(data.len()).unwrap();
    [&OPTION_MAGIC.to_be_bytes()[..], &number.to_be_bytes(), &len_bytes.to_be_bytes(), data].concat()
}

fn request(command: u16, offset_bytes: u64, len_bytes: usize) -> Vec<u8> {
    let len_bytes = u32::try_from(len_bytes).unwrap();
    encode_request(&RawRequest { flags: 0, command, cookie: offset_bytes, offset_bytes, len_bytes }).to_vec()
}

/// Reads a simple reply, which must tell of success, and its payload.
fn reply(client: &mut Secure, len_bytes: usize) -> Vec<u8> {
    let mut head = [0; SIMPLE_REPLY_BYTES];
    client.read_exact(&mut head).unwrap();
    assert_eq!(head[..8], [&SIMPLE_REPLY_MAGIC.to_be_bytes()[..], &[0; 4]].concat());
    let mut payload = vec![0; len_bytes];
    client.read_exact(&mut payload).unwrap();
    payload
}

fn write(client: &mut Secure, offset_bytes: u64, content: &[u8]) {
    client.write_all(&request(CMD_WRITE, offset_bytes, content.len())).unwrap();
    client.write_all(content).unwrap();
    reply(client, 0);
}

fn read(client: &mut Secure, offset_bytes: u64, len_bytes: usize) -> Vec<u8> {
    client.write_all(&request(CMD_READ, offset_bytes, len_bytes)).unwrap();
    reply(client, len_bytes)
}

/// Sizes from a sector to what is cut into many pieces, and places that are not aligned.
#[test]
fn what_is_written_over_tls_is_read_over_tls_and_in_the_clear() {
    let site = Site::new("96M", ClientLimits::default());
    let mut client = site.connect();
    let mut plain = site.running.connect();
    let mut at = 512;
    for (turn, len) in
        [512, 4096, 15 * 1024, 16 * 1024, 70_144, MIB, 3 * MIB + 512, 20 * MIB].into_iter().enumerate()
    {
        let content = pattern(turn as u64, len);
        write(&mut client, at, &content);
        assert!(read(&mut client, at, len) == content, "{len} bytes at {at} over TLS");
        assert!(
            plain.read(at, u32::try_from(len).unwrap()).unwrap().unwrap() == content,
            "{len} bytes at {at}"
        );
        at += len as u64 + 512;
    }
    // In the other direction, too.
    let content = pattern(99, MIB);
    plain.write(at, &content).unwrap().unwrap();
    assert!(read(&mut client, at, MIB) == content);
    client.write_all(&request(CMD_DISC, 0, 0)).unwrap();
    let mut rest = Vec::new();
    // The server takes its leave as TLS wants it: anything else would be an error here.
    client.read_to_end(&mut rest).unwrap();
    assert_eq!((rest.len(), site.refusals()), (0, Vec::new()));
}

/// Requests that come all at once, and replies that are taken late.
#[test]
fn many_requests_are_under_way_over_tls() {
    let site = Site::new("32M", ClientLimits::default());
    let mut client = site.connect();
    let block = 24 * 1024;
    let mut all = Vec::new();
    for number in 0..200 {
        all.extend(request(CMD_WRITE, number * block, block as usize));
        all.extend(pattern(number, block as usize));
    }
    client.write_all(&all).unwrap();
    (0..200).for_each(|_| drop(reply(&mut client, 0)));
    let reads: Vec<u8> =
        (0..200).flat_map(|number| request(CMD_READ, number * block, block as usize)).collect();
    client.write_all(&reads).unwrap();
    std::thread::sleep(Duration::from_millis(300));
    let mut seen = [false; 200];
    for _ in 0..200 {
        let mut head = [0; SIMPLE_REPLY_BYTES];
        client.read_exact(&mut head).unwrap();
        let number = u64::from_be_bytes(head[8..].try_into().unwrap()) / block;
        let mut payload = vec![0; block as usize];
        client.read_exact(&mut payload).unwrap();
        assert!(payload == pattern(number, block as usize), "block {number}");
        assert!(!std::mem::replace(&mut seen[number as usize], true));
    }
}

#[test]
fn clients_that_stop_in_their_handshake_lock_out_nobody() {
    let site = Site::new("1M", ClientLimits { clients: 48, ..ClientLimits::default() });
    let mut halves = Vec::new();
    for number in 0..48 {
        let mut stream = site.agreed();
        if number % 2 == 0 {
            // The head of a record that announces more than ever comes.
            stream.write_all(&[22, 3, 1, 0x40, 0, 1, 0, 0x3f, 0xfc]).unwrap();
        }
        halves.push(stream);
    }
    for _ in 0..3 {
        site.serves();
    }
    assert_eq!(site.running.handle.clients().unwrap().limit, 48);
}

/// Bytes behind the option are records of TLS, whatever they look like: else somebody on the way could put words into
/// the client's mouth.
#[test]
fn words_in_the_clear_behind_the_option_are_not_heard() {
    let site = Site::new("1M", ClientLimits::default());
    let mut stream = site.greeted();
    stream.write_all(&[option(OPT_STARTTLS, &[]), option(OPT_LIST, &[])].concat()).unwrap();
    let mut answers = Vec::new();
    // It may end with a reset: not all was read.
    let _ = stream.read_to_end(&mut answers);
    assert_eq!(answers[12..16], REP_ACK.to_be_bytes());
    let rest = &answers[OPTION_REPLY_HEADER_BYTES..];
    assert!(rest.is_empty() || rest[0] == 21, "an alert of TLS and nothing else: {rest:?}");
    site.expects_refusal("garbled");
    site.serves();
}

#[test]
fn who_comes_in_the_clear_is_told_and_refused() {
    let site = Site::new("1M", ClientLimits::default());
    let mut stream = site.greeted();
    stream.write_all(&option(OPT_LIST, &[])).unwrap();
    let mut reply = [0; OPTION_REPLY_HEADER_BYTES];
    stream.read_exact(&mut reply).unwrap();
    assert_eq!(reply[12..16], REP_ERR_TLS_REQD.to_be_bytes());
    drop(stream);
    site.expects_refusal("no TLS");
    assert_eq!(site.running.handle.clients().unwrap().refused, 1);
    site.serves();
}

/// A record that was changed on its way ends its connection, and no byte of it is written.
#[test]
fn a_record_that_was_changed_ends_the_connection() {
    let site = Site::new("8M", ClientLimits::default());
    let mut client = site.connect();
    let content = pattern(1, 64 * 1024);
    write(&mut client, 0, &content);
    let mut sealed = Vec::new();
    client.conn.writer().write_all(&request(CMD_WRITE, 0, content.len())).unwrap();
    client.conn.writer().write_all(&[7; 40 * 1024]).unwrap();
    while client.conn.wants_write() {
        client.conn.write_tls(&mut sealed).unwrap();
    }
    let middle = sealed.len() / 2;
    sealed[middle] ^= 1;
    client.sock.write_all(&sealed).unwrap();
    let mut rest = Vec::new();
    // Closed, with or without a word.
    let _ = client.sock.read_to_end(&mut rest);
    site.expects_refusal("garbled");
    let mut other = site.connect();
    assert!(read(&mut other, 0, content.len()) == content, "the write did not come whole");
}

/// Any bytes in place of TLS, from many clients: the server goes on.
#[test]
fn garbage_in_place_of_tls_harms_nobody() {
    let site = Site::new("1M", ClientLimits::default());
    for turn in 0..120u64 {
        let mut stream = site.agreed();
        let mut bytes = pattern(turn, 1 + (turn as usize * 97) % 5000);
        if turn % 3 == 0 {
            // The head of a record of a handshake, so that more of it is looked at.
            let head = [22, 3, 1, (bytes.len() >> 8) as u8 & 0x3f, bytes.len() as u8, 1];
            bytes.splice(0..0, head);
        }
        let _ = stream.write_all(&bytes);
    }
    site.serves();
}

/// Who asks for much and takes nothing holds what a client may hold, and keeps nobody waiting.
#[test]
fn a_client_that_takes_nothing_holds_its_share() {
    let limits = ClientLimits { memory_bytes: MIB as u64, requests: 64, ..ClientLimits::default() };
    let site = Site::new("8M", limits);
    let mut greedy = site.connect();
    greedy.sock.set_write_timeout(Some(Duration::from_secs(1))).unwrap();
    for number in 0..512 {
        if greedy.write_all(&request(CMD_READ, number * 4096, 256 * 1024)).is_err() {
            break;
        }
    }
    let began = Instant::now();
    site.serves();
    let mut plain = site.running.connect();
    assert!(plain.read(0, 1 << 20).unwrap().is_ok(), "and more than a share in one request");
    assert!(began.elapsed() < PATIENCE, "{:?}", began.elapsed());
}
