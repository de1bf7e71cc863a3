//! Objects of a Python, read and compared with what it says of them itself (`tests/heap/objects.py`).

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use enginetap_core::heap::layout::{Field, HEAD_LEN, Layout, Told, Version};
use enginetap_core::heap::{Addr, Found, Gone, Heap, Kind, Memory, Piece, Ref, Value, Wanted};
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use serde_json::{Map, json};

/// Folders with a Python that are looked through; `ENGINETAP_PYTHONS` names more programs, separated by colons. One that
/// begins with a folder and `!` is run in that folder as its root.
const PLACES: [&str; 2] = ["/usr/bin", "/usr/local/bin"];
const MINORS: std::ops::RangeInclusive<u8> = 9..=14;

/// The frame whose `self` holds the objects.
pub const LOOP: Wanted<'static> = Wanted { functions: &["event_loop"], file: "<string>", local: "self" };
/// Pieces one reading of all objects may take.
pub const PIECES: usize = 1 << 18;
/// Bytes a recording keeps together.
const BLOCK: u64 = 64;

/// Memory that was recorded.
#[derive(Clone, Debug, Default)]
pub struct Recorded {
    blocks: BTreeMap<u64, Vec<u8>>,
}

impl Recorded {
    /// The blocks, by address.
    pub fn blocks_mut(&mut self) -> impl Iterator<Item = (&u64, &mut Vec<u8>)> {
        self.blocks.iter_mut()
    }

    /// How many bytes were recorded.
    #[must_use]
    pub fn len(&self) -> usize {
        self.blocks.values().map(Vec::len).sum()
    }

    /// Whether nothing was.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    fn piece(&self, piece: Piece, into: &mut [u8]) -> Option<()> {
        let mut at = piece.at.0;
        let mut rest = into;
        while !rest.is_empty() {
            let block = self.blocks.get(&(at - at % BLOCK))?;
            let from = block.get(usize::try_from(at % BLOCK).ok()?..)?;
            let len = from.len().min(rest.len());
            let (part, behind) = rest.split_at_mut(len);
            part.copy_from_slice(&from[..len]);
            rest = behind;
            at += u64::try_from(len).ok()?;
        }
        Some(())
    }
}

impl Memory for Recorded {
    fn read(&mut self, pieces: &[Piece], into: &mut [u8], read: &mut [bool]) -> Result<(), Gone> {
        let mut rest = into;
        for (piece, read) in pieces.iter().zip(read) {
            let (part, behind) = rest.split_at_mut(piece.len);
            rest = behind;
            *read = self.piece(*piece, part).is_some();
        }
        Ok(())
    }
}

/// Memory that is recorded as it is read.
#[derive(Debug)]
pub struct Recorder<M> {
    memory: M,
    /// What was read.
    pub recorded: Recorded,
}

impl<M: Memory> Recorder<M> {
    /// Records what is read of this.
    pub fn new(memory: M) -> Self {
        Self { memory, recorded: Recorded::default() }
    }

    fn keep(&mut self, piece: Piece) -> Result<(), Gone> {
        let first = piece.at.0 - piece.at.0 % BLOCK;
        let last = piece.at.0 + u64::try_from(piece.len).unwrap_or(0);
        for at in (first..last).step_by(usize::try_from(BLOCK).unwrap_or(1)) {
            let mut bytes = vec![0; usize::try_from(BLOCK).unwrap_or(0)];
            let mut read = [false];
            self.memory.read(&[Piece { at: Addr(at), len: bytes.len() }], &mut bytes, &mut read)?;
            if read == [true] {
                self.recorded.blocks.insert(at, bytes);
            }
        }
        Ok(())
    }
}

impl<M: Memory> Memory for Recorder<M> {
    fn read(&mut self, pieces: &[Piece], into: &mut [u8], read: &mut [bool]) -> Result<(), Gone> {
        for piece in pieces {
            self.keep(*piece)?;
        }
        self.memory.read(pieces, into, read)
    }
}

