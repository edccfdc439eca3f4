//! Writes the lists of matcher calls into a component's memory and reads them from it.
//!
//! A call on a large cluster passes thousands of candidates or hundreds of agents, and returns a
//! verdict for each candidate. The implementations that wasmtime derives look up the component's
//! memory several times for each field; these look it up once for a list of candidates or verdicts,
//! and once for an agent or attribute.

#![allow(
    unsafe_code,
    reason = "the traits are unsafe to implement; sizes, alignments and layouts below are those of the types in WIT"
)]

use std::mem::MaybeUninit;

use wasmtime::{
    ValRaw,
    component::{
        __internal::{
            CanonicalAbiInfo, InstanceType, InterfaceType, LiftContext, LowerContext, bad_type_info,
            typecheck_record,
        },
        ComponentType, Lift, Lower,
    },
};

use crate::worlds::matcher::{Agent, Attribute, AttributeValue, Candidate, Verdict};

const CANDIDATE_BYTES: usize = 8;
const ATTRIBUTE_BYTES: usize = 24;
const ATTRIBUTE_VALUE_OFFSET: usize = 8;
/// The indices of lists among an agent's fields, and of the value among an attribute's.
const AGENT_ATTRIBUTES: usize = 5;
const AGENT_EXTENSIONS: usize = 6;
const ATTRIBUTE_VALUE: usize = 1;
const AGENT_WORDS: usize = 15;
const VERDICT_BYTES: usize = 8;
const VERDICT_ALIGNMENT: usize = 4;

/// `record candidate { agent: u32, capacity: u32 }`
unsafe impl ComponentType for Candidate {
    type Lower = [ValRaw; 2];

    const ABI: CanonicalAbiInfo = CanonicalAbiInfo::record_static(&[u32::ABI, u32::ABI]);

    fn typecheck(ty: &InterfaceType, types: &InstanceType<'_>) -> wasmtime::Result<()> {
        typecheck_record(
            ty,
            types,
            &[("agent", u32::typecheck), ("capacity", u32::typecheck)],
        )
    }
}

unsafe impl Lower for Candidate {
    fn linear_lower_to_flat<T>(
        &self,
        _context: &mut LowerContext<'_, T>,
        _type: InterfaceType,
        destination: &mut MaybeUninit<Self::Lower>,
    ) -> wasmtime::Result<()> {
        destination.write([ValRaw::u32(self.agent), ValRaw::u32(self.capacity)]);
        Ok(())
    }

    fn linear_lower_to_memory<T>(
        &self,
        context: &mut LowerContext<'_, T>,
        _type: InterfaceType,
        offset: usize,
    ) -> wasmtime::Result<()> {
        *context.get::<CANDIDATE_BYTES>(offset) = candidate_bytes(*self);
        Ok(())
    }

    fn linear_store_list_to_memory<T>(
        context: &mut LowerContext<'_, T>,
        _type: InterfaceType,
        offset: usize,
        candidates: &[Self],
    ) -> wasmtime::Result<()> {
        let memory = context.as_slice_mut().get_mut(offset..).unwrap_or_default();
        let (slots, _) = memory.as_chunks_mut::<CANDIDATE_BYTES>();
        if slots.len() < candidates.len() {
            wasmtime::bail!("a list of {} candidates is beyond the memory", candidates.len());
        }
        for (slot, candidate) in slots.iter_mut().zip(candidates) {
            *slot = candidate_bytes(*candidate);
        }
        Ok(())
    }
}

/// `record agent { handle: u32, id: string, hostname: string, region: option<string>, zone:
/// option<string>, attributes: list<attribute>, extensions: list<tuple<string, string>> }`
unsafe impl Lower for Agent {
    fn linear_lower_to_flat<T>(
        &self,
        _context: &mut LowerContext<'_, T>,
        _type: InterfaceType,
        _destination: &mut MaybeUninit<Self::Lower>,
    ) -> wasmtime::Result<()> {
        wasmtime::bail!("an agent outside a list")
    }

    fn linear_lower_to_memory<T>(
        &self,
        context: &mut LowerContext<'_, T>,
        ty: InterfaceType,
        offset: usize,
    ) -> wasmtime::Result<()> {
        let attributes = field_type(context, ty, AGENT_ATTRIBUTES);
        let extensions = field_type(context, ty, AGENT_EXTENSIONS);
        let [id, id_length] = lower_text(context, &self.id)?;
        let [hostname, hostname_length] = lower_text(context, &self.hostname)?;
        let [has_region, region, region_length] = lower_optional_text(context, self.region.as_deref())?;
        let [has_zone, zone, zone_length] = lower_optional_text(context, self.zone.as_deref())?;
        let [attributes, attribute_count] = lower_list(context, attributes, &*self.attributes)?;
        let [extensions, extension_count] = lower_list(context, extensions, &*self.extensions)?;
        let words: [u32; AGENT_WORDS] = [
            self.handle,
            id,
            id_length,
            hostname,
            hostname_length,
            has_region,
            region,
            region_length,
            has_zone,
            zone,
            zone_length,
            attributes,
            attribute_count,
            extensions,
            extension_count,
        ];
        let memory = context.get::<{ AGENT_WORDS * 4 }>(offset);
        memory.copy_from_slice(words.map(u32::to_le_bytes).as_flattened());
        Ok(())
    }
}

