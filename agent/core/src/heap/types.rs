//! Types of objects.

use std::collections::HashMap;
use std::sync::Arc;

use super::layout::Field;
use super::memory::{Addr, Memory};
use super::reader::{Heap, Refusal, Want};
use super::seen::{Ref, SeenId, word};

/// `tp_flags`.
mod flag {
    pub const INLINE_VALUES: u64 = 1 << 2;
    pub const MANAGED_DICT: u64 = 1 << 4;
    pub const HEAP_TYPE: u64 = 1 << 9;
    pub const INT: u64 = 1 << 24;
    pub const LIST: u64 = 1 << 25;
    pub const TUPLE: u64 = 1 << 26;
    pub const BYTES: u64 = 1 << 27;
    pub const STR: u64 = 1 << 28;
    pub const DICT: u64 = 1 << 29;
    pub const TYPE: u64 = 1 << 31;
}

/// `T_OBJECT` and `T_OBJECT_EX` of `structmember.h`: a slot that holds a reference.
const SLOT_KINDS: [u32; 2] = [6, 16];
/// Bases looked at for one type.
const MRO_LIMIT: usize = 64;
/// Most bytes of a type's name.
const NAME_LIMIT: u64 = 128;
/// Bytes of a type up to the last field read.
const HEAD: usize = 360;

/// What an object is read as.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// `None`.
    None,
    /// `bool`.
    Bool,
    /// `int` and its subclasses.
    Int,
    /// `float` and its subclasses.
    Float,
    /// `str` and its subclasses.
    Str,
    /// `bytes`.
    Bytes,
    /// `list` and its subclasses.
    List,
    /// `tuple` and its subclasses.
    Tuple,
    /// `dict` and its subclasses.
    Dict,
    /// `set` and `frozenset`.
    Set,
    /// `collections.deque` and its subclasses.
    Deque,
    /// `array.array`.
    Array,
    /// A member of an `enum.Enum`.
    Enum,
    /// A cell of a closure.
    Cell,
    /// Code.
    Code,
    /// A type.
    Type,
    /// Anything else: known by its attributes.
    Other,
}

/// Kinds known by a name in the list of bases.
const BY_NAME: [(&str, Kind); 8] = [
    ("NoneType", Kind::None),
    ("float", Kind::Float),
    ("set", Kind::Set),
    ("frozenset", Kind::Set),
    ("deque", Kind::Deque),
    ("array", Kind::Array),
    ("cell", Kind::Cell),
    ("code", Kind::Code),
];

/// Kinds known by a flag.
const BY_FLAG: [(u64, Kind); 7] = [
    (flag::TYPE, Kind::Type),
    (flag::INT, Kind::Int),
    (flag::LIST, Kind::List),
    (flag::TUPLE, Kind::Tuple),
    (flag::BYTES, Kind::Bytes),
    (flag::STR, Kind::Str),
    (flag::DICT, Kind::Dict),
];

/// A type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Type {
    /// Where it lies.
    pub addr: Addr,
    /// Its name, without its module.
    pub name: String,
    /// What its instances are read as.
    pub kind: Kind,
    flags: u64,
    pub(super) basic_size: u64,
    pub(super) item_size: u64,
    pub(super) dict_offset: i64,
    /// Dicts of the type and its bases, the type's first; those of C types left out.
    pub(super) dicts: Vec<Addr>,
    /// Offsets of its slots.
    pub(super) slots: HashMap<Arc<str>, u64>,
}

/// The fields of a type that stand in its own structure.
struct Head {
    name: String,
    flags: u64,
    basic_size: u64,
    item_size: u64,
    dict_offset: i64,
    dict: Addr,
    mro: Addr,
}

impl Type {
    /// Whether the interpreter keeps the attributes of its instances.
    pub(super) fn managed(&self) -> bool {
        self.flags & flag::MANAGED_DICT != 0
    }

    /// Whether they lie behind the instance.
    pub(super) fn inline_values(&self) -> bool {
        self.flags & flag::INLINE_VALUES != 0
    }
}

impl<M: Memory> Heap<M> {
    /// The types of objects, each noted as leading to what is read of its object.
    pub(super) fn types_of(&mut self, objects: &[Ref]) -> Vec<Result<(Arc<Type>, SeenId), Refusal>> {
        let offset = self.layout.at(Field::ObType);
        let wants: Vec<Want> =
            objects.iter().map(|object| Want::new(object.addr.plus(offset), 8, object.seen)).collect();
        let seen = self.gather(&wants);
        let mut typed = |seen: Result<SeenId, Refusal>| {
            let seen = seen?;
            Ok((self.type_at(self.pointer(seen, 0).addr)?, seen))
        };
        seen.into_iter().map(&mut typed).collect()
    }

    /// The type of one object, not noted.
    pub fn type_of(&mut self, object: Addr) -> Result<Arc<Type>, Refusal> {
        let addr = self.field(object, Field::ObType)?;
        self.type_at(addr)
    }

    /// The type at an address. Kept once it was read.
    pub(super) fn type_at(&mut self, addr: Addr) -> Result<Arc<Type>, Refusal> {
        if let Some(known) = self.types.get(&addr) {
            return Ok(Arc::clone(known));
        }
        let found = Arc::new(self.read_type(addr)?);
        self.keep_type(&found);
        Ok(found)
    }

