//! The Unix sockets of a network namespace, from the kernel's `sock_diag`: the only way to learn which two
//! sockets are the ends of one connection.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use netlink_packet_core::{
    NLM_F_DUMP, NLM_F_REQUEST, NLMSG_ALIGNTO, NetlinkBuffer, NetlinkHeader, NetlinkMessage, Parseable,
};
use netlink_packet_sock_diag::constants::{SOCK_STREAM, TCP_LISTEN};
use netlink_packet_sock_diag::unix::nlas::UnixDiagName;
use netlink_packet_sock_diag::unix::{ShowFlags, StateFlags, UnixRequest, UnixResponse};
use netlink_packet_sock_diag::{SOCK_DIAG_BY_FAMILY, SockDiagMessage};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, sockopt};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::proc::Inode;

/// Netlink's message types that end a dump.
const ERROR: u16 = 2;
const DONE: u16 = 3;

/// The kernel fills at most this much of a buffer at once.
const BUFFER: usize = 32 * 1024;

/// Most sockets taken up of one namespace.
const ROW_LIMIT: usize = 262_144;

/// An answer comes at once or not at all.
const PATIENCE: Duration = Duration::from_millis(250);

/// A Unix socket.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnixRow {
    /// Whether it is a stream socket.
    pub stream: bool,
    /// Whether it listens.
    pub listening: bool,
    /// Path it is bound to; `@` in front of an abstract name.
    pub path: Option<String>,
    /// The socket at the other end.
    pub peer: Option<Inode>,
}

/// The Unix sockets of a network namespace: of the one at this path (`/proc/PID/ns/net`), or of our own.
///
/// # Errors
/// When the namespace may not be entered or the kernel has no `unix_diag`.
pub fn unix_sockets(namespace: Option<&Path>) -> io::Result<BTreeMap<Inode, UnixRow>> {
    let Some(path) = namespace else { return dump() };
    let namespace = File::open(path)?;
    // Only a thread of its own may change its namespace; it ends with the query.
    let query = std::thread::Builder::new().name("netns".to_owned()).spawn(move || {
        move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?;
        dump()
    })?;
    query.join().unwrap_or_else(|_| Err(io::Error::other("the query's thread died")))
}

fn dump() -> io::Result<BTreeMap<Inode, UnixRow>> {
    let socket = rustix::net::socket_with(
        AddressFamily::NETLINK,
        SocketType::RAW,
        SocketFlags::CLOEXEC,
        Some(netlink::SOCK_DIAG),
    )?;
    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, Some(PATIENCE))?;
    rustix::net::send(&socket, &request(), SendFlags::empty())?;
    receive(&socket)
}

fn request() -> Vec<u8> {
    let mut header = NetlinkHeader::default();
    header.flags = NLM_F_REQUEST | NLM_F_DUMP;
    header.message_type = SOCK_DIAG_BY_FAMILY;
    let request = UnixRequest {
        state_flags: StateFlags::all(),
        inode: 0,
        show_flags: ShowFlags::NAME | ShowFlags::PEER,
        cookie: [0xff; 8],
    };
    let mut message = NetlinkMessage::new(header, SockDiagMessage::UnixRequest(request).into());
    message.finalize();
    let mut bytes = vec![0; message.buffer_len()];
    message.serialize(&mut bytes);
    bytes
}

fn receive(socket: &OwnedFd) -> io::Result<BTreeMap<Inode, UnixRow>> {
    let mut rows = BTreeMap::new();
    let mut buffer = vec![0_u8; BUFFER];
    while rows.len() < ROW_LIMIT {
        let (_, length) = rustix::net::recv(socket, buffer.as_mut_slice(), RecvFlags::empty())?;
        if take_in(buffer.get(..length).unwrap_or_default(), &mut rows)? {
            break;
        }
    }
    Ok(rows)
}

/// Takes up the messages of one datagram; tells whether they were the last ones.
fn take_in(mut bytes: &[u8], rows: &mut BTreeMap<Inode, UnixRow>) -> io::Result<bool> {
    while let Ok(message) = NetlinkBuffer::new_checked(bytes) {
        match message.message_type() {
            DONE => return Ok(true),
            ERROR => return Err(error_of(message.payload())),
            // A row that does not parse is passed over: the others still hold.
            _ => rows.extend(UnixResponse::parse(message.payload()).ok().map(row)),
        }
        let length = usize::try_from(message.length()).unwrap_or(usize::MAX);
        bytes = bytes.get(length.next_multiple_of(usize::from(NLMSG_ALIGNTO))..).unwrap_or_default();
    }
    Ok(bytes.is_empty() && rows.len() >= ROW_LIMIT)
}

/// The kernel's error message starts with a negative errno.
fn error_of(payload: &[u8]) -> io::Error {
    let errno = payload.first_chunk::<4>().map_or(0, |bytes| i32::from_ne_bytes(*bytes));
    io::Error::from_raw_os_error(errno.saturating_neg())
}

fn row(response: UnixResponse) -> (Inode, UnixRow) {
    let path = response.name().map(|name| match name {
        UnixDiagName::Pathname(path) => path.to_string_lossy().into_owned(),
        UnixDiagName::Abstract(name) => format!("@{}", String::from_utf8_lossy(name)),
    });
    let row = UnixRow {
        stream: response.header.kind == SOCK_STREAM,
        listening: response.header.state == TCP_LISTEN,
        path,
        peer: response.peer().filter(|&inode| inode != 0).map(|inode| Inode(u64::from(inode))),
    };
    (Inode(u64::from(response.header.inode)), row)
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::{UnixListener, UnixStream};

    use super::*;
    use crate::discover::proc::Proc;

    fn inode(socket: &impl AsFd) -> Inode {
        Inode(rustix::fs::fstat(socket).unwrap().st_ino)
    }

    #[test]
    fn both_ends_of_a_connection_know_each_other() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        let listener = UnixListener::bind(&path).unwrap();
        let client = UnixStream::connect(&path).unwrap();
        let (server, _) = listener.accept().unwrap();
        let rows = unix_sockets(None).unwrap();
        let path = Some(path.to_string_lossy().into_owned());
        let (client_row, server_row) = (&rows[&inode(&client)], &rows[&inode(&server)]);
        assert_eq!(client_row.peer, Some(inode(&server)));
        assert_eq!(server_row.peer, Some(inode(&client)));
        assert_eq!((&client_row.path, &server_row.path), (&None, &path));
        assert!(client_row.stream && !client_row.listening);
        assert!(rows[&inode(&listener)].listening && rows[&inode(&listener)].peer.is_none());
    }

    #[test]
    fn a_namespace_given_by_its_path_is_asked() {
        let (one, other) = UnixStream::pair().unwrap();
        let namespace = Proc::system().path(enginetap_core::ids::Pid(std::process::id()), "ns/net");
        match unix_sockets(Some(&namespace)) {
            Ok(rows) => assert_eq!(rows[&inode(&one)].peer, Some(inode(&other))),
            // Entering even one's own namespace takes CAP_SYS_ADMIN.
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::PermissionDenied),
        }
    }

    proptest::proptest! {
        #[test]
        fn no_datagram_panics(bytes: Vec<u8>) {
            let _ = take_in(&bytes, &mut BTreeMap::new());
        }
    }
}
