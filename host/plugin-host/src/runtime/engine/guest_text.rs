//! A text of a guest that the host copies only up to a limit.
//!
//! The engine's own types copy the whole text, or decode all of it; a message may be as long as the
//! guest's memory.

#![allow(
    unsafe_code,
    reason = "the traits are unsafe to implement; the layout below is that of a string in WIT"
)]

use wasmtime::{
    ValRaw,
    component::{
        __internal::{
            CanonicalAbiInfo, InstanceType, InterfaceType, LiftContext,
            wasmtime_environ::component::StringEncoding,
        },
        ComponentType, Lift,
    },
};

/// Maximum bytes that are read. It exceeds the longest line that a manifest may allow
/// (`limits.log-line`), so that a cut text is still shown with its mark of truncation.
const MAX_BYTES: usize = (1 << 20) + 4;

/// The beginning of a text.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct GuestText(pub(super) String);

/// `string`
unsafe impl ComponentType for GuestText {
    type Lower = [ValRaw; 2];

    const ABI: CanonicalAbiInfo = CanonicalAbiInfo::POINTER_PAIR;

    fn typecheck(ty: &InterfaceType, _types: &InstanceType<'_>) -> wasmtime::Result<()> {
        match ty {
            InterfaceType::String => Ok(()),
            _ => wasmtime::bail!("expected a string"),
        }
    }
}

unsafe impl Lift for GuestText {
    fn linear_lift_from_flat(
        context: &mut LiftContext<'_>,
        _type: InterfaceType,
        source: &Self::Lower,
    ) -> wasmtime::Result<Self> {
        let [pointer, length] = source.each_ref().map(ValRaw::get_u32);
        read(context, pointer, length).map(GuestText)
    }

    fn linear_lift_from_memory(
        context: &mut LiftContext<'_>,
        _type: InterfaceType,
        bytes: &[u8],
    ) -> wasmtime::Result<Self> {
        let ([pointer, length], _) = bytes.as_chunks::<4>() else {
            wasmtime::bail!("a string has a pointer and a length");
        };
        read(context, u32::from_le_bytes(*pointer), u32::from_le_bytes(*length)).map(GuestText)
    }
}

/// Marks the length of a text in UTF-16, in an encoding where a text may also be Latin-1.
const UTF16_TAG: u32 = 1 << 31;

fn read(context: &LiftContext<'_>, pointer: u32, length: u32) -> wasmtime::Result<String> {
    let (utf16, units) = match context.options().string_encoding {
        StringEncoding::Utf8 => return utf8(bytes(context, pointer, length as usize)?),
        StringEncoding::Utf16 => (true, length),
        StringEncoding::CompactUtf16 => (length & UTF16_TAG != 0, length & !UTF16_TAG),
    };
    if !utf16 {
        let latin1 = bytes(context, pointer, units as usize)?;
        let kept = latin1.len().min(MAX_BYTES);
        return Ok(latin1[..kept].iter().copied().map(char::from).collect());
    }
    let bytes = bytes(context, pointer, units as usize * 2)?;
    let (units, _) = bytes[..bytes.len().min(MAX_BYTES)].as_chunks::<2>();
    let units = units.iter().copied().map(u16::from_le_bytes);
    Ok(char::decode_utf16(units)
        .map(|it| it.unwrap_or(char::REPLACEMENT_CHARACTER))
        .collect())
}

/// The bytes of the whole text, which must be within the memory.
fn bytes<'a>(context: &LiftContext<'a>, pointer: u32, length: usize) -> wasmtime::Result<&'a [u8]> {
    let found = context.memory().get(pointer as usize..);
    match found.and_then(|rest| rest.get(..length)) {
        Some(found) => Ok(found),
        None => wasmtime::bail!("string pointer/length out of bounds of memory"),
    }
}

/// Copies the beginning of a text up to a character boundary.
fn utf8(bytes: &[u8]) -> wasmtime::Result<String> {
    let kept = &bytes[..bytes.len().min(MAX_BYTES)];
    match str::from_utf8(kept) {
        Ok(text) => Ok(text.to_owned()),
        // The cut may be within a character.
        Err(error) if error.error_len().is_none() && kept.len() < bytes.len() => {
            Ok(String::from_utf8_lossy(&kept[..error.valid_up_to()]).into_owned())
        }
        Err(error) => Err(error.into()),
    }
}
