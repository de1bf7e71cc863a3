use std::collections::{HashMap, HashSet};

use proptest::prelude::*;

use super::store::Made;
use super::*;

/// Pickles of all protocols, and what CPython makes of them: see `tests/oracle/pickle_values.py`.
const ORACLE: &str = include_str!("oracle.txt");

fn unhex(text: &str) -> Vec<u8> {
    let pair = |i: usize| u8::from_str_radix(&text[2 * i..2 * i + 2], 16).unwrap();
    (0..text.len() / 2).map(pair).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn oracle() -> impl Iterator<Item = (Vec<u8>, &'static str)> {
    ORACLE.lines().map(|line| {
        let (bytes, dump) = line.split_once('\t').unwrap();
        (unhex(bytes), dump)
    })
}

/// Values as one line: what is shared or a circle is named by a number.
struct Dump<'r> {
    pickle: Pickle<'r>,
    seen: HashMap<(u8, u32), usize>,
    left: usize,
}

/// The dump of the pickle in front, and how it ended.
fn dump(bytes: &[u8]) -> (String, End) {
    let mut reader = Reader::default();
    let pickle = reader.read(bytes);
    let mut dump = Dump { pickle, seen: HashMap::new(), left: 100_000 };
    (pickle.root().map_or_else(String::new, |root| dump.value(root)), pickle.end())
}

impl Dump<'_> {
    fn value(&mut self, value: Value) -> String {
        self.left -= 1;
        match value {
            Value::None => "N".to_owned(),
            Value::Bool(true) => "T".to_owned(),
            Value::Bool(false) => "F".to_owned(),
            Value::Int(number) => format!("i{number}"),
            Value::Long(_) => format!("l{}", hex(self.pickle.bytes(value).unwrap())),
            Value::Digits(_) => format!("d{}", String::from_utf8_lossy(self.pickle.bytes(value).unwrap())),
            Value::Float(number) => format!("f{}", hex(&number.to_be_bytes())),
            Value::Text(_) | Value::Escaped(_) | Value::Quoted(_) => {
                format!("s{}", hex(&self.pickle.text(value).unwrap()))
            }
            Value::Bytes(_) => format!("b{}", hex(self.pickle.bytes(value).unwrap())),
            Value::ByteArray(_) => format!("a{}", hex(self.pickle.bytes(value).unwrap())),
            Value::Buffer(number) => format!("B{number}"),
            Value::Tuple(_) => format!("({})", self.items(self.pickle.items(value).unwrap())),
            Value::FrozenSet(_) => format!("z<{}>", self.sorted(value)),
            Value::Global(_) => {
                let Class { module, name } = self.pickle.class(value).unwrap();
                format!("g{}:{}", String::from_utf8_lossy(&module), String::from_utf8_lossy(&name))
            }
            Value::Extension(code) => format!("x{code}"),
            Value::List(number) => self.shared((0, number), value),
            Value::Dict(number) => self.shared((1, number), value),
            Value::Set(number) => self.shared((2, number), value),
            Value::Object(number) => self.shared((3, number), value),
        }
    }

    fn shared(&mut self, key: (u8, u32), value: Value) -> String {
        if let Some(number) = self.seen.get(&key) {
            return format!("^{number}");
        }
        let number = self.seen.len();
        self.seen.insert(key, number);
        let text = if let Value::List(_) = value {
            format!("[{}]", self.items(self.pickle.items(value).unwrap()))
        } else if let Value::Dict(_) = value {
            format!("{{{}}}", self.pairs(self.pickle.pairs(value).unwrap()))
        } else if let Value::Set(_) = value {
            format!("<{}>", self.sorted(value))
        } else {
            self.object(self.pickle.object(value).unwrap())
        };
        format!("@{number}{text}")
    }

    fn object(&mut self, object: Object<'_>) -> String {
        let made = match object.made {
            Made::Called => "call",
            Made::New => "new",
            Made::Persistent => return format!("!id({})", self.value(object.args)),
            Made::Built => "built",
        };
        let (callee, args) = (self.value(object.callee), self.value(object.args));
        let kwargs = self.value(object.kwargs);
        let state = object.state.map_or_else(|| "-".to_owned(), |state| self.value(state));
        let (list, pairs) = (self.items(object.list), self.pairs(object.pairs));
        format!("!{made}({callee},{args},{kwargs},{state},[{list}],{{{pairs}}})")
    }

    fn items(&mut self, items: Items<'_>) -> String {
        let len = items.len();
        let items: Vec<String> = items.map(|item| self.value(item)).collect();
        assert_eq!(items.len(), len);
        items.join(",")
    }

    fn sorted(&mut self, value: Value) -> String {
        let mut items: Vec<String> = self.pickle.items(value).unwrap().map(|item| self.value(item)).collect();
        items.sort();
        items.join(",")
    }

    fn pairs(&mut self, pairs: Pairs<'_>) -> String {
        let pairs: Vec<String> =
            pairs.map(|(key, item)| format!("{}={}", self.value(key), self.value(item))).collect();
        pairs.join(",")
    }
}

