//! Ids: which response an engine request belongs to.
//!
//! The frontend builds an engine request's ids of the response's: `cmpl-X` asks the engine for `cmpl-X-0`,
//! `cmpl-X-1`, one a prompt (the external id); from 0.14 on it appends eight hex digits of its own
//! (`cmpl-X-0-deadbeef`, the internal id, the only one that outputs carry); candidates of `n > 1` put their
//! number in front (`1_cmpl-X-0-deadbeef`). X is the client's `X-Request-Id` where it sent one, and may hold
//! dashes and digits itself, so an id can be read in more than one way: [`readings`] gives them all, the
//! likeliest first, and the one whose response is known is right.
//!
//! Mirrors vLLM 0.8 to 0.33 (`entrypoints/**/serving.py`, `v1/engine/parallel_sampling.py`,
//! `v1/engine/input_processor.py`).

/// A way to read an engine request's id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Reading<'a> {
    /// Id of the response it belongs to.
    pub response: &'a str,
    /// Which prompt of the API request it is, from 0. Of the Responses API: which turn.
    pub prompt: u32,
    /// Which candidate of its prompt, from 0.
    pub candidate: u32,
}

impl Reading<'_> {
    /// The place of this engine request's text among the response's choices, of a request for `n` candidates
    /// a prompt.
    #[must_use]
    pub fn choice(self, n: u32) -> u32 {
        self.prompt.saturating_mul(n.max(1)).saturating_add(self.candidate)
    }
}

/// How an endpoint makes external ids of its response's id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// `R-0`, `R-1`: always numbered, one a prompt.
    Numbered,
    /// `R`, or `R_0`, `R_1` where there are several.
    Alone,
    /// `R`, or `R-0`, `R-1` where there are several.
    Either,
}

/// Prefixes of response ids, and how external ids are made of them.
const FAMILIES: [(&str, Form); 13] = [
    ("chatcmpl-", Form::Alone),
    ("cmpl-", Form::Numbered),
    ("resp_", Form::Alone),
    ("embd-", Form::Numbered),
    ("pooling-", Form::Numbered),
    ("pool-", Form::Numbered),
    ("classify-", Form::Numbered),
    ("score-", Form::Numbered),
    ("rerank-", Form::Numbered),
    ("generative-scoring-", Form::Numbered),
    ("generate-tokens-", Form::Alone),
    ("transcribe-", Form::Either),
    ("translate-", Form::Either),
];

/// Every way to read an engine request's ids, the likeliest first. `external` is known of requests that were
/// seen when they were handed over, from 0.14 on.
pub fn readings<'a>(external: Option<&'a str>, internal: &'a str) -> impl Iterator<Item = Reading<'a>> {
    let (candidate, own) = split_candidate(internal);
    let ids = match external {
        Some(external) => [Some(external), None],
        // An id of before 0.14 that ends like this is one of a client's own making: the rarer case.
        None => [without_hex(own), Some(own)],
    };
    ids.into_iter().flatten().flat_map(move |id| of_external(id, candidate)).flatten()
}

/// The likeliest response of an engine request: the id itself, if it can be read in no way.
#[must_use]
pub fn likeliest<'a>(external: Option<&'a str>, internal: &'a str) -> Reading<'a> {
    let unread = Reading { response: external.unwrap_or(internal), prompt: 0, candidate: 0 };
    readings(external, internal).next().unwrap_or(unread)
}

/// Whether an engine request belongs to a response, and where.
#[must_use]
pub fn belongs<'a>(response: &str, external: Option<&'a str>, internal: &'a str) -> Option<Reading<'a>> {
    readings(external, internal).find(|reading| reading.response == response)
}

/// The part of a response's id that the client chose (`X-Request-Id`) or the server drew.
#[must_use]
pub fn base(response: &str) -> &str {
    FAMILIES.iter().find_map(|(prefix, _)| response.strip_prefix(prefix)).unwrap_or(response)
}

/// The internal id of the whole that a candidate of `n > 1` is a part of; `None` of a request that is none.
#[must_use]
pub fn parent(internal: &str) -> Option<&str> {
    let (_, own) = split_candidate(internal);
    (own.len() < internal.len()).then_some(own)
}

