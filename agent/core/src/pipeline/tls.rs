//! TLS connections and their sockets.
//!
//! The plain text is seen in the library, under an id of its own; the socket moves only records. What ties the two is
//! the order of calls in one thread: a server reads from a socket, and then decrypts what it read. The tie is wanted for
//! one thing: the socket's close tells that the client is gone, long before the library frees its object.

use std::collections::{HashMap, HashSet};

use crate::ids::{ConnId, Direction, Pid, Tid};

/// A socket on which this many calls moved records and no plain text followed is given up.
const PATIENCE: u32 = 256;

/// Sockets that speak TLS, and the connections of plain text on them.
#[derive(Debug, Default)]
pub(super) struct Tls {
    /// Sockets whose plain text has not been seen yet, with the calls since.
    waiting: HashMap<ConnId, u32>,
    /// The waiting socket on which a thread received last.
    last: HashMap<Tid, ConnId>,
    plain_of: HashMap<ConnId, ConnId>,
    socket_of: HashMap<ConnId, ConnId>,
    /// Processes known to serve TLS.
    servers: HashSet<Pid>,
}

impl Tls {
    /// A process serves TLS; whether that is news.
    pub fn serves(&mut self, pid: Pid) -> bool {
        self.servers.insert(pid)
    }

    /// A socket was found to speak TLS.
    pub fn wait(&mut self, socket: ConnId) {
        self.waiting.insert(socket, 0);
    }

    /// A call moved records on a socket; whether it is given up by that.
    pub fn moved(&mut self, tid: Tid, socket: ConnId, direction: Direction) -> bool {
        let Some(calls) = self.waiting.get_mut(&socket) else { return false };
        *calls += 1;
        if *calls > PATIENCE {
            self.forget(socket);
            return true;
        }
        match direction {
            Direction::Rx => {
                self.last.insert(tid, socket);
            }
            Direction::Tx => {}
        }
        false
    }

    /// Plain text came in on a connection; the socket that it came on, when that has just become clear.
    pub fn received(&mut self, tid: Tid, plain: ConnId) -> Option<ConnId> {
        if self.socket_of.contains_key(&plain) {
            return None;
        }
        let socket = *self.last.get(&tid)?;
        self.forget(socket);
        self.plain_of.insert(socket, plain);
        self.socket_of.insert(plain, socket);
        Some(socket)
    }

    /// A connection of either kind is no more; the plain text's, when it was a socket's.
    pub fn gone(&mut self, id: ConnId) -> Option<ConnId> {
        self.forget(id);
        if let Some(socket) = self.socket_of.remove(&id) {
            self.plain_of.remove(&socket);
            return None;
        }
        let plain = self.plain_of.remove(&id)?;
        self.socket_of.remove(&plain);
        Some(plain)
    }

    /// A process has ended.
    pub fn ended(&mut self, pid: Pid) {
        self.servers.remove(&pid);
    }

    fn forget(&mut self, socket: ConnId) {
        if self.waiting.remove(&socket).is_some() {
            self.last.retain(|_, last| *last != socket);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: ConnId = ConnId(1);
    const B: ConnId = ConnId(2);
    const PLAIN_A: ConnId = ConnId(11);
    const PLAIN_B: ConnId = ConnId(12);

    #[test]
    fn plain_text_belongs_to_the_socket_its_thread_read_last() {
        let mut tls = Tls::default();
        tls.wait(A);
        tls.wait(B);
        tls.moved(Tid(7), A, Direction::Rx);
        tls.moved(Tid(8), B, Direction::Rx);
        tls.moved(Tid(7), B, Direction::Tx);
        assert_eq!(tls.received(Tid(9), PLAIN_A), None, "a thread that read nothing");
        assert_eq!(tls.received(Tid(7), PLAIN_A), Some(A));
        assert_eq!(tls.received(Tid(7), PLAIN_A), None, "known");
        assert_eq!(tls.received(Tid(7), PLAIN_B), None, "a socket carries one connection");
        assert_eq!(tls.received(Tid(8), PLAIN_B), Some(B));
        assert_eq!(tls.gone(A), Some(PLAIN_A));
        assert_eq!((tls.gone(PLAIN_B), tls.gone(B)), (None, None), "freed before its socket was closed");
    }

    #[test]
    fn a_socket_without_plain_text_is_given_up_and_nothing_of_it_stays() {
        let mut tls = Tls::default();
        tls.wait(A);
        let given_up = (0..=PATIENCE).filter(|_| tls.moved(Tid(7), A, Direction::Rx)).count();
        assert_eq!((given_up, tls.received(Tid(7), PLAIN_A)), (1, None));
        assert!(tls.waiting.is_empty() && tls.last.is_empty() && tls.plain_of.is_empty());
    }
}
