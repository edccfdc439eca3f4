//! The map that models and zones are made of.

/// A map whose clones cost nothing and share what neither side changes.
pub(crate) type Map<K, V> =
    imbl::GenericHashMap<K, V, foldhash::fast::RandomState, imbl::shared_ptr::DefaultSharedPtr>;
