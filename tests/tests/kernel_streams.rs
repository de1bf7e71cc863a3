//! What the kernel programs make of every call that moves socket bytes. On the running kernel; as root.

use anyhow::{Context, Result};
use enginetap::probe::Options;
use enginetap_common::watch::Verdict;
use enginetap_core::capture::record::Body;
use enginetap_tests::live::{Live, Stream, pattern};

/// Runs a script to its end and gives the two directions of its first pair: what the client sent, and what the
/// server received.
fn client_to_server(live: &mut Live, text: &str) -> Result<(Stream, Stream)> {
    let mut script = live.script(text)?;
    script.go()?;
    live.finish(&mut script)?;
    let streams = live.streams();
    let (client, _) = *live.conns(false).first().context("no connection opened")?;
    let (server, _) = *live.conns(true).first().context("no connection accepted")?;
    Ok((
        streams.get(&(client, true)).cloned().unwrap_or_default(),
        streams.get(&(server, false)).cloned().unwrap_or_default(),
    ))
}

#[test]
fn write_and_read_are_seen_byte_for_byte() -> Result<()> {
    let mut live = Live::load(&Options::default())?;
    let (sent, received) = client_to_server(
        &mut live,
        "
ready()
client, server = pair()
for seed in range(20):
    os.write(client.fileno(), pattern(300 + seed, seed))
    want = 300 + seed
    while want: want -= len(os.read(server.fileno(), min(want, 177)))
client.close()
assert os.read(server.fileno(), 10) == b''
",
    )?;
    let expected: Vec<u8> = (0..20).flat_map(|seed| pattern(300 + seed, seed)).collect();
    assert_eq!(sent.whole(), Some(expected.clone()));
    assert_eq!(received.whole(), Some(expected));
    assert_eq!(sent.calls.len(), 20);
    assert!(received.ended, "the end of the stream is seen");
    assert!(!sent.disorder && !received.disorder);
    assert_eq!(live.lost()?, 0);
    Ok(())
}

#[test]
fn vectored_calls_are_seen_buffer_by_buffer() -> Result<()> {
    let mut live = Live::load(&Options::default())?;
    let (sent, received) = client_to_server(
        &mut live,
        "
ready()
client, server = pair()
data = pattern(10000)
assert os.writev(client.fileno(), [data[:1], b'', data[1:900], data[900:]]) == 10000
got = 0
while got < 10000:
    got += os.readv(server.fileno(), [bytearray(1000), bytearray(1), bytearray(4000)])
assert client.sendmsg([data[:5000], data[5000:]]) == 10000
got = 0
while got < 10000:
    got += server.recvmsg_into([bytearray(3), bytearray(6000)])[0]
",
    )?;
    let expected = [pattern(10000, 0), pattern(10000, 0)].concat();
    assert_eq!(sent.whole(), Some(expected.clone()));
    assert_eq!(received.whole(), Some(expected));
    assert_eq!(sent.calls.into_iter().collect::<Vec<_>>(), [(0, 10000), (10000, 10000)]);
    assert_eq!(live.lost()?, 0);
    Ok(())
}

#[test]
fn send_and_receive_are_seen_and_peeking_moves_nothing() -> Result<()> {
    let mut live = Live::load(&Options::default())?;
    let (sent, received) = client_to_server(
        &mut live,
        "
ready()
client, server = pair()
client.send(pattern(5000))
time.sleep(0.05)
assert server.recv(100, socket.MSG_PEEK) == pattern(100)
assert server.recvmsg(50, 0, socket.MSG_PEEK)[0] == pattern(50)
assert exactly(server, 5000) == pattern(5000)
client.send(b'x', socket.MSG_OOB)
time.sleep(0.05)
server.recv(1, socket.MSG_OOB)
client.send(pattern(700, 3))
assert exactly(server, 700) == pattern(700, 3)
",
    )?;
    assert_eq!(received.whole(), Some([pattern(5000, 0), pattern(700, 3)].concat()));
    assert_eq!(sent.whole(), Some([pattern(5000, 0), b"x".to_vec(), pattern(700, 3)].concat()));
    Ok(())
}

