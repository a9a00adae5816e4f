//! What was logged on the thread of a test.
//!
//! One subscriber serves the whole process and writes to a buffer of the thread that logs. A subscriber of the thread alone
//! would miss lines at random: a callsite that another test's thread reaches first is remembered as of no interest.

use std::{cell::RefCell, io, sync::Once};

use tracing_subscriber::filter::LevelFilter;

thread_local! {
    static LOGGED: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

static INSTALL: Once = Once::new();

struct ThisThread;

impl io::Write for ThisThread {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        LOGGED.with_borrow_mut(|log| log.extend_from_slice(bytes));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Catches the log of this process from now on, down to debug. For tests whose servers run on the test's own thread.
pub fn catch() {
    INSTALL.call_once(|| {
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(LevelFilter::DEBUG)
            .with_ansi(false)
            .with_writer(|| ThisThread)
            .finish();
        tracing::subscriber::set_global_default(subscriber).expect("the first subscriber");
    });
}

/// What this thread has logged since [`catch`].
pub fn text() -> String {
    LOGGED.with_borrow(|log| String::from_utf8_lossy(log).into_owned())
}
