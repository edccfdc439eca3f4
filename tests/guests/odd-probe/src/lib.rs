//! A probe that misbehaves on demand.
