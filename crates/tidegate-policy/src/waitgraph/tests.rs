use proptest::prelude::*;
use tidegate_model::api::FileReference;

use super::*;

fn parent() -> ParentFacts {
    ParentFacts {
        depth: 0,
        open: 0,
        total: 0,
        service_class: ServiceClass::Standard,
        priority: -1,
        deadline: None,
        tokens_left: None,
        ms_left: None,
    }
}

fn admit(parent: ParentFacts, ask: ChildAsk) -> Result<ChildTerms, ChildRefusal> {
    admit_child(STANDARD, &parent, &ask)
}

/// R3.13: depth, width and total are bounded, each with its own words under one code (O-08).
#[test]
fn a_tree_stops_at_each_of_its_limits() {
    let none = ChildAsk::default();
    assert_eq!(admit(parent(), none).unwrap().depth, 1);
    let deepest = ParentFacts {
        depth: 7,
        open: 31,
        total: 511,
        ..parent()
    };
    assert_eq!(admit(deepest, none).unwrap().depth, 8);
    for facts in [
        ParentFacts {
            depth: 8,
            ..parent()
        },
        ParentFacts {
            open: 32,
            total: 40,
            ..parent()
        },
        ParentFacts {
            total: 512,
            ..parent()
        },
        ParentFacts {
            depth: i16::MAX,
            open: i64::MAX,
            total: i64::MAX,
            ..parent()
        },
    ] {
        let refused = admit(facts, none).unwrap_err();
        assert_eq!(refused.code(), Code::ChildLimitExceeded);
        assert!(!refused.code().retryable() && !refused.detail().is_empty());
    }
}

fn at(ms: i64) -> Option<DateTime<Utc>> {
    DateTime::from_timestamp_millis(ms)
}

fn rich() -> ParentFacts {
    ParentFacts {
        deadline: at(1_000),
        tokens_left: Some(10),
        ms_left: Some(20),
        ..parent()
    }
}

fn less() -> ChildAsk {
    ChildAsk {
        service_class: Some(ServiceClass::Deferrable),
        priority: Some(-5),
        deadline: at(900),
        tokens: Some(10),
        ms: Some(1),
    }
}

/// R3.2, R2.4: a child takes what its parent has, and may ask for less.
#[test]
fn a_child_gets_its_parents_terms_or_less() {
    let terms = admit(rich(), ChildAsk::default()).unwrap();
    assert_eq!(
        (terms.service_class, terms.priority),
        (ServiceClass::Standard, -1)
    );
    assert_eq!(
        (terms.deadline, terms.tokens, terms.ms),
        (at(1_000), Some(10), Some(20))
    );
    let terms = admit(rich(), less()).unwrap();
    assert_eq!(
        (terms.service_class, terms.priority),
        (ServiceClass::Deferrable, -5)
    );
    assert_eq!(
        (terms.deadline, terms.tokens, terms.ms),
        (at(900), Some(10), Some(1))
    );
}

/// R3.2, R2.4: a child that asks for more than its parent has is refused by the field.
#[test]
fn a_child_gets_no_more_than_its_parent() {
    let (rich, less) = (rich(), less());
    for (ask, field) in [
        (
            ChildAsk {
                service_class: Some(ServiceClass::Interactive),
                ..less
            },
            "serviceClass",
        ),
        (
            ChildAsk {
                priority: Some(0),
                ..less
            },
            "priority",
        ),
        (
            ChildAsk {
                deadline: at(1_001),
                ..less
            },
            "deadline",
        ),
        (
            ChildAsk {
                tokens: Some(11),
                ..less
            },
            "budget.tokens",
        ),
        (
            ChildAsk {
                ms: Some(21),
                ..less
            },
            "budget.executionMs",
        ),
    ] {
        let refused = admit(rich, ask).unwrap_err();
        assert_eq!(
            (refused.code(), refused.field()),
            (Code::DelegationExceedsParent, Some(field))
        );
    }
    let spent = ParentFacts {
        tokens_left: Some(0),
        ..parent()
    };
    assert!(admit(spent, ChildAsk::default()).is_err());
}

