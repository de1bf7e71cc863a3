//! TLS connections and their sockets.
//!
//! The plain text is seen in the library, under an id of its own; the socket moves only records. What ties the two is
//! the order of calls in one thread (a server reads from a socket, and then decrypts what it read) and their sizes. The
//! order alone is not enough: after a handshake, uvloop decrypts what came with it only once it has read from the other
//! sockets that are ready (`_on_handshake_complete` of its `sslproto.pyx`). So a tie that is not certain waits for more
//! plain text: a wrong one would end a request when another client goes. The tie is wanted for one thing: the socket's
//! close tells that the client is gone, long before the library frees its object.

use std::collections::{HashMap, HashSet, VecDeque};

use crate::ids::{ConnId, Direction, Pid, Tid};

/// A socket on which this many calls moved records and no plain text followed is given up.
const PATIENCE: u32 = 256;

/// Most pieces of plain text that one receive brings and that are looked at.
const MAX_READS: usize = 8;

/// Bytes by which a record is longer than its plain text: TLS 1.3 (header 5, content type 1, tag 16); 1.2 with
/// AES-GCM (5, nonce 8, tag 16) and with ChaCha20-Poly1305 (5, 16).
const OVERHEADS: [u64; 3] = [22, 29, 21];

/// Bytes of handshake that the same receive may bring before the first plain text: none; a client's `Finished` of TLS 1.3
/// with a hash of 32 or 48 bytes, alone or behind a `ChangeCipherSpec`; the same of a resumed 1.2.
const BEFORE: [u64; 6] = [0, 58, 74, 64, 80, 51];

/// Sockets that speak TLS, and the connections of plain text on them.
#[derive(Debug, Default)]
pub(super) struct Tls {
    /// Sockets whose plain text has not been seen yet.
    waiting: HashMap<ConnId, Waiting>,
    /// Sizes of what was last received of plain text whose socket is not known, the newest last.
    reads: HashMap<ConnId, VecDeque<u32>>,
    plain_of: HashMap<ConnId, ConnId>,
    socket_of: HashMap<ConnId, ConnId>,
    /// Processes known to serve TLS.
    servers: HashSet<Pid>,
}

/// A socket whose plain text has not been seen yet.
#[derive(Clone, Copy, Debug, Default)]
struct Waiting {
    /// Calls that moved records on it.
    calls: u32,
    /// Bytes received.
    received: u64,
    /// Who received last, and how many bytes.
    last: Option<(Tid, u32)>,
}

impl Waiting {
    /// Whether its last receive brought just this plain text, or the end of it.
    fn brought(&self, reads: &VecDeque<u32>) -> bool {
        let Some((_, received)) = self.last else { return false };
        let mut plain = 0;
        (1..).zip(reads.iter().rev()).any(|(records, size)| {
            plain += u64::from(*size);
            let rest = |overhead: u64| u64::from(received).checked_sub(plain + records * overhead);
            OVERHEADS.into_iter().filter_map(rest).any(|rest| BEFORE.contains(&rest))
        })
    }

    fn may_have_brought(&self, tid: Tid, size: u32) -> bool {
        self.last.is_some_and(|(last, _)| last == tid) && self.received > u64::from(size)
    }
}

impl Tls {
    /// A process serves TLS; whether that is news.
    pub fn serves(&mut self, pid: Pid) -> bool {
        self.servers.insert(pid)
    }

    /// A socket was found to speak TLS.
    pub fn wait(&mut self, socket: ConnId) {
        self.waiting.insert(socket, Waiting::default());
    }

    /// A call moved records of so many bytes on a socket; whether it is given up by that.
    pub fn moved(&mut self, tid: Tid, socket: ConnId, direction: Direction, size: u32) -> bool {
        let Some(waiting) = self.waiting.get_mut(&socket) else { return false };
        waiting.calls += 1;
        if waiting.calls > PATIENCE {
            self.waiting.remove(&socket);
            return true;
        }
        match direction {
            Direction::Rx => {
                waiting.received = waiting.received.saturating_add(u64::from(size));
                waiting.last = Some((tid, size));
            }
            Direction::Tx => {}
        }
        false
    }

