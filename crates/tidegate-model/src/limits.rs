//! Limits of the contracts on the wire; the settings of a server live with its engine.

/// The largest body of a request, in bytes.
pub const REQUEST_MAX_BYTES: usize = 1 << 20;
/// The deepest nesting of JSON in a request and in what is stored. Readers stop at 128 levels, and what was stored stands a
/// few levels deeper in answers.
pub const JSON_DEPTH_MAX: usize = 64;
/// The longest name of a field that a problem repeats, in characters.
pub const PROBLEM_FIELD_MAX_CHARS: usize = 200;
/// The largest result of a run, in bytes.
pub const RESULT_MAX_BYTES: usize = 4 << 20;
/// The largest result that the journal of effects keeps of a call, in bytes.
pub const EFFECT_RESULT_MAX_BYTES: usize = 64 << 10;
/// The most effects of one run.
pub const EFFECTS_PER_RUN_MAX: i64 = 1_000;
/// The longest name of a tool in the journal, in characters.
pub const EFFECT_TOOL_MAX_CHARS: usize = 200;
/// The longest note on a review, in characters.
pub const NOTE_MAX_CHARS: usize = 2_000;
/// The longest idempotency key, in bytes.
pub const IDEMPOTENCY_KEY_MAX_BYTES: usize = 200;
/// The most leases one claim may ask for.
pub const CLAIM_MAX: u32 = 100;
/// The longest a claim may wait, in milliseconds.
pub const CLAIM_WAIT_MAX_MS: u64 = 30_000;
/// The most events one append may carry.
pub const EVENTS_PER_APPEND_MAX: usize = 500;
/// The largest page of a list.
pub const PAGE_MAX: u32 = 200;
/// The page of a list that names no size.
pub const PAGE_DEFAULT: u32 = 50;
/// The most attempts a run may ask for.
pub const ATTEMPTS_MAX: i32 = 100;
/// The highest priority; callers may only lower theirs.
pub const PRIORITY_MAX: i16 = 100;
/// The largest budget of a run, in tokens or milliseconds.
pub const BUDGET_MAX: i64 = 1_000_000_000_000;
/// The latest start or deadline, from now, in milliseconds (366 days).
pub const HORIZON_MAX_MS: i64 = 366 * 24 * 3_600_000;
/// The longest life of a key that ends, from now, in milliseconds (ten years of 366 days). One that shall live longer has
/// no end and is revoked.
pub const KEY_LIFE_MAX_MS: i64 = 10 * 366 * 24 * 3_600_000;
/// The longest key of a child, in bytes.
pub const CHILD_KEY_MAX_BYTES: usize = 200;
/// The longest question that a person is asked, in characters.
pub const ASK_PROMPT_MAX_CHARS: usize = 4_000;
/// The most choices of a question.
pub const ASK_CHOICES_MAX: usize = 20;
/// The longest answer of a person, in bytes.
pub const ANSWER_MAX_BYTES: usize = 256 << 10;
/// All results of children that one answer carries, in bytes; larger ones are read one by one.
pub const CHILD_RESULTS_MAX_BYTES: i64 = 1 << 20;
/// The most leases that a run may have had and still wait: whoever wakes and waits in a circle stops here.
pub const LEASES_BEFORE_WAIT_MAX: i64 = 10_000;
/// The most schedules of one tenant.
pub const SCHEDULES_MAX: i64 = 1_000;
/// The largest input of a scheduled run, in bytes: it is written again with each due time.
pub const SCHEDULE_INPUT_MAX_BYTES: usize = 64 << 10;
/// The highest epoch of a descriptor: the next one is always higher, so none may use them up.
pub const DESCRIPTOR_EPOCH_MAX: i64 = 1_000_000_000;
/// The highest policy generation.
pub const POLICY_GENERATION_MAX: i64 = 1_000_000_000;
/// The longest cron expression, in characters.
pub const CRON_MAX_CHARS: usize = 200;
/// The shortest catch-up window of a schedule, in milliseconds.
pub const CATCH_UP_MIN_MS: i64 = 60_000;
/// The longest catch-up window of a schedule, in milliseconds (366 days).
pub const CATCH_UP_MAX_MS: i64 = HORIZON_MAX_MS;
/// The catch-up window of a schedule that names none, in milliseconds (one day).
pub const CATCH_UP_DEFAULT_MS: i64 = 24 * 3_600_000;
/// The most runs that a schedule makes up for.
pub const MISSED_RUNS_MAX: usize = 100;

const _: () = assert!(
    REQUEST_MAX_BYTES < RESULT_MAX_BYTES,
    "a result may be larger than a request"
);
const _: () = assert!(PAGE_DEFAULT <= PAGE_MAX, "the default page is a page");
