//! `docs/ROUTES.md`, written from the table.

use std::fmt::Write as _;

use super::{Endpoint, ROUTES, Route};
use crate::dialect::signal::Operation;

const HEAD: &str = "\
# Routes

What enginetap makes of each route of vLLM's HTTP server (0.8 to 0.33; not every version has every route) and of
SGLang's `/generate`. SGLang has no entry span of embeddings and rankings: their requests make traces of their own.
A prefix in front of a path (`--root-path`, a gateway's) does not matter. This file is written from the table in
`agent/core/src/dialect/openai/route.rs`.

| route | what is made of it |
| --- | --- |
";

/// The whole document.
#[must_use]
pub fn markdown() -> String {
    let mut document = HEAD.to_owned();
    for row in ROUTES {
        let methods = row.methods.replace(' ', ", ");
        let what = match row.route {
            Route::Span(endpoint) => match operation(endpoint) {
                Some(operation) => format!("entry span `{operation} {{model}}`"),
                None => "entry span of the operation that the body's fields speak of".to_owned(),
            },
            Route::PassedOver(why) => format!("nothing: {}", why.why()),
            Route::Unknown => "nothing".to_owned(),
        };
        // Writing to a string cannot fail.
        let _ = writeln!(document, "| {methods} `{}` | {what} |", row.path);
    }
    document
}

fn operation(endpoint: Endpoint) -> Option<&'static str> {
    endpoint.operation().map(|operation| match operation {
        Operation::Chat => "chat",
        Operation::TextCompletion => "text_completion",
        Operation::Embeddings => "embeddings",
        Operation::Rerank => "rerank",
    })
}