#[test]
fn values_are_those_that_cpython_reads() {
    let mut count = 0;
    for (bytes, meant) in oracle() {
        assert_eq!(dump(&bytes), (meant.to_owned(), End::Whole(bytes.len())), "{}", hex(&bytes));
        count += 1;
    }
    assert!(count > 600, "{count} pickles");
}

/// The numbers, texts and names in a dump.
fn leaves(dump: &str) -> HashSet<&str> {
    let is_leaf = |part: &&str| !part.is_empty() && !part.starts_with(['@', '^', 'N', '-']);
    dump.split(|c| "()[]{}<>,=".contains(c)).filter(is_leaf).collect()
}

#[test]
fn a_cut_pickle_is_said_to_be_cut_and_makes_nothing_up() {
    // These two throw values away later on.
    let drops =
        |bytes: &[u8]| bytes.starts_with(b"\x80\x02]K\x01a2") || bytes.starts_with(b"\x80\x02K\x01K\x020");
    for (bytes, whole) in oracle().filter(|(bytes, _)| bytes.len() < 1500 && !drops(bytes)) {
        let whole = leaves(whole);
        for cut in 0..bytes.len() {
            let (seen, end) = dump(&bytes[..cut]);
            assert_eq!(end, End::Cut, "{cut} of {}", hex(&bytes));
            // A class's names are texts until they are put together.
            let made_up = |leaf: &&str| !whole.contains(leaf) && !leaf.starts_with('s');
            assert_eq!(leaves(&seen).into_iter().find(made_up), None, "{}", hex(&bytes[..cut]));
        }
    }
}

/// What a list of rids and counts became, cut at each place: pairs of field and dump of its value.
fn fields(bytes: &[u8]) -> Vec<(String, String)> {
    let mut reader = Reader::default();
    let pickle = reader.read(bytes);
    let Some(instance) = pickle.root().and_then(|root| pickle.instance(root)) else { return Vec::new() };
    let mut dump = Dump { pickle, seen: HashMap::new(), left: 100_000 };
    instance.fields.map(|(key, value)| (pickle.string(key).unwrap(), dump.value(value))).collect()
}

/// `Output(rids=["ab"], counts=[3, 4], last=None)` as a dataclass of protocol 4.
const DATACLASS: &[u8] =
    b"\x80\x04\x95\x50\0\0\0\0\0\0\0\x8c\x01m\x94\x8c\x06Output\x94\x93\x94)\x81\x94}\x94\
    (\x8c\x04rids\x94]\x94\x8c\x02ab\x94a\x8c\x06counts\x94]\x94(K\x03K\x04e\x8c\x04last\x94Nub.";

