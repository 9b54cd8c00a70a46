//! Generic netlink: commands with attributes to one family of the kernel, and its answers.
//!
//! The bytes are [`netlink_packet_core`]'s; here are the four bytes of a generic header and the conversation.

use netlink_packet_core::{
    DecodeError, DefaultNla, Emitable, ErrorMessage, NLA_F_NESTED, NLM_F_ACK, NLM_F_REQUEST, NetlinkBuffer,
    NetlinkDeserializable, NetlinkHeader, NetlinkMessage, NetlinkPayload, NetlinkSerializable, Nla,
    NlasIterator, Parseable,
};
use rustix::net::netlink::{GENERIC, SocketAddrNetlink};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use std::io;
use std::os::fd::OwnedFd;

/// Bytes of the generic header: command, version, and two that are reserved.
const HEADER_BYTES: usize = 4;
/// Bytes of an answer at the most.
const ANSWER_BYTES_MAX: usize = 32 * 1024;
/// The version of every family that is asked here.
const VERSION: u8 = 1;

/// The family that knows the numbers of all others.
const CONTROL_FAMILY: u16 = 0x10;
/// Its command that asks for one by name. Source: `linux/genetlink.h`, as the two below.
const GET_FAMILY: u8 = 3;
/// The attribute with a family's number.
const FAMILY_ID: u16 = 1;
/// The attribute with its name.
const FAMILY_NAME: u16 = 2;

/// Command to a family, or its answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Command {
    family: u16,
    command: u8,
    attributes: Vec<Attribute>,
}

/// An attribute: its type, and bytes in this machine's order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Attribute(DefaultNla);

impl Attribute {
    /// A number of 32 bits.
    pub(super) fn number32(kind: u16, value: u32) -> Attribute {
        Attribute(DefaultNla::new(kind, value.to_ne_bytes().to_vec()))
    }

    /// A number of 64 bits.
    pub(super) fn number64(kind: u16, value: u64) -> Attribute {
        Attribute(DefaultNla::new(kind, value.to_ne_bytes().to_vec()))
    }

    /// A text, which the kernel wants with a zero at its end.
    pub(super) fn text(kind: u16, value: &str) -> Attribute {
        let mut bytes = value.as_bytes().to_vec();
        bytes.push(0);
        Attribute(DefaultNla::new(kind, bytes))
    }

    /// Attributes inside of one.
    pub(super) fn nest(kind: u16, inner: &[Attribute]) -> Attribute {
        let mut bytes = vec![0; inner.iter().map(|attribute| attribute.0.buffer_len()).sum()];
        let mut rest = bytes.as_mut_slice();
        for attribute in inner {
            let (place, behind) = rest.split_at_mut(attribute.0.buffer_len());
            attribute.0.emit(place);
            rest = behind;
        }
        Attribute(DefaultNla::new(kind | NLA_F_NESTED, bytes))
    }

    fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.0.value_len()];
        self.0.emit_value(&mut bytes);
        bytes
    }
}

impl Command {
    /// Value of the first attribute of this type.
    fn find(&self, kind: u16) -> Option<Vec<u8>> {
        self.attributes.iter().find(|attribute| attribute.0.kind() == kind).map(Attribute::bytes)
    }

    /// The number of 32 bits in the first attribute of this type.
    pub(super) fn find32(&self, kind: u16) -> Option<u32> {
        self.find(kind)?.try_into().ok().map(u32::from_ne_bytes)
    }

    /// The number of 16 bits in the first attribute of this type.
    fn find16(&self, kind: u16) -> Option<u16> {
        self.find(kind)?.try_into().ok().map(u16::from_ne_bytes)
    }
}

impl NetlinkSerializable for Command {
    fn message_type(&self) -> u16 {
        self.family
    }

    fn buffer_len(&self) -> usize {
        HEADER_BYTES + self.attributes.iter().map(|attribute| attribute.0.buffer_len()).sum::<usize>()
    }

    fn serialize(&self, buffer: &mut [u8]) {
        let (header, mut rest) = buffer.split_at_mut(HEADER_BYTES);
        header.copy_from_slice(&[self.command, VERSION, 0, 0]);
        for attribute in &self.attributes {
            let (place, behind) = rest.split_at_mut(attribute.0.buffer_len());
            attribute.0.emit(place);
            rest = behind;
        }
    }
}

