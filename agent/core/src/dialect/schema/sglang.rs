//! Field orders of SGLang's messages in msgpack (`SGLANG_USE_PICKLE_IPC=0`, 0.5.15 on): arrays that begin with the
//! class's name. In pickles every field has its name, so that no order matters there.

use super::python::Classes;
use super::{Schema, SchemaError};

mod table;

/// The file of SGLang's package that holds the message classes.
pub const MESSAGES: &str = "srt/managers/io_struct.py";

/// The file that holds `SamplingParams`.
pub const SAMPLING: &str = "srt/sampling/sampling_params.py";

/// The classes of which something is read.
pub const CLASSES: [&str; 11] = [
    "TokenizedGenerateReqInput",
    "TokenizedEmbeddingReqInput",
    "BatchTokenizedGenerateReqInput",
    "BatchTokenizedEmbeddingReqInput",
    "BatchTokenIDOutput",
    "BatchStrOutput",
    "BatchEmbeddingOutput",
    "AbortReq",
    "HealthCheckOutput",
    "PickleWrapper",
    SAMPLING_PARAMS,
];

/// The class of sampling parameters: the one whose array does not begin with its name.
pub const SAMPLING_PARAMS: &str = "SamplingParams";

/// Reads the field orders from the texts of [`MESSAGES`] and [`SAMPLING`].
///
/// # Errors
/// [`SchemaError::NoMessages`] when the class every version has is not there.
pub fn read(messages: &str, sampling: &str) -> Result<Schema, SchemaError> {
    let (messages, sampling) = (Classes::read(messages), Classes::read(sampling));
    let fields = |class: &str| {
        let classes = if class == SAMPLING_PARAMS { &sampling } else { &messages };
        classes.fields(class).into_iter().map(String::from).collect::<Vec<_>>()
    };
    let classes = CLASSES.map(|class| (class.to_owned(), fields(class)));
    let classes: Vec<_> = classes.into_iter().filter(|(_, fields)| !fields.is_empty()).collect();
    if classes.iter().any(|(class, _)| class == CLASSES[0]) {
        Ok(Schema { classes, ..Schema::default() })
    } else {
        Err(SchemaError::NoMessages(CLASSES[0]))
    }
}

/// The field orders of a version (`0.5.23`, `0.5.15.post1`), or of the nearest lower one that is known; the oldest
/// known one's for those before it, which have no such messages.
#[must_use]
pub fn for_version(version: &str) -> Schema {
    let version = numbers(version).unwrap_or([u32::MAX; 3]);
    let fields = |class: &str, rows: &[table::Row]| {
        let row = rows.iter().rev().find(|(since, _)| *since <= version).or(rows.first());
        let fields = row.map(|(_, fields)| fields.split_whitespace().map(String::from).collect());
        (class.to_owned(), fields.unwrap_or_default())
    };
    let classes = table::CLASSES.iter().map(|(class, rows)| fields(class, rows)).collect();
    Schema { classes, ..Schema::default() }
}

/// The three numbers in front of a version; text after a number is passed over.
fn numbers(version: &str) -> Option<[u32; 3]> {
    let mut parts = version.trim_start_matches('v').split('.').map(|part| {
        let digits = part.find(|c: char| !c.is_ascii_digit()).unwrap_or(part.len());
        part.get(..digits)?.parse().ok()
    });
    Some([parts.next()??, parts.next()??, parts.next().flatten().unwrap_or(0)])
}
