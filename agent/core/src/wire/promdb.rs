//! The files in which Python's `prometheus_client` keeps the metrics of several processes (`PROMETHEUS_MULTIPROC_DIR`).
//!
//! A file is a table that only grows: how many bytes of it are used, four bytes of nothing, then for each series the
//! length of its name, the name as JSON (`["family", "sample", {labels}, "help"]`), spaces up to the next eight bytes, its
//! value and when it was set, as doubles. All little-endian. Mirrors `prometheus_client/mmap_dict.py` (0.17 to 0.22).

/// Most series looked at in one file.
const SERIES: usize = 65_536;

/// A series.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Series<'a> {
    /// Its name, as JSON.
    pub key: &'a [u8],
    /// Its value.
    pub value: f64,
}

impl<'a> Series<'a> {
    /// The sample's name (`vllm:prompt_tokens_total`).
    #[must_use]
    pub fn sample(&self) -> Option<&'a [u8]> {
        // Names of metrics hold no escapes.
        self.key.split(|byte| *byte == b'"').nth(3)
    }
}

/// The series of a file. What is no such file has none, or ends at the first one that does not fit.
pub fn series(file: &[u8]) -> impl Iterator<Item = Series<'_>> {
    let used = number(file, 0).unwrap_or(0).min(file.len());
    let table = file.get(..used).unwrap_or_default();
    let mut at = 8;
    std::iter::from_fn(move || {
        let (series, next) = one(table, at)?;
        at = next;
        Some(series)
    })
    .take(SERIES)
}

/// The series that begins at a place, and where the next one does.
fn one(table: &[u8], at: usize) -> Option<(Series<'_>, usize)> {
    let len = number(table, at)?;
    let from = at.checked_add(4)?;
    let key = table.get(from..from.checked_add(len)?)?;
    let value_at = from.checked_add(len)?.checked_add(8 - (len + 4) % 8)?;
    let value = table.get(value_at..value_at.checked_add(8)?)?.try_into().ok().map(f64::from_le_bytes)?;
    Some((Series { key, value }, value_at.checked_add(16)?))
}

/// A length: a number of 32 bits that is not negative.
fn number(bytes: &[u8], at: usize) -> Option<usize> {
    let bytes = bytes.get(at..at.checked_add(4)?)?.try_into().ok()?;
    usize::try_from(i32::from_le_bytes(bytes)).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A file as `prometheus_client` writes it.
    fn file(entries: &[(&str, f64)]) -> Vec<u8> {
        let mut table = Vec::new();
        for (key, value) in entries {
            table.extend_from_slice(&i32::try_from(key.len()).unwrap().to_le_bytes());
            table.extend_from_slice(key.as_bytes());
            table.extend(std::iter::repeat_n(b' ', 8 - (key.len() + 4) % 8));
            table.extend_from_slice(&value.to_le_bytes());
            table.extend_from_slice(&0.0_f64.to_le_bytes());
        }
        let used = i32::try_from(table.len() + 8).unwrap();
        [used.to_le_bytes().as_slice(), &[0; 4], &table, &[0; 64]].concat()
    }

    #[test]
    fn every_series_is_read_with_its_value() {
        let entries = [
            (r#"["vllm:a", "vllm:a_total", {"model_name": "x"}, "Help."]"#, 3.0),
            (r#"["vllm:b", "vllm:b", {}, "H"]"#, 0.25),
            (r#"["c", "c_sum", {}, "Hel"]"#, -1.0),
        ];
        let file = file(&entries);
        let read: Vec<(&str, f64)> = series(&file)
            .map(|series| (std::str::from_utf8(series.sample().unwrap()).unwrap(), series.value))
            .collect();
        assert_eq!(read, [("vllm:a_total", 3.0), ("vllm:b", 0.25), ("c_sum", -1.0)]);
    }

    #[test]
    fn what_is_no_such_file_has_no_series() {
        for bytes in [&b""[..], b"\0\0\0\0\0\0\0\0", &[0xff; 64], b"\x20\0\0\0\0\0\0\0\xff\xff\xff\x7f"] {
            assert_eq!(series(bytes).count(), 0, "{bytes:?}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), used in any::<i32>()) {
            let _ = series(&bytes).count();
            let _ = series(&[used.to_le_bytes().as_slice(), &[0; 4], &bytes].concat()).filter_map(|it| it.sample()).count();
        }
    }
}
