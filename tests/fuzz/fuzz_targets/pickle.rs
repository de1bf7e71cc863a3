//! Any bytes as a pickle: they end somehow, cost no more than their length, and whatever came out can be walked.
#![no_main]

use std::collections::HashSet;

use enginetap_core::wire::pickle::{Pickle, Reader, Value};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let mut reader = Reader::default();
    let pickle = reader.read(bytes);
    let Some(root) = pickle.root() else { return };
    let mut open = vec![root];
    let mut seen: HashSet<String> = HashSet::new();
    let mut count = 0_usize;
    while let Some(value) = open.pop() {
        count += 1;
        // What is shared is looked into once.
        if seen.insert(format!("{value:?}")) {
            look(&pickle, value, &mut open);
        }
    }
    // Each byte puts at most one value somewhere; an object names a few that are there already.
    assert!(count <= 16 * bytes.len() + 16, "{count} values of {} bytes", bytes.len());
});

fn look(pickle: &Pickle<'_>, value: Value, open: &mut Vec<Value>) {
    let _ = (pickle.text(value), pickle.bytes(value), pickle.class(value));
    if let Some(instance) = pickle.instance(value) {
        let _ = instance.fields.count();
    }
    if let Some(integers) = pickle.integers(value) {
        assert!(integers.iter().count() <= integers.len());
    }
    open.extend(pickle.items(value).into_iter().flatten());
    open.extend(pickle.pairs(value).into_iter().flatten().flat_map(|(key, value)| [key, value]));
    if let Some(object) = pickle.object(value) {
        open.extend([object.callee, object.args, object.kwargs]);
        open.extend(object.state);
        open.extend(object.list);
    }
}
