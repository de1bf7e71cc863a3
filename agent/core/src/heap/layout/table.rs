//! The table.

use super::Told;

/// Versions in the table.
pub(super) const COLUMNS: usize = 6;
/// A version without that field.
pub(super) const NONE: u32 = u32::MAX;

macro_rules! table {
    ($($(#[$doc:meta])* $name:ident: $cells:tt $($told:literal)?;)*) => {
        /// A field of one of CPython's structures.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(usize)]
        pub enum Field {
            $($(#[$doc])* $name,)*
        }

        impl Field {
            /// Every field.
            pub const ALL: [Self; FIELDS] = [$(Self::$name,)*];
        }

        /// How many fields there are.
        pub(super) const FIELDS: usize = [$(stringify!($name),)*].len();

        const TABLE: [[u32; COLUMNS]; FIELDS] = [$(cells!($cells),)*];

        /// What the interpreter tells of a field, by its name in `_Py_DebugOffsets`.
        pub(super) fn told(field: Field, told: &Told) -> Option<u64> {
            match field {
                $(Field::$name => told!(told $($told)?),)*
            }
        }
    };
}

macro_rules! cells {
    ([$($cell:tt)*]) => { [$(cell!($cell),)*] };
}

macro_rules! cell {
    (-) => {
        NONE
    };
    ($offset:literal) => {
        $offset
    };
}

macro_rules! told {
    ($told:ident) => {{
        let _ = $told;
        None
    }};
    ($told:ident $name:literal) => {
        $told.get($name)
    };
}

/// The offsets of one version.
pub(super) fn column(number: usize) -> [u32; FIELDS] {
    TABLE.map(|row| row[number])
}

table! {
    //                 3.9  3.10 3.11 3.12 3.13 3.14
    /// `_PyRuntimeState.interpreters.head`
    RuntimeInterpreters:  [32   32   40   40   632  808] "runtime_state.interpreters_head";
    /// `PyInterpreterState.next`
    InterpNext:           [0    0    0    0    7264 7272] "interpreter_state.next";
    /// `PyInterpreterState.threads.head`
    InterpThreads:        [8    8    16   72   7344 7344] "interpreter_state.threads_head";
    /// `PyInterpreterState.runtime`
    InterpRuntime:        [16   16   40   96   7376 7384];
    /// `PyInterpreterState.imports.modules`
    InterpModules:        [856  856  888  944  7656 7688] "interpreter_state.imports_modules";
    /// `PyThreadState.next`
    ThreadNext:           [8    8    8    8    8    8] "thread_state.next";
    /// `PyThreadState.interp`
    ThreadInterp:         [16   16   16   16   16   16] "thread_state.interp";
    /// `PyThreadState.frame`, `.cframe`, `.current_frame`
    ThreadFrame:          [24   24   56   56   72   72] "thread_state.current_frame";
    /// `PyThreadState.thread_id`: the `pthread_t`
    ThreadPthread:        [176  176  -    -    -    -];
    /// `PyThreadState.native_thread_id`: the thread's number in its own PID namespace
    ThreadNative:         [-    -    160  144  160  160] "thread_state.native_thread_id";
    /// `_PyCFrame.current_frame`
    CframeCurrent:        [-    -    8    0    -    -];
    /// `PyFrameObject.f_back`, `_PyInterpreterFrame.previous`
    FramePrevious:        [24   24   48   8    8    8] "interpreter_frame.previous";
    /// `PyFrameObject.f_code`, `_PyInterpreterFrame.f_code`, `.f_executable`
    FrameCode:            [32   32   32   0    0    0] "interpreter_frame.executable";
    /// `f_localsplus`, `localsplus`
    FrameLocals:          [360  352  72   72   72   80] "interpreter_frame.localsplus";
    /// `PyCodeObject.co_filename`
    CodeFile:             [104  104  112  112  112  112] "code_object.filename";
    /// `PyCodeObject.co_name`
    CodeName:             [112  112  120  120  120  120] "code_object.name";
    /// `PyCodeObject.co_qualname`
    CodeQualname:         [-    -    128  128  128  128] "code_object.qualname";
    /// `PyCodeObject.co_firstlineno`: 32 bits
    CodeFirstLine:        [40   40   72   68   68   68] "code_object.firstlineno";
    /// `PyCodeObject.co_varnames`; `.co_localsplusnames`
    CodeLocals:           [72   72   96   96   96   96] "code_object.localsplusnames";
    /// `PyCodeObject.co_cellvars`
    CodeCells:            [88   88   -    -    -    -];
    /// `PyObject.ob_type`
    ObType:               [8    8    8    8    8    8] "pyobject.ob_type";
    /// `PyVarObject.ob_size`
    ObSize:               [16   16   16   16   16   16];
    /// `PyTypeObject.tp_name`
    TypeName:             [24   24   24   24   24   24] "type_object.tp_name";
    /// `PyTypeObject.tp_basicsize`
    TypeBasicSize:        [32   32   32   32   32   32];
    /// `PyTypeObject.tp_itemsize`
    TypeItemSize:         [40   40   40   40   40   40];
    /// `PyTypeObject.tp_flags`
    TypeFlags:            [168  168  168  168  168  168] "type_object.tp_flags";
    /// `PyTypeObject.tp_dict`
    TypeDict:             [264  264  264  264  264  264];
    /// `PyTypeObject.tp_dictoffset`
    TypeDictOffset:       [288  288  288  288  288  288];
    /// `PyTypeObject.tp_mro`
    TypeMro:              [344  344  344  344  344  344];
    /// `PyHeapTypeObject.ht_cached_keys`
    TypeCachedKeys:       [-    -    872  880  880  880];
    /// `PyDictObject.ma_used`
    DictUsed:             [16   16   16   16   16   16];
    /// `PyDictObject.ma_keys`
    DictKeys:             [32   32   32   32   32   32] "dict_object.ma_keys";
    /// `PyDictObject.ma_values`
    DictValues:           [40   40   40   40   40   40] "dict_object.ma_values";
    /// `PyDictKeysObject.dk_size`
    KeysSize:             [8    8    -    -    -    -];
    /// `PyDictKeysObject.dk_log2_index_bytes`
    KeysIndexBytes:       [-    -    9    9    9    9];
    /// `PyDictKeysObject.dk_kind`
    KeysKind:             [-    -    10   10   10   10];
    /// `PyDictKeysObject.dk_nentries`
    KeysEntries:          [32   32   24   24   24   24];
    /// `PyDictKeysObject.dk_indices`
    KeysIndices:          [40   40   32   32   32   32];
    /// `PyDictValues.valid`
    ValuesValid:          [-    -    -    -    3    3];
    /// `PyDictValues.values`
    ValuesValues:         [-    -    0    0    8    8];
    /// `PyASCIIObject.length`
    StrLength:            [16   16   16   16   16   16] "unicode_object.length";
    /// `PyASCIIObject.state`
    StrState:             [32   32   32   32   32   32] "unicode_object.state";
    /// `sizeof(PyASCIIObject)`
    StrAsciiData:         [48   48   48   40   40   40] "unicode_object.asciiobject_size";
    /// `sizeof(PyCompactUnicodeObject)`
    StrCompactData:       [72   72   72   56   56   56];
    /// `PyUnicodeObject.data.any`
    StrAny:               [72   72   72   56   56   56];
    /// `PyBytesObject.ob_sval`
    BytesData:            [32   32   32   32   32   32] "bytes_object.ob_sval";
    /// `PyFloatObject.ob_fval`
    FloatValue:           [16   16   16   16   16   16] "float_object.ob_fval";
    /// `PyVarObject.ob_size` of an int; `_PyLongValue.lv_tag`
    IntTag:               [16   16   16   16   16   16] "long_object.lv_tag";
    /// `ob_digit`
    IntDigits:            [24   24   24   24   24   24] "long_object.ob_digit";
    /// `PyListObject.ob_item`
    ListItems:            [24   24   24   24   24   24] "list_object.ob_item";
    /// `PyTupleObject.ob_item`
    TupleItems:           [24   24   24   24   24   32] "tuple_object.ob_item";
    /// `PySetObject.used`
    SetUsed:              [24   24   24   24   24   24] "set_object.used";
    /// `PySetObject.mask`
    SetMask:              [32   32   32   32   32   32] "set_object.mask";
    /// `PySetObject.table`
    SetTable:             [40   40   40   40   40   40] "set_object.table";
    /// `dequeobject.leftblock`
    DequeLeft:            [24   24   24   24   24   24];
    /// `dequeobject.leftindex`
    DequeLeftIndex:       [40   40   40   40   40   40];
    /// `dequeobject.rightindex`
    DequeRightIndex:      [48   48   48   48   48   48];
    /// `block.data`
    BlockData:            [8    8    8    8    8    8];
    /// `block.rightlink`
    BlockRight:           [520  520  520  520  520  520];
    /// `arrayobject.ob_item`
    ArrayItems:           [24   24   24   24   24   24];
    /// `arrayobject.ob_descr`
    ArrayDescr:           [40   40   40   40   40   40];
    /// `PyMemberDescrObject.d_member`
    MemberDef:            [40   40   40   40   40   40];
    /// `PyMemberDef.type`
    MemberType:           [8    8    8    8    8    8];
    /// `PyMemberDef.offset`
    MemberOffset:         [16   16   16   16   16   16];
    /// `PyCellObject.ob_ref`
    CellRef:              [16   16   16   16   16   16];
}
