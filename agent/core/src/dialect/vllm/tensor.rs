//! Arrays inside messages: `[dtype, shape, data]`, the data in the message or in a frame of its own.

use crate::wire::msgpack::{Error, Reader};

/// The first column of the second array of a `LogprobsLists` (`[token_ids, logprobs, ranks, ..]`): the logprob of
/// each sampled token, those of the candidates following it in its row.
///
/// The arrays are numpy's, or plain lists of lists (up to 0.11).
pub(super) fn sampled_logprobs(reader: &mut Reader<'_>, aux: &[&[u8]]) -> Result<Vec<f64>, Error> {
    let Some(len) = reader.array_or_skip()? else { return Ok(Vec::new()) };
    let mut found = Vec::new();
    for i in 0..len {
        match i {
            1 => found = first_column(reader, aux)?,
            _ => reader.skip()?,
        }
    }
    Ok(found)
}

fn first_column(reader: &mut Reader<'_>, aux: &[&[u8]]) -> Result<Vec<f64>, Error> {
    let Some(len) = reader.array_or_skip()? else { return Ok(Vec::new()) };
    if len == 3 && reader.peek()?.str().is_some() {
        return array(reader, aux);
    }
    let mut column = Vec::new();
    for _ in 0..len {
        let columns = reader.array_or_skip()?.unwrap_or_default();
        if columns > 0 {
            column.extend(reader.scalar()?.f64());
            reader.skip_values(u64::from(columns - 1))?;
        }
    }
    Ok(column)
}

/// How a number lies in an array's data.
#[derive(Clone, Copy)]
enum Kind {
    F32,
    F64,
}

impl Kind {
    /// numpy's and torch's names.
    fn named(dtype: &[u8]) -> Option<Self> {
        match dtype {
            b"<f4" | b"float32" => Some(Self::F32),
            b"<f8" | b"float64" => Some(Self::F64),
            _ => None,
        }
    }

    fn width(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F64 => 8,
        }
    }

    fn read(self, bytes: &[u8]) -> Option<f64> {
        match self {
            Self::F32 => bytes.first_chunk().map(|bytes| f64::from(f32::from_le_bytes(*bytes))),
            Self::F64 => bytes.first_chunk().map(|bytes| f64::from_le_bytes(*bytes)),
        }
    }
}

/// The first column of the array whose dtype comes next. Empty where its data did not come whole or its dtype is
/// not known.
fn array(reader: &mut Reader<'_>, aux: &[&[u8]]) -> Result<Vec<f64>, Error> {
    let dtype = Kind::named(reader.str()?);
    let mut shape = Vec::new();
    for _ in 0..reader.array()? {
        shape.push(reader.scalar()?.u32().and_then(|len| usize::try_from(len).ok()).unwrap_or_default());
    }
    let data = reader.scalar()?;
    // Data of its own, or the number of the frame that holds it: 1 is the first after the body.
    let frame = || aux.get(usize::try_from(data.u32()?).ok()?.checked_sub(1)?).copied();
    let data = data.bytes().or_else(frame);
    let column = || {
        let (dtype, data) = dtype.zip(data)?;
        let (rows, columns) = (*shape.first()?, shape.get(1).copied().unwrap_or(1));
        let row = columns.checked_mul(dtype.width()).filter(|row| *row > 0)?;
        let whole = rows.checked_mul(row)? <= data.len();
        whole.then(|| data.chunks(row).take(rows).filter_map(|row| dtype.read(row)).collect())
    };
    Ok(column().unwrap_or_default())
}
