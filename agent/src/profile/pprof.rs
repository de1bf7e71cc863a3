//! A profile as pprof's message: the fields that are used here, of `proto/profile.proto` of github.com/google/pprof.

use std::collections::HashMap;

use enginetap_core::profile::{Place, Profile};
use prost::Message;

/// The message.
#[derive(Clone, PartialEq, Message)]
pub struct Pprof {
    /// What the values of a sample are.
    #[prost(message, repeated, tag = "1")]
    pub sample_type: Vec<ValueType>,
    /// The samples.
    #[prost(message, repeated, tag = "2")]
    pub sample: Vec<Sample>,
    /// Places, by id.
    #[prost(message, repeated, tag = "4")]
    pub location: Vec<Location>,
    /// Functions, by id.
    #[prost(message, repeated, tag = "5")]
    pub function: Vec<Function>,
    /// All texts; the first is empty.
    #[prost(string, repeated, tag = "6")]
    pub string_table: Vec<String>,
    /// What a period is of.
    #[prost(message, optional, tag = "11")]
    pub period_type: Option<ValueType>,
    /// The time between two samples.
    #[prost(int64, tag = "12")]
    pub period: i64,
}

/// A kind of value and its unit, both texts of the table.
#[derive(Clone, Copy, PartialEq, Message)]
pub struct ValueType {
    /// The kind.
    #[prost(int64, tag = "1")]
    pub kind: i64,
    /// The unit.
    #[prost(int64, tag = "2")]
    pub unit: i64,
}

/// A stack and its values.
#[derive(Clone, PartialEq, Message)]
pub struct Sample {
    /// Ids of places, the innermost first.
    #[prost(uint64, repeated, tag = "1")]
    pub location_id: Vec<u64>,
    /// As `sample_type` says.
    #[prost(int64, repeated, tag = "2")]
    pub value: Vec<i64>,
}

/// A place.
#[derive(Clone, PartialEq, Message)]
pub struct Location {
    /// Its id, from 1.
    #[prost(uint64, tag = "1")]
    pub id: u64,
    /// The function it is in.
    #[prost(message, repeated, tag = "4")]
    pub line: Vec<Line>,
}

/// A line of a function.
#[derive(Clone, Copy, PartialEq, Message)]
pub struct Line {
    /// The function's id.
    #[prost(uint64, tag = "1")]
    pub function_id: u64,
    /// The line.
    #[prost(int64, tag = "2")]
    pub line: i64,
}

/// A function.
#[derive(Clone, Copy, PartialEq, Message)]
pub struct Function {
    /// Its id, from 1.
    #[prost(uint64, tag = "1")]
    pub id: u64,
    /// Its name, a text of the table.
    #[prost(int64, tag = "2")]
    pub name: i64,
    /// Its file, a text of the table.
    #[prost(int64, tag = "4")]
    pub filename: i64,
    /// The line on which it begins.
    #[prost(int64, tag = "5")]
    pub start_line: i64,
}

/// The bytes of a profile as a message.
#[must_use]
pub fn bytes(profile: &Profile) -> Vec<u8> {
    message(profile).encode_to_vec()
}

/// A profile as a message: samples, and nanoseconds of CPU time.
#[must_use]
pub fn message(profile: &Profile) -> Pprof {
    let mut builder = Builder::default();
    builder.text("");
    let period = 1_000_000_000 / i64::from(profile.hertz.max(1));
    let count = builder.value_type("samples", "count");
    let time = builder.value_type("cpu", "nanoseconds");
    let mut message =
        Pprof { sample_type: vec![count, time], period_type: Some(time), period, ..Pprof::default() };
    for (process, stack, samples) in profile.stacks() {
        let mut location_id: Vec<u64> = stack.iter().rev().map(|place| builder.place(place)).collect();
        location_id.push(builder.location(&process.to_string(), "", 0));
        let samples = i64::try_from(samples).unwrap_or(i64::MAX);
        message.sample.push(Sample { location_id, value: vec![samples, samples.saturating_mul(period)] });
    }
    Pprof { location: builder.locations, function: builder.functions, string_table: builder.texts, ..message }
}

#[derive(Default)]
struct Builder {
    texts: Vec<String>,
    text_ids: HashMap<String, i64>,
    ids: HashMap<(i64, i64, i64), u64>,
    locations: Vec<Location>,
    functions: Vec<Function>,
}

impl Builder {
    fn text(&mut self, text: &str) -> i64 {
        if let Some(id) = self.text_ids.get(text) {
            return *id;
        }
        let id = i64::try_from(self.texts.len()).unwrap_or(0);
        self.texts.push(text.to_owned());
        self.text_ids.insert(text.to_owned(), id);
        id
    }

    fn value_type(&mut self, kind: &str, unit: &str) -> ValueType {
        ValueType { kind: self.text(kind), unit: self.text(unit) }
    }

    fn place(&mut self, place: &Place) -> u64 {
        match place {
            Place::Function(function) => self.location(&function.name, &function.file, function.line),
            Place::Native(_) | Place::Interpreter | Place::Unread | Place::Beyond => {
                self.location(&place.to_string(), "", 0)
            }
        }
    }

    /// One place a function: lines within it are not sampled.
    fn location(&mut self, name: &str, file: &str, line: u32) -> u64 {
        let (name, filename, line) = (self.text(name), self.text(file), i64::from(line));
        let next = u64::try_from(self.functions.len() + 1).unwrap_or(u64::MAX);
        let id = *self.ids.entry((name, filename, line)).or_insert(next);
        if id == next {
            self.functions.push(Function { id, name, filename, start_line: line });
            self.locations.push(Location { id, line: vec![Line { function_id: id, line }] });
        }
        id
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use enginetap_core::heap::stacks;
    use enginetap_core::ids::Pid;
    use enginetap_core::profile::Process;

    use super::*;

    #[test]
    fn a_message_read_again_names_each_stack_from_the_inside_with_its_time() {
        let function = |name: &str, line| {
            Place::Function(Arc::new(stacks::Function { name: name.into(), file: "m.py".into(), line }))
        };
        let process = Arc::new(Process { pid: Pid(7), title: "engine core".to_owned() });
        let mut profile = Profile::new(100);
        profile.add(&process, vec![function("step", 3), function("forward", 9)]);
        profile.add(&process, vec![function("step", 3), function("forward", 9)]);
        let read = Pprof::decode(bytes(&profile).as_slice()).unwrap();
        let text = |id: i64| read.string_table[usize::try_from(id).unwrap()].as_str();
        let [sample] = read.sample.as_slice() else { panic!("{read:?}") };
        let names: Vec<&str> = sample
            .location_id
            .iter()
            .map(|id| {
                let location = read.location.iter().find(|location| location.id == *id).unwrap();
                let function = read.function.iter().find(|it| it.id == location.line[0].function_id).unwrap();
                text(function.name)
            })
            .collect();
        assert_eq!(names, ["forward", "step", "engine core (pid 7)"]);
        assert_eq!(sample.value, [2, 20_000_000]);
        assert_eq!((text(0), text(read.sample_type[1].unit)), ("", "nanoseconds"));
    }
}
