//! How one admission lives: who may change it, and what a settlement does (R7.2, R7.5, R10).

use tidegate_model::{Fence, admission::AdmissionState};

/// A grant as it stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Held {
    /// Of which resource.
    pub resource: i32,
    /// What was reserved.
    pub granted: i64,
    /// What is held of it now; 0 once it was given back.
    pub held: i64,
    /// What was really used, once that is known.
    pub settled: Option<i64>,
}

impl Held {
    /// Of a fresh grant.
    pub const fn of(resource: i32, amount: i64) -> Self {
        Self {
            resource,
            granted: amount,
            held: amount,
            settled: None,
        }
    }

    /// Gives the rest back; the change of what is held.
    pub const fn release(&mut self) -> i64 {
        let change = -self.held;
        self.held = 0;
        change
    }

    /// Takes note of what was really used; the change of what is held. What was used above the grant is held in full, as
    /// nothing could take it back (R10.2). A second settlement changes nothing, nor does one of a grant that was given back.
    pub const fn settle(&mut self, used: i64) -> i64 {
        if self.settled.is_some() || self.held == 0 {
            return 0;
        }
        let change = used - self.held;
        self.settled = Some(used);
        self.held = used;
        change
    }

    /// Whether more was used than was granted.
    pub const fn is_overused(&self) -> bool {
        match self.settled {
            Some(used) => used > self.granted,
            None => false,
        }
    }
}

/// Why a call changes nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// It is over.
    Ended,
    /// Its time has run out; it ends now, as expired.
    TimeOut,
    /// The caller's fence is not the one in force.
    Fence,
}

/// Whether a holder that shows `shown` may change an admission. A passed time counts whether or not anybody has swept yet;
/// a fence of a lost history, or an older one, is no proof (R7.5).
pub fn may_change(
    state: AdmissionState,
    fence: Fence,
    shown: Fence,
    time_is_over: bool,
) -> Result<(), Refusal> {
    if state.is_ended() {
        return Err(Refusal::Ended);
    }
    if shown != fence {
        return Err(Refusal::Fence);
    }
    if time_is_over {
        return Err(Refusal::TimeOut);
    }
    Ok(())
}

/// Where an admission stands after a phase: released once nothing is held any more. One that never held anything bounded
/// stays until it is given back or its time runs out.
pub fn after_phase(grants: &[Held]) -> AdmissionState {
    if !grants.is_empty() && grants.iter().all(|grant| grant.held == 0) {
        AdmissionState::Released
    } else {
        AdmissionState::Active
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn fence(number: i64) -> Fence {
        Fence {
            generation: 1,
            number,
        }
    }

    /// R10.1, R10.2: a settlement pairs with its grant once; use above it is charged in full.
    #[test]
    fn a_grant_is_settled_once() {
        let mut grant = Held::of(1, 10);
        assert_eq!(grant.settle(4), -6);
        assert_eq!(grant.settle(9), 0, "the second one changes nothing");
        assert_eq!((grant.held, grant.is_overused()), (4, false));
        assert_eq!(grant.release(), -4);
        assert_eq!(grant.release(), 0, "releasing twice is harmless");

        let mut above = Held::of(1, 10);
        assert_eq!(above.settle(15), 5);
        assert!(above.is_overused());
        assert_eq!(above.release(), -15);

        let mut gone = Held::of(1, 10);
        assert_eq!(gone.release(), -10);
        assert_eq!((gone.settle(3), gone.settled), (0, None));
    }

    /// R7.5: neither an old fence nor a passed time lets a holder change anything.
    #[test]
    fn only_the_holder_in_time_may_change_it() {
        use AdmissionState::{Active, Expired, Released};
        assert_eq!(may_change(Active, fence(3), fence(3), false), Ok(()));
        assert_eq!(
            may_change(Active, fence(3), fence(2), false),
            Err(Refusal::Fence)
        );
        assert_eq!(
            may_change(Active, fence(3), fence(3), true),
            Err(Refusal::TimeOut)
        );
        for ended in [Released, Expired] {
            let shown = may_change(ended, fence(3), fence(3), false);
            assert_eq!(shown, Err(Refusal::Ended));
        }
    }

    /// R7.2: an admission with no held grant left is released.
    #[test]
    fn the_last_grant_ends_the_admission() {
        let mut grants = [Held::of(1, 1), Held::of(2, 5)];
        grants[0].release();
        assert_eq!(after_phase(&grants), AdmissionState::Active);
        grants[1].settle(0);
        assert_eq!(after_phase(&grants), AdmissionState::Released);
        assert_eq!(after_phase(&[]), AdmissionState::Active);
    }
}