/// A Python's objects, with what it says of them.
#[derive(Clone, Debug)]
pub struct Recording {
    /// The memory.
    pub memory: Recorded,
    /// Where `_PyRuntime` lies.
    pub runtime: Addr,
    /// The version, whole.
    pub version: String,
    /// What the objects are, by the name of the attribute.
    pub truth: Map<String, serde_json::Value>,
}

impl Recording {
    /// The recordings there are, by version.
    ///
    /// # Errors
    /// When they cannot be listed or read.
    pub fn all() -> Result<Vec<Self>> {
        let folder = folder();
        let mut paths: Vec<PathBuf> =
            std::fs::read_dir(&folder)?.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
        paths.retain(|path| path.extension().is_some_and(|extension| extension == "gz"));
        paths.sort();
        paths.iter().map(|path| Self::read(path).with_context(|| path.display().to_string())).collect()
    }

    fn read(path: &Path) -> Result<Self> {
        let json: serde_json::Value = serde_json::from_reader(GzDecoder::new(File::open(path)?))?;
        let field = |name: &str| json.get(name).with_context(|| format!("no {name}"));
        let mut memory = Recorded::default();
        for (at, bytes) in field("blocks")?.as_object().context("blocks")? {
            let bytes = unhex(bytes.as_str().context("a block is a text")?)?;
            memory.blocks.insert(u64::from_str_radix(at, 16)?, bytes);
        }
        Ok(Self {
            memory,
            runtime: Addr(field("runtime")?.as_u64().context("runtime")?),
            version: field("version")?.as_str().context("version")?.to_owned(),
            truth: field("objects")?.as_object().context("objects")?.clone(),
        })
    }

    /// Writes it where [`Recording::all`] finds it.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(&self) -> Result<()> {
        let blocks: Map<String, serde_json::Value> =
            self.memory.blocks.iter().map(|(at, bytes)| (format!("{at:x}"), json!(hex(bytes)))).collect();
        let json = json!({ "version": self.version, "runtime": self.runtime.0, "objects": self.truth, "blocks": blocks });
        let path = folder().join(format!("cpython-{}.json.gz", self.version));
        serde_json::to_writer(GzEncoder::new(File::create(path)?, Compression::best()), &json)?;
        Ok(())
    }

    /// The layout of the recorded interpreter: the table's, and what it told of itself.
    ///
    /// # Errors
    /// When the version is none.
    pub fn layout(&self) -> Result<Layout> {
        let minor = self.version.split('.').nth(1).context("a version has two numbers")?.parse()?;
        let mut layout = Layout::of(Version { major: 3, minor });
        let mut head = vec![0; HEAD_LEN];
        let mut memory = self.memory.clone();
        let mut read = [false];
        let piece = Piece { at: self.runtime, len: head.len() };
        let _ = memory.read(&[piece], &mut head, &mut read);
        if let Some(told) = Told::read(&head).filter(|_| read == [true]) {
            ensure!(layout.overlay(&told).is_empty(), "the table differs from what {} tells", self.version);
        }
        Ok(layout)
    }

    /// Its objects, read by a layout.
    #[must_use]
    pub fn heap(&self, layout: Layout) -> Heap<Recorded> {
        Heap::new(self.memory.clone(), layout, self.runtime)
    }
}

/// How objects as read differ from what their Python says.
#[derive(Clone, Debug, Default)]
pub struct Differences {
    /// By name, those with another value.
    pub wrong: Vec<(String, String)>,
    /// By name, those whose reading was refused, and why.
    pub refused: Vec<(String, String)>,
    /// Pieces that were not the same when they were read again.
    pub changed: u64,
}

impl Differences {
    /// Whether there are none.
    #[must_use]
    pub fn none(&self) -> bool {
        let Self { wrong, refused, changed } = self;
        wrong.is_empty() && refused.is_empty() && *changed == 0
    }