    fn read_type(&mut self, addr: Addr) -> Result<Type, Refusal> {
        self.check_type(addr)?;
        let head = self.type_head(addr)?;
        let bases = self.bases(addr, &head)?;
        let mut heads = Vec::with_capacity(bases.len());
        for base in bases {
            heads.push(self.type_head(base)?);
        }
        let dicts = heads.iter().filter(|head| head.flags & flag::HEAP_TYPE != 0);
        let dicts: Vec<Addr> = dicts.map(|head| head.dict).filter(|dict| dict.0 != 0).collect();
        let slots = self.slots(&dicts)?;
        let Head { name, flags, basic_size, item_size, dict_offset, .. } = head;
        let kind = kind(&heads, flags);
        Ok(Type { addr, name, kind, flags, basic_size, item_size, dict_offset, dicts, slots })
    }

    /// A type's own type is a type.
    fn check_type(&mut self, addr: Addr) -> Result<(), Refusal> {
        let meta = self.field(addr, Field::ObType)?;
        let flags = self.field(meta, Field::TypeFlags)?;
        if flags.0 & flag::TYPE == 0 { Err(Refusal::Absurd) } else { Ok(()) }
    }

    fn type_head(&mut self, addr: Addr) -> Result<Head, Refusal> {
        let bytes = self.peek(addr, HEAD)?;
        let of = |field| word(&bytes, usize::try_from(self.layout.at(field)).unwrap_or(usize::MAX));
        let name = Addr(of(Field::TypeName));
        let head = Head {
            name: String::new(),
            flags: of(Field::TypeFlags),
            basic_size: of(Field::TypeBasicSize),
            item_size: of(Field::TypeItemSize),
            dict_offset: of(Field::TypeDictOffset).cast_signed(),
            dict: Addr(of(Field::TypeDict)),
            mro: Addr(of(Field::TypeMro)),
        };
        if head.basic_size > 1 << 24 || head.item_size > 1 << 24 || head.dict_offset.unsigned_abs() > 1 << 24
        {
            return Err(Refusal::Absurd);
        }
        Ok(Head { name: self.type_name(name)?, ..head })
    }

    /// A C string, the part behind its last dot.
    fn type_name(&mut self, at: Addr) -> Result<String, Refusal> {
        let page = 4096 - at.0 % 4096;
        let len = usize::try_from(NAME_LIMIT.min(page)).unwrap_or(0);
        let mut bytes = self.peek(at, len)?;
        if page < NAME_LIMIT && !bytes.contains(&0) {
            bytes.extend(self.peek(at.plus(page), usize::try_from(NAME_LIMIT - page).unwrap_or(0))?);
        }
        let end = bytes.iter().position(|byte| *byte == 0).ok_or(Refusal::Absurd)?;
        let text = std::str::from_utf8(&bytes[..end]).map_err(|_| Refusal::Absurd)?;
        Ok(text.rsplit('.').next().unwrap_or(text).to_owned())
    }

    /// The bases of a type, itself first.
    fn bases(&mut self, addr: Addr, head: &Head) -> Result<Vec<Addr>, Refusal> {
        let len = usize::try_from(self.field(head.mro, Field::ObSize)?.0).map_err(|_| Refusal::Absurd)?;
        if len == 0 || len > MRO_LIMIT {
            return Err(Refusal::Absurd);
        }
        let items = self.peek(head.mro.plus(self.layout.at(Field::TupleItems)), 8 * len)?;
        let bases: Vec<Addr> = (0..len).map(|index| Addr(word(&items, 8 * index))).collect();
        if bases.first() == Some(&addr) { Ok(bases) } else { Err(Refusal::Absurd) }
    }

    /// The slots of a class: `__slots__`, slotted dataclasses, `msgspec.Struct`.
    fn slots(&mut self, dicts: &[Addr]) -> Result<HashMap<Arc<str>, u64>, Refusal> {
        let mut slots = HashMap::new();
        // A base's slot is hidden by the class's own of that name.
        for dict in dicts.iter().rev() {
            for (key, value) in self.peek_dict(*dict)? {
                if let Some(offset) = self.slot(value)? {
                    slots.insert(self.peek_name(key)?, offset);
                }
            }
        }
        Ok(slots)
    }

    /// The offset that a member descriptor stands for; `None` where the object is none.
    fn slot(&mut self, object: Addr) -> Result<Option<u64>, Refusal> {
        let of_type = self.field(object, Field::ObType)?;
        let name = self.field(of_type, Field::TypeName)?;
        if self.type_name(name)? != "member_descriptor" {
            return Ok(None);
        }
        let member = self.field(object, Field::MemberDef)?;
        let kind = self.peek(member.plus(self.layout.at(Field::MemberType)), 4)?;
        let kind = kind.first_chunk::<4>().map_or(0, |bytes| u32::from_le_bytes(*bytes));
        let offset = self.field(member, Field::MemberOffset)?.0;
        Ok((SLOT_KINDS.contains(&kind) && offset < 1 << 24).then_some(offset))
    }
}

/// What instances of a type with these bases are.
fn kind(bases: &[Head], flags: u64) -> Kind {
    if bases.iter().any(|base| base.name == "Enum") {
        return Kind::Enum;
    }
    if bases.first().is_some_and(|base| base.name == "bool") {
        return Kind::Bool;
    }
    let by_flag = BY_FLAG.iter().find(|(flag, _)| flags & flag != 0).map(|(_, kind)| *kind);
    let by_name = || bases.iter().find_map(|base| BY_NAME.iter().find(|(name, _)| *name == base.name));
    by_flag.or_else(|| by_name().map(|(_, kind)| *kind)).unwrap_or(Kind::Other)
}