/// Splits a candidate's number from the front of an internal id.
fn split_candidate(internal: &str) -> (u32, &str) {
    let numbered = internal.split_once('_').and_then(|(number, id)| Some((plain_number(number)?, id)));
    // Only what an endpoint made is numbered; a bare id may begin with a number of its own.
    numbered
        .filter(|(_, id)| FAMILIES.iter().any(|(prefix, _)| id.starts_with(prefix)))
        .unwrap_or((0, internal))
}

/// The ways to read an external id.
fn of_external(id: &str, candidate: u32) -> [Option<Reading<'_>>; 3] {
    let form = FAMILIES.iter().find(|(prefix, _)| id.starts_with(prefix)).map(|(_, form)| *form);
    let alone = Some(Reading { response: id, prompt: 0, candidate });
    let by = |mark| {
        let (response, number) = id.rsplit_once(mark)?;
        Some(Reading { response, prompt: plain_number(number)?, candidate })
    };
    let known = match form {
        Some(Form::Numbered) => [by('-'), chunk(id, candidate)],
        Some(Form::Alone) => [alone, by('_')],
        Some(Form::Either) => [alone, by('-')],
        // The engine was asked by something else than the HTTP server: its id is its own.
        None => [alone, None],
    };
    let [first, second] = known;
    [first, second, beam(id)]
}

/// `R-prompt-<i>-chunk-<j>`: a long text, embedded in pieces.
fn chunk(id: &str, candidate: u32) -> Option<Reading<'_>> {
    let (front, piece) = id.rsplit_once("-chunk-")?;
    let (response, prompt) = front.rsplit_once("-prompt-")?;
    plain_number(piece)?;
    Some(Reading { response, prompt: plain_number(prompt)?, candidate })
}

/// `R-<uuid>-beam-<i>`: beam search asks for one token at a time.
fn beam(id: &str) -> Option<Reading<'_>> {
    let (front, number) = id.rsplit_once("-beam-")?;
    let (response, uuid) = front.rsplit_once('-')?;
    let drawn = uuid.len() >= 16 && uuid.bytes().all(|b| b.is_ascii_hexdigit());
    drawn.then(|| Some(Reading { response, prompt: 0, candidate: plain_number(number)? }))?
}

/// An internal id without the hex digits that 0.14 and later append.
fn without_hex(internal: &str) -> Option<&str> {
    let (external, hex) = internal.rsplit_once('-')?;
    (hex.len() == 8 && hex.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))).then_some(external)
}

