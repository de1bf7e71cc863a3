//! Objects of real Pythons, read from outside while they run. As root.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use enginetap::discover::proc::Proc;
use enginetap::heap::{How, Interpreter, ProcessMemory};
use enginetap_core::heap::{Heap, Ref, Value as Read};
use enginetap_core::ids::Pid;
use enginetap_tests::heap::{LOOP, PIECES, Recorder, Recording, compare, pythons, script};
use serde_json::{Map, Value};

/// Readings of one Python at rest that may be refused: on one machine one was, and it is not known why. Whoever reads
/// reads again what is refused. A wrong value is no such thing: it fails at once.
const MOST_REFUSED: usize = 3;

/// A Python that holds the objects, ended when it is dropped.
struct Holder {
    child: Child,
    version: String,
    objects: Map<String, Value>,
}

impl Holder {
    fn start(program: &str) -> Result<Self> {
        let holder = Self::run(program, "objects.py", &[])?;
        holder.at_rest()?;
        Ok(holder)
    }

    fn run(program: &str, name: &str, arguments: &[&str]) -> Result<Self> {
        let mut command = match program.split_once('!') {
            Some((root, program)) => {
                let mut command = Command::new("chroot");
                command.args([root, program]);
                command
            }
            None => Command::new(program),
        };
        let source = std::fs::read_to_string(script(name))?;
        let mut child = command
            .args(["-c", &source])
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context(program.to_owned())?;
        let mut line = String::new();
        BufReader::new(child.stdout.take().context("no output")?).read_line(&mut line)?;
        let truth: Value = serde_json::from_str(&line).with_context(|| format!("{program} said {line}"))?;
        let version = truth["version"].as_str().context("no version")?.to_owned();
        let objects = truth["objects"].as_object().context("no objects")?.clone();
        Ok(Self { child, version, objects })
    }