/// The same as `msgspec._utils.rebuild(Output, {..})` of protocol 5.
const STRUCT: &[u8] = b"\x80\x05\x95\x50\0\0\0\0\0\0\0\x8c\x0emsgspec._utils\x94\x8c\x07rebuild\x94\x93\x94\
    \x8c\x01m\x94\x8c\x06Output\x94\x93\x94}\x94\
    (\x8c\x04rids\x94]\x94\x8c\x02ab\x94a\x8c\x06counts\x94]\x94(K\x03K\x04e\x8c\x04last\x94Nu\x86\x94R\x94.";

#[test]
fn an_instance_has_its_class_and_its_fields() {
    for bytes in [DATACLASS, STRUCT] {
        let mut reader = Reader::default();
        let pickle = reader.read(bytes);
        let instance = pickle.instance(pickle.root().unwrap()).unwrap();
        assert_eq!(
            (instance.class.module.as_ref(), instance.class.name.as_ref()),
            (&b"m"[..], &b"Output"[..])
        );
        let names: Vec<_> = fields(bytes).into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["rids", "counts", "last"]);
        assert_eq!(fields(bytes)[1].1, "@1[i3,i4]");
    }
}

#[test]
fn a_cut_instance_has_the_fields_before_the_cut() {
    for bytes in [DATACLASS, STRUCT] {
        let whole = fields(bytes);
        let mut most = 0;
        for cut in 0..bytes.len() {
            let seen = fields(&bytes[..cut]);
            assert!(seen.len() >= most, "fields are lost at {cut}");
            most = seen.len();
            for (at, (name, value)) in seen.iter().enumerate() {
                assert_eq!(*name, whole[at].0);
                let last = at + 1 == seen.len();
                assert!(
                    *value == whole[at].1 || (last && value.len() < whole[at].1.len()),
                    "{value} at {cut}"
                );
            }
        }
        assert_eq!(most, 3);
    }
}

#[test]
fn a_list_that_is_cut_keeps_its_first_items() {
    let end = DATACLASS.windows(2).position(|pair| pair == b"K\x04").unwrap();
    assert_eq!(fields(&DATACLASS[..end]).last().unwrap(), &("counts".to_owned(), "@1[i3]".to_owned()));
}

#[test]
fn an_array_gives_its_numbers() {
    let numbers = |bytes: &[u8]| {
        let mut reader = Reader::default();
        let pickle = reader.read(bytes);
        let integers = pickle.integers(pickle.root().unwrap()).unwrap();
        integers.iter().collect::<Vec<i64>>()
    };
    let array = |code: u8, data: &[u8]| {
        let mut bytes = b"\x80\x04carray\n_array_reconstructor\n(carray\narray\nX\x01\0\0\0qK".to_vec();
        bytes.extend([code, b'C', u8::try_from(data.len()).unwrap()]);
        bytes.extend(data);
        bytes.extend(b"tR.");
        numbers(&bytes)
    };
    assert_eq!(array(12, &[1, 0, 0, 0, 0, 0, 0, 0, 254, 255, 255, 255, 255, 255, 255, 255]), [1, -2]);
    assert_eq!(array(13, &[0, 0, 0, 0, 0, 0, 1, 0]), [256]);
    assert_eq!(array(8, &[1, 0, 0, 0, 255, 255, 255, 255]), [1, -1]);
    assert_eq!(array(6, &[255, 255, 255, 255]), [0xffff_ffff]);
    assert_eq!(array(5, &[0xff, 0xfe]), [-2]);
    assert_eq!(array(0, &[1, 200]), [1, 200]);
    assert_eq!(array(1, &[1, 200, 3]), [1, -56, 3]);
    // A last number that did not come whole is none.
    assert_eq!(array(4, &[1, 0, 2]), [1]);
    assert_eq!(numbers(b"\x80\x02carray\narray\nU\x01q](K\x05K\x06e\x86R."), [5, 6]);
    assert_eq!(numbers(b"](K\x05NK\x06e."), [5, 6]);
}

