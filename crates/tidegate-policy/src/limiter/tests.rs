//! Examples by name, then the limiter against a plain model over random histories.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use CallClass::{Background, Foreground};

const fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn limiter(max_in_flight: u32, rpm: Option<u32>, max_queue: u32, wait_ms: u64) -> Limiter {
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

/// One event of a random history.
#[derive(Debug, Clone)]
enum Step {
    Ask(CallClass),
    /// The n-th open ticket, counted round, ends like this.
    GiveBack(usize, CallEnd),
    Wait(u64),
    Configure(u32, Option<u32>, u32, u64),
}

fn step() -> impl Strategy<Value = Step> {
    let class = prop_oneof![2 => Just(Foreground), 1 => Just(Background)];
    let end = prop_oneof![
        6 => Just(CallEnd::Answered),
        2 => Just(CallEnd::Other),
        1 => Just(CallEnd::Unsent),
        1 => proptest::option::of(0u64..20).prop_map(|hint| CallEnd::Throttled { retry_after: hint.map(s) }),
    ];
    prop_oneof![
        8 => class.prop_map(Step::Ask),
        6 => (any::<usize>(), end).prop_map(|(n, end)| Step::GiveBack(n, end)),
        4 => (0u64..25_000).prop_map(Step::Wait),
        1 => (1u32..6, proptest::option::of(1u32..12), 0u32..6, prop_oneof![Just(0u64), 1u64..40_000])
            .prop_map(|(flight, rpm, queue, wait)| Step::Configure(flight, rpm, queue, wait)),
    ]
}

/// What the rules say, written down the slow and obvious way.
#[derive(Default)]
struct Model {
    settings: LimiterSettings,
    waiting: Vec<(Ticket, CallClass, Option<Duration>)>,
    flying: BTreeMap<Ticket, CallClass>,
    /// The starts that count: all but those never sent, and those that ended before the limit was switched on.
    starts: Vec<(Duration, Ticket)>,
}

impl Model {
    fn waiting_of(&self, class: CallClass) -> usize {
        self.waiting
            .iter()
            .filter(|waiter| waiter.1 == class)
            .count()
    }

    fn next(&self) -> Option<(Ticket, CallClass)> {
        CallClass::ALL.into_iter().find_map(|class| {
            self.waiting
                .iter()
                .find(|waiter| waiter.1 == class)
                .map(|waiter| (waiter.0, class))
        })
    }

    fn begin(&mut self, ticket: Ticket, class: CallClass, now: Duration, view: LimiterView) {
        assert!(
            self.flying.len() < self.settings.max_in_flight.get() as usize,
            "above the cap"
        );
        assert!(
            self.flying.len() < view.admission_limit as usize,
            "above the admission limit"
        );
        assert_eq!(view.paused_for, Duration::ZERO, "inside a pause");
        if let Some(rpm) = self.settings.rpm {
            let recent = self
                .starts
                .iter()
                .filter(|(at, _)| *at + RPM_WINDOW > now)
                .count();
            assert!(recent < rpm.get() as usize, "above the requests per minute");
        }
        assert!(
            self.flying.insert(ticket, class).is_none(),
            "a ticket is used once"
        );
        self.starts.push((now, ticket));
    }

    fn check(&self, limiter: &Limiter, now: Duration) {
        let view = limiter.view(now);
        assert_eq!(view.in_flight as usize, self.flying.len());
        assert_eq!(
            view.waiting_foreground as usize,
            self.waiting_of(Foreground)
        );
        assert_eq!(
            view.waiting_background as usize,
            self.waiting_of(Background)
        );
        assert!(
            view.admission_limit >= 1 && view.admission_limit <= self.settings.max_in_flight.get()
        );
    }

    fn ask(&mut self, limiter: &mut Limiter, class: CallClass, now: Duration) {
        let before = limiter.view(now);
        match limiter.ask(class, now) {
            Verdict::Admitted(ticket) => {
                let ahead = self.waiting_of(Foreground)
                    + if class == Background {
                        self.waiting_of(Background)
                    } else {
                        0
                    };
                assert_eq!(ahead, 0, "a newcomer overtook");
                self.begin(ticket, class, now, before);
            }
            Verdict::Queued { ticket, deadline } => {
                assert!(
                    self.waiting_of(class) < self.settings.max_queue as usize,
                    "above the queue bound"
                );
                assert_eq!(
                    deadline,
                    self.settings.wait_limit(class).map(|limit| now + limit)
                );
                assert!(
                    class == Foreground || deadline.is_some(),
                    "background always has a deadline"
                );
                self.waiting.push((ticket, class, deadline));
            }
            Verdict::Busy(busy) => {
                assert!(
                    self.waiting_of(class) >= self.settings.max_queue as usize,
                    "refused below the bound"
                );
                assert!(busy.retry_after >= RETRY_AFTER_MIN && busy.retry_after <= RETRY_AFTER_MAX);
            }
        }
    }

    fn give_back(&mut self, limiter: &mut Limiter, nth: usize, end: CallEnd, now: Duration) {
        let open: Vec<_> = self
            .waiting
            .iter()
            .map(|w| w.0)
            .chain(self.flying.keys().copied())
            .collect();
        if open.is_empty() {
            return;
        }
        let ticket = open[nth % open.len()];
        assert!(limiter.give_back(ticket, end, now));
        assert!(!limiter.give_back(ticket, end, now), "given back twice");
        self.waiting.retain(|waiter| waiter.0 != ticket);
        if self.flying.remove(&ticket).is_some() && end == CallEnd::Unsent {
            self.starts.retain(|start| start.1 != ticket);
        }
    }

    fn poll(&mut self, limiter: &mut Limiter, now: Duration) {
        let due: Vec<_> = self
            .waiting
            .iter()
            .filter(|w| w.2.is_some_and(|at| at <= now))
            .map(|w| w.0)
            .collect();
        let mut refused = Vec::new();
        for decision in limiter.poll(now) {
            match decision {
                Decision::Refuse(ticket, busy) => {
                    assert_eq!(busy.cause, BusyCause::WaitedTooLong);
                    refused.push(ticket);
                    self.waiting.retain(|waiter| waiter.0 != ticket);
                }
                Decision::Admit(ticket) => {
                    let (expected, class) = self.next().expect("somebody waits");
                    assert_eq!(
                        ticket, expected,
                        "foreground first, each class in the order of arrival"
                    );
                    self.waiting.retain(|waiter| waiter.0 != ticket);
                    let mut view = limiter.view(now);
                    view.in_flight = u32::try_from(self.flying.len()).unwrap();
                    self.begin(ticket, class, now, view);
                }
            }
        }
        refused.sort_unstable();
        let mut due_sorted = due;
        due_sorted.sort_unstable();
        assert_eq!(
            refused, due_sorted,
            "exactly those whose wait is over are refused"
        );
        self.check_progress(limiter, now);
    }

    /// After a poll nobody waits beside room: either slots are full, or the gate says when it opens.
    fn check_progress(&self, limiter: &Limiter, now: Duration) {
        let view = limiter.view(now);
        if !self.waiting.is_empty() && view.in_flight < view.admission_limit {
            let opens = limiter
                .gate_opens_at(now)
                .expect("somebody waits beside free slots for ever");
            assert!(opens > now, "the gate is open and nobody went");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    /// R13.1, R13.2: conservation, caps, order, bounds and progress over random histories.
    #[test]
    fn random_histories_follow_the_model(steps in proptest::collection::vec(step(), 1..250)) {
        let settings = LimiterSettings::from_numbers(2, None, 3, 10_000).unwrap();
        let mut model = Model { settings, ..Model::default() };
        let mut limiter = Limiter::new(settings);
        let mut now = Duration::ZERO;
        for step in steps {
            match step {
                Step::Ask(class) => model.ask(&mut limiter, class, now),
                Step::GiveBack(nth, end) => model.give_back(&mut limiter, nth, end, now),
                Step::Wait(ms) => now += Duration::from_millis(ms),
                Step::Configure(flight, rpm, queue, wait) => {
                    let settings = LimiterSettings::from_numbers(flight, rpm, queue, wait).unwrap();
                    if model.settings.rpm.is_none() && settings.rpm.is_some() {
                        model.starts.retain(|(_, ticket)| model.flying.contains_key(ticket));
                    }
                    limiter.configure(settings, now);
                    model.settings = settings;
                }
            }
            model.poll(&mut limiter, now);
            model.check(&limiter, now);
        }
        for ticket in model.flying.keys().copied().chain(model.waiting.iter().map(|waiter| waiter.0)) {
            limiter.give_back(ticket, CallEnd::Other, now);
        }
        let view = limiter.view(now);
        prop_assert_eq!((view.in_flight, view.waiting_foreground, view.waiting_background), (0, 0, 0));
    }

    /// The waiters always drain: with answers and time alone, nobody stays behind.
    #[test]
    fn every_waiter_is_decided(classes in proptest::collection::vec(any::<bool>(), 1..120), rpm in proptest::option::of(1u32..9)) {
        let mut limiter = limiter(3, rpm, 64, 0);
        let mut now = Duration::ZERO;
        let mut flying = VecDeque::new();
        let mut decided = 0;
        let mut refused = 0;
        for background in &classes {
            match limiter.ask(if *background { Background } else { Foreground }, now) {
                Verdict::Admitted(ticket) => { flying.push_back(ticket); decided += 1; }
                Verdict::Queued { .. } => {}
                Verdict::Busy(_) => refused += 1,
            }
        }
        for _ in 0..1_000 {
            if let Some(ticket) = flying.pop_front() {
                limiter.give_back(ticket, CallEnd::Answered, now);
            }
            for decision in limiter.poll(now) {
                decided += 1;
                if let Decision::Admit(ticket) = decision { flying.push_back(ticket); }
            }
            now = limiter.gate_opens_at(now).unwrap_or(now + s(1));
        }
        prop_assert_eq!(decided + refused, classes.len());
    }

    #[test]
    fn hints_stay_within_their_bounds(unit in proptest::num::f64::ANY, after in 0u64..1_000, spread in 0u64..1_000) {
        let busy = Busy { cause: BusyCause::QueueFull, retry_after: s(after.clamp(1, 300)), spread: s(spread.clamp(5, 300)) };
        let hint = busy.retry_after_spread(unit);
        prop_assert!(hint >= busy.retry_after && hint <= busy.retry_after + busy.spread);
    }
}
