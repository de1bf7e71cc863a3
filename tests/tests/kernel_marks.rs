//! What the kernel programs make of functions that mark a moment, and of what a process writes to its standard error. On
//! the running kernel; as root.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use enginetap::discover::marks::{Place, find};
use enginetap::discover::proc::Proc;
use enginetap::probe::Options;
use enginetap_core::capture::record::{Body, Mark};
use enginetap_core::ids::{ConnId, Direction, Fd};
use enginetap_tests::live::{Live, Script};

/// A library that is called like `PyTorch`'s and has the function that marks forwards, with what stands beside it there.
const LIBRARY: &str = "
void _ZN2at4_ops9embedding8redispatchERKNS_6TensorES4_(void) {}
int _ZN2at4_ops9embedding4callERKNS_6TensorES4_N3c106SymIntEbb(int n) { return n + 1; }
";

fn library(folder: &Path) -> Result<String> {
    let (source, library) = (folder.join("library.c"), folder.join("libtorch_cpu.so"));
    std::fs::write(&source, LIBRARY)?;
    let status = Command::new("cc")
        .args(["-shared", "-fPIC", "-nostdlib", "-ffreestanding", "-o"])
        .arg(&library)
        .arg(&source)
        .status()
        .context("starting cc")?;
    ensure!(status.success(), "cc: {status}");
    Ok(library.display().to_string())
}

/// Says its function's first bytes each time it is ready.
fn forwards(library: &str, rest: &str) -> String {
    format!(
        "
forward = ctypes.CDLL('{library}')._ZN2at4_ops9embedding4callERKNS_6TensorES4_N3c106SymIntEbb
address = ctypes.cast(forward, ctypes.c_void_p).value
def code(): print(ctypes.string_at(address, 4).hex(), flush=True)
ready()
{rest}
"
    )
}

fn only(script: &Script) -> Result<Place> {
    let mut places = find(&Proc::system(), script.pid())?;
    ensure!(places.len() == 1, "{places:?}");
    places.pop().context("no place")
}

#[test]
fn each_forward_is_one_mark_between_the_calls_around_it_and_nothing_stays() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let library = library(folder.path())?;
    let mut live = Live::load(&Options::default())?;
    let mut script = live.script(&forwards(
        &library,
        "
code(); ready()
client, server = pair()
for i in range(100):
    client.send(b'%02d' % i)
    for _ in range(i % 3): assert forward(i) == i + 1
code(); ready()
forward(1); code()
",
    ))?;
    let mut other = Script::start(&forwards(&library, "for i in range(10): forward(i)"))?;
    script.go()?;
    let before = script.line()?;
    script.expect_ready()?;
    let place = only(&script)?;
    live.probe.mark(script.pid(), &place.file, place.offset)?;
    script.go()?;
    let during = script.line()?;
    script.expect_ready()?;
    other.go()?;
    live.flush();
    let mut expected = Vec::new();
    for i in 0..100u8 {
        expected.push(Some(format!("{i:02}").into_bytes()));
        expected.extend(vec![None; usize::from(i % 3)]);
    }
    let seen: Vec<_> = live
        .parsed()
        .filter_map(|record| match record.body {
            Body::Data(data) if data.direction == Direction::Tx => Some(Some(data.bytes.to_vec())),
            Body::Mark(Mark::Forward) => {
                assert_eq!(record.pid, script.pid());
                Some(None)
            }
            Body::Mark(Mark::Other(_) | Mark::Collected { .. })
            | Body::Data(_)
            | Body::Accept { .. }
            | Body::Connect { .. }
            | Body::Close { .. }
            | Body::Dup { .. }
            | Body::Fork { .. }
            | Body::Exec
            | Body::Exit => None,
        })
        .collect();
    assert!(seen == expected, "{} of {}", seen.len(), expected.len());
    drop(live);
    script.go()?;
    let after = script.line()?;
    assert_ne!(before, during, "a breakpoint stands at the function");
    assert_eq!(before, after, "and is gone with the probe");
    Ok(())
}

#[test]
fn marks_end_when_they_are_taken_away_or_the_process_is_watched_no_more() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let library = library(folder.path())?;
    let mut live = Live::load(&Options::default())?;
    let mut script = live
        .script(&forwards(&library, "for _ in range(3):\n    for i in range(5): forward(i)\n    ready()"))?;
    let place = only(&script)?;
    let mut marks = |live: &mut Live| -> Result<usize> {
        script.go()?;
        script.expect_ready()?;
        live.records.clear();
        live.flush();
        Ok(live.parsed().filter(|record| record.body == Body::Mark(Mark::Forward)).count())
    };
    live.probe.mark(place_pid(&place)?, &place.file, place.offset)?;
    assert_eq!(marks(&mut live)?, 5);
    live.probe.unmark(place_pid(&place)?)?;
    assert_eq!(marks(&mut live)?, 0);
    live.probe.mark(place_pid(&place)?, &place.file, place.offset)?;
    live.probe.unwatch(place_pid(&place)?)?;
    assert_eq!(marks(&mut live)?, 0);
    Ok(())
}

/// The process through whose root folder the place was found: `/proc/PID/root/...`.
fn place_pid(place: &Place) -> Result<enginetap_core::ids::Pid> {
    let pid = place.file.components().nth(2).and_then(|part| part.as_os_str().to_str()?.parse().ok());
    pid.map(enginetap_core::ids::Pid).context("no pid in the path")
}

#[test]
fn standard_error_is_what_is_written_to_its_number_whatever_file_that_is() -> Result<()> {
    let mut live = Live::load(&Options::default())?;
    let mut script = live.script(
        "
import tempfile
inward, outward = os.pipe()
os.dup2(outward, 2)
ready()
os.write(2, b'[2026-11-30 22:00:00] Decode batch. #running-req: 3\\n')
print('Prefill batch.', file=sys.stderr, flush=True)
os.writev(2, [b'two ', b'buffers\\n'])
copy = os.dup(2); os.write(copy, b'another number\\n'); os.close(copy)
file = tempfile.TemporaryFile(buffering=0); file.write(b'not to be seen\\n')
os.dup2(file.fileno(), 2); os.write(2, b'another file\\n')
os.lseek(2, 0, 0); os.read(2, 5)
os.close(2)
assert os.open('/dev/null', os.O_RDWR) == 2
os.write(2, b'a third')
",
    )?;
    let conn = ConnId(77);
    assert!(live.probe.keep(script.pid(), Fd(2), conn)?);
    assert!(!live.probe.keep(script.pid(), Fd(2), conn)?, "the second time it is known");
    assert_eq!(live.probe.reconcile(script.pid())?, 0, "no socket, and stays");
    script.go()?;
    live.finish(&mut script)?;
    let expected = "[2026-11-30 22:00:00] Decode batch. #running-req: 3\nPrefill batch.\ntwo buffers\nanother file\na third";
    let streams = live.streams();
    assert_eq!(streams.keys().collect::<Vec<_>>(), [&(conn, true)], "nothing else, and nothing read");
    assert_eq!(streams[&(conn, true)].whole().map(String::from_utf8), Some(Ok(expected.to_owned())));
    assert!(!live.parsed().any(|record| matches!(record.body, Body::Close { .. } | Body::Dup { .. })));
    assert_eq!(live.probe.descriptors(script.pid())?, [(Fd(2), conn)]);
    live.probe.unwatch(script.pid())?;
    assert_eq!(live.probe.descriptors(script.pid())?, []);
    Ok(())
}
