//! The plain text of TLS, as the probes on the library see it. On the running kernel; as root.
//!
//! Client and server run in one process, on memory buffers as asyncio and uvloop have them: what one writes, the other
//! reads, through the same library.

#![allow(clippy::unwrap_used, reason = "a test says by a panic what is wrong")]

use anyhow::{Context, Result};
use enginetap::discover::proc::Proc;
use enginetap::discover::tls::{Library, find};
use enginetap::probe::Options;
use enginetap_common::watch::Verdict;
use enginetap_core::capture::record::Body;
use enginetap_core::ids::ConnId;
use enginetap_tests::certificate::Certificate;
use enginetap_tests::live::{Live, Script, Stream, pattern};

/// A script with TLS: `Pair(version)` is a client and a server.
const TLS: &str = r"
import ssl, gc
class Pair:
    def __init__(self, version=ssl.TLSVersion.TLSv1_3, module=ssl):
        server, client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        server.load_cert_chain(CERT, KEY)
        client.check_hostname, client.verify_mode = False, ssl.CERT_NONE
        server.maximum_version = client.maximum_version = version
        up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.server, self.client = server.wrap_bio(up, down, True), client.wrap_bio(down, up)
        done = [False, False]
        while not all(done):
            for i, side in enumerate((self.client, self.server)):
                try:
                    side.do_handshake(); done[i] = True
                except ssl.SSLWantReadError: pass
    def move(self, data, to_server=True, at_once=1 << 20):
        here, there = (self.client, self.server) if to_server else (self.server, self.client)
        got = b''
        while data:
            sent = here.write(data[:at_once]); data = data[sent:]
            try:
                while True: got += there.read(100000)
            except ssl.SSLWantReadError: pass
        return got
";

/// A watched script whose TLS library is probed, at its first `ready()`.
struct Watched {
    script: Script,
    _certificate: Certificate,
}

fn start(live: &mut Live, text: &str) -> Result<Watched> {
    let certificate = Certificate::new()?;
    let names = format!("CERT, KEY = {:?}, {:?}", certificate.chain(), certificate.key());
    let script = live.script(&format!("{names}\n{TLS}\n{text}"))?;
    for library in &libraries(&script)? {
        live.probe.attach_tls(script.pid(), library)?;
    }
    Ok(Watched { script, _certificate: certificate })
}

fn libraries(script: &Script) -> Result<Vec<Library>> {
    find(&Proc::system(), script.pid()).map_err(anyhow::Error::msg)
}

/// Runs a script to its end; what moved, by connection in the order they were first seen: received, sent.
fn run(live: &mut Live, text: &str) -> Result<Vec<(Stream, Stream)>> {
    let mut watched = start(live, text)?;
    watched.script.go()?;
    live.finish(&mut watched.script)?;
    Ok(connections(live))
}

fn connections(live: &Live) -> Vec<(Stream, Stream)> {
    let mut order: Vec<ConnId> = Vec::new();
    for record in live.parsed() {
        if let Body::Data(data) = record.body {
            assert!(data.call.is_tls() && data.fd.0 == -1, "{data:?}");
            if !order.contains(&data.conn) {
                order.push(data.conn);
            }
        }
    }
    let streams = live.streams();
    let of = |conn: ConnId, sent: bool| streams.get(&(conn, sent)).cloned().unwrap_or_default();
    order.into_iter().map(|conn| (of(conn, false), of(conn, true))).collect()
}

fn closed(live: &Live) -> usize {
    live.parsed().filter(|record| matches!(record.body, Body::Close { .. })).count()
}

#[test]
fn plain_text_is_seen_byte_for_byte_under_both_versions_of_tls() -> Result<()> {
    for version in ["TLSv1_2", "TLSv1_3"] {
        let mut live = Live::load(&Options::default())?;
        let text = format!(
            "
ready()
pair = Pair(ssl.TLSVersion.{version})
for seed in range(20):
    data = pattern(300 + seed, seed)
    assert pair.move(data) == data
assert pair.move(pattern(50000), False, 40000) == pattern(50000)
del pair; gc.collect()
"
        );
        let connections = run(&mut live, &text)?;
        let expected: Vec<u8> = (0..20).flat_map(|seed| pattern(300 + seed, seed)).collect();
        let [(client_received, sent), (received, server_sent)] = connections.as_slice() else {
            panic!("{} connections", connections.len())
        };
        assert_eq!(sent.whole(), Some(expected.clone()), "{version}");
        assert_eq!(received.whole(), Some(expected), "{version}");
        assert_eq!(server_sent.whole(), Some(pattern(50000, 0)), "{version}");
        assert_eq!(client_received.whole(), Some(pattern(50000, 0)), "{version}");
        // Calls are the application's, not the protocol's records of 16 KiB.
        assert_eq!(server_sent.calls.values().copied().collect::<Vec<_>>(), [40000, 10000]);
        assert_eq!((closed(&live), live.lost()?), (2, 0), "{version}");
    }
    Ok(())
}

