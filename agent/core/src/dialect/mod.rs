//! Dialects: what messages mean. Values in, [`signal`]s out.

pub mod schema;
pub mod signal;
