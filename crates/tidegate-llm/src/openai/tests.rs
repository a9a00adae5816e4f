//! Addresses, and streams as the network cuts them up.

use futures::executor::block_on;
use proptest::prelude::*;

use super::*;
use crate::chat::{Finish, FinishReason, TokenCounts, Usage};

#[test]
fn the_address_stands_below_the_base_url() {
    for (base, expected) in [
        (
            "https://api.example/v1",
            "https://api.example/v1/chat/completions",
        ),
        (
            "https://api.example/v1/",
            "https://api.example/v1/chat/completions",
        ),
        (
            "http://127.0.0.1:8080",
            "http://127.0.0.1:8080/chat/completions",
        ),
    ] {
        assert_eq!(chat_url(base).map(String::from).as_deref(), Ok(expected));
    }
}

#[test]
fn a_base_url_that_cannot_be_meant_is_refused_with_the_remedy() {
    for bad in [
        "api.example",
        "ftp://a/v1",
        "https://user:pw@a/v1",
        "https://a/v1?key=1",
        "https://a/v1#x",
        "",
    ] {
        let reason = chat_url(bad).unwrap_err();
        assert!(
            reason.contains("base_url") && reason.contains("https://api.example/v1"),
            "{reason}"
        );
    }
}

const STREAM: &str = concat!(
    ": hello\n\n",
    "data: {\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\n",
    "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"潮汐 \"}}]}\r\n\r\n",
    "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"gate 🌊\"}}]}\n\n",
    "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n",
    "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":2,\"completion_tokens\":3}}\n\n",
    "data: [DONE]\n\n",
);

fn read(parts: Vec<Bytes>) -> Result<Vec<Delta>, ProviderFault> {
    let bytes = stream::iter(parts.into_iter().map(Ok));
    let mut reading = Reading::new(bytes, Scrubber::default());
    block_on(async {
        let mut deltas = Vec::new();
        while let Some(delta) = reading.next().await? {
            deltas.push(delta);
        }
        Ok(deltas)
    })
}

fn whole() -> Vec<Delta> {
    let usage = Usage::Exact(TokenCounts {
        input: 2,
        output: 3,
    });
    let finish = Finish {
        reason: FinishReason::Stop,
        usage,
        model: Some("m".to_owned()),
    };
    let text = |text: &str| Delta::Text(text.to_owned());
    vec![text("潮汐 "), text("gate 🌊"), Delta::Finished(finish)]
}

#[test]
fn an_answer_or_a_line_larger_than_allowed_is_given_up() {
    let endless = vec![Bytes::from(vec![b'a'; 1 << 17]); 9];
    let mut comment = vec![b':'; 1 << 19];
    comment.push(b'\n');
    let many = vec![Bytes::from(comment); 33];
    for parts in [endless, many] {
        let fault = read(parts).unwrap_err();
        assert_eq!(fault.kind, FaultKind::BadAnswer);
        assert!(fault.message.contains("larger than allowed"), "{fault}");
    }
}

#[test]
fn a_stream_that_ends_after_its_last_word_is_whole_without_the_marker() {
    let text = STREAM.replace("data: [DONE]\n\n", "");
    assert_eq!(read(vec![Bytes::from(text)]), Ok(whole()));
}

proptest! {
    /// Wherever the network cuts, inside a character or a line, the same pieces arrive.
    #[test]
    fn cuts_change_nothing(cuts in proptest::collection::vec(0usize..600, 0..20)) {
        let bytes = Bytes::from_static(STREAM.as_bytes());
        let mut cuts: Vec<_> = cuts.into_iter().map(|cut| cut.min(bytes.len())).chain([0, bytes.len()]).collect();
        cuts.sort_unstable();
        let parts = cuts.windows(2).map(|pair| bytes.slice(pair[0]..pair[1])).collect();
        prop_assert_eq!(read(parts), Ok(whole()));
    }

    /// Wherever a stream stops, it is an error or the whole answer, never half of one.
    #[test]
    fn half_a_stream_is_never_an_answer(end in 0usize..600) {
        let bytes = Bytes::from_static(STREAM.as_bytes());
        let result = read(vec![bytes.slice(..end.min(bytes.len()))]);
        match result {
            Ok(deltas) => prop_assert_eq!(&deltas[..2], &whole()[..2]),
            Err(fault) => prop_assert!(matches!(fault.kind, FaultKind::CutStream | FaultKind::BadAnswer)),
        }
    }
}
