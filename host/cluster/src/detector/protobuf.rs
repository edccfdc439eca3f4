//! The part of protobuf's wire format that one small message needs: fields by number, unknown ones
//! skipped.

/// A field's value.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Value<'a> {
    Number(u64),
    /// A text, bytes, or a message.
    Bytes(&'a [u8]),
    /// Four or eight bytes, which no known field uses.
    Fixed,
}

/// The fields of a message in order; none after an error.
pub(super) fn fields(data: &[u8]) -> impl Iterator<Item = Result<(u64, Value<'_>), String>> {
    let mut rest = data;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let field = field(&mut rest);
        if field.is_err() {
            rest = &[];
        }
        Some(field)
    })
}

fn field<'a>(rest: &mut &'a [u8]) -> Result<(u64, Value<'a>), String> {
    let key = varint(rest)?;
    let value = match key & 7 {
        0 => Value::Number(varint(rest)?),
        1 => take(rest, 8).map(|_| Value::Fixed)?,
        2 => {
            let length = varint(rest)?;
            Value::Bytes(take(rest, length)?)
        }
        5 => take(rest, 4).map(|_| Value::Fixed)?,
        kind => return Err(format!("field {} has the unknown wire type {kind}", key >> 3)),
    };
    Ok((key >> 3, value))
}

fn take<'a>(rest: &mut &'a [u8], length: u64) -> Result<&'a [u8], String> {
    let length = usize::try_from(length).unwrap_or(usize::MAX);
    let (taken, left) = rest
        .split_at_checked(length)
        .ok_or_else(|| format!("it ends within a field of {length} bytes"))?;
    *rest = left;
    Ok(taken)
}

fn varint(rest: &mut &[u8]) -> Result<u64, String> {
    let mut number = 0_u64;
    for shift in (0..64).step_by(7) {
        let (byte, left) = rest.split_first().ok_or("it ends within a number")?;
        *rest = left;
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok(number);
        }
    }
    Err("a number in it is too long".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_read_one_by_one() {
        let data = b"\x08\x96\x01\x12\x02hi\x1d1234\x2112345678\x80\x01\x01";
        let found: Result<Vec<_>, _> = fields(data).collect();
        assert_eq!(
            found.unwrap(),
            [
                (1, Value::Number(150)),
                (2, Value::Bytes(b"hi")),
                (3, Value::Fixed),
                (4, Value::Fixed),
                (16, Value::Number(1)),
            ]
        );
    }

    #[test]
    fn malformed_messages_end_with_an_error() {
        let cases: [(&[u8], &str); 5] = [
            (b"\x08", "ends within a number"),
            (b"\x12\x05hi", "ends within a field of 5 bytes"),
            (b"\x0b", "field 1 has the unknown wire type 3"),
            (b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "too long"),
            (
                b"\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
                "ends within a field",
            ),
        ];
        for (data, why) in cases {
            let mut fields = fields(data);
            let error = fields.next().unwrap().unwrap_err();
            assert!(error.contains(why), "{data:?}: {error}");
            assert_eq!(fields.next(), None);
        }
    }
}
