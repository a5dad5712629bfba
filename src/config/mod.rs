//! The two YAML files: what was typed (`raw`), checked and compiled (`compile`) into an immutable
//! [`snapshot`].

pub mod snapshot;
