//! Any Python source: a schema or a refusal.
#![no_main]

use enginetap_core::dialect::schema::Schema;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|source: &str| {
    let _ = Schema::read(source);
    let _ = Schema::for_version(source);
});
