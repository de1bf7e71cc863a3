//! Sockets of this very process, and a laid-out `/proc` where the kernel's text tables are all there is.

use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::{UnixListener, UnixStream};

use super::*;

fn me() -> Pid {
    Pid(std::process::id())
}

fn read() -> Sockets {
    Sockets::read(&Proc::system(), &[me()])
}

fn find(sockets: &Sockets, fd: RawFd) -> Socket {
    sockets.list().iter().find(|socket| socket.fd == Fd(fd)).cloned().unwrap()
}

#[test]
fn a_tcp_connection_is_seen_from_both_ends_and_its_listener_is_none() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (server, _) = listener.accept().unwrap();
    let sockets = read();
    let seen = find(&sockets, server.as_raw_fd());
    let end = End::Tcp { local: server.local_addr().unwrap(), peer: client.local_addr().unwrap() };
    assert_eq!(seen.end, end);
    assert_eq!(sockets.peer(&seen), Peer::Inside([me()].into()));
    assert_eq!(find(&sockets, listener.as_raw_fd()).end, End::TcpListener(listener.local_addr().unwrap()));
    assert!(sockets.listening(me()).contains(&listener.local_addr().unwrap()));
}

#[test]
fn an_ipv4_client_of_a_dual_stack_server_is_matched() {
    let Ok(listener) = TcpListener::bind("[::]:0") else { return };
    let client = TcpStream::connect(("127.0.0.1", listener.local_addr().unwrap().port())).unwrap();
    let (server, _) = listener.accept().unwrap();
    let sockets = read();
    let seen = find(&sockets, server.as_raw_fd());
    assert_eq!(sockets.peer(&seen), Peer::Inside([me()].into()));
    assert!(
        matches!(&seen.end, End::Tcp { peer, .. } if *peer == client.local_addr().unwrap()),
        "{:?}",
        seen.end
    );
}

#[test]
fn a_unix_connection_has_its_paths_and_its_peer() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let listener = UnixListener::bind(&path).unwrap();
    let client = UnixStream::connect(&path).unwrap();
    let (server, _) = listener.accept().unwrap();
    let path = Some(path.to_string_lossy().into_owned());
    let sockets = read();
    let (seen, other) = (find(&sockets, server.as_raw_fd()), find(&sockets, client.as_raw_fd()));
    assert_eq!(seen.end, End::Unix { local: path.clone(), peer: None });
    assert_eq!(other.end, End::Unix { local: None, peer: path.clone() });
    assert_eq!(sockets.peer(&seen), Peer::Inside([me()].into()));
    assert_eq!(find(&sockets, listener.as_raw_fd()).end, End::UnixListener(path.clone()));
}

#[test]
fn what_is_no_connection_is_other() {
    let datagram = std::os::unix::net::UnixDatagram::unbound().unwrap();
    let file = std::fs::File::open("/dev/null").unwrap();
    let sockets = read();
    assert_eq!(find(&sockets, datagram.as_raw_fd()).end, End::Other);
    assert!(sockets.list().iter().all(|socket| socket.fd != Fd(file.as_raw_fd())));
}

#[test]
fn two_hundred_sockets_are_all_listed() {
    let pairs: Vec<_> = (0..100).map(|_| UnixStream::pair().unwrap()).collect();
    let sockets = read();
    for (one, other) in &pairs {
        find(&sockets, one.as_raw_fd());
        find(&sockets, other.as_raw_fd());
    }
}

#[test]
fn without_the_kernel_to_ask_paths_are_known_and_unix_peers_are_not() {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("7");
    std::fs::create_dir_all(folder.join("net")).unwrap();
    std::fs::create_dir_all(folder.join("fd")).unwrap();
    for (fd, inode) in [(3, 100), (4, 101), (5, 102), (6, 103)] {
        std::os::unix::fs::symlink(format!("socket:[{inode}]"), folder.join(format!("fd/{fd}"))).unwrap();
    }
    let tcp = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n   \
               0: 0100007F:1F40 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 100 1 0 99 0 0 10 0\n   \
               1: 0100007F:1F40 0100007F:9C40 01 00000000:00000000 00:00000000 00000000     0        0 101 1 0 20 4 30 10 -1\n   \
               2: 0100007F:1F40 0100";
    std::fs::write(folder.join("net/tcp"), tcp).unwrap();
    let unix = "Num       RefCount Protocol Flags    Type St Inode Path\n\
                0000000000000000: 00000003 00000000 00000000 0001 03 102 /tmp/1-2-3\n\
                0000000000000000: 00000002 00000000 00010000 0001 01 103 /tmp/1-2-3\n";
    std::fs::write(folder.join("net/unix"), unix).unwrap();
    let sockets = Sockets::read(&Proc::at(root.path()), &[Pid(7), Pid(8)]);
    let ends: Vec<&End> = sockets.list().iter().map(|socket| &socket.end).collect();
    let here = "127.0.0.1:8000".parse().unwrap();
    assert_eq!(
        ends,
        [
            &End::TcpListener(here),
            &End::Tcp { local: here, peer: "127.0.0.1:40000".parse().unwrap() },
            &End::Unix { local: Some("/tmp/1-2-3".to_owned()), peer: None },
            &End::UnixListener(Some("/tmp/1-2-3".to_owned())),
        ]
    );
    assert_eq!(sockets.peer(&sockets.list()[1]), Peer::Outside);
    assert_eq!(sockets.peer(&sockets.list()[2]), Peer::Unknown);
    assert_eq!(sockets.unreadable, [(Pid(8), io::ErrorKind::NotFound)]);
    assert!(!sockets.pairs_known);
}
