//! The sockets of a server's processes: what each is, and who is at its other end.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use enginetap_core::capture::fact;
use enginetap_core::ids::{Fd, Pid};
use procfs::net::{TcpNetEntries, TcpNetEntry, TcpState, UnixNetEntries, UnixState};
use procfs::{FromBufRead, FromBufReadSI, LocalSystemInfo};

use super::diag::{self, UnixRow};
use super::lender::Lender;
use super::proc::{Inode, Proc};

/// Most bytes read of one of the kernel's socket tables: some 200,000 connections.
const TABLE_LIMIT: u64 = 32 * 1024 * 1024;

/// One socket descriptor of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Socket {
    /// The process.
    pub pid: Pid,
    /// The descriptor.
    pub fd: Fd,
    /// The socket's identity: descriptors of the same inode are the same socket.
    pub inode: Inode,
    /// What it is.
    pub end: End,
}

/// What a socket is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// One end of a TCP connection.
    Tcp {
        /// This end's address.
        local: SocketAddr,
        /// The other end's.
        peer: SocketAddr,
    },
    /// One end of a Unix stream connection.
    Unix {
        /// Path this end is bound to.
        local: Option<String>,
        /// Path the other end is bound to.
        peer: Option<String>,
    },
    /// Listens on TCP.
    TcpListener(SocketAddr),
    /// Listens on a Unix socket.
    UnixListener(Option<String>),
    /// No stream socket, or not connected.
    Other,
}

/// Who holds the other end of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Peer {
    /// These processes of the same server.
    Inside(BTreeSet<Pid>),
    /// Somebody else.
    Outside,
    /// The kernel does not tell.
    Unknown,
}

/// The sockets of some processes.
#[derive(Clone, Debug, Default)]
pub struct Sockets {
    list: Vec<Socket>,
    peers: BTreeMap<Inode, Inode>,
    holders: BTreeMap<Inode, BTreeSet<Pid>>,
    /// Processes whose descriptors could not be listed, with the reason.
    pub unreadable: Vec<(Pid, io::ErrorKind)>,
    /// Whether the kernel told which Unix sockets are connected to each other.
    pub pairs_known: bool,
}

impl Sockets {
    /// Reads the sockets of these processes.
    #[must_use]
    pub fn read(proc: &Proc, pids: &[Pid]) -> Self {
        let mut found = Self { pairs_known: true, ..Self::default() };
        let mut tables: BTreeMap<PathBuf, Table> = BTreeMap::new();
        for &pid in pids {
            let descriptors = match proc.sockets(pid) {
                Ok(descriptors) => descriptors,
                Err(error) => {
                    found.unreadable.push((pid, error.kind()));
                    continue;
                }
            };
            // One namespace, one table; one that cannot be told is a process's own.
            let namespace = proc.link(pid, "ns/net").unwrap_or_else(|| proc.path(pid, "ns/net"));
            let table = tables.entry(namespace).or_insert_with(|| Table::read(proc, pid));
            // A laid-out `/proc` has no processes behind it.
            let lender = proc.is_system().then(|| Lender::of(pid).ok()).flatten();
            for (fd, inode) in descriptors {
                let asked = match &lender {
                    Some(lender) if !table.unix.contains_key(&inode) => lender.tcp(fd, inode).ok(),
                    Some(_) | None => None,
                };
                let end = asked.unwrap_or_else(|| table.end(proc, pid, inode));
                found.list.push(Socket { pid, fd, inode, end });
                found.holders.entry(inode).or_default().insert(pid);
            }
        }
        for table in tables.values() {
            found.pairs_known &= table.pairs_known;
            found.peers.extend(table.unix.iter().filter_map(|(&inode, row)| Some((inode, row.peer?))));
        }
        found.peers.extend(tcp_pairs(&found.list));
        found
    }

    /// Every socket descriptor, by process and descriptor.
    #[must_use]
    pub fn list(&self) -> &[Socket] {
        &self.list
    }

    /// Who holds the other end of a socket.
    #[must_use]
    pub fn peer(&self, socket: &Socket) -> Peer {
        let other = self.peers.get(&socket.inode);
        match (other.and_then(|inode| self.holders.get(inode)), &socket.end) {
            (Some(pids), _) => Peer::Inside(pids.clone()),
            (None, End::Unix { .. }) if other.is_none() => Peer::Unknown,
            (None, End::Unix { .. } | End::Tcp { .. }) => Peer::Outside,
            (None, End::TcpListener(_) | End::UnixListener(_) | End::Other) => Peer::Unknown,
        }
    }

    /// TCP addresses that a process listens on, each once.
    #[must_use]
    pub fn listening(&self, pid: Pid) -> BTreeSet<SocketAddr> {
        let of = self.list.iter().filter(|socket| socket.pid == pid);
        of.filter_map(|socket| match socket.end {
            End::TcpListener(address) => Some(address),
            End::Tcp { .. } | End::Unix { .. } | End::UnixListener(_) | End::Other => None,
        })
        .collect()
    }
}

impl Socket {
    /// The socket as a fact; `peer` is who holds its other end.
    #[must_use]
    pub fn fact(&self, peer: &Peer) -> fact::Socket {
        match &self.end {
            End::Tcp { local, peer } => {
                fact::Socket::Tcp { local: local.to_string(), peer: peer.to_string() }
            }
            End::Unix { local, peer: path } => fact::Socket::Unix {
                local: local.clone(),
                peer: path.clone(),
                peer_pid: match peer {
                    Peer::Inside(pids) => pids.first().copied(),
                    Peer::Outside | Peer::Unknown => None,
                },
            },
            End::TcpListener(_) | End::UnixListener(_) | End::Other => fact::Socket::Other,
        }
    }
}

