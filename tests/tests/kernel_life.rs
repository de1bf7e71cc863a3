//! What the kernel programs make of descriptors and processes that come and go. On the running kernel; as root.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use anyhow::{Context, Result};
use enginetap::probe::Options;
use enginetap_core::capture::record::Body;
use enginetap_core::ids::{ConnId, Fd, Pid};
use enginetap_tests::live::Live;

/// The socket descriptors of a process, by inode, as `/proc` shows them.
fn sockets(pid: Pid) -> Result<Vec<(Fd, u64)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(format!("/proc/{}/fd", pid.0))? {
        let entry = entry?;
        let target = fs::read_link(entry.path())?.to_string_lossy().into_owned();
        if let Some(inode) = target.strip_prefix("socket:[").and_then(|rest| rest.strip_suffix(']')) {
            found.push((Fd(entry.file_name().to_string_lossy().parse()?), inode.parse()?));
        }
    }
    Ok(found)
}

#[test]
fn a_connection_is_accepted_and_closed_and_its_number_used_again() -> Result<()> {
    let mut live = Live::load(&Options::default())?;
    let mut script = live.script(
        "
ready()
for round in range(3):
    client, server = pair()
    client.send(b'hello'); server.send(b'well'); exactly(server, 5); exactly(client, 4)
    client.close(); server.close()
",
    )?;
    script.go()?;
    live.finish(&mut script)?;
    let (accepted, opened) = (live.conns(true), live.conns(false));
    assert_eq!((accepted.len(), opened.len()), (3, 3));
    assert!(accepted.iter().all(|(_, fd)| *fd == accepted[0].1), "the descriptor is the same each time");
    let mut ids: Vec<ConnId> = accepted.iter().chain(&opened).map(|(conn, _)| *conn).collect();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 6, "the connections are not");
    let streams = live.streams();
    for (conn, _) in accepted {
        assert_eq!(streams[&(conn, false)].whole(), Some(b"hello".to_vec()));
        assert_eq!(streams[&(conn, true)].whole(), Some(b"well".to_vec()));
        let closes =
            live.parsed().filter(|record| matches!(record.body, Body::Close { conn: of, .. } if of == conn));
        assert_eq!(closes.count(), 1);
    }
    assert_eq!(live.probe.descriptors(script.pid())?, [], "nothing is left in the tables");
    Ok(())
}

#[test]
fn a_number_that_another_thread_gets_while_its_close_returns_is_another_connection() -> Result<()> {
    let mut live = Live::load(&Options { ring_bytes_total: 32 * 1024 * 1024, ..Options::default() })?;
    let mut script = live.script(
        "
import queue
sys.setswitchinterval(1e-5)
listener = socket.create_server(('127.0.0.1', 0), backlog=500)
rubbish = [queue.SimpleQueue() for _ in range(4)]
def closer(mine):
    while (fd := mine.get()) is not None: os.close(fd)
def client(first):
    for i in range(first, first + 500):
        one = socket.create_connection(listener.getsockname())
        one.send(b'%08d' % i); one.recv(1)
        rubbish[i % 4].put(one.detach())
def server():
    for _ in range(500):
        one, _ = listener.accept()
        exactly(one, 8); one.send(b'.')
        rubbish[one.fileno() % 4].put(one.detach())
ready()
closers = [threading.Thread(target=closer, args=(mine,)) for mine in rubbish]
others = [threading.Thread(target=client, args=(i * 500,)) for i in range(3)]
others += [threading.Thread(target=server) for _ in range(3)]
for thread in closers + others: thread.start()
for thread in others: thread.join()
for mine in rubbish: mine.put(None)
for thread in closers: thread.join()
",
    )?;
    script.go()?;
    live.finish(&mut script)?;
    assert_eq!(live.lost()?, 0);
    let streams = live.streams();
    let conns = [live.conns(true), live.conns(false)].concat();
    assert_eq!(conns.len(), 3000);
    let mut closes = BTreeMap::<ConnId, usize>::new();
    for record in live.parsed() {
        if let Body::Close { conn, .. } = record.body {
            *closes.entry(conn).or_default() += 1;
        }
    }
    assert_eq!(closes.len(), 3000);
    assert!(closes.values().all(|count| *count == 1), "each is closed once");
    let received: BTreeSet<_> =
        live.conns(true).iter().map(|(conn, _)| streams[&(*conn, false)].whole()).collect();
    let sent: BTreeSet<_> = (0..1500).map(|i| Some(format!("{i:08}").into_bytes())).collect();
    assert!(received == sent, "each has its own eight bytes");
    assert_eq!(live.probe.descriptors(script.pid())?, []);
    Ok(())
}

#[test]
fn a_duplicated_descriptor_is_the_same_connection_until_the_last_one_closes() -> Result<()> {
    let mut live = Live::load(&Options::default())?;
    let mut script = live.script(
        "
import fcntl
ready()
client, server = pair()
os.write(client.fileno(), b'one,')
copy = os.dup(client.fileno()); os.write(copy, b'two,')
os.dup2(client.fileno(), 50); os.write(50, b'three,')
high = fcntl.fcntl(client.fileno(), fcntl.F_DUPFD_CLOEXEC, 60); os.write(high, b'four,')
client.close(); os.close(copy); os.close(50); os.write(high, b'five')
exactly(server, 23)
ready()
os.close(high)
",
    )?;
    script.go()?;
    script.expect_ready()?;
    live.flush();
    let (client, _) = *live.conns(false).first().context("no connection")?;
    assert_eq!(live.streams()[&(client, true)].whole(), Some(b"one,two,three,four,five".to_vec()));
    let known = live.probe.descriptors(script.pid())?;
    assert_eq!(known.iter().filter(|(_, conn)| *conn == client).count(), 1);
    script.go()?;
    live.finish(&mut script)?;
    let dups = live
        .parsed()
        .filter(|record| matches!(record.body, Body::Dup { conn, .. } if conn == client))
        .count();
    let closes = live
        .parsed()
        .filter(|record| matches!(record.body, Body::Close { conn, .. } if conn == client))
        .count();
    assert_eq!((dups, closes), (3, 4));
    Ok(())
}

