//! What enters the pipeline: records from the kernel, facts from user space, and the file that keeps both.

pub mod fact;
pub mod file;
pub mod import;
pub mod record;
