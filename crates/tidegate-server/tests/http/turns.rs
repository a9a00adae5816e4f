//! Conversations as their people read them.

use serde_json::{Value, json};
use tidegate_model::principal::Role;

use crate::rig::Rig;

/// R3.7: messages stand in the order of turns, over pages too, also where a turn waited for a person while others were
/// said.
#[tokio::test]
async fn messages_stand_in_the_order_of_turns() {
    let rig = Rig::new().await;
    let acme = rig.tenant("acme").await;
    let worker = rig.key(Role::Worker, "", "builtin").await;
    let conversation = rig.conversation(&acme).await;
    let say = async |text: &str| {
        let path = format!("/v1/conversations/{conversation}/turns");
        let said = rig.post(&path, &acme, json!({"input": text})).await;
        said.json()["runId"].as_str().unwrap().to_owned()
    };
    let close = async |verb: &str, text: &str, fields: Value| {
        let lease = rig.claim(&worker).await;
        let run = lease["run"]["runId"].as_str().unwrap().to_owned();
        let message = json!({"role": "assistant", "content": {"text": text}});
        let mut body = json!({"fence": lease["fence"], "messages": [message]});
        body.as_object_mut()
            .unwrap()
            .extend(fields.as_object().unwrap().clone());
        let path = format!("/v1/worker/runs/{run}/{verb}");
        let ended = rig.post(&path, &worker, body).await;
        assert!(ended.status.is_success(), "{ended:?}");
    };
    let first = say("q1").await;
    let ask = json!({"input": {"kind": "text", "prompt": "Which colour?"}});
    close("wait", "a1, asking", ask).await;
    say("q2").await;
    say("q3").await;
    let path = format!("/v1/runs/{first}/inputs");
    let answered = rig.post(&path, &acme, json!({"text": "blue"})).await;
    assert!(answered.status.is_success(), "{answered:?}");
    for text in ["a1", "a2", "a3"] {
        close("complete", text, json!({"result": 1})).await;
    }
    for limit in [1, 2, 3, 50] {
        let (mut texts, mut cursor) = (Vec::new(), String::new());
        loop {
            let path = format!("/v1/conversations/{conversation}/messages?limit={limit}{cursor}");
            let page = rig.get(&path, &acme).await.json();
            let items = page["items"].as_array().unwrap();
            let said = |item: &Value| item["content"]["text"].as_str().map(ToOwned::to_owned);
            texts.extend(items.iter().map(|item| said(item).unwrap()));
            let Some(next) = page["nextCursor"].as_str() else {
                break;
            };
            cursor = format!("&cursor={next}");
        }
        let expected = ["q1", "a1, asking", "a1", "q2", "a2", "q3", "a3"];
        assert_eq!(texts, expected, "pages of {limit}");
    }
}
