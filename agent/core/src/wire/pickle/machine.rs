//! The pickle machine: a stack, marks on it, a memo. Its calls are written down, not made.

use super::opcode::*;
use super::store::{Made, Parts, Store, narrow, wide};
use super::{End, Limits, Place, Value};

/// A pickle being read.
pub(super) struct Machine<'r> {
    bytes: &'r [u8],
    at: usize,
    limits: Limits,
    pub(super) stack: &'r mut Vec<Value>,
    /// Heights of the stack at which a mark stands.
    pub(super) marks: &'r mut Vec<usize>,
    memo: &'r mut Vec<Option<Value>>,
    /// Entries of the memo that are taken.
    remembered: usize,
    pub(super) store: &'r mut Store,
}

impl<'r> Machine<'r> {
    pub(super) fn new(
        bytes: &'r [u8],
        limits: Limits,
        stack: &'r mut Vec<Value>,
        marks: &'r mut Vec<usize>,
        memo: &'r mut Vec<Option<Value>>,
        store: &'r mut Store,
    ) -> Self {
        Self { bytes, at: 0, limits, stack, marks, memo, remembered: 0, store }
    }

    /// Goes on to the end, of whatever kind.
    pub(super) fn run(&mut self) -> End {
        loop {
            if let Err(end) = self.step() {
                return end;
            }
        }
    }

    pub(super) fn top(&self) -> Option<Value> {
        self.stack.last().copied()
    }

    /// One opcode. It takes effect whole or not at all.
    fn step(&mut self) -> Result<(), End> {
        let begin = self.at;
        let [code] = self.fixed()?;
        let done = self.plain(code).or_else(|| self.collected(code)).or_else(|| self.called(code));
        done.unwrap_or_else(|| self.other(code, begin)).inspect_err(|end| {
            if *end == End::Cut || *end == End::Limit {
                self.at = begin;
            }
        })
    }

    /// The opcodes of values that hold no others, and of the memo; `None`: another kind of opcode.
    fn plain(&mut self, code: u8) -> Option<Result<(), End>> {
        Some(match code {
            SHORT_BINUNICODE => self.counted::<1>(Value::Text),
            MEMOIZE => self.memoize(self.remembered),
            BININT1 => self.number(u8::from_le_bytes),
            BININT2 => self.number(u16::from_le_bytes),
            BININT => self.number(i32::from_le_bytes),
            NONE => self.push(Value::None),
            NEWTRUE => self.push(Value::Bool(true)),
            NEWFALSE => self.push(Value::Bool(false)),
            BINGET => self.recall::<1>(),
            LONG_BINGET => self.recall::<4>(),
            BINFLOAT => self.float(),
            BINUNICODE | BINSTRING => self.counted::<4>(Value::Text),
            SHORT_BINSTRING => self.counted::<1>(Value::Text),
            BINUNICODE8 => self.counted::<8>(Value::Text),
            SHORT_BINBYTES => self.counted::<1>(Value::Bytes),
            BINBYTES => self.counted::<4>(Value::Bytes),
            BINBYTES8 => self.counted::<8>(Value::Bytes),
            BYTEARRAY8 => self.counted::<8>(Value::ByteArray),
            LONG1 => self.long::<1>(),
            LONG4 => self.long::<4>(),
            BINPUT => self.put::<1>(),
            LONG_BINPUT => self.put::<4>(),
            _ => return None,
        })
    }

    /// The opcodes of values that hold others.
    fn collected(&mut self, code: u8) -> Option<Result<(), End>> {
        Some(match code {
            MARK => self.mark(),
            EMPTY_LIST => self.container(Value::List),
            EMPTY_DICT => self.container(Value::Dict),
            EMPTY_SET => self.container(Value::Set),
            EMPTY_TUPLE => self.push(Value::Tuple(Place::default())),
            APPEND => self.add_last(1, false),
            APPENDS => self.add_marked(false),
            SETITEM => self.add_last(2, true),
            SETITEMS => self.add_marked(true),
            ADDITEMS => self.add_members(),
            TUPLE1 => self.tuple_of(1),
            TUPLE2 => self.tuple_of(2),
            TUPLE3 => self.tuple_of(3),
            TUPLE => self.marked(|store, items| Some(Value::Tuple(store.keep(items)))),
            FROZENSET => self.marked(|store, items| Some(Value::FrozenSet(store.keep(items)))),
            LIST => self.marked(|store, items| filled(store, items, Value::List)),
            DICT => self.marked(|store, items| {
                (items.len() % 2 == 0).then(|| filled(store, items, Value::Dict)).flatten()
            }),
            _ => return None,
        })
    }

