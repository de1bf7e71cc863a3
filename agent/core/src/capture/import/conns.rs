//! Connections: which calls belong together, and who is at the other end.

use std::collections::HashMap;

use super::line::{Ends, Moved, SocketCall};
use crate::capture::fact::{Conn, Socket};
use crate::ids::{ConnId, Fd, Pid};

/// The connections of a recording.
pub(super) struct Conns {
    all: Vec<Conn>,
    /// For each call, in order, its connection's place in `all`.
    of_calls: Vec<usize>,
}

impl Conns {
    /// Tells the connections apart: a descriptor of a process is a new one after an accept, a connect or a close,
    /// and when its ends change.
    pub(super) fn find(calls: &[SocketCall]) -> Self {
        let mut conns = Self { all: Vec::new(), of_calls: Vec::new() };
        let mut open: HashMap<(Pid, Fd), (usize, &Ends)> = HashMap::new();
        let mut opened = Opened::default();
        for call in calls {
            let SocketCall { pid, fd, moved, ends, .. } = call;
            let opens = matches!(moved, Moved::Accept | Moved::Connect);
            let known = open.get(&(*pid, *fd)).filter(|(_, before)| !opens && *before == ends);
            let index = match known {
                Some((index, _)) => *index,
                None => conns.add(call, !opens),
            };
            match moved {
                Moved::Accept => opened.accepted.push(index),
                Moved::Connect => opened.connected.push(index),
                Moved::Close | Moved::Rx | Moved::Tx => {}
            }
            if *moved == Moved::Close {
                open.remove(&(*pid, *fd));
            } else {
                open.insert((*pid, *fd), (index, ends));
            }
            conns.of_calls.push(index);
        }
        conns.pair(&opened);
        conns
    }

    /// Each call's connection, in the order of the calls.
    pub(super) fn of_calls(&self) -> impl Iterator<Item = &Conn> {
        self.of_calls.iter().filter_map(|index| self.all.get(*index))
    }

    /// Every connection.
    pub(super) fn all(&self) -> &[Conn] {
        &self.all
    }

    fn add(&mut self, call: &SocketCall, midstream: bool) -> usize {
        let index = self.all.len();
        let Ends { tcp, log, local, peer } = call.ends.clone();
        let socket = if log {
            Socket::Log
        } else if tcp {
            Socket::Tcp { local: local.unwrap_or_default(), peer: peer.unwrap_or_default() }
        } else {
            Socket::Unix { local, peer, peer_pid: None }
        };
        let conn = ConnId(u64::try_from(index).unwrap_or(u64::MAX).saturating_add(1));
        self.all.push(Conn { conn, pid: call.pid, fd: call.fd, socket, midstream });
        index
    }

    /// Finds who is at the other end: the first connect to a path belongs to the first accept on it, and so on.
    fn pair(&mut self, opened: &Opened) {
        let mut waiting: HashMap<String, Vec<usize>> = HashMap::new();
        for index in opened.connected.iter().rev() {
            if let Some(Socket::Unix { peer: Some(path), .. }) = self.socket(*index) {
                waiting.entry(path.clone()).or_default().push(*index);
            }
        }
        for accepted in &opened.accepted {
            let Some(Socket::Unix { local: Some(path), .. }) = self.socket(*accepted) else { continue };
            let Some(connected) = waiting.get_mut(path).and_then(Vec::pop) else { continue };
            self.meet(*accepted, connected);
            self.meet(connected, *accepted);
        }
    }

    fn meet(&mut self, one: usize, other: usize) {
        let pid = self.all.get(other).map(|conn| conn.pid);
        if let Some(Conn { socket: Socket::Unix { peer_pid, .. }, .. }) = self.all.get_mut(one) {
            *peer_pid = pid;
        }
    }

    fn socket(&self, index: usize) -> Option<&Socket> {
        self.all.get(index).map(|conn| &conn.socket)
    }
}

/// Connections whose opening was seen, in its order.
#[derive(Default)]
struct Opened {
    accepted: Vec<usize>,
    connected: Vec<usize>,
}