    fn note(&mut self, name: String, read: Result<serde_json::Value>, expected: &serde_json::Value) {
        match read {
            Ok(read) if read == *expected => {}
            Ok(read) => self.wrong.push((name, read.to_string())),
            Err(error) => self.refused.push((name, format!("{error:#}"))),
        }
    }
}

/// Finds the loop and compares each object with the truth.
///
/// # Errors
/// When the loop is not found, or not where it must be.
pub fn compare<M: Memory>(heap: &mut Heap<M>, truth: &Map<String, serde_json::Value>) -> Result<Differences> {
    heap.begin(PIECES);
    let Found { object, function, .. } = heap.find(LOOP)?.context("no event loop")?;
    ensure!(function == "event_loop");
    // The frame that called it holds the same object.
    let outer = heap.find(Wanted { functions: &["outer"], ..LOOP })?.context("no outer frame")?;
    ensure!(outer.object == object && heap.find(Wanted { file: "elsewhere.py", ..LOOP })?.is_none());
    let held: BTreeMap<String, Ref> = heap
        .attributes_of(Ref::root(object))?
        .into_iter()
        .map(|(name, value)| (name.as_ref().to_owned(), value))
        .collect();
    let mut differences = Differences::default();
    for (name, expected) in truth {
        let read = held.get(name).context("no such attribute").and_then(|value| told(heap, *value));
        differences.note(name.clone(), read, expected);
    }
    asked(heap, Ref::root(object), &mut differences);
    differences.changed = heap.verify().changed;
    Ok(differences)
}

