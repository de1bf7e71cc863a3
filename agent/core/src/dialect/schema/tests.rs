use super::*;

/// The shape of the real file, with everything that may mislead a reader.
const SOURCE_TEXT: &str = r#"
# class EngineCoreRequest: in a comment
import enum
"""class EngineCoreOutput(msgspec.Struct): in a docstring
    request_id: str
"""

FINISH_REASON_STRINGS = ("stop", "length",
                         "abort")

class FinishReason(enum.IntEnum):
    """Reason a request finished: stop, length.

    stop: a stop string was emitted
    """

    STOP = 0
    LENGTH = 1
    REPETITION = enum.auto()

    def __str__(self):
        return FINISH_REASON_STRINGS[self.value]

class _Base(
    msgspec.Struct,
    array_like=True,  # type: ignore[call-arg]
):
    request_id: str

class EngineCoreRequest(
    _Base,
    array_like=True,  # type: ignore[call-arg]
    omit_defaults=True,
    gc=False):  # type: ignore[call-arg]

    # Comment: with a colon
    prompt_token_ids: list[int] | None
    mm_features: Optional[
        list[dict[str, int]]  # name: value
    ] = None
    kind: ClassVar[str] = "request"
    greeting: str = "a: b # no comment"
    request_id: str  # again: keeps its place
    if sys.version_info >= (3, 10):
        arrival_time: float = 0.0
    else:
        arrival_time: "float" = 0.0

    @property
    def params(self) -> "SamplingParams | PoolingParams":
        local: int = 0
        if self.x:
            other: int = 1
        return local

    abort_immediately: bool = False
    long_default: int = 1 + \
        2

class EngineCoreOutput(msgspec.Struct, Generic[T]):
	request_id: str
	new_token_ids: list[int]
class EngineCoreOutputs(msgspec.Struct): # comment
    engine_index: int = 0

    outputs: list[EngineCoreOutput] = []
    def __post_init__(self):
        if self.timestamp == 0.0:
            self.timestamp = time.monotonic()

    async def later(self): x: int = 0

    timestamp: float = 0.0

class EngineCoreRequestType(enum.Enum):
    """Request types."""
    ADD = b"\x00"
    ABORT = b'\x01'
    # Sentinel
    WAKEUP = b"\x05"

class EngineCoreEventType(enum.IntEnum):
    QUEUED = 1
    SCHEDULED = 2
    PREEMPTED = 0x3
"#;

fn names(fields: &[&str]) -> Vec<String> {
    fields.iter().map(|field| (*field).to_owned()).collect()
}

#[test]
fn field_orders_are_read_from_class_bodies() {
    let schema = Schema::read(SOURCE_TEXT).unwrap();
    let request = [
        "request_id",
        "prompt_token_ids",
        "mm_features",
        "greeting",
        "arrival_time",
        "abort_immediately",
        "long_default",
    ];
    assert_eq!(schema.request, names(&request));
    assert_eq!(schema.output, names(&["request_id", "new_token_ids"]));
    assert_eq!(schema.outputs, names(&["engine_index", "outputs", "timestamp"]));
}

#[test]
fn enums_are_read_by_number() {
    let schema = Schema::read(SOURCE_TEXT).unwrap();
    let named = |members: &[(&str, u32)]| -> Vec<(String, u32)> {
        members.iter().map(|(name, number)| ((*name).to_owned(), *number)).collect()
    };
    assert_eq!(schema.finish_reasons, named(&[("STOP", 0), ("LENGTH", 1), ("REPETITION", 2)]));
    assert_eq!(schema.event_types, named(&[("QUEUED", 1), ("SCHEDULED", 2), ("PREEMPTED", 3)]));
    assert_eq!(schema.request_types, named(&[("ADD", 0), ("ABORT", 1), ("WAKEUP", 5)]));
}

#[test]
fn a_source_without_the_classes_is_refused_by_name() {
    assert_eq!(Schema::read(""), Err(SchemaError::NoClass("EngineCoreRequest")));
    let half = "class EngineCoreRequest:\n    a: int\n";
    assert_eq!(Schema::read(half), Err(SchemaError::NoClass("EngineCoreOutput")));
}

#[test]
fn bases_in_a_circle_end() {
    let text = "class EngineCoreRequest(B):\n a: int\nclass B(EngineCoreRequest):\n b: int\n";
    assert_eq!(Schema::read(text), Err(SchemaError::NoClass("EngineCoreOutput")));
}

