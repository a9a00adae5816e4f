//! Carries out what [`tidegate_policy::limiter`] decides: waits, wake-ups and guards.
//!
//! There is no task behind it. Waiters drive the limiter themselves: each sleeps until its own deadline or until the
//! gate opens, whichever comes first, and whoever gives back a slot decides at once who goes next. So nothing is left
//! to stop or to leak, and a limiter nobody uses costs nothing.
//!
//! Invariant: every ticket is owned by one [`Slot`], whose drop gives back whatever the ticket stands for at that
//! moment, its place in the queue or its slot. A caller that leaves between being chosen and noticing it is no special
//! case (R13.2, O-18).

use std::{collections::HashMap, sync::Arc, time::Duration};

use parking_lot::Mutex;
use tidegate_model::ids::CatalogName;
use tidegate_policy::limiter::{
    Busy, CallClass, CallEnd, Decision, Limiter, LimiterSettings, LimiterView, Ticket, Verdict,
};
use tokio::{
    sync::{Notify, oneshot},
    time::{Instant, sleep_until},
};

use crate::{dice::Dice, error::LlmError, record::measure_limiter};

type Answer = Result<(), Busy>;

/// The limiter of one provider on one instance. Outlives changes of the provider's configuration, so that calls in
/// flight keep counting.
#[derive(Debug)]
pub struct ProviderLimiter {
    provider: CatalogName,
    started: Instant,
    state: Mutex<State>,
    /// Rung when the gate opens at another time than waiters believe.
    gate_moved: Notify,
    dice: Dice,
}

#[derive(Debug)]
struct State {
    machine: Limiter,
    waiters: HashMap<Ticket, oneshot::Sender<Answer>>,
    gate_opens_at: Option<Duration>,
}

impl ProviderLimiter {
    /// A limiter with nothing in flight.
    pub fn new(provider: CatalogName, settings: LimiterSettings, dice: Dice) -> Arc<Self> {
        let state = State {
            machine: Limiter::new(settings),
            waiters: HashMap::new(),
            gate_opens_at: None,
        };
        Arc::new(Self {
            provider,
            started: Instant::now(),
            state: Mutex::new(state),
            gate_moved: Notify::new(),
            dice,
        })
    }

    /// The provider it protects.
    pub fn provider(&self) -> &CatalogName {
        &self.provider
    }

    /// The figures at this moment.
    pub fn view(&self) -> LimiterView {
        self.state.lock().machine.view(self.now())
    }

    /// The settings in force.
    pub fn settings(&self) -> LimiterSettings {
        self.state.lock().machine.settings()
    }

    /// Takes new settings at once; calls in flight stay.
    pub fn configure(&self, settings: LimiterSettings) {
        self.with(|machine, now| machine.configure(settings, now));
    }

    /// Waits for a slot. Dropping the future leaves the queue at once.
    pub async fn acquire(
        self: &Arc<Self>,
        class: CallClass,
        deadline: Option<Instant>,
    ) -> Result<Slot, LlmError> {
        let mut receiver = None;
        let verdict = self.with_state(|state, now| {
            let verdict = state.machine.ask(class, now);
            if let Verdict::Queued { ticket, .. } = verdict {
                let (sender, answer) = oneshot::channel();
                state.waiters.insert(ticket, sender);
                receiver = Some(answer);
            }
            verdict
        });
        match verdict {
            Verdict::Admitted(ticket) => Ok(self.guard(ticket)),
            Verdict::Busy(busy) => Err(self.refusal(busy)),
            Verdict::Queued {
                ticket,
                deadline: wait_ends,
            } => {
                let guard = self.guard(ticket);
                let Some(receiver) = receiver else {
                    return Err(LlmError::DeadlineExceeded);
                };
                self.wait(guard, receiver, wait_ends, deadline).await
            }
        }
    }