    /// The opcodes of classes and calls, which are written down.
    fn called(&mut self, code: u8) -> Option<Result<(), End>> {
        Some(match code {
            STACK_GLOBAL => self.stack_global(),
            NEWOBJ => self.make(2, |items| Some(Parts::new(Made::New, *items.first()?, *items.get(1)?))),
            NEWOBJ_EX => self.make(3, |items| {
                let made = Parts::new(Made::New, *items.first()?, *items.get(1)?);
                Some(Parts { kwargs: *items.get(2)?, ..made })
            }),
            REDUCE => self.make(2, |items| Some(Parts::new(Made::Called, *items.first()?, *items.get(1)?))),
            OBJ => self.marked(|store, items| {
                let (class, args) = items.split_first()?;
                let args = Value::Tuple(store.keep(args));
                Some(store.object(Parts::new(Made::Called, *class, args)))
            }),
            BINPERSID => {
                self.make(1, |items| Some(Parts::new(Made::Persistent, Value::None, *items.first()?)))
            }
            BUILD => self.build(),
            EXT1 => self.extension::<1>(),
            EXT2 => self.extension::<2>(),
            EXT4 => self.extension::<4>(),
            _ => return None,
        })
    }

    /// The opcodes of the stack, of the frame and of buffers, those of protocol 0, and what is none. `begin`: where it is.
    fn other(&mut self, code: u8, begin: usize) -> Result<(), End> {
        match code {
            NEXT_BUFFER => {
                let number = self.store.buffers;
                self.store.buffers = number.saturating_add(1);
                self.push(Value::Buffer(number))
            }
            READONLY_BUFFER => self.last().map(drop),
            FRAME => self.fixed::<8>().map(drop),
            PROTO => match self.fixed()? {
                [protocol] if protocol <= HIGHEST => Ok(()),
                _ => Err(End::Invalid(begin)),
            },
            POP => self.pop(),
            POP_MARK => {
                let mark = self.marks.pop().ok_or(End::Invalid(begin))?;
                self.stack.truncate(mark);
                Ok(())
            }
            DUP => self.last().and_then(|value| self.push(value)),
            STOP => self.last().and(Err(End::Whole(self.at))),
            FLOAT | INT | LONG | STRING | UNICODE | PERSID | GLOBAL | INST | GET | PUT => self.line_of(code),
            _ => Err(End::Invalid(begin)),
        }
    }

    fn float(&mut self) -> Result<(), End> {
        let number = f64::from_be_bytes(self.fixed()?);
        self.push(Value::Float(number))
    }

    /// The opcodes of protocol 0 whose argument is a line.
    fn line_of(&mut self, code: u8) -> Result<(), End> {
        let place = self.line()?;
        let line = place.of(self.bytes);
        match code {
            INT => self.push_line(integer(line, place)),
            LONG => {
                let digits = line.strip_suffix(b"L").unwrap_or(line);
                self.push_line(integer(digits, Place::new(wide(place.at), digits.len())))
            }
            FLOAT => self.push_line(ascii(line).and_then(|text| text.parse().ok()).map(Value::Float)),
            UNICODE => self.push(Value::Escaped(place)),
            STRING => self.push_line(unquoted(line, place)),
            PERSID => {
                let parts = Parts::new(Made::Persistent, Value::None, Value::Text(place));
                let object = self.store.object(parts);
                self.push(object)
            }
            GET => {
                let value = ascii(line).and_then(|text| text.parse().ok()).and_then(|n| self.remembers(n));
                self.push_line(value)
            }
            PUT => match ascii(line).and_then(|text| text.parse().ok()) {
                Some(index) => self.memoize(index),
                None => Err(self.invalid()),
            },
            GLOBAL | INST => {
                let name = Value::Text(self.line()?);
                let class = self.store.global(Value::Text(place), name);
                if code == GLOBAL {
                    return self.push(class);
                }
                self.marked(|store, items| {
                    let args = Value::Tuple(store.keep(items));
                    Some(store.object(Parts::new(Made::Called, class, args)))
                })
            }
            _ => Err(self.invalid()),
        }
    }

    fn invalid(&self) -> End {
        End::Invalid(self.at)
    }

    /// Height of the stack below which nothing may be touched.
    fn fence(&self) -> usize {
        self.marks.last().copied().unwrap_or(0)
    }

    fn last(&self) -> Result<Value, End> {
        match self.stack.last() {
            Some(value) if self.stack.len() > self.fence() => Ok(*value),
            _ => Err(self.invalid()),
        }
    }

    fn push(&mut self, value: Value) -> Result<(), End> {
        if self.stack.len() + self.store.items.len() >= self.limits.values {
            return Err(End::Limit);
        }
        self.stack.push(value);
        Ok(())
    }

    fn push_line(&mut self, value: Option<Value>) -> Result<(), End> {
        value.ok_or_else(|| self.invalid()).and_then(|value| self.push(value))
    }

