//! `docs/TELEMETRY.md` is what the registry says. `BLESS=1` writes it anew.

use enginetap_core::model::registry::markdown;

#[test]
fn the_committed_document_is_the_registry() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/TELEMETRY.md");
    let wanted = markdown();
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(path, &wanted).unwrap();
    }
    let committed = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        committed == wanted,
        "docs/TELEMETRY.md is not what the registry says: run `BLESS=1 cargo test -p enginetap-core --test \
         telemetry_doc` and commit it"
    );
}
