//! `docs/ROUTES.md` is what the table of routes says. `BLESS=1` writes it anew.

use enginetap_core::dialect::openai::markdown;

#[test]
fn the_committed_document_is_the_table() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/ROUTES.md");
    let wanted = markdown();
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(path, &wanted).unwrap();
    }
    let committed = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        committed == wanted,
        "docs/ROUTES.md is not what the table says: run `BLESS=1 cargo test -p enginetap-core --test routes_doc` \
         and commit it"
    );
}
