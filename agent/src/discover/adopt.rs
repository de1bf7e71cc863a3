//! Which connections of a server are captured. The decision is a pure table of roles; the rest hands out ids.

use std::collections::BTreeMap;

use enginetap_common::watch::Verdict;
use enginetap_core::capture::fact::{self, Conn, Engine, Role};
use enginetap_core::ids::{ConnId, Fd, Pid};

use super::proc::Inode;
use super::sockets::{End, Peer, Socket, Sockets};

/// A connection to be made known to the kernel programs: the descriptor of the fact, and what is wanted of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Adoption {
    /// The connection, as the pipeline is to be told.
    pub conn: Conn,
    /// What is wanted of it.
    pub verdict: Verdict,
}

/// Gives each socket its connection id: the same socket has the same id, in whichever process and descriptor.
///
/// Ids made here count from 1; the kernel programs' own have the top bit set.
#[derive(Debug, Default)]
pub struct ConnIds {
    last: u64,
    known: BTreeMap<Inode, ConnId>,
    logs: BTreeMap<(Pid, Fd), ConnId>,
}

impl ConnIds {
    /// The id of a socket.
    pub fn of(&mut self, inode: Inode) -> ConnId {
        let Self { last, known, logs: _ } = self;
        *known.entry(inode).or_insert_with(|| {
            *last += 1;
            ConnId(*last)
        })
    }

    /// The id of what a process writes to its standard output or error. Each process has its own, though they may write to
    /// one file.
    fn of_log(&mut self, pid: Pid, fd: Fd) -> ConnId {
        let Self { last, known: _, logs } = self;
        *logs.entry((pid, fd)).or_insert_with(|| {
            *last += 1;
            ConnId(*last)
        })
    }

    /// Forgets a process that has ended.
    pub fn forget(&mut self, pid: Pid) {
        self.logs.retain(|(of, _), _| *of != pid);
    }

    /// What a process writes to a descriptor is not looked at any more: should it be again, it is another connection.
    pub fn forget_log(&mut self, pid: Pid, fd: Fd) {
        self.logs.remove(&(pid, fd));
    }

    /// Forgets sockets that are no more, so that a reused inode number is a new connection.
    pub fn retain(&mut self, alive: impl Fn(Inode) -> bool) {
        self.known.retain(|&inode, _| alive(inode));
    }
}

/// What to do with the sockets that a server's processes have open when the agent attaches. `roles` are the
/// processes of the one server whose sockets these are.
#[must_use]
pub fn adopt(
    engine: Engine,
    sockets: &Sockets,
    roles: &BTreeMap<Pid, Role>,
    ids: &mut ConnIds,
) -> Vec<Adoption> {
    let adoption = |socket: &Socket| {
        let peer = sockets.peer(socket);
        let verdict = verdict(engine, socket, &peer, roles)?;
        let conn = Conn {
            conn: ids.of(socket.inode),
            pid: socket.pid,
            fd: socket.fd,
            socket: socket.fact(&peer),
            midstream: true,
        };
        Some(Adoption { conn, verdict })
    };
    sockets.list().iter().filter_map(adoption).collect()
}

/// Standard output, whatever file that is.
pub const STDOUT: Fd = Fd(1);
/// Standard error.
pub const STDERR: Fd = Fd(2);

/// A process's standard output or error as a connection of which what is written is wanted.
pub fn log(pid: Pid, fd: Fd, ids: &mut ConnIds) -> Adoption {
    let conn = Conn { conn: ids.of_log(pid, fd), pid, fd, socket: fact::Socket::Log, midstream: true };
    Adoption { conn, verdict: Verdict::Payload }
}

/// What is wanted of a socket; `None`: it is no connection.
#[must_use]
pub fn verdict(engine: Engine, socket: &Socket, peer: &Peer, roles: &BTreeMap<Pid, Role>) -> Option<Verdict> {
    let transport = match socket.end {
        End::Tcp { .. } => Transport::Tcp,
        End::Unix { .. } => Transport::Unix,
        End::TcpListener(_) | End::UnixListener(_) | End::Other => return None,
    };
    let role = roles.get(&socket.pid).copied().unwrap_or(Role::Other);
    let opposite = Opposite::of(socket.pid, peer, roles);
    Some(match engine {
        Engine::Vllm => vllm(role, transport, opposite),
        Engine::Sglang => sglang(role, transport, opposite),
    })
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Transport {
    Tcp,
    Unix,
}

/// Who is opposite, for the decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Opposite {
    /// The process itself: a pair it wakes itself with.
    Itself,
    /// A process of the same server.
    Inside(Role),
    /// A client, or an engine on another node.
    Outside,
    /// The kernel did not tell.
    Unknown,
}