#[test]
fn a_connection_that_was_open_already_is_joined() -> Result<()> {
    let mut live = Live::load(&Options::default())?;
    let connections = run(
        &mut live,
        "
pair = Pair()
pair.move(pattern(1000))
ready()
pair.move(pattern(2000, 5))
",
    )?;
    let [(_, sent), (received, _)] = connections.as_slice() else { panic!("{}", connections.len()) };
    assert_eq!(sent.whole(), Some(pattern(2000, 5)));
    assert_eq!(received.whole(), Some(pattern(2000, 5)));
    Ok(())
}

#[test]
fn an_address_that_is_used_again_is_another_connection() -> Result<()> {
    let mut live = Live::load(&Options::default())?;
    let connections = run(
        &mut live,
        "
gc.disable()
ready()
for seed in range(30):
    pair = Pair()
    pair.move(pattern(100 + seed, seed))
    del pair
",
    )?;
    assert_eq!((connections.len(), closed(&live)), (60, 60));
    for (seed, pair) in connections.chunks(2).enumerate() {
        let [(_, sent), (received, _)] = pair else { panic!("half a pair") };
        assert_eq!(sent.whole(), Some(pattern(100 + seed, seed)));
        assert_eq!(received.whole(), Some(pattern(100 + seed, seed)));
    }
    Ok(())
}

#[test]
fn calls_that_move_nothing_are_nothing_and_a_mebibyte_is_seen_whole() -> Result<()> {
    let mut live = Live::load(&Options::default())?;
    let connections = run(
        &mut live,
        "
ready()
pair = Pair()
for i in range(10):
    try: pair.server.read(10); assert False
    except ssl.SSLWantReadError: pass
data = pattern(1 << 20)
assert pair.move(data) == data
pair.client.write(b'')
try: pair.client.unwrap()
except ssl.SSLWantReadError: pass
assert pair.server.read(10) == b''
",
    )?;
    let [(_, sent), (received, _)] = connections.as_slice() else { panic!("{}", connections.len()) };
    let expected = pattern(1 << 20, 0);
    assert!(sent.whole().as_ref() == Some(&expected), "{} bytes are missing", sent.missing());
    assert_eq!(sent.calls.len(), 1);
    assert!(received.whole() == Some(expected), "{} bytes are missing", received.missing());
    assert_eq!(live.lost()?, 0);
    Ok(())
}

#[test]
fn over_the_cap_the_rest_is_a_gap() -> Result<()> {
    let mut live = Live::load(&Options { cap: 20_000, ..Options::default() })?;
    let connections =
        run(&mut live, "\nready()\npair = Pair()\npair.move(pattern(50000))\npair.move(b'end')\n")?;
    let [(_, sent), _] = connections.as_slice() else { panic!("{}", connections.len()) };
    assert!(sent.bytes[..20_000].iter().copied().eq(pattern(20_000, 0).into_iter().map(Some)));
    assert_eq!((sent.bytes.len(), sent.missing()), (50_003, 30_000));
    assert_eq!(sent.bytes.last_chunk(), Some(&b"end".map(Some)));
    assert_eq!(live.lost()?, 1, "the call over the cap is counted");
    Ok(())
}

#[test]
fn keys_that_change_in_the_midst_change_nothing() -> Result<()> {
    let mut live = Live::load(&Options::default())?;
    // TLS 1.3 updates keys, TLS 1.2 shakes hands again; Python has no names for either.
    let connections = run(
        &mut live,
        "
def ssl_of(side): return ctypes.c_void_p.from_address(id(side._sslobj) + 24).value
name = next(line.split()[-1] for line in open('/proc/self/maps') if '/libssl.so' in line)
lib = ctypes.CDLL(name)
lib.SSL_key_update.argtypes = [ctypes.c_void_p, ctypes.c_int]
lib.SSL_renegotiate.argtypes = [ctypes.c_void_p]
ready()
pair = Pair()
pair.move(pattern(100, 1))
assert lib.SSL_key_update(ssl_of(pair.client), 1) == 1
pair.move(pattern(100, 2)); pair.move(pattern(100, 3), False)
old = Pair(ssl.TLSVersion.TLSv1_2)
old.move(pattern(100, 4))
assert lib.SSL_renegotiate(ssl_of(old.server)) == 1
# A write in the midst of it is refused, and asked for again when hands have been shaken: it counts once.
refused = 0
def insist(data, to_server):
    global refused
    while True:
        try: return old.move(data, to_server)
        except ssl.SSLWantReadError: refused += 1
        for side in (old.client, old.server):
            try: side.do_handshake(); assert side.read(1) is None
            except ssl.SSLWantReadError: pass
assert insist(pattern(100, 5), False) == pattern(100, 5)
assert insist(pattern(100, 6), True) == pattern(100, 6)
assert refused > 0
",
    )?;
    assert_eq!(connections.len(), 4);
    let sent = |of: usize| connections[of].1.whole().unwrap();
    let received = |of: usize| connections[of].0.whole().unwrap();
    assert_eq!(sent(0), [pattern(100, 1), pattern(100, 2)].concat());
    assert_eq!(received(1), sent(0));
    assert_eq!((received(0), sent(1)), (pattern(100, 3), pattern(100, 3)));
    assert_eq!(sent(2), [pattern(100, 4), pattern(100, 6)].concat());
    assert_eq!(received(3), sent(2));
    assert_eq!((received(2), sent(3)), (pattern(100, 5), pattern(100, 5)));
    Ok(())
}

