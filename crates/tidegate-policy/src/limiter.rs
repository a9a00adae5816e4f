//! What the limiter of one model provider decides (R13.1, R13.2): who may call now, who waits, who is told to come back.
//!
//! A pure state machine. Time is an argument: the [`Duration`] since the limiter was made, on a clock that never goes
//! backwards. The layer that sends the requests (`tidegate-llm`) owns clock, wake-ups and the guards; after every event
//! it calls [`Limiter::poll`] and carries out what comes back.
//!
//! Not here: retries, the idle limit of a stream, a cap shared by instances.
//!
//! Invariants, proven by `limiter/model_tests.rs`:
//! - a call is admitted only below the cap, below the requests per minute and outside a pause of the provider;
//! - every ticket is waiting, in flight or gone; giving it back twice changes nothing;
//! - foreground leaves the queue before background, and each class in the order of arrival;
//! - a class has at most `max_queue` waiters, and a background waiter always has a deadline.

mod terms;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::Duration,
};

pub use terms::*;

/// How long a call is taken to last before one has been measured.
const HOLD_GUESS: Duration = Duration::from_secs(1);
/// The window is kept in thousandths of a slot, so that it can grow by less than one.
const SLOT: u64 = 1_000;

#[derive(Debug, Clone, Copy)]
struct Flight {
    class: CallClass,
    since: Duration,
}

/// Waiters of one class: tickets rise, so that their order is the order of arrival.
#[derive(Debug, Default)]
struct Queue {
    waiters: BTreeMap<Ticket, Option<Duration>>,
    deadlines: BTreeSet<(Duration, Ticket)>,
}

impl Queue {
    fn push(&mut self, ticket: Ticket, deadline: Option<Duration>) {
        self.waiters.insert(ticket, deadline);
        if let Some(at) = deadline {
            self.deadlines.insert((at, ticket));
        }
    }

    fn remove(&mut self, ticket: Ticket) -> bool {
        let Some(deadline) = self.waiters.remove(&ticket) else {
            return false;
        };
        if let Some(at) = deadline {
            self.deadlines.remove(&(at, ticket));
        }
        true
    }

    fn first(&self) -> Option<Ticket> {
        self.waiters.keys().next().copied()
    }

    fn expired(&self, now: Duration) -> Option<Ticket> {
        self.deadlines
            .first()
            .filter(|(at, _)| *at <= now)
            .map(|(_, ticket)| *ticket)
    }

    fn len(&self) -> u32 {
        u32::try_from(self.waiters.len()).unwrap_or(u32::MAX)
    }
}

/// The limiter of one provider on one instance.
#[derive(Debug)]
pub struct Limiter {
    settings: LimiterSettings,
    next_ticket: u64,
    in_flight: BTreeMap<Ticket, Flight>,
    foreground: Queue,
    background: Queue,
    /// Starts within the last minute, oldest first; kept only where the requests per minute are limited.
    begun: VecDeque<(Duration, Ticket)>,
    /// What the provider is believed to bear, in thousandths of a slot; never above the setting.
    window: u64,
    /// Calls begun before this ticket belong to an overload that was already answered by halving.
    shrunk_before: Ticket,
    paused_until: Duration,
    /// Consecutive 429s, for the pause where the provider names none.
    throttled_in_row: u32,
    /// Smoothed time that a call holds its slot.
    hold: Option<Duration>,
}

impl Limiter {
    /// A limiter with nothing in flight.
    pub fn new(settings: LimiterSettings) -> Self {
        Self {
            settings,
            next_ticket: 0,
            in_flight: BTreeMap::new(),
            foreground: Queue::default(),
            background: Queue::default(),
            begun: VecDeque::new(),
            window: u64::from(settings.max_in_flight.get()) * SLOT,
            shrunk_before: Ticket(0),
            paused_until: Duration::ZERO,
            throttled_in_row: 0,
            hold: None,
        }
    }

    /// The settings in force.
    pub fn settings(&self) -> LimiterSettings {
        self.settings
    }

    /// Takes new settings. Calls in flight stay; waiters keep the deadline they were given.
    pub fn configure(&mut self, settings: LimiterSettings, now: Duration) {
        let untouched = self.window >= u64::from(self.settings.max_in_flight.get()) * SLOT;
        let ceiling = u64::from(settings.max_in_flight.get()) * SLOT;
        self.window = if untouched {
            ceiling
        } else {
            self.window.min(ceiling)
        };
        if settings.rpm.is_none() {
            self.begun.clear();
        } else if self.settings.rpm.is_none() {
            // Starts were not kept so far; what is in flight is the part of them that is known.
            self.begun = self
                .in_flight
                .iter()
                .map(|(ticket, flight)| (flight.since, *ticket))
                .collect();
            self.begun.make_contiguous().sort_unstable();
        }
        self.settings = settings;
        self.forget_old_starts(now);
    }