impl Opposite {
    fn of(pid: Pid, peer: &Peer, roles: &BTreeMap<Pid, Role>) -> Self {
        match peer {
            Peer::Inside(pids) if pids.contains(&pid) => Self::Itself,
            // Where a descriptor was inherited by several, the first process with a role of interest counts.
            Peer::Inside(pids) => {
                let inside = |role: &Role| pids.iter().any(|pid| roles.get(pid) == Some(role));
                let first =
                    [Role::ApiServer, Role::EngineCore, Role::Coordinator, Role::Worker, Role::Supervisor];
                Self::Inside(first.into_iter().find(inside).unwrap_or(Role::Other))
            }
            Peer::Outside => Self::Outside,
            Peer::Unknown => Self::Unknown,
        }
    }
}

/// The policy for vLLM. A connection between two watched processes is captured once, at the API server's end; the
/// engine's own end only where the API server's is on another node.
fn vllm(role: Role, transport: Transport, opposite: Opposite) -> Verdict {
    use Opposite::{Inside, Itself, Outside, Unknown};
    use Transport::{Tcp, Unix};
    match (role, opposite, transport) {
        (_, Itself, _) => Verdict::Ignore,
        (Role::ApiServer, Outside | Unknown | Inside(Role::EngineCore | Role::Other), _) => Verdict::Payload,
        // One API server as the HTTP client of another.
        (Role::ApiServer, Inside(Role::ApiServer), Tcp) => Verdict::Payload,
        (Role::ApiServer, Inside(Role::ApiServer), Unix) => Verdict::Ignore,
        (Role::ApiServer, Inside(Role::Worker | Role::Coordinator | Role::Supervisor), _) => Verdict::Ignore,
        (Role::EngineCore, Outside, _) | (Role::EngineCore, Unknown, Tcp) => Verdict::Payload,
        (Role::EngineCore, Unknown, Unix) | (Role::EngineCore, Inside(_), _) => Verdict::Ignore,
        (Role::Worker | Role::Coordinator | Role::Supervisor | Role::Other, _, _) => Verdict::Ignore,
    }
}