    fn number<T: Into<i64>, const N: usize>(&mut self, read: fn([u8; N]) -> T) -> Result<(), End> {
        let number = read(self.fixed()?).into();
        self.push(Value::Int(number))
    }

    fn container(&mut self, of: fn(u32) -> Value) -> Result<(), End> {
        let chain = self.store.chain();
        self.push(of(chain))
    }

    fn mark(&mut self) -> Result<(), End> {
        if self.marks.len() >= self.limits.depth {
            return Err(End::Limit);
        }
        self.marks.push(self.stack.len());
        Ok(())
    }

    fn pop(&mut self) -> Result<(), End> {
        if self.marks.last() == Some(&self.stack.len()) {
            self.marks.pop();
            return Ok(());
        }
        self.stack.pop().map(drop).ok_or_else(|| self.invalid())
    }

    /// Makes one value of everything above the last mark.
    fn marked(&mut self, make: impl FnOnce(&mut Store, &[Value]) -> Option<Value>) -> Result<(), End> {
        let mark = self.marks.pop().ok_or_else(|| self.invalid())?;
        let items = self.stack.get(mark..).unwrap_or_default();
        let Some(value) = make(self.store, items) else { return Err(self.invalid()) };
        self.stack.truncate(mark);
        self.push(value)
    }

    /// Makes one value of the last `count`.
    fn take(
        &mut self,
        count: usize,
        make: impl FnOnce(&mut Store, &[Value]) -> Option<Value>,
    ) -> Result<(), End> {
        let from = self.stack.len().checked_sub(count).filter(|from| *from >= self.fence());
        let Some(from) = from else { return Err(self.invalid()) };
        let items = self.stack.get(from..).unwrap_or_default();
        let Some(value) = make(self.store, items) else { return Err(self.invalid()) };
        self.stack.truncate(from);
        self.push(value)
    }

    fn tuple_of(&mut self, count: usize) -> Result<(), End> {
        self.take(count, |store, items| Some(Value::Tuple(store.keep(items))))
    }

    fn make(&mut self, count: usize, parts: impl FnOnce(&[Value]) -> Option<Parts>) -> Result<(), End> {
        self.take(count, |store, items| parts(items).map(|parts| store.object(parts)))
    }

    /// Adds the last `count` values to the container below them.
    fn add_last(&mut self, count: usize, pairs: bool) -> Result<(), End> {
        self.take(count + 1, |store, items| {
            let (container, items) = items.split_first()?;
            let chain = store.target(*container, pairs)?;
            store.extend(chain, items);
            Some(*container)
        })
    }

    /// Adds everything above the last mark to the container below it.
    fn add_marked(&mut self, pairs: bool) -> Result<(), End> {
        let container = self.below_mark()?;
        let Some(chain) = self.store.target(container, pairs) else { return Err(self.invalid()) };
        self.add_to(chain, pairs)
    }

    fn add_members(&mut self) -> Result<(), End> {
        let container = self.below_mark()?;
        let chain =
            if let Value::Set(chain) = container { Some(chain) } else { self.store.target(container, false) };
        let Some(chain) = chain else { return Err(self.invalid()) };
        self.add_to(chain, false)
    }

    fn below_mark(&self) -> Result<Value, End> {
        let below = self.marks.last().and_then(|mark| self.stack.get(mark.checked_sub(1)?));
        below.copied().ok_or_else(|| self.invalid())
    }

    fn add_to(&mut self, chain: u32, pairs: bool) -> Result<(), End> {
        let mark = self.marks.pop().ok_or_else(|| self.invalid())?;
        let items = self.stack.get(mark..).unwrap_or_default();
        if pairs && items.len() % 2 != 0 {
            return Err(self.invalid());
        }
        self.store.extend(chain, items);
        self.stack.truncate(mark);
        Ok(())
    }

    fn stack_global(&mut self) -> Result<(), End> {
        self.take(2, |store, items| match items {
            [module, name] if module.is_text() && name.is_text() => Some(store.global(*module, *name)),
            _ => None,
        })
    }

    /// Sets the last value as state of the one below it.
    fn build(&mut self) -> Result<(), End> {
        self.take(2, |store, items| match items {
            [built, state] => Some(store.build(*built, *state)),
            _ => None,
        })
    }

    fn extension<const N: usize>(&mut self) -> Result<(), End> {
        let code = self.length::<N>()?;
        self.push(Value::Extension(narrow(code)))
    }

    fn long<const N: usize>(&mut self) -> Result<(), End> {
        let len = self.length::<N>()?;
        let place = self.place(len)?;
        let value = small(place.of(self.bytes)).map_or(Value::Long(place), Value::Int);
        self.push(value)
    }

    fn put<const N: usize>(&mut self) -> Result<(), End> {
        let index = self.length::<N>()?;
        self.memoize(index)
    }

