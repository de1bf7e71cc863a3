//! Types of objects.

use std::collections::HashMap;
use std::sync::Arc;

use super::kind::{Kind, flag};
use super::layout::Field;
use super::memory::{Addr, Memory};
use super::reader::{Heap, Refusal};
use super::seen::word;

/// `T_OBJECT` and `T_OBJECT_EX` of `structmember.h`: a slot that holds a reference.
const SLOT_KINDS: [u32; 2] = [6, 16];
/// Bases looked at for one type.
const MRO_LIMIT: usize = 64;
/// Most bytes of a type's name.
const NAME_LIMIT: u64 = 128;
/// Bytes of a type up to the last field read.
const HEAD: usize = 360;

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
        let kind = Kind::of(&heads.iter().map(|head| head.name.as_str()).collect::<Vec<_>>(), flags);
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
            for entry in self.peek_dict(*dict)? {
                if let Some(offset) = self.slot(entry.value)? {
                    slots.insert(self.peek_name(entry.key)?, offset);
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
