//! States of admissions and of their grants, with their transitions (R7.2).

use crate::text_enum;

text_enum! {
    /// Where an admission stands.
    pub enum AdmissionState: "admission state" {
        /// Written down; grants of external owners are being asked for. Nothing may be used yet.
        Preparing = "PREPARING",
        /// All its grants are held.
        Active = "ACTIVE",
        /// It was given back, or what was left of it was.
        Released = "RELEASED",
        /// Its time ran out.
        Expired = "EXPIRED",
    }
}

impl AdmissionState {
    /// Whether this transition exists.
    pub const fn may_become(self, next: Self) -> bool {
        matches!(
            (self, next),
            (
                Self::Preparing,
                Self::Active | Self::Released | Self::Expired
            ) | (Self::Active, Self::Released | Self::Expired)
        )
    }

    /// Whether it is over.
    pub const fn is_ended(self) -> bool {
        matches!(self, Self::Released | Self::Expired)
    }
}

text_enum! {
    /// Where one grant of an admission stands.
    pub enum GrantState: "grant state" {
        /// Promised by an external owner, and not to be used yet.
        Provisional = "PROVISIONAL",
        /// Its holder may use it.
        Held = "HELD",
        /// It was given back.
        Released = "RELEASED",
        /// Its time ran out.
        Expired = "EXPIRED",
    }
}

text_enum! {
    /// Why an admission ended.
    pub enum EndReason: "end reason" {
        /// Its holder gave it back.
        Holder = "RELEASED_BY_HOLDER",
        /// Its holder gave back its last grant with a phase.
        LastGrant = "LAST_GRANT_RELEASED",
        /// The next phase was refused.
        PhaseRefused = "NEXT_PHASE_REFUSED",
        /// It was not renewed in time.
        TimeOut = "TTL_PASSED",
        /// The descriptor epoch that it was admitted under was withdrawn.
        Withdrawn = "EPOCH_WITHDRAWN",
        /// Its tenant was suspended or erased.
        Tenant = "TENANT_ENDED",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// R7.2: no other transitions than these six.
    #[test]
    fn an_ended_admission_stays_what_it_is() {
        use AdmissionState::{Active, Expired, Preparing, Released};
        let there: Vec<_> = AdmissionState::ALL
            .iter()
            .flat_map(|from| AdmissionState::ALL.iter().map(move |to| (*from, *to)))
            .filter(|(from, to)| from.may_become(*to))
            .collect();
        let expected = [
            (Preparing, Active),
            (Preparing, Released),
            (Preparing, Expired),
            (Active, Released),
            (Active, Expired),
        ];
        assert_eq!(there, expected);
        assert!(Released.is_ended() && Expired.is_ended() && !Preparing.is_ended());
    }
}
