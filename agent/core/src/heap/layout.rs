//! Where the fields of CPython's structures lie, by version: one table, `table`.
//!
//! Made from the headers of each version by `offsetof` on x86-64 (arm64 has the same sizes and alignments), for builds
//! with the GIL. From 3.13 on the interpreter tells most of them itself (`_Py_DebugOffsets`, at the start of
//! `_PyRuntime`), and what it says wins over the table.

mod debug;
mod table;

pub use debug::{HEAD_LEN, Told};
pub use table::Field;

use table::{COLUMNS, FIELDS, NONE};

/// A version of CPython, `major.minor`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Version {
    /// 3.
    pub major: u8,
    /// 9 to 14 are known.
    pub minor: u8,
}

impl Version {
    /// From `PY_VERSION_HEX`.
    #[must_use]
    pub fn of_hex(hex: u64) -> Self {
        let [.., major, minor, _, _] = hex.to_be_bytes();
        Self { major, minor }
    }

    /// Whether a table was made for it.
    #[must_use]
    pub fn listed(self) -> bool {
        self.major == 3 && self.column() + usize::from(FIRST) == usize::from(self.minor)
    }

    /// The nearest version there is a table for.
    fn column(self) -> usize {
        usize::from(self.minor.clamp(FIRST, LAST) - FIRST)
    }
}

impl std::fmt::Display for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// The oldest and the newest minor version in the table.
const FIRST: u8 = 9;
const LAST: u8 = 14;
const _: () = assert!(COLUMNS == (LAST - FIRST) as usize + 1);

/// How a thread leads to its newest frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frames {
    /// A pointer to a frame object (3.9, 3.10).
    Objects,
    /// Through a C frame (3.11, 3.12).
    Cframe,
    /// Straight (3.13 on).
    Straight,
}

/// How an instance of a Python class keeps its attributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Managed {
    /// In a dict at `tp_dictoffset` (3.9, 3.10).
    None,
    /// Values 32 bytes before the object, dict 24 before (3.11).
    Pair,
    /// One word 24 bytes before the object: values when its lowest bit is set (3.12).
    Tagged,
    /// Values behind the object as long as they are valid; dict 24 bytes before (3.13 on).
    Inline,
}

/// The offsets of one interpreter, and which of several shapes its structures have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The interpreter's version.
    pub version: Version,
    offsets: [u32; FIELDS],
    /// How threads lead to frames.
    pub frames: Frames,
    /// How instances keep attributes.
    pub managed: Managed,
    /// Whether a dict's table tells the logarithms of its sizes and its kind (3.11 on), not its size (before).
    pub logged_keys: bool,
    /// Whether an int's length and sign are in a tag (3.12 on), not in `ob_size` (before).
    pub tagged_int: bool,
    /// Whether code knows its cells and free variables by one list of names (3.11 on).
    pub one_list_of_locals: bool,
    /// Bits of a frame's references that are no part of the address (3.14 on).
    pub frame_tag: u64,
}

impl Layout {
    /// The layout of a version, or of the nearest one there is a table for.
    #[must_use]
    pub fn of(version: Version) -> Self {
        let minor = version.minor;
        Self {
            version,
            offsets: table::column(version.column()),
            frames: match minor {
                0..=10 => Frames::Objects,
                11 | 12 => Frames::Cframe,
                13.. => Frames::Straight,
            },
            managed: match minor {
                0..=10 => Managed::None,
                11 => Managed::Pair,
                12 => Managed::Tagged,
                13.. => Managed::Inline,
            },
            logged_keys: minor >= 11,
            tagged_int: minor >= 12,
            one_list_of_locals: minor >= 11,
            frame_tag: if minor >= 14 { 3 } else { 0 },
        }
    }

    /// The offset of a field; 0 where this version has no such field, which the shapes keep from being asked for.
    #[must_use]
    pub fn at(&self, field: Field) -> u64 {
        match self.offsets[field as usize] {
            NONE => 0,
            offset => u64::from(offset),
        }
    }

    /// Whether this version has the field.
    #[must_use]
    pub fn has(&self, field: Field) -> bool {
        self.offsets[field as usize] != NONE
    }

    /// Puts another offset in the place of one.
    pub fn set(&mut self, field: Field, offset: u32) {
        self.offsets[field as usize] = offset;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_from_the_hex_number() {
        assert_eq!(Version::of_hex(0x030b_07f0), Version { major: 3, minor: 11 });
        assert!(Version { major: 3, minor: 9 }.listed() && Version { major: 3, minor: 14 }.listed());
        assert!(!Version { major: 3, minor: 15 }.listed() && !Version { major: 3, minor: 8 }.listed());
    }

    #[test]
    fn a_version_nobody_listed_gets_the_nearest_layout() {
        let of = |minor| Layout::of(Version { major: 3, minor });
        for field in Field::ALL {
            assert_eq!(of(15).at(field), of(14).at(field));
            assert_eq!(of(8).at(field), of(9).at(field));
        }
        assert_eq!(of(15).frame_tag, 3);
    }
}