#[test]
fn real_arrays_of_every_whole_type_are_read() {
    // `array.array(t, [1, 2, 3])` of CPython 3.11 on x86-64 for t in "bBhHiIlLqQ": formats 1, 0, 4, 2, 8, 6, 12, 10.
    for (code, width) in [(1, 1), (0, 1), (4, 2), (2, 2), (8, 4), (6, 4), (12, 8), (10, 8)] {
        let format = array::Format::of_code(code).unwrap();
        let mut bytes = Vec::new();
        for number in 1..=3_u8 {
            bytes.push(number);
            bytes.extend(std::iter::repeat_n(0, width - 1));
        }
        let integers = Integers::Packed { bytes: &bytes, format };
        assert_eq!(integers.iter().collect::<Vec<_>>(), [1, 2, 3], "format {code}");
    }
    assert_eq!(array::Format::of_code(14), None);
    assert_eq!(array::Format::of_code(-1), None);
}

#[test]
fn nesting_without_end_neither_recurses_nor_hangs() {
    let lists = [b"]".repeat(100_000), b"a".repeat(99_999), b".".to_vec()].concat();
    let mut reader = Reader::default();
    let pickle = reader.read(&lists);
    assert_eq!(pickle.end(), End::Whole(200_000));
    let mut depth = 0;
    let mut value = pickle.root();
    while let Some(inner) = value {
        depth += 1;
        value = pickle.items(inner).and_then(|mut items| items.next());
    }
    assert_eq!(depth, 100_000);
    assert_eq!(Reader::default().read(&b"]".repeat(100_000)).end(), End::Cut);
    assert_eq!(Reader::default().read(&b"(".repeat(100_000)).end(), End::Limit);
    assert_eq!(Reader::default().read(&b"](".repeat(60_000)).end(), End::Cut);
}

#[test]
fn a_value_shared_over_and_over_is_kept_once() {
    // Each list holds the one before twice: 2^60 values for who would copy.
    let mut bytes = b"\x80\x04]\x94".to_vec();
    for index in 0..60_u8 {
        bytes.extend([b']', 0x94, b'(', b'h', index, b'h', index, b'e']);
    }
    bytes.push(b'.');
    let (text, end) = dump(&bytes);
    assert_eq!(end, End::Whole(bytes.len()));
    assert!(text.len() < 1000);
}

#[test]
fn claims_that_the_bytes_do_not_keep_cost_nothing() {
    for claim in [
        &b"\x80\x04\x8e\xff\xff\xff\xff\xff\xff\xff\xffab"[..],
        b"X\xff\xff\xff\xffab",
        b"\x96\0\0\0\0\0\0\0\x80ab",
        b"\x8b\xff\xff\xff\x7f\x01",
        b"\x95\xff\xff\xff\xff\xff\xff\xff\xff",
    ] {
        let mut reader = Reader::default();
        assert_eq!((reader.read(claim).end(), reader.read(claim).root()), (End::Cut, None));
    }
    let mut reader = Reader::default();
    assert_eq!(reader.read(b"Nr\xff\xff\xff\xff.").end(), End::Limit);
    assert!(reader.memo.is_empty());
}

#[test]
fn bytes_that_are_no_pickle_are_refused_where_they_stand() {
    for (bytes, at) in [
        (&b"\xff"[..], 0),
        (b"\x80\x06N.", 0),
        (b"N\x00", 1),
        (b"h\x05.", 2),
        (b"K\x01a.", 3),
        (b"Ix\n.", 3),
        (b"Sabc\n.", 5),
        (b"}(K\x01u.", 5),
        (b"N(K\x01e.", 5),
        (b"K\x01K\x02\x93.", 5),
    ] {
        assert_eq!(Reader::default().read(bytes).end(), End::Invalid(at), "{bytes:?}");
    }
}

