//! Claims that nobody receives are handed back (R4.1, O-32).
//!
//! The engine's claim commits leases; whoever asked may be gone by then. A claim therefore runs in a task of its own,
//! and its leases travel in a [`Held`], which gives them back wherever it is dropped: before the answer is written,
//! in a channel nobody reads, or in the body of a response that is never sent. Handing back costs the run no attempt. What
//! the connection took and the network lost is beyond this; it comes back when the lease expires. A key that is revoked or
//! runs out while its claim waits is given nothing either.

use tidegate_engine::{
    Engine, Error, Principal,
    worker::{claim, close},
};
use tidegate_model::{
    Code,
    api::{AttemptUsage, ClaimAnswer, ClaimRequest, Lease, ReleaseRun},
};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use crate::{extract::Credential, shutdown::Shutdown};

/// Leases on their way to their holder.
#[must_use]
pub struct Held {
    engine: Engine,
    principal: Principal,
    leases: Vec<Lease>,
}

impl std::fmt::Debug for Held {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Held")
            .field("leases", &self.leases.len())
            .finish_non_exhaustive()
    }
}

impl Held {
    /// What will be told to the holder; the leases stay guarded.
    pub fn answer(&self) -> ClaimAnswer {
        ClaimAnswer {
            leases: self.leases.clone(),
        }
    }

    /// The holder has them now.
    pub fn delivered(&mut self) {
        self.leases.clear();
    }

    /// Gives the leases to a holder in this process.
    pub fn into_answer(mut self) -> ClaimAnswer {
        ClaimAnswer {
            leases: std::mem::take(&mut self.leases),
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let leases = std::mem::take(&mut self.leases);
        if leases.is_empty() {
            return;
        }
        let (engine, principal) = (self.engine.clone(), self.principal.clone());
        // Without a runtime the process is ending, and takeover finds the leases.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(hand_back(engine, principal, leases).in_current_span());
        }
    }
}

async fn hand_back(engine: Engine, principal: Principal, leases: Vec<Lease>) {
    for lease in leases {
        let request = ReleaseRun {
            fence: lease.fence,
            usage: AttemptUsage::default(),
        };
        let run = lease.run.run_id;
        match close::release(&engine, &principal, run, request).await {
            Ok(_) => {
                metrics::counter!("tidegate_claims_returned_total").increment(1);
                tracing::info!(run_id = %run, "a claim's client had gone; the run was handed back");
            }
            Err(error) => {
                tracing::warn!(run_id = %run, %error, "a lease that nobody received stays until it expires");
            }
        }
    }
}

/// Claims, waiting as long as the request says, unless the caller goes away, its credential is lost or the server drains.
/// A worker in this process has no credential.
pub async fn wait(
    engine: Engine,
    principal: Principal,
    credential: Option<Credential>,
    shutdown: Shutdown,
    request: ClaimRequest,
) -> Result<Held, Error> {
    if shutdown.is_draining() {
        let detail = "this instance is ending; claim at another one";
        return Err(Error::refused(Code::ShuttingDown, detail));
    }
    let (mut caller, answer) = oneshot::channel();
    let task = async move {
        let result = run(
            &engine,
            &principal,
            credential.as_ref(),
            &shutdown,
            &mut caller,
            request,
        )
        .await;
        let mut result = result.map(|leases| Held {
            engine: engine.clone(),
            principal,
            leases,
        });
        // Asked again: the wait may have been longer than the key lived. What was taken is dropped, and so handed back.
        if result.is_ok()
            && let Some(credential) = credential
            && let Err(lost) = credential.check(&engine).await
        {
            result = Err(lost);
        }
        // A caller that is gone gets nothing: the leases are dropped, and so handed back.
        drop(caller.send(result));
    };
    tokio::spawn(task.in_current_span());
    answer.await.unwrap_or(Err(Error::Internal {
        what: "the task of a claim ended without an answer",
    }))
}

/// The engine's claim. It is never dropped in the middle of a statement, however long that takes: leases that were
/// committed but never seen would be held by nobody until they expire.
async fn run(
    engine: &Engine,
    principal: &Principal,
    credential: Option<&Credential>,
    shutdown: &Shutdown,
    caller: &mut oneshot::Sender<Result<Held, Error>>,
    request: ClaimRequest,
) -> Result<Vec<Lease>, Error> {
    let gone = CancellationToken::new();
    let lost = async {
        match credential.cloned() {
            Some(credential) => credential.revoked(engine.clone()).await,
            None => std::future::pending().await,
        }
    };
    let claim = claim::claim_until(engine, principal, request, &gone);
    tokio::pin!(claim);
    let answer = tokio::select! {
        answer = &mut claim => answer,
        () = caller.closed() => {
            gone.cancel();
            claim.await
        }
        () = lost => {
            gone.cancel();
            claim.await
        }
        () = shutdown.draining().cancelled() => {
            // Wakes the claim, which then answers with nothing.
            engine.drain();
            claim.await
        }
    };
    answer.map(|answer| answer.leases)
}