#[test]
fn many_messages_in_one_call_are_like_calls_of_their_own() -> Result<()> {
    let mut live = Live::load(&Options::default())?;
    let (sent, received) = client_to_server(
        &mut live,
        "
class iovec(ctypes.Structure): _fields_ = [('base', ctypes.c_void_p), ('len', ctypes.c_size_t)]
class msghdr(ctypes.Structure): _fields_ = [('name', ctypes.c_void_p), ('namelen', ctypes.c_uint), ('iov', ctypes.POINTER(iovec)),
    ('iovlen', ctypes.c_size_t), ('control', ctypes.c_void_p), ('controllen', ctypes.c_size_t), ('flags', ctypes.c_int)]
class mmsghdr(ctypes.Structure): _fields_ = [('hdr', msghdr), ('len', ctypes.c_uint)]
def messages(sizes, fill):
    keep, array = [], (mmsghdr * len(sizes))()
    for i, size in enumerate(sizes):
        halves = [size // 2, size - size // 2]
        data = fill(size, i)
        parts = [ctypes.create_string_buffer(data[:halves[0]], halves[0]), ctypes.create_string_buffer(data[halves[0]:], halves[1])]
        iovs = (iovec * 2)(*[(ctypes.addressof(p), len(p)) for p in parts])
        array[i].hdr.iov, array[i].hdr.iovlen = iovs, 2
        keep += [parts, iovs]
    return array, keep
ready()
client, server = pair()
sizes = [10 + i for i in range(40)]
array, keep = messages(sizes, pattern)
assert libc.sendmmsg(client.fileno(), array, 40, 0) == 40
client.send(b'end')
time.sleep(0.05)
array, keep = messages([100, 200], lambda n, _: bytes(n))
assert libc.recvmmsg(server.fileno(), array, 2, 0, None) == 2
assert (array[0].len, array[1].len) == (100, 200)
exactly(server, sum(sizes) + 3 - 300)
",
    )?;
    let mut expected: Vec<Option<u8>> = (0..40).flat_map(|i| pattern(10 + i, i)).map(Some).collect();
    assert_eq!(received.whole(), Some(expected.iter().copied().flatten().chain(*b"end").collect()));
    assert_eq!(received.calls.iter().next(), Some((&0, &100)));
    // Thirty messages are looked at; the others are one gap, and offsets stay right.
    let looked_at: usize = (0..30).map(|i| 10 + i).sum();
    expected[looked_at..].fill(None);
    expected.extend(b"end".map(Some));
    assert_eq!(sent.bytes, expected);
    assert_eq!(live.lost()?, 1, "that there were too many is counted");
    Ok(())
}

#[test]
fn bytes_that_user_space_never_held_are_gaps_of_the_right_length() -> Result<()> {
    let mut live = Live::load(&Options::default())?;
    let (sent, received) = client_to_server(
        &mut live,
        "
import tempfile
file = tempfile.TemporaryFile()
file.write(pattern(3000)); file.flush()
inward, outward = os.pipe()
ready()
client, server = pair()
client.send(b'before')
assert os.sendfile(client.fileno(), file.fileno(), 0, 3000) == 3000
os.write(outward, pattern(500))
assert os.splice(inward, client.fileno(), 500) == 500
client.send(b'after')
exactly(server, 3511)
",
    )?;
    assert_eq!(sent.missing(), 3500);
    assert_eq!(sent.bytes.len(), 3511);
    assert_eq!(sent.bytes.last_chunk(), Some(&b"after".map(Some)));
    assert_eq!(
        received.whole(),
        Some([b"before".to_vec(), pattern(3000, 0), pattern(500, 0), b"after".to_vec()].concat())
    );
    Ok(())
}

const MIB: usize = 1024 * 1024;

const BIG: &str = "
ready()
client, server = pair()
client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 << 20)
data = pattern(1 << 20)
reader = threading.Thread(target=lambda: exactly(server, (1 << 20) + 3))
reader.start()
client.sendall(data)
client.sendall(b'end')
reader.join()
";

#[test]
fn a_mebibyte_in_one_call_is_seen_whole() -> Result<()> {
    let mut live = Live::load(&Options::default())?;
    let (sent, received) = client_to_server(&mut live, BIG)?;
    let expected = [pattern(MIB, 0), b"end".to_vec()].concat();
    assert_eq!(live.lost()?, 0);
    assert!(sent.whole().as_ref() == Some(&expected), "{} bytes are missing", sent.missing());
    assert!(received.whole() == Some(expected), "{} bytes are missing", received.missing());
    Ok(())
}