    /// Waits until both of its threads wait: having said what it holds, the first still runs on to the reading of its
    /// input, and only then has the second the interpreter's lock to run on to its sleep.
    fn at_rest(&self) -> Result<()> {
        let begun = Instant::now();
        while !self.waits()? {
            ensure!(begun.elapsed() < Duration::from_secs(10), "it does not come to rest");
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    /// Whether its first thread reads, and the other sleeps.
    fn waits(&self) -> Result<bool> {
        let mut places = Vec::new();
        for thread in std::fs::read_dir(format!("/proc/{}/task", self.child.id()))? {
            places.push(std::fs::read_to_string(thread?.path().join("wchan"))?);
        }
        let in_call = |name| places.iter().filter(|place| place.contains(name)).count();
        Ok(places.len() == 2
            && in_call("pipe_read") == 1
            && in_call("nanosleep") + in_call("select") + in_call("poll") == 1)
    }

    fn pid(&self) -> Pid {
        Pid(self.child.id())
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn objects_read_from_outside_are_what_their_own_python_says_of_them() -> Result<()> {
    for program in pythons()? {
        let holder = Holder::start(&program)?;
        let found = Interpreter::find(&Proc::system(), holder.pid())?;
        ensure!(
            found.differed.is_empty(),
            "{found}: the table and what it tells differ in {:?}",
            found.differed
        );
        let mut heap = found.open()?;
        let refused = all_as_said(&mut heap, &holder.objects).with_context(|| found.to_string())?;
        let (version, objects, how) = (&holder.version, holder.objects.len(), found.how);
        println!("{found} ({version}): {objects} objects by {how:?}, {refused} readings refused before");
    }
    Ok(())
}

/// Reads objects until a reading is not refused, and whether each is what its Python says; how many were refused.
fn all_as_said(heap: &mut Heap<ProcessMemory>, objects: &Map<String, Value>) -> Result<usize> {
    let mut refused = Vec::new();
    while refused.len() < MOST_REFUSED {
        let said = match compare(heap, objects) {
            Ok(differences) if differences.none() => return Ok(refused.len()),
            Ok(differences) => {
                ensure!(differences.wrong.is_empty(), "{differences:#?}");
                format!("{differences:?}")
            }
            Err(error) => format!("{error:#}"),
        };
        println!("refused: {said}");
        refused.push(said);
    }
    anyhow::bail!("of a Python at rest no reading is accepted: {refused:#?}")
}

#[test]
fn an_interpreter_is_found_at_one_place_by_symbol_by_section_and_by_its_memory() -> Result<()> {
    for program in pythons()? {
        let holder = Holder::start(&program)?;
        let by = |how| Interpreter::find_by(&Proc::system(), holder.pid(), &[how]);
        let symbol = by(How::Symbol)?;
        let scan = by(How::Scan).with_context(|| format!("{symbol} by a scan"))?;
        assert_eq!(scan.runtime, symbol.runtime, "{symbol}");
        // 3.9 has no such section.
        if symbol.layout.version.minor > 9 {
            let section = by(How::Section).with_context(|| format!("{symbol} by its section"))?;
            assert_eq!(section.runtime, symbol.runtime, "{symbol}");
        }
    }
    Ok(())
}

#[test]
fn of_a_python_that_changes_all_the_time_no_wrong_value_is_taken() -> Result<()> {
    for program in pythons()? {
        // With rests, nearly all is taken. Without, most of what looks the same twice has been another's meanwhile.
        for mode in ["resting", "restless"] {
            let churn = Churn::of(&program, mode)?;
            let Churn { found, taken, refused, wrong, .. } = &churn;
            println!("{found}, {mode}: {taken} values taken, {} wrong, {refused} refused", wrong.len());
            ensure!(wrong.is_empty(), "{found}, {mode}, of {taken}: {wrong:?}");
            ensure!(*taken > 100 || mode == "restless", "{found}: {taken} values taken, {refused} refused");
            println!("{}", churn.cost());
        }
    }
    Ok(())
}

/// What was read of a Python that changes all the time.
struct Churn {
    found: String,
    taken: u64,
    refused: u64,
    wrong: Vec<String>,
    readings: u64,
    heap: Heap<ProcessMemory>,
    took: Duration,
}

impl Churn {
    /// Reads one; `ENGINETAP_CHURN`: for so many seconds.
    fn of(program: &str, mode: &str) -> Result<Self> {
        let seconds = std::env::var("ENGINETAP_CHURN").map_or(Ok(2), |seconds| seconds.parse())?;
        let holder = Holder::run(program, "churn.py", &[mode])?;
        let found = Interpreter::find(&Proc::system(), holder.pid())?;
        let mut heap = found.open()?;
        let object = (0..100).find_map(|_| {
            heap.begin(PIECES);
            heap.find(LOOP).ok()?
        });
        let object = Ref::root(object.context("no event loop")?.object);
        let (took, found) = (Duration::from_secs(seconds), found.to_string());
        let mut churn = Self { found, taken: 0, refused: 0, wrong: Vec::new(), readings: 0, heap, took };
        let (mut last, end) = (0.0, Instant::now() + took);
        while Instant::now() < end {
            HELD.iter().for_each(|path| churn.read(object, path, &mut last));
        }
        Ok(churn)
    }

    fn read(&mut self, object: Ref, path: &[&'static str], last: &mut f64) {
        self.readings += 1;
        match held(&mut self.heap, object, path) {
            Some(value) => {
                self.taken += 1;
                if !holds(path, &value, last) {
                    self.wrong.push(format!("{path:?} is {value:?}"));
                }
            }
            None => self.refused += 1,
        }
    }

    fn cost(&self) -> String {
        let cost = self.heap.cost();
        let each = |count: u64| count.checked_div(self.readings).unwrap_or(0);
        let micros = u64::try_from(self.took.as_micros()).unwrap_or(u64::MAX);
        format!("{} calls, {} pieces, {} us a reading", each(cost.calls), each(cost.pieces), each(micros))
    }
}

/// What the Python changes.
const HELD: [&[&str]; 6] = [&["at", "time"], &["pair"], &["table"], &["row"], &["queue"], &["text"]];

/// A value, if all it rests upon was the same when it was read again.
fn held(heap: &mut Heap<ProcessMemory>, object: Ref, path: &[&'static str]) -> Option<Read> {
    heap.begin(PIECES);
    let end = heap.paths(object, &[path]).pop()?.ok()??;
    let value = heap.value(end, 1).ok();
    let verdicts = heap.verify();
    value.filter(|_| verdicts.all_good())
}

/// Whether a value is one that the Python can have had.
fn holds(path: &[&str], value: &Read, last: &mut f64) -> bool {
    match (path, value) {
        (["at", "time"], Read::Float(at)) => *at >= std::mem::replace(last, *at) && *at < *last + 1e9,
        (["pair"], Read::Items(pair)) => pair.len() == 2 && pair[0] == pair[1],
        (["table"], Read::Dict(entries)) => (0..).zip(entries).all(|(number, (key, value))| {
            key.text() == Some(&format!("k{number}")) && *value == Read::Int(1000 + number)
        }),
        (["row"], Read::Items(row)) => row.windows(2).all(|two| two[0] == two[1]),
        (["queue"], Read::Items(items)) => {
            let numbers: Vec<u64> = items.iter().filter_map(Read::count).collect();
            // The processor may be taken from the Python when a place for the 51st is there, and it itself is not.
            let (held, _) = numbers.split_at(numbers.len().min(50));
            held.len() == 50 && items.len() <= 51 && held.windows(2).all(|two| two[0] + 1 == two[1])
        }
        (["text"], Read::Str(text)) => *text == text.len().to_string().repeat(text.len()),
        _ => false,
    }
}

/// Not a test of anything: writes the recordings that `heap.rs` reads, from the Pythons there are.
#[test]
#[ignore = "writes files of the repository"]
fn record() -> Result<()> {
    for program in pythons()? {
        let holder = Holder::start(&program)?;
        let found = Interpreter::find(&Proc::system(), holder.pid())?;
        let mut recorder = Recorder::new(ProcessMemory::new(holder.pid()));
        let mut heap = Heap::new(&mut recorder, found.layout.clone(), found.runtime);
        heap.check()?;
        let differences = compare(&mut heap, &holder.objects)?;
        ensure!(differences.none(), "{found}: {differences:#?}");
        drop(heap);
        if found.layout.version.minor >= 13 {
            let head = enginetap_core::heap::Piece {
                at: found.runtime,
                len: enginetap_core::heap::layout::HEAD_LEN,
            };
            let (mut bytes, mut read) = (vec![0; head.len], [false]);
            let _ = enginetap_core::heap::Memory::read(&mut recorder, &[head], &mut bytes, &mut read);
        }
        let Holder { version, objects, .. } = &holder;
        let recording = Recording {
            memory: recorder.recorded,
            runtime: found.runtime,
            version: version.clone(),
            truth: objects.clone(),
        };
        println!("{version}: {} bytes", recording.memory.len());
        recording.write()?;
    }
    Ok(())
}