/// `record attribute { name: string, value: variant { text(string), … } }`
unsafe impl Lower for Attribute {
    fn linear_lower_to_flat<T>(
        &self,
        _context: &mut LowerContext<'_, T>,
        _type: InterfaceType,
        _destination: &mut MaybeUninit<Self::Lower>,
    ) -> wasmtime::Result<()> {
        wasmtime::bail!("an attribute outside a list")
    }

    fn linear_lower_to_memory<T>(
        &self,
        context: &mut LowerContext<'_, T>,
        ty: InterfaceType,
        offset: usize,
    ) -> wasmtime::Result<()> {
        if let AttributeValue::Text(text) = &self.value {
            let [name, name_length] = lower_text(context, &self.name)?;
            let [text, text_length] = lower_text(context, text)?;
            // The case `text` is 0, in the first byte of eight before its payload.
            let words = [name, name_length, 0, 0, text, text_length];
            let memory = context.get::<ATTRIBUTE_BYTES>(offset);
            memory.copy_from_slice(words.map(u32::to_le_bytes).as_flattened());
            return Ok(());
        }
        let value_type = field_type(context, ty, ATTRIBUTE_VALUE);
        self.name
            .linear_lower_to_memory(context, InterfaceType::String, offset)?;
        self.value
            .linear_lower_to_memory(context, value_type, offset + ATTRIBUTE_VALUE_OFFSET)
    }
}

/// `list<verdict>`, where a verdict is `variant { fits, refused(u32) }`.
pub(super) struct Verdicts(pub(super) Vec<Verdict>);

unsafe impl ComponentType for Verdicts {
    type Lower = <Vec<Verdict> as ComponentType>::Lower;

    const ABI: CanonicalAbiInfo = <Vec<Verdict> as ComponentType>::ABI;

    fn typecheck(ty: &InterfaceType, types: &InstanceType<'_>) -> wasmtime::Result<()> {
        Vec::<Verdict>::typecheck(ty, types)
    }
}

unsafe impl Lift for Verdicts {
    fn linear_lift_from_flat(
        context: &mut LiftContext<'_>,
        _type: InterfaceType,
        [pointer, length]: &Self::Lower,
    ) -> wasmtime::Result<Self> {
        lift_verdicts(context, pointer.get_u32(), length.get_u32())
    }

    fn linear_lift_from_memory(
        context: &mut LiftContext<'_>,
        _type: InterfaceType,
        bytes: &[u8],
    ) -> wasmtime::Result<Self> {
        match bytes.as_chunks().0 {
            [pointer, length] => {
                lift_verdicts(context, u32::from_le_bytes(*pointer), u32::from_le_bytes(*length))
            }
            _ => wasmtime::bail!("a list of {} bytes", bytes.len()),
        }
    }
}

/// Reads a list of verdicts, which counts towards the limit of the call's output.
fn lift_verdicts(context: &mut LiftContext<'_>, pointer: u32, length: u32) -> wasmtime::Result<Verdicts> {
    let (pointer, length) = (usize::try_from(pointer)?, usize::try_from(length)?);
    if !pointer.is_multiple_of(VERDICT_ALIGNMENT) {
        wasmtime::bail!("list pointer is not aligned");
    }
    let size = length.checked_mul(VERDICT_BYTES);
    let bytes = context.memory().get(pointer..);
    let Some(bytes) = bytes.zip(size).and_then(|(bytes, size)| bytes.get(..size)) else {
        wasmtime::bail!("list pointer/length out of bounds of memory");
    };
    context.consume_fuel_array(length, size_of::<Verdict>())?;
    let mut verdicts = Vec::with_capacity(length);
    for bytes in bytes.as_chunks().0 {
        verdicts.push(verdict(*bytes)?);
    }
    Ok(Verdicts(verdicts))
}

fn verdict([case, _, _, _, index @ ..]: [u8; VERDICT_BYTES]) -> wasmtime::Result<Verdict> {
    match case {
        0 => Ok(Verdict::Fits),
        1 => Ok(Verdict::Refused(u32::from_le_bytes(index))),
        other => wasmtime::bail!("unexpected discriminant: {other}"),
    }
}

/// The type of a record's field.
fn field_type<T>(context: &LowerContext<'_, T>, ty: InterfaceType, field: usize) -> InterfaceType {
    let InterfaceType::Record(record) = ty else {
        bad_type_info()
    };
    match context.types[record].fields.get(field) {
        Some(field) => field.ty,
        None => bad_type_info(),
    }
}

/// Copies a text into the component's memory; returns its pointer and length.
fn lower_text<T>(context: &mut LowerContext<'_, T>, text: &str) -> wasmtime::Result<[u32; 2]> {
    lower_list(context, InterfaceType::String, text)
}

