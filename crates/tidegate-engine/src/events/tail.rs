//! `GET /v1/runs/{id}/events`: the events of a run after a position, then as they come, to the end of the run (R4.6).

use std::{collections::VecDeque, sync::Arc, time::Duration};

use futures::Stream;
use tidegate_model::{Code, RunId, api::RunEvent, event::EventKind};
use tidegate_store::{
    TenantStore,
    read::events::{Followed, PageBounds, StreamBounds},
};
use tokio::sync::broadcast::{Receiver, error::RecvError};

use crate::{Engine, Error, Principal};

/// What one read gives. It is all that a stream holds, since the next read waits until the reader has taken the last one
/// (backpressure); an event that is larger by itself is read alone and handed out at once.
const PAGE: PageBounds = PageBounds {
    events: 200,
    bytes: 64 << 10,
};
/// A stream that has heard nothing for this long looks for itself, so that a lost hand-over costs a delay only.
const QUIET_MAX: Duration = Duration::from_secs(5);

/// The events of a run of the caller's tenant after event `after_seq` (0 for all), without a gap.
///
/// Ends after `run.ended`, or at once where there is nothing left to come. Refuses a position that was already pruned
/// (`EVENTS_PRUNED`, with the first one kept) and one that the run has not reached.
pub async fn tail(
    engine: &Engine,
    principal: &Principal,
    run: RunId,
    after_seq: i64,
) -> Result<impl Stream<Item = Result<RunEvent, Error>> + Send + use<>, Error> {
    let store = engine.store().tenant(principal.require_tenant()?);
    let bounds = {
        let _turn = engine.events().may_read().await?;
        store.event_bounds(run).await?
    };
    let bounds = bounds.ok_or_else(|| Error::not_found("run"))?;
    check(bounds, after_seq)?;
    let tail = Tail {
        engine: engine.clone(),
        store,
        run,
        last: after_seq,
        known: bounds.last,
        behind: true,
        ready: VecDeque::new(),
        live: None,
        state: if bounds.ended && after_seq >= bounds.last {
            State::Over
        } else {
            State::Following
        },
    };
    Ok(futures::stream::unfold(tail, Tail::next))
}

fn check(bounds: StreamBounds, after: i64) -> Result<(), Error> {
    if after < 0 || after > bounds.last {
        return Err(Error::invalid(
            "Last-Event-ID",
            format!(
                "the run has events up to {}; pass a number from 0 to that, or none to read from the start",
                bounds.last
            ),
        ));
    }
    let first = bounds.first.unwrap_or(bounds.last + 1);
    if after + 1 < first && after < bounds.last {
        return Err(pruned(first));
    }
    Ok(())
}

fn pruned(first: i64) -> Error {
    Error::refused(
        Code::EventsPruned,
        format!(
            "events before {first} are gone; read on with Last-Event-ID {}",
            first - 1
        ),
    )
    .with_first_seq(first)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Following,
    /// The last event handed out was `run.ended`; a dead letter that was put back goes on after it.
    PerhapsOver,
    Over,
}

struct Tail {
    engine: Engine,
    store: TenantStore,
    run: RunId,
    /// The last event handed out, or read and about to be.
    last: i64,
    /// The last event that is known to have been written.
    known: i64,
    /// There may be events that will not be handed on to it.
    behind: bool,
    ready: VecDeque<RunEvent>,
    live: Option<Receiver<Arc<Followed>>>,
    state: State,
}