#[test]
fn over_the_cap_the_rest_of_a_call_is_a_gap() -> Result<()> {
    let mut live = Live::load(&Options { cap: 20_000, ..Options::default() })?;
    let (sent, _) = client_to_server(&mut live, BIG)?;
    let (offset, first) = sent.calls.iter().next().context("no call")?;
    assert_eq!((*offset, usize::try_from(*first)? > 20_000), (0, true));
    assert!(sent.bytes[..20_000].iter().copied().eq(pattern(20_000, 0).into_iter().map(Some)));
    assert!(sent.bytes[20_000..usize::try_from(*first)?].iter().all(Option::is_none));
    assert_eq!(sent.bytes.last_chunk(), Some(&b"end".map(Some)), "offsets go on after the gap");
    assert!(live.lost()? > 0, "the calls over the cap are counted");
    Ok(())
}

#[test]
fn more_buffers_than_are_looked_at_end_in_a_gap() -> Result<()> {
    let mut live = Live::load(&Options::default())?;
    let (sent, _) = client_to_server(
        &mut live,
        "
ready()
client, server = pair()
assert os.writev(client.fileno(), [pattern(10)] * 100) == 1000
client.send(b'end')
exactly(server, 1003)
",
    )?;
    assert_eq!(sent.missing(), 360);
    assert_eq!(sent.bytes.len(), 1003);
    assert_eq!(sent.bytes.last_chunk(), Some(&b"end".map(Some)));
    assert_eq!(live.lost()?, 1);
    Ok(())
}

#[test]
fn bytes_that_a_receive_throws_away_are_a_gap() -> Result<()> {
    let mut live = Live::load(&Options::default())?;
    let (_, received) = client_to_server(
        &mut live,
        "
ready()
client, server = pair()
client.send(pattern(100)); time.sleep(0.02)
# MSG_TRUNC: taken from the stream, copied nowhere.
libc.recv(server.fileno(), None, 50, 0x20)
assert exactly(server, 50) == pattern(100)[50:]
",
    )?;
    assert_eq!(received.missing(), 50, "what MSG_TRUNC threw away is a gap");
    assert_eq!(received.bytes.len(), 100);
    Ok(())
}

#[test]
fn an_ignored_connection_makes_no_more_records_and_times_make_no_payload() -> Result<()> {
    let mut live = Live::load(&Options::default())?;
    let mut script = live.script(
        "
ready()
client, server = pair()
client.send(b'first'); exactly(server, 5)
ready()
client.send(b'second'); exactly(server, 6)
ready()
",
    )?;
    script.go()?;
    script.expect_ready()?;
    live.flush();
    let (client, _) = *live.conns(false).first().context("no connection")?;
    let (server, _) = *live.conns(true).first().context("no connection")?;
    assert!(live.probe.set_verdict(client, Verdict::Ignore)?);
    assert!(live.probe.set_verdict(server, Verdict::Times)?);
    script.go()?;
    script.expect_ready()?;
    script.go()?;
    live.finish(&mut script)?;
    let streams = live.streams();
    assert_eq!(streams[&(client, true)].whole(), Some(b"first".to_vec()));
    let received = &streams[&(server, false)];
    assert_eq!(received.bytes.len(), 11);
    assert_eq!(received.missing(), 6, "lengths without bytes");
    assert!(!live.probe.set_verdict(client, Verdict::Payload)?, "gone with its process's close");
    Ok(())
}

#[test]
fn what_does_not_fit_a_ring_is_counted_and_a_gap() -> Result<()> {
    // Nobody reads while a mebibyte is written into 64 KiB.
    let mut live =
        Live::load(&Options { ring_bytes_total: 64 * 1024, cap: 16 * 1024, ..Options::default() })?;
    let mut script = live.script(
        "
ready()
client, server = pair()
for seed in range(100):
    client.send(pattern(10000, seed)); exactly(server, 10000)
ready()
client.send(b'end')
",
    )?;
    script.go()?;
    script.expect_ready()?;
    live.flush();
    script.go()?;
    live.finish(&mut script)?;
    let sent = live.streams().into_iter().find(|((_, sent), _)| *sent).context("nothing sent")?.1;
    assert_eq!(sent.bytes.len(), 1_000_003);
    assert!(sent.missing() > 0);
    assert_eq!(sent.bytes.last_chunk(), Some(&b"end".map(Some)), "offsets go on after the gap");
    let records = live.parsed().filter(|record| matches!(record.body, Body::Data(_))).count();
    let received_calls = live.streams().values().map(|stream| stream.calls.len()).sum::<usize>();
    assert!(records >= received_calls);
    assert!(live.lost()? > 0);
    Ok(())
}
