//! Examples by name; histories at random stand in `model_tests`.

use super::*;
use CallClass::{Background, Foreground};

pub(super) const fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

pub(super) fn limiter(
    max_in_flight: u32,
    rpm: Option<u32>,
    max_queue: u32,
    wait_ms: u64,
) -> Limiter {
    Limiter::new(LimiterSettings::from_numbers(max_in_flight, rpm, max_queue, wait_ms).unwrap())
}

fn admitted(verdict: Verdict) -> Ticket {
    match verdict {
        Verdict::Admitted(ticket) => ticket,
        other => panic!("expected a slot, got {other:?}"),
    }
}

fn queued(verdict: Verdict) -> Ticket {
    match verdict {
        Verdict::Queued { ticket, .. } => ticket,
        other => panic!("expected a place in the queue, got {other:?}"),
    }
}

fn refused(verdict: Verdict) -> Busy {
    match verdict {
        Verdict::Busy(busy) => busy,
        other => panic!("expected a refusal, got {other:?}"),
    }
}

/// R13.1
#[test]
fn defaults_hold_without_configuration() {
    let settings = LimiterSettings::default();
    assert_eq!(settings.max_in_flight.get(), 16);
    assert_eq!(settings.rpm, None);
    assert_eq!(settings.max_queue, 64);
    assert_eq!(settings.wait_limit(Foreground), Some(s(30)));
    assert_eq!(
        LimiterSettings::from_numbers(16, None, 64, 30_000),
        Ok(settings)
    );
}

#[test]
fn settings_that_cannot_be_meant_name_their_variable() {
    let zero = LimiterSettings::from_numbers(0, None, 64, 0).unwrap_err();
    assert_eq!(zero.variable, "LLM_PROVIDER_MAX_IN_FLIGHT");
    let rpm = LimiterSettings::from_numbers(1, Some(0), 64, 0).unwrap_err();
    assert!(
        rpm.to_string()
            .starts_with("LLM_PROVIDER_RPM is 0: leave it unset"),
        "{rpm}"
    );
}

/// R13.1
#[test]
fn background_keeps_the_default_wait_where_waiting_limits_are_off() {
    let mut limiter = limiter(1, None, 8, 0);
    admitted(limiter.ask(Foreground, s(0)));
    let patient = queued(limiter.ask(Foreground, s(0)));
    let background = queued(limiter.ask(Background, s(0)));
    assert_eq!(limiter.poll(s(29)), vec![]);
    let decisions = limiter.poll(s(30));
    assert!(matches!(decisions[..], [Decision::Refuse(ticket, busy)]
        if ticket == background && busy.cause == BusyCause::WaitedTooLong));
    assert_eq!(limiter.poll(s(1_000_000)), vec![], "foreground waits on");
    assert!(limiter.give_back(patient, CallEnd::Unsent, s(1_000_000)));
}

/// R13.1
#[test]
fn each_class_has_its_own_queue_limit() {
    let mut limiter = limiter(1, None, 2, 30_000);
    admitted(limiter.ask(Background, s(0)));
    for _ in 0..2 {
        queued(limiter.ask(Background, s(0)));
    }
    assert_eq!(
        refused(limiter.ask(Background, s(0))).cause,
        BusyCause::QueueFull
    );
    for _ in 0..2 {
        queued(limiter.ask(Foreground, s(0)));
    }
    refused(limiter.ask(Foreground, s(0)));
    let view = limiter.view(s(0));
    assert_eq!((view.waiting_foreground, view.waiting_background), (2, 2));
}

#[test]
fn foreground_leaves_first_and_a_newcomer_does_not_overtake() {
    let mut limiter = limiter(1, None, 8, 30_000);
    let running = admitted(limiter.ask(Foreground, s(0)));
    let background = queued(limiter.ask(Background, s(0)));
    let first = queued(limiter.ask(Foreground, s(1)));
    let second = queued(limiter.ask(Foreground, s(1)));
    let mut holder = running;
    for expected in [first, second, background] {
        assert!(limiter.give_back(holder, CallEnd::Answered, s(2)));
        // The slot is free, but the queue is not empty: whoever asks now stands behind it.
        let late = queued(limiter.ask(Background, s(2)));
        assert!(limiter.give_back(late, CallEnd::Unsent, s(2)));
        assert_eq!(limiter.poll(s(2)), vec![Decision::Admit(expected)]);
        holder = expected;
    }
}

