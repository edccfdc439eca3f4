//! Writes lists of candidates into a component's memory as one block.
//!
//! A call on a large cluster passes thousands of candidates. The implementation that wasmtime derives
//! looks up the component's memory for each field of each candidate, which took a quarter of such a
//! call's time.

#![allow(
    unsafe_code,
    reason = "the traits are unsafe to implement; size, alignment and layout below are those of the record in WIT"
)]

use std::mem::MaybeUninit;

use wasmtime::{
    ValRaw,
    component::{
        __internal::{CanonicalAbiInfo, InstanceType, InterfaceType, LowerContext, typecheck_record},
        ComponentType, Lower,
    },
};

use crate::worlds::matcher::Candidate;

const CANDIDATE_BYTES: usize = 8;

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
        *context.get::<CANDIDATE_BYTES>(offset) = bytes(*self);
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
            *slot = bytes(*candidate);
        }
        Ok(())
    }
}

fn bytes(candidate: Candidate) -> [u8; CANDIDATE_BYTES] {
    let (agent, capacity) = (u64::from(candidate.agent), u64::from(candidate.capacity));
    (agent | capacity << 32).to_le_bytes()
}