impl Tail {
    async fn next(mut self) -> Option<(Result<RunEvent, Error>, Self)> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                self.state = if event.kind == EventKind::RunEnded && self.ready.is_empty() {
                    State::PerhapsOver
                } else {
                    State::Following
                };
                return Some((Ok(event), self));
            }
            let advanced = match self.state {
                State::Over => return None,
                State::PerhapsOver => self.settle().await,
                State::Following => self.advance().await,
            };
            if let Err(error) = advanced {
                // An error ends the stream; the caller resumes after the last event it has.
                self.state = State::Over;
                return Some((Err(error), self));
            }
        }
    }

    async fn bounds(&self) -> Result<Option<StreamBounds>, Error> {
        let _turn = self.engine.events().may_read().await?;
        Ok(self.store.event_bounds(self.run).await?)
    }

    /// After `run.ended`: over, unless the run was put back.
    async fn settle(&mut self) -> Result<(), Error> {
        self.state = match self.bounds().await? {
            Some(bounds) if !bounds.ended || bounds.last > self.last => {
                self.known = self.known.max(bounds.last);
                State::Following
            }
            _ => State::Over,
        };
        Ok(())
    }

    async fn advance(&mut self) -> Result<(), Error> {
        if self.last < self.known {
            return self.read().await;
        }
        // Joined once what was known is read, and before the read that finds nothing: events may have been handed on in
        // between.
        let (hub, store) = (self.engine.events(), &self.store);
        let live = self.live.get_or_insert_with(|| {
            self.behind = true;
            hub.join(store.tenant(), self.run, self.last)
        });
        if self.behind {
            return self.read().await;
        }
        match tokio::time::timeout(QUIET_MAX, live.recv()).await {
            Ok(Ok(event)) if event.seq() <= self.last => {}
            Ok(Ok(followed)) => match &*followed {
                Followed::Event(event) if event.seq == self.last + 1 => {
                    self.last = event.seq;
                    self.ready.push_back(event.clone());
                }
                Followed::Event(RunEvent { seq, .. }) | Followed::Large(seq) => {
                    self.known = self.known.max(*seq);
                    self.behind = true;
                }
            },
            Ok(Err(RecvError::Lagged(_))) => self.behind = true,
            Ok(Err(RecvError::Closed)) => self.live = None,
            Err(_quiet) => return self.look_again().await,
        }
        Ok(())
    }

    async fn look_again(&mut self) -> Result<(), Error> {
        match self.bounds().await {
            // The tenant was erased under the reader.
            Ok(None) => self.state = State::Over,
            Ok(Some(bounds)) => self.known = self.known.max(bounds.last),
            // A stream outlives a restart of the database.
            Err(error) if error.code() == Code::DatabaseUnavailable => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Reads a page after the last event; an empty one is the end of what there is.
    async fn read(&mut self) -> Result<(), Error> {
        let page = {
            let _turn = self.engine.events().may_read().await?;
            self.store.events_after(self.run, self.last, PAGE).await?
        };
        if page.is_empty() {
            self.behind = false;
            if self.last < self.known {
                // What was there a moment ago was pruned under the reader, or erased with its tenant.
                if self.bounds().await?.is_some() {
                    return Err(pruned(self.known + 1));
                }
                self.state = State::Over;
            }
        }
        for event in page {
            if event.seq != self.last + 1 {
                // Numbers are given without gaps, so that what is missing was pruned under the reader.
                if self.ready.is_empty() {
                    return Err(pruned(event.seq));
                }
                break;
            }
            self.last = event.seq;
            self.ready.push_back(event);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// R4.6: a position outside of what is kept is refused, with the first one kept.
    #[test]
    fn positions_outside_of_the_stream_are_refused() {
        let bounds = |first, last| StreamBounds {
            first,
            last,
            ended: true,
        };
        for (first, last, after, code) in [
            (Some(1), 9, 0, None),
            (Some(1), 9, 9, None),
            (Some(1), 9, 10, Some(Code::InvalidArgument)),
            (Some(1), 9, -1, Some(Code::InvalidArgument)),
            (Some(5), 9, 3, Some(Code::EventsPruned)),
            (Some(5), 9, 4, None),
            (None, 9, 8, Some(Code::EventsPruned)),
            (None, 9, 9, None),
            (None, 0, 0, None),
        ] {
            let found = check(bounds(first, last), after).err();
            assert_eq!(
                found.as_ref().map(Error::code),
                code,
                "{first:?} {last} {after}"
            );
            if code == Some(Code::EventsPruned) {
                let (found, kept) = (found.unwrap(), first.unwrap_or(last + 1));
                assert_eq!(found.problem().first_seq, Some(kept));
                let detail = found.to_string();
                assert!(detail.contains(&format!("before {kept} ")), "{detail}");
            }
        }
    }
}