#[test]
fn the_table_has_the_lengths_seen_on_the_wire() {
    // Version, EngineCoreRequest, EngineCoreOutput, EngineCoreOutputs.
    let seen = [
        ("0.8.5", 10, 7, 8),
        ("0.9.2.post2", 15, 10, 8),
        ("0.10.2", 14, 11, 8),
        ("0.11.2", 15, 12, 8),
        ("0.12.0", 15, 12, 8),
        ("0.14.1", 16, 13, 8),
        ("0.16.0", 18, 14, 8),
        ("0.18.1", 17, 14, 8),
        ("0.20.2", 18, 13, 8),
        ("0.22.1", 20, 13, 8),
        ("0.25.1", 20, 13, 8),
        ("0.28.0", 21, 16, 8),
        ("0.30.0", 21, 17, 8),
        ("0.32.0+cpu", 22, 18, 9),
        ("0.33.0", 22, 19, 9),
    ];
    for (version, request, output, outputs) in seen {
        let schema = Schema::for_version(version).unwrap();
        let lengths = (schema.request.len(), schema.output.len(), schema.outputs.len());
        assert_eq!(lengths, (request, output, outputs), "{version}");
    }
}

#[test]
fn an_unknown_version_takes_the_nearest_lower_one() {
    assert_eq!(Schema::for_version("0.15.1"), Schema::for_version("0.14.1"));
    assert_eq!(Schema::for_version("0.99"), Schema::for_version("0.33.0"));
    assert_eq!(Schema::for_version("v1.2"), Schema::for_version("0.33.0"));
    assert_eq!(Schema::for_version("0.7.3"), None);
    assert_eq!(Schema::for_version("unknown"), None);
}

proptest::proptest! {
    #[test]
    fn hostile_sources_never_panic(text in "[a-z:= \n\t#'\"\\\\()\\[\\]é]{0,80}") {
        let _ = Schema::read(&text);
        let _ = Schema::read(&format!("class EngineCoreRequest({text}):\n  {text}"));
    }
}

/// The shape of SGLang's file, with bases in another order than their use.
const SGLANG: &str = r#"
class BaseReq(msgspec.Struct, tag=True, kw_only=True, array_like=True):
    """Base for single-request IPC payloads."""

    rid: Optional[str] = None
    http_worker_ipc: Optional[str] = None

    @classmethod
    def __get_pydantic_core_schema__(cls, source, handler):
        cached: int = 1
        return cached

class TokenizedGenerateReqInput(BaseReq, kw_only=True):
    # The input text
    input_text: Optional[Union[str, List[Union[str, List[str]]]]]
    stop: Optional[Union[str, List[str]]] = (
        None
    )
    rid: str  # again: it keeps its place

class Unrelated(BaseReq, kw_only=True):
    other: int
"#;

#[test]
fn sglangs_classes_have_their_bases_fields_first() {
    let schema = sglang::read(SGLANG, "class SamplingParams(msgspec.Struct):\n    n: int = 1\n").unwrap();
    let classes: Vec<(&str, Vec<&str>)> = schema
        .classes
        .iter()
        .map(|(class, fields)| (class.as_str(), fields.iter().map(String::as_str).collect()))
        .collect();
    let request = vec!["rid", "http_worker_ipc", "input_text", "stop"];
    assert_eq!(classes, [("TokenizedGenerateReqInput", request), ("SamplingParams", vec!["n"])]);
    assert_eq!(sglang::read("", ""), Err(SchemaError::NoMessages("TokenizedGenerateReqInput")));
}

#[test]
fn sglang_versions_between_known_ones_are_those_before() {
    let outputs = |version: &str| {
        let classes = sglang::for_version(version).classes;
        classes.into_iter().find(|(class, _)| class == "BatchTokenIDOutput").unwrap().1
    };
    assert_eq!(outputs("0.5.16.post1"), outputs("0.5.16"));
    assert_ne!(outputs("0.5.16"), outputs("0.5.23"));
    // Newer ones and those that cannot be told are read as the newest, older ones as the oldest.
    assert_eq!(outputs("0.6.0"), outputs("0.5.23"));
    assert_eq!(outputs("main"), outputs("0.5.23"));
    assert_eq!(outputs("0.5.9"), outputs("0.5.15"));
}