impl NetlinkDeserializable for Command {
    type Error = DecodeError;

    fn deserialize(header: &NetlinkHeader, payload: &[u8]) -> Result<Command, DecodeError> {
        let Some((generic, attributes)) = payload.split_at_checked(HEADER_BYTES) else {
            return Err(DecodeError::buffer_too_small(payload.len(), HEADER_BYTES));
        };
        let attributes = NlasIterator::new(attributes)
            .map(|attribute| attribute.and_then(|attribute| DefaultNla::parse(&attribute)).map(Attribute))
            .collect::<Result<_, _>>()?;
        Ok(Command { family: header.message_type, command: generic[0], attributes })
    }
}

/// Bytes of a command that asks for an acknowledgement.
fn encode(command: Command, sequence: u32) -> Vec<u8> {
    let mut header = NetlinkHeader::default();
    header.flags = NLM_F_REQUEST | NLM_F_ACK;
    header.sequence_number = sequence;
    let mut message = NetlinkMessage::new(header, NetlinkPayload::InnerMessage(command));
    message.finalize();
    let mut bytes = vec![0; message.buffer_len()];
    message.serialize(&mut bytes);
    bytes
}

/// One message of the kernel's.
enum Said {
    /// It is done, or refused with this errno.
    Done(Result<(), i32>),
    /// An answer before that.
    Answer(Command),
    /// Of no concern here.
    Other,
}

/// The messages in one datagram that belong to this sequence number.
fn decode(mut datagram: &[u8], sequence: u32) -> Result<Vec<Said>, DecodeError> {
    let mut said = Vec::new();
    while !datagram.is_empty() {
        let length = NetlinkBuffer::new_checked(&datagram)?.length() as usize;
        let (this, behind) = datagram.split_at(length);
        let (header, payload) = NetlinkMessage::<Command>::deserialize(this)?.into_parts();
        said.push(match payload {
            _ if header.sequence_number != sequence => Said::Other,
            NetlinkPayload::Error(ErrorMessage { code: None, .. }) => Said::Done(Ok(())),
            NetlinkPayload::Error(ErrorMessage { code: Some(code), .. }) => {
                Said::Done(Err(code.get().saturating_neg()))
            }
            NetlinkPayload::InnerMessage(answer) => Said::Answer(answer),
            _ => Said::Other,
        });
        // Messages begin at multiples of four bytes.
        datagram = behind.get(length.next_multiple_of(4) - length..).unwrap_or(&[]);
    }
    Ok(said)
}

/// A conversation with one family.
pub(super) struct Family {
    socket: OwnedFd,
    number: u16,
    sequence: u32,
}

