//! What a socket of another process is, asked of the socket itself: its descriptor is borrowed for the moment.
//!
//! The kernel's tables (`/proc/PID/net/tcp`) tell the same, but each look at them walks the hash table of all connections
//! of the machine, some 10 ms where that is large, and an attach looks several times. A process that closes a socket while
//! it is borrowed has it closed some microseconds later.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use enginetap_core::ids::{Fd, Pid};
use rustix::fs::fstat;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrAny, SocketType, getpeername, getsockname, sockopt};
use rustix::process::{PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};

use super::proc::Inode;
use super::sockets::{End, canonical};

/// A process that lends its sockets.
pub(super) struct Lender(OwnedFd);

impl Lender {
    /// Asks a process.
    ///
    /// # Errors
    /// When it is gone.
    pub fn of(pid: Pid) -> io::Result<Self> {
        let number = i32::try_from(pid.0).ok().and_then(rustix::process::Pid::from_raw);
        let number = number.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(Self(pidfd_open(number, PidfdFlags::empty())?))
    }

    /// What its socket is, if it is one of TCP. One that is closed meanwhile, or another by now, is none.
    ///
    /// # Errors
    /// When it may not be borrowed.
    pub fn tcp(&self, fd: Fd, inode: Inode) -> io::Result<End> {
        let socket = match pidfd_getfd(&self.0, fd.0, PidfdGetfdFlags::empty()) {
            Ok(socket) => socket,
            Err(Errno::BADF | Errno::SRCH) => return Ok(End::Other),
            Err(error) => return Err(error.into()),
        };
        if fstat(&socket)?.st_ino != inode.0 {
            return Ok(End::Other);
        }
        Ok(tcp(&socket).unwrap_or(End::Other))
    }
}

/// A stream socket of the internet families; `None` for any other, and for one that is not connected.
fn tcp(socket: impl AsFd) -> Option<End> {
    let family = sockopt::socket_domain(&socket).ok()?;
    let internet = family == AddressFamily::INET || family == AddressFamily::INET6;
    if !internet || sockopt::socket_type(&socket).ok()? != SocketType::STREAM {
        return None;
    }
    let local = address(getsockname(&socket).ok()?)?;
    if sockopt::socket_acceptconn(&socket).ok()? {
        return Some(End::TcpListener(local));
    }
    let peer = address(getpeername(&socket).ok()??)?;
    Some(End::Tcp { local: canonical(local), peer: canonical(peer) })
}

fn address(address: SocketAddrAny) -> Option<std::net::SocketAddr> {
    address.try_into().ok()
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream, UdpSocket};
    use std::os::fd::AsRawFd;

    use anyhow::Result;

    use super::*;

    fn inode(socket: &impl AsFd) -> Result<Inode> {
        Ok(Inode(fstat(socket)?.st_ino))
    }

    #[test]
    fn a_socket_says_itself_what_it_is() -> Result<()> {
        let lender = Lender::of(Pid(std::process::id()))?;
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let client = TcpStream::connect(listener.local_addr()?)?;
        let datagrams = UdpSocket::bind("127.0.0.1:0")?;
        let of = |socket: &dyn AsFd| -> Result<End> {
            let socket = socket.as_fd();
            Ok(lender.tcp(Fd(socket.as_raw_fd()), inode(&socket)?)?)
        };
        assert_eq!(of(&listener)?, End::TcpListener(listener.local_addr()?));
        let connected = End::Tcp { local: client.local_addr()?, peer: client.peer_addr()? };
        assert_eq!(of(&client)?, connected);
        assert_eq!(of(&datagrams)?, End::Other);
        Ok(())
    }

    #[test]
    fn a_number_that_stands_for_another_socket_or_none_is_no_connection() -> Result<()> {
        let lender = Lender::of(Pid(std::process::id()))?;
        let listener = TcpListener::bind("[::1]:0")?;
        let Inode(inode) = inode(&listener)?;
        assert_eq!(lender.tcp(Fd(listener.as_raw_fd()), Inode(inode + 1))?, End::Other);
        assert_eq!(lender.tcp(Fd(i32::MAX), Inode(inode))?, End::Other);
        Ok(())
    }
}