/// R13.2
#[test]
fn giving_back_twice_frees_one_slot() {
    let mut limiter = limiter(2, None, 8, 30_000);
    let first = admitted(limiter.ask(Foreground, s(0)));
    admitted(limiter.ask(Foreground, s(0)));
    queued(limiter.ask(Foreground, s(0)));
    queued(limiter.ask(Foreground, s(0)));
    assert!(limiter.give_back(first, CallEnd::Answered, s(1)));
    assert!(!limiter.give_back(first, CallEnd::Answered, s(1)));
    assert_eq!(limiter.poll(s(1)).len(), 1);
    assert_eq!(limiter.view(s(1)).in_flight, 2);
}

/// R13.1
#[test]
fn requests_per_minute_hold_in_any_sixty_seconds() {
    let mut limiter = limiter(16, Some(2), 8, 120_000);
    admitted(limiter.ask(Foreground, s(0)));
    let unsent = admitted(limiter.ask(Foreground, s(10)));
    limiter.give_back(unsent, CallEnd::Unsent, s(10));
    let second = admitted(limiter.ask(Foreground, s(20)));
    limiter.give_back(second, CallEnd::Answered, s(21));
    let third = queued(limiter.ask(Foreground, s(30)));
    let fourth = queued(limiter.ask(Foreground, s(30)));
    assert_eq!(limiter.gate_opens_at(s(30)), Some(s(60)));
    assert_eq!(limiter.poll(s(59)), vec![]);
    assert_eq!(limiter.poll(s(60)), vec![Decision::Admit(third)]);
    assert_eq!(limiter.gate_opens_at(s(60)), Some(s(80)));
    assert_eq!(limiter.poll(s(80)), vec![Decision::Admit(fourth)]);
    assert_eq!(limiter.gate_opens_at(s(80)), None);
}

/// R13.2
#[test]
fn a_429_halves_once_per_round_pauses_and_recovers() {
    let mut limiter = limiter(16, None, 64, 0);
    let calls: Vec<_> = (0..16)
        .map(|_| admitted(limiter.ask(Foreground, s(0))))
        .collect();
    for ticket in &calls[..8] {
        limiter.give_back(
            *ticket,
            CallEnd::Throttled {
                retry_after: Some(s(7)),
            },
            s(1),
        );
    }
    let view = limiter.view(s(1));
    assert_eq!(
        (view.admission_limit, view.in_flight, view.paused_for),
        (8, 8, s(7))
    );
    let waiter = queued(limiter.ask(Foreground, s(2)));
    limiter.give_back(calls[8], CallEnd::Answered, s(3));
    assert_eq!(limiter.poll(s(7)), vec![], "the provider's pause holds");
    assert_eq!(limiter.gate_opens_at(s(3)), Some(s(8)));
    assert_eq!(limiter.poll(s(8)), vec![Decision::Admit(waiter)]);
    // 8 slots grow to 16 within the answers of 8 rounds: 8 + 9 + … + 15.
    let mut open: VecDeque<_> = calls[9..].iter().copied().chain([waiter]).collect();
    for _ in 0..92 {
        limiter.give_back(open.pop_front().unwrap(), CallEnd::Answered, s(9));
        open.push_back(admitted(limiter.ask(Foreground, s(9))));
    }
    assert_eq!(limiter.view(s(9)).admission_limit, 16);
}

