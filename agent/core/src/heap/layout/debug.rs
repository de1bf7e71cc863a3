//! `_Py_DebugOffsets`: what an interpreter of 3.13 or later tells of its own layout. It lies at the start of
//! `_PyRuntime`: 8 bytes `xdebugpy`, then words of 64 bits: version, whether it is free-threaded, and the offsets in a
//! fixed order.

use std::collections::HashMap;

use super::{Field, Layout, Version, table};

/// What it begins with.
const COOKIE: &[u8; 8] = b"xdebugpy";
/// Bytes enough for every order known.
pub const HEAD_LEN: usize = 24 + 8 * 128;
/// An offset beyond this is none: the greatest are those of an interpreter's state, under 1 MB.
const LIMIT: u64 = 1 << 22;

/// Order of the words in 3.13 (`Include/internal/pycore_debug_offsets.h`, in 3.13 `pycore_runtime.h`).
const ORDER_3_13: &str = "runtime_state:size finalizing interpreters_head
interpreter_state:size id next threads_head gc imports_modules sysdict builtins ceval_gil gil_runtime_state gil_runtime_state_enabled gil_runtime_state_locked gil_runtime_state_holder
thread_state:size prev next interp current_frame thread_id native_thread_id datastack_chunk status
interpreter_frame:size previous executable instr_ptr localsplus owner
code_object:size filename name qualname linetable firstlineno argcount localsplusnames localspluskinds co_code_adaptive
pyobject:size ob_type
type_object:size tp_name tp_repr tp_flags
tuple_object:size ob_item ob_size
list_object:size ob_item ob_size
dict_object:size ma_keys ma_values
float_object:size ob_fval
long_object:size lv_tag ob_digit
bytes_object:size ob_size ob_sval
unicode_object:size state length asciiobject_size";

/// Order of the words in 3.14.
const ORDER_3_14: &str = "runtime_state:size finalizing interpreters_head
interpreter_state:size id next threads_head threads_main gc imports_modules sysdict builtins ceval_gil gil_runtime_state gil_runtime_state_enabled gil_runtime_state_locked gil_runtime_state_holder code_object_generation tlbc_generation
thread_state:size prev next interp current_frame thread_id native_thread_id datastack_chunk status
interpreter_frame:size previous executable instr_ptr localsplus owner stackpointer tlbc_index
code_object:size filename name qualname linetable firstlineno argcount localsplusnames localspluskinds co_code_adaptive co_tlbc
pyobject:size ob_type
type_object:size tp_name tp_repr tp_flags
tuple_object:size ob_item ob_size
list_object:size ob_item ob_size
set_object:size used table mask
dict_object:size ma_keys ma_values
float_object:size ob_fval
long_object:size lv_tag ob_digit
bytes_object:size ob_size ob_sval
unicode_object:size state length asciiobject_size";

/// What an interpreter tells of its layout.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    /// Its version.
    pub version: Version,
    /// Whether it is built without the GIL.
    pub free_threaded: bool,
    offsets: HashMap<String, u64>,
}

impl Told {
    /// Reads it from the first [`HEAD_LEN`] bytes of `_PyRuntime`; `None` where they do not begin with it.
    #[must_use]
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let words = bytes.strip_prefix(COOKIE)?;
        let mut words =
            words.chunks_exact(8).filter_map(|word| Some(u64::from_le_bytes(word.try_into().ok()?)));
        let version = Version::of_hex(words.next()?);
        let free_threaded = words.next()? != 0;
        let order = if version.minor <= 13 { ORDER_3_13 } else { ORDER_3_14 };
        Some(Self { version, free_threaded, offsets: names(order).zip(words).collect() })
    }

    /// The offset it tells under a name (`structure.field`).
    #[must_use]
    pub fn get(&self, name: &str) -> Option<u64> {
        self.offsets.get(name).copied()
    }
}

impl Layout {
    /// Takes what the interpreter tells over what the table says; the fields in which they differed.
    pub fn overlay(&mut self, told: &Told) -> Vec<Field> {
        let mut differed = Vec::new();
        for field in Field::ALL {
            let Some(offset) = table::told(field, told).filter(|offset| *offset < LIMIT) else { continue };
            if offset != self.at(field) {
                differed.push(field);
                self.set(field, u32::try_from(offset).unwrap_or(u32::MAX));
            }
        }
        differed
    }
}

fn names(order: &'static str) -> impl Iterator<Item = String> {
    order.lines().filter_map(|line| line.split_once(':')).flat_map(|(structure, fields)| {
        fields.split_whitespace().map(move |field| format!("{structure}.{field}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(version: u64, free_threaded: u64) -> Vec<u8> {
        let mut bytes = COOKIE.to_vec();
        bytes.extend(version.to_le_bytes());
        bytes.extend(free_threaded.to_le_bytes());
        bytes.extend((0..100_u64).flat_map(|number| (number * 8).to_le_bytes()));
        bytes
    }

    #[test]
    fn the_words_have_their_names() {
        let told = Told::read(&head(0x030d_00f0, 0)).unwrap();
        assert_eq!(told.version, Version { major: 3, minor: 13 });
        assert!(!told.free_threaded);
        assert_eq!(told.get("runtime_state.interpreters_head"), Some(16));
        assert_eq!(told.get("interpreter_state.threads_head"), Some(48));
        assert_eq!(told.get("set_object.mask"), None);
        assert!(Told::read(&head(0x030e_00f0, 1)).unwrap().free_threaded);
    }

    #[test]
    fn what_does_not_begin_with_the_cookie_tells_nothing() {
        assert_eq!(Told::read(&[0; HEAD_LEN]), None);
        assert_eq!(Told::read(b"xdebugpy"), None);
    }

    #[test]
    fn what_it_tells_wins_and_differences_are_named() {
        let mut layout = Layout::of(Version { major: 3, minor: 13 });
        let told = Told::read(&head(0x030d_00f0, 0)).unwrap();
        let differed = layout.overlay(&told);
        assert!(differed.contains(&Field::RuntimeInterpreters));
        assert_eq!(layout.at(Field::RuntimeInterpreters), 16);
        assert_eq!(layout.overlay(&told), []);
    }
}