    async fn wait(
        self: &Arc<Self>,
        guard: Slot,
        mut receiver: oneshot::Receiver<Answer>,
        wait_ends: Option<Duration>,
        deadline: Option<Instant>,
    ) -> Result<Slot, LlmError> {
        loop {
            // Registered before the gate is read, so that no move of the gate is missed.
            let moved = self.gate_moved.notified();
            tokio::pin!(moved);
            moved.as_mut().enable();
            let gate = self.state.lock().gate_opens_at;
            let wake = gate
                .into_iter()
                .chain(wait_ends)
                .min()
                .map(|at| self.started + at);
            tokio::select! {
                biased;
                answer = &mut receiver => {
                    return match answer {
                        Ok(Ok(())) => Ok(guard),
                        Ok(Err(busy)) => Err(self.refusal(busy)),
                        // The sender is only dropped together with the limiter's state, which this borrow keeps.
                        Err(_) => Err(LlmError::DeadlineExceeded),
                    };
                }
                () = sleep_or_never(deadline) => return Err(LlmError::DeadlineExceeded),
                () = sleep_or_never(wake) => self.with(|_, _| ()),
                () = moved => {}
            }
        }
    }

    fn guard(self: &Arc<Self>, ticket: Ticket) -> Slot {
        Slot {
            limiter: Arc::clone(self),
            ticket,
            end: CallEnd::Unsent,
        }
    }

    fn refusal(&self, busy: Busy) -> LlmError {
        LlmError::Busy {
            provider: self.provider.clone(),
            cause: busy.cause,
            retry_after: busy.retry_after_spread(self.dice.unit()),
        }
    }

    fn now(&self) -> Duration {
        self.started.elapsed()
    }

    fn with<T>(&self, change: impl FnOnce(&mut Limiter, Duration) -> T) -> T {
        self.with_state(|state, now| change(&mut state.machine, now))
    }

    /// Lets those go whose turn came by time alone, applies a change, and lets those go whom it made room for.
    fn with_state<T>(&self, change: impl FnOnce(&mut State, Duration) -> T) -> T {
        let mut state = self.state.lock();
        let now = self.now();
        let mut decided = state.decide(now);
        let result = change(&mut state, now);
        decided.extend(state.decide(now));
        let gate = state.machine.gate_opens_at(now);
        let moved = gate != state.gate_opens_at;
        state.gate_opens_at = gate;
        // Still locked: gauges set out of order would show an old state for ever.
        measure_limiter(&self.provider, state.machine.view(now));
        drop(state);
        for (sender, answer) in decided {
            // A receiver that is gone belongs to a caller that left: its guard gives back what was granted here.
            let _left = sender.send(answer);
        }
        if moved {
            self.gate_moved.notify_waiters();
        }
        result
    }
}

impl State {
    fn decide(&mut self, now: Duration) -> Vec<(oneshot::Sender<Answer>, Answer)> {
        let decisions = self.machine.poll(now);
        decisions
            .into_iter()
            .filter_map(|decision| {
                let (ticket, answer) = match decision {
                    Decision::Admit(ticket) => (ticket, Ok(())),
                    Decision::Refuse(ticket, busy) => (ticket, Err(busy)),
                };
                self.waiters.remove(&ticket).map(|sender| (sender, answer))
            })
            .collect()
    }
}

async fn sleep_or_never(until: Option<Instant>) {
    match until {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// A place in the queue that becomes a slot at the provider. Given back exactly once, when dropped.
#[derive(Debug)]
pub struct Slot {
    limiter: Arc<ProviderLimiter>,
    ticket: Ticket,
    end: CallEnd,
}

impl Slot {
    /// The request is on its way: from now on it counts against the requests per minute.
    pub fn sent(&mut self) {
        self.end = CallEnd::Other;
    }

    /// Says how the call ended; the slot is given back when the guard is dropped.
    pub fn ended(&mut self, end: CallEnd) {
        self.end = end;
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let (ticket, end) = (self.ticket, self.end);
        self.limiter.with_state(|state, now| {
            state.waiters.remove(&ticket);
            state.machine.give_back(ticket, end, now);
        });
    }
}