/// Attributes asked for by name: each must be what it is.
fn asked<M: Memory>(heap: &mut Heap<M>, object: Ref, differences: &mut Differences) {
    let asked: [(&[&'static str], serde_json::Value); 10] = [
        (&["attribute_of_int", "tag"], json!("on an int")),
        (&["by_class", "shared"], json!("of the class")),
        (&["data_in_data", "w", "x"], json!(1.5)),
        (&["many", "n59"], json!(59)),
        (&["plain_other_order", "b"], json!(["items", 1])),
        (&["more_slots", "c"], json!(4.5)),
        (&["replaced", "u"], json!("v")),
        (&["dict_asked_for", "a"], json!(9)),
        (&["there_is_no_such_thing"], json!(MISSING)),
        (&["unset"], json!(MISSING)),
    ];
    for (path, expected) in asked {
        let read = at_path(heap, object, path);
        differences.note(path.join("."), read, &expected);
    }
}

/// What stands for an attribute that there is not.
const MISSING: &str = "there is none";

fn at_path<M: Memory>(heap: &mut Heap<M>, object: Ref, path: &[&'static str]) -> Result<serde_json::Value> {
    let mut at = object;
    for name in path {
        match heap.attribute(at, name)? {
            Some(value) => at = value,
            None => return Ok(json!(MISSING)),
        }
    }
    told(heap, at)
}

/// An object as `objects.py` tells it.
///
/// # Errors
/// When it is refused.
pub fn told<M: Memory>(heap: &mut Heap<M>, object: Ref) -> Result<serde_json::Value> {
    let of_type = heap.type_of(object.addr)?;
    if of_type.kind != Kind::Other {
        return parts(heap, object);
    }
    let mut attributes = Map::new();
    for (name, value) in heap.attributes_of(object)? {
        attributes.insert(name.as_ref().to_owned(), told(heap, value)?);
    }
    Ok(json!(["object", of_type.name, attributes]))
}

fn parts<M: Memory>(heap: &mut Heap<M>, object: Ref) -> Result<serde_json::Value> {
    match heap.type_of(object.addr)?.kind {
        Kind::List | Kind::Tuple | Kind::Deque => {
            let items = heap.items_of(object)?;
            listed("items", items.into_iter().map(|item| told(heap, item)))
        }
        Kind::Dict => {
            let entries = heap.entries(object)?;
            listed(
                "dict",
                entries.into_iter().map(|(key, value)| Ok(json!([told(heap, key)?, told(heap, value)?]))),
            )
        }
        Kind::None
        | Kind::Bool
        | Kind::Int
        | Kind::Float
        | Kind::Str
        | Kind::Bytes
        | Kind::Set
        | Kind::Array
        | Kind::Enum
        | Kind::Cell
        | Kind::Code
        | Kind::Type
        | Kind::Other => Ok(plain(&heap.value(object, 1)?)),
    }
}

fn listed(kind: &str, items: impl Iterator<Item = Result<serde_json::Value>>) -> Result<serde_json::Value> {
    let mut list = vec![json!(kind)];
    for item in items {
        list.push(item?);
    }
    Ok(json!(list))
}

fn plain(value: &Value) -> serde_json::Value {
    match value {
        Value::None => json!(null),
        Value::Bool(value) => json!(value),
        // As JSON tells whole numbers: beyond 2^53 they are texts.
        Value::Int(value) => match i64::try_from(*value) {
            Ok(small) if small.unsigned_abs() < 1 << 53 => json!(small),
            _ => json!(["int", value.to_string()]),
        },
        Value::Float(value) => json!(value),
        Value::Str(text) => json!(text),
        Value::Bytes(bytes) => json!(["bytes", hex(bytes)]),
        Value::Items(items) => {
            let items = items.iter().map(plain);
            json!(std::iter::once(json!("items")).chain(items).collect::<Vec<_>>())
        }
        Value::Set(items) => {
            let mut items: Vec<_> = items.iter().map(plain).collect();
            items.sort_by_key(|item| item.as_str().map_or_else(|| item.to_string(), str::to_owned));
            json!(std::iter::once(json!("set")).chain(items).collect::<Vec<_>>())
        }
        Value::Dict(entries) => {
            let entries = entries.iter().map(|(key, value)| json!([plain(key), plain(value)]));
            json!(std::iter::once(json!("dict")).chain(entries).collect::<Vec<_>>())
        }
        Value::Enum { class, name, value } => json!(["enum", class, name, plain(value)]),
        Value::Object { class, addr } => json!(["unread", class, addr.0]),
    }
}

/// The fields a version has.
#[must_use]
pub fn fields(layout: &Layout) -> Vec<Field> {
    Field::ALL.into_iter().filter(|field| layout.has(*field)).collect()
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("heap")
}

/// A script that makes objects, by its name.
#[must_use]
pub fn script(name: &str) -> PathBuf {
    folder().join(name)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Result<Vec<u8>> {
    let pair = |at: usize| text.get(at..at + 2).and_then(|pair| u8::from_str_radix(pair, 16).ok());
    (0..text.len()).step_by(2).map(|at| pair(at).context("a block is written in hex")).collect()
}

/// Every Python there is to test with, one a version. None is an error: a test of nothing would pass.
///
/// # Errors
/// When there is none.
pub fn pythons() -> Result<Vec<String>> {
    let mut found: Vec<String> = std::env::var("ENGINETAP_PYTHONS")
        .map(|list| list.split(':').filter(|name| !name.is_empty()).map(str::to_owned).collect())
        .unwrap_or_default();
    let pyenv =
        std::env::var("HOME").map(|home| Path::new(&home).join(".pyenv/versions")).unwrap_or_default();
    let versions =
        std::fs::read_dir(pyenv).into_iter().flatten().flatten().map(|entry| entry.path().join("bin"));
    let folders: Vec<PathBuf> = PLACES.iter().map(PathBuf::from).chain(versions).collect();
    for folder in folders {
        let programs = MINORS.map(|minor| folder.join(format!("python3.{minor}")));
        found.extend(programs.filter(|path| path.is_file()).map(|path| path.display().to_string()));
    }
    ensure!(!found.is_empty(), "there is no Python on this machine");
    Ok(found)
}