/// The policy for SGLang. The frontend's end shows what it sends to the scheduler and gets from the detokenizer; the
/// scheduler's end of its socket to the detokenizer is captured too: the moment at which it sends is the step's end.
/// Data-parallel controllers and tokenizer routers stand between the two and pass on what the frontend sent.
fn sglang(role: Role, transport: Transport, opposite: Opposite) -> Verdict {
    use Opposite::{Inside, Itself, Outside, Unknown};
    use Transport::{Tcp, Unix};
    match (role, opposite, transport) {
        (_, Itself, _) => Verdict::Ignore,
        (
            Role::ApiServer,
            Outside
            | Unknown
            | Inside(Role::EngineCore | Role::Other | Role::Coordinator | Role::Supervisor | Role::Worker),
            _,
        ) => Verdict::Payload,
        (Role::ApiServer, Inside(Role::ApiServer), Tcp) => Verdict::Payload,
        (Role::ApiServer, Inside(Role::ApiServer), Unix) => Verdict::Ignore,
        (Role::EngineCore, Inside(Role::Other) | Outside | Unknown, _) => Verdict::Payload,
        (
            Role::EngineCore,
            Inside(Role::ApiServer | Role::EngineCore | Role::Coordinator | Role::Supervisor | Role::Worker),
            _,
        ) => Verdict::Ignore,
        (Role::Worker | Role::Coordinator | Role::Supervisor | Role::Other, _, _) => Verdict::Ignore,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_policy_captures_each_conversation_once() {
        use Opposite::{Inside, Itself, Outside, Unknown};
        use Role::{ApiServer, Coordinator, EngineCore, Other, Supervisor, Worker};
        use Transport::{Tcp, Unix};
        use Verdict::{Ignore, Payload};
        for (role, transport, opposite, expected, why) in [
            (ApiServer, Tcp, Outside, Payload, "HTTP of a client"),
            (ApiServer, Unix, Outside, Payload, "HTTP over a Unix socket"),
            (ApiServer, Unix, Inside(EngineCore), Payload, "ZMQ with the engine"),
            (ApiServer, Tcp, Inside(EngineCore), Payload, "ZMQ over TCP on one machine"),
            (ApiServer, Unix, Inside(Other), Payload, "an engine whose title is not there yet"),
            (ApiServer, Unix, Unknown, Payload, "ZMQ where the kernel does not tell peers"),
            (ApiServer, Unix, Inside(Coordinator), Ignore, "load figures"),
            (ApiServer, Unix, Inside(Supervisor), Ignore, "multiprocessing's pipes"),
            (ApiServer, Unix, Itself, Ignore, "the event loop's own pair"),
            (ApiServer, Tcp, Inside(ApiServer), Payload, "one API server asks another"),
            (EngineCore, Unix, Inside(ApiServer), Ignore, "the other end is captured"),
            (EngineCore, Tcp, Inside(ApiServer), Ignore, "the other end is captured"),
            (EngineCore, Unix, Inside(Worker), Ignore, "step notifies"),
            (EngineCore, Unix, Inside(Coordinator), Ignore, "statistics that are no steps"),
            (EngineCore, Tcp, Outside, Payload, "an API server on another node"),
            (EngineCore, Unix, Unknown, Ignore, "the API server's end is captured"),
            (Worker, Tcp, Outside, Ignore, "gloo, NCCL"),
            (Worker, Unix, Inside(EngineCore), Ignore, "step notifies"),
            (Coordinator, Tcp, Outside, Ignore, "no requests there"),
            (Supervisor, Tcp, Outside, Ignore, "serves nothing"),
            (Other, Tcp, Outside, Ignore, "of no interest"),
        ] {
            assert_eq!(vllm(role, transport, opposite), expected, "{role:?} {opposite:?}: {why}");
        }
    }

    #[test]
    fn of_sglang_the_way_out_of_the_scheduler_is_captured_too() {
        use Opposite::{Inside, Itself, Outside, Unknown};
        use Role::{ApiServer, Coordinator, EngineCore, Other, Supervisor};
        use Transport::{Tcp, Unix};
        use Verdict::{Ignore, Payload};
        for (role, transport, opposite, expected, why) in [
            (ApiServer, Tcp, Outside, Payload, "HTTP of a client"),
            (ApiServer, Unix, Inside(EngineCore), Payload, "requests to the scheduler"),
            (ApiServer, Unix, Inside(Other), Payload, "texts from the detokenizer"),
            (ApiServer, Unix, Inside(Coordinator), Payload, "requests to the data-parallel controller"),
            (ApiServer, Unix, Inside(Supervisor), Payload, "a tokenizer worker's requests to the router"),
            (ApiServer, Unix, Itself, Ignore, "the event loop's own pair"),
            (EngineCore, Unix, Inside(Other), Payload, "tokens to the detokenizer"),
            (EngineCore, Unix, Unknown, Payload, "tokens, where the kernel does not tell peers"),
            (EngineCore, Unix, Inside(ApiServer), Ignore, "the other end is captured"),
            (EngineCore, Unix, Inside(Coordinator), Ignore, "the frontend's end is captured"),
            (EngineCore, Tcp, Inside(EngineCore), Ignore, "gloo between ranks"),
            (
                EngineCore,
                Tcp,
                Outside,
                Payload,
                "a frontend on another node, or HTTP in the scheduler itself",
            ),
            (Other, Unix, Inside(EngineCore), Ignore, "the detokenizer's own end"),
        ] {
            assert_eq!(sglang(role, transport, opposite), expected, "{role:?} {opposite:?}: {why}");
        }
    }

    #[test]
    fn a_listening_socket_is_no_connection() {
        let end = End::TcpListener("0.0.0.0:8000".parse().unwrap());
        let socket = Socket { pid: Pid(1), fd: Fd(3), inode: Inode(9), end };
        let roles = BTreeMap::from([(Pid(1), Role::ApiServer)]);
        assert_eq!(verdict(Engine::Vllm, &socket, &Peer::Unknown, &roles), None);
    }

    #[test]
    fn a_socket_keeps_its_id_until_it_is_forgotten() {
        let mut ids = ConnIds::default();
        assert_eq!((ids.of(Inode(7)), ids.of(Inode(8)), ids.of(Inode(7))), (ConnId(1), ConnId(2), ConnId(1)));
        ids.retain(|inode| inode != Inode(7));
        assert_eq!((ids.of(Inode(7)), ids.of(Inode(8))), (ConnId(3), ConnId(2)));
    }

    #[test]
    fn each_process_has_a_log_of_its_own_until_it_ends() {
        let mut ids = ConnIds::default();
        let first = log(Pid(7), STDERR, &mut ids);
        assert_eq!((first.conn.fd, first.verdict), (Fd(2), Verdict::Payload));
        assert_ne!(log(Pid(8), STDERR, &mut ids).conn.conn, first.conn.conn);
        assert_ne!(log(Pid(7), STDOUT, &mut ids).conn.conn, first.conn.conn);
        assert_eq!(log(Pid(7), STDERR, &mut ids), first);
        ids.forget(Pid(7));
        assert_ne!(log(Pid(7), STDERR, &mut ids).conn.conn, first.conn.conn);
    }

    #[test]
    fn the_role_of_an_inherited_descriptor_is_its_most_interesting_holders() {
        let roles = BTreeMap::from([
            (Pid(1), Role::Supervisor),
            (Pid(2), Role::EngineCore),
            (Pid(3), Role::ApiServer),
        ]);
        let opposite = |pids: &[u32]| {
            Opposite::of(Pid(3), &Peer::Inside(pids.iter().copied().map(Pid).collect()), &roles)
        };
        assert_eq!(opposite(&[1, 2]), Opposite::Inside(Role::EngineCore));
        assert_eq!(opposite(&[1, 9]), Opposite::Inside(Role::Supervisor));
        assert_eq!(opposite(&[9]), Opposite::Inside(Role::Other));
        assert_eq!(opposite(&[3, 2]), Opposite::Itself);
    }
}
