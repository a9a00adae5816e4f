//! The limiter against a plain model over random histories.

use proptest::prelude::*;

use super::{
    tests::{limiter, s},
    *,
};
use CallClass::{Background, Foreground};

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