#[test]
fn an_existing_socket_is_adopted_and_shared_with_a_forked_child() -> Result<()> {
    let mut live = Live::load(&Options::default())?;
    let mut script = live.script(
        "
client, server = pair()
ready()
os.write(client.fileno(), b'parent,')
child = os.fork()
if child == 0:
    sys.stdin = open(0)
    time.sleep(0.5)
    os.write(client.fileno(), b'child,')
    os._exit(0)
os.waitpid(child, 0)
os.write(client.fileno(), b'parent')
exactly(server, 19)
",
    )?;
    let pid = script.pid();
    let existing = sockets(pid)?;
    assert_eq!(existing.len(), 2);
    for (fd, inode) in &existing {
        assert!(live.probe.adopt(pid, *fd, ConnId(*inode))?);
        assert!(!live.probe.adopt(pid, *fd, ConnId(*inode))?, "the second time it is known");
    }
    script.go()?;
    let child = loop {
        live.round()?;
        let fork = live.parsed().find_map(|record| match record.body {
            Body::Fork { child } => Some(child),
            Body::Data(_)
            | Body::Accept { .. }
            | Body::Connect { .. }
            | Body::Close { .. }
            | Body::Dup { .. }
            | Body::Exec
            | Body::Exit
            | Body::Mark(_) => None,
        });
        if let Some(child) = fork {
            break child;
        }
    };
    for (fd, inode) in sockets(child)? {
        assert!(live.probe.adopt(child, fd, ConnId(inode))?);
    }
    live.probe.watch(child)?;
    live.finish(&mut script)?;
    let streams = live.streams();
    let sent: Vec<_> =
        streams.iter().filter(|((_, sent), _)| *sent).map(|(_, stream)| stream.whole()).collect();
    assert_eq!(sent, [Some(b"parent,child,parent".to_vec())], "one stream, whoever writes");
    let ends: Vec<Pid> =
        live.parsed().filter(|record| record.body == Body::Exit).map(|record| record.pid).collect();
    assert_eq!(ends, [child, pid]);
    // The parent's descriptors went with it unseen: its end is the agent's to act on.
    live.probe.unwatch(pid)?;
    live.probe.unwatch(child)?;
    assert_eq!(live.probe.descriptors(pid)?, []);
    Ok(())
}

#[test]
fn reading_a_file_is_nothing_and_an_unknown_socket_becomes_known_when_it_moves_bytes() -> Result<()> {
    let mut live = Live::load(&Options::default())?;
    let mut script = live.script(
        "
one, other = socket.socketpair()
ready()
with open('/proc/self/status') as file: file.read()
os.write(one.fileno(), b'unseen'); os.read(other.fileno(), 6)
one.send(b'seen'); other.recv(4)
os.write(one.fileno(), b' too'); os.read(other.fileno(), 4)
",
    )?;
    script.go()?;
    live.finish(&mut script)?;
    let streams: Vec<_> = live.streams().into_values().map(|stream| stream.whole()).collect();
    assert_eq!(streams, [Some(b"seen too".to_vec()), Some(b"seen too".to_vec())]);
    Ok(())
}

#[test]
fn a_process_that_becomes_another_program_is_told_and_its_sockets_forgotten() -> Result<()> {
    let mut live = Live::load(&Options::default())?;
    let mut script = live.script(
        "
ready()
client, server = pair()
client.send(b'before'); exactly(server, 6)
os.execvp('sleep', ['sleep', '1'])
",
    )?;
    script.go()?;
    while !live.parsed().any(|record| record.body == Body::Exec) {
        live.round()?;
    }
    assert_eq!(live.probe.descriptors(script.pid())?.len(), 2);
    assert_eq!(live.probe.reconcile(script.pid())?, 2, "closed by the exec, unseen");
    assert_eq!(live.probe.descriptors(script.pid())?, []);
    live.finish(&mut script)?;
    Ok(())
}

#[test]
fn the_end_of_a_thread_is_not_the_end_of_its_process() -> Result<()> {
    let mut live = Live::load(&Options::default())?;
    let mut script = live.script(
        "
ready()
for _ in range(5):
    thread = threading.Thread(target=lambda: None); thread.start(); thread.join()
client, server = pair()
client.send(b'still here'); exactly(server, 10)
",
    )?;
    script.go()?;
    live.finish(&mut script)?;
    let exits = live.parsed().filter(|record| record.body == Body::Exit).count();
    let forks = live.parsed().filter(|record| matches!(record.body, Body::Fork { .. })).count();
    assert_eq!((exits, forks), (1, 5));
    assert_eq!(live.streams().len(), 2);
    Ok(())
}

#[test]
fn a_process_that_is_not_watched_makes_no_records() -> Result<()> {
    let mut live = Live::load(&Options::default())?;
    let mut script =
        live.script("ready()\nclient, server = pair()\nclient.send(b'unseen'); exactly(server, 6)")?;
    live.probe.unwatch(script.pid())?;
    script.go()?;
    live.finish(&mut script)?;
    assert_eq!(live.records.len(), 0);
    Ok(())
}