    /// A call asks to go.
    pub fn ask(&mut self, class: CallClass, now: Duration) -> Verdict {
        self.forget_old_starts(now);
        let ahead = match class {
            CallClass::Foreground => self.foreground.len(),
            CallClass::Background => self.foreground.len() + self.background.len(),
        };
        if ahead == 0 && self.has_room(now) {
            let ticket = self.take_ticket();
            self.admit(ticket, class, now);
            return Verdict::Admitted(ticket);
        }
        if self.queue(class).len() >= self.settings.max_queue {
            return Verdict::Busy(self.busy(BusyCause::QueueFull, class, now));
        }
        let ticket = self.take_ticket();
        let deadline = self
            .settings
            .wait_limit(class)
            .map(|limit| now.saturating_add(limit));
        self.queue_mut(class).push(ticket, deadline);
        Verdict::Queued { ticket, deadline }
    }

    /// Gives back what a ticket stands for: its place in the queue or its slot. False where it has nothing any more.
    pub fn give_back(&mut self, ticket: Ticket, end: CallEnd, now: Duration) -> bool {
        if self.foreground.remove(ticket) || self.background.remove(ticket) {
            return true;
        }
        let Some(flight) = self.in_flight.remove(&ticket) else {
            return false;
        };
        match end {
            CallEnd::Unsent => self.begun.retain(|(_, begun)| *begun != ticket),
            CallEnd::Throttled { retry_after } => self.shrink(ticket, retry_after, now),
            CallEnd::Answered => {
                self.measure(now.saturating_sub(flight.since));
                self.grow(ticket);
            }
            CallEnd::Other => self.measure(now.saturating_sub(flight.since)),
        }
        true
    }

    /// Decides about the waiters: first those whose wait is over, then whoever finds room, foreground first.
    pub fn poll(&mut self, now: Duration) -> Vec<Decision> {
        self.forget_old_starts(now);
        let mut decisions = Vec::new();
        for class in CallClass::ALL {
            while let Some(ticket) = self.queue(class).expired(now) {
                self.queue_mut(class).remove(ticket);
                decisions.push(Decision::Refuse(
                    ticket,
                    self.busy(BusyCause::WaitedTooLong, class, now),
                ));
            }
        }
        while self.has_room(now) {
            let Some((class, ticket)) = self.next_waiter() else {
                break;
            };
            self.queue_mut(class).remove(ticket);
            self.admit(ticket, class, now);
            decisions.push(Decision::Admit(ticket));
        }
        decisions
    }

    /// When the gate opens by itself, if time is what keeps waiters: the end of a pause, or a start that leaves the
    /// minute. `None` where they wait for a slot, or nobody waits.
    pub fn gate_opens_at(&self, now: Duration) -> Option<Duration> {
        if self.next_waiter().is_none() || self.in_flight_len() >= self.admission_limit() {
            return None;
        }
        let rate = self.settings.rpm.and_then(|rpm| {
            let over = self.begun.len().checked_sub(rpm.get() as usize)?;
            self.begun.get(over).map(|(at, _)| *at + RPM_WINDOW)
        });
        let pause = (self.paused_until > now).then_some(self.paused_until);
        rate.max(pause)
    }

    /// The figures at this moment.
    pub fn view(&self, now: Duration) -> LimiterView {
        LimiterView {
            in_flight: self.in_flight_len(),
            admission_limit: self.admission_limit(),
            waiting_foreground: self.foreground.len(),
            waiting_background: self.background.len(),
            paused_for: self.paused_until.saturating_sub(now),
            begun_last_minute: u32::try_from(
                self.begun
                    .iter()
                    .filter(|(at, _)| *at + RPM_WINDOW > now)
                    .count(),
            )
            .unwrap_or(u32::MAX),
        }
    }

    /// The calls of a class in flight.
    pub fn in_flight_of(&self, class: CallClass) -> u32 {
        u32::try_from(
            self.in_flight
                .values()
                .filter(|flight| flight.class == class)
                .count(),
        )
        .unwrap_or(u32::MAX)
    }

    fn queue(&self, class: CallClass) -> &Queue {
        match class {
            CallClass::Foreground => &self.foreground,
            CallClass::Background => &self.background,
        }
    }

    fn queue_mut(&mut self, class: CallClass) -> &mut Queue {
        match class {
            CallClass::Foreground => &mut self.foreground,
            CallClass::Background => &mut self.background,
        }
    }

