//! What objects are read as.

use super::layout::Field;

/// `tp_flags`.
pub(super) mod flag {
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

impl Kind {
    /// What instances of a type are whose bases have these names, its own first, and that has these flags.
    pub(super) fn of(bases: &[&str], flags: u64) -> Self {
        if bases.contains(&"Enum") {
            return Self::Enum;
        }
        if bases.first() == Some(&"bool") {
            return Self::Bool;
        }
        let by_flag = BY_FLAG.iter().find(|(flag, _)| flags & flag != 0);
        let by_name = || bases.iter().find_map(|base| BY_NAME.iter().find(|(name, _)| name == base));
        by_flag.map(|(_, kind)| *kind).or_else(|| by_name().map(|(_, kind)| *kind)).unwrap_or(Self::Other)
    }

    /// The fields at its beginning that say what it holds, or where.
    pub(super) fn fields(self) -> &'static [Field] {
        match self {
            Self::Bool | Self::Int => &[Field::IntTag, Field::IntDigits],
            Self::Float => &[Field::FloatValue],
            Self::Str => &[Field::StrLength, Field::StrState],
            Self::Bytes | Self::Tuple => &[Field::ObSize],
            Self::List => &[Field::ObSize, Field::ListItems],
            Self::Dict => &[Field::DictUsed, Field::DictKeys, Field::DictValues],
            Self::Set => &[Field::SetUsed, Field::SetMask, Field::SetTable],
            Self::Deque => &[Field::ObSize, Field::DequeLeft, Field::DequeLeftIndex, Field::DequeRightIndex],
            Self::Array => &[Field::ObSize, Field::ArrayItems, Field::ArrayDescr],
            Self::None | Self::Enum | Self::Cell | Self::Code | Self::Type | Self::Other => &[],
        }
    }

    /// Where it keeps how many items it holds.
    pub(super) fn length(self) -> Option<Field> {
        match self {
            Self::List | Self::Tuple | Self::Deque | Self::Array | Self::Bytes => Some(Field::ObSize),
            Self::Dict => Some(Field::DictUsed),
            Self::Set => Some(Field::SetUsed),
            Self::Str => Some(Field::StrLength),
            Self::None
            | Self::Bool
            | Self::Int
            | Self::Float
            | Self::Enum
            | Self::Cell
            | Self::Code
            | Self::Type
            | Self::Other => None,
        }
    }
}
