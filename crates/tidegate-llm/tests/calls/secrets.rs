//! A provider that repeats its key gets it nowhere.

use tidegate_llm::{ChatRequest, LlmError};
use tidegate_mock_provider::Scenario;

use crate::support::{foreground, request, rig, rig_of};

const CANARY: &str = "sk-canary/42+0123=456789";

fn traces(text: &str) -> bool {
    use base64::Engine as _;
    let encoded = base64::engine::general_purpose::STANDARD.encode(CANARY);
    // The middle of the encoded key, wherever it stands in something longer.
    text.contains("canary")
        || text.contains(&encoded[4..16])
        || text.contains("42%2B0123")
        || text.contains("42%2b0123")
}

/// O-25: plain, URL-encoded, in base64, split over two chunks, inside a quoted URL; refused and in a good answer.
#[tokio::test]
async fn the_key_is_found_in_no_error_o_25() {
    for form in ["plain", "url", "base64", "basic", "quoted_url", "split"] {
        for fault in [
            format!(
                "kind = \"status\", status = 400, code = \"bad\", message = \"no\", echo_key = \"{form}\""
            ),
            format!(
                "kind = \"error_object\", code = \"bad\", message = \"no\", echo_key = \"{form}\""
            ),
            format!(
                "kind = \"error_object\", message = \"no\", echo_key = \"{form}\", after_chunks = 1"
            ),
        ] {
            for stream in [true, false] {
                let scenario = format!(
                    "[[rule]]\nname = \"a\"\nreply = {{ text = \"a b\" }}\nfault = {{ {fault} }}\n"
                );
                let rig = rig(&scenario, |config| config.api_key = Some(CANARY.into())).await;
                let error = rig
                    .ask_with(
                        ChatRequest {
                            stream,
                            ..request("hi")
                        },
                        &foreground(),
                    )
                    .await
                    .unwrap_err();
                let shown = format!(
                    "{error} {error:?} {:?} {:?}",
                    rig.records.all(),
                    rig.providers
                );
                assert!(!traces(&shown), "{form}: {shown}");
                assert!(
                    shown.contains("[redacted]") && error.to_string().contains("no (key: "),
                    "{shown}"
                );
            }
        }
    }
}

/// O-25: in the text itself, cut into single characters, and in the arguments of a tool call.
#[tokio::test]
async fn the_key_is_found_in_no_answer_o_25() {
    let scenario = r#"
        [[rule]]
        name = "a"
        reply = { text = "your key is {{key}}, is it not?", chunk = "char", fragments = 9, tools = [{ tool = "t", arguments = { k = "{{key}}" } }] }
    "#;
    for stream in [true, false] {
        let rig = rig(scenario, |config| config.api_key = Some(CANARY.into())).await;
        let request = ChatRequest {
            stream,
            tools: vec![crate::support::tool("t")],
            ..request("hi")
        };
        let answer = rig.ask_with(request, &foreground()).await.unwrap();
        assert_eq!(answer.text, "your key is [redacted], is it not?");
        assert_eq!(answer.tool_calls[0].arguments, "{\"k\":\"[redacted]\"}");
    }
}

/// No error text holds what was asked.
#[tokio::test]
async fn an_error_does_not_quote_the_question() {
    let scenario = Scenario::parse(
        "[[rule]]\nname = \"a\"\nfault = { kind = \"status\", status = 400, code = \"bad_value\", message = \"cannot read '{{text}}'\" }\n",
    )
    .unwrap();
    let rig = rig_of(scenario, |_| ()).await;
    let error = rig.ask("the diary of a person, private").await.unwrap_err();
    assert!(!format!("{error:?}").contains("diary"), "{error:?}");
    let LlmError::Provider(fault) = error else {
        panic!("{error}")
    };
    assert_eq!(
        (fault.status, fault.provider_code.as_deref()),
        (Some(400), Some("bad_value"))
    );
    assert_eq!(fault.message, "cannot read '…'");
}

/// Nothing is sent anywhere but to `base_url`: a redirect is not followed, not even with the key left out.
#[tokio::test]
async fn a_redirect_is_not_followed() {
    let target = crate::support::rig(
        "[[rule]]\nname = \"b\"\nreply = { text = \"got you\" }\n",
        |_| (),
    )
    .await;
    let scenario = format!(
        "[[rule]]\nname = \"a\"\nfault = {{ kind = \"redirect\", location = \"{}/chat/completions\" }}\n",
        target.mock.url()
    );
    let rig = rig(&scenario, |_| ()).await;
    let error = rig.ask("hi").await.unwrap_err();
    assert!(error.to_string().contains("redirect"), "{error}");
    assert_eq!(target.mock.stats().requests, 0);
}

#[tokio::test]
async fn a_key_that_no_header_can_carry_makes_its_provider_unusable_without_showing_it() {
    let rig = rig("[[rule]]\nname = \"b\"\nreply = { text = \"x\" }\n", |_| ()).await;
    let config = rig.config(|config| config.api_key = Some("sk-canary\n42".into()));
    let unusable = rig.providers.replace(crate::support::catalogue(config));
    assert!(
        unusable[0].reason.contains("key") && !unusable[0].reason.contains("canary"),
        "{unusable:?}"
    );
}