    fn next_waiter(&self) -> Option<(CallClass, Ticket)> {
        CallClass::ALL
            .into_iter()
            .find_map(|class| self.queue(class).first().map(|ticket| (class, ticket)))
    }

    fn take_ticket(&mut self) -> Ticket {
        let ticket = Ticket(self.next_ticket);
        self.next_ticket += 1;
        ticket
    }

    fn admit(&mut self, ticket: Ticket, class: CallClass, now: Duration) {
        self.in_flight.insert(ticket, Flight { class, since: now });
        if self.settings.rpm.is_some() {
            self.begun.push_back((now, ticket));
        }
    }

    fn in_flight_len(&self) -> u32 {
        u32::try_from(self.in_flight.len()).unwrap_or(u32::MAX)
    }

    fn admission_limit(&self) -> u32 {
        let window = u32::try_from(self.window / SLOT).unwrap_or(u32::MAX).max(1);
        window.min(self.settings.max_in_flight.get())
    }

    fn has_room(&self, now: Duration) -> bool {
        self.in_flight_len() < self.admission_limit()
            && self.paused_until <= now
            && self
                .settings
                .rpm
                .is_none_or(|rpm| self.begun.len() < rpm.get() as usize)
    }

    fn forget_old_starts(&mut self, now: Duration) {
        while self
            .begun
            .front()
            .is_some_and(|(at, _)| *at + RPM_WINDOW <= now)
        {
            self.begun.pop_front();
        }
    }

    /// A 429 halves what is admitted, once per round: calls that were already under way when it was halved say nothing
    /// new. It also pauses admission for as long as the provider asks.
    fn shrink(&mut self, ticket: Ticket, retry_after: Option<Duration>, now: Duration) {
        if ticket >= self.shrunk_before {
            self.throttled_in_row = self.throttled_in_row.saturating_add(1);
            let load = u64::from(self.in_flight_len().saturating_add(1)) * SLOT;
            self.window = (self.window.min(load) / 2).max(SLOT);
            self.shrunk_before = Ticket(self.next_ticket);
        }
        let pause = retry_after.unwrap_or_else(|| {
            let doublings = self.throttled_in_row.saturating_sub(1).min(16);
            PAUSE_MIN.saturating_mul(1 << doublings)
        });
        self.paused_until = self
            .paused_until
            .max(now.saturating_add(pause.min(PAUSE_MAX)));
    }

    /// Each full round of answers gives one slot back.
    fn grow(&mut self, ticket: Ticket) {
        if ticket >= self.shrunk_before {
            self.throttled_in_row = 0;
        }
        let ceiling = u64::from(self.settings.max_in_flight.get()) * SLOT;
        let slots = (self.window / SLOT).max(1);
        self.window = (self.window + SLOT.div_ceil(slots)).min(ceiling);
    }

    fn measure(&mut self, held: Duration) {
        self.hold = Some(match self.hold {
            // The newest call weighs one eighth: some dozens of calls forget a slow phase.
            Some(mean) => (mean * 7 + held) / 8,
            None => held,
        });
    }

    /// The time one place takes to become free. Calls that hang must show, although they have not ended: so it is at
    /// least the mean age of what is in flight.
    fn time_per_place(&self, now: Duration) -> Duration {
        let in_flight = self.in_flight_len();
        let age: Duration = self
            .in_flight
            .values()
            .map(|flight| now.saturating_sub(flight.since))
            .sum();
        let mean_age = age.checked_div(in_flight).unwrap_or_default();
        let by_slots = self.hold.unwrap_or(HOLD_GUESS).max(mean_age) / self.admission_limit();
        let by_rate = self
            .settings
            .rpm
            .map_or(Duration::ZERO, |rpm| RPM_WINDOW / rpm.get());
        by_slots.max(by_rate)
    }

    fn busy(&self, cause: BusyCause, class: CallClass, now: Duration) -> Busy {
        let waiting = self.foreground.len() + self.background.len();
        let ahead = match class {
            CallClass::Foreground => self.foreground.len(),
            CallClass::Background => waiting,
        };
        let place = self.time_per_place(now);
        let wait = self
            .paused_until
            .saturating_sub(now)
            .saturating_add(place.saturating_mul(ahead.saturating_add(1)));
        Busy {
            cause,
            retry_after: wait.clamp(RETRY_AFTER_MIN, RETRY_AFTER_MAX),
            spread: place
                .saturating_mul(waiting)
                .clamp(RETRY_SPREAD_MIN, RETRY_AFTER_MAX),
        }
    }
}

#[cfg(test)]
mod model_tests;
#[cfg(test)]
mod tests;
