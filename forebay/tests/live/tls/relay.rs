//! Relay for programs that speak TLS and not NBD: it agrees with the server on TLS, and passes on the rest.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};

/// A port behind which the server speaks TLS from the first byte.
pub struct Relay {
    port: u16,
}

impl Relay {
    /// A relay to the server at this port of this machine; it ends with the process.
    pub fn to(server: u16) -> Relay {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("it is bound").port();
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                std::thread::spawn(move || pass_on(client, server));
            }
        });
        Relay { port }
    }

    /// Its port.
    pub fn port(&self) -> u16 {
        self.port
    }
}

fn pass_on(client: TcpStream, server: u16) -> io::Result<()> {
    let mut stream = TcpStream::connect(("127.0.0.1", server))?;
    stream.read_exact(&mut [0; 18])?;
    let wish = [&3u32.to_be_bytes()[..], b"IHAVEOPT", &5u32.to_be_bytes(), &0u32.to_be_bytes()].concat();
    stream.write_all(&wish)?;
    let mut reply = [0; 20];
    stream.read_exact(&mut reply)?;
    assert_eq!(reply[12..16], 1u32.to_be_bytes(), "the server agrees to TLS");
    let (mut from, mut to) = (client.try_clone()?, stream.try_clone()?);
    let there = std::thread::spawn(move || {
        let _ = io::copy(&mut from, &mut to);
        let _ = to.shutdown(Shutdown::Write);
    });
    let mut client = client;
    let _ = io::copy(&mut stream, &mut client);
    let _ = client.shutdown(Shutdown::Both);
    let _ = there.join();
    Ok(())
}
