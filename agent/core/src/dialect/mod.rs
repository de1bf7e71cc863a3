//! Dialects: what messages mean. Values in, [`signal`]s out.

pub mod openai;
pub mod request_id;
pub mod schema;
pub mod sglang;
pub mod signal;
pub mod traceparent;
pub mod vllm;
pub mod vocabulary;