    fn memoize(&mut self, index: usize) -> Result<(), End> {
        let value = self.last()?;
        // A pickler counts up from 0: a number over that of the bytes was made up.
        if index >= self.limits.memo || index > self.bytes.len() {
            return Err(End::Limit);
        }
        if index >= self.memo.len() {
            self.memo.resize(index + 1, None);
        }
        if let Some(entry) = self.memo.get_mut(index) {
            self.remembered += usize::from(entry.is_none());
            *entry = Some(value);
        }
        Ok(())
    }

    fn remembers(&self, index: usize) -> Option<Value> {
        self.memo.get(index).copied().flatten()
    }

    fn recall<const N: usize>(&mut self) -> Result<(), End> {
        let index = self.length::<N>()?;
        match self.remembers(index) {
            Some(value) => self.push(value),
            None => Err(self.invalid()),
        }
    }

    /// A value that is the bytes after their length of `N` bytes.
    fn counted<const N: usize>(&mut self, of: fn(Place) -> Value) -> Result<(), End> {
        let len = self.length::<N>()?;
        let place = self.place(len)?;
        self.push(of(place))
    }

    /// An unsigned number of `N` bytes.
    fn length<const N: usize>(&mut self) -> Result<usize, End> {
        let bytes: [u8; N] = self.fixed()?;
        let number = bytes
            .iter()
            .rev()
            .try_fold(0_u64, |number, byte| number.checked_mul(256).map(|high| high | u64::from(*byte)));
        Ok(number.and_then(|number| usize::try_from(number).ok()).unwrap_or(usize::MAX))
    }

    fn place(&mut self, len: usize) -> Result<Place, End> {
        let end = self.at.checked_add(len).filter(|end| *end <= self.bytes.len()).ok_or(End::Cut)?;
        let place = Place::new(self.at, len);
        self.at = end;
        Ok(place)
    }

    /// The line that comes next, without its end.
    fn line(&mut self) -> Result<Place, End> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let len = memchr::memchr(b'\n', rest).ok_or(End::Cut)?;
        let place = self.place(len)?;
        self.at += 1;
        Ok(place)
    }

    fn fixed<const N: usize>(&mut self) -> Result<[u8; N], End> {
        let bytes = self.bytes.get(self.at..).and_then(<[u8]>::first_chunk).ok_or(End::Cut)?;
        self.at += N;
        Ok(*bytes)
    }
}

impl Store {
    /// Sets a state to a value, which then is an object.
    pub(super) fn build(&mut self, built: Value, state: Value) -> Value {
        if let Value::Object(object) = built
            && let Some(parts) = self.objects.get_mut(wide(object))
        {
            parts.state = Some(state);
            return built;
        }
        let parts = Parts::new(Made::Built, built, Value::Tuple(Place::default()));
        self.object(Parts { state: Some(state), ..parts })
    }
}

impl Value {
    /// Whether it is a `str`, however it is written.
    pub(super) fn is_text(self) -> bool {
        matches!(self, Self::Text(_) | Self::Escaped(_) | Self::Quoted(_))
    }
}

fn filled(store: &mut Store, items: &[Value], of: fn(u32) -> Value) -> Option<Value> {
    let chain = store.chain();
    store.extend(chain, items);
    Some(of(chain))
}

/// A little-endian number in two's complement that fits.
fn small(bytes: &[u8]) -> Option<i64> {
    let sign = if bytes.last().is_some_and(|byte| *byte >= 0x80) { 0xff } else { 0 };
    let mut number = [sign; 8];
    number.get_mut(..bytes.len())?.copy_from_slice(bytes);
    Some(i64::from_le_bytes(number))
}

fn ascii(line: &[u8]) -> Option<&str> {
    std::str::from_utf8(line).ok().map(str::trim_ascii)
}

/// Protocol 0's whole numbers; `00` and `01` are its truth values.
fn integer(line: &[u8], place: Place) -> Option<Value> {
    match line {
        b"00" => return Some(Value::Bool(false)),
        b"01" => return Some(Value::Bool(true)),
        _ => {}
    }
    if let Some(number) = ascii(line).and_then(|text| text.parse().ok()) {
        return Some(Value::Int(number));
    }
    let digits = line.strip_prefix(b"-").unwrap_or(line);
    (!digits.is_empty() && digits.iter().all(u8::is_ascii_digit)).then_some(Value::Digits(place))
}

/// A literal between quotes.
fn unquoted(line: &[u8], place: Place) -> Option<Value> {
    let quote = line.first().filter(|quote| matches!(quote, b'\'' | b'"'))?;
    (line.len() >= 2 && line.last() == Some(quote))
        .then(|| Value::Quoted(Place::new(wide(place.at) + 1, line.len() - 2)))
}