#[test]
fn threads_do_not_disturb_each_other() -> Result<()> {
    let mut live = Live::load(&Options::default())?;
    let connections = run(
        &mut live,
        "
ready()
def work(seed):
    pair = Pair()
    for i in range(50):
        data = pattern(2000 + i, seed)
        assert pair.move(data) == data
threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
",
    )?;
    assert_eq!((connections.len(), live.lost()?), (16, 0));
    let mut seen: Vec<Vec<u8>> = connections
        .iter()
        .flat_map(|(received, sent)| [received.whole(), sent.whole()])
        .flatten()
        .filter(|bytes| !bytes.is_empty())
        .collect();
    let mut expected: Vec<Vec<u8>> = (0..8)
        .map(|seed| (0..50).flat_map(|i| pattern(2000 + i, seed)).collect::<Vec<u8>>())
        .flat_map(|bytes| [bytes.clone(), bytes])
        .collect();
    seen.sort();
    expected.sort();
    assert!(seen == expected);
    Ok(())
}

#[test]
fn an_ignored_connection_makes_no_more_records() -> Result<()> {
    let mut live = Live::load(&Options::default())?;
    let mut watched = start(
        &mut live,
        "
ready()
pair = Pair()
pair.move(b'first')
ready()
pair.move(b'second'); pair.move(b'third')
",
    )?;
    watched.script.go()?;
    watched.script.expect_ready()?;
    live.flush();
    let (client, _) = live.streams().into_keys().find(|(_, sent)| *sent).context("nothing sent")?;
    assert!(live.probe.set_verdict(client, Verdict::Ignore)?);
    watched.script.go()?;
    live.finish(&mut watched.script)?;
    let [(_, sent), (received, _)] = connections(&live).try_into().map_err(|_| anyhow::anyhow!("no pair"))?;
    assert_eq!(sent.whole(), Some(b"first".to_vec()));
    assert_eq!(received.whole(), Some(b"firstsecondthird".to_vec()));
    Ok(())
}

#[test]
fn probes_go_with_the_watch_and_the_target_goes_on() -> Result<()> {
    let mut live = Live::load(&Options::default())?;
    let mut watched = start(
        &mut live,
        "
ready()
pair = Pair()
pair.move(b'seen')
ready()
assert pair.move(b'unseen') == b'unseen'
",
    )?;
    let pid = watched.script.pid();
    assert_eq!(live.probe.tls_probes(pid), 5, "two entries, two ends, SSL_free");
    watched.script.go()?;
    watched.script.expect_ready()?;
    live.probe.unwatch(pid)?;
    assert_eq!(live.probe.tls_probes(pid), 0);
    watched.script.go()?;
    live.finish(&mut watched.script)?;
    let seen: Vec<_> = connections(&live).into_iter().map(|(received, _)| received.whole()).collect();
    assert_eq!(seen, [Some(Vec::new()), Some(b"seen".to_vec())]);
    Ok(())
}

/// A filter that ends the process at any call but those that existed before return probes had a call of their own.
#[test]
fn a_target_under_a_strict_seccomp_filter_lives_on() -> Result<()> {
    let mut live = Live::load(&Options::default())?;
    let connections = run(
        &mut live,
        "
# ld nr; jgt 334 -> kill; allow. 335 and 336 are the calls of uretprobe and uprobe on x86-64.
filter = struct.pack('HBBIHBBIHBBIHBBIHBBI', 0x20, 0, 0, 0, 0x35, 0, 2, 335, 0x35, 1, 0, 337, 0x06, 0, 0, 0x80000000, 0x06, 0, 0, 0x7fff0000)
buffer = ctypes.create_string_buffer(filter, len(filter))
program = struct.pack('HxxxxxxQ', 5, ctypes.addressof(buffer))
ready()
libc.prctl.argtypes = [ctypes.c_int] + [ctypes.c_void_p] * 4
assert libc.prctl(38, 1, None, None, None) == 0
assert libc.prctl(22, 2, ctypes.cast(ctypes.create_string_buffer(program), ctypes.c_void_p), None, None) == 0
pair = Pair()
for i in range(100): assert pair.move(b'x' * 100) == b'x' * 100
",
    )?;
    let [(_, sent), (received, _)] = connections.as_slice() else { panic!("{}", connections.len()) };
    assert_eq!((sent.bytes.len(), received.bytes.len()), (10_000, 10_000));
    Ok(())
}