/// R3.10: a success leaves children alone, every other end takes them along.
#[test]
fn only_a_success_leaves_children_alone() {
    for state in RunState::ALL {
        let expected = state.is_ended() && *state != RunState::Succeeded;
        assert_eq!(takes_descendants_along(*state), expected, "{state}");
    }
}

fn ask(kind: AskKind, choices: &[&str]) -> Ask {
    Ask {
        kind,
        prompt: "which?".to_owned(),
        choices: choices.iter().map(|choice| (*choice).to_owned()).collect(),
        call_id: None,
    }
}

/// R3.15: a question names what is asked for.
#[test]
fn questions_are_bounded() {
    let closed = ask(AskKind::Text, &["a", "b"]);
    assert!(check_ask(&closed).is_ok());
    let choices = check_ask(&ask(AskKind::File, &["a"]));
    assert_eq!(choices.unwrap_err().0, "input.choices");
    let empty = Ask {
        prompt: " ".to_owned(),
        ..closed
    };
    assert_eq!(check_ask(&empty).unwrap_err().0, "input.prompt");
}

/// R3.15: a question gets the kind of answer that it asks for.
#[test]
fn answers_fit_their_questions() {
    let text = |text: &str| AnswerInput {
        text: Some(text.to_owned()),
        ..AnswerInput::default()
    };
    let yes = AnswerInput {
        confirmed: Some(true),
        ..AnswerInput::default()
    };
    let file = AnswerInput {
        file: Some(FileReference {
            uri: "s3://b/k".to_owned(),
            name: None,
            media_type: None,
            size_bytes: None,
        }),
        ..AnswerInput::default()
    };
    let both = AnswerInput {
        confirmed: Some(true),
        ..text("a")
    };
    let free = ask(AskKind::Text, &[]);
    let closed = ask(AskKind::Text, &["a", "b"]);
    for (ask, answer, fits) in [
        (&free, &text("anything"), true),
        (&free, &text(""), false),
        (&free, &yes, false),
        (&free, &both, false),
        (&closed, &text("b"), true),
        (&closed, &text("c"), false),
        (&ask(AskKind::Confirmation, &[]), &yes, true),
        (&ask(AskKind::Confirmation, &[]), &text("yes"), false),
        (&ask(AskKind::File, &[]), &file, true),
        (&ask(AskKind::File, &[]), &AnswerInput::default(), false),
    ] {
        assert_eq!(
            check_answer(ask, answer).is_ok(),
            fits,
            "{ask:?} {answer:?}"
        );
    }
}

/// Bad input: a file is an address of a known scheme or an id, and nothing that whoever opens it would run.
#[test]
fn a_file_is_an_address_or_an_id() {
    let at = |uri: &str| AnswerInput {
        file: Some(FileReference {
            uri: uri.to_owned(),
            name: None,
            media_type: None,
            size_bytes: None,
        }),
        ..AnswerInput::default()
    };
    let asked = ask(AskKind::File, &[]);
    for good in [
        "https://files.example/a?v=1",
        "HTTP://files.example",
        "s3://bucket/key",
        "file_0193",
        "store/acme/report.pdf",
    ] {
        assert!(check_answer(&asked, &at(good)).is_ok(), "{good}");
    }
    for bad in [
        "javascript:alert(1)",
        "javascript://%0aalert(1)",
        "JavaScript:x",
        "data:text/html,x",
        "file:///etc/passwd",
        "https:",
        "https:///path",
        "https://a b",
        "https://a\n",
        "",
    ] {
        let refused = check_answer(&asked, &at(bad)).unwrap_err();
        assert_eq!(refused.0, "file.uri", "{bad}");
    }
}

proptest! {
    /// R3.13: waiting for all is over with the last end, for any with the first, and never goes back.
    #[test]
    fn waits_end_with_the_first_or_the_last(awaited in 0_i64..40, ended in 0_i64..40) {
        let ended = ended.min(awaited);
        prop_assert_eq!(is_over(WaitMode::All, awaited, ended), ended == awaited);
        prop_assert_eq!(is_over(WaitMode::Any, awaited, ended), ended > 0 || awaited == 0);
        for mode in [WaitMode::Any, WaitMode::All] {
            prop_assert!(!is_over(mode, awaited, ended) || is_over(mode, awaited, awaited));
        }
    }
}
