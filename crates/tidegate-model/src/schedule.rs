//! The rules of schedules (R3.14).

use crate::text_enum;

text_enum! {
    /// What becomes of due times that passed while nobody could fire them, because the schedule was paused, its tenant
    /// suspended, or no server ran.
    #[derive(Default)]
    pub enum MissedRuns: "rule for missed runs" {
        /// Nothing; the schedule goes on with the next due time.
        Skip = "skip",
        /// One run, for the latest of them.
        #[default]
        RunOnce = "runOnce",
        /// A run for each of them, the 100 latest at most.
        RunAll = "runAll",
    }
}

text_enum! {
    /// What becomes of a due time while an earlier run of the schedule has not ended.
    #[derive(Default)]
    pub enum Overlap: "rule for overlaps" {
        /// Its run starts beside the earlier ones.
        Allow = "allow",
        /// No run comes of it.
        #[default]
        Skip = "skip",
        /// Its run starts and the earlier ones are cancelled.
        Replace = "replace",
    }
}

text_enum! {
    /// Why no run came of a due time.
    pub enum SkipReason: "reason for skipping" {
        /// It was noticed too late, and the rule for missed runs had none for it.
        Missed = "missed",
        /// Another run of the schedule had not ended, or a later due time took its place.
        Overlap = "overlap",
    }
}