impl Family {
    /// Opens the conversation with the family of this name; `None` if the kernel has none.
    pub(super) fn open(name: &str) -> io::Result<Option<Family>> {
        let flags = SocketFlags::CLOEXEC;
        let socket = rustix::net::socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, Some(GENERIC))?;
        rustix::net::bind(&socket, &SocketAddrNetlink::new(0, 0))?;
        let mut family = Family { socket, number: CONTROL_FAMILY, sequence: 0 };
        let answer = match family.ask(GET_FAMILY, vec![Attribute::text(FAMILY_NAME, name)]) {
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => return Ok(None),
            answer => answer?,
        };
        let number = answer.and_then(|answer| answer.find16(FAMILY_ID));
        family.number = number.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))?;
        Ok(Some(family))
    }

    /// Gives a command, and waits until the kernel has carried it out; its answer, if it gave one. Descriptors in
    /// attributes are those of the calling thread.
    pub(super) fn ask(&mut self, command: u8, attributes: Vec<Attribute>) -> io::Result<Option<Command>> {
        self.sequence += 1;
        let bytes = encode(Command { family: self.number, command, attributes }, self.sequence);
        rustix::net::send(&self.socket, &bytes, SendFlags::empty())?;
        let mut buffer = vec![0; ANSWER_BYTES_MAX];
        let mut answer = None;
        loop {
            let (_, count) = match rustix::net::recv(&self.socket, buffer.as_mut_slice(), RecvFlags::empty())
            {
                Err(rustix::io::Errno::INTR) => continue,
                received => received?,
            };
            let said = decode(&buffer[..count.min(ANSWER_BYTES_MAX)], self.sequence);
            for said in said.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))? {
                match said {
                    Said::Done(Ok(())) => return Ok(answer),
                    Said::Done(Err(errno)) => return Err(io::Error::from_raw_os_error(errno)),
                    Said::Answer(found) => answer = Some(found),
                    Said::Other => {}
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bytes that a program in C sends for the same command, on a little-endian machine.
    #[test]
    #[cfg(target_endian = "little")]
    fn a_command_has_the_bytes_of_the_kernels_headers() {
        let socket = |fd| Attribute::nest(1, &[Attribute::number32(1, fd)]);
        let attributes = vec![
            Attribute::number32(1, 7),
            Attribute::number64(2, 0x1_0000_0000),
            Attribute::nest(7, &[socket(5), socket(6)]),
            Attribute::text(10, "ab"),
        ];
        let bytes = encode(Command { family: 0x1c, command: 1, attributes }, 3);
        #[rustfmt::skip]
        let expected: Vec<u8> = vec![
            // Length, family, request and acknowledgement, sequence, port.
            76, 0, 0, 0, 0x1c, 0, 5, 0, 3, 0, 0, 0, 0, 0, 0, 0,
            // Command, version.
            1, 1, 0, 0,
            // Length, type, value.
            8, 0, 1, 0, 7, 0, 0, 0,
            12, 0, 2, 0, 0, 0, 0, 0, 1, 0, 0, 0,
            28, 0, 7, 0x80,
                12, 0, 1, 0x80, 8, 0, 1, 0, 5, 0, 0, 0,
                12, 0, 1, 0x80, 8, 0, 1, 0, 6, 0, 0, 0,
            // Padded to four bytes; the length is without the padding.
            7, 0, 10, 0, b'a', b'b', 0, 0,
        ];
        assert_eq!(bytes, expected);
    }

    #[test]
    fn an_answer_and_its_acknowledgement_are_read_back() {
        let answer = Command { family: 0x1c, command: 1, attributes: vec![Attribute::number32(1, 9)] };
        let mut datagram = encode(answer.clone(), 4);
        // An acknowledgement is an error without a code, and repeats the header that it is for.
        let header = datagram[..16].to_vec();
        datagram.extend_from_slice(&36u32.to_ne_bytes());
        datagram.extend_from_slice(&2u16.to_ne_bytes());
        datagram.extend_from_slice(&[0; 2]);
        datagram.extend_from_slice(&4u32.to_ne_bytes());
        datagram.extend_from_slice(&[0; 4 + 4]);
        datagram.extend_from_slice(&header);
        let said = decode(&datagram, 4).unwrap();
        assert!(
            matches!(said.as_slice(), [Said::Answer(found), Said::Done(Ok(()))] if found.find32(1) == Some(9))
        );
        assert!(decode(&datagram, 5).unwrap().iter().all(|said| matches!(said, Said::Other)));
    }

    #[test]
    fn a_refusal_carries_the_errno() {
        let mut datagram = Vec::new();
        datagram.extend_from_slice(&36u32.to_ne_bytes());
        datagram.extend_from_slice(&2u16.to_ne_bytes());
        datagram.extend_from_slice(&[0; 2]);
        datagram.extend_from_slice(&1u32.to_ne_bytes());
        datagram.extend_from_slice(&[0; 4]);
        datagram.extend_from_slice(&(-libc::EBUSY).to_ne_bytes());
        datagram.extend_from_slice(&[0; 16]);
        let said = decode(&datagram, 1).unwrap();
        assert!(matches!(said.as_slice(), [Said::Done(Err(libc::EBUSY))]));
    }

    proptest::proptest! {
        /// No bytes make the decoder panic.
        #[test]
        fn any_bytes_are_decoded_or_refused(bytes: Vec<u8>) {
            let _ = decode(&bytes, 1);
        }
    }

    #[test]
    fn a_family_that_is_not_there_is_said_so() {
        // A sandbox may refuse the socket.
        if let Ok(family) = Family::open("no-such-family") {
            assert!(family.is_none());
        }
    }
}