#[test]
fn opcodes_that_hardly_anybody_writes_are_read() {
    assert_eq!(dump(b"\x80\x02\x82\x05\x83\x01\x02\x84\x01\0\0\0\x87.").0, "(x5,x513,x1)");
    assert_eq!(dump(b"(imod\nCls\n.").0, "@0!call(gmod:Cls,(),N,-,[],{})");
    assert_eq!(dump(b"cmod\nf\n}b.").0, "@0!built(gmod:f,(),N,@1{},[],{})");
    assert_eq!(dump(b"P12\n.").0, "!id(s3132)".replace("!id", "@0!id"));
    assert_eq!(dump(b"I5\np3\n0g3\n.").0, "i5");
    assert_eq!(dump(b"K\x05q\x00r\x01\0\0\0j\x01\0\0\0\x86.").0, "(i5,i5)");
}

#[test]
fn what_follows_a_pickle_is_left_alone() {
    assert_eq!(dump(b"K\x05.K\x06."), ("i5".to_owned(), End::Whole(3)));
}

#[test]
fn a_reader_forgets_the_message_before() {
    let mut reader = Reader::default();
    assert!(reader.read(DATACLASS).root().is_some());
    assert_eq!(reader.read(b"h\x00.").end(), End::Invalid(2));
    assert_eq!(reader.read(b"").root(), None);
}

#[test]
fn limits_hold() {
    let tight = |limits: Limits, bytes: &[u8]| Reader::new(limits).read(bytes).end();
    assert_eq!(tight(Limits { values: 10, ..Limits::default() }, &b"N".repeat(11)), End::Limit);
    assert_eq!(tight(Limits { bytes: 2, ..Limits::default() }, b"NNN."), End::Limit);
    assert_eq!(tight(Limits { memo: 1, ..Limits::default() }, b"N\x94\x94."), End::Limit);
    assert_eq!(tight(Limits { depth: 2, ..Limits::default() }, b"((("), End::Limit);
}

/// Opcodes with arguments, so that random ones get somewhere.
fn instructions() -> impl Strategy<Value = Vec<u8>> {
    let one = prop_oneof![
        any::<u8>().prop_map(|code| vec![code]),
        prop::sample::select(b"()]}Nabeolst1202\x81\x85\x86\x87\x88\x89\x8f\x90\x91\x92\x93\x94RQ.".to_vec())
            .prop_map(|code| vec![code]),
        (0..4_u8).prop_map(|index| vec![b'h', index]),
        (0..4_u8).prop_map(|index| vec![b'q', index]),
        prop::collection::vec(b'a'..b'f', 0..3).prop_map(|text| {
            let len = u8::try_from(text.len()).unwrap();
            [vec![0x8c, len], text].concat()
        }),
        any::<u8>().prop_map(|number| vec![b'K', number]),
    ];
    prop::collection::vec(one, 0..60).prop_map(|ops| ops.concat())
}

proptest! {
    #[test]
    fn any_bytes_end_somehow(bytes in instructions()) {
        let mut reader = Reader::default();
        let pickle = reader.read(&bytes);
        if let End::Whole(at) | End::Invalid(at) = pickle.end() {
            prop_assert!(at <= bytes.len());
        }
        // Whatever it is can be walked; circles are named.
        let mut dump = Dump { pickle, seen: HashMap::new(), left: 100_000 };
        if let Some(root) = pickle.root() {
            dump.value(root);
        }
        if let Some(integers) = pickle.root().and_then(|root| pickle.integers(root)) {
            prop_assert!(integers.iter().count() <= bytes.len());
        }
    }

    #[test]
    fn a_cut_costs_no_more_than_the_whole(bytes in instructions(), cut in 0..200_usize) {
        let cut = &bytes[..cut.min(bytes.len())];
        let mut reader = Reader::default();
        let _ = reader.read(cut);
        prop_assert!(reader.store.items.len() + reader.stack.len() <= 2 * cut.len() + 1);
    }
}
