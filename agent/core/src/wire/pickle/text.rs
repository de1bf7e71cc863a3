//! Texts with escapes, which only protocol 0 writes.

/// The text of `UNICODE` (Python's `raw-unicode-escape`): `\uXXXX`, `\UXXXXXXXX`, other bytes are Latin-1.
pub(super) fn raw_unicode(line: &[u8]) -> Vec<u8> {
    let mut text = Vec::with_capacity(line.len());
    let mut rest = line;
    while let [first, after @ ..] = rest {
        rest = after;
        let digits = match (first, after) {
            (b'\\', [b'u', ..]) => 4,
            (b'\\', [b'U', ..]) => 8,
            _ => 0,
        };
        let code = after.get(1..=digits).filter(|_| digits > 0).and_then(hex);
        if let Some(code) = code {
            rest = after.get(1 + digits..).unwrap_or_default();
            push(&mut text, code);
        } else {
            push(&mut text, u32::from(*first));
        }
    }
    text
}

/// The text of a literal of Python 2, without its quotes.
pub(super) fn literal(inner: &[u8]) -> Vec<u8> {
    let mut text = Vec::with_capacity(inner.len());
    let mut rest = inner;
    while let [first, after @ ..] = rest {
        rest = after;
        let [escape, more @ ..] = after else {
            text.push(*first);
            break;
        };
        if *first != b'\\' {
            text.push(*first);
            continue;
        }
        rest = more;
        match (plain(*escape), escape) {
            (Some(byte), _) => text.push(byte),
            (None, b'\n') => {}
            (None, b'x') => {
                let byte = more.get(..2).and_then(hex).and_then(|code| u8::try_from(code).ok());
                text.extend(byte);
                rest = more.get(2..).unwrap_or_default();
            }
            (None, b'0'..=b'7') => {
                let len = after.iter().take(3).take_while(|byte| matches!(byte, b'0'..=b'7')).count();
                let code = after.iter().take(len).fold(0_u32, |code, byte| code * 8 + u32::from(byte - b'0'));
                text.extend(u8::try_from(code & 0xff));
                rest = after.get(len..).unwrap_or_default();
            }
            (None, other) => text.extend([b'\\', *other]),
        }
    }
    text
}

/// What a backslash and this letter stand for.
fn plain(escape: u8) -> Option<u8> {
    Some(match escape {
        b'\\' | b'\'' | b'"' => escape,
        b'n' => b'\n',
        b't' => b'\t',
        b'r' => b'\r',
        b'a' => 0x07,
        b'b' => 0x08,
        b'f' => 0x0c,
        b'v' => 0x0b,
        _ => return None,
    })
}

fn hex(digits: &[u8]) -> Option<u32> {
    let digits = std::str::from_utf8(digits).ok()?;
    // `from_str_radix` takes a sign.
    digits.bytes().all(|byte| byte.is_ascii_hexdigit()).then(|| u32::from_str_radix(digits, 16).ok())?
}

/// Adds a code point in UTF-8; a lone surrogate has three bytes, as in Python's `surrogatepass`.
fn push(text: &mut Vec<u8>, code: u32) {
    if let Some(char) = char::from_u32(code) {
        text.extend_from_slice(char.encode_utf8(&mut [0; 4]).as_bytes());
        return;
    }
    let bits = |shift: u32| u8::try_from((code >> shift) & 0x3f).unwrap_or_default();
    if code <= 0xffff {
        text.extend([0xe0 | (bits(12) & 0x0f), 0x80 | bits(6), 0x80 | bits(0)]);
    }
}
