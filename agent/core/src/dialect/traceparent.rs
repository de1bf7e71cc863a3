//! W3C Trace Context: the caller's place in its trace.

use crate::ids::{SpanId, TraceId};

/// The caller's context (`traceparent`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceParent {
    /// The trace.
    pub trace: TraceId,
    /// The caller's span: the parent.
    pub span: SpanId,
    /// Whether the caller records its spans.
    pub sampled: bool,
}

/// Most bytes of a `tracestate` that are passed on: the least that the specification asks for.
pub const STATE_LIMIT: usize = 512;

/// Reads a `traceparent` header: `00-<32 hex>-<16 hex>-<2 hex>`.
///
/// By the specification (level 2, 3.2): hex digits are lower case; ids of zeros and version `ff` are
/// refused; of version 00 the length must be exact; of a later version what follows a further `-` is
/// ignored. `None` means that the header is to be treated as if it had not been sent.
#[must_use]
pub fn parse(header: &str) -> Option<TraceParent> {
    let header = header.trim_matches([' ', '\t']).as_bytes();
    let version = hex(header.get(0..2)?)?;
    let rest = header.get(55..)?;
    let known = match version {
        0x00 => rest.is_empty(),
        0xff => false,
        _ => matches!(rest, [] | [b'-', ..]),
    };
    let dashes = [2, 35, 52].iter().all(|&at| header.get(at) == Some(&b'-'));
    if !known || !dashes {
        return None;
    }
    let trace = hex(header.get(3..35)?)?;
    let span = u64::try_from(hex(header.get(36..52)?)?).ok()?;
    let flags = hex(header.get(53..55)?)?;
    (trace != 0 && span != 0).then_some(TraceParent {
        trace: TraceId(trace),
        span: SpanId(span),
        sampled: flags & 1 == 1,
    })
}

/// A `tracestate` header as it may be passed on: printable ASCII, whole list members, at most
/// [`STATE_LIMIT`] bytes. Members that do not fit are left out from the end, as the specification says.
#[must_use]
pub fn state(header: &str) -> Option<String> {
    let header = header.trim_matches([' ', '\t']);
    if header.is_empty() || !header.bytes().all(|b| matches!(b, b' '..=b'~' | b'\t')) {
        return None;
    }
    if header.len() <= STATE_LIMIT {
        return Some(header.to_owned());
    }
    let within = header.get(..=STATE_LIMIT)?;
    let end = within.rfind(',')?;
    header.get(..end).filter(|kept| !kept.is_empty()).map(str::to_owned)
}

/// Lower-case hex digits, at most 32 of them.
fn hex(digits: &[u8]) -> Option<u128> {
    digits.iter().try_fold(0_u128, |value, digit| {
        let digit = match digit {
            b'0'..=b'9' => digit - b'0',
            b'a'..=b'f' => digit - b'a' + 10,
            _ => return None,
        };
        Some(value << 4 | u128::from(digit))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn the_example_of_the_specification_is_read() {
        let parent = parse(PARENT).unwrap();
        assert_eq!(parent.trace.to_string(), "4bf92f3577b34da6a3ce929d0e0e4736");
        assert_eq!(parent.span.to_string(), "00f067aa0ba902b7");
        assert!(parent.sampled);
        assert!(!parse(&PARENT.replace("-01", "-02")).unwrap().sampled);
        assert!(parse(&PARENT.replace("-01", "-ff")).unwrap().sampled);
        assert_eq!(parse(&format!(" \t{PARENT} ")), Some(parent));
    }

    #[test]
    fn a_later_version_is_read_as_far_as_it_is_known() {
        let parent = parse(PARENT);
        assert_eq!(parse(&PARENT.replace("00-4", "01-4")), parent);
        assert_eq!(parse(&format!("{}-what-comes", PARENT.replace("00-4", "cc-4"))), parent);
        assert_eq!(parse(&format!("{}.", PARENT.replace("00-4", "cc-4"))), None);
        assert_eq!(parse(&format!("{PARENT}-what-comes")), None);
        assert_eq!(parse(&PARENT.replace("00-4", "ff-4")), None);
    }

    #[test]
    fn what_the_specification_refuses_is_refused() {
        for bad in [
            String::new(),
            "00".to_owned(),
            PARENT.to_uppercase(),
            PARENT.replace('-', "_"),
            PARENT.replace("4bf92f3577b34da6a3ce929d0e0e4736", &"0".repeat(32)),
            PARENT.replace("00f067aa0ba902b7", &"0".repeat(16)),
            PARENT.replace("00f067aa0ba902b7", "00f067aa0ba902bG"),
            PARENT.replace("4bf", "4bé"),
            PARENT.replace("-01", "-1"),
            PARENT.replace("-01", "-0x"),
            "00-00000000000000000000000000000000-0000000000000000-00\u{0}".to_owned(),
        ] {
            assert_eq!(parse(&bad), None, "{bad}");
        }
    }

    #[test]
    fn a_tracestate_is_passed_on_within_its_bound() {
        assert_eq!(state(" rojo=00f0,congo=t61 ").as_deref(), Some("rojo=00f0,congo=t61"));
        assert_eq!(state(""), None);
        assert_eq!(state("a=b\u{7f}"), None);
        assert_eq!(state("a=é"), None);
        let long = vec!["k=0123456789"; 60].join(",");
        let kept = state(&long).unwrap();
        assert!(kept.len() <= STATE_LIMIT && long.starts_with(&format!("{kept},")));
        assert_eq!(state(&"x".repeat(STATE_LIMIT + 1)), None);
        assert_eq!(state(&"x".repeat(STATE_LIMIT)).map(|s| s.len()), Some(STATE_LIMIT));
    }

    proptest::proptest! {
        #[test]
        fn no_header_panics(text in "\\PC{0,80}", at in 0_usize..60, byte in 0_u8..128) {
            let _ = (parse(&text), state(&text));
            let mut bytes = PARENT.as_bytes().to_vec();
            if let Some(place) = bytes.get_mut(at) { *place = byte; }
            let text = String::from_utf8(bytes).unwrap();
            let _ = (parse(&text), state(&text));
        }
    }
}