    /// So many bytes of plain text came in on a connection; the socket that they came on, when that has just become clear.
    pub fn received(&mut self, tid: Tid, plain: ConnId, size: u32) -> Option<ConnId> {
        // Before anything waits, nothing is to be remembered.
        if self.waiting.is_empty() || self.socket_of.contains_key(&plain) {
            return None;
        }
        let reads = self.reads.entry(plain).or_default();
        if reads.len() == MAX_READS {
            reads.pop_front();
        }
        reads.push_back(size);
        let possible = self.waiting.iter().filter(|(_, waiting)| waiting.may_have_brought(tid, size));
        let socket = match only(possible.clone()) {
            Some(one) => one,
            None => only(possible.filter(|(_, waiting)| waiting.brought(reads)))?,
        };
        self.waiting.remove(&socket);
        self.reads.remove(&plain);
        self.plain_of.insert(socket, plain);
        self.socket_of.insert(plain, socket);
        Some(socket)
    }

    /// A connection of either kind is no more; the plain text's, when it was a socket's.
    pub fn gone(&mut self, id: ConnId) -> Option<ConnId> {
        self.waiting.remove(&id);
        self.reads.remove(&id);
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
}

/// The only one there is.
fn only<'a>(mut sockets: impl Iterator<Item = (&'a ConnId, &'a Waiting)>) -> Option<ConnId> {
    let (socket, _) = sockets.next()?;
    sockets.next().is_none().then_some(*socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: ConnId = ConnId(1);
    const B: ConnId = ConnId(2);
    const PLAIN_A: ConnId = ConnId(11);
    const PLAIN_B: ConnId = ConnId(12);
    const LOOP: Tid = Tid(7);

    fn both_wait() -> Tls {
        let mut tls = Tls::default();
        tls.wait(A);
        tls.wait(B);
        tls
    }

    #[test]
    fn plain_text_belongs_to_the_only_socket_its_thread_read() {
        let mut tls = both_wait();
        tls.moved(LOOP, A, Direction::Rx, 500);
        tls.moved(Tid(8), B, Direction::Rx, 500);
        tls.moved(LOOP, B, Direction::Tx, 500);
        assert_eq!(tls.received(Tid(9), PLAIN_A, 300), None, "a thread that read nothing");
        assert_eq!(tls.received(LOOP, PLAIN_A, 501), None, "more than came");
        assert_eq!(tls.received(LOOP, PLAIN_A, 300), Some(A));
        assert_eq!(tls.received(LOOP, PLAIN_A, 300), None, "known");
        assert_eq!(tls.received(LOOP, PLAIN_B, 300), None, "a socket carries one connection");
        assert_eq!(tls.received(Tid(8), PLAIN_B, 300), Some(B));
        assert_eq!(tls.gone(A), Some(PLAIN_A));
        assert_eq!((tls.gone(PLAIN_B), tls.gone(B)), (None, None), "freed before its socket was closed");
    }

    #[test]
    fn of_several_sockets_it_is_the_one_whose_last_receive_is_as_long() {
        // As uvloop does after a handshake: both sockets are read, and then what came with A's handshake is decrypted.
        let mut tls = both_wait();
        tls.moved(LOOP, A, Direction::Rx, 80 + 22 + 120 + 22 + 300);
        tls.moved(LOOP, B, Direction::Rx, 80 + 22 + 404);
        assert_eq!(tls.received(LOOP, PLAIN_A, 120), None, "more of it follows");
        assert_eq!(tls.received(LOOP, PLAIN_A, 300), Some(A));
        assert_eq!(tls.received(LOOP, PLAIN_B, 404), Some(B));
    }

    #[test]
    fn a_tie_that_is_not_certain_waits_for_the_next_request() {
        let mut tls = both_wait();
        tls.moved(LOOP, A, Direction::Rx, 422);
        tls.moved(LOOP, B, Direction::Rx, 422);
        assert_eq!(tls.received(LOOP, PLAIN_A, 400), None);
        assert_eq!(tls.received(LOOP, PLAIN_B, 400), None);
        tls.moved(LOOP, B, Direction::Rx, 129);
        assert_eq!(tls.received(LOOP, PLAIN_B, 100), Some(B), "TLS 1.2");
        assert_eq!((tls.gone(A), tls.gone(B)), (None, Some(PLAIN_B)));
    }

    #[test]
    fn a_socket_without_plain_text_is_given_up_and_nothing_of_it_stays() {
        let mut tls = both_wait();
        let given_up = (0..=PATIENCE).filter(|_| tls.moved(LOOP, A, Direction::Rx, 500)).count();
        assert_eq!((given_up, tls.received(LOOP, PLAIN_A, 100)), (1, None));
        assert_eq!((tls.gone(B), tls.gone(PLAIN_A)), (None, None));
        assert!(tls.waiting.is_empty() && tls.reads.is_empty() && tls.plain_of.is_empty());
    }
}