/// A number of a prompt or candidate as Python writes it: digits, no sign, no leading zero. Eight digits and
/// more are no such number, but hex digits that happen to be decimal.
fn plain_number(digits: &str) -> Option<u32> {
    let plain = digits == "0" || digits.bytes().next().is_some_and(|b| b.is_ascii_digit() && b != b'0');
    (plain && digits.len() < 8).then(|| digits.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ids seen on real servers: response, external id (0.14 on), internal id, prompt, candidate.
    const SEEN: [(&str, Option<&str>, &str, u32, u32); 21] = [
        // 0.8.5 (V0)
        ("cmpl-traced-0", None, "cmpl-traced-0-0", 0, 0),
        ("chatcmpl-scn-a", None, "chatcmpl-scn-a", 0, 0),
        ("cmpl-a1665290f3f8498a9e61f8e5c356bb52", None, "cmpl-a1665290f3f8498a9e61f8e5c356bb52-0", 0, 0),
        // 0.9.2
        ("cmpl-93b7bca870444d73acc5baa720b62368", None, "1_cmpl-93b7bca870444d73acc5baa720b62368-0", 0, 1),
        // 0.10.2
        ("cmpl-c167644749824e339d33dee13250041a", None, "0_cmpl-c167644749824e339d33dee13250041a-0", 0, 0),
        // 0.11.2
        ("cmpl-dad5eea09ce94bfba232c4640ecf4695", None, "cmpl-dad5eea09ce94bfba232c4640ecf4695-0", 0, 0),
        // 0.12.0
        ("cmpl-81a7cebdfa7e8f23", None, "1_cmpl-81a7cebdfa7e8f23-0", 0, 1),
        ("chatcmpl-my-req-0001", None, "chatcmpl-my-req-0001", 0, 0),
        // 0.14.1
        ("chatcmpl-scn-a", Some("chatcmpl-scn-a"), "chatcmpl-scn-a-a2d304a0", 0, 0),
        (
            "cmpl-a7b5f51d1a211aea",
            Some("cmpl-a7b5f51d1a211aea-0"),
            "1_cmpl-a7b5f51d1a211aea-0-947e66aa",
            0,
            1,
        ),
        // 0.16.0
        ("cmpl-accdd1a7b389fcf1", Some("cmpl-accdd1a7b389fcf1-0"), "cmpl-accdd1a7b389fcf1-0-ae2a3cec", 0, 0),
        // 0.20.2
        (
            "cmpl-888b7be607733736",
            Some("cmpl-888b7be607733736-0"),
            "0_cmpl-888b7be607733736-0-87a5ae8d",
            0,
            0,
        ),
        // 0.22.1
        ("chatcmpl-scn-b", Some("chatcmpl-scn-b"), "chatcmpl-scn-b-9d9ade74", 0, 0),
        // 0.28.0
        ("cmpl-96be58d9e7e1253a", Some("cmpl-96be58d9e7e1253a-0"), "cmpl-96be58d9e7e1253a-0-ba558259", 0, 0),
        // 0.32.0
        (
            "chatcmpl-b3ae82d856041102",
            Some("chatcmpl-b3ae82d856041102"),
            "1_chatcmpl-b3ae82d856041102-a0171324",
            0,
            1,
        ),
        ("cmpl-a44c48307f7443f7", Some("cmpl-a44c48307f7443f7-2"), "cmpl-a44c48307f7443f7-2-a0ec3eae", 2, 0),
        ("cmpl-pd1", Some("cmpl-pd1-0"), "cmpl-pd1-0-a9f78fea", 0, 0),
        ("chatcmpl-my-req-0001", Some("chatcmpl-my-req-0001"), "chatcmpl-my-req-0001-916ceee8", 0, 0),
        ("embd-b7c102fc05e0ca7a", Some("embd-b7c102fc05e0ca7a-1"), "embd-b7c102fc05e0ca7a-1-b3b26c5e", 1, 0),
        (
            "score-b3ad4b92a70015d9",
            Some("score-b3ad4b92a70015d9-2"),
            "score-b3ad4b92a70015d9-2-ab8e9b6c",
            2,
            0,
        ),
        (
            "score-b3ad4b92a70015d9",
            Some("score-b3ad4b92a70015d9-0"),
            "score-b3ad4b92a70015d9-0-b52493ce",
            0,
            0,
        ),
    ];

    #[test]
    fn the_ids_of_real_servers_are_read() {
        for (response, external, internal, prompt, candidate) in SEEN {
            let wanted = Some(Reading { response, prompt, candidate });
            assert_eq!(belongs(response, external, internal), wanted, "{internal}");
            // The output of a request whose start was not seen has but the internal id.
            assert_eq!(belongs(response, None, internal), wanted, "{internal}");
        }
    }

    #[test]
    fn the_likeliest_reading_of_a_real_id_is_right() {
        for (response, external, internal, ..) in SEEN {
            assert_eq!(likeliest(external, internal).response, response, "{internal}");
            assert_eq!(likeliest(None, internal).response, response, "{internal}");
        }
        assert_eq!(
            likeliest(None, "cmpl-X-1-12345678"),
            Reading { response: "cmpl-X", prompt: 1, candidate: 0 }
        );
        assert_eq!(likeliest(None, "cmpl-").response, "cmpl-");
    }

    #[test]
    fn ids_of_the_sources_are_read() {
        for (response, internal, prompt, candidate) in [
            ("chatcmpl-X", "chatcmpl-X_1-deadbeef", 1, 0),
            ("chatcmpl-X", "2_chatcmpl-X_1-deadbeef", 1, 2),
            ("resp_0123456789abcdef", "resp_0123456789abcdef_0-deadbeef", 0, 0),
            ("resp_0123456789abcdef", "resp_0123456789abcdef_3-deadbeef", 3, 0),
            ("resp_0123456789abcdef", "resp_0123456789abcdef", 0, 0),
            ("cmpl-X", "cmpl-X-0123456789abcdef-beam-4-deadbeef", 0, 4),
            ("embd-X", "embd-X-prompt-2-chunk-5-deadbeef", 2, 0),
            ("generate-tokens-X", "generate-tokens-X-deadbeef", 0, 0),
            ("generative-scoring-X", "generative-scoring-X-1-deadbeef", 1, 0),
            ("rerank-X", "rerank-X-1", 1, 0),
            ("pooling-X", "pooling-X-0-deadbeef", 0, 0),
            ("transcribe-X", "transcribe-X-1-deadbeef", 1, 0),
            ("offline-7", "offline-7", 0, 0),
        ] {
            let wanted = Some(Reading { response, prompt, candidate });
            assert_eq!(belongs(response, None, internal), wanted, "{internal}");
        }
    }

    #[test]
    fn ids_that_only_resemble_each_other_do_not_belong_together() {
        for (response, external, internal) in [
            ("cmpl-a", Some("cmpl-a-0-0"), "cmpl-a-0-0-deadbeef"),
            ("cmpl-a", None, "cmpl-a"),
            ("cmpl-a", Some("cmpl-ab-0"), "cmpl-ab-0-deadbeef"),
            ("cmpl-a", Some("cmpl-a-01"), "cmpl-a-01-deadbeef"),
            ("cmpl-a", Some("cmpl-a-+1"), "cmpl-a-+1-deadbeef"),
            ("chatcmpl-a", Some("chatcmpl-a-deadbeef"), "chatcmpl-a-deadbeef-deadbeef"),
            ("chatcmpl-a", None, "chatcmpl-a-1"),
            ("chatcmpl-a", None, "chatcmpl-a-DEADBEEF"),
            ("", None, ""),
            ("cmpl-", None, "-0"),
        ] {
            let found = belongs(response, external, internal);
            assert!(found.is_none() || response.is_empty(), "{internal}: {found:?}");
        }
    }

    #[test]
    fn a_clients_id_that_looks_like_a_number_stays_whole() {
        assert_eq!(
            belongs("cmpl-1_2-3", None, "0_cmpl-1_2-3-1-deadbeef").map(|r| (r.prompt, r.candidate)),
            Some((1, 0))
        );
        assert_eq!(belongs("7_x", None, "7_x").map(|r| r.candidate), Some(0));
        assert_eq!(parent("1_cmpl-X-0-deadbeef"), Some("cmpl-X-0-deadbeef"));
        assert_eq!(parent("cmpl-X-0"), None);
        assert_eq!(parent("7_x"), None);
    }

    #[test]
    fn the_choice_is_counted_prompt_by_prompt() {
        let reading = Reading { response: "cmpl-X", prompt: 2, candidate: 1 };
        assert_eq!((reading.choice(3), reading.choice(1), reading.choice(0)), (7, 3, 3));
        assert_eq!(Reading { prompt: u32::MAX, ..reading }.choice(9), u32::MAX);
    }

    #[test]
    fn a_base_is_what_the_client_chose() {
        assert_eq!(base("chatcmpl-my-req-0001"), "my-req-0001");
        assert_eq!(base("resp_1"), "1");
        assert_eq!(base("odd"), "odd");
    }

    proptest::proptest! {
        #[test]
        fn what_a_server_makes_of_any_id_is_read_back(
            x in "[A-Za-z0-9_.-]{1,40}", prompt in 0_u32..9999, candidate in 0_u32..9999, hex in "[0-9a-f]{8}",
        ) {
            let response = format!("cmpl-{x}");
            let external = format!("{response}-{prompt}");
            let wanted = Some(Reading { response: &response, prompt, candidate });
            let new = format!("{candidate}_{external}-{hex}");
            let old = format!("{candidate}_{external}");
            proptest::prop_assert_eq!(belongs(&response, Some(&external), &new), wanted);
            proptest::prop_assert_eq!(belongs(&response, None, &new), wanted);
            proptest::prop_assert_eq!(belongs(&response, None, &old), wanted);
        }

        #[test]
        fn no_id_panics(external in "\\PC{0,40}", internal in "[0-9a-f_é-]{0,40}|(cmpl-|chunk-|beam-|prompt-|[0-9]_){0,9}") {
            let _ = readings(Some(&external), &internal).count();
            let _ = (readings(None, &internal).count(), base(&internal), parent(&internal));
        }
    }
}