/// Copies a text into the component's memory; returns whether there is one, its pointer and length.
fn lower_optional_text<T>(
    context: &mut LowerContext<'_, T>,
    text: Option<&str>,
) -> wasmtime::Result<[u32; 3]> {
    Ok(match text {
        Some(text) => {
            let [pointer, length] = lower_text(context, text)?;
            [1, pointer, length]
        }
        None => [0; 3],
    })
}

/// Copies a list or text into the component's memory; returns its pointer and length.
fn lower_list<T>(
    context: &mut LowerContext<'_, T>,
    ty: InterfaceType,
    list: &(impl Lower<Lower = [ValRaw; 2]> + ?Sized),
) -> wasmtime::Result<[u32; 2]> {
    let mut flat = MaybeUninit::uninit();
    list.linear_lower_to_flat(context, ty, &mut flat)?;
    // SAFETY: `linear_lower_to_flat` initializes its destination if it succeeds.
    let [pointer, length] = unsafe { flat.assume_init() };
    Ok([pointer.get_u32(), length.get_u32()])
}

/// A candidate as it is in memory.
fn candidate_bytes(candidate: Candidate) -> [u8; CANDIDATE_BYTES] {
    let (agent, capacity) = (u64::from(candidate.agent), u64::from(candidate.capacity));
    (agent | capacity << 32).to_le_bytes()
}

#[cfg(test)]
mod tests {
    use wasmtime::{
        Engine, Store,
        component::{Component, Linker, TypedFunc},
    };

    use super::*;

    /// A component whose function `list` returns the list of verdicts at an address. Its memory has one
    /// page; at 64 are `fits`, `refused(7)` and a case that does not exist.
    const COMPONENT: &str = r#"
        (component
            (core module $module
                (memory (export "memory") 1)
                (data (i32.const 64) "\00\ff\ff\ff\ff\ff\ff\ff\01\ff\ff\ff\07\00\00\00\02\00\00\00\00\00\00\00")
                (func (export "list") (param $pointer i32) (param $length i32) (result i32)
                    (i32.store (i32.const 0) (local.get $pointer))
                    (i32.store (i32.const 4) (local.get $length))
                    (i32.const 0)))
            (core instance $instance (instantiate $module))
            (type $verdict (variant (case "fits") (case "refused" u32)))
            (export $exported "verdict" (type $verdict))
            (func (export "list") (param "pointer" u32) (param "length" u32) (result (list $exported))
                (canon lift (core func $instance "list") (memory $instance "memory"))))
    "#;

    const PAGE: u32 = 64 << 10;

    type List = TypedFunc<(u32, u32), (Verdicts,)>;

    /// Returns the verdicts that the host reads at this address.
    fn read(pointer: u32, length: u32, max_output: usize) -> wasmtime::Result<Vec<Verdict>> {
        let engine = Engine::default();
        let component = Component::new(&engine, wat::parse_str(COMPONENT).unwrap()).unwrap();
        let mut store = Store::new(&engine, ());
        store.set_hostcall_fuel(max_output);
        let instance = Linker::new(&engine).instantiate(&mut store, &component).unwrap();
        let list: List = instance.get_typed_func(&mut store, "list").unwrap();
        let (verdicts,) = list.call(&mut store, (pointer, length))?;
        Ok(verdicts.0)
    }

    #[test]
    fn verdicts_are_read_as_one_block() {
        let read = |pointer, length| read(pointer, length, 1 << 20).unwrap();
        assert_eq!(read(64, 0), []);
        assert_eq!(read(64, 2), [Verdict::Fits, Verdict::Refused(7)]);
        assert_eq!(read(72, 1), [Verdict::Refused(7)]);
        // Up to the end of the memory, which contains zeros.
        assert_eq!(read(PAGE - 16, 2), [Verdict::Fits; 2]);
        assert_eq!(read(PAGE, 0), []);
    }

    #[test]
    fn invalid_lists_of_verdicts_are_errors() {
        const OUT_OF_BOUNDS: &str = "list pointer/length out of bounds of memory";
        for (pointer, length, expected) in [
            (64, 3, "unexpected discriminant: 2"),
            (66, 1, "list pointer is not aligned"),
            (PAGE - 8, 2, OUT_OF_BOUNDS),
            (PAGE + 4, 0, OUT_OF_BOUNDS),
            (0, u32::MAX, OUT_OF_BOUNDS),
            (u32::MAX - 3, u32::MAX, OUT_OF_BOUNDS),
        ] {
            let error = read(pointer, length, 1 << 20).unwrap_err();
            assert_eq!(error.to_string(), expected, "{length} verdicts at {pointer}");
        }
        // A list counts towards the limit of the output.
        let error = read(128, 1000, 4096).unwrap_err();
        assert!(error.to_string().contains("fuel"), "{error}");
        assert_eq!(read(128, 1000, 1 << 20).unwrap().len(), 1000);
    }
}