#[test]
fn a_429_without_a_time_pauses_longer_each_time_up_to_the_bound() {
    let mut limiter = limiter(4, None, 64, 0);
    let mut now = Duration::ZERO;
    let mut pauses = Vec::new();
    for _ in 0..12 {
        let ticket = admitted(limiter.ask(Foreground, now));
        limiter.give_back(ticket, CallEnd::Throttled { retry_after: None }, now);
        let pause = limiter.view(now).paused_for;
        pauses.push(pause.as_secs());
        now += pause;
    }
    assert_eq!(pauses[..5], [1, 2, 4, 8, 16]);
    assert_eq!(pauses[11], PAUSE_MAX.as_secs());
    let ticket = admitted(limiter.ask(Foreground, now));
    limiter.give_back(ticket, CallEnd::Answered, now);
    let ticket = admitted(limiter.ask(Foreground, now));
    limiter.give_back(ticket, CallEnd::Throttled { retry_after: None }, now);
    assert_eq!(limiter.view(now).paused_for, s(1), "an answer ends the row");
}

#[test]
fn an_absurd_retry_after_is_probed_again_after_the_bound() {
    let mut limiter = limiter(4, None, 64, 0);
    let ticket = admitted(limiter.ask(Foreground, s(0)));
    limiter.give_back(
        ticket,
        CallEnd::Throttled {
            retry_after: Some(Duration::MAX),
        },
        s(0),
    );
    queued(limiter.ask(Foreground, s(0)));
    assert_eq!(limiter.gate_opens_at(s(0)), Some(PAUSE_MAX));
}

/// R13.1
#[test]
fn the_hint_follows_the_measured_drain() {
    let mut limiter = limiter(2, None, 4, 600_000);
    // Calls take 10 s each, two at a time: a place every 5 s.
    for round in 0..20 {
        let now = s(round * 10);
        let calls: Vec<_> = (0..2)
            .map(|_| admitted(limiter.ask(Foreground, now)))
            .collect();
        for ticket in calls {
            limiter.give_back(ticket, CallEnd::Answered, now + s(10));
        }
    }
    let now = s(1_000);
    for _ in 0..2 {
        admitted(limiter.ask(Foreground, now));
    }
    for _ in 0..4 {
        queued(limiter.ask(Foreground, now));
    }
    let busy = refused(limiter.ask(Foreground, now));
    assert_eq!(busy.retry_after, s(25));
    assert_eq!(busy.spread, s(20));
    assert_eq!(busy.retry_after_spread(0.0), s(25));
    assert_eq!(busy.retry_after_spread(0.5), s(35));
    // The provider hangs: the hint grows although nothing ends.
    let later = refused(limiter.ask(Foreground, now + s(60)));
    assert_eq!(later.retry_after, s(150));
}

#[test]
fn a_shrunk_setting_lets_calls_in_flight_finish() {
    let mut limiter = limiter(4, None, 8, 0);
    let calls: Vec<_> = (0..4)
        .map(|_| admitted(limiter.ask(Foreground, s(0))))
        .collect();
    let waiter = queued(limiter.ask(Foreground, s(0)));
    limiter.configure(LimiterSettings::from_numbers(2, None, 8, 0).unwrap(), s(1));
    for ticket in &calls[..2] {
        limiter.give_back(*ticket, CallEnd::Answered, s(2));
        assert_eq!(limiter.poll(s(2)), vec![]);
    }
    limiter.give_back(calls[2], CallEnd::Answered, s(3));
    assert_eq!(limiter.poll(s(3)), vec![Decision::Admit(waiter)]);
    limiter.configure(LimiterSettings::from_numbers(8, None, 8, 0).unwrap(), s(4));
    assert_eq!(limiter.view(s(4)).admission_limit, 8);
}

#[test]
fn requests_per_minute_switched_on_later_count_what_is_in_flight() {
    let mut limiter = limiter(4, None, 8, 0);
    for at in 0..3 {
        admitted(limiter.ask(Foreground, s(at)));
    }
    limiter.configure(
        LimiterSettings::from_numbers(4, Some(3), 8, 0).unwrap(),
        s(5),
    );
    queued(limiter.ask(Foreground, s(5)));
    assert_eq!(limiter.gate_opens_at(s(5)), Some(s(60)));
}