/// The socket tables of one network namespace.
struct Table {
    /// Read only where sockets do not tell themselves what they are.
    tcp: Option<BTreeMap<Inode, TcpNetEntry>>,
    unix: BTreeMap<Inode, UnixRow>,
    pairs_known: bool,
}

impl Table {
    fn read(proc: &Proc, pid: Pid) -> Self {
        let ours = proc.link(Pid(std::process::id()), "ns/net");
        let theirs = proc.link(pid, "ns/net");
        let namespace = (ours != theirs).then(|| proc.path(pid, "ns/net"));
        // A laid-out `/proc` has no kernel behind it to ask.
        let asked = match &theirs {
            Some(_) => diag::unix_sockets(namespace.as_deref()),
            None => Err(io::ErrorKind::Unsupported.into()),
        };
        if let Err(error) = &asked {
            log::debug!("no sock_diag for pid {}: {error}; Unix peers stay unknown", pid.0);
        }
        let pairs_known = asked.is_ok();
        let unix = asked.unwrap_or_else(|_| unix_rows(proc, pid));
        Self { tcp: None, unix, pairs_known }
    }

    fn tcp(&mut self, proc: &Proc, pid: Pid) -> &BTreeMap<Inode, TcpNetEntry> {
        self.tcp.get_or_insert_with(|| {
            let rows = ["net/tcp", "net/tcp6"].iter().flat_map(|name| tcp_rows(proc, pid, name));
            rows.map(|row| (Inode(row.inode), row)).collect()
        })
    }

    fn end(&mut self, proc: &Proc, pid: Pid, inode: Inode) -> End {
        if !self.unix.contains_key(&inode)
            && let Some(row) = self.tcp(proc, pid).get(&inode)
        {
            return tcp_end(row);
        }
        match self.unix.get(&inode) {
            Some(UnixRow { stream: true, listening: true, path, .. }) => End::UnixListener(path.clone()),
            Some(UnixRow { stream: true, listening: false, path, peer }) if self.connected(peer.as_ref()) => {
                let peer = peer.and_then(|peer| self.unix.get(&peer)?.path.clone());
                End::Unix { local: path.clone(), peer }
            }
            Some(UnixRow { .. }) | None => End::Other,
        }
    }

    /// Where the kernel tells peers, a connected socket has one; elsewhere only connected rows are kept.
    fn connected(&self, peer: Option<&Inode>) -> bool {
        peer.is_some() || !self.pairs_known
    }
}

/// The ends of each TCP connection between these sockets.
fn tcp_pairs(sockets: &[Socket]) -> Vec<(Inode, Inode)> {
    let ends = sockets.iter().filter_map(|socket| match socket.end {
        End::Tcp { local, peer } => Some(((local, peer), socket.inode)),
        End::Unix { .. } | End::TcpListener(_) | End::UnixListener(_) | End::Other => None,
    });
    let by_addresses: BTreeMap<_, _> = ends.collect();
    let other = |((local, peer), inode): (&(SocketAddr, SocketAddr), &Inode)| {
        Some((*inode, *by_addresses.get(&(*peer, *local))?))
    };
    by_addresses.iter().filter_map(other).collect()
}

/// An IPv4 address in IPv6 clothes (a dual-stack server's end of an IPv4 connection) as IPv4.
pub(super) fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

fn tcp_end(row: &TcpNetEntry) -> End {
    match row.state {
        TcpState::Listen => End::TcpListener(row.local_address),
        TcpState::Close | TcpState::TimeWait => End::Other,
        TcpState::Established
        | TcpState::SynSent
        | TcpState::SynRecv
        | TcpState::FinWait1
        | TcpState::FinWait2
        | TcpState::CloseWait
        | TcpState::LastAck
        | TcpState::Closing
        | TcpState::NewSynRecv => {
            End::Tcp { local: canonical(row.local_address), peer: canonical(row.remote_address) }
        }
    }
}

fn tcp_rows(proc: &Proc, pid: Pid, name: &str) -> Vec<TcpNetEntry> {
    let bytes = proc.read(pid, name, TABLE_LIMIT).unwrap_or_default();
    let rows = TcpNetEntries::from_buf_read(whole_lines(&bytes), &LocalSystemInfo);
    rows.map(|rows| rows.0).unwrap_or_default().into_iter().filter(|row| row.inode != 0).collect()
}

/// The kernel's text table of Unix sockets: paths, but no peers.
fn unix_rows(proc: &Proc, pid: Pid) -> BTreeMap<Inode, UnixRow> {
    let bytes = proc.read(pid, "net/unix", TABLE_LIMIT).unwrap_or_default();
    let rows = UnixNetEntries::from_buf_read(whole_lines(&bytes)).map(|rows| rows.0).unwrap_or_default();
    let row = |row: procfs::net::UnixNetEntry| {
        let path = row.path.map(|path| path.to_string_lossy().into_owned());
        let stream = row.socket_type == 1;
        let listening = stream && row.state == UnixState::UNCONNECTED && path.is_some();
        (Inode(row.inode), UnixRow { stream, listening, path, peer: None })
    };
    let open = |row: &procfs::net::UnixNetEntry| row.state == UnixState::CONNECTED || row.path.is_some();
    rows.into_iter().filter(open).map(row).collect()
}

/// The bytes up to the last line's end: a table cut by its limit must not end in half a line.
fn whole_lines(bytes: &[u8]) -> &[u8] {
    let end = bytes.iter().rposition(|&byte| byte == b'\n').map_or(0, |last| last + 1);
    &bytes[..end]
}

#[cfg(test)]
#[path = "sockets_tests.rs"]
mod tests;
